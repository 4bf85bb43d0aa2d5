#include "runtime/trainer.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/toy_training.h"

namespace hyper::runtime {
namespace {

using testing::ExpectNear;
using ::testing::HasSubstr;
using testing::ToyOutcome;
using testing::ToyRun;
using testing::TrainToyOnLoopback;

ToyRun MakeRun(int64_t micro_batches) {
  ToyRun run;
  run.steps = 20;  // 160 samples: across the epoch of 101
  run.micro_batches = micro_batches;
  return run;
}

TEST(Trainer, ReplicasAndMicroBatchesShareTheWorkExactly) {
  const ToyOutcome alone = TrainToyOnLoopback(1, MakeRun(4));
  EXPECT_LT(alone.losses.back(), alone.losses.front());
  ExpectNear(TrainToyOnLoopback(2, MakeRun(2)), alone, 1e-12);
  ExpectNear(TrainToyOnLoopback(4, MakeRun(1)), alone, 1e-12);
}

TEST(Trainer, TheSameLaunchTwiceIsBitIdentical) {
  const ToyOutcome first = TrainToyOnLoopback(3, MakeRun(2));
  const ToyOutcome second = TrainToyOnLoopback(3, MakeRun(2));
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.parameters, second.parameters);
  EXPECT_EQ(first.mean, second.mean);
}

TEST(Trainer, OverlapAndPrefetchChangeNoBit) {
  ToyRun plain = MakeRun(2);
  plain.overlap = false;
  plain.prefetch = 0;
  const ToyOutcome expected = TrainToyOnLoopback(2, plain);
  const ToyOutcome actual = TrainToyOnLoopback(2, MakeRun(2));
  EXPECT_EQ(actual.losses, expected.losses);
  EXPECT_EQ(actual.parameters, expected.parameters);
}

TEST(Trainer, EqualsOneLargeMicroBatch) {
  ToyRun large = MakeRun(1);
  large.model.batch = 8;
  // The running mean is that of one update instead of four, everything else is the same.
  const ToyOutcome expected = TrainToyOnLoopback(1, large);
  const ToyOutcome actual = TrainToyOnLoopback(2, MakeRun(2));
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(actual.losses[i], expected.losses[i], 1e-12);
  }
  EXPECT_NE(actual.mean, expected.mean);
}

TEST(Trainer, PlantedFaultsShow) {
  const ToyOutcome good = TrainToyOnLoopback(2, MakeRun(2));
  const auto differs = [&](const ToyOutcome& other) {
    double worst = 0;
    for (size_t i = 0; i < good.losses.size(); ++i) {
      worst = std::max(worst, std::abs(good.losses[i] - other.losses[i]));
    }
    return worst > 1e-5;
  };
  ToyRun run = MakeRun(2);
  EXPECT_FALSE(differs(TrainToyOnLoopback(2, run)));
  run.fault.gradient_factor = 1.01;
  EXPECT_TRUE(differs(TrainToyOnLoopback(2, run)));
  run = MakeRun(2);
  run.fault.skipped_bucket = 1;
  EXPECT_TRUE(differs(TrainToyOnLoopback(2, run)));
  run = MakeRun(2);
  run.fault.mask_seed_offset = 1;
  EXPECT_TRUE(differs(TrainToyOnLoopback(2, run)));
}

