// What the executor costs per instruction: a subprogram of many one-element kernels.
#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "codegen/bundle.h"
#include "frontend/strategy/strategy.h"
#include "runtime/executor.h"
#include "tests/e2e/harness.h"
#include "tools/driver/compile_job.h"

namespace hyper::e2e {
namespace {

constexpr int kInstructions = 1000;
constexpr int kRuns = 200;

constexpr char kStrategy[] = R"(version: 1
model: {dims: {batch: 4}}
train:
  loss: {kind: cross_entropy, logits: logits, labels: labels}
  optimizer: {kind: adamw, lr: 1e-3}
  micro_batches: 1
data:
  kind: synthetic
  inputs:
    image: {field: normal}
    labels: {field: integers, low: 0, high: 10}
run: {steps: 1}
)";

// The generated instruction of the program that touches the fewest bytes.
const program::Instruction* Smallest(const program::Program& program) {
  const program::Instruction* smallest = nullptr;
  for (const program::SubProgram& sub : program.subprograms()) {
    for (const program::Instruction& instruction : sub.instructions()) {
      if (!instruction.has_generated()) continue;
      if (smallest == nullptr || instruction.bytes_moved() < smallest->bytes_moved()) {
        smallest = &instruction;
      }
    }
  }
  return smallest;
}

TEST(Dispatch, MedianIsBelowOneMicrosecond) {
  const auto strategy = strategy::ParseStrategy(kStrategy, "dispatch.yaml", nullptr);
  ASSERT_TRUE(strategy.ok()) << strategy.status().ToString();
  Diagnostics diagnostics;
  tools::CompileJobOptions options;
  options.kernels.cache_dir = std::string(HYPER_BINARY_DIR) + "/kernel-cache";
  auto job = tools::CompileJob(std::string(HYPER_SOURCE_DIR) + "/recipes/fashion_mnist/model.onnx",
                               *strategy, options, &diagnostics);
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  const program::Instruction* smallest = Smallest(job->content.program);
  ASSERT_NE(smallest, nullptr);
  ASSERT_LE(smallest->bytes_moved(), 64);
  const program::Instruction repeated = *smallest;
  program::SubProgram* many = job->content.program.add_subprograms();
  many->set_name("dispatch");
  for (int i = 0; i < kInstructions; ++i) *many->add_instructions() = repeated;
  const std::string path = fmt::format("{}/hyper_dispatch_{}.bundle", testing::TempDir(), getpid());
  ASSERT_TRUE(codegen::WriteBundle(RealFileSystem(), path, std::move(job->content)).ok());
  const auto bundle = codegen::BundleReader::Open(RealFileSystem(), path);
  ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
  const auto executor = runtime::Executor::Create(**bundle, {.threads = 1});
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  ASSERT_TRUE((*executor)->Run("dispatch", {}).ok());

  // From the begin of one instruction to that of the next: dispatch, kernel and two clock reads.
  std::vector<runtime::InstructionTime> times;
  (*executor)->SetTimeSink(&times);
  std::vector<int64_t> spans;
  spans.reserve(static_cast<size_t>(kRuns) * kInstructions);
  for (int run = 0; run < kRuns; ++run) {
    ASSERT_TRUE((*executor)->Run("dispatch", {}).ok());
    for (size_t i = 1; i < times.size(); ++i) {
      spans.push_back(times[i].begin_ns - times[i - 1].begin_ns);
    }
  }
  const auto middle = spans.begin() + static_cast<std::ptrdiff_t>(spans.size() / 2);
  std::nth_element(spans.begin(), middle, spans.end());
  Measured("dispatch_median_ns", static_cast<double>(*middle));
  EXPECT_LT(*middle, 1000);
  EXPECT_TRUE(RealFileSystem()->RemoveAll(path).ok());
}

}  // namespace
}  // namespace hyper::e2e
