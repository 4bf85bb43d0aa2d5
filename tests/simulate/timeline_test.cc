// Values by hand.
#include "simulate/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hyper::simulate {
namespace {

using ::testing::HasSubstr;

Timeline MustRun(const Schedule& schedule) {
  const Result<Timeline> timeline = RunSchedule(schedule);
  EXPECT_TRUE(timeline.ok()) << timeline.status().ToString();
  return timeline.ok() ? *timeline : Timeline{};
}

void ExpectTimes(const Timeline& timeline, const std::vector<std::pair<int64_t, int64_t>>& times) {
  ASSERT_EQ(timeline.tasks.size(), times.size());
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(timeline.tasks[i].begin, times[i].first) << "task " << i;
    EXPECT_EQ(timeline.tasks[i].end, times[i].second) << "task " << i;
  }
}

TEST(Timeline, ALaneDoesOneThingAfterTheOther) {
  Schedule schedule;
  const int lane = schedule.AddLane({"compute"});
  for (const int64_t ns : {5, 0, 7}) schedule.AddTask({"t", lane, ns});
  const Timeline timeline = MustRun(schedule);
  ExpectTimes(timeline, {{0, 5}, {5, 5}, {5, 12}});
  EXPECT_EQ(timeline.end, 12);
  EXPECT_EQ(timeline.busy[0], 12);
}

TEST(Timeline, NothingTakesNoTime) { EXPECT_EQ(MustRun(Schedule()).end, 0); }

TEST(Timeline, WaitsAndLatency) {
  Schedule schedule;
  const int compute = schedule.AddLane({"compute"});
  const int link = schedule.AddLane({"link", LaneOrder::kListed, 1e9});  // one byte a nanosecond
  const int first = schedule.AddTask({"first", compute, 10});
  const int message = schedule.AddTask({"message", link, 0, 100, 30, {first}});
  const int second = schedule.AddTask({"second", link, 0, 50, 30, {first}});
  schedule.AddTask({"after", compute, 1, 0, 0, {message}});
  schedule.AddTask({"after both", compute, 1, 0, 0, {message, second}});
  // The link is free again when the bytes have left; they are known 30 later.
  ExpectTimes(MustRun(schedule), {{0, 10}, {10, 110}, {110, 160}, {140, 141}, {190, 191}});
}

TEST(Timeline, AListedLaneWaitsForItsNextAReadyLaneDoesNot) {
  for (const LaneOrder order : {LaneOrder::kListed, LaneOrder::kReady}) {
    Schedule schedule;
    const int compute = schedule.AddLane({"compute"});
    const int link = schedule.AddLane({"link", order});
    const int early = schedule.AddTask({"early", compute, 10});
    const int late = schedule.AddTask({"late", compute, 40});
    schedule.AddTask({"a", link, 20, 0, 0, {late}});
    schedule.AddTask({"b", link, 20, 0, 0, {early}});
    const Timeline timeline = MustRun(schedule);
    if (order == LaneOrder::kListed) {
      ExpectTimes(timeline, {{0, 10}, {10, 50}, {50, 70}, {70, 90}});
    } else {
      ExpectTimes(timeline, {{0, 10}, {10, 50}, {50, 70}, {10, 30}});
    }
  }
}

TEST(Timeline, EqualsAreTakenAsListed) {
  Schedule schedule;
  const int compute = schedule.AddLane({"compute"});
  const int link = schedule.AddLane({"link", LaneOrder::kReady});
  const int start = schedule.AddTask({"start", compute, 3});
  for (int i = 0; i < 3; ++i) schedule.AddTask({"m", link, 5, 0, 0, {start}});
  ExpectTimes(MustRun(schedule), {{0, 3}, {3, 8}, {8, 13}, {13, 18}});
}

