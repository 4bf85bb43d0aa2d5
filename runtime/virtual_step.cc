#include "runtime/virtual_step.h"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/program_io.h"
#include "runtime/step_reduces.h"

namespace hyper::runtime {
namespace {

using simulate::Task;

bool Writes(const program::Instruction& instruction, const program::Bucket& bucket) {
  return std::any_of(instruction.operands().begin(), instruction.operands().end(),
                     [&](const program::Operand& o) {
                       return o.access() != program::READ && o.access() != program::WORKSPACE &&
                              o.begin() < bucket.end() && bucket.begin() < o.end();
                     });
}

// One all-reduce as tasks; indices are per rank.
struct ReduceTasks {
  std::vector<int> begin;  // entering the first exchange
  std::vector<int> end;    // leaving the last
};

class StepBuilder {
 public:
  StepBuilder(const program::Program& program, const StepCosts& costs, const LinkModel& link,
              const VirtualStepOptions& options)
      : program_(program), costs_(costs), link_(link), options_(options) {
    for (int rank = 0; rank < options.ranks; ++rank) {
      compute_.push_back(schedule_.AddLane({fmt::format("compute {}", rank)}));
      communication_.push_back(schedule_.AddLane({fmt::format("communication {}", rank)}));
      link_lanes_.push_back(schedule_.AddLane(
          {fmt::format("link {}", rank), simulate::LaneOrder::kReady, link.bytes_per_second}));
    }
  }

  Result<VirtualStep> Run() {
    if (!program_.training() || FindSubProgram(program_, "step_first") == nullptr) {
      return FailedPrecondition("the program does not train");
    }
    if (options_.ranks < 1 || options_.micro_batches < 1) {
      return InvalidArgument(
          fmt::format("{} micro-batches on {} ranks", options_.micro_batches, options_.ranks));
    }
    // The phases of Trainer::RunStep.
    const auto counted = [](const program::LossTerm& term) { return term.counted(); };
    if (std::any_of(program_.losses().begin(), program_.losses().end(), counted)) {
      for (int64_t i = 0; i < options_.micro_batches; ++i) HYPER_RETURN_IF_ERROR(Add("count"));
      AddBlocking(program_.losses_size(), ir::DType::kI64);
    }
    HYPER_RETURN_IF_ERROR(AddMicroBatches());
    const std::vector<ReducePiece> statistics = StatisticPieces(program_);
    if (!statistics.empty()) HYPER_RETURN_IF_ERROR(Add("stat_weight"));
    for (const ReducePiece& piece : statistics) AddBlocking(piece.elements, piece.dtype);
    AddBlocking(program_.losses_size() + 1, ir::DType::kF64);
    HYPER_RETURN_IF_ERROR(Add("grad_norm"));
    HYPER_RETURN_IF_ERROR(Add("update"));
    HYPER_ASSIGN_OR_RETURN(timeline_, simulate::RunSchedule(schedule_));
    return Report();
  }

 private:
  struct RunTasks {
    std::string subprogram;
    std::vector<int> tasks;  // of rank 0; -1 for markers
    int first = -1;
  };
  struct Bucket {
    int index = 0;
    int64_t bytes = 0;
    int writer = -1;  // task of rank 0
    int marker = -1;  // what its reduce waits for
    ReduceTasks tasks;
  };

  int AddCompute(int rank, std::string name, int64_t nanoseconds) {
    const int task =
        schedule_.AddTask({std::move(name), compute_[static_cast<size_t>(rank)], nanoseconds});
    if (last_.empty()) last_.assign(static_cast<size_t>(options_.ranks), -1);
    last_[static_cast<size_t>(rank)] = task;
    return task;
  }

  // `on_instruction(index, task of rank 0)` and `on_marker(bucket)` follow the program's order.
  template <typename OnInstruction, typename OnMarker>
  Status AddRun(const std::string& name, OnInstruction on_instruction, OnMarker on_marker) {
    const program::SubProgram* sub = FindSubProgram(program_, name);
    if (sub == nullptr) return Status::Ok();
    const auto found = costs_.find(name);
    if (found != costs_.end() &&
        found->second.size() != static_cast<size_t>(sub->instructions_size())) {
      return InvalidArgument(fmt::format("{} durations for the {} instructions of '{}'",
                                         found->second.size(), sub->instructions_size(), name));
    }
    RunTasks run{name, {}, -1};
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const int begin = AddCompute(rank, name, 0);
      if (rank == 0) run.first = begin;
    }
    for (int i = 0; i < sub->instructions_size(); ++i) {
      const program::Instruction& instruction = sub->instructions(i);
      if (instruction.has_marker()) {
        run.tasks.push_back(-1);
        on_marker(instruction.marker().bucket());
        continue;
      }
      const int64_t cost = found == costs_.end() ? 0 : found->second[static_cast<size_t>(i)];
      for (int rank = 0; rank < options_.ranks; ++rank) {
        const int task = AddCompute(rank, instruction.source(), cost);
        if (rank == 0) run.tasks.push_back(task);
      }
      on_instruction(instruction, run.tasks.back());
    }
    runs_.push_back(std::move(run));
    return Status::Ok();
  }
  Status Add(const std::string& name) {
    return AddRun(
        name, [](const program::Instruction&, int) {}, [](int) {});
  }

