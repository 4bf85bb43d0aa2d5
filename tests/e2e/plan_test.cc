// The memory plan is exact: kernels touch only what the plan gives them, the high-water mark of the
// temporary region equals the plan to the byte, packing is close to the live bytes, and a steady
// step neither allocates nor grows the process.
#include <fstream>
#include <memory>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/bundle.h"
#include "codegen/report.h"
#include "runtime/executor.h"
#include "runtime/kernels/library_blocks.h"
#include "runtime/kernels/onednn_util.h"
#include "tests/e2e/harness.h"
#include "tests/e2e/plan_jobs.h"
#include "tests/support/heap_watch.h"

namespace hyper::e2e {
namespace {

// Ends of the temporaries of the steps that are no workspaces, from the region's begin, and of all:
// from the operands' byte ranges.
struct PlannedEnds {
  int64_t results = 0;
  int64_t all = 0;
};

PlannedEnds EndsOf(const program::Program& program) {
  PlannedEnds ends;
  int64_t base = 0;
  for (const program::Region& region : program.regions()) {
    if (region.storage() == program::TEMPORARY) base = region.begin();
  }
  for (const auto& sub : program.subprograms()) {
    if (sub.name().rfind("step", 0) != 0) continue;
    for (const auto& instruction : sub.instructions()) {
      for (const auto& operand : instruction.operands()) {
        ends.all = std::max(ends.all, operand.end() - base);
        if (operand.access() == program::WORKSPACE) continue;
        ends.results = std::max(ends.results, operand.end() - base);
      }
    }
  }
  return ends;
}

TEST(Plan, TouchedBytesEqualThePlan) {
  for (const Job& job : Jobs()) {
    SCOPED_TRACE(job.name);
    const auto bundle = CompileToBundle(job.name, job.model, job.strategy, false, 256);
    ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
    const auto guarded = Train(*bundle, {.steps = 3, .threads = 2, .poison = true});
    ASSERT_TRUE(guarded.ok()) << guarded.status().ToString();
    const auto reader = codegen::BundleReader::Open(RealFileSystem(), *bundle);
    ASSERT_TRUE(reader.ok());
    const PlannedEnds ends = EndsOf((*reader)->program());
    int64_t planned = 0;
    for (const auto& sub : (*reader)->program().subprograms()) {
      if (sub.name().rfind("step", 0) == 0) planned = std::max(planned, sub.temporary_peak());
    }
    EXPECT_EQ(planned, ends.all);
    // Kernels use their workspaces differently on other teams; the plan covers them all.
    // More threads than cores are slow to wait for each other: on the smallest job only.
    for (const int threads : {1, 2, kPlannedThreads}) {
      SCOPED_TRACE(threads);
      if (threads > 2 && job.name != "plan_conv_odd") continue;
      const auto team = Train(*bundle, {.steps = 1, .threads = threads, .poison = true});
      ASSERT_TRUE(team.ok()) << team.status().ToString();
      const runtime::PoisonMarks& touched = team->touched;
      // By scan alone: results are written to the last planned byte, and nothing is beyond.
      EXPECT_EQ(touched.written_by_results, ends.results);
      EXPECT_LE(touched.written, planned);
      // With workspaces by their cap, which only the largest team may need.
      EXPECT_EQ(touched.planned_touch, planned);
      int64_t written = 0;
      int64_t caps = 0;
      for (const runtime::WorkspaceUse& use : touched.workspaces) {
        EXPECT_LE(use.written, use.cap) << use.source;
        written += use.written;
        caps += use.cap;
      }
      fmt::print(
          "{} on {} threads: written to {}, by results to {}, planned {}; workspaces {} of {}"
          "\n",
          job.name, threads, touched.written, touched.written_by_results, planned, written, caps);
    }
    EXPECT_EQ(guarded->touched.planned_touch, planned);
    // No exact figures: the library's workspaces differ between processors.
    fmt::print("measured {}_touched_bytes {}\n", job.name, guarded->touched.planned_touch);
    fmt::print("measured {}_planned_bytes {}\n", job.name, planned);
    // Poisoned dead bytes are NaN: had a kernel read one, the numbers would differ.
    const auto plain = CompileToBundle(job.name + "_plain", job.model, job.strategy);
    ASSERT_TRUE(plain.ok());
    const auto result = Train(*plain, {.steps = 3, .threads = 2});
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->losses, guarded->losses) << job.name;
  }
}

// A bundle whose program is another than the one on disk.
class ChangedBundle : public codegen::BundleReader {
 public:
  ChangedBundle(const codegen::BundleReader* base, program::Program program)
      : base_(base), program_(std::move(program)) {}
  const codegen::Manifest& manifest() const override { return base_->manifest(); }
  const program::Program& program() const override { return program_; }
  Status ReadSlot(const program::Slot& slot, std::span<std::byte> out) const override {
    return base_->ReadSlot(slot, out);
  }
  Result<std::string> ReadText(const std::string& name) const override {
    return base_->ReadText(name);
  }
  Result<std::unique_ptr<codegen::KernelLibrary>> LoadKernels() const override {
    return base_->LoadKernels();
  }

