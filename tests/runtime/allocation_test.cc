// After the first steps neither the training thread nor the thread that reduces allocates; what the
// toy executor itself does is left out.
#include <atomic>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "runtime/loopback_communicator.h"
#include "runtime/metrics.h"
#include "runtime/trainer.h"
#include "tests/runtime/test_files.h"
#include "tests/runtime/toy_training.h"

namespace {

std::atomic<bool> g_watching{false};
std::atomic<int64_t> g_allocations{0};
thread_local int t_excused = 0;

void* Allocate(std::size_t bytes) {
  if (g_watching && t_excused == 0) ++g_allocations;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return Allocate(bytes); }
void* operator new[](std::size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace hyper::runtime {
namespace {

class ExcusedExecutor : public testing::FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;
  Status Run(const std::string& subprogram, const std::function<void(int)>& on_marker) override {
    ++t_excused;
    const Status status = FakeExecutor::Run(subprogram, [&](int bucket) {
      --t_excused;  // the trainer's marker is watched
      if (on_marker) on_marker(bucket);
      ++t_excused;
    });
    --t_excused;
    return status;
  }
};

TEST(Allocation, TheWatchWorks) {
  g_allocations = 0;
  g_watching = true;
  delete new int(1);
  g_watching = false;
  EXPECT_EQ(g_allocations, 1);
}

TEST(Allocation, NoneAfterTheFirstSteps) {
  const testing::TestFolder folder;
  const Status status = RunOnRanks(2, {}, [&](Communicator& communicator) -> Status {
    ExcusedExecutor executor(testing::FakeOptions{});
    HYPER_ASSIGN_OR_RETURN(const RankTable ranks, RankTable::Create("toy", 2, 1));
    TrainerOptions options;
    options.train.optimizer.lr = 0.1;
    options.train.clip_norm = 1;
    options.micro_batches = 3;
    HYPER_ASSIGN_OR_RETURN(const auto trainer,
                           Trainer::Create(&executor, &communicator, ranks, options));
    LoaderOptions loading;
    loading.micro_batch = 2;
    loading.micro_batches = 3;
    loading.replicas = 2;
    loading.replica = communicator.rank();
    loading.count_inputs = trainer->count_inputs();
    const auto loader = BatchLoader::Create(testing::MakeToyData({}, 101, 1), loading);
    HYPER_ASSIGN_OR_RETURN(
        const auto metrics,
        MetricsWriter::Create(RealFileSystem(),
                              folder.File(fmt::format("metrics.{}", communicator.rank())), 0));
    StepReport report;
    for (int step = 0; step < 60; ++step) {
      if (step == 10) {
        HYPER_RETURN_IF_ERROR(communicator.Barrier());
        g_allocations = 0;
        HYPER_RETURN_IF_ERROR(communicator.Barrier());
        g_watching = true;
      }
      HYPER_RETURN_IF_ERROR(trainer->Step(loader.get(), Status::Ok(), &report));
      HYPER_RETURN_IF_ERROR(metrics->Write(report));
    }
    HYPER_RETURN_IF_ERROR(communicator.Barrier());
    g_watching = false;
    return communicator.Barrier();
  });
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(g_allocations, 0);
}

}  // namespace
}  // namespace hyper::runtime
