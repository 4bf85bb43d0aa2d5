// The toy model trained by the real trainer, loader and dataset.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "runtime/communicator.h"
#include "runtime/evaluator.h"
#include "runtime/loopback_communicator.h"
#include "runtime/trainer.h"
#include "tests/runtime/fake_executor.h"

namespace hyper::runtime::testing {

struct ToyRun {
  FakeOptions model;
  int64_t steps = 5;
  int64_t micro_batches = 1;
  bool overlap = true;
  bool shuffle = true;
  double clip_norm = 0;
  double lr = 0.3;
  int64_t seed = 7;
  int64_t first_position = 0;
  int64_t prefetch = 2;
  PlantedFault fault;
};

struct ToyOutcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<double> parameters;  // weight, then bias
  std::vector<double> mean;        // the running statistic
  OverlapFigures overlap;          // of the last step
  double fastest_step_ms = 0;
  EvalReport eval;  // after the last step, on 41 other samples
};

// 101 made-up samples (a number that no global batch here divides), some labels ignored.
std::unique_ptr<Dataset> MakeToyData(const FakeOptions& model, int64_t samples, int64_t seed);

Status TrainToy(Communicator& communicator, const ToyRun& run, ToyOutcome* outcome);

// Outcome of rank 0; checks that all ranks have the same bits.
ToyOutcome TrainToyOnLoopback(int ranks, const ToyRun& run, const LoopbackOptions& options = {});

// Relative to max(1, |expected|); losses, norms, parameters, statistics and evaluation.
void ExpectNear(const ToyOutcome& actual, const ToyOutcome& expected, double tolerance);

}  // namespace hyper::runtime::testing
