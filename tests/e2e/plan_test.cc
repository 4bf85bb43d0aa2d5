// The memory plan is exact: kernels touch only what the plan gives them, the high-water mark of the
// temporary region equals the plan to the byte, packing is close to the live bytes, and a steady
// step neither allocates nor grows the process.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <new>

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <oneapi/dnnl/dnnl.h>

#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // malloc behind our own new is meant

#include "codegen/bundle.h"
#include "codegen/report.h"
#include "runtime/executor.h"
#include "tests/e2e/harness.h"

namespace {

// Allocations through operator new on the thread that asks for counting.
thread_local bool counting = false;
std::atomic<int64_t> allocations{0};

// What the math library allocates inside one primitive's execution is counted apart.
std::atomic<int64_t> library_allocations{0};

}  // namespace

extern "C" dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive,
                                                dnnl_stream_t stream, int count,
                                                const dnnl_exec_arg_t* arguments) {
  using Execute = decltype(&dnnl_primitive_execute);
  static const auto real = reinterpret_cast<Execute>(dlsym(RTLD_NEXT, "dnnl_primitive_execute"));
  const int64_t before = allocations.load(std::memory_order_relaxed);
  const dnnl_status_t status = real(primitive, stream, count, arguments);
  const int64_t inside = allocations.load(std::memory_order_relaxed) - before;
  library_allocations.fetch_add(inside, std::memory_order_relaxed);
  return status;
}

void* operator new(std::size_t size) {
  if (counting) allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace hyper::e2e {
namespace {

std::string ConvNet(int batch) {
  return fmt::format(R"(version: 1
model: {{dims: {{batch: {}}}}}
train:
  loss: {{kind: cross_entropy, logits: logits, labels: labels}}
  optimizer: {{kind: adamw, lr: 1e-3}}
  micro_batches: 2
data:
  kind: synthetic
  inputs:
    image: {{field: normal}}
    labels: {{field: integers, low: 0, high: 10}}
run: {{steps: 3}}
)",
                     batch);
}

std::string Recipe(const std::string& name) {
  return std::string(HYPER_SOURCE_DIR) + "/recipes/" + name + "/model.onnx";
}

std::string Gpt() {
  return R"(version: 1
model: {dims: {batch: 2}}
train:
  loss: {kind: cross_entropy, logits: logits, labels: labels}
  optimizer: {kind: adamw, lr: 1e-3}
  micro_batches: 2
  clip_norm: 1.0
data:
  kind: synthetic
  inputs:
    input_ids: {field: integers, low: 0, high: 256}
    labels: {field: integers, low: 0, high: 256}
run: {steps: 3}
)";
}

struct Job {
  std::string name;
  std::string model;
  std::string strategy;
};

std::vector<Job> Jobs() {
  return {{"plan_conv", Recipe("fashion_mnist"), ConvNet(8)},
          {"plan_conv_odd", Recipe("fashion_mnist"), ConvNet(3)},
          {"plan_gpt", Recipe("bytes_gpt"), Gpt()}};
}

TEST(Plan, TouchedBytesEqualThePlan) {
  for (const Job& job : Jobs()) {
    const auto bundle = CompileToBundle(job.name, job.model, job.strategy, false, 256);
    ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
    const auto guarded = Train(*bundle, {.steps = 3, .threads = 2, .poison = true});
    ASSERT_TRUE(guarded.ok()) << guarded.status().ToString();
    const auto reader = codegen::BundleReader::Open(RealFileSystem(), *bundle);
    ASSERT_TRUE(reader.ok());
    int64_t planned = 0;
    for (const auto& sub : (*reader)->program().subprograms()) {
      if (sub.name().rfind("step", 0) == 0) planned = std::max(planned, sub.temporary_peak());
    }
    EXPECT_EQ(guarded->poison_high_water, planned) << job.name;
    Figure(job.name + "_touched_bytes", guarded->poison_high_water);
    Figure(job.name + "_planned_bytes", planned);
    // Poisoned dead bytes are NaN: had a kernel read one, the numbers would differ.
    const auto plain = CompileToBundle(job.name + "_plain", job.model, job.strategy);
    ASSERT_TRUE(plain.ok());
    const auto result = Train(*plain, {.steps = 3, .threads = 2});
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->losses, guarded->losses) << job.name;
  }
}

TEST(Plan, PeakIsWithinTenPercentOfTheLiveBytes) {
  for (const Job& job : Jobs()) {
    const auto bundle = CompileToBundle(job.name, job.model, job.strategy);
    ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
    const auto reader = codegen::BundleReader::Open(RealFileSystem(), *bundle);
    ASSERT_TRUE(reader.ok());
    for (const auto& sub : (*reader)->program().subprograms()) {
      // A few scalars: the 64-byte alignment of their addresses is larger than they are.
      if (sub.live_lower_bound() < 4096) continue;
      EXPECT_LE(static_cast<double>(sub.temporary_peak()),
                1.1 * static_cast<double>(sub.live_lower_bound()))
          << job.name << " " << sub.name();
      Measured("plan_to_live_bytes", static_cast<double>(sub.temporary_peak()) /
                                         static_cast<double>(sub.live_lower_bound()));
    }
  }
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  file >> size >> resident;
  return resident * 4096;
}

TEST(Plan, SteadyStepsOfTheExecutorDoNotGrow) {
  const Job job = Jobs()[0];
  const auto bundle = CompileToBundle(job.name, job.model, job.strategy);
  ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
  const auto reader = codegen::BundleReader::Open(RealFileSystem(), *bundle);
  ASSERT_TRUE(reader.ok());
  const auto executor = runtime::Executor::Create(**reader, {.threads = 2});
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  const std::string step = "step_first";
  for (int i = 0; i < 5; ++i) ASSERT_TRUE((*executor)->Run(step, {}).ok());
  const int64_t before = ResidentBytes();
  counting = true;
  for (int i = 0; i < 200; ++i) ASSERT_TRUE((*executor)->Run(step, {}).ok());
  counting = false;
  EXPECT_EQ(allocations.load() - library_allocations.load(), 0);
  const int64_t growth = ResidentBytes() - before;
  EXPECT_LE(growth, 64 << 10);
  Figure("allocations_200_steps", allocations.load() - library_allocations.load());
  Measured("library_allocations_per_step", static_cast<double>(library_allocations.load()) / 200);
  Measured("resident_growth_bytes_200_steps", static_cast<double>(growth));
}

}  // namespace
}  // namespace hyper::e2e