  Status AddMicroBatches() {
    ReduceOrder order(program_.buckets_size(), options_.overlap);
    order.BeginStep();
    std::vector<int> writers(static_cast<size_t>(program_.buckets_size()), -1);
    const auto start = [&](int bucket) { AddReduce(bucket); };
    for (int64_t i = 0; i < options_.micro_batches; ++i) {
      const std::string name = i == 0 ? "step_first" : "step_next";
      const bool last = i + 1 == options_.micro_batches;
      HYPER_RETURN_IF_ERROR(AddRun(
          name,
          [&](const program::Instruction& instruction, int task) {
            if (!last) return;
            for (int b = 0; b < program_.buckets_size(); ++b) {
              if (Writes(instruction, program_.buckets(b))) writers[static_cast<size_t>(b)] = task;
            }
          },
          [&](int bucket) {
            if (last) order.OnMarker(bucket, start);
          }));
    }
    backward_ = runs_.back();
    backward_last_ = last_[0];
    if (order.markers() != order.buckets()) {
      return FailedPrecondition(
          fmt::format("{} of {} gradient buckets have a marker", order.markers(), order.buckets()));
    }
    order.OnBackwardEnd(start);
    for (Bucket& bucket : reduced_) bucket.writer = writers[static_cast<size_t>(bucket.index)];
    // The compute lane goes on when all of them are done.
    if (!reduced_.empty()) {
      for (int rank = 0; rank < options_.ranks; ++rank) {
        const int wait = AddCompute(rank, "wait for reduces", 0);
        schedule_.AddWait(wait, reduced_.back().tasks.end[static_cast<size_t>(rank)]);
      }
    }
    reduced_wait_ = last_[0];
    return Status::Ok();
  }

  void AddReduce(int index) {
    const ReducePiece piece = BucketPiece(program_, index);
    if (options_.ranks == 1 || piece.elements == 0) return;  // the sum is there already
    Bucket bucket;
    bucket.index = index;
    bucket.bytes = piece.elements * ir::DTypeBytes(piece.dtype);
    bucket.marker = last_[0];
    bucket.tasks = AddAllReduce(communication_, last_, piece.elements, piece.dtype,
                                fmt::format("bucket {}", index));
    reduced_.push_back(std::move(bucket));
  }

  // On the compute lane itself, which has nothing else to do.
  void AddBlocking(int64_t elements, ir::DType dtype) {
    blocking_bytes_.push_back(elements * ir::DTypeBytes(dtype));
    const ReduceTasks tasks = AddAllReduce(compute_, {}, elements, dtype, "all-reduce");
    if (options_.ranks > 1 && elements > 0) last_ = tasks.end;
  }

  // An all-reduce of one rank per entry of `lanes`, entered after `after` (per rank; may be empty).
  // An exchange ends for a rank when all it receives has arrived and all it sends was taken, as
  // Transport::Exchange promises; it is taken when it has arrived and its receiver has entered.
  ReduceTasks AddAllReduce(const std::vector<int>& lanes, const std::vector<int>& after,
                           int64_t elements, ir::DType dtype, const std::string& name) {
    const auto ranks = static_cast<size_t>(options_.ranks);
    const int64_t width = ir::DTypeBytes(dtype);
    const OrderedRounds rounds(options_.ranks, elements, width, link_.ordered);
    ReduceTasks tasks;
    std::vector<OrderedRounds::Message> sends, receives;
    for (int64_t k = 0; k < rounds.rounds(); ++k) {
      std::vector<int> enter(ranks);
      for (size_t rank = 0; rank < ranks; ++rank) {
        Task task{name, lanes[rank]};
        if (k == 0 && !after.empty()) task.waits.push_back(after[rank]);
        enter[rank] = schedule_.AddTask(std::move(task));
      }
      if (k == 0) tasks.begin = enter;
      std::vector<std::vector<int>> leaves_after(ranks);
      for (size_t rank = 0; rank < ranks; ++rank) {
        rounds.Messages(k, static_cast<int>(rank), &sends, &receives);
        for (const OrderedRounds::Message& message : sends) {
          const auto peer = static_cast<size_t>(message.peer);
          const int sent = schedule_.AddTask({name,
                                              link_lanes_[rank],
                                              0,
                                              message.chunk.count * width,
                                              link_.latency_ns,
                                              {enter[rank]}});
          leaves_after[peer].push_back(sent);
          leaves_after[rank].push_back(sent);
          leaves_after[rank].push_back(enter[peer]);
        }
      }
      tasks.end.assign(ranks, 0);
      for (size_t rank = 0; rank < ranks; ++rank) {
        Task leave{name, lanes[rank]};
        leave.waits = std::move(leaves_after[rank]);
        const int64_t summed = rounds.Owned(k, static_cast<int>(rank)).count * width *
                               static_cast<int64_t>(options_.ranks);
        if (link_.sum_bytes_per_second > 0) {
          leave.nanoseconds =
              static_cast<int64_t>(1e9 * static_cast<double>(summed) / link_.sum_bytes_per_second);
        }
        tasks.end[rank] = schedule_.AddTask(std::move(leave));
      }
    }
    return tasks;
  }