 private:
  const codegen::BundleReader* base_;
  program::Program program_;
};

// Every byte of a library call is in the plan: an executor has nowhere else to take it from.
TEST(Plan, LibraryCallsHaveTheirWorkspacesInTheArena) {
  for (const Job& job : Jobs()) {
    const auto bundle = CompileToBundle(job.name, job.model, job.strategy);
    ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
    const auto reader = codegen::BundleReader::Open(RealFileSystem(), *bundle);
    ASSERT_TRUE(reader.ok());
    const program::Program& program = (*reader)->program();
    EXPECT_EQ(program.threads(), kPlannedThreads);
    int64_t library_calls = 0;
    int64_t refused = 0;
    for (int s = 0; s < program.subprograms_size(); ++s) {
      if (program.subprograms(s).name() != "step_first") continue;
      for (int i = 0; i < program.subprograms(s).instructions_size(); ++i) {
        const program::Instruction& instruction = program.subprograms(s).instructions(i);
        if (!instruction.has_library()) continue;
        ++library_calls;
        const int last = instruction.operands_size() - 1;
        if (instruction.operands(last).access() != program::WORKSPACE) continue;
        program::Program without = program;
        without.mutable_subprograms(s)->mutable_instructions(i)->mutable_operands()->RemoveLast();
        const ChangedBundle changed(reader->get(), std::move(without));
        const auto executor = runtime::Executor::Create(changed, {.threads = 2});
        if (executor.ok()) continue;  // another implementation does without
        ++refused;
        EXPECT_EQ(executor.status().code(), StatusCode::kResourceExhausted);
        EXPECT_NE(executor.status().message().find("plans 0 bytes"), std::string::npos);
      }
    }
    EXPECT_GT(library_calls, 0) << job.name;
    if (job.name != "plan_gpt") {
      EXPECT_GT(refused, 0) << job.name;
    }
  }
}

TEST(Plan, MoreThreadsThanPlannedAreRefused) {
  const Job job = Jobs()[0];
  const auto bundle = CompileToBundle(job.name, job.model, job.strategy);
  ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
  const auto result = Train(*bundle, {.steps = 1, .threads = kPlannedThreads + 1});
  EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted);
}

// Memory of no file that the process occupies, exactly: the counters of /proc/self/statm and status
// lag behind by many pages per thread.
int64_t AnonymousBytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;) {
    int64_t kilobytes = 0;
    if (word == "Anonymous:" && file >> kilobytes) return kilobytes << 10;
  }
  throw std::runtime_error("/proc/self/smaps_rollup has no line Anonymous");
}

struct LoadedJob {
  std::unique_ptr<codegen::BundleReader> bundle;
  std::unique_ptr<runtime::Executor> executor;
};

Result<LoadedJob> Load(const Job& job, int threads) {
  HYPER_ASSIGN_OR_RETURN(const std::string path,
                         CompileToBundle(job.name, job.model, job.strategy));
  LoadedJob loaded;
  HYPER_ASSIGN_OR_RETURN(loaded.bundle, codegen::BundleReader::Open(RealFileSystem(), path));
  HYPER_ASSIGN_OR_RETURN(loaded.executor,
                         runtime::Executor::Create(*loaded.bundle, {.threads = threads}));
  return loaded;
}

// What one micro-batch and an update run, on all threads of the team.
Status RunStep(runtime::Executor& executor) {
  static const std::string step = "step_first", norm = "grad_norm", update = "update";
  HYPER_RETURN_IF_ERROR(executor.Run(step, {}));
  if (executor.Has(norm)) HYPER_RETURN_IF_ERROR(executor.Run(norm, {}));
  return executor.Run(update, {});
}