// One step on samples 0..7 in order, recomputed here in plain formulas.
TEST(Trainer, FirstStepByHand) {
  ToyRun run = MakeRun(2);
  run.steps = 1;
  run.shuffle = false;
  run.model.masked = false;
  run.model.weight = 0.5;
  run.clip_norm = 0.01;
  const ToyOutcome outcome = TrainToyOnLoopback(2, run);
  const auto data = testing::MakeToyData(run.model, 101, 1);
  testing::FakeExecutor start(run.model);
  const std::vector<double> weight = start.Values(program::PARAMETER, "weight");
  double loss = 0;
  int64_t count = 0;
  double pair[3] = {};
  std::vector<double> bias_gradient(4, 0.0), weight_gradient(12, 0.0), mean(3, 0.0);
  for (int64_t i = 0; i < 8; ++i) {
    double x[3];
    int64_t label = 0;
    ASSERT_TRUE(data->Read(0, i, reinterpret_cast<std::byte*>(x)).ok());
    ASSERT_TRUE(data->Read(1, i, reinterpret_cast<std::byte*>(&label)).ok());
    // The statistic of a micro-batch of two is taken in when its second sample was seen.
    for (int j = 0; j < 3; ++j) {
      pair[j] = i % 2 == 0 ? x[j] : (pair[j] + x[j]) / 2;
      double& running = mean[static_cast<size_t>(j)];
      if (i % 2 == 1) running = 0.9 * running + 0.1 * pair[j];
    }
    if (label == testing::kIgnore) continue;
    ++count;
    double z[4], total = 0;
    for (size_t k = 0; k < 4; ++k) {
      z[k] = 0;
      for (size_t j = 0; j < 3; ++j) z[k] += x[j] * weight[j * 4 + k];
      total += std::exp(z[k]);
    }
    loss += std::log(total) - z[label];
    for (size_t k = 0; k < 4; ++k) {
      const double g = std::exp(z[k]) / total - (static_cast<int64_t>(k) == label ? 1 : 0);
      bias_gradient[k] += g;
      for (size_t j = 0; j < 3; ++j) weight_gradient[j * 4 + k] += x[j] * g;
    }
  }
  ASSERT_GT(count, 0);
  ASSERT_LT(count, 8);
  const double n = static_cast<double>(count);
  EXPECT_NEAR(outcome.losses[0], 0.5 * loss / n, 1e-14);
  double squares = 0;
  for (std::vector<double>* gradient : {&bias_gradient, &weight_gradient}) {
    for (double& g : *gradient) {
      g *= 0.5 / n;
      squares += g * g;
    }
  }
  const double norm = std::sqrt(squares);
  EXPECT_NEAR(outcome.norms[0], norm, 1e-14);
  const double clip = 0.01 / (norm + 1e-6);
  ASSERT_LT(clip, 1);
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(outcome.parameters[i], weight[i] - 0.3 * clip * weight_gradient[i], 1e-14);
  }
  for (size_t k = 0; k < 4; ++k) {
    EXPECT_NEAR(outcome.parameters[12 + k], -0.3 * clip * bias_gradient[k], 1e-14);
  }
  for (size_t j = 0; j < 3; ++j) EXPECT_NEAR(outcome.mean[j], mean[j], 1e-14);
}

TEST(Trainer, StatisticsAreThoseOfOneMicroBatchAfterTheOther) {
  ToyRun run = MakeRun(3);
  run.steps = 4;
  run.shuffle = false;
  const ToyOutcome outcome = TrainToyOnLoopback(4, run);
  const auto data = testing::MakeToyData(run.model, 101, 1);
  std::vector<double> mean(3, 0.0);
  for (int64_t micro = 0; micro < 4 * 3 * 4; ++micro) {
    double x[2][3];
    for (int64_t row = 0; row < 2; ++row) {
      const int64_t sample = (micro * 2 + row) % 101;
      ASSERT_TRUE(data->Read(0, sample, reinterpret_cast<std::byte*>(x[row])).ok());
    }
    for (size_t j = 0; j < 3; ++j) mean[j] = 0.9 * mean[j] + 0.1 * (x[0][j] + x[1][j]) / 2;
  }
  for (size_t j = 0; j < 3; ++j) EXPECT_NEAR(outcome.mean[j], mean[j], 1e-13);
}

TEST(Trainer, ConstantCountsWeighEveryLabel) {
  ToyRun run = MakeRun(4);
  run.model.counted = false;
  ExpectNear(TrainToyOnLoopback(4,
                                [&] {
                                  ToyRun r = run;
                                  r.micro_batches = 1;
                                  return r;
                                }()),
             TrainToyOnLoopback(1, run), 1e-12);
}

TEST(Trainer, NoCountedLabelGivesZeroGradients) {
  // Sample positions with ignored labels only do not exist, so the data is one ignored sample.
  ToyRun run = MakeRun(1);
  testing::FakeExecutor executor(run.model);
  const std::vector<double> before = executor.Values(program::PARAMETER, "weight");
  class Ignored : public BatchLoader {
   public:
    Result<std::span<const std::span<const std::byte>>> BeginStep() override {
      return std::span<const std::span<const std::byte>>(&views_[1], 1);
    }
    Result<std::span<const std::span<const std::byte>>> NextMicroBatch() override {
      return std::span<const std::span<const std::byte>>(views_, 2);
    }

   private:
    double x_[6] = {1, 2, 3, 4, 5, 6};
    int64_t labels_[2] = {testing::kIgnore, testing::kIgnore};
    std::span<const std::byte> views_[2] = {std::as_bytes(std::span(x_)),
                                            std::as_bytes(std::span(labels_))};
  } loader;
  const auto communicators = MakeLoopback(1);
  TrainerOptions options;
  options.train.optimizer.lr = 1;
  const auto trainer =
      Trainer::Create(&executor, communicators[0].get(), *RankTable::Create("toy", 1, 1), options);
  ASSERT_TRUE(trainer.ok()) << trainer.status().ToString();
  StepReport report;
  ASSERT_TRUE((*trainer)->Step(&loader, Status::Ok(), &report).ok());
  EXPECT_EQ(report.loss, 0);
  EXPECT_EQ(executor.Values(program::PARAMETER, "weight"), before);
}

