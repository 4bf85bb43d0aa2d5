// What a bundle was compiled for and what it is launched with: threads per rank, instruction sets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "codegen/compile.h"
#include "tests/tools/cli_runner.h"

namespace hyper::tools {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

constexpr char kConvNet[] = R"(version: 1
model: {dims: {batch: 4}}
train:
  loss: {kind: cross_entropy, logits: logits, labels: labels}
  optimizer: {kind: sgd, lr: 1e-3}
data:
  kind: synthetic
  inputs:
    image: {field: normal}
    labels: {field: integers, low: 0, high: 10}
run: {steps: 1, dir: run}
)";

// Compiles the convolutional recipe with made-up data.
std::string Compile(const std::string& name, const std::vector<std::string>& options) {
  WriteBytes(Scratch("conv.yaml"), kConvNet);
  std::vector<std::string> arguments = {"compile", Recipe("fashion_mnist/model.onnx"),
                                        "-s",      Scratch("conv.yaml"),
                                        "-o",      Scratch(name)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const CliRun run = Hyperc(arguments);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return Scratch(name);
}

Json GroupOf(const std::string& bundle) {
  const CliRun run = Hyperc({"show", bundle, "--memory", "--format", "json"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return Json::parse(run.out)["memory"]["groups"][0];
}

CliRun Launch(const std::string& bundle, int threads) {
  return Hyperrun({bundle, "--steps", "1", "--overwrite", "--threads", fmt::format("{}", threads)});
}

TEST(Launch, RunsWithUpToThePlannedThreads) {
  const std::string bundle = Compile("four.bundle", {"--threads", "4"});
  EXPECT_EQ(GroupOf(bundle)["threads"], 4);
  EXPECT_GT(GroupOf(bundle)["workspace_bytes"], 0);
  for (const int threads : {1, 2, 4}) {
    const CliRun run = Launch(bundle, threads);
    EXPECT_EQ(run.exit_code, 0) << threads << " threads: " << run.err;
  }
}

TEST(Launch, MoreThreadsAreRefusedWithTheNumbers) {
  const std::string bundle = Compile("one.bundle", {"--threads", "1"});
  EXPECT_EQ(Launch(bundle, 1).exit_code, 0);
  const CliRun run = Launch(bundle, 2);
  EXPECT_EQ(run.exit_code, 4);
  EXPECT_THAT(run.err, HasSubstr("would use 2 threads"));
  EXPECT_THAT(run.err, HasSubstr("planned for up to 1: start with --threads 1"));
  EXPECT_THAT(run.err, HasSubstr("compile again with --threads 2"));
}

TEST(Launch, WithoutLibraryCallsThereIsNoLimit) {
  const std::string bundle = Compile("plain.bundle", {"--threads", "1", "--kernels", "reference"});
  EXPECT_EQ(GroupOf(bundle)["threads"], 0);
  EXPECT_EQ(GroupOf(bundle)["workspace_bytes"], 0);
  EXPECT_EQ(Launch(bundle, 2).exit_code, 0);
}

// Names of the implementations that the math library says it executed.
std::string Implementations(const std::string& verbose) {
  std::istringstream lines(verbose);
  std::string names;
  for (std::string line; std::getline(lines, line);) {
    const size_t exec = line.find(",exec,");
    if (line.starts_with("onednn_verbose") && exec != std::string::npos) names += line + "\n";
  }
  return names;
}

TEST(Launch, MarchCapsTheMathLibrary) {
  const auto v3 = codegen::ResolveMarch("x86-64-v3", "c++");
  ASSERT_TRUE(v3.ok()) << v3.status().ToString();
  ASSERT_TRUE(codegen::MissingCpuFeatures(v3->features).empty()) << "needs a processor with AVX2";
  ::setenv("ONEDNN_VERBOSE", "1", 1);
  const std::string bundle = Compile("v3.bundle", {"--threads", "2", "--march", "x86-64-v3"});
  const CliRun capped = Launch(bundle, 2);
  const CliRun native = Launch(Compile("native.bundle", {"--threads", "2"}), 2);
  ::unsetenv("ONEDNN_VERBOSE");
  ASSERT_EQ(capped.exit_code, 0) << capped.err;
  ASSERT_EQ(native.exit_code, 0) << native.err;
  EXPECT_THAT(Implementations(capped.out), HasSubstr("convolution"));
  EXPECT_THAT(Implementations(capped.out), HasSubstr("avx2"));
  EXPECT_THAT(Implementations(capped.out), Not(HasSubstr("avx512")));
  // The check above can fail: the same model, compiled for this processor.
  if (codegen::MissingCpuFeatures({"avx512f", "avx512bw", "avx512vl", "avx512dq"}).empty()) {
    EXPECT_THAT(Implementations(native.out), HasSubstr("avx512"));
  }
}

}  // namespace
}  // namespace hyper::tools
