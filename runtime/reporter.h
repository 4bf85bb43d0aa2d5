// What a job tells while it runs. The libraries print nothing: tools hand in a Reporter.
// Thread safety: called from the job's thread only, on every rank (`rank` of StartInfo tells who).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/evaluator.h"
#include "runtime/trainer.h"

namespace hyper::runtime {

struct StartInfo {
  std::string model;
  bool training = true;
  int rank = 0;
  int replicas = 1;
  int threads = 1;            // of this rank
  int64_t micro_batch = 0;    // samples
  int64_t micro_batches = 1;  // per replica and step
  int64_t first_step = 0;     // steps done before
  int64_t steps = 0;          // step at which the run ends
  int64_t log_every = 10;     // run.log_every
  int64_t trained_tensors = 0;
  int64_t trained_parameters = 0;  // elements
  int64_t frozen_tensors = 0;
  int64_t frozen_parameters = 0;
  int64_t train_samples = 0;  // 0: no training data
  int64_t eval_samples = 0;
  int64_t arena_bytes = 0;
  std::string checkpoint;          // that the run starts from; empty: the bundle's values
  std::vector<std::string> hosts;  // one per rank
  std::vector<int> threads_per_rank;
};

class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void OnStart(const StartInfo& info) = 0;
  virtual void OnStep(const StepReport& report) = 0;
  virtual void OnEval(const EvalReport& report) = 0;
  virtual void OnCheckpoint(int64_t step, const std::string& path) = 0;
  // Something worth knowing that is no error.
  virtual void OnNote(const std::string& text) = 0;
};

}  // namespace hyper::runtime