TEST(Trainer, StopsOnALossThatIsNotFinite) {
  ToyRun run = MakeRun(2);
  run.lr = 1e6;  // the softmax overflows soon
  run.steps = 200;
  std::vector<ToyOutcome> outcomes(2);
  const Status status = RunOnRanks(2, {}, [&](Communicator& communicator) {
    return TrainToy(communicator, run, &outcomes[static_cast<size_t>(communicator.rank())]);
  });
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("step "));
  EXPECT_THAT(status.message(), HasSubstr("the loss is"));
  EXPECT_THAT(status.message(), HasSubstr("train.optimizer.lr"));
  EXPECT_EQ(outcomes[0].losses.size(), outcomes[1].losses.size());
}

TEST(Trainer, ClippingNeedsAProgramThatClips) {
  ToyRun run = MakeRun(1);
  run.model.clip = false;
  run.clip_norm = 1;
  ToyOutcome outcome;
  const Status status = RunOnRanks(
      1, {}, [&](Communicator& communicator) { return TrainToy(communicator, run, &outcome); });
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("train.clip_norm"));
}

// One rank's data breaks in step 3: both ranks return its error and stop at the same step.
TEST(Trainer, AFailureOfOneRankIsReturnedOnAll) {
  for (const bool before_counting : {true, false}) {
    class Breaking : public BatchLoader {
     public:
      Breaking(bool breaks, bool before_counting)
          : breaks_(breaks), before_counting_(before_counting) {
        LoaderOptions options;
        options.micro_batch = 2;
        options.count_inputs = {1};
        inner_ = BatchLoader::Create(testing::MakeToyData({}, 101, 1), options);
      }
      Result<std::span<const std::span<const std::byte>>> BeginStep() override {
        if (++step_ == 3 && breaks_ && before_counting_) return DataLoss("torn page");
        return inner_->BeginStep();
      }
      Result<std::span<const std::span<const std::byte>>> NextMicroBatch() override {
        if (step_ == 3 && breaks_) return DataLoss("torn page");
        return inner_->NextMicroBatch();
      }

     private:
      bool breaks_, before_counting_;
      int step_ = 0;
      std::unique_ptr<BatchLoader> inner_;
    };
    std::vector<Status> statuses(2);
    LoopbackOptions loopback;
    loopback.timeout = std::chrono::seconds(5);
    const Status run = RunOnRanks(2, loopback, [&](Communicator& communicator) -> Status {
      testing::FakeExecutor executor(testing::FakeOptions{});
      const auto trainer = Trainer::Create(&executor, &communicator,
                                           *RankTable::Create("toy", 2, 1), TrainerOptions{});
      if (!trainer.ok()) return trainer.status();
      Breaking loader(communicator.rank() == 1, before_counting);
      StepReport report;
      Status status;
      while (status.ok()) status = (*trainer)->Step(&loader, Status::Ok(), &report);
      statuses[static_cast<size_t>(communicator.rank())] = status;
      return Status::Ok();
    });
    EXPECT_TRUE(run.ok()) << run.ToString();
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(), StatusCode::kDataLoss);
      EXPECT_EQ(status.message(), "step 3: rank 1: torn page");
    }
  }
}

TEST(Trainer, DeadPeerEndsTheStep) {
  LoopbackOptions options;
  options.failing_rank = 1;
  options.fail_at_exchange = 9;
  ToyRun run = MakeRun(2);
  std::vector<ToyOutcome> outcomes(2);
  const Status status = RunOnRanks(2, options, [&](Communicator& communicator) {
    return TrainToy(communicator, run, &outcomes[static_cast<size_t>(communicator.rank())]);
  });
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("step "));
}

TEST(Overlap, HidesTheReduceTimeThatBackwardCovers) {
  // 12 ms of backward follow the first marker; its reduce takes two rounds of 4 ms.
  LoopbackOptions options;
  options.latency = std::chrono::milliseconds(4);
  ToyRun run = MakeRun(1);
  run.steps = 3;
  run.model.backward = std::chrono::milliseconds(12);
  const auto hides = [](const OverlapFigures& figures) {
    return static_cast<double>(figures.hidden) >= 0.9 * static_cast<double>(figures.coverable);
  };
  ToyOutcome overlapped = TrainToyOnLoopback(2, run, options);
  // Other work on the machine can wake a rank late; a reduce that is not hidden is so in every
  // attempt.
  for (int attempt = 1; attempt < 5 && !hides(overlapped.overlap); ++attempt) {
    overlapped = TrainToyOnLoopback(2, run, options);
  }
  EXPECT_GT(overlapped.overlap.coverable, 7'000'000);
  EXPECT_TRUE(hides(overlapped.overlap));
  // The twin: without overlap as much could be covered and nothing is.
  run.overlap = false;
  const ToyOutcome after = TrainToyOnLoopback(2, run, options);
  EXPECT_GT(after.overlap.coverable, 7'000'000);
  EXPECT_EQ(after.overlap.hidden, 0);
  EXPECT_FALSE(hides(after.overlap));
  EXPECT_EQ(after.parameters, overlapped.parameters);
}

}  // namespace
}  // namespace hyper::runtime
