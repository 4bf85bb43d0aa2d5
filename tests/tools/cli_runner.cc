#include "tests/tools/cli_runner.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hyper::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::minutes kPatience{5};

// The program that runs while HyperrunWhile calls back.
pid_t running = 0;

// Removed at the end of the process.
struct ScratchHolder {
  std::string path;
  ScratchHolder() {
    path = (fs::temp_directory_path() / "hyper-cli-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) std::abort();
  }
  ~ScratchHolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

// The environment without a launcher's variables: a test may itself run below one.
std::vector<std::string> Environment(const std::string& cache) {
  std::vector<std::string> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const bool launcher = text.starts_with("OMPI_") || text.starts_with("PMIX_") ||
                          text.starts_with("PMI_") || text.starts_with("SLURM_");
    if (!launcher && !text.starts_with("XDG_CACHE_HOME=")) kept.emplace_back(text);
  }
  kept.push_back("XDG_CACHE_HOME=" + cache);
  return kept;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

int WaitFor(pid_t child) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  int state = 0;
  while (::waitpid(child, &state, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &state, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

// Children of a process that execute `program`.
std::vector<int> ChildrenOf(pid_t parent, const std::string& program) {
  std::vector<int> children;
  const std::string proc = "/proc/" + std::to_string(parent);
  std::error_code error;
  for (const auto& thread : fs::directory_iterator(proc + "/task", error)) {
    std::ifstream list(thread.path() / "children");
    for (int child = 0; list >> child;) {
      const fs::path link = "/proc/" + std::to_string(child) + "/exe";
      if (fs::read_symlink(link, error) == fs::path(program)) children.push_back(child);
    }
  }
  return children;
}

CliRun RunProgram(const char* program, const std::string& cache,
                  const std::vector<std::string>& arguments,
                  const std::function<void(pid_t)>& meanwhile = {}) {
  std::vector<std::string> argv = {program};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment = Environment(cache);
  const std::vector<char*> argv_pointers = Pointers(argv);
  const std::vector<char*> environment_pointers = Pointers(environment);
  const std::string out = Scratch(".stdout");
  const std::string err = Scratch(".stderr");
  const std::string& folder = ScratchFolder();
  const pid_t child = ::fork();
  if (child == 0) {
    const int flags = O_CREAT | O_TRUNC | O_WRONLY;
    const int null = ::open("/dev/null", O_RDONLY);
    const int out_file = ::open(out.c_str(), flags, 0600);
    const int err_file = ::open(err.c_str(), flags, 0600);
    if (null < 0 || out_file < 0 || err_file < 0 || ::chdir(folder.c_str()) != 0) ::_exit(126);
    ::dup2(null, 0);
    ::dup2(out_file, 1);
    ::dup2(err_file, 2);
    ::execve(program, argv_pointers.data(), environment_pointers.data());
    ::_exit(127);
  }
  CliRun run;
  if (child < 0) return run;
  running = child;
  if (meanwhile) meanwhile(child);
  running = 0;
  run.exit_code = WaitFor(child);
  run.out = ReadBytes(out);
  run.err = ReadBytes(err);
  return run;
}

}  // namespace

const std::string& ScratchFolder() {
  static const ScratchHolder holder;
  return holder.path;
}

std::string Scratch(const std::string& name) { return ScratchFolder() + "/" + name; }

std::string Recipe(const std::string& file) {
  return std::string(HYPER_SOURCE_DIR) + "/recipes/" + file;
}

CliRun HypercWithCache(const std::string& cache, const std::vector<std::string>& arguments) {
  return RunProgram(HYPERC_PROGRAM, Scratch(cache), arguments);
}

CliRun Hyperc(const std::vector<std::string>& arguments) {
  return HypercWithCache("cache", arguments);
}

CliRun Hyperrun(const std::vector<std::string>& arguments) {
  return RunProgram(HYPERRUN_PROGRAM, Scratch("cache"), arguments);
}

CliRun HypercWatched(const std::vector<std::string>& arguments, int64_t* anonymous_peak) {
  return RunProgram(HYPERC_PROGRAM, Scratch("cache"), arguments, [&](pid_t child) {
    const std::string status = "/proc/" + std::to_string(child) + "/status";
    WaitUntil([&] {
      std::istringstream lines(ReadBytes(status));
      for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("RssAnon:")) continue;
        *anonymous_peak = std::max<int64_t>(*anonymous_peak, std::stoll(line.substr(8)) * 1024);
      }
      return false;
    });
  });
}

bool WaitUntil(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!done()) {
    siginfo_t state{};
    const bool over =
        running != 0 &&
        ::waitid(P_PID, static_cast<id_t>(running), &state, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        state.si_pid == running;
    if (over) return done();
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

CliRun HyperrunWhile(int ranks, const std::vector<std::string>& arguments,
                     const std::function<void(const std::vector<int>& processes)>& meanwhile) {
  if (ranks == 0) {
    return RunProgram(HYPERRUN_PROGRAM, Scratch("cache"), arguments,
                      [&](pid_t child) { meanwhile({child}); });
  }
  std::vector<std::string> launched = {"-n", std::to_string(ranks), "--oversubscribe",
                                       "--allow-run-as-root", HYPERRUN_PROGRAM};
  launched.insert(launched.end(), arguments.begin(), arguments.end());
  return RunProgram(MPIEXEC_PROGRAM, Scratch("cache"), launched, [&](pid_t child) {
    std::vector<int> processes;
    WaitUntil([&] {
      processes = ChildrenOf(child, HYPERRUN_PROGRAM);
      return static_cast<int>(processes.size()) == ranks;
    });
    meanwhile(processes);
  });
}

CliRun HyperrunWithoutMemory(const std::string& from, const std::vector<std::string>& arguments) {
  std::vector<std::string> launched = {"-n",
                                       "2",
                                       "--oversubscribe",
                                       "--allow-run-as-root",
                                       "-x",
                                       "HYPER_TEST_NO_MEMORY=" + from,
                                       HYPERRUN_WITHOUT_MEMORY};
  launched.insert(launched.end(), arguments.begin(), arguments.end());
  return RunProgram(MPIEXEC_PROGRAM, Scratch("cache"), launched);
}

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

void WriteBytes(const std::string& path, const std::string& bytes) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string Npy(const std::string& dtype, const std::string& shape, const std::string& data) {
  std::string header =
      "{'descr': '" + dtype + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize((header.size() + 10) / 64 * 64 + 64 - 10 - 1, ' ');
  header += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size() % 256) +
         static_cast<char>(header.size() / 256) + header + data;
}

const std::string& RecipeBundle(const std::string& recipe) {
  static std::map<std::string, std::string> bundles;
  const auto [it, fresh] = bundles.emplace(recipe, Scratch(recipe + ".bundle"));
  if (fresh) {
    const CliRun run = Hyperc({"compile", Recipe(recipe + "/model.onnx"), "-s",
                               Recipe(recipe + "/train.yaml"), "-o", it->second});
    EXPECT_EQ(run.exit_code, 0) << run.err;
  }
  return it->second;
}

std::string CopyOfBundle(const std::string& recipe, const std::string& name) {
  const std::string& bundle = RecipeBundle(recipe);
  const std::string copy = Scratch(name);
  fs::remove_all(copy);
  fs::copy(bundle, copy, fs::copy_options::recursive);
  return copy;
}

std::vector<std::string> FilesBelow(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), folder).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << "'" << from << "' is not in the text";
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

void ExpectGolden(const std::string& name, const std::string& actual) {
  const std::string path = std::string(HYPER_SOURCE_DIR) + "/tests/tools/golden/" + name;
  const char* update = std::getenv("HYPER_UPDATE_GOLDEN");
  if (update != nullptr && std::string_view(update) == "1") {
    WriteBytes(path, actual);
    return;
  }
  EXPECT_EQ(actual, ReadBytes(path)) << path << " (HYPER_UPDATE_GOLDEN=1 rewrites it)";
}

}  // namespace hyper::tools
