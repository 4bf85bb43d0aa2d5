// The virtual clock: given what has to be done on which lane, after what, and how long each piece
// takes, says when everything begins and ends. Neither threads nor real clocks: the same schedule
// gives the same times.
//
// A lane is whatever does one thing at a time: the compute thread of a rank, its communication
// thread, a copy engine, one direction of a link. What is later planned (pipeline stages, copies
// between memory tiers, prefetches) is tasks on lanes just as well.
// Thread safety: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace hyper::simulate {

// Which of its tasks a lane does next.
enum class LaneOrder {
  kListed,  // in the order in which they were added; one that cannot begin yet holds up the rest
  kReady,   // the one that could begin first; equal ones as they were added
};

struct Lane {
  std::string name;
  LaneOrder order = LaneOrder::kListed;
  double bytes_per_second = 0;  // of Task::bytes; 0: they take no time
};

// Times are nanoseconds of the virtual clock.
struct Task {
  std::string name;  // for messages
  int lane = 0;
  int64_t nanoseconds = 0;  // for which the lane is busy
  int64_t bytes = 0;        // for which it is busy bytes / bytes_per_second more
  int64_t latency = 0;      // from its end until those that wait for it know; the lane is free then
  std::vector<int> waits;   // tasks that have to end first
};

class Schedule {
 public:
  // Both return the index.
  int AddLane(Lane lane);
  int AddTask(Task task);
  // Task `task` also waits for `wait`.
  void AddWait(int task, int wait) { tasks_[static_cast<size_t>(task)].waits.push_back(wait); }
  const std::vector<Lane>& lanes() const { return lanes_; }
  const std::vector<Task>& tasks() const { return tasks_; }

 private:
  std::vector<Lane> lanes_;
  std::vector<Task> tasks_;
};

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t length() const { return end - begin; }
};

struct Timeline {
  std::vector<Interval> tasks;  // when each kept its lane busy
  std::vector<int64_t> busy;    // per lane, sum over its tasks
  int64_t end = 0;              // of the last task, latencies left out
};

// Time of a task on its lane: nanoseconds plus bytes at the lane's speed, rounded down.
int64_t DurationOf(const Task& task, const Lane& lane);

// Every task begins at the earliest time that its lane and what it waits for allow.
// kInvalidArgument for lanes or tasks that do not exist and negative times; kFailedPrecondition
// when tasks wait for each other in a circle (a deadlock), naming those at the heads of their
// lanes. Time: O((tasks + waits) log tasks).
Result<Timeline> RunSchedule(const Schedule& schedule);

}  // namespace hyper::simulate
