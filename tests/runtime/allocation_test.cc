// After the first steps neither the training thread nor the thread that reduces allocates; what the
// toy executor itself does is left out.
#include <memory>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "runtime/loopback_communicator.h"
#include "runtime/metrics.h"
#include "runtime/trainer.h"
#include "tests/runtime/test_files.h"
#include "tests/runtime/toy_training.h"
#include "tests/support/heap_watch.h"

namespace hyper::runtime {
namespace {

using hyper::testing::HeapCanBeWatched;
using hyper::testing::HeapExcuse;
using hyper::testing::HeapWatch;

class ExcusedExecutor : public testing::FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;
  Status Run(const std::string& subprogram, const std::function<void(int)>& on_marker) override {
    std::optional<HeapExcuse> excuse(std::in_place);
    return FakeExecutor::Run(subprogram, [&](int bucket) {
      excuse.reset();  // the trainer's marker is watched
      if (on_marker) on_marker(bucket);
      excuse.emplace();
    });
  }
};

TEST(Allocation, TheWatchSeesEveryThreadAndFunction) {
  if (!HeapCanBeWatched()) GTEST_SKIP() << "the sanitizer interposes the heap itself";
  static void* volatile kept;
  const auto request = [] {
    kept = ::operator new(4);
    ::operator delete(kept);
    kept = std::malloc(3);
    kept = std::realloc(kept, 300);
    std::free(kept);
    kept = std::calloc(2, 2);
    std::free(kept);
    kept = std::aligned_alloc(64, 64);
    std::free(kept);
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, 100) == 0) kept = memory;
    std::free(kept);
  };
  {
    const HeapWatch watch;
    const HeapExcuse excuse;
    request();
    EXPECT_EQ(watch.count(), 0);
  }
  const HeapWatch watch;
  request();
  const int64_t here = watch.count();
  EXPECT_EQ(here, 6) << watch.First();
  const int64_t before = watch.count();
  std::thread(request).join();
  EXPECT_GE(watch.count(), before + 6);
}

TEST(Allocation, NoneAfterTheFirstSteps) {
  if (!HeapCanBeWatched()) GTEST_SKIP() << "the sanitizer interposes the heap itself";
  std::optional<HeapWatch> watch;
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
        if (communicator.rank() == 0) watch.emplace();
        HYPER_RETURN_IF_ERROR(communicator.Barrier());
      }
      HYPER_RETURN_IF_ERROR(trainer->Step(loader.get(), Status::Ok(), &report));
      HYPER_RETURN_IF_ERROR(metrics->Write(report));
    }
    HYPER_RETURN_IF_ERROR(communicator.Barrier());
    if (communicator.rank() == 0) {
      EXPECT_EQ(watch->count(), 0) << watch->First();
      watch.reset();
    }
    return communicator.Barrier();
  });
  ASSERT_TRUE(status.ok()) << status.ToString();
}

}  // namespace
}  // namespace hyper::runtime
