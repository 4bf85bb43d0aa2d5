// hyperc compile and hyperc check.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>

#include "base/strings.h"
#include "frontend/strategy/strategy.h"
#include "tools/driver/compile_job.h"
#include "tools/driver/load_strategy.h"
#include "tools/hyperc/commands.h"
#include "tools/whole_number.h"

namespace hyper::tools {
namespace {

// Of a rank; the machine that will run it may be larger than this one.
constexpr int kMaxThreads = 4096;
constexpr int kMaxJobs = 1024;

struct CompileCommandOptions {
  std::string model;
  std::string strategy;
  std::string out;
  std::string march = "native";
  std::string kernels = "auto";
  bool explain = false;
  int jobs = 2;
  int threads = 0;
};

// Documented in README.md. Empty: no cache.
std::string KernelCacheDir() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  const std::string own = variable("HYPER_KERNEL_CACHE");
  if (own == "off") return {};
  if (!own.empty()) return own;
  const std::string cache = variable("XDG_CACHE_HOME");
  if (!cache.empty()) return JoinPath(cache, "hyper/kernels");
  const std::string home = variable("HOME");
  return home.empty() ? std::string() : JoinPath(home, ".cache/hyper/kernels");
}

// "a | b: reason" of all subprograms: by reason, rarest first, equal pairs counted.
void ExplainUnfused(const std::vector<std::string>& unfused) {
  constexpr size_t kShown = 6;  // pairs of one reason
  struct Pair {
    std::string text;
    int count = 0;
  };
  struct Reason {
    std::string text;
    int count = 0;
    std::vector<Pair> pairs;  // in order of their first
  };
  std::vector<Reason> reasons;
  for (const std::string& line : unfused) {
    const size_t colon = line.rfind(": ");
    const std::string pair = line.substr(0, colon);
    const std::string why = colon == std::string::npos ? "" : line.substr(colon + 2);
    auto reason = std::find_if(reasons.begin(), reasons.end(),
                               [&](const Reason& r) { return r.text == why; });
    if (reason == reasons.end()) reason = reasons.insert(reasons.end(), {why, 0, {}});
    ++reason->count;
    auto known = std::find_if(reason->pairs.begin(), reason->pairs.end(),
                              [&](const Pair& p) { return p.text == pair; });
    if (known == reason->pairs.end()) known = reason->pairs.insert(known, {pair, 0});
    ++known->count;
  }
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const Reason& a, const Reason& b) { return a.count < b.count; });
  for (const Reason& reason : reasons) {
    WriteErr(fmt::format("not fused, {} ({}):\n", reason.text,
                         reason.count == 1 ? "1 pair" : fmt::format("{} pairs", reason.count)));
    for (size_t i = 0; i < std::min(kShown, reason.pairs.size()); ++i) {
      const Pair& pair = reason.pairs[i];
      WriteErr(fmt::format("  {}{}\n", pair.text,
                           pair.count == 1 ? "" : fmt::format(" ({} times)", pair.count)));
    }
    if (reason.pairs.size() > kShown) {
      WriteErr(fmt::format("  and {} other pairs: 'unfused' in the bundle's plan.json\n",
                           reason.pairs.size() - kShown));
    }
  }
}

void Explain(const CompiledJob& job) {
  for (const ir::PersistentTensor& tensor : job.tensors) {
    const auto reason = job.reasons.find(tensor.name);
    WriteErr(fmt::format("{}: {} {}: {}\n", ir::ArgumentKindName(tensor.kind), tensor.name,
                         tensor.type.ToString(),
                         reason == job.reasons.end() ? "" : reason->second));
  }
  ExplainUnfused(job.unfused);
}

Status Compile(const CompileCommandOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  Diagnostics notes;
  HYPER_ASSIGN_OR_RETURN(const strategy::Strategy strategy,
                         LoadStrategy(RealFileSystem(), options.strategy, options.model, &notes));
  CompileJobOptions job_options;
  job_options.kernels.march = options.march;
  job_options.kernels.jobs = options.jobs;
  job_options.kernels.cache_dir = KernelCacheDir();
  if (const char* compiler = std::getenv("CXX")) job_options.kernels.compiler = compiler;
  job_options.threads = options.threads;
  job_options.reference_kernels = options.kernels == "reference";
  HYPER_ASSIGN_OR_RETURN(CompiledJob job, CompileJob(options.model, strategy, job_options, &notes));
  WriteNotes(notes);
  if (options.explain) Explain(job);
  const int64_t arena = job.content.program.arena_bytes();
  const auto compiled = std::chrono::steady_clock::now();
  HYPER_RETURN_IF_ERROR(
      codegen::WriteBundle(RealFileSystem(), options.out, std::move(job.content)));
  const auto end = std::chrono::steady_clock::now();
  using Seconds = std::chrono::duration<double>;
  WriteErr(fmt::format("wrote {} in {:.1f} s ({:.1f} s of it writing); one rank needs {}\n",
                       options.out, Seconds(end - begin).count(), Seconds(end - compiled).count(),
                       FormatBytes(arena)));
  return Status::Ok();
}

Status Check(const std::string& strategy_path, const std::string& model_path) {
  Diagnostics notes;
  HYPER_ASSIGN_OR_RETURN(const strategy::Strategy strategy,
                         LoadStrategy(RealFileSystem(), strategy_path, model_path, &notes));
  if (!model_path.empty()) {
    HYPER_ASSIGN_OR_RETURN(const auto model, onnx_frontend::LoadModel(model_path, {}, &notes));
    HYPER_RETURN_IF_ERROR(BuildModule(*model, strategy, &notes, nullptr).status());
  }
  WriteNotes(notes);
  WriteErr(strategy_path + ": no errors\n");
  return Status::Ok();
}

}  // namespace

Command AddCompile(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("compile", "compile a model and a strategy into a bundle");
  auto options = std::make_shared<CompileCommandOptions>();
  sub->add_option("MODEL", options->model, "the .onnx file")->required();
  sub->add_option("-s,--strategy", options->strategy, "the .yaml file")->required();
  sub->add_option("-o,--output", options->out, "the bundle to write (a folder)")->required();
  sub->add_option("--march", options->march,
                  "processor to build kernels for, as GCC names it (default: this one)");
  sub->add_option("--threads", options->threads,
                  "threads per rank that memory is planned for, at most\n"
                  "(default: this machine's)")
      ->type_name("N")
      ->check(WholeNumber(1, kMaxThreads));
  sub->add_option("--kernels", options->kernels,
                  "auto, or reference: every op by plain loops (slow; to compare with)")
      ->check(CLI::IsMember({"auto", "reference"}));
  sub->add_flag("--explain", options->explain,
                "say what is trained and what was not fused, and why");
  sub->add_option("--jobs", options->jobs, "compilers run at once")
      ->type_name("N")
      ->check(WholeNumber(1, kMaxJobs));
  return [options] { return Compile(*options); };
}

Command AddCheck(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("check", "check a strategy, and how it fits a model");
  auto strategy = std::make_shared<std::string>();
  auto model = std::make_shared<std::string>();
  sub->add_option("STRATEGY", *strategy, "the .yaml file")->required();
  sub->add_option("--model", *model, "the .onnx file it is meant for");
  return [strategy, model] { return Check(*strategy, *model); };
}

}  // namespace hyper::tools
