// The numbers do not depend on how many replicas share the work: one bundle, the same global batch
// as 1 replica x 4 micro-batches, 2 x 2 and 4 x 1, with Dropout and BatchNorm; and the same launch
// twice gives the same bits.
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/e2e/harness.h"

namespace hyper::e2e {
namespace {

constexpr int kSteps = 50;

// The demo's net (BatchNorm and Dropout) on synthetic images, small so that 50 steps take seconds.
std::string ConvNet(const std::string& precision) {
  return fmt::format(R"(version: 1
model: {{dims: {{batch: 4}}}}
train:
  loss: {{kind: cross_entropy, logits: logits, labels: labels}}
  optimizer: {{kind: momentum, lr: 0.01, momentum: 0.9}}
  precision: {}
  global_batch: 16
  seed: 7
data:
  kind: synthetic
  inputs:
    image: {{field: normal}}
    labels: {{field: integers, low: 0, high: 10}}
run: {{steps: {}}}
)",
                     precision, kSteps);
}

std::string Gpt(const std::string& precision) {
  return fmt::format(R"(version: 1
model: {{dims: {{batch: 1}}}}
train:
  loss: {{kind: cross_entropy, logits: logits, labels: labels}}
  optimizer: {{kind: adamw, lr: 1e-3}}
  precision: {}
  global_batch: 4
data:
  kind: synthetic
  inputs:
    input_ids: {{field: integers, low: 0, high: 256}}
    labels: {{field: integers, low: 0, high: 256}}
run: {{steps: {}}}
)",
                     precision, kSteps);
}

std::string Recipe(const std::string& name) {
  return std::string(HYPER_SOURCE_DIR) + "/recipes/" + name + "/model.onnx";
}

double LargestError(const std::vector<double>& a, const std::vector<double>& b, size_t count) {
  double error = a.size() >= count && b.size() >= count ? 0 : 1;
  for (size_t s = 0; s < count && s < a.size() && s < b.size(); ++s) {
    error = std::max(error, RelativeError(a[s], b[s]));
  }
  return error;
}

