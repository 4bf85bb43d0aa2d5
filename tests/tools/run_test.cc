// A running hyperrun: signals, what it says about where it starts, folders that are in use, files
// that are none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/tools/cli_runner.h"

namespace hyper::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

constexpr char kConvNet[] = R"(version: 1
model: {dims: {batch: 2}}
train:
  loss: {kind: cross_entropy, logits: logits, labels: labels}
  optimizer: {kind: sgd, lr: 1e-3}
data:
  kind: synthetic
  inputs:
    image: {field: normal}
    labels: {field: integers, low: 0, high: 10}
run: {steps: 3, dir: run, log_every: 1000000}
)";

const std::string& Bundle() {
  static const std::string bundle = [] {
    WriteBytes(Scratch("run.yaml"), kConvNet);
    const CliRun run = Hyperc({"compile", Recipe("fashion_mnist/model.onnx"), "-s",
                               Scratch("run.yaml"), "-o", Scratch("run.bundle")});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return Scratch("run.bundle");
  }();
  return bundle;
}

std::vector<std::string> Arguments(const std::string& dir, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {Bundle(), "--threads", "1", "--set",
                                        "run.dir=" + Scratch(dir)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

int64_t Lines(const std::string& path) {
  const std::string text = ReadBytes(path);
  return std::count(text.begin(), text.end(), '\n');
}

TEST(Signals, AnyRankMayBeAskedToStop) {
  struct Case {
    int ranks;  // 0: without a launcher
    size_t asked;
    int signal;
  };
  for (const Case c :
       {Case{0, 0, SIGTERM}, Case{0, 0, SIGUSR1}, Case{2, 1, SIGUSR1}, Case{2, 0, SIGTERM}}) {
    const std::string dir = "stop" + std::to_string(c.ranks) + std::to_string(c.signal);
    const std::string metrics = Scratch(dir) + "/metrics.jsonl";
    const CliRun run = HyperrunWhile(
        c.ranks, Arguments(dir, {"--steps", "1000000"}), [&](const std::vector<int>& ranks) {
          ASSERT_GT(ranks.size(), c.asked);
          EXPECT_TRUE(WaitUntil([&] { return Lines(metrics) >= 3; }));
          ::kill(ranks[c.asked], c.signal);
          ::kill(ranks[c.asked], c.signal);  // batch systems repeat themselves
        });
    EXPECT_EQ(run.exit_code, 75) << run.out << run.err;
    const int64_t steps = Lines(metrics);
    const std::string saved = Scratch(dir) + "/checkpoints/step-";
    const std::string said = "hyperrun: stopped on request: step " + std::to_string(steps) +
                             " of 1000000 is done and saved; continue with --checkpoint " + saved;
    const std::string all = run.out + run.err;
    const size_t at = all.find(said);
    ASSERT_NE(at, std::string::npos) << said << "\n" << all;
    EXPECT_EQ(all.find("stopped on request", at + said.size()), std::string::npos);  // once
    // It goes on from there, and says from where.
    const CliRun rest = Hyperrun(Arguments(dir, {"--checkpoint", Scratch(dir) + "/checkpoints",
                                                 "--steps", std::to_string(steps + 2)}));
    EXPECT_EQ(rest.exit_code, 0) << rest.err;
    EXPECT_THAT(rest.out,
                AllOf(HasSubstr("start       step " + std::to_string(steps) + " from " + saved),
                      HasSubstr("steps       " + std::to_string(steps + 1) + " to " +
                                std::to_string(steps + 2))));
    EXPECT_EQ(Lines(metrics), steps + 2);
  }
}

// Which of SIGTERM and SIGUSR1 each thread of a process keeps from itself: both, none or one.
std::vector<int> BlockedStopSignals(int process) {
  std::vector<int> blocked;
  for (const auto& thread : fs::directory_iterator("/proc/" + std::to_string(process) + "/task")) {
    std::istringstream lines(ReadBytes((thread.path() / "status").string()));
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("SigBlk:")) continue;
      const uint64_t mask = std::stoull(line.substr(7), nullptr, 16);
      blocked.push_back(static_cast<int>(mask >> (SIGTERM - 1) & 1) +
                        static_cast<int>(mask >> (SIGUSR1 - 1) & 1));
    }
  }
  return blocked;
}

