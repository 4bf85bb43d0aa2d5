// The training step of one rank: gradient accumulation over micro-batches, reduces over replicas
// that overlap backward, statistics, clipping and the update.
// Thread safety: one thread; every rank calls the same functions in the same order.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "frontend/strategy/launch_config.h"
#include "runtime/async_reducer.h"
#include "runtime/communicator.h"
#include "runtime/data/batch_loader.h"
#include "runtime/executor.h"
#include "runtime/program_io.h"
#include "runtime/rank_table.h"
#include "runtime/step_reduces.h"

namespace hyper::runtime {

// Faults that a parity test plants to see that it can fail.
struct PlantedFault {
  double gradient_factor = 1;    // of every gradient
  int skipped_bucket = -1;       // is not reduced
  int64_t mask_seed_offset = 0;  // added to the seed of random ops
  double decay_factor = 1;       // of train.optimizer.weight_decay
};

struct TrainerOptions {
  strategy::LaunchTrain train;  // optimizer, schedule, clip_norm, seed
  int64_t micro_batches = 1;    // per replica and step
  int64_t total_steps = 0;      // end of a schedule that names none
  bool overlap = true;          // false: reduce after the last backward
  // Set (by a signal handler, say) when this rank is asked to stop; null: never.
  const std::atomic<bool>* stop = nullptr;
  PlantedFault fault;
};

struct StepReport {
  int64_t step = 0;  // counts from 1
  double loss = 0;   // weighted mean over the global batch
  double lr = 0;
  std::optional<double> grad_norm;  // before clipping; empty when the program does not compute it
  double clip_coef = 1;
  double step_ms = 0;
  double samples_per_s = 0;  // over all replicas
};

// Times of the last step, for traces.
struct StepTrace {
  int64_t begin_ns = 0;
  int64_t backward_begin_ns = 0;  // start of the last micro-batch
  int64_t backward_end_ns = 0;    // its end
  int64_t reduced_ns = 0;         // all buckets reduced
  int64_t end_ns = 0;
};

// One run of a subprogram with the times of its instructions, for traces.
struct TracedRun {
  std::string subprogram;
  std::vector<InstructionTime> times;  // as long as the subprogram's instructions; markers are zero
};

class Trainer {
 public:
  // All pointers outlive the trainer. kFailedPrecondition when the program cannot train or lacks
  // what the options ask for.
  static Result<std::unique_ptr<Trainer>> Create(Executor* executor, Communicator* communicator,
                                                 const RankTable& ranks, TrainerOptions options);

  // One optimizer step on the loader's next global batch. kInvalidArgument, naming the step and a
  // tensor, when the loss or the gradient norm is not finite; parameters then keep their values.
  // What fails on one rank (its data, a kernel, or `local`: something that failed there before) is
  // returned on all ranks and changes no parameter. Does not allocate after the first call.
  Status Step(BatchLoader* loader, const Status& local, StepReport* report);

  // After Step, equal on all ranks. Whether some rank had been asked to stop before the losses of
  // the step were reduced:
  bool stop_agreed() const { return stop_agreed_; }
  // False when a failure may have left the ranks, or the parameters, in different states. True
  // after a failure that every rank returned alike: everything is as after step().
  bool whole() const { return whole_; }
  int64_t step() const { return step_; }         // steps done
  void set_step(int64_t step) { step_ = step; }  // after a checkpoint was loaded
  int64_t global_batch() const;
  // Inputs that the loader must deliver ahead (LoaderOptions::count_inputs).
  const std::vector<int>& count_inputs() const { return count_inputs_; }
  // Non-null: the following steps append their runs; their numbers are those of a slower step.
  void TraceRuns(std::vector<TracedRun>* runs) { traced_runs_ = runs; }
  const StepTrace& trace() const { return trace_; }
  std::span<const ReduceRecord> reduces() const { return reducer_.records(); }

 private:
  struct Term {
    std::string name;
    double weight = 1;
    int64_t constant_count = 0;
    bool counted = false;
    ScalarSlot seed;
    const program::Operand* count = nullptr;       // result of @count
    const program::Operand* loss_first = nullptr;  // results of the step subprograms
    const program::Operand* loss_next = nullptr;
  };

  Trainer(Executor* executor, Communicator* communicator, TrainerOptions options);
  Status FindParts(const RankTable& ranks);
  Status FindTerms();
  Status RunStep(BatchLoader* loader, Status local, StepReport* report);
  Status RunSubprogram(const std::string& name, const std::function<void(int)>& on_marker);
  Status Count(BatchLoader* loader);
  Status ReduceCountsAndSeed();
  Status RunMicroBatches(BatchLoader* loader);
  Status ReduceGradients();
  Status WeighStatistics();
  Status ReduceStatistics();
  Status ReduceLosses(bool failed, bool* any_failed, double* loss);
  Status NotFinite(std::string_view what, double value);
  Status NormAndClip(StepReport* report);
  Status FindOptimizerValues();
  void OnMarker(int bucket);
  void StartReduce(int bucket);

  Executor* executor_;
  Communicator* communicator_;
  TrainerOptions options_;
  int replicas_ = 1;
  int replica_ = 0;
  int64_t step_ = 0;
  std::vector<Term> terms_;
  std::vector<const program::Slot*> input_slots_;
  std::vector<int> count_inputs_;
  ScalarSlot lr_, step_scalar_, clip_, statistic_scale_, rng_;
  std::vector<std::pair<ScalarSlot, double>> optimizer_values_;  // set in front of every update
  std::vector<const program::Operand*> norm_parts_;
  std::vector<ReducePiece> statistics_;
  std::vector<int64_t> counts_;  // per term, over the whole global batch
  std::vector<double> losses_;   // per term, sums; then which ranks failed or are asked to stop
  bool stop_agreed_ = false;
  bool whole_ = true;
  AsyncReducer reducer_;
  ReduceOrder reduce_order_;
  std::vector<int64_t> ready_ns_;  // per bucket: when its marker was reached in this step
  StepTrace trace_;
  std::vector<TracedRun>* traced_runs_ = nullptr;
  // Made once, so that a step does not allocate.
  const std::string count_name_ = "count", first_name_ = "step_first", next_name_ = "step_next";
  const std::string weight_name_ = "stat_weight", norm_name_ = "grad_norm", update_name_ = "update";
  const std::function<void(int)> on_marker_;
  const std::function<void(int)> no_marker_;
};

}  // namespace hyper::runtime