double NormwiseError(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

// Over all tensors whose names end so.
double WorstTensor(const std::map<std::string, std::vector<double>>& a,
                   const std::map<std::string, std::vector<double>>& b, const std::string& ending) {
  double error = 0;
  int compared = 0;
  for (const auto& [name, values] : b) {
    if (name.size() < ending.size() ||
        name.compare(name.size() - ending.size(), ending.size(), ending) != 0) {
      continue;
    }
    error = std::max(error, NormwiseError(a.at(name), values));
    ++compared;
  }
  EXPECT_GT(compared, 0) << ending;
  return error;
}

// Normwise, over all parameters.
double GradientError(const TrainResult& run, const TrainResult& reference) {
  double squares = 0;
  double norm = 0;
  for (const auto& [name, values] : reference.gradients) {
    for (size_t i = 0; i < values.size(); ++i) {
      const double difference = run.gradients.at(name)[i] - values[i];
      squares += difference * difference;
      norm += values[i] * values[i];
    }
  }
  return std::sqrt(squares / norm);
}

TEST(Replicas, DoubleConvNetIsTheSameOnOneTwoAndFour) {
  const auto bundle =
      CompileToBundle("replicas_conv_fp64", Recipe("fashion_mnist"), ConvNet("fp64"));
  ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
  const auto one = Train(*bundle, {.replicas = 1, .steps = kSteps});
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  for (const int replicas : {2, 4}) {
    const auto many = Train(*bundle, {.replicas = replicas, .steps = kSteps});
    ASSERT_TRUE(many.ok()) << many.status().ToString();
    const double losses = LargestError(many->losses, one->losses, kSteps);
    const double means = WorstTensor(many->tensors, one->tensors, "running_mean");
    const double variances = WorstTensor(many->tensors, one->tensors, "running_var");
    EXPECT_LE(losses, 1e-9) << replicas;
    EXPECT_LE(means, 1e-7) << replicas;
    EXPECT_LE(variances, 1e-7) << replicas;
    Measured("fp64_losses_50", losses);
    Measured("fp64_running_statistics", std::max(means, variances));
  }
  // Twins: a bucket that is not reduced, another mask.
  TrainOptions unreduced{.replicas = 2, .steps = 5};
  unreduced.fault.skipped_bucket = 0;
  const auto broken = Train(*bundle, unreduced);
  ASSERT_TRUE(broken.ok()) << broken.status().ToString();
  EXPECT_GT(LargestError(broken->losses, one->losses, 5), 1e-9);
  Figure("faults_bucket", 1);
  // What the first bucket does to the weights shows in the running statistics, too.
  const auto few = Train(*bundle, {.replicas = 1, .steps = 5});
  const auto few_on_two = Train(*bundle, {.replicas = 2, .steps = 5});
  ASSERT_TRUE(few.ok() && few_on_two.ok());
  for (const char* statistic : {"running_mean", "running_var"}) {
    EXPECT_LE(WorstTensor(few_on_two->tensors, few->tensors, statistic), 1e-7) << statistic;
    EXPECT_GT(WorstTensor(broken->tensors, few->tensors, statistic), 1e-7) << statistic;
    Figure("faults_running_statistics", 1);
  }
  TrainOptions other_mask{.replicas = 1, .steps = 2};
  other_mask.fault.mask_seed_offset = 1;
  const auto masked = Train(*bundle, other_mask);
  ASSERT_TRUE(masked.ok()) << masked.status().ToString();
  EXPECT_GT(LargestError(masked->losses, one->losses, 2), 1e-9);
  Figure("faults_mask", 1);
}

TEST(Replicas, SingleConvNetAgreesInGradientsAndFirstLosses) {
  const auto bundle =
      CompileToBundle("replicas_conv_fp32", Recipe("fashion_mnist"), ConvNet("fp32"));
  ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
  const auto one = Train(*bundle, {.replicas = 1, .steps = 3});
  const auto one_step = Train(*bundle, {.replicas = 1, .steps = 1});
  ASSERT_TRUE(one.ok() && one_step.ok());
  for (const int replicas : {2, 4}) {
    const auto first = Train(*bundle, {.replicas = replicas, .steps = 1});
    const auto three = Train(*bundle, {.replicas = replicas, .steps = 3});
    ASSERT_TRUE(first.ok() && three.ok());
    const double losses = LargestError(three->losses, one->losses, 3);
    EXPECT_LE(losses, 1e-6) << replicas;
    Measured("fp32_losses_3", losses);
    const double gradients = GradientError(*first, *one_step);
    EXPECT_LE(gradients, 1e-5) << replicas;
    Measured("fp32_gradients_step_1", gradients);
  }
  // Twins: a bucket that is not reduced, in the gradients at once and in the losses behind it.
  for (const int steps : {1, 3}) {
    TrainOptions unreduced{.replicas = 2, .steps = steps};
    unreduced.fault.skipped_bucket = 0;
    const auto broken = Train(*bundle, unreduced);
    ASSERT_TRUE(broken.ok()) << broken.status().ToString();
    if (steps == 1) {
      EXPECT_GT(GradientError(*broken, *one_step), 1e-5);
    } else {
      EXPECT_GT(LargestError(broken->losses, one->losses, 3), 1e-6);
    }
    Figure("faults_bucket_fp32", 1);
  }
}

TEST(Replicas, SingleGptAgreesOverFiftySteps) {
  const auto bundle = CompileToBundle("replicas_gpt_fp32", Recipe("bytes_gpt"), Gpt("fp32"));
  ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
  const auto one = Train(*bundle, {.replicas = 1, .steps = kSteps});
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  for (const int replicas : {2, 4}) {
    const auto many = Train(*bundle, {.replicas = replicas, .steps = kSteps});
    ASSERT_TRUE(many.ok()) << many.status().ToString();
    const double losses = LargestError(many->losses, one->losses, kSteps);
    EXPECT_LE(losses, 1e-5) << replicas;
    Measured("fp32_losses_50_without_batchnorm", losses);
  }
  // Twin: a bucket that is not reduced.
  TrainOptions unreduced{.replicas = 2, .steps = kSteps};
  unreduced.fault.skipped_bucket = 0;
  const auto broken = Train(*bundle, unreduced);
  ASSERT_TRUE(broken.ok()) << broken.status().ToString();
  EXPECT_GT(LargestError(broken->losses, one->losses, kSteps), 1e-5);
  Figure("faults_bucket_fp32", 1);
}

TEST(Replicas, TheSameLaunchTwiceGivesTheSameBits) {
  const auto bundle = CompileToBundle("replicas_bits", Recipe("fashion_mnist"), ConvNet("fp32"));
  ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
  for (const int replicas : {1, 2}) {
    const TrainOptions options{.replicas = replicas, .steps = 5, .threads = 2};
    const auto first = Train(*bundle, options);
    const auto second = Train(*bundle, options);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(first->losses, second->losses);
    EXPECT_EQ(first->tensors, second->tensors);
    // Twin: a launch with another mask seed.
    TrainOptions other_mask = options;
    other_mask.fault.mask_seed_offset = 1;
    const auto masked = Train(*bundle, other_mask);
    ASSERT_TRUE(masked.ok()) << masked.status().ToString();
    EXPECT_NE(first->losses, masked->losses);
    EXPECT_NE(first->tensors, masked->tensors);
    Figure("faults_bits", 1);
  }
}

}  // namespace
}  // namespace hyper::e2e
