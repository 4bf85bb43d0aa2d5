// Operators of ai.onnx.preview.training: Gradient, and one step of an optimizer with operands: the
// rate R, the count of updates T, then for n tensors all values, all gradients and the state
// tensors, kind by kind; outputs in the same order without the gradients. R and T may arrive as
// data.
#include <fmt/format.h>

#include "frontend/onnx/importer.h"

namespace hyper::onnx_frontend {
namespace {

constexpr std::string_view kDomain = "ai.onnx.preview.training";
constexpr std::string_view kNoGradient = "a step of an optimizer is no part of the loss";

// Tensors behind R and T, `kinds` operands each.
int TensorCount(NodeContext& c, int kinds) {
  const int operands = c.input_count() - 2;
  if (operands < kinds || operands % kinds != 0) {
    Fail(fmt::format("{} operands behind R and T; expected {} for each tensor", operands, kinds));
  }
  return operands / kinds;
}

Tensor Computed(NodeContext& c, ValueId value) { return {c.b().type(value), value, {}, false}; }

// norm_coefficient * X + G
int Regularized(ExprBuilder& e, DType dtype, double norm, int x, int g) {
  return e.Binary(ScalarOp::kAdd, e.Binary(ScalarOp::kMul, e.Constant(dtype, norm), x), g);
}

// decay * old + rate * new
int Averaged(ExprBuilder& e, DType dtype, double decay, int before, double rate, int now) {
  return e.Binary(ScalarOp::kAdd, e.Binary(ScalarOp::kMul, e.Constant(dtype, decay), before),
                  e.Binary(ScalarOp::kMul, e.Constant(dtype, rate), now));
}

void Adam(NodeContext& c) {
  const int n = TensorCount(c, 4);
  const double alpha = c.Float("alpha", 0.9F);
  const double beta = c.Float("beta", 0.999F);
  const double epsilon = c.Float("epsilon", 1e-6F);
  const double norm = c.Float("norm_coefficient", 0);
  const double norm_post = c.Float("norm_coefficient_post", 0);
  for (int i = 0; i < n; ++i) {
    const int x = 2 + i, g = x + n, v = g + n, h = v + n;
    const DType dtype = c.Type(x).dtype;
    const ValueId mean = c.MapInputs({x, g, v}, [&](ExprBuilder& e, Args a) {
      return Averaged(e, dtype, alpha, a[2], 1 - alpha, Regularized(e, dtype, norm, a[0], a[1]));
    });
    const ValueId square = c.MapInputs({x, g, h}, [&](ExprBuilder& e, Args a) {
      const int regularized = Regularized(e, dtype, norm, a[0], a[1]);
      return Averaged(e, dtype, beta, a[2], 1 - beta,
                      e.Binary(ScalarOp::kMul, regularized, regularized));
    });
    const ValueId updated = c.MapTensors(
        {c.Operand(0), c.Operand(1), c.Operand(x), Computed(c, mean), Computed(c, square)},
        [&](ExprBuilder& e, Args a) {
          const int rate = e.Cast(dtype, a[0]);
          const int count = e.Cast(dtype, a[1]);
          const auto remaining = [&](double decay) {
            return e.Binary(ScalarOp::kSub, e.Constant(dtype, 1),
                            e.Binary(ScalarOp::kPow, e.Constant(dtype, decay), count));
          };
          const int corrected =
              e.Binary(ScalarOp::kDiv,
                       e.Binary(ScalarOp::kMul, rate, e.Unary(ScalarOp::kSqrt, remaining(beta))),
                       remaining(alpha));
          const int adjusted =
              e.Select(e.Binary(ScalarOp::kGt, count, e.Constant(dtype, 0)), corrected, rate);
          const int root =
              e.Binary(ScalarOp::kAdd, e.Unary(ScalarOp::kSqrt, a[4]), e.Constant(dtype, epsilon));
          const int moved =
              e.Binary(ScalarOp::kSub, a[2],
                       e.Binary(ScalarOp::kDiv, e.Binary(ScalarOp::kMul, adjusted, a[3]), root));
          return e.Binary(ScalarOp::kMul, e.Constant(dtype, 1 - norm_post), moved);
        });
    c.Out(i, updated);
    c.Out(n + i, mean);
    c.Out(2 * n + i, square);
  }
}

void Adagrad(NodeContext& c) {
  const int n = TensorCount(c, 3);
  const double decay = c.Float("decay_factor", 0);
  const double epsilon = c.Float("epsilon", 1e-6F);
  const double norm = c.Float("norm_coefficient", 0);
  for (int i = 0; i < n; ++i) {
    const int x = 2 + i, g = x + n, h = g + n;
    const DType dtype = c.Type(x).dtype;
    const ValueId sum = c.MapInputs({x, g, h}, [&](ExprBuilder& e, Args a) {
      const int regularized = Regularized(e, dtype, norm, a[0], a[1]);
      return e.Binary(ScalarOp::kAdd, a[2], e.Binary(ScalarOp::kMul, regularized, regularized));
    });
    const ValueId updated = c.MapTensors(
        {c.Operand(0), c.Operand(1), c.Operand(x), c.Operand(g), Computed(c, sum)},
        [&](ExprBuilder& e, Args a) {
          const int decayed =
              e.Binary(ScalarOp::kAdd, e.Constant(dtype, 1),
                       e.Binary(ScalarOp::kMul, e.Cast(dtype, a[1]), e.Constant(dtype, decay)));
          const int rate = e.Binary(ScalarOp::kDiv, e.Cast(dtype, a[0]), decayed);
          const int root =
              e.Binary(ScalarOp::kAdd, e.Unary(ScalarOp::kSqrt, a[4]), e.Constant(dtype, epsilon));
          const int step = e.Binary(ScalarOp::kMul, rate, Regularized(e, dtype, norm, a[2], a[3]));
          return e.Binary(ScalarOp::kSub, a[2], e.Binary(ScalarOp::kDiv, step, root));
        });
    c.Out(i, updated);
    c.Out(n + i, sum);
  }
}

void Momentum(NodeContext& c) {
  const int n = TensorCount(c, 3);
  const double alpha = c.Float("alpha", 0);
  const double beta = c.Float("beta", 0);
  const double norm = c.Float("norm_coefficient", 0);
  const std::string mode = c.String("mode", "");
  if (mode != "standard" && mode != "nesterov") {
    Fail(fmt::format("mode is '{}'; accepted are 'standard' and 'nesterov'", mode));
  }
  for (const char* name : {"alpha", "beta", "norm_coefficient"}) {
    if (c.Attribute(name) == nullptr) Fail(fmt::format("attribute '{}' is missing", name));
  }
  for (int i = 0; i < n; ++i) {
    const int x = 2 + i, g = x + n, v = g + n;
    const DType dtype = c.Type(x).dtype;
    const ValueId velocity = c.MapTensors(
        {c.Operand(1), c.Operand(x), c.Operand(g), c.Operand(v)}, [&](ExprBuilder& e, Args a) {
          const int later = e.Binary(ScalarOp::kGt, e.Cast(dtype, a[0]), e.Constant(dtype, 0));
          const int rate = e.Select(later, e.Constant(dtype, beta), e.Constant(dtype, 1));
          return e.Binary(ScalarOp::kAdd, e.Binary(ScalarOp::kMul, e.Constant(dtype, alpha), a[3]),
                          e.Binary(ScalarOp::kMul, rate, Regularized(e, dtype, norm, a[1], a[2])));
        });
    const ValueId updated = c.MapTensors(
        {c.Operand(0), c.Operand(x), c.Operand(g), Computed(c, velocity)},
        [&](ExprBuilder& e, Args a) {
          int direction = a[3];
          if (mode == "nesterov") {
            direction = e.Binary(ScalarOp::kAdd, Regularized(e, dtype, norm, a[1], a[2]),
                                 e.Binary(ScalarOp::kMul, e.Constant(dtype, alpha), a[3]));
          }
          return e.Binary(ScalarOp::kSub, a[1],
                          e.Binary(ScalarOp::kMul, e.Cast(dtype, a[0]), direction));
        });
    c.Out(i, updated);
    c.Out(n + i, velocity);
  }
}

// Derivatives of the function xs, zs -> y that the graph computes, at the operands given. Another
// shape of y than a scalar stands for its sum.
void Gradient(NodeContext& c) {
  std::vector<std::string> names;
  int wanted = 0;
  for (const char* list : {"xs", "zs"}) {
    const auto* a = c.Attribute(list);
    if (a != nullptr) names.insert(names.end(), a->strings().begin(), a->strings().end());
    if (list[0] == 'x') wanted = static_cast<int>(names.size());
  }
  if (static_cast<int>(names.size()) != c.input_count() || wanted == 0) {
    Fail(fmt::format("xs and zs name {} tensors, the node has {} operands", names.size(),
                     c.input_count()));
  }
  std::vector<Tensor> values;
  for (int i = 0; i < c.input_count(); ++i) values.push_back(c.Operand(i));
  const std::vector<ValueId> by =
      c.services().derivatives(names, std::move(values), wanted, c.String("y", ""));
  for (int i = 0; i < wanted; ++i) c.Out(i, by[static_cast<size_t>(i)]);
}

}  // namespace

void RegisterTrainingImporters(ImportTable& t) {
  t.Add({.op = "Adagrad",
         .import = Adagrad,
         .doc = "maps per tensor",
         .no_gradient = kNoGradient,
         .domain = kDomain});
  t.Add({.op = "Adam",
         .import = Adam,
         .doc = "maps per tensor",
         .no_gradient = kNoGradient,
         .domain = kDomain});
  t.Add({.op = "Momentum",
         .import = Momentum,
         .doc = "maps per tensor",
         .no_gradient = kNoGradient,
         .domain = kDomain});
  t.Add({.op = "Gradient",
         .import = Gradient,
         .doc = "the function that the graph computes, differentiated",
         .domain = kDomain,
         .structural = true});
}

}  // namespace hyper::onnx_frontend
