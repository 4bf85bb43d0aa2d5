// Loss terms: values, gradients against differences, counts, messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "training_support.h"

namespace hyper::ir::test {
namespace {

using testing::HasSubstr;

struct TermCheck {
  LossKind kind;
  HostTensor prediction;
  HostTensor target;  // undefined for kOutput
  int class_axis = -1;
  std::optional<int64_t> ignore_index;
};

struct TermValues {
  double sum = 0;
  std::vector<double> gradient;
};

Result<TermValues> RunTerm(const TermCheck& c, const HostTensor& prediction) {
  Function f("f");
  Builder b(&f);
  LossTerm term;
  term.kind = c.kind;
  term.name = "loss";
  term.class_axis = c.class_axis;
  term.ignore_index = c.ignore_index;
  term.prediction = f.AddArgument(prediction.type(), ArgumentKind::kParameter, "prediction");
  std::vector<HostTensor> arguments = {prediction};
  if (c.kind != LossKind::kOutput) {
    term.target = f.AddArgument(c.target.type(), ArgumentKind::kInput, "target");
    arguments.push_back(c.target);
  }
  const ValueId seed = f.AddArgument({DType::kF64, {}}, ArgumentKind::kScalar, "seed");
  arguments.push_back(F64({}, {1}));
  HYPER_ASSIGN_OR_RETURN(const ValueId sum, AppendLossSum(b, term));
  HYPER_ASSIGN_OR_RETURN(
      const std::vector<ValueId> grads,
      AppendGradients(f, {{sum, seed}}, std::vector<ValueId>{term.prediction}, nullptr));
  f.AddResult(sum, "sum");
  f.AddResult(grads[0], "gradient");
  HYPER_RETURN_IF_ERROR(Verify(f));
  HYPER_ASSIGN_OR_RETURN(const std::vector<HostTensor> out, Evaluate(f, arguments));
  return TermValues{out[0].ElementAsDouble(0), Numbers(out[1])};
}

// Returns the sum after comparing the gradient with central differences.
double Check(const TermCheck& c) {
  const auto at = RunTerm(c, c.prediction);
  EXPECT_TRUE(at.ok()) << at.status().ToString();
  if (!at.ok()) return NAN;
  const std::vector<double> x = Numbers(c.prediction);
  for (size_t i = 0; i < x.size(); ++i) {
    constexpr double kStep = 1e-5;
    std::vector<double> moved = x;
    moved[i] = x[i] + kStep;
    const auto up = RunTerm(c, F64(c.prediction.type().dims, moved));
    moved[i] = x[i] - kStep;
    const auto down = RunTerm(c, F64(c.prediction.type().dims, moved));
    EXPECT_NEAR(at->gradient[i], (up->sum - down->sum) / (2 * kStep), 1e-8) << "element " << i;
  }
  return at->sum;
}

TEST(LossTerm, CrossEntropyOverTheLastAxis) {
  const double sum =
      Check({LossKind::kCrossEntropy, F64({2, 3}, {1, 2, 3, 0, -1, 0.5}), I64({2}, {2, 0})});
  const double first = std::log(std::exp(1) + std::exp(2) + std::exp(3)) - 3;
  const double second = std::log(1 + std::exp(-1) + std::exp(0.5)) - 0;
  EXPECT_NEAR(sum, first + second, 1e-12);
}

TEST(LossTerm, CrossEntropyOverAxisOneWithIgnoredLabels) {
  // [N=1, C=2, d=3]; the middle position does not count.
  const double sum = Check({LossKind::kCrossEntropy, F64({1, 2, 3}, {1, 9, -1, 2, 9, 0}),
                            I64({1, 3}, {0, -100, 1}), 1, -100});
  EXPECT_NEAR(sum, (std::log(std::exp(1) + std::exp(2)) - 1) + (std::log(std::exp(-1) + 1) - 0),
              1e-12);
}

TEST(LossTerm, MeanSquaredErrorIsASumOfSquares) {
  EXPECT_DOUBLE_EQ(Check({LossKind::kMse, F64({2, 1}, {1, 4}), F64({2, 1}, {3, 1})}), 4 + 9);
}

TEST(LossTerm, BinaryCrossEntropyIsStable) {
  const double sum =
      Check({LossKind::kBceWithLogits, F64({3}, {0.3, -2, 40}), F64({3}, {1, 0, 0.25})});
  const double want = std::log1p(std::exp(-0.3)) + std::log1p(std::exp(-2.0)) +
                      (40 - 40 * 0.25 + std::log1p(std::exp(-40.0)));
  EXPECT_NEAR(sum, want, 1e-12);
  const auto huge =
      RunTerm({LossKind::kBceWithLogits, F64({1}, {-1000}), F64({1}, {1})}, F64({1}, {-1000}));
  ASSERT_TRUE(huge.ok());
  EXPECT_DOUBLE_EQ(huge->sum, 1000);
  EXPECT_DOUBLE_EQ(huge->gradient[0], -1);
}

TEST(LossTerm, AnOutputOfOneElement) {
  EXPECT_DOUBLE_EQ(Check({LossKind::kOutput, F64({1}, {2.5}), {}}), 2.5);
}

std::string Failure(const TermCheck& c) {
  const auto result = RunTerm(c, c.prediction);
  EXPECT_FALSE(result.ok());
  return result.status().message();
}

TEST(LossTerm, MessagesSayWhatFits) {
  EXPECT_THAT(
      Failure({LossKind::kCrossEntropy, F64({2, 3}, std::vector<double>(6)), I64({3}, {0, 0, 0})}),
      HasSubstr("labels 'target' of type i64[3] do not fit logits 'prediction' of type "
                "f64[2,3], expected i32 or i64 of dims [2]"));
  EXPECT_THAT(
      Failure({LossKind::kCrossEntropy, F64({2, 3}, std::vector<double>(6)), I64({2}, {0, 0}), 2}),
      HasSubstr("class axis 2"));
  EXPECT_THAT(Failure({LossKind::kMse, F64({2}, {0, 0}), F64({1, 2}, {0, 0})}),
              HasSubstr("expected dims [2]"));
  EXPECT_THAT(Failure({LossKind::kOutput, F64({2}, {0, 0}), {}}),
              HasSubstr("expected one element"));
  EXPECT_THAT(Failure({LossKind::kOutput, F64({2}, {0, 0}), {}}), HasSubstr("loss term 'loss'"));
}

TEST(LossCount, ComesFromShapesOrLabels) {
  Function f("count");
  Builder b(&f);
  const ValueId labels = f.AddArgument({DType::kI32, {2, 2}}, ArgumentKind::kInput, "labels");
  LossTerm term;
  term.kind = LossKind::kCrossEntropy;
  term.name = "loss";
  const auto plain = AppendLossCount(b, term, labels);
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(plain->value.valid());
  EXPECT_EQ(plain->constant, 4);
  term.ignore_index = -1;
  const auto counted = AppendLossCount(b, term, labels);
  ASSERT_TRUE(counted.ok());
  ASSERT_TRUE(counted->value.valid());
  f.AddResult(counted->value, "count");
  const auto out = Evaluate(f, std::vector<HostTensor>{HostTensor::FromVector<int32_t>(
                                   DType::kI32, {2, 2}, {5, -1, 0, -1})});
  ASSERT_TRUE(out.ok()) << out.status().ToString();
  EXPECT_EQ((*out)[0], HostTensor::ScalarI64(2));
  term.kind = LossKind::kOutput;
  EXPECT_EQ(AppendLossCount(b, term, {})->constant, 1);
}

}  // namespace
}  // namespace hyper::ir::test