// A handler's frame on a computing thread would destroy memory of the math library
// (tools/hyperrun/stop_signals.h).
TEST(Signals, OneThreadThatComputesNothingReceivesThem) {
  for (const int ranks : {0, 2}) {
    const std::string dir = "masks" + std::to_string(ranks);
    std::vector<int> blocked;
    const std::vector<std::string> arguments = {
        Bundle(), "--threads", "2", "--steps", "1000000", "--set", "run.dir=" + Scratch(dir)};
    HyperrunWhile(ranks, arguments, [&](const std::vector<int>& processes) {
      EXPECT_TRUE(WaitUntil([&] { return Lines(Scratch(dir) + "/metrics.jsonl") >= 3; }));
      blocked = BlockedStopSignals(processes.at(0));
      for (const int process : processes) ::kill(process, SIGTERM);
    });
    EXPECT_GE(blocked.size(), 3U);  // two that compute and the receiver
    EXPECT_EQ(std::count(blocked.begin(), blocked.end(), 0), 1);
    EXPECT_EQ(std::count(blocked.begin(), blocked.end(), 2),
              static_cast<int64_t>(blocked.size()) - 1);
  }
}

// Nobody else knows: the rank says it and ends all, instead of waiting for ranks that wait for it.
TEST(Failures, AnExceptionOnOneRankEndsAllWithItsMessage) {
  const CliRun run = HyperrunWithoutMemory(
      Scratch("alone/metrics.jsonl"),
      Arguments("alone", {"--steps", "1000000", "--set", "run.checkpoint.every=1"}));
  EXPECT_EQ(run.exit_code, 4) << run.out << run.err;
  EXPECT_THAT(run.err, HasSubstr("hyperrun: rank 1: resources exhausted: out of memory"));
}

TEST(RunFolders, OneJobAtATimeAndNoMixing) {
  CliRun second;
  const CliRun first = HyperrunWhile(
      0, Arguments("shared", {"--steps", "1000000"}), [&](const std::vector<int>& ranks) {
        EXPECT_TRUE(WaitUntil([&] { return Lines(Scratch("shared/metrics.jsonl")) >= 1; }));
        second = Hyperrun(Arguments("shared", {"--overwrite"}));
        EXPECT_EQ(second.exit_code, 1);
        EXPECT_THAT(second.err, AllOf(HasSubstr(Scratch("shared")),
                                      HasSubstr("in use by process " + std::to_string(ranks[0]))));
        ::kill(ranks[0], SIGKILL);
      });
  EXPECT_EQ(first.exit_code, 128 + SIGKILL);
  const CliRun refused = Hyperrun(Arguments("shared"));  // no longer locked, but used
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("metrics.jsonl"), HasSubstr("--overwrite"),
                                 HasSubstr("--set run.dir=")));
  EXPECT_EQ(Hyperrun(Arguments("shared", {"--overwrite"})).exit_code, 0);
  EXPECT_EQ(Lines(Scratch("shared/metrics.jsonl")), 3);
}

TEST(Export, ComesFromWhatWasLoadedAtTheStart) {
  const std::string moved = Scratch("moved.bundle");
  fs::copy(Bundle(), moved, fs::copy_options::recursive);
  const std::string metrics = Scratch("moved/metrics.jsonl");
  std::vector<std::string> arguments =
      Arguments("moved", {"--steps", "40", "--export", Scratch("moved.onnx")});
  arguments[0] = moved;
  const CliRun run = HyperrunWhile(0, arguments, [&](const std::vector<int>&) {
    EXPECT_TRUE(WaitUntil([&] { return fs::exists(metrics); }));
    fs::remove_all(moved);
  });
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(Hyperc({"inspect", Scratch("moved.onnx")}).exit_code, 0);
}

TEST(Outputs, AreRefusedBeforeTheFirstStep) {
  for (const auto& [option, path] :
       std::vector<std::pair<std::string, std::string>>{{"--trace", Scratch("no/trace.json")},
                                                        {"--export", Scratch("no/x.onnx")},
                                                        {"--trace", "/dev/null"},
                                                        {"--export", ScratchFolder()}}) {
    const CliRun run = Hyperrun(Arguments("refused", {option, path}));
    EXPECT_EQ(run.exit_code, 1) << option << path;
    EXPECT_THAT(run.err, HasSubstr(path));
    EXPECT_THAT(run.out, Not(HasSubstr("step 1/")));
  }
}

