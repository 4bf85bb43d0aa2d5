// The optimizer's values are launch keys: one bundle, set at launch, trains as a bundle that was
// compiled with them, to the bit.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/e2e/harness.h"

namespace hyper::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kSteps = 4;

std::string Mlp(const std::string& optimizer) {
  return fmt::format(R"(version: 1
model: {{dims: {{batch: 11}}}}
train:
  loss: {{kind: cross_entropy, logits: logits, labels: labels}}
  optimizer: {{{}}}
data:
  kind: synthetic
  inputs:
    features: {{field: normal}}
    labels: {{field: integers, low: 0, high: 3}}
run: {{steps: {}}}
)",
                     optimizer, kSteps);
}

std::string ModelPath() { return std::string(HYPER_SOURCE_DIR) + "/tests/parity/data/mlp.onnx"; }

struct Values {
  std::string name;
  std::string kind;
  std::string defaults;                // as compiled for the launch that sets the others
  std::string wanted;                  // as compiled into the bundle to compare with
  std::vector<std::string> overrides;  // the same by --set
};

class LaunchValues : public ::testing::TestWithParam<Values> {};

TEST_P(LaunchValues, EqualThoseCompiledIn) {
  const Values& values = GetParam();
  const auto compile = [&](const std::string& suffix, const std::string& optimizer) {
    return CompileToBundle("optimizer_" + values.name + suffix, ModelPath(),
                           Mlp(fmt::format("kind: {}, lr: 0.05{}", values.kind, optimizer)));
  };
  const auto bundle = compile("", values.defaults);
  const auto other = compile("_wanted", values.wanted);
  ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  const auto wanted = Train(*other, {.steps = kSteps});
  const auto set = Train(*bundle, {.steps = kSteps, .overrides = values.overrides});
  const auto plain = Train(*bundle, {.steps = kSteps});
  ASSERT_TRUE(wanted.ok()) << wanted.status().ToString();
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  EXPECT_EQ(set->losses, wanted->losses);
  EXPECT_EQ(set->tensors, wanted->tensors);
  // Every single value counts: without any one of them the result is another.
  EXPECT_NE(plain->tensors, wanted->tensors);
  for (size_t i = 0; i < values.overrides.size(); ++i) {
    std::vector<std::string> fewer = values.overrides;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    const auto less = Train(*bundle, {.steps = kSteps, .overrides = fewer});
    ASSERT_TRUE(less.ok()) << less.status().ToString();
    EXPECT_NE(less->tensors, wanted->tensors) << "without " << values.overrides[i];
  }
  TrainOptions faulty{.steps = kSteps, .overrides = values.overrides};
  faulty.fault.decay_factor = 1.01;
  const auto fault = Train(*bundle, faulty);
  ASSERT_TRUE(fault.ok()) << fault.status().ToString();
  EXPECT_NE(fault->tensors, wanted->tensors);
  Figure("faults_decay", 1);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, LaunchValues,
    ::testing::Values(
        Values{"sgd", "sgd", "", ", weight_decay: 0.05", {"train.optimizer.weight_decay=0.05"}},
        Values{"momentum",
               "momentum",
               ", momentum: 0.9",
               ", momentum: 0.7, weight_decay: 0.05",
               {"train.optimizer.momentum=0.7", "train.optimizer.weight_decay=0.05"}},
        Values{"nesterov",
               "nesterov",
               ", weight_decay: 0.1",
               ", momentum: 0.5, weight_decay: 0.3",
               {"train.optimizer.momentum=0.5", "train.optimizer.weight_decay=0.3"}},
        Values{"adam",
               "adam",
               "",
               ", betas: [0.8, 0.99], eps: 1e-4, weight_decay: 0.05",
               {"train.optimizer.betas=[0.8, 0.99]", "train.optimizer.eps=1e-4",
                "train.optimizer.weight_decay=0.05"}},
        Values{"adamw",
               "adamw",
               ", weight_decay: 0.01",
               ", betas: [0.7, 0.95], eps: 1e-5, weight_decay: 0.2",
               {"train.optimizer.betas=0.7,0.95", "train.optimizer.eps=1e-5",
                "train.optimizer.weight_decay=0.2"}}),
    [](const auto& info) { return info.param.name; });

TEST(LaunchValues, OutOfRangeOrOfAnotherKindIsRefused) {
  const auto bundle = CompileToBundle("optimizer_ranges", ModelPath(), Mlp("kind: adamw, lr: 0.1"));
  ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
  const auto refusal = [&](const std::string& assignment) {
    const auto result = Train(*bundle, {.steps = 1, .overrides = {assignment}});
    EXPECT_FALSE(result.ok()) << assignment;
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument) << assignment;
    return result.status().message();
  };
  EXPECT_THAT(
      refusal("train.optimizer.betas=[0.9, 1]"),
      AllOf(HasSubstr("train.optimizer.betas"), HasSubstr("from 0 to 1, upper end excluded")));
  EXPECT_THAT(refusal("train.optimizer.eps=0"),
              AllOf(HasSubstr("'train.optimizer.eps' is '0'"), HasSubstr("above 0")));
  EXPECT_THAT(refusal("train.optimizer.weight_decay=-1"),
              AllOf(HasSubstr("'train.optimizer.weight_decay' is '-1'"), HasSubstr("at least 0")));
  EXPECT_THAT(refusal("train.optimizer.momentum=0.5"),
              AllOf(HasSubstr("does not apply to kind adamw"), HasSubstr("betas")));
  EXPECT_THAT(refusal("train.optimizer.kind=sgd"), HasSubstr("compile-time key"));
}

}  // namespace
}  // namespace hyper::e2e
