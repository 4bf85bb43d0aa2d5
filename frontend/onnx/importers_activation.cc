// Activation functions: each becomes one `map`, softmaxes their own ops.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "frontend/onnx/importer.h"

namespace hyper::onnx_frontend {
namespace {

// An expression builder with the operand's dtype at hand.
struct X {
  ExprBuilder& e;
  DType t;
  int c(double v) const { return e.Constant(t, v); }
  int add(int a, int b) const { return e.Binary(ScalarOp::kAdd, a, b); }
  int sub(int a, int b) const { return e.Binary(ScalarOp::kSub, a, b); }
  int mul(int a, int b) const { return e.Binary(ScalarOp::kMul, a, b); }
  int div(int a, int b) const { return e.Binary(ScalarOp::kDiv, a, b); }
  int max(int a, int b) const { return e.Binary(ScalarOp::kMax, a, b); }
  int min(int a, int b) const { return e.Binary(ScalarOp::kMin, a, b); }
  int gt(int a, int b) const { return e.Binary(ScalarOp::kGt, a, b); }
  int lt(int a, int b) const { return e.Binary(ScalarOp::kLt, a, b); }
  int un(ScalarOp op, int a) const { return e.Unary(op, a); }
  int sel(int k, int a, int b) const { return e.Select(k, a, b); }
  // log(1 + exp(x)); above 40 it is x in every float type.
  int softplus(int x) const {
    return sel(gt(x, c(40)), x, un(ScalarOp::kLog1p, un(ScalarOp::kExp, x)));
  }
};

template <typename Body>
void Activation(NodeContext& c, Body body) {
  const DType dtype = c.Type(0).dtype;
  c.Out(0, c.MapInputs({0}, [&](ExprBuilder& e, Args x) { return body(X{e, dtype}, x[0]); }));
}

void Relu(NodeContext& c) {
  Activation(
      c, [](X e, int x) { return e.max(x, ir::IsFloat(e.t) ? e.c(0) : e.e.ConstantInt(e.t, 0)); });
}
void LeakyRelu(NodeContext& c) {
  const double alpha = c.Float("alpha", 0.01F);
  Activation(c, [&](X e, int x) { return e.sel(e.lt(x, e.c(0)), e.mul(x, e.c(alpha)), x); });
}
void PRelu(NodeContext& c) {
  const ir::Dims dims = c.Shape(0);
  if (OrFail(ir::BroadcastDims(dims, c.Shape(1))) != dims) Fail("slope does not broadcast to X");
  const DType t = c.Type(0).dtype;
  c.Out(0, c.MapInputs({0, 1}, [t](ExprBuilder& b, Args a) {
    const X e{b, t};
    const int zero = ir::IsFloat(t) ? e.c(0) : b.ConstantInt(t, 0);
    return e.sel(e.lt(a[0], zero), e.mul(a[0], a[1]), a[0]);
  }));
}
void Elu(NodeContext& c) {
  const double alpha = c.Float("alpha", 1);
  Activation(c, [&](X e, int x) {
    return e.sel(e.lt(x, e.c(0)), e.mul(e.c(alpha), e.un(ScalarOp::kExpm1, x)), x);
  });
}
void Celu(NodeContext& c) {
  const double alpha = c.Float("alpha", 1);
  Activation(c, [&](X e, int x) {
    return e.sel(e.lt(x, e.c(0)), e.mul(e.c(alpha), e.un(ScalarOp::kExpm1, e.div(x, e.c(alpha)))),
                 x);
  });
}
void Selu(NodeContext& c) {
  const double alpha = c.Float("alpha", 1.67326319217681884765625);
  const double gamma = c.Float("gamma", 1.05070102214813232421875);
  Activation(c, [&](X e, int x) {
    return e.mul(e.c(gamma),
                 e.sel(e.gt(x, e.c(0)), x, e.mul(e.c(alpha), e.un(ScalarOp::kExpm1, x))));
  });
}
void Gelu(NodeContext& c) {
  const std::string approximate = c.String("approximate", "none");
  if (approximate != "none" && approximate != "tanh") {
    Fail(fmt::format("approximate is '{}'; 'none' or 'tanh' is expected", approximate));
  }
  Activation(c, [&](X e, int x) {
    const int half = e.mul(x, e.c(0.5));
    if (approximate == "none") {
      return e.mul(half,
                   e.add(e.c(1), e.un(ScalarOp::kErf, e.mul(x, e.c(std::numbers::sqrt2 / 2)))));
    }
    const int cube = e.mul(e.mul(x, x), x);
    const int inner =
        e.mul(e.c(std::sqrt(2 / std::numbers::pi)), e.add(x, e.mul(e.c(0.044715), cube)));
    return e.mul(half, e.add(e.c(1), e.un(ScalarOp::kTanh, inner)));
  });
}
void Sigmoid(NodeContext& c) {
  Activation(c, [](X e, int x) { return e.un(ScalarOp::kSigmoid, x); });
}
void Tanh(NodeContext& c) {
  Activation(c, [](X e, int x) { return e.un(ScalarOp::kTanh, x); });
}
void HardSigmoid(NodeContext& c) {
  const double alpha = c.Float("alpha", 0.2F);
  const double beta = c.Float("beta", 0.5);
  Activation(c, [&](X e, int x) {
    return e.max(e.min(e.add(e.mul(x, e.c(alpha)), e.c(beta)), e.c(1)), e.c(0));
  });
}
void HardSwish(NodeContext& c) {
  Activation(c, [](X e, int x) {
    const int gate = e.max(e.min(e.add(e.div(x, e.c(6)), e.c(0.5)), e.c(1)), e.c(0));
    return e.mul(x, gate);
  });
}
void Softplus(NodeContext& c) {
  Activation(c, [](X e, int x) { return e.softplus(x); });
}
void Softsign(NodeContext& c) {
  Activation(c, [](X e, int x) { return e.div(x, e.add(e.c(1), e.un(ScalarOp::kAbs, x))); });
}
void Mish(NodeContext& c) {
  Activation(c, [](X e, int x) { return e.mul(x, e.un(ScalarOp::kTanh, e.softplus(x))); });
}
void Swish(NodeContext& c) {
  const double alpha = c.Float("alpha", 1);
  Activation(c,
             [&](X e, int x) { return e.mul(x, e.un(ScalarOp::kSigmoid, e.mul(x, e.c(alpha)))); });
}
void ThresholdedRelu(NodeContext& c) {
  const double alpha = c.Float("alpha", 1);
  Activation(c, [&](X e, int x) { return e.sel(e.gt(x, e.c(alpha)), x, e.c(0)); });
}
void Shrink(NodeContext& c) {
  const double bias = c.Float("bias", 0);
  const double lambd = c.Float("lambd", 0.5);
  const DType t = c.Type(0).dtype;
  if (!ir::IsFloat(t)) Unsupported("integer operands are not supported");
  Activation(c, [&](X e, int x) {
    return e.sel(e.lt(x, e.c(-lambd)), e.add(x, e.c(bias)),
                 e.sel(e.gt(x, e.c(lambd)), e.sub(x, e.c(bias)), e.c(0)));
  });
}

void Clip(NodeContext& c) {
  const DType t = c.Type(0).dtype;
  std::vector<Tensor> operands = {c.Operand(0)};
  int low = -1;
  int high = -1;
  if (c.since() < 11) {
    const double lowest = std::numeric_limits<float>::lowest();
    const double min = c.Float("min", lowest);
    const double max = c.Float("max", std::numeric_limits<float>::max());
    c.Out(0, c.MapInputs({0}, [&](ExprBuilder& b, Args a) {
      const X e{b, t};
      int y = a[0];
      if (c.Attribute("min") != nullptr) y = e.max(y, e.c(min));
      if (c.Attribute("max") != nullptr) y = e.min(y, e.c(max));
      return y;
    }));
    return;
  }
  for (int i : {1, 2}) {
    if (!c.Has(i)) continue;
    if (c.Type(i).elements() != 1) Fail("min and max must be scalars");
    if (c.Type(i).dtype != t) Fail("min and max must have the type of the input");
    (i == 1 ? low : high) = static_cast<int>(operands.size());
    Tensor bound = c.Operand(i);
    if (bound.type.rank() > 0) {  // [1] behaves as a scalar whatever the rank of X
      bound = {{t, {}},
               c.Reshape(c.In(i), {}),
               bound.known ? ir::HostTensor({t, {}}, bound.constant.bytes()) : ir::HostTensor(),
               bound.known};
    }
    operands.push_back(bound);
  }
  c.Out(0, c.MapTensors(operands, [&](ExprBuilder& b, Args a) {
    const X e{b, t};
    int y = a[0];
    if (low >= 0) y = e.max(y, a[static_cast<size_t>(low)]);
    if (high >= 0) y = e.min(y, a[static_cast<size_t>(high)]);
    return y;
  }));
}

// What softmax and its relatives normalize: before opset 13 the dims from `axis` on are one
// flattened dim.
struct SoftmaxView {
  ir::Dims dims;
  int64_t axis = 0;
};

SoftmaxView ViewOf(NodeContext& c) {
  const ir::Dims& dims = c.Shape(0);
  const int rank = c.Type(0).rank();
  const bool flatten = c.since() < 13;
  const int64_t given = c.Int("axis", flatten ? 1 : -1);
  if (!flatten) {
    if (rank == 0) Fail("the operand must not be a scalar");
    return {dims, NormalAxis(given, rank)};
  }
  if (given < -rank || given > rank)
    Fail(fmt::format("axis {} of a tensor of rank {}", given, rank));
  const int axis = static_cast<int>(given < 0 ? given + rank : given);
  ir::Dims flat = {1, 1};
  for (int i = 0; i < rank; ++i) flat[i < axis ? 0 : 1] *= dims[static_cast<size_t>(i)];
  return {flat, 1};
}

void SoftmaxOf(NodeContext& c, std::string_view op) {
  const ir::Dims dims = c.Shape(0);
  const SoftmaxView view = ViewOf(c);
  const ir::ValueId y = c.Add1(op, {c.Reshape(c.In(0), view.dims)}, {{"axis", view.axis}});
  c.Out(0, c.Reshape(y, dims));
}
void Softmax(NodeContext& c) { SoftmaxOf(c, "softmax"); }
void LogSoftmax(NodeContext& c) { SoftmaxOf(c, "log_softmax"); }

// 1 at the first maximum, 0 elsewhere.
void Hardmax(NodeContext& c) {
  const ir::Dims dims = c.Shape(0);
  if (ir::ElementCount(dims) == 0) {
    c.Forward(0, 0);
    return;
  }
  const SoftmaxView view = ViewOf(c);
  const ir::ValueId first =
      c.Add1("arg_reduce", {c.Reshape(c.In(0), view.dims)},
             {{"kind", std::string("max")}, {"axis", view.axis}, {"last", false}});
  ir::Dims others;
  for (int64_t d = 0; d < static_cast<int64_t>(view.dims.size()); ++d) {
    if (d != view.axis) others.push_back(d);
  }
  const ir::ValueId position =
      c.Add1("iota", {}, {{"shape", view.dims}, {"axis", view.axis}, {"dtype", DType::kI64}});
  const ir::ValueId y = c.MapValues(
      {position, c.b().Broadcast(first, view.dims, others)}, [&](ExprBuilder& e, Args a) {
        return e.Cast(c.Type(0).dtype, e.Binary(ScalarOp::kEq, a[0], a[1]));
      });
  c.Out(0, c.Reshape(y, dims));
}

}  // namespace

void RegisterActivationImporters(ImportTable& t) {
  t.Add({"Relu", 6, 14, Relu, "map max(x, 0)"});
  t.Add({"LeakyRelu", 6, 16, LeakyRelu, "map"});
  t.Add({"PRelu", 7, 16, PRelu, "map", {}, {1}});
  t.Add({"Elu", 6, 22, Elu, "map"});
  t.Add({"Celu", 12, 12, Celu, "map"});
  t.Add({"Selu", 6, 22, Selu, "map"});
  t.Add({"Gelu", 20, 20, Gelu, "map (erf or tanh form)"});
  t.Add({"Sigmoid", 6, 13, Sigmoid, "map"});
  t.Add({"Tanh", 6, 13, Tanh, "map"});
  t.Add({"HardSigmoid", 6, 22, HardSigmoid, "map"});
  t.Add({"HardSwish", 14, 22, HardSwish, "map"});
  t.Add({"Softplus", 1, 22, Softplus, "map"});
  t.Add({"Softsign", 1, 22, Softsign, "map"});
  t.Add({"Mish", 18, 22, Mish, "map"});
  t.Add({"Swish", 24, 24, Swish, "map"});
  t.Add({"ThresholdedRelu", 10, 22, ThresholdedRelu, "map"});
  t.Add({"Shrink", 9, 9, Shrink, "map"});
  t.Add({"Clip", 6, 13, Clip, "map; min and max may be absent"});
  t.Add(
      {"Softmax", 1, 13, Softmax, "softmax; before opset 13 over the flattened dims from axis on"});
  t.Add({"LogSoftmax", 1, 13, LogSoftmax, "log_softmax; as Softmax"});
  t.Add({"Hardmax",
         1,
         13,
         Hardmax,
         "arg_reduce, iota and map; dims as Softmax",
         {},
         {},
         "its derivative is zero almost everywhere"});
}

}  // namespace hyper::onnx_frontend