  int64_t EndOf(int task) const {
    return task < 0 ? 0 : timeline_.tasks[static_cast<size_t>(task)].end;
  }
  int64_t BeginOf(int task) const {
    return task < 0 ? 0 : timeline_.tasks[static_cast<size_t>(task)].begin;
  }

  VirtualStep Report() const {
    VirtualStep step;
    for (const RunTasks& run : runs_) {
      VirtualRun out{run.subprogram, BeginOf(run.first), {}};
      int64_t at = out.begin_ns;
      for (const int task : run.tasks) {
        if (task >= 0) at = EndOf(task);
        out.instructions.push_back(task >= 0 ? timeline_.tasks[static_cast<size_t>(task)]
                                             : simulate::Interval{at, at});
      }
      step.runs.push_back(std::move(out));
    }
    step.backward_begin_ns = BeginOf(backward_.first);
    step.backward_end_ns = EndOf(backward_last_);
    step.reduced_ns = EndOf(reduced_wait_);
    step.end_ns = timeline_.end;
    step.blocking_bytes = blocking_bytes_;
    std::vector<simulate::ReduceTimes> times;
    for (const Bucket& bucket : reduced_) {
      VirtualReduce reduce;
      reduce.bucket = bucket.index;
      reduce.bytes = bucket.bytes;
      // Without a writer its gradients are what they were before.
      reduce.ready_ns = std::max(step.backward_begin_ns, EndOf(bucket.writer));
      reduce.queued_ns = EndOf(bucket.marker);
      reduce.begin_ns = BeginOf(bucket.tasks.begin[0]);
      reduce.end_ns = EndOf(bucket.tasks.end[0]);
      times.push_back({reduce.ready_ns, reduce.begin_ns, reduce.end_ns});
      step.reduces.push_back(reduce);
    }
    step.overlap = simulate::MeasureOverlap(times, step.backward_end_ns);
    return step;
  }

  const program::Program& program_;
  const StepCosts& costs_;
  const LinkModel& link_;
  const VirtualStepOptions& options_;
  simulate::Schedule schedule_;
  simulate::Timeline timeline_;
  std::vector<int> compute_, communication_, link_lanes_;  // per rank
  std::vector<int> last_;                                  // per rank, on its compute lane
  std::vector<RunTasks> runs_;
  std::vector<Bucket> reduced_;
  std::vector<int64_t> blocking_bytes_;
  RunTasks backward_;
  int backward_last_ = -1;
  int reduced_wait_ = -1;
};

}  // namespace

Result<StepCosts> CostsOf(const program::Program& program, std::span<const TracedRun> runs) {
  StepCosts sums;
  std::map<std::string, int64_t> counts;
  for (const TracedRun& run : runs) {
    const program::SubProgram* sub = FindSubProgram(program, run.subprogram);
    const size_t instructions = sub == nullptr ? 0 : static_cast<size_t>(sub->instructions_size());
    if (sub == nullptr || run.times.size() != instructions) {
      return InvalidArgument(fmt::format("{} times for the {} instructions of '{}'",
                                         run.times.size(), instructions, run.subprogram));
    }
    std::vector<int64_t>& sum = sums[run.subprogram];
    sum.resize(instructions);
    int64_t previous_end = -1;
    for (size_t i = 0; i < instructions; ++i) {
      if (sub->instructions(static_cast<int>(i)).has_marker()) continue;
      const InstructionTime& time = run.times[i];
      sum[i] += time.end_ns - (previous_end < 0 ? time.begin_ns : previous_end);
      previous_end = time.end_ns;
    }
    ++counts[run.subprogram];
  }
  for (auto& [name, sum] : sums) {
    for (int64_t& nanoseconds : sum) nanoseconds /= counts[name];
  }
  return sums;
}

Result<VirtualStep> SimulateStep(const program::Program& program, const StepCosts& costs,
                                 const LinkModel& link, const VirtualStepOptions& options) {
  return StepBuilder(program, costs, link, options).Run();
}

}  // namespace hyper::runtime