// Reading from any of these could wait for ever.
TEST(SpecialFiles, AreRefusedByTheirType) {
  const std::string pipe = Scratch("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string socket_path = Scratch("sock");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(socket_path.size(), sizeof(address.sun_path));
  std::copy(socket_path.begin(), socket_path.end(), address.sun_path);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ::close(fd);
  const std::string model = Recipe("fashion_mnist/model.onnx");
  const std::string strategy = Recipe("fashion_mnist/train.yaml");
  struct Kind {
    std::string path, says;
  };
  const std::vector<Kind> kinds = {
      {pipe, "a named pipe"}, {"/dev/zero", "a device"}, {ScratchFolder(), "a folder"}};
  for (const Kind& kind : kinds) {
    const auto refused = [&](const CliRun& run) {
      EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
      EXPECT_THAT(run.err, AllOf(HasSubstr(kind.path), HasSubstr(kind.says)));
    };
    refused(Hyperc({"inspect", kind.path}));
    refused(Hyperc({"check", kind.path}));
    refused(Hyperc({"compile", kind.path, "-s", strategy, "-o", Scratch("x.bundle")}));
    const std::string dir = "run.dir=" + Scratch("special");
    refused(Hyperrun({RecipeBundle("bytes_gpt"), "--threads", "1", "--set", dir, "--set",
                      "data.path=" + kind.path}));
    refused(Hyperrun({RecipeBundle("fashion_mnist"), "--threads", "1", "--set", dir, "--set",
                      "data.inputs.image.file=" + kind.path}));
    fs::create_directories(Scratch("saved"));
    fs::remove_all(Scratch("saved/manifest.json"));
    fs::create_symlink(kind.path, Scratch("saved/manifest.json"));
    const CliRun run = Hyperrun(Arguments("special", {"--checkpoint", Scratch("saved")}));
    EXPECT_EQ(run.exit_code, 1) << run.err;
    EXPECT_THAT(run.err, HasSubstr(kind.says));
  }
  // A socket cannot even be opened.
  EXPECT_EQ(Hyperc({"inspect", socket_path}).exit_code, 1);
  for (const std::string& bundle : {pipe, std::string("/dev/zero")}) {
    EXPECT_EQ(Hyperrun({bundle}).exit_code, 1);
  }
}

TEST(KernelCache, GoesWithoutWhereItCannotBeWritten) {
  WriteBytes(Scratch("a_file"), "x");
  const std::vector<std::string> arguments = {"compile", Recipe("fashion_mnist/model.onnx"),
                                              "-s",      Scratch("run.yaml"),
                                              "-o",      Scratch("uncached.bundle")};
  Bundle();  // writes the strategy
  const CliRun run = HypercWithCache("a_file", arguments);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const std::string note = "the kernel cache is not used";
  const size_t at = run.err.find(note);
  ASSERT_NE(at, std::string::npos) << run.err;
  EXPECT_EQ(run.err.find(note, at + 1), std::string::npos);
  EXPECT_THAT(run.err, HasSubstr(Scratch("a_file")));
  ::setenv("HYPER_KERNEL_CACHE", "off", 1);
  const CliRun off = HypercWithCache("a_file", arguments);
  ::setenv("HYPER_KERNEL_CACHE", Scratch("own_cache").c_str(), 1);
  const CliRun own = HypercWithCache("a_file", arguments);
  ::unsetenv("HYPER_KERNEL_CACHE");
  EXPECT_EQ(off.exit_code, 0);
  EXPECT_THAT(off.err, Not(HasSubstr(note)));
  EXPECT_EQ(own.exit_code, 0);
  EXPECT_FALSE(FilesBelow(Scratch("own_cache")).empty());
}

TEST(Start, AnEvaluationSpeaksOfItsOwnData) {
  const CliRun run = Hyperrun(
      Arguments("evaluated", {"--eval", "--set", "data.eval.kind=synthetic", "--dry-run"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("held-out samples"), Not(HasSubstr("to train on"))));
}

}  // namespace
}  // namespace hyper::tools
