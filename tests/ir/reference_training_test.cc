// Reference kernels of normalization, softmax, losses, random numbers and updates.
#include <cmath>

#include "tests/ir/reference_support.h"

namespace hyper::ir {
namespace {

const double kNan = std::nan("");

TEST(Reference, BatchNorm) {
  // Channel 0: 1, 3 (mean 2, variance 1); channel 1: 2, 4 (mean 3, variance 1).
  const auto out = EvalText("%y, %m, %v = batch_norm(%a, %b, %c) {epsilon = 0.0}", {"y", "m", "v"},
                            {F32({2, 2}, {1, 2, 3, 4}), F32({2}, {10, 1}), F32({2}, {0.5F, -1})});
  ExpectValues(out[0], {2, 2}, {-9.5, -2, 10.5, 0});
  ExpectValues(out[1], {2}, {2, 3});
  ExpectValues(out[2], {2}, {1, 1});
  // g = (1, 0): sum 1, sum of g * hat -1; dx = scale * rstd * (g - (1 + hat * -1) / 2) = 0.
  const auto grad = EvalText(
      "%x, %s, %t = batch_norm_grad(%a, %b, %c, %d, %e) {epsilon = 0.0}", {"x", "s", "t"},
      {F32({2, 1}, {1, 0}), F32({2, 1}, {1, 3}), F32({1}, {10}), F32({1}, {2}), F32({1}, {1})});
  ExpectValues(grad[0], {2, 1}, {0, 0});
  ExpectValues(grad[1], {1}, {-1});
  ExpectValues(grad[2], {1}, {1});
}

TEST(Reference, LayerAndRmsNorm) {
  const HostTensor x = F32({2, 2}, {1, 3, -2, 2});
  const auto out = EvalText("%y, %m, %r = layer_norm(%a, %b, %c) {axis = 1, epsilon = 0.0}",
                            {"y", "m", "r"}, {x, F32({2}, {1, 2}), F32({2}, {0, 1})});
  ExpectValues(out[0], {2, 2}, {-1, 3, -1, 3});
  ExpectValues(out[1], {2}, {2, 0});
  ExpectValues(out[2], {2}, {1, 0.5});
  // Row of x, scale (1, 2), g (1, 0): gs = (1, 0), mean 0.5, mean of gs * hat -0.5.
  const auto grad = EvalText(
      "%x, %s, %t = layer_norm_grad(%a, %b, %c, %d, %e) {axis = 1, "
      "epsilon = 0.0}",
      {"x", "s", "t"},
      {F32({1, 2}, {1, 0}), F32({1, 2}, {1, 3}), F32({2}, {1, 2}), F32({1}, {2}), F32({1}, {1})});
  ExpectValues(grad[0], {1, 2}, {0, 0});
  ExpectValues(grad[1], {2}, {-1, 0});
  ExpectValues(grad[2], {2}, {1, 0});
  const auto rms = EvalText("%y, %r = rms_norm(%a, %b) {axis = 1, epsilon = 0.0}", {"y", "r"},
                            {F32({1, 2}, {1, 7}), F32({2}, {1, 2})});
  ExpectValues(rms[0], {1, 2}, {0.2, 2.8});
  ExpectValues(rms[1], {1}, {0.2});
  // gs = (1, 0), mean of gs * hat = 0.1: dx = 0.2 * (gs - hat * 0.1).
  const auto rms_grad =
      EvalText("%x, %s = rms_norm_grad(%a, %b, %c, %d) {axis = 1, epsilon = 0.0}", {"x", "s"},
               {F32({1, 2}, {1, 0}), F32({1, 2}, {1, 7}), F32({2}, {1, 2}), F32({1}, {0.2F})});
  ExpectValues(rms_grad[0], {1, 2}, {0.2 * (1 - 0.02), 0.2 * -0.14});
  ExpectValues(rms_grad[1], {2}, {0.2, 0});
}

TEST(Reference, Softmax) {
  const float l3 = std::log(3.0F);
  const HostTensor x = F32({2, 2}, {0, l3, 1000, 1000});
  ExpectValues(EvalOp("softmax(%a) {axis = 1}", {x}), {2, 2}, {0.25, 0.75, 0.5, 0.5});
  ExpectValues(EvalOp("log_softmax(%a) {axis = 1}", {x}), {2, 2},
               {std::log(0.25), std::log(0.75), -std::log(2), -std::log(2)});
  ExpectValues(EvalOp("softmax(%a) {axis = 0}", {F32({2, 1}, {0, l3})}), {2, 1}, {0.25, 0.75});
  ExpectValues(
      EvalOp("softmax_grad(%a, %b) {axis = 1}", {F32({1, 2}, {1, 0}), F32({1, 2}, {0.25F, 0.75F})}),
      {1, 2}, {0.1875, -0.1875});
  ExpectValues(EvalOp("log_softmax_grad(%a, %b) {axis = 1}",
                      {F32({1, 2}, {1, 0}), F32({1, 2}, {std::log(0.25F), std::log(0.75F)})}),
               {1, 2}, {0.75, -0.75});
}

TEST(Reference, CrossEntropy) {
  const float l3 = std::log(3.0F);
  const HostTensor logits = F32({4, 2}, {0, l3, 0, l3, 0, 0, 0, 0});
  const HostTensor labels = I64({4}, {0, 1, -100, 5});
  const std::string a = " {ignore_index = -100, has_ignore = true}";
  const auto out = EvalText("%l, %s = cross_entropy(%a, %b)" + a, {"l", "s"}, {logits, labels});
  ExpectValues(out[0], {4}, {std::log(4), std::log(4.0 / 3), 0, kNan});
  ExpectValues(out[1], {4}, {std::log(4), std::log(4), std::log(2), std::log(2)});
  ExpectValues(EvalOp("cross_entropy_grad(%a, %b, %c, %d)" + a,
                      {F32({4}, {2, 1, 1, 1}), logits, labels, out[1]}),
               {4, 2}, {-1.5, 1.5, 0.25, -0.25, 0, 0, kNan, kNan});
}

// Known answers of Philox4x32-10 published with its authors' library (Random123, kat_vectors).
TEST(Reference, PhiloxKnownAnswers) {
  auto draw = [](int64_t seed, int64_t step, int64_t first_block) {
    // Four draws per micro-batch, so micro-batch m starts at block m; op 0 leaves the key alone.
    return EvalText("%u = random_uniform(%a) {shape = [4], dtype = f64} op 0", {"u"},
                    {I64({3}, {seed, step, first_block})})[0];
  };
  auto word = [](const HostTensor& t, int64_t i) {
    return static_cast<uint32_t>(t.ElementAsDouble(i) * 0x1p24);
  };
  const HostTensor zero = draw(0, 0, 0);
  EXPECT_EQ(word(zero, 0), 0x6627e8d5u >> 8);
  EXPECT_EQ(word(zero, 1), 0xe169c58du >> 8);
  EXPECT_EQ(word(zero, 2), 0xbc57ac4cu >> 8);
  EXPECT_EQ(word(zero, 3), 0x9b00dbd8u >> 8);
}

TEST(Reference, RandomDependsOnTheLogicalIndexAlone) {
  auto draw = [](const std::string& shape, const std::string& dtype, const std::string& op,
                 std::vector<int64_t> rng) {
    return EvalText(
        "%u = random_uniform(%a) {shape = " + shape + ", dtype = " + dtype + "} op " + op, {"u"},
        {I64({3}, std::move(rng))})[0];
  };
  const HostTensor whole = draw("[2,9]", "f32", "5", {42, 3, 0});
  for (int64_t m = 0; m < 2; ++m) {  // the same as two micro-batches of half the size
    const HostTensor half = draw("[9]", "f64", "5", {42, 3, m});
    for (int64_t i = 0; i < 9; ++i) {
      EXPECT_EQ(half.ElementAsDouble(i), whole.ElementAsDouble(m * 9 + i));
      EXPECT_GE(half.ElementAsDouble(i), 0);
      EXPECT_LT(half.ElementAsDouble(i), 1);
    }
  }
  EXPECT_FALSE(whole == draw("[2,9]", "f32", "6", {42, 3, 0}));
  EXPECT_FALSE(whole == draw("[2,9]", "f32", "5", {43, 3, 0}));
  EXPECT_FALSE(whole == draw("[2,9]", "f32", "5", {42, 4, 0}));
}

TEST(Reference, Accumulators) {
  ExpectValues(EvalOp("accumulate(%a, %b)", {F32({2}, {1, 2}), F32({2}, {10, 20})}), {2}, {11, 22});
  ExpectValues(EvalOp("accumulate_stat(%a, %b) {momentum = 0.75}", {F32({1}, {4}), F32({1}, {8})}),
               {1}, {5});
  ExpectValues(EvalOp("running_update(%a, %b, %c) {momentum = 0.5}",
                      {F32({1}, {8}), F32({1}, {1}), I64({2}, {3, 1})}),
               {1}, {2});
  ExpectValues(EvalOp("stat_weight(%a, %b) {momentum = 0.5}", {F32({1}, {8}), I64({2}, {3, 2})}),
               {1}, {2});
  ExpectValues(EvalOp("grad_norm_sq(%a)", {F32({2}, {3, 4})}), {}, {25});
  ExpectValues(EvalOp("grad_norm_sq(%a)", {F32({0}, {})}), {}, {0});
}

// Running statistics of four micro-batches, as one sequence and as two replicas of two.
TEST(Reference, StatisticsCombineAcrossReplicas) {
  const double m = 0.9;
  const double values[4] = {1, 5, 2, 7};
  double expected = 3;
  for (double v : values) expected = m * expected + (1 - m) * v;
  double sum = 0;
  for (int replica = 0; replica < 2; ++replica) {
    HostTensor acc = F64({1}, {0});
    for (int i = 0; i < 2; ++i) {
      acc = EvalOp("accumulate_stat(%a, %b) {momentum = 0.9}",
                   {acc, F64({1}, {values[2 * replica + i]})});
    }
    acc = EvalOp("stat_weight(%a, %b) {momentum = 0.9}", {acc, I64({2}, {4, 2 - 2 * replica})});
    sum += acc.ElementAsDouble(0);
  }
  ExpectValues(EvalOp("running_update(%a, %b, %c) {momentum = 0.9}",
                      {F64({1}, {3}), F64({1}, {sum}), I64({2}, {4, 0})}),
               {1}, {expected}, 1e-12);
}

TEST(Reference, Optimizers) {
  const HostTensor p = F64({1}, {1});
  const HostTensor g = F64({1}, {4});
  const HostTensor lr = F64({}, {0.1});
  const HostTensor half = F64({}, {0.5});
  // clipped gradient 2, decay 0.1 * 1
  const HostTensor decay = F64({}, {0.1});
  ExpectValues(EvalOp("sgd(%a, %b, %c, %d, %e)", {p, g, lr, half, decay}), {1}, {1 - 0.1 * 2.1},
               1e-12);
  const std::string mom = "%p, %m = momentum(%a, %b, %c, %d, %e, %f, %g, %h) {nesterov = ";
  const HostTensor buf = F64({1}, {10});
  const HostTensor none = F64({}, {0});
  auto first =
      EvalText(mom + "false}", {"p", "m"}, {p, g, buf, lr, half, half, none, I64({}, {1})});
  ExpectValues(first[0], {1}, {1 - 0.2}, 1e-12);  // the buffer starts as the gradient
  ExpectValues(first[1], {1}, {2}, 1e-12);
  auto second =
      EvalText(mom + "true}", {"p", "m"}, {p, g, buf, lr, half, half, none, I64({}, {2})});
  ExpectValues(second[1], {1}, {7}, 1e-12);
  ExpectValues(second[0], {1}, {1 - 0.1 * (2 + 3.5)}, 1e-12);
  for (bool decoupled : {false, true}) {
    const auto out =
        EvalText("%p, %m, %v = adam(%a, %b, %c, %d, %e, %f, %g, %h, %i, %j, %k) {decoupled = " +
                     std::string(decoupled ? "true" : "false") + "}",
                 {"p", "m", "v"},
                 {p, g, F64({1}, {1}), F64({1}, {2}), lr, half, F64({}, {0.9}), F64({}, {0.99}),
                  F64({}, {0.001}), decay, I64({}, {3})});
    const double grad = decoupled ? 2 : 2.1;
    const double m = 0.9 + 0.1 * grad;
    const double v = 0.99 * 2 + 0.01 * grad * grad;
    const double start = decoupled ? 1 - 0.1 * 0.1 : 1;
    const double m_hat = m / (1 - std::pow(0.9, 3));
    const double v_hat = v / (1 - std::pow(0.99, 3));
    ExpectValues(out[0], {1}, {start - 0.1 * m_hat / (std::sqrt(v_hat) + 0.001)}, 1e-12);
    ExpectValues(out[1], {1}, {m}, 1e-12);
    ExpectValues(out[2], {1}, {v}, 1e-12);
  }
}

}  // namespace
}  // namespace hyper::ir
