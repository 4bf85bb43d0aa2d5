// Optimizer and accumulator formulas as map nodes. Scalars (learning rate, clip factor, bias
// corrections) are computed once per kernel in the dtype in which PyTorch computes them.
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

// grad * clip + weight_decay * param
ValueId Gradient(Builder& b, ValueId grad, ValueId clip, ValueId param, double weight_decay) {
  ValueId g = b.Binary(ScalarOp::kMul, grad, Spread(b, clip, grad));
  if (weight_decay != 0) {
    g = b.Binary(ScalarOp::kAdd, g, b.BinaryConstant(ScalarOp::kMul, param, weight_decay));
  }
  return g;
}

ValueId Descend(Builder& b, ValueId param, ValueId lr, ValueId direction) {
  return b.Binary(ScalarOp::kSub, param, b.Binary(ScalarOp::kMul, Spread(b, lr, param), direction));
}

void Adam(Builder& b, const ir::Node& node, const std::vector<ValueId>& in,
          std::vector<ValueId>* out) {
  const auto& a = node.attributes;
  const DType dtype = b.type(in[0]).dtype;
  const double beta1 = a.Float("beta1"), beta2 = a.Float("beta2"), decay = a.Float("weight_decay");
  const bool decoupled = a.Bool("decoupled");
  ValueId param = in[0];
  const ValueId g = Gradient(b, in[1], in[5], param, decoupled ? 0 : decay);
  const ValueId lr = b.Cast(DType::kF64, in[4]), step = b.Cast(DType::kF64, in[6]);
  const auto one_minus = [&](ValueId x) {
    return b.Binary(ScalarOp::kSub, b.ScalarConstant(DType::kF64, 1), x);
  };
  const auto correction = [&](double beta) {
    return one_minus(b.Binary(ScalarOp::kPow, b.ScalarConstant(DType::kF64, beta), step));
  };
  if (decoupled && decay != 0) {
    const ValueId keep = one_minus(b.BinaryConstant(ScalarOp::kMul, lr, decay));
    param = b.Binary(ScalarOp::kMul, param, Spread(b, b.Cast(dtype, keep), param));
  }
  const ValueId m =
      b.Binary(ScalarOp::kAdd, in[2],
               b.BinaryConstant(ScalarOp::kMul, b.Binary(ScalarOp::kSub, g, in[2]), 1 - beta1));
  const ValueId v =
      b.Binary(ScalarOp::kAdd, b.BinaryConstant(ScalarOp::kMul, in[3], beta2),
               b.BinaryConstant(ScalarOp::kMul, b.Binary(ScalarOp::kMul, g, g), 1 - beta2));
  const ValueId step_size = b.Cast(dtype, b.Binary(ScalarOp::kDiv, lr, correction(beta1)));
  const ValueId root2 = b.Cast(dtype, b.Unary(ScalarOp::kSqrt, correction(beta2)));
  const ValueId denominator = b.BinaryConstant(
      ScalarOp::kAdd, b.Binary(ScalarOp::kDiv, b.Unary(ScalarOp::kSqrt, v), Spread(b, root2, v)),
      a.Float("epsilon"));
  const ValueId direction = b.Binary(ScalarOp::kDiv, m, denominator);
  *out = {Descend(b, param, step_size, direction), m, v};
}

void Momentum(Builder& b, const ir::Node& node, const std::vector<ValueId>& in,
              std::vector<ValueId>* out) {
  const auto& a = node.attributes;
  const double momentum = a.Float("momentum");
  const ValueId g = Gradient(b, in[1], in[4], in[0], a.Float("weight_decay"));
  const ValueId first = b.BinaryConstant(ScalarOp::kEq, in[5], 1);
  const ValueId moved =
      b.Binary(ScalarOp::kAdd, b.BinaryConstant(ScalarOp::kMul, in[2], momentum), g);
  const ValueId buf = b.Select(Spread(b, first, g), g, moved);
  ValueId direction = buf;
  if (a.Bool("nesterov")) {
    direction = b.Binary(ScalarOp::kAdd, g, b.BinaryConstant(ScalarOp::kMul, buf, momentum));
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
    const ValueId g = Gradient(b, in[1], in[3], in[0], a.Float("weight_decay"));
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
