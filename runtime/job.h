// A whole run: what tools/hyperrun calls on every rank.
// Thread safety: one job per communicator; RunJob blocks until the run is over.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "frontend/strategy/launch_config.h"
#include "runtime/agree.h"
#include "runtime/async_reducer.h"
#include "runtime/checkpoint.h"
#include "runtime/communicator.h"
#include "runtime/executor.h"
#include "runtime/reporter.h"
#include "runtime/trainer.h"

namespace hyper::runtime {

struct JobOptions {
  FileSystem* fs = RealFileSystem();
  Communicator* communicator = nullptr;  // required
  Reporter* reporter = nullptr;          // required
  std::vector<std::string> overrides;    // --set KEY=VALUE
  std::optional<int64_t> steps;          // --steps
  bool eval_only = false;                // --eval: evaluates the initial or loaded state
  std::string outputs_dir;               // --outputs: writes the model's outputs there, no more
  bool dry_run = false;                  // everything up to the first step
  std::string checkpoint;                // state to start from; empty: the bundle's
  std::string trace;                     // Chrome trace of one step, one file per rank; empty: none
  bool write_files = true;               // metrics and checkpoints
  bool overwrite = false;                // what an earlier job left in run.dir is removed
  std::vector<std::string> outputs;      // files that the caller writes afterwards on rank 0
  // Set when a failure may be this rank's alone, so that the others have to be told by ending them.
  bool* alone = nullptr;
  std::string keep_text;                    // a text file of the bundle to hand back (RunJob)
  const std::atomic<bool>* stop = nullptr;  // set when this rank is asked to stop; null: never
  std::optional<bool> overlap;              // instead of the bundle's
  int threads = 0;  // of the executor, to MaxTeamSize(); 0: DefaultTeamSize()
  bool reference_kernels = false;
  bool poison = false;
  PlantedFault fault;
};

struct JobResult {
  int64_t steps = 0;               // done in all, those before a checkpoint included
  std::optional<EvalReport> eval;  // the last one
  std::string checkpoint;          // path of the final state; empty when none was written
  NamedTensors tensors;            // final values on rank 0 (for an export)
  OverlapFigures overlap;          // of the last step
  std::string text;                // JobOptions::keep_text, read at load; on rank 0
};

// Opens the bundle, makes the executor and runs. Every rank returns the same status when one
// rank's preparation fails; the message names the rank. All that the job writes (run.dir,
// checkpoints, trace, outputs) is tried before the first step.
// kCancelled: some rank was asked to stop; the state after its step is saved. When a step fails on
// all ranks alike (a loss that is not finite, data, a full disk), the state before it is saved and
// the message says where. A trace that cannot be written is a note. Memory does not grow with the
// number of steps.
Result<JobResult> RunJob(const std::string& bundle_path, const JobOptions& options);

// The same on an executor that is there already. `launch`: the bundle's launch keys.
Result<JobResult> RunJobOn(Executor* executor, const std::string& model_name, int ranks_per_replica,
                           strategy::LaunchConfig launch, const JobOptions& options);

}  // namespace hyper::runtime
