#include "frontend/onnx/lp_norm.h"

#include <fmt/format.h>

namespace hyper::onnx_frontend {

ValueId LpPowers(NodeContext& c, ValueId x, double p) {
  if (!(p >= 1)) Fail(fmt::format("p is {}; at least 1 is expected", p));
  const DType given = c.b().type(x).dtype;
  const DType dtype = given == DType::kF16 || given == DType::kBF16 ? DType::kF32 : given;
  return c.MapValues({x}, [&](ExprBuilder& e, Args a) {
    const int v = e.Cast(dtype, a[0]);
    if (p == 2) return e.Binary(ScalarOp::kMul, v, v);
    const int size = e.Unary(ScalarOp::kAbs, v);
    return p == 1 ? size : e.Binary(ScalarOp::kPow, size, e.Constant(dtype, p));
  });
}

ValueId LpRoot(NodeContext& c, ValueId sum, double p) {
  if (p == 1) return sum;
  const DType dtype = c.b().type(sum).dtype;
  return c.MapValues({sum}, [&](ExprBuilder& e, Args a) {
    const int zero = e.Constant(dtype, 0);
    const int empty = e.Binary(ScalarOp::kEq, a[0], zero);
    const int safe = e.Select(empty, e.Constant(dtype, 1), a[0]);
    const int root = p == 2 ? e.Unary(ScalarOp::kSqrt, safe)
                            : e.Binary(ScalarOp::kPow, safe, e.Constant(dtype, 1 / p));
    return e.Select(empty, zero, root);
  });
}

}  // namespace hyper::onnx_frontend
