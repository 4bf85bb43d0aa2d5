#include "runtime/evaluator.h"

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/toy_training.h"

namespace hyper::runtime {
namespace {

struct Expected {
  double loss = 0;
  double accuracy = 0;
};

// Loss and accuracy of the untrained toy model on all samples, one by one.
Expected ByHand(const testing::FakeOptions& model, const Dataset& data) {
  testing::FakeExecutor executor(model);
  const std::vector<double> weight = executor.Values(program::PARAMETER, "weight");
  const size_t classes = static_cast<size_t>(model.classes);
  const size_t features = static_cast<size_t>(model.features);
  double loss = 0, correct = 0, count = 0;
  for (int64_t i = 0; i < data.samples(); ++i) {
    std::vector<double> x(features), z(classes, 0.0);
    int64_t label = 0;
    EXPECT_TRUE(data.Read(0, i, reinterpret_cast<std::byte*>(x.data())).ok());
    EXPECT_TRUE(data.Read(1, i, reinterpret_cast<std::byte*>(&label)).ok());
    if (label == testing::kIgnore) continue;
    double total = 0;
    size_t best = 0;
    for (size_t k = 0; k < classes; ++k) {
      for (size_t j = 0; j < features; ++j) z[k] += x[j] * weight[j * classes + k];
      total += std::exp(z[k]);
      if (z[k] > z[best]) best = k;
    }
    loss += std::log(total) - z[static_cast<size_t>(label)];
    correct += static_cast<int64_t>(best) == label ? 1 : 0;
    count += 1;
  }
  return {loss / count, correct / count};
}

EvalReport Evaluate(const testing::FakeOptions& model, int64_t samples, int ranks) {
  std::vector<EvalReport> reports(static_cast<size_t>(ranks));
  const Status status = RunOnRanks(ranks, {}, [&](Communicator& communicator) -> Status {
    testing::FakeExecutor executor(model);
    HYPER_ASSIGN_OR_RETURN(const RankTable table, RankTable::Create("toy", ranks, 1));
    HYPER_ASSIGN_OR_RETURN(const auto evaluator,
                           Evaluator::Create(&executor, &communicator, table));
    HYPER_ASSIGN_OR_RETURN(reports[static_cast<size_t>(communicator.rank())],
                           evaluator->Run(*testing::MakeToyData(model, samples, 5)));
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
  for (const EvalReport& report : reports) EXPECT_EQ(report.loss, reports[0].loss);
  return reports[0];
}

// 41 samples in micro-batches of 4: the last has 3 padded rows.
class TailTest : public ::testing::TestWithParam<std::tuple<bool, int>> {};

TEST_P(TailTest, PaddedRowsDoNotCount) {
  const auto [counted, ranks] = GetParam();
  testing::FakeOptions model;
  model.batch = 4;
  model.counted = counted;  // false: no ignore_index, so the copies' share is subtracted
  const EvalReport report = Evaluate(model, 41, ranks);
  const Expected expected = ByHand(model, *testing::MakeToyData(model, 41, 5));
  EXPECT_NEAR(report.loss, expected.loss, 1e-13);
  ASSERT_TRUE(report.accuracy.has_value());
  EXPECT_NEAR(*report.accuracy, expected.accuracy, 1e-15);
  EXPECT_EQ(report.samples, 41);
}

INSTANTIATE_TEST_SUITE_P(Ways, TailTest,
                         ::testing::Combine(::testing::Bool(), ::testing::Values(1, 2, 3, 5)));

TEST(Evaluator, FewerSamplesThanAMicroBatch) {
  testing::FakeOptions model;
  model.batch = 8;
  model.counted = false;
  const EvalReport report = Evaluate(model, 3, 2);
  EXPECT_NEAR(report.loss, ByHand(model, *testing::MakeToyData(model, 3, 5)).loss, 1e-13);
  EXPECT_EQ(report.samples, 3);
}

TEST(Evaluator, ALossOutputTakesWholeMicroBatchesOnly) {
  testing::FakeOptions model;
  model.batch = 4;
  model.counted = false;
  model.output_loss = true;
  const EvalReport report = Evaluate(model, 41, 2);
  EXPECT_EQ(report.samples, 40);
  EXPECT_FALSE(report.accuracy.has_value());
  EXPECT_GT(report.loss, 0);
}

}  // namespace
}  // namespace hyper::runtime
