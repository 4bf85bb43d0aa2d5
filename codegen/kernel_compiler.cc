#include "codegen/kernel_compiler.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/sha256.h"
#include "codegen/kernel_library.h"
#include "codegen/process.h"

namespace hyper::codegen {
namespace {

// More units compile in parallel, fewer repeat the prelude less often.
constexpr int kKernelsPerUnit = 16;
constexpr int kMaxUnits = 8;
constexpr int64_t kObjectLimit = int64_t{1} << 30;

// Part of the cache key. Numerics: every operation rounds to its type, no contraction; errno and
// floating-point traps are not used, which lets loops with conditions vectorise.
const std::vector<std::string>& Flags() {
  static const std::vector<std::string> flags = {"-std=c++20",
                                                 "-O3",
                                                 "-ffp-contract=off",
                                                 "-fno-math-errno",
                                                 "-fno-trapping-math",
                                                 "-fopenmp-simd",
                                                 "-fPIC",
                                                 "-fvisibility=hidden",
                                                 "-fno-exceptions",
                                                 "-fno-rtti",
                                                 "-fno-asynchronous-unwind-tables",
                                                 "-frandom-seed=hyper",
                                                 "-w"};
  return flags;
}

class TemporaryFolder {
 public:
  static Result<std::unique_ptr<TemporaryFolder>> Create() {
    std::error_code error;
    const std::filesystem::path base = std::filesystem::temp_directory_path(error);
    if (error) {
      return ResourceExhausted(fmt::format("no folder for temporary files: {}", error.message()));
    }
    std::string pattern = base / "hyperc-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) {
      return ResourceExhausted(fmt::format("cannot make a temporary folder '{}'", pattern));
    }
    return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(pattern));
  }
  ~TemporaryFolder() { (void)RealFileSystem()->RemoveAll(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Objects by key. An entry starts with the hash of the rest: a damaged one is as good as none.
class Cache {
 public:
  explicit Cache(std::string folder) : folder_(std::move(folder)) {}

  std::string Find(const std::string& key) const {
    if (folder_.empty()) return {};
    const Result<std::string> entry = RealFileSystem()->ReadAll(Path(key), kObjectLimit);
    constexpr size_t kHash = 64;
    if (!entry.ok() || entry->size() < kHash) return {};
    std::string object = entry->substr(kHash);
    return Sha256Hex(object) == entry->substr(0, kHash) ? object : std::string();
  }

  Status Insert(const std::string& key, const std::string& object) const {
    if (folder_.empty()) return Status::Ok();
    FileSystem* fs = RealFileSystem();
    HYPER_RETURN_IF_ERROR(fs->MakeDirs(folder_));
    // A name of our own, so that processes that build the same kernel do not meet.
    const std::string temporary = fmt::format("{}.{}.tmp", Path(key), ::getpid());
    HYPER_RETURN_IF_ERROR(WriteFile(fs, temporary, Sha256Hex(object) + object));
    return fs->Rename(temporary, Path(key));
  }

 private:
  std::string Path(const std::string& key) const { return JoinPath(folder_, key + ".o"); }
  std::string folder_;
};

// Compiles the units of one object, at most `jobs` at a time.
class UnitCompiler {
 public:
  UnitCompiler(const std::vector<std::string>& texts, const CompileOptions& options,
               std::string version, std::string folder)
      : texts_(texts),
        options_(options),
        version_(std::move(version)),
        folder_(std::move(folder)),
        cache_(options.cache_dir),
        cache_results_(texts.size()) {}

  Status Run() {
    std::vector<Status> results(texts_.size());
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      for (size_t unit = next++; unit < texts_.size(); unit = next++) {
        results[unit] = Guard([&] { return Compile(unit); });
      }
    };
    const int jobs = std::min<int>(std::max(options_.jobs, 1), static_cast<int>(texts_.size()));
    std::vector<std::jthread> helpers;
    for (int i = 1; i < jobs; ++i) helpers.emplace_back(work);
    work();
    helpers.clear();  // joins
    for (const Status& status : results) HYPER_RETURN_IF_ERROR(status);
    return Status::Ok();
  }

  // Why objects could not be kept, after Run; empty when they could. Only the next compilation
  // misses them.
  std::string CacheNote() const {
    for (const Status& status : cache_results_) {
      if (!status.ok()) return "the kernel cache is not used: " + status.message();
    }
    return {};
  }

  static std::string ObjectName(size_t unit) { return fmt::format("kernels{}.o", unit); }

 private:
  Status Compile(size_t unit) {
    // Names inside the folder: nothing of the path gets into the object.
    const std::string source_name = fmt::format("kernels{}.cc", unit);
    std::vector<std::string> arguments = Flags();
    arguments.push_back("-march=" + options_.march);
    std::string key_text = version_ + '\n' + source_name + '\n';
    for (const std::string& argument : arguments) key_text += argument + '\n';
    const std::string key = Sha256Hex(key_text + texts_[unit]);
    const std::string object_path = JoinPath(folder_, ObjectName(unit));
    if (const std::string object = cache_.Find(key); !object.empty()) {
      return WriteFile(RealFileSystem(), object_path, object);
    }
    HYPER_RETURN_IF_ERROR(
        WriteFile(RealFileSystem(), JoinPath(folder_, source_name), texts_[unit]));
    arguments.insert(arguments.begin(), options_.compiler);
    arguments.push_back("-ffile-prefix-map=" + folder_ + "=.");
    for (const std::string& word :
         {std::string("-c"), source_name, std::string("-o"), ObjectName(unit)}) {
      arguments.push_back(word);
    }
    HYPER_ASSIGN_OR_RETURN(const ProcessOutput output, RunProcess(arguments, folder_));
    if (output.exit_code != 0) {
      return Internal(fmt::format("the host compiler refused generated kernels (exit code {}):\n{}",
                                  output.exit_code, output.text.substr(0, 8000)));
    }
    HYPER_ASSIGN_OR_RETURN(const std::string object,
                           RealFileSystem()->ReadAll(object_path, kObjectLimit));
    cache_results_[unit] = cache_.Insert(key, object);
    return Status::Ok();
  }

  const std::vector<std::string>& texts_;
  const CompileOptions& options_;
  std::string version_;
  std::string folder_;
  Cache cache_;
  std::vector<Status> cache_results_;  // per unit
};

std::string ExtentsTable(const KernelText& kernel) {
  std::string numbers = fmt::format("{}", kernel.extents.size());
  for (const auto& [begin, end] : kernel.extents) numbers += fmt::format(", {}, {}", begin, end);
  return fmt::format(
      "extern \"C\" __attribute__((visibility(\"default\"))) const int64_t {0}{1}[] = {{{2}}};\n"
      "extern \"C\" __attribute__((visibility(\"default\"))) void {0}(char* const*, int64_t, "
      "int64_t);\n",
      kernel.symbol, kExtentsSuffix, numbers);
}

// Kernels keep their unit when others come and go, so that the cache stays useful.
size_t UnitOf(const KernelText& kernel, size_t units) {
  const std::string hash = Sha256Hex(kernel.symbol);
  return static_cast<size_t>(std::stoul(hash.substr(0, 8), nullptr, 16)) % units;
}

Result<std::string> CompilerVersion(const std::string& compiler) {
  const Result<ProcessOutput> output = RunProcess({compiler, "--version"});
  if (output.ok() && output->exit_code == 0) return output->text;
  return FailedPrecondition(
      fmt::format("the host compiler '{}' cannot be used: {}; install g++ or name another one",
                  compiler, output.ok() ? output->text.substr(0, 400) : output.status().message()));
}

Result<std::string> Link(const CompileOptions& options, const std::string& folder, size_t units) {
  // Only the C and maths libraries, every symbol known now, no build id, stripped of local names.
  std::vector<std::string> arguments = {options.compiler,
                                        "-shared",
                                        "-fPIC",
                                        "-nodefaultlibs",
                                        "-Wl,--build-id=none",
                                        "-Wl,-z,defs",
                                        "-Wl,-z,relro,-z,now,-z,noexecstack",
                                        "-Wl,-soname,kernels.so",
                                        "-Wl,-x",
                                        "-o",
                                        "kernels.so"};
  for (size_t unit = 0; unit < units; ++unit) {
    arguments.push_back(UnitCompiler::ObjectName(unit));
  }
  for (const char* library : {"-lm", "-lc", "-lgcc"}) arguments.emplace_back(library);
  HYPER_ASSIGN_OR_RETURN(const ProcessOutput output, RunProcess(arguments, folder));
  if (output.exit_code != 0) {
    return Internal(
        fmt::format("the host compiler could not link generated kernels "
                    "(exit code {}):\n{}",
                    output.exit_code, output.text.substr(0, 8000)));
  }
  return RealFileSystem()->ReadAll(JoinPath(folder, "kernels.so"), kObjectLimit);
}

}  // namespace

Result<CompiledKernels> CompileKernelTexts(const std::string& prelude,
                                           std::vector<KernelText> kernels,
                                           const CompileOptions& options) {
  CompiledKernels compiled;
  if (kernels.empty()) return compiled;
  std::sort(kernels.begin(), kernels.end(),
            [](const KernelText& a, const KernelText& b) { return a.symbol < b.symbol; });
  const size_t units =
      std::clamp<size_t>((kernels.size() + kKernelsPerUnit - 1) / kKernelsPerUnit, 1, kMaxUnits);
  std::vector<std::string> texts(units, prelude + "\n#include <cstdint>\n");
  compiled.source = texts[0];
  for (const KernelText& kernel : kernels) {
    const std::string text = ExtentsTable(kernel) + kernel.text + "\n";
    texts[UnitOf(kernel, units)] += text;
    compiled.source += text;
  }
  CompileOptions resolved = options;
  if (options.march == "native") {
    HYPER_ASSIGN_OR_RETURN(const MarchInfo info, ResolveMarch(options.march, options.compiler));
    resolved.march = info.march;
  }
  HYPER_ASSIGN_OR_RETURN(const std::string version, CompilerVersion(options.compiler));
  HYPER_ASSIGN_OR_RETURN(const std::unique_ptr<TemporaryFolder> folder, TemporaryFolder::Create());
  UnitCompiler compiler(texts, resolved, version, folder->path());
  HYPER_RETURN_IF_ERROR(compiler.Run());
  compiled.cache_note = compiler.CacheNote();
  HYPER_ASSIGN_OR_RETURN(compiled.object, Link(resolved, folder->path(), units));
  return compiled;
}

}  // namespace hyper::codegen
