#include "simulate/timeline.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace hyper::simulate {
namespace {

constexpr size_t kNamedInDeadlock = 4;

class Clock {
 public:
  explicit Clock(const Schedule& schedule)
      : lanes_(schedule.lanes()),
        tasks_(schedule.tasks()),
        states_(tasks_.size()),
        queues_(lanes_.size()) {}

  Result<Timeline> Run() {
    HYPER_RETURN_IF_ERROR(Check());
    timeline_.tasks.resize(tasks_.size());
    timeline_.busy.resize(lanes_.size());
    for (size_t t = 0; t < tasks_.size(); ++t) {
      states_[t].missing = tasks_[t].waits.size();
      for (const int wait : tasks_[t].waits) {
        states_[static_cast<size_t>(wait)].waiters.push_back(static_cast<int>(t));
      }
      queues_[Lane(t)].listed.push_back(static_cast<int>(t));
      if (states_[t].missing == 0) MakeReady(static_cast<int>(t), 0);
    }
    std::set<size_t> touched;
    for (size_t lane = 0; lane < lanes_.size(); ++lane) touched.insert(lane);
    for (int64_t now = 0;;) {
      // Everything that happens at one time happens before a lane chooses.
      for (const size_t lane : touched) Dispatch(lane, now);
      touched.clear();
      if (events_.empty()) break;
      now = std::get<0>(events_.top());
      while (!events_.empty() && std::get<0>(events_.top()) == now) {
        const auto [time, kind, index] = events_.top();
        events_.pop();
        Handle(kind, index, now, &touched);
      }
    }
    if (done_ != tasks_.size()) return Deadlock();
    return std::move(timeline_);
  }

 private:
  enum Kind {
    kLaneFree,
    kKnown
  };  // a lane ended its task; those that wait for a task know its end
  struct State {
    size_t missing = 0;  // waits that are not known to have ended
    std::vector<int> waiters;
    bool ready = false;
  };
  struct Queue {
    std::vector<int> listed;
    size_t next = 0;                          // of `listed`
    std::set<std::pair<int64_t, int>> ready;  // (since when, task); kReady lanes only
    bool busy = false;
  };

  size_t Lane(size_t task) const { return static_cast<size_t>(tasks_[task].lane); }

  Status Check() const {
    for (const Task& task : tasks_) {
      if (task.lane < 0 || static_cast<size_t>(task.lane) >= lanes_.size()) {
        return InvalidArgument(
            fmt::format("task '{}' is on lane {} of {}", task.name, task.lane, lanes_.size()));
      }
      if (task.nanoseconds < 0 || task.bytes < 0 || task.latency < 0) {
        return InvalidArgument(fmt::format("task '{}' takes {} ns, {} bytes and {} ns of latency",
                                           task.name, task.nanoseconds, task.bytes, task.latency));
      }
      for (const int wait : task.waits) {
        if (wait < 0 || static_cast<size_t>(wait) >= tasks_.size()) {
          return InvalidArgument(
              fmt::format("task '{}' waits for task {} of {}", task.name, wait, tasks_.size()));
        }
      }
    }
    return Status::Ok();
  }

  void MakeReady(int task, int64_t now) {
    const auto t = static_cast<size_t>(task);
    states_[t].ready = true;
    if (lanes_[Lane(t)].order == LaneOrder::kReady) queues_[Lane(t)].ready.insert({now, task});
  }

  void Handle(int kind, int index, int64_t now, std::set<size_t>* touched) {
    const auto i = static_cast<size_t>(index);
    if (kind == kLaneFree) {
      queues_[i].busy = false;
      touched->insert(i);
      return;
    }
    for (const int waiter : states_[i].waiters) {
      State& state = states_[static_cast<size_t>(waiter)];
      if (--state.missing > 0) continue;
      MakeReady(waiter, now);
      touched->insert(Lane(static_cast<size_t>(waiter)));
    }
  }

  // Lets an idle lane begin its next task, if there is one.
  void Dispatch(size_t lane, int64_t now) {
    Queue& queue = queues_[lane];
    if (queue.busy) return;
    int task = -1;
    if (lanes_[lane].order == LaneOrder::kReady) {
      if (queue.ready.empty()) return;
      task = queue.ready.begin()->second;
      queue.ready.erase(queue.ready.begin());
    } else {
      if (queue.next == queue.listed.size()) return;
      task = queue.listed[queue.next];
      if (!states_[static_cast<size_t>(task)].ready) return;
      ++queue.next;
    }
    const Task& started = tasks_[static_cast<size_t>(task)];
    const int64_t end = now + DurationOf(started, lanes_[lane]);
    timeline_.tasks[static_cast<size_t>(task)] = {now, end};
    timeline_.busy[lane] += end - now;
    timeline_.end = std::max(timeline_.end, end);
    ++done_;
    queue.busy = true;
    events_.push({end, kLaneFree, static_cast<int>(lane)});
    events_.push({end + started.latency, kKnown, task});
  }

  Status Deadlock() const {
    std::string heads;
    size_t named = 0;
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      // The first of the lane's tasks that did not begin.
      for (const int task : queues_[lane].listed) {
        const State& state = states_[static_cast<size_t>(task)];
        if (state.ready || named == kNamedInDeadlock) continue;
        for (const int wait : tasks_[static_cast<size_t>(task)].waits) {
          if (IsDone(wait)) continue;
          heads += fmt::format("{}'{}' on lane '{}' waits for '{}'", named > 0 ? "; " : "",
                               tasks_[static_cast<size_t>(task)].name, lanes_[lane].name,
                               tasks_[static_cast<size_t>(wait)].name);
          ++named;
          break;
        }
        break;
      }
    }
    return FailedPrecondition(fmt::format("deadlock: {} of {} tasks never begin: {}",
                                          tasks_.size() - done_, tasks_.size(), heads));
  }

  // For messages only: whether `task` ran, by its being in front of its lane's next one.
  bool IsDone(int task) const {
    const Queue& queue = queues_[Lane(static_cast<size_t>(task))];
    if (lanes_[Lane(static_cast<size_t>(task))].order == LaneOrder::kReady) {
      return states_[static_cast<size_t>(task)].ready;
    }
    const auto begin = queue.listed.begin();
    return std::find(begin, begin + static_cast<std::ptrdiff_t>(queue.next), task) !=
           begin + static_cast<std::ptrdiff_t>(queue.next);
  }

  using Event = std::tuple<int64_t, int, int>;  // time, kind, lane or task
  const std::vector<simulate::Lane>& lanes_;
  const std::vector<Task>& tasks_;
  std::vector<State> states_;
  std::vector<Queue> queues_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Timeline timeline_;
  size_t done_ = 0;
};

}  // namespace

int Schedule::AddLane(Lane lane) {
  lanes_.push_back(std::move(lane));
  return static_cast<int>(lanes_.size()) - 1;
}

int Schedule::AddTask(Task task) {
  tasks_.push_back(std::move(task));
  return static_cast<int>(tasks_.size()) - 1;
}

int64_t DurationOf(const Task& task, const Lane& lane) {
  if (lane.bytes_per_second <= 0) return task.nanoseconds;
  return task.nanoseconds +
         static_cast<int64_t>(1e9 * static_cast<double>(task.bytes) / lane.bytes_per_second);
}

Result<Timeline> RunSchedule(const Schedule& schedule) { return Clock(schedule).Run(); }

}  // namespace hyper::simulate