// Two stages, three micro-batches, one forward one backward, forward 2 and backward 4 long: with p
// stages and m micro-batches a step lasts (m + p - 1) * (2 + 4).
TEST(Timeline, APipeline) {
  Schedule schedule;
  const int stages[2] = {schedule.AddLane({"stage 0"}), schedule.AddLane({"stage 1"})};
  // 0: F0 F1 B0 F2 B1 B2; 1: F0 B0 F1 B1 F2 B2. Indices are those of the tasks in this order.
  const int f0[3] = {0, 1, 3}, b0[3] = {2, 4, 5}, f1[3] = {6, 8, 10}, b1[3] = {7, 9, 11};
  const auto add = [&](int stage, const char* name, int64_t ns, std::vector<int> waits) {
    schedule.AddTask({name, stages[stage], ns, 0, 0, std::move(waits)});
  };
  add(0, "F0", 2, {});
  add(0, "F1", 2, {});
  add(0, "B0", 4, {b1[0]});
  add(0, "F2", 2, {});
  add(0, "B1", 4, {b1[1]});
  add(0, "B2", 4, {b1[2]});
  for (int i = 0; i < 3; ++i) {
    add(1, "F", 2, {f0[i]});
    add(1, "B", 4, {f1[i]});
  }
  const Timeline timeline = MustRun(schedule);
  EXPECT_EQ(timeline.end, (3 + 2 - 1) * 6);
  EXPECT_EQ(timeline.tasks[static_cast<size_t>(b0[0])].begin, 8);
  EXPECT_EQ(timeline.busy[0], 18);
}

// A prefetch over a copy lane of 2 bytes a nanosecond: hidden when it begins early enough, else the
// compute lane waits for the rest of it.
TEST(Timeline, ACopyLane) {
  for (const int64_t lead : {60, 20}) {
    Schedule schedule;
    const int compute = schedule.AddLane({"compute"});
    const int copy = schedule.AddLane({"copy in", LaneOrder::kListed, 2e9});
    const int before = schedule.AddTask({"before", compute, 100 - lead});
    schedule.AddTask({"meanwhile", compute, lead});
    const int fetch = schedule.AddTask({"fetch", copy, 0, 100, 0, {before}});
    schedule.AddTask({"use", compute, 10, 0, 0, {fetch}});
    EXPECT_EQ(MustRun(schedule).end, lead == 60 ? 110 : 140);
  }
}

TEST(Timeline, ADeadlockNamesWhoWaits) {
  Schedule schedule;
  const int a = schedule.AddLane({"rank 0"});
  const int b = schedule.AddLane({"rank 1"});
  // Each receives before it sends.
  schedule.AddTask({"receive 0", a, 1, 0, 0, {3}});
  schedule.AddTask({"send 0", a, 1});
  schedule.AddTask({"receive 1", b, 1, 0, 0, {1}});
  schedule.AddTask({"send 1", b, 1});
  const Result<Timeline> timeline = RunSchedule(schedule);
  EXPECT_EQ(timeline.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(timeline.status().message(), HasSubstr("4 of 4 tasks never begin"));
  EXPECT_THAT(timeline.status().message(),
              HasSubstr("'receive 0' on lane 'rank 0' waits for 'send 1'"));
  EXPECT_THAT(timeline.status().message(),
              HasSubstr("'receive 1' on lane 'rank 1' waits for 'send 0'"));
}

TEST(Timeline, RefusesWhatDoesNotExist) {
  Schedule no_lane;
  no_lane.AddTask({"t", 1, 1});
  EXPECT_THAT(RunSchedule(no_lane).status().message(), HasSubstr("'t' is on lane 1 of 0"));
  Schedule no_task;
  no_task.AddLane({"l"});
  no_task.AddTask({"t", 0, 1, 0, 0, {7}});
  EXPECT_THAT(RunSchedule(no_task).status().message(), HasSubstr("waits for task 7 of 1"));
  Schedule negative;
  negative.AddLane({"l"});
  negative.AddTask({"t", 0, -1});
  EXPECT_EQ(RunSchedule(negative).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hyper::simulate
