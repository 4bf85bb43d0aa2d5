#include "tests/runtime/toy_training.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include <gtest/gtest.h>

#include "runtime/data/batch_loader.h"
#include "runtime/data/random.h"
#include "runtime/program_io.h"
#include "tests/runtime/test_files.h"

namespace hyper::runtime::testing {

std::unique_ptr<Dataset> MakeToyData(const FakeOptions& model, int64_t samples, int64_t seed) {
  std::vector<double> x;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < samples * model.features; ++i) {
    x.push_back(UniformFrom(HashCounter(StreamKey(seed, "x"), static_cast<uint64_t>(i))) * 2 - 1);
  }
  for (int64_t i = 0; i < samples; ++i) {
    const uint64_t bits = HashCounter(StreamKey(seed, "labels"), static_cast<uint64_t>(i));
    const bool ignored = model.counted && bits % 3 == 0;
    const uint64_t label = bits / 7 % static_cast<uint64_t>(model.classes);
    labels.push_back(ignored ? kIgnore : static_cast<int64_t>(label));
  }
  const TestFolder folder;
  folder.Write("x.npy",
               NpyBytes("<f8", fmt::format("({}, {})", samples, model.features), BytesOf(x)));
  folder.Write("labels.npy", NpyBytes("<i8", fmt::format("({},)", samples), BytesOf(labels)));
  strategy::DataSource source;
  source.kind = strategy::DataKind::kNpy;
  source.path = folder.path();
  source.inputs["x"].file = "x.npy";
  source.inputs["labels"].file = "labels.npy";
  const FakeExecutor executor(model);
  auto dataset =
      Dataset::Create(source, *InputsOf(executor.program()), LabelRangesOf(executor.program()), 0);
  HYPER_CHECK(dataset.ok(), dataset.status().ToString());
  return std::move(dataset).value();
}

Status TrainToy(Communicator& communicator, const ToyRun& run, ToyOutcome* outcome) {
  FakeExecutor executor(run.model);
  HYPER_ASSIGN_OR_RETURN(const RankTable ranks, RankTable::Create("toy", communicator.size(), 1));
  TrainerOptions options;
  options.train.optimizer.lr = run.lr;
  options.train.clip_norm = run.clip_norm;
  options.train.seed = run.seed;
  options.micro_batches = run.micro_batches;
  options.total_steps = run.steps;
  options.overlap = run.overlap;
  options.fault = run.fault;
  HYPER_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                         Trainer::Create(&executor, &communicator, ranks, options));
  LoaderOptions loader_options;
  loader_options.micro_batch = run.model.batch;
  loader_options.micro_batches = run.micro_batches;
  loader_options.replicas = communicator.size();
  loader_options.replica = communicator.rank();
  loader_options.position = run.first_position;
  loader_options.seed = run.seed;
  loader_options.shuffle = run.shuffle;
  loader_options.prefetch = run.prefetch;
  loader_options.count_inputs = trainer->count_inputs();
  const std::unique_ptr<BatchLoader> loader =
      BatchLoader::Create(MakeToyData(run.model, 101, 1), loader_options);
  StepReport report;
  for (int64_t s = 0; s < run.steps; ++s) {
    HYPER_RETURN_IF_ERROR(trainer->Step(loader.get(), Status::Ok(), &report));
    if (s == 0 || report.step_ms < outcome->fastest_step_ms) {
      outcome->fastest_step_ms = report.step_ms;
    }
    outcome->losses.push_back(report.loss);
    outcome->norms.push_back(report.grad_norm.value_or(-1));
  }
  outcome->parameters = executor.Values(program::PARAMETER, "weight");
  const std::vector<double> bias = executor.Values(program::PARAMETER, "bias");
  outcome->parameters.insert(outcome->parameters.end(), bias.begin(), bias.end());
  outcome->mean = executor.Values(program::STATE, "mean");
  outcome->overlap = MeasureOverlap(trainer->reduces(), trainer->trace().backward_end_ns);
  HYPER_ASSIGN_OR_RETURN(const std::unique_ptr<Evaluator> evaluator,
                         Evaluator::Create(&executor, &communicator, ranks));
  HYPER_ASSIGN_OR_RETURN(outcome->eval, evaluator->Run(*MakeToyData(run.model, 41, 2)));
  return Status::Ok();
}

ToyOutcome TrainToyOnLoopback(int ranks, const ToyRun& run, const LoopbackOptions& options) {
  std::vector<ToyOutcome> outcomes(static_cast<size_t>(ranks));
  const Status status = RunOnRanks(ranks, options, [&](Communicator& communicator) {
    return TrainToy(communicator, run, &outcomes[static_cast<size_t>(communicator.rank())]);
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
  for (const ToyOutcome& outcome : outcomes) {
    // A planted fault makes the ranks drift apart: that is what it is for.
    if (run.fault.skipped_bucket >= 0) break;
    EXPECT_EQ(outcome.losses, outcomes[0].losses);
    EXPECT_EQ(outcome.parameters, outcomes[0].parameters);
    EXPECT_EQ(outcome.mean, outcomes[0].mean);
  }
  return outcomes[0];
}

namespace {

void ExpectAllNear(const char* what, const std::vector<double>& actual,
                   const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], tolerance * std::max(1.0, std::abs(expected[i])))
        << what << " " << i;
  }
}

}  // namespace

void ExpectNear(const ToyOutcome& actual, const ToyOutcome& expected, double tolerance) {
  ExpectAllNear("loss", actual.losses, expected.losses, tolerance);
  ExpectAllNear("norm", actual.norms, expected.norms, tolerance);
  ExpectAllNear("parameter", actual.parameters, expected.parameters, tolerance);
  ExpectAllNear("mean", actual.mean, expected.mean, tolerance);
  EXPECT_NEAR(actual.eval.loss, expected.eval.loss, tolerance * std::max(1.0, expected.eval.loss));
  EXPECT_EQ(actual.eval.accuracy, expected.eval.accuracy);
  EXPECT_EQ(actual.eval.samples, expected.eval.samples);
}

}  // namespace hyper::runtime::testing
