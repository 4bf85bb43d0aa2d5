#include "runtime/schedule.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/rank_table.h"

namespace hyper::runtime {
namespace {

using strategy::ScheduleConfig;
using strategy::ScheduleKind;
using ::testing::HasSubstr;

TEST(Schedule, WarmUpRisesToOne) {
  for (const ScheduleKind kind :
       {ScheduleKind::kConstant, ScheduleKind::kLinear, ScheduleKind::kCosine}) {
    const ScheduleConfig schedule{kind, 4, 12, 0.1};
    EXPECT_DOUBLE_EQ(ScheduleFactor(schedule, 0, 100), 0.25);
    EXPECT_DOUBLE_EQ(ScheduleFactor(schedule, 1, 100), 0.5);
    EXPECT_DOUBLE_EQ(ScheduleFactor(schedule, 3, 100), 1);
    EXPECT_DOUBLE_EQ(ScheduleFactor(schedule, 4, 100), 1);
  }
}

TEST(Schedule, DecaysByHand) {
  const ScheduleConfig constant{ScheduleKind::kConstant, 0, {}, 0};
  EXPECT_EQ(ScheduleFactor(constant, 12345, 10), 1);
  const ScheduleConfig linear{ScheduleKind::kLinear, 4, 12, 0.1};
  EXPECT_DOUBLE_EQ(ScheduleFactor(linear, 6, 100), 1 - 0.9 * 0.25);
  EXPECT_DOUBLE_EQ(ScheduleFactor(linear, 8, 100), 0.55);
  EXPECT_DOUBLE_EQ(ScheduleFactor(linear, 12, 100), 0.1);
  EXPECT_DOUBLE_EQ(ScheduleFactor(linear, 99, 100), 0.1);
  const ScheduleConfig cosine{ScheduleKind::kCosine, 4, 12, 0.1};
  EXPECT_NEAR(ScheduleFactor(cosine, 6, 100), 0.1 + 0.9 * (1 + std::sqrt(0.5)) / 2, 1e-15);
  EXPECT_NEAR(ScheduleFactor(cosine, 8, 100), 0.55, 1e-15);
  EXPECT_NEAR(ScheduleFactor(cosine, 12, 100), 0.1, 1e-15);
  EXPECT_NEAR(ScheduleFactor(cosine, 99, 100), 0.1, 1e-15);
}

TEST(Schedule, OpenEndIsTheRunsEnd) {
  const ScheduleConfig linear{ScheduleKind::kLinear, 0, {}, 0};
  EXPECT_DOUBLE_EQ(ScheduleFactor(linear, 5, 10), 0.5);
  EXPECT_DOUBLE_EQ(ScheduleFactor(linear, 5, 20), 0.75);
  // Nothing is left to decay over.
  const ScheduleConfig short_run{ScheduleKind::kCosine, 10, 10, 0.2};
  EXPECT_DOUBLE_EQ(ScheduleFactor(short_run, 10, 10), 0.2);
}

strategy::LaunchTrain Global(int64_t batch) {
  strategy::LaunchTrain train;
  train.global_batch = batch;
  return train;
}

TEST(GlobalBatch, DerivesMicroBatches) {
  EXPECT_EQ(*MicroBatchesPerReplica(Global(256), 16, 4), 4);
  EXPECT_EQ(*MicroBatchesPerReplica(Global(64), 16, 4), 1);
  strategy::LaunchTrain train;
  train.micro_batches = 5;
  EXPECT_EQ(*MicroBatchesPerReplica(train, 16, 3), 5);
}

TEST(GlobalBatch, RefusalsNameWhatWouldWork) {
  const auto replicas = MicroBatchesPerReplica(Global(256), 16, 3);
  EXPECT_EQ(replicas.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(replicas.status().message(), HasSubstr("replica counts that do: 1, 2, 4, 8, 16"));
  EXPECT_THAT(replicas.status().message(), HasSubstr("240 or 288"));
  const auto samples = MicroBatchesPerReplica(Global(100), 16, 2);
  EXPECT_THAT(samples.status().message(), HasSubstr("96, 112"));
  EXPECT_THAT(MicroBatchesPerReplica(Global(8), 16, 2).status().message(), HasSubstr("are: 16"));
  EXPECT_THAT(MicroBatchesPerReplica(Global(16), 16, 2).status().message(),
              HasSubstr("replica counts that do: 1; or a global batch of 32"));
}

TEST(RankTable, ReplicasAreOutermost) {
  const auto table = RankTable::Create("m", 6, 2);
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->replicas(), 3);
  EXPECT_EQ(table->place(3).replica, 1);
  EXPECT_THAT(table->place(3).coordinates, ::testing::ElementsAre(1));
  EXPECT_EQ(table->place(5).model, "m");
  const auto refused = RankTable::Create("m", 5, 2);
  EXPECT_THAT(refused.status().message(), HasSubstr("launch 4 or 6"));
  EXPECT_THAT(RankTable::Create("m", 1, 4).status().message(), HasSubstr("launch 4"));
}

}  // namespace
}  // namespace hyper::runtime
