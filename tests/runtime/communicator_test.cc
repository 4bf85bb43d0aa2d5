#include <atomic>
#include <chrono>
#include <new>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/async_reducer.h"
#include "runtime/loopback_communicator.h"
#include "tests/runtime/communicator_conformance.h"

namespace hyper::runtime {
namespace {

using ::testing::HasSubstr;

class LoopbackConformance : public ::testing::TestWithParam<int> {};

TEST_P(LoopbackConformance, DefaultSegments) {
  const Status status = RunOnRanks(GetParam(), {}, testing::CheckConformance);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST_P(LoopbackConformance, ManySmallSegments) {
  LoopbackOptions options;
  options.ordered = {.segment_bytes = 8192, .min_chunk_bytes = 64};
  const Status status = RunOnRanks(GetParam(), options, testing::CheckConformance);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

INSTANTIATE_TEST_SUITE_P(Ranks, LoopbackConformance, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST(Loopback, DeadRankIsNamedByTheOthers) {
  LoopbackOptions options;
  options.failing_rank = 1;
  options.fail_at_exchange = 3;
  std::vector<Status> seen(3);
  const Status status = RunOnRanks(3, options, [&](Communicator& communicator) {
    double value = 1;
    Status result;
    for (int i = 0; i < 10 && result.ok(); ++i) {
      result = communicator.AllReduceSum(&value, 1, ir::DType::kF64);
    }
    seen[static_cast<size_t>(communicator.rank())] = result;
    return result;
  });
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  for (const Status& s : seen) {
    EXPECT_EQ(s.code(), StatusCode::kUnavailable);
    EXPECT_THAT(s.message(), HasSubstr("rank 1"));
  }
}

TEST(Loopback, SilentRankIsNamedAfterTheTimeout) {
  LoopbackOptions options;
  options.timeout = std::chrono::milliseconds(50);
  Status waiting;
  const Status status = RunOnRanks(2, options, [&](Communicator& communicator) {
    double value = 1;
    if (communicator.rank() == 1) return Status::Ok();  // never joins
    waiting = communicator.AllReduceSum(&value, 1, ir::DType::kF64);
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(waiting.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(waiting.message(), HasSubstr("for rank 1"));
}

TEST(AsyncReducer, SumsAndKeepsOrder) {
  const Status status = RunOnRanks(3, {}, [](Communicator& communicator) -> Status {
    AsyncReducer reducer(&communicator, 4);
    std::vector<float> a(1000, static_cast<float>(communicator.rank()));
    std::vector<double> b(10, 1);
    for (int round = 0; round < 3; ++round) {
      reducer.Start(0, a.data(), 1000, ir::DType::kF32, 0);
      reducer.Start(1, b.data(), 10, ir::DType::kF64, 0);
      HYPER_RETURN_IF_ERROR(reducer.Wait());
      if (reducer.records().size() != 2) return Internal("records");
      if (reducer.records()[0].end_ns > reducer.records()[1].begin_ns) return Internal("order");
      if (reducer.records()[0].bytes != 4000 || reducer.records()[1].bucket != 1) {
        return Internal("what was recorded");
      }
    }
    // 0+1+2 = 3, then 3 ranks of 3, then of 9.
    if (a[999] != 27 || b[9] != 27) return Internal("sum");
    HYPER_RETURN_IF_ERROR(reducer.Wait());
    return reducer.records().empty() ? Status::Ok() : Internal("records of an empty step");
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(AsyncReducer, ErrorSurfacesInWait) {
  LoopbackOptions options;
  options.failing_rank = 0;
  const Status status = RunOnRanks(2, options, [](Communicator& communicator) -> Status {
    AsyncReducer reducer(&communicator, 2);
    double value = 1;
    reducer.Start(0, &value, 1, ir::DType::kF64, 0);
    reducer.Start(1, &value, 1, ir::DType::kF64, 0);
    return reducer.Wait();
  });
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
}

// On the reducer's thread it would end the process.
TEST(AsyncReducer, AnExceptionSurfacesInWait) {
  class Throwing final : public Communicator {
   public:
    int rank() const override { return 0; }
    int size() const override { return 2; }
    Status AllReduceSum(void*, int64_t, ir::DType) override {
      ++sums;
      throw std::bad_alloc();
    }
    Status AllReduceMax(void*, int64_t, ir::DType) override { return Internal("not asked for"); }
    Status Broadcast(void*, int64_t, int) override { return Internal("not asked for"); }
    Status Barrier() override { return Internal("not asked for"); }
    Result<std::vector<std::string>> AllGather(const std::string&) override {
      return Internal("not asked for");
    }
    int sums = 0;
  };
  Throwing communicator;
  AsyncReducer reducer(&communicator, 2);
  double value = 1;
  reducer.Start(0, &value, 1, ir::DType::kF64, 0);
  reducer.Start(1, &value, 1, ir::DType::kF64, 0);
  EXPECT_EQ(reducer.Wait().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(communicator.sums, 1);
}

TEST(Overlap, FiguresByHand) {
  // Backward ends at 100. Bucket 0: ready 10, runs 10..40 (all hidden). Bucket 1: ready 50, queued
  // 55, runs 60..120: 40 of 60 hidden, 50 could have been. Bucket 2: ready 100, runs 120..150.
  const std::vector<ReduceRecord> records = {
      {0, 8, 10, 10, 10, 40}, {1, 8, 50, 55, 60, 120}, {2, 8, 100, 100, 120, 150}};
  const OverlapFigures figures = MeasureOverlap(records, 100);
  EXPECT_EQ(figures.reduce, 120);
  EXPECT_EQ(figures.hidden, 70);
  EXPECT_EQ(figures.coverable, 80);
  EXPECT_EQ(figures.exposed, 50);
}

}  // namespace
}  // namespace hyper::runtime
