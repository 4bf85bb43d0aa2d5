// One training step on the virtual clock: the same program, reduces and messages as the trainer's,
// with given durations. For predictions (`--dry-run`, a planner, predicted against measured exposed
// time) and for tests that must not depend on how busy a machine is.
//
// Programs have one compute lane today; each rank gets three lanes here: compute, communication
// (the thread that reduces) and the sending direction of its link. Lanes that programs get later
// are further lanes of the same simulate::Schedule. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "codegen/program.pb.h"
#include "runtime/ordered_rounds.h"
#include "runtime/trainer.h"
#include "simulate/overlap.h"
#include "simulate/timeline.h"

namespace hyper::runtime {

// Nanoseconds of every instruction of a subprogram, by its name. A subprogram that is missing takes
// no time; markers take none anyway.
using StepCosts = std::map<std::string, std::vector<int64_t>>;

// From timed runs (Trainer::TraceRuns): means over the runs of each subprogram. An instruction
// lasts from the end of the one before it, so that dispatch is included. kInvalidArgument when a
// run has not as many times as its subprogram instructions.
Result<StepCosts> CostsOf(const program::Program& program, std::span<const TracedRun> runs);

// Links between ranks, as LoopbackOptions has them.
struct LinkModel {
  int64_t latency_ns = 0;           // per message
  double bytes_per_second = 0;      // of a sender's one link; 0: unlimited
  double sum_bytes_per_second = 0;  // of adding up what was received; 0: no time
  OrderedOptions ordered;
};

struct VirtualStepOptions {
  int ranks = 1;
  int64_t micro_batches = 1;  // per rank
  bool overlap = true;
};

struct VirtualRun {
  std::string subprogram;
  int64_t begin_ns = 0;
  std::vector<simulate::Interval> instructions;
};

// When bucket b's gradients were complete, its reduce queued, begun and done.
struct VirtualReduce {
  int bucket = 0;
  int64_t bytes = 0;
  int64_t ready_ns = 0;  // end of the last instruction that writes into the bucket, whatever the
                         // place of its marker
  int64_t queued_ns = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// Of rank 0; all ranks have the same program and the same durations.
struct VirtualStep {
  std::vector<VirtualRun> runs;
  std::vector<VirtualReduce> reduces;   // in the order in which they were queued; none on one rank
  std::vector<int64_t> blocking_bytes;  // of the all-reduces on the compute lane, in order
  int64_t backward_begin_ns = 0;        // the last micro-batch, as in StepTrace
  int64_t backward_end_ns = 0;
  int64_t reduced_ns = 0;
  int64_t end_ns = 0;
  simulate::OverlapFigures overlap;
};

// kInvalidArgument for durations that do not fit the program, kFailedPrecondition for a program
// that does not train.
Result<VirtualStep> SimulateStep(const program::Program& program, const StepCosts& costs,
                                 const LinkModel& link, const VirtualStepOptions& options);

}  // namespace hyper::runtime
