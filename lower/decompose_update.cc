// Optimizer and accumulator formulas as map nodes. Scalars (learning rate, clip factor, the
// optimizer's values, bias corrections) are computed once per kernel in the dtype in which PyTorch
// computes them: values stay f64 until they meet a tensor.
#include "lower/decompose.h"

namespace hyper::lower {
namespace {

using ir::Builder;
using ir::DType;
using ir::ScalarOp;
using ir::ValueId;

ValueId Spread(Builder& b, ValueId scalar, ValueId like) {
  return b.Broadcast(scalar, b.type(like).dims, {});
}

// tensor * scalar, the scalar rounded to the tensor's dtype
ValueId Scale(Builder& b, ValueId tensor, ValueId scalar) {
  scalar = b.Cast(b.type(tensor).dtype, scalar);
  return b.Binary(ScalarOp::kMul, tensor, Spread(b, scalar, tensor));
}

// grad * clip + weight_decay * param
ValueId Gradient(Builder& b, ValueId grad, ValueId clip, ValueId param, ValueId weight_decay) {
  return b.Binary(ScalarOp::kAdd, Scale(b, grad, clip), Scale(b, param, weight_decay));
}

ValueId Descend(Builder& b, ValueId param, ValueId lr, ValueId direction) {
  return b.Binary(ScalarOp::kSub, param, b.Binary(ScalarOp::kMul, Spread(b, lr, param), direction));
}

void Adam(Builder& b, const ir::Node& node, const std::vector<ValueId>& in,
          std::vector<ValueId>* out) {
  const DType dtype = b.type(in[0]).dtype;
  const ValueId clip = in[5], beta1 = in[6], beta2 = in[7], epsilon = in[8], decay = in[9];
  const bool decoupled = node.attributes.Bool("decoupled");
  ValueId param = in[0];
  const ValueId g = decoupled ? Scale(b, in[1], clip) : Gradient(b, in[1], clip, param, decay);
  const ValueId lr = b.Cast(DType::kF64, in[4]), step = b.Cast(DType::kF64, in[10]);
  const auto one_minus = [&](ValueId x) {
    return b.Binary(ScalarOp::kSub, b.ScalarConstant(DType::kF64, 1), x);
  };
  const auto correction = [&](ValueId beta) {
    return one_minus(b.Binary(ScalarOp::kPow, beta, step));
  };
  if (decoupled) param = Scale(b, param, one_minus(b.Binary(ScalarOp::kMul, lr, decay)));
  const ValueId m = b.Binary(ScalarOp::kAdd, in[2],
                             Scale(b, b.Binary(ScalarOp::kSub, g, in[2]), one_minus(beta1)));
  const ValueId v = b.Binary(ScalarOp::kAdd, Scale(b, in[3], beta2),
                             Scale(b, b.Binary(ScalarOp::kMul, g, g), one_minus(beta2)));
  const ValueId step_size = b.Cast(dtype, b.Binary(ScalarOp::kDiv, lr, correction(beta1)));
  const ValueId root2 = b.Cast(dtype, b.Unary(ScalarOp::kSqrt, correction(beta2)));
  const ValueId denominator = b.Binary(
      ScalarOp::kAdd, b.Binary(ScalarOp::kDiv, b.Unary(ScalarOp::kSqrt, v), Spread(b, root2, v)),
      Spread(b, b.Cast(dtype, epsilon), v));
  const ValueId direction = b.Binary(ScalarOp::kDiv, m, denominator);
  *out = {Descend(b, param, step_size, direction), m, v};
}

void Momentum(Builder& b, const ir::Node& node, const std::vector<ValueId>& in,
              std::vector<ValueId>* out) {
  const ValueId momentum = in[5];
  const ValueId g = Gradient(b, in[1], in[4], in[0], in[6]);
  const ValueId first = b.BinaryConstant(ScalarOp::kEq, in[7], 1);
  const ValueId moved = b.Binary(ScalarOp::kAdd, Scale(b, in[2], momentum), g);
  const ValueId buf = b.Select(Spread(b, first, g), g, moved);
  ValueId direction = buf;
  if (node.attributes.Bool("nesterov")) {
    direction = b.Binary(ScalarOp::kAdd, g, Scale(b, buf, momentum));
  }
  *out = {Descend(b, in[0], in[3], direction), buf};
}

// momentum ^ scale[which], in the dtype of `like`, spread over it.
ValueId MomentumPower(Builder& b, ValueId scale, int64_t which, double momentum, ValueId like) {
  ValueId n = b.Add1(
      "slice", {scale},
      {{"starts", ir::Dims{which}}, {"limits", ir::Dims{which + 1}}, {"strides", ir::Dims{1}}});
  n = b.Cast(DType::kF64, b.Reshape(n, {}));
  const ValueId p = b.Binary(ScalarOp::kPow, b.ScalarConstant(DType::kF64, momentum), n);
  return Spread(b, b.Cast(b.type(like).dtype, p), like);
}

}  // namespace

bool DecomposeUpdate(Builder& b, const ir::Node& node, const std::vector<ValueId>& in,
                     StepVariant variant, std::vector<ValueId>* out) {
  const std::string_view op = node.op->name;
  const auto& a = node.attributes;
  if (op == "accumulate") {
    out->push_back(variant == StepVariant::kFirst ? in[1] : b.Binary(ScalarOp::kAdd, in[0], in[1]));
  } else if (op == "accumulate_stat") {
    const double momentum = a.Float("momentum");
    const ValueId fresh = b.BinaryConstant(ScalarOp::kMul, in[1], 1 - momentum);
    out->push_back(
        variant == StepVariant::kFirst
            ? fresh
            : b.Binary(ScalarOp::kAdd, b.BinaryConstant(ScalarOp::kMul, in[0], momentum), fresh));
  } else if (op == "running_update") {
    const ValueId old =
        b.Binary(ScalarOp::kMul, in[0], MomentumPower(b, in[2], 0, a.Float("momentum"), in[0]));
    out->push_back(b.Binary(ScalarOp::kAdd, old, in[1]));
  } else if (op == "stat_weight") {
    out->push_back(
        b.Binary(ScalarOp::kMul, in[0], MomentumPower(b, in[1], 1, a.Float("momentum"), in[0])));
  } else if (op == "sgd") {
    const ValueId g = Gradient(b, in[1], in[3], in[0], in[4]);
    out->push_back(Descend(b, in[0], in[2], g));
  } else if (op == "momentum") {
    Momentum(b, node, in, out);
  } else if (op == "adam") {
    Adam(b, node, in, out);
  } else if (op == "grad_norm_sq") {
    const ValueId g = b.Cast(DType::kF64, in[0]);
    ir::Dims axes(b.type(g).dims.size());
    for (size_t d = 0; d < axes.size(); ++d) axes[d] = static_cast<int64_t>(d);
    out->push_back(b.Reduce("sum", b.Binary(ScalarOp::kMul, g, g), axes));
  } else {
    return false;
  }
  return true;
}

}  // namespace hyper::lower
