// Element access of any dtype, scalar expressions, and the map op on top of them.
#include <array>
#include <cmath>

#include "ir/float16.h"
#include "ir/reference/kernel.h"
#include "ir/scalar_eval.h"

namespace hyper::ir {
namespace {

// One operator on values of `from` (the second of select).
Scalar EvaluateNode(const ExprNode& n, DType from, std::span<const Scalar> args) {
  if (n.op == ScalarOp::kCast) return CastScalar(from, n.dtype, args[0]);
  if (n.op == ScalarOp::kBitcast) return BitcastScalar(from, n.dtype, args[0]);
  return EvaluateScalar(n.op, from, args);
}

}  // namespace

ScalarValue EvaluateExpr(const Expr& expr, std::span<const ScalarValue> inputs) {
  std::vector<Scalar> values(expr.nodes().size());
  for (size_t i = 0; i < values.size(); ++i) {
    const ExprNode& n = expr.nodes()[i];
    if (n.op == ScalarOp::kInput) {
      const ScalarValue& x = inputs[static_cast<size_t>(n.input)];
      values[i] = {x.f, x.i};
      continue;
    }
    if (n.op == ScalarOp::kConstant) {
      values[i] = {n.float_value, n.int_value};
      continue;
    }
    std::array<Scalar, 3> args;
    for (size_t k = 0; k < 3; ++k) {
      if (n.args[k] >= 0) args[k] = values[static_cast<size_t>(n.args[k])];
    }
    const DType from = expr.nodes()[static_cast<size_t>(n.args[0])].dtype;
    values[i] = EvaluateNode(n, from, args);
  }
  return {values.back().f, values.back().i};
}

namespace reference {
namespace {

template <typename T>
T Get(const std::byte* data, int64_t index) {
  return reinterpret_cast<const T*>(data)[index];
}

// Elements are evaluated in blocks, one operator at a time, so that the operator is chosen once per
// block and the common float operators run as plain loops.
constexpr int64_t kBlock = 256;

struct Lane {
  std::array<double, kBlock> f;
  std::array<int64_t, kBlock> i;
};

void LoadBlock(DType dtype, const std::byte* data, int64_t start, int64_t count, Lane& lane) {
  for (int64_t k = 0; k < count; ++k) {
    const auto e = static_cast<size_t>(k);
    switch (dtype) {
      case DType::kF32: lane.f[e] = Get<float>(data, start + k); break;
      case DType::kF64: lane.f[e] = Get<double>(data, start + k); break;
      default: {
        const ScalarValue v = LoadScalar(dtype, data, start + k);
        lane.f[e] = v.f;
        lane.i[e] = v.i;
      }
    }
  }
}

void RoundBlock(DType dtype, int64_t count, Lane& lane) {
  if (dtype == DType::kF64) return;
  for (int64_t k = 0; k < count; ++k) {
    const auto e = static_cast<size_t>(k);
    lane.f[e] = dtype == DType::kF32 ? static_cast<double>(static_cast<float>(lane.f[e]))
                                     : RoundFloat(dtype, lane.f[e]);
  }
}

// The float arithmetic of nearly all maps; false: not one of these.
bool FastFloat(ScalarOp op, int64_t count, const Lane& a, const Lane& b, Lane& y) {
  auto loop = [&](auto f) {
    for (int64_t k = 0; k < count; ++k) {
      const auto e = static_cast<size_t>(k);
      y.f[e] = f(a.f[e], b.f[e]);
    }
    return true;
  };
  switch (op) {
    case ScalarOp::kAdd: return loop([](double p, double q) { return p + q; });
    case ScalarOp::kSub: return loop([](double p, double q) { return p - q; });
    case ScalarOp::kMul: return loop([](double p, double q) { return p * q; });
    case ScalarOp::kDiv: return loop([](double p, double q) { return p / q; });
    case ScalarOp::kMax: return loop([](double p, double q) { return p > q || p != p ? p : q; });
    case ScalarOp::kNeg: return loop([](double p, double) { return -p; });
    case ScalarOp::kSqrt: return loop([](double p, double) { return std::sqrt(p); });
    default: return false;
  }
}

void RunBlock(const Expr& expr, const Call& call, int64_t start, int64_t count,
              std::vector<Lane>& lanes) {
  for (size_t n = 0; n < expr.nodes().size(); ++n) {
    const ExprNode& node = expr.nodes()[n];
    Lane& y = lanes[n];
    if (node.op == ScalarOp::kInput) {
      const auto input = static_cast<size_t>(node.input);
      LoadBlock(node.dtype, call.inputs[input].data, start, count, y);
      continue;
    }
    if (node.op == ScalarOp::kConstant) {
      y.f.fill(node.float_value);
      y.i.fill(node.int_value);
      continue;
    }
    std::array<const Lane*, 3> args;
    for (size_t k = 0; k < 3; ++k) {
      args[k] = &lanes[static_cast<size_t>(node.args[k] >= 0 ? node.args[k] : node.args[0])];
    }
    const DType from = expr.nodes()[static_cast<size_t>(node.args[0])].dtype;
    if (IsFloat(node.dtype) && FastFloat(node.op, count, *args[0], *args[1], y)) {
      RoundBlock(node.dtype, count, y);
      continue;
    }
    for (int64_t k = 0; k < count; ++k) {
      const auto e = static_cast<size_t>(k);
      const Scalar x[3] = {{args[0]->f[e], args[0]->i[e]},
                           {args[1]->f[e], args[1]->i[e]},
                           {args[2]->f[e], args[2]->i[e]}};
      const Scalar r = EvaluateNode(node, from, x);
      y.f[e] = r.f;
      y.i[e] = r.i;
    }
  }
}

Status Map(const Call& call) {
  const Expr& expr = call.attributes.GetExpr("expr");
  const int64_t elements = call.out(0).elements();
  std::vector<Lane> lanes(expr.nodes().size());
  for (int64_t start = 0; start < elements; start += kBlock) {
    const int64_t count = std::min(kBlock, elements - start);
    RunBlock(expr, call, start, count, lanes);
    const Lane& y = lanes.back();
    for (int64_t k = 0; k < count; ++k) {
      const auto e = static_cast<size_t>(k);
      StoreScalar(call.out(0).dtype, call.outputs[0].data, start + k, {y.f[e], y.i[e]});
    }
  }
  return Status::Ok();
}

constexpr NamedKernel kKernels[] = {{"map", Map, true}};

}  // namespace

std::span<const NamedKernel> MapKernels() { return kKernels; }

ScalarValue LoadScalar(DType dtype, const std::byte* data, int64_t index) {
  switch (dtype) {
    case DType::kF32: return {Get<float>(data, index), 0};
    case DType::kF64: return {Get<double>(data, index), 0};
    case DType::kF16: return {HalfToDouble(Get<uint16_t>(data, index)), 0};
    case DType::kBF16: return {BFloat16ToDouble(Get<uint16_t>(data, index)), 0};
    case DType::kI8: return {0, Get<int8_t>(data, index)};
    case DType::kI16: return {0, Get<int16_t>(data, index)};
    case DType::kI32: return {0, Get<int32_t>(data, index)};
    case DType::kI64: return {0, Get<int64_t>(data, index)};
    case DType::kU8: return {0, Get<uint8_t>(data, index)};
    case DType::kU16: return {0, Get<uint16_t>(data, index)};
    case DType::kU32: return {0, Get<uint32_t>(data, index)};
    case DType::kU64: return {0, static_cast<int64_t>(Get<uint64_t>(data, index))};
    case DType::kBool: return {0, Get<uint8_t>(data, index) != 0 ? 1 : 0};
  }
  return {};
}

void StoreScalar(DType dtype, std::byte* data, int64_t index, ScalarValue value) {
  auto put = [&](auto x) { reinterpret_cast<decltype(x)*>(data)[index] = x; };
  switch (dtype) {
    case DType::kF32: put(static_cast<float>(value.f)); break;
    case DType::kF64: put(value.f); break;
    case DType::kF16: put(HalfBits(value.f)); break;
    case DType::kBF16: put(BFloat16Bits(value.f)); break;
    default:
      switch (DTypeBytes(dtype)) {
        case 1: put(static_cast<uint8_t>(value.i)); break;
        case 2: put(static_cast<uint16_t>(value.i)); break;
        case 4: put(static_cast<uint32_t>(value.i)); break;
        default: put(value.i);
      }
  }
}

}  // namespace reference
}  // namespace hyper::ir
