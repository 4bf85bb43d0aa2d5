#include "ops_gradient_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "ir/reference/reference.h"
#include "ir/text.h"
#include "ir/training.h"

namespace hyper::ir::test {
namespace {

constexpr double kStep = 1e-4;

bool IsFloatDraw(Draw draw) {
  return draw != Draw::kIndex && draw != Draw::kCount && draw != Draw::kTap;
}

double Place(Draw draw, double unit) {  // unit in (0, 1)
  switch (draw) {
    case Draw::kPositive: return 0.2 + 1.6 * unit;
    case Draw::kUnit: return 1.7 * unit - 0.85;
    case Draw::kAboveOne: return 1.2 + 1.6 * unit;
    default: return 3.2 * unit - 1.6;
  }
}

HostTensor DrawTensor(const InputSpec& spec, std::mt19937_64& random) {
  const int64_t count = ElementCount(spec.dims);
  if (spec.draw == Draw::kTap) {
    std::vector<uint8_t> values(static_cast<size_t>(count));
    for (uint8_t& v : values)
      v = static_cast<uint8_t>(random() % static_cast<uint64_t>(spec.bound));
    return HostTensor::FromVector(DType::kU8, spec.dims, values);
  }
  if (!IsFloatDraw(spec.draw)) {
    std::vector<int64_t> values(static_cast<size_t>(count));
    for (int64_t& v : values) {
      v = static_cast<int64_t>(random() % static_cast<uint64_t>(spec.bound));
      if (spec.draw == Draw::kIndex && random() % 3 == 0) v -= spec.bound;
    }
    return HostTensor::FromVector(DType::kI64, spec.dims, values);
  }
  // A shuffled grid with a little noise: distinct values that miss 0, halves and integers.
  std::vector<double> values(static_cast<size_t>(count));
  const double cell = 1.0 / static_cast<double>(count + 1);
  for (int64_t i = 0; i < count; ++i) {
    const double noise = static_cast<double>(random() % 1000) / 1000;
    values[static_cast<size_t>(i)] =
        Place(spec.draw, (static_cast<double>(i) + 0.6 + 0.3 * noise) * cell);
  }
  std::shuffle(values.begin(), values.end(), random);
  for (double& v : values) {
    if (std::fabs(v) < 0.01) v = 0.0137;
    if (spec.draw == Draw::kWithZeros && random() % 3 == 0) v = 0;
  }
  return HostTensor::FromVector(DType::kF64, spec.dims, values);
}

struct Built {
  Function function{"check"};
  std::vector<ValueId> wanted;
  std::vector<size_t> wanted_argument;
  std::vector<HostTensor> arguments;
};

// loss = sum over float outputs of sum(output * cotangent); results: loss, then the gradients that
// exist (`present`).
Result<Built> BuildCheck(const GradientCase& test, std::vector<bool>* present) {
  std::mt19937_64 random(std::hash<std::string>{}(test.name + "/" + test.op));
  Built built;
  Function& f = built.function;
  Builder b(&f);
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    const InputSpec& spec = test.inputs[i];
    built.arguments.push_back(DrawTensor(spec, random));
    const bool want = IsFloatDraw(spec.draw) && spec.differentiate;
    inputs.push_back(f.AddArgument(built.arguments.back().type(),
                                   want ? ArgumentKind::kParameter : ArgumentKind::kInput,
                                   "x" + std::to_string(i)));
    if (want) {
      built.wanted.push_back(inputs.back());
      built.wanted_argument.push_back(i);
    }
  }
  HYPER_ASSIGN_OR_RETURN(const std::vector<ValueId> outputs,
                         b.TryAdd(test.op, inputs, test.attributes));
  ValueId loss;
  int cotangents = test.cotangents;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorType type = f.type(outputs[i]);
    if (!IsFloat(type.dtype) || cotangents-- == 0) continue;
    built.arguments.push_back(DrawTensor({type.dims}, random));
    const ValueId cotangent =
        f.AddArgument(type, ArgumentKind::kInput, "cotangent" + std::to_string(i));
    Dims axes;
    for (int64_t d = 0; d < type.rank(); ++d) axes.push_back(d);
    const ValueId term = b.Reduce("sum", b.Binary(ScalarOp::kMul, outputs[i], cotangent), axes);
    loss = loss.valid() ? b.Binary(ScalarOp::kAdd, loss, term) : term;
  }
  const ValueId seed = f.AddArgument({DType::kF64, {}}, ArgumentKind::kScalar, "seed");
  built.arguments.push_back(HostTensor::FromVector<double>(DType::kF64, {}, {1.0}));
  HYPER_ASSIGN_OR_RETURN(const std::vector<ValueId> gradients,
                         AppendGradients(f, {{loss, seed}}, built.wanted, nullptr));
  f.AddResult(loss, "loss");
  for (size_t i = 0; i < gradients.size(); ++i) {
    present->push_back(gradients[i].valid());
    if (gradients[i].valid()) f.AddResult(gradients[i], "gradient" + std::to_string(i));
  }
  HYPER_RETURN_IF_ERROR(Verify(f));
  return built;
}