// After the first step no thread asks the heap for anything: not ours, not the math library, which
// creates small objects in every call (runtime/kernels/library_blocks.h).
TEST(Plan, SteadyStepsDoNotAllocate) {
  if (!testing::HeapCanBeWatched()) GTEST_SKIP() << "the sanitizer interposes the heap itself";
  for (const Job& job : Jobs()) {
    for (const int threads : {1, 2}) {
      const int steps = job.name == "plan_gpt" ? 50 : 200;
      const auto loaded = Load(job, threads);
      ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
      runtime::Executor& executor = *loaded->executor;
      ASSERT_TRUE(RunStep(executor).ok());
      const int64_t served = runtime::LibraryBlocksServed();
      const int64_t from_heap = runtime::LibraryBlocksFromHeap();
      const int64_t cut = runtime::LibraryBytesCut();
      {
        const testing::HeapWatch watch;
        for (int i = 0; i < steps; ++i) ASSERT_TRUE(RunStep(executor).ok());
        const int64_t count = watch.count();
        EXPECT_EQ(count, 0) << job.name << " on " << threads << " threads\n" << watch.First();
        Figure("allocations_200_steps", count);
      }
      EXPECT_EQ(runtime::LibraryBlocksFromHeap(), from_heap) << runtime::LibraryHeapNote();
      // Nor do the slabs grow in its place.
      EXPECT_EQ(runtime::LibraryBytesCut(), cut) << job.name << " on " << threads << " threads";
      // Else the check above would have seen nothing of what it is about.
      const int64_t blocks = runtime::LibraryBlocksServed() - served;
      EXPECT_GT(blocks, 10 * steps);
      Measured("library_blocks_per_step", static_cast<double>(blocks) / steps);
    }
  }
}

// One product by the library, inside the scope that serves it and outside.
void ExpectAnUnservedLibraryCallShows() {
  const dnnl::engine engine = runtime::CpuEngine();
  dnnl::stream stream(engine);
  constexpr int64_t kExtent = 8;
  const auto desc = runtime::StridedF32({kExtent, kExtent}, {kExtent, 1});
  std::vector<float> values[3];
  std::vector<std::pair<int, dnnl::memory>> arguments;
  std::vector<dnnl_exec_arg_t> raw;
  constexpr int kArguments[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
  for (int i = 0; i < 3; ++i) {
    values[i].assign(kExtent * kExtent, 1.0F);
    arguments.emplace_back(kArguments[i], dnnl::memory(desc, engine, values[i].data()));
    raw.push_back({kArguments[i], arguments.back().second.get()});
  }
  const dnnl::matmul primitive(dnnl::matmul::primitive_desc(engine, desc, desc, desc));
  const runtime::OneDnnCall served(primitive, arguments);
  const auto run_unserved = [&] {
    return dnnl_primitive_execute(primitive.get(), stream.get(), static_cast<int>(raw.size()),
                                  raw.data());
  };
  ASSERT_TRUE(served.Run(stream.get()).ok());
  ASSERT_EQ(run_unserved(), dnnl_success);
  const testing::HeapWatch watch;
  ASSERT_TRUE(served.Run(stream.get()).ok());
  EXPECT_EQ(watch.count(), 0) << watch.First();
  ASSERT_EQ(run_unserved(), dnnl_success);
  EXPECT_GT(watch.count(), 0);
  EXPECT_EQ(values[2][0], static_cast<float>(kExtent));
}

// The check above can fail: an allocation of ours is seen on every thread of the team, and so is
// what the library does outside the scope that serves it, or a block that slabs cannot serve.
TEST(Plan, APlantedAllocationShows) {
  if (!testing::HeapCanBeWatched()) GTEST_SKIP() << "the sanitizer interposes the heap itself";
  constexpr int kThreads = 2;
  const runtime::Team team(kThreads);
  static void* volatile kept[kThreads];
  const auto allocate = [](void*, int64_t task, int64_t) {
    kept[task] = ::operator new(24);
    ::operator delete(kept[task]);
  };
  team.Run(allocate, nullptr);
  {
    const testing::HeapWatch watch;
    team.Run(allocate, nullptr);
    const int64_t count = watch.count();
    EXPECT_EQ(count, kThreads);
    Figure("planted_allocations_seen", count);
  }
  ExpectAnUnservedLibraryCallShows();
  // A block too large for the slabs comes from the heap even in a library call, and is counted.
  const int64_t from_heap = runtime::LibraryBlocksFromHeap();
  const testing::HeapWatch watch;
  const runtime::LibraryCall call;
  team.Run(
      [](void*, int64_t task, int64_t) {
        kept[task] = ::operator new(runtime::kLargestLibraryBlock + 1);
        ::operator delete(kept[task]);
      },
      nullptr);
  const int64_t count = watch.count();
  EXPECT_EQ(count, kThreads);
  EXPECT_EQ(runtime::LibraryBlocksFromHeap() - from_heap, kThreads);
}

TEST(Plan, SteadyStepsDoNotGrow) {
  const auto loaded = Load(Jobs()[0], 2);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(RunStep(*loaded->executor).ok());
  const int64_t before = AnonymousBytes();
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(RunStep(*loaded->executor).ok());
  const int64_t growth = AnonymousBytes() - before;
  EXPECT_LE(growth, 64 << 10);
  Measured("resident_growth_bytes_200_steps", static_cast<double>(growth));
}

}  // namespace
}  // namespace hyper::e2e