// The loss alone, with element `at` of argument `argument` moved by `step`.
Result<double> LossAt(const Function& f, std::vector<HostTensor> arguments, size_t argument,
                      int64_t at, double step) {
  const HostTensor& x = arguments[argument];
  std::vector<double> values(x.as<double>().begin(), x.as<double>().end());
  values[static_cast<size_t>(at)] += step;
  arguments[argument] = HostTensor::FromVector(DType::kF64, x.type().dims, values);
  HYPER_ASSIGN_OR_RETURN(const std::vector<HostTensor> results, Evaluate(f, arguments));
  return results[0].ElementAsDouble(0);
}

}  // namespace

Result<GradientReport> CheckGradient(const GradientCase& test, double fault) {
  std::vector<bool> present;
  HYPER_ASSIGN_OR_RETURN(const Built built, BuildCheck(test, &present));
  HYPER_ASSIGN_OR_RETURN(const std::vector<HostTensor> results,
                         Evaluate(built.function, built.arguments));
  GradientReport report;
  size_t next = 1;
  double largest = 0;  // absolute error
  for (size_t i = 0; i < built.wanted.size(); ++i) {
    const size_t argument = built.wanted_argument[i];
    const int64_t count = built.arguments[argument].type().elements();
    const HostTensor* gradient = present[i] ? &results[next++] : nullptr;
    if (gradient != nullptr && gradient->type() != built.arguments[argument].type()) {
      return Internal("gradient of input " + std::to_string(argument) + " has type " +
                      gradient->type().ToString());
    }
    report.elements += count;
    for (int64_t e = 0; e < count; ++e) {
      double values[4];
      const double steps[4] = {-2 * kStep, -kStep, kStep, 2 * kStep};
      for (int k = 0; k < 4; ++k) {
        HYPER_ASSIGN_OR_RETURN(values[k],
                               LossAt(built.function, built.arguments, argument, e, steps[k]));
      }
      const double difference =
          (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * kStep);
      const double computed = gradient != nullptr ? gradient->ElementAsDouble(e) * fault : 0;
      const double error = std::fabs(computed - difference);
      report.magnitude = std::max(report.magnitude, std::fabs(difference));
      if (!(error <= largest)) {  // NaN counts as the worst
        largest = error;
        report.worst = "input " + std::to_string(argument) + " element " + std::to_string(e) +
                       ": gradient " + std::to_string(computed) + ", difference " +
                       std::to_string(difference);
      }
    }
  }
  report.error = largest / (1 + report.magnitude);
  return report;
}

void ExpectGradient(const GradientCase& test) {
  SCOPED_TRACE(test.op + " " + test.name);
  const auto report = CheckGradient(test, 1.0);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_LT(report->error, kGradientTolerance) << report->worst;
  if (report->magnitude < 1e-6) return;  // zero up to rounding: nothing to scale
  const auto planted = CheckGradient(test, 1.01);
  ASSERT_TRUE(planted.ok()) << planted.status().ToString();
  EXPECT_GT(planted->error, kGradientTolerance) << "a gradient wrong by 1 % went unnoticed";
}

}  // namespace hyper::ir::test
