#include "ir/scalar_eval.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/float16.h"

namespace hyper::ir {
namespace {

bool IsUnsigned(DType d) {
  return d == DType::kU8 || d == DType::kU16 || d == DType::kU32 || d == DType::kU64;
}

double UnaryFloat(ScalarOp op, double x) {
  switch (op) {
    case ScalarOp::kNeg: return -x;
    case ScalarOp::kAbs: return std::fabs(x);
    case ScalarOp::kSign: return x > 0 ? 1 : x < 0 ? -1 : x;  // keeps zeros and NaN
    case ScalarOp::kExp: return std::exp(x);
    case ScalarOp::kExpm1: return std::expm1(x);
    case ScalarOp::kLog: return std::log(x);
    case ScalarOp::kLog1p: return std::log1p(x);
    case ScalarOp::kSqrt: return std::sqrt(x);
    case ScalarOp::kRsqrt: return 1 / std::sqrt(x);
    case ScalarOp::kReciprocal: return 1 / x;
    case ScalarOp::kSin: return std::sin(x);
    case ScalarOp::kCos: return std::cos(x);
    case ScalarOp::kTan: return std::tan(x);
    case ScalarOp::kAsin: return std::asin(x);
    case ScalarOp::kAcos: return std::acos(x);
    case ScalarOp::kAtan: return std::atan(x);
    case ScalarOp::kSinh: return std::sinh(x);
    case ScalarOp::kCosh: return std::cosh(x);
    case ScalarOp::kTanh: return std::tanh(x);
    case ScalarOp::kAsinh: return std::asinh(x);
    case ScalarOp::kAcosh: return std::acosh(x);
    case ScalarOp::kAtanh: return std::atanh(x);
    case ScalarOp::kErf: return std::erf(x);
    case ScalarOp::kSigmoid: return 1 / (1 + std::exp(-x));
    case ScalarOp::kFloor: return std::floor(x);
    case ScalarOp::kCeil: return std::ceil(x);
    case ScalarOp::kRound: return std::nearbyint(x);
    default: HYPER_CHECK(false, "not a unary float operator");
  }
}

double BinaryFloat(ScalarOp op, double x, double y) {
  switch (op) {
    case ScalarOp::kAdd: return x + y;
    case ScalarOp::kSub: return x - y;
    case ScalarOp::kMul: return x * y;
    case ScalarOp::kDiv: return x / y;
    case ScalarOp::kPow: return std::pow(x, y);
    case ScalarOp::kFmod: return std::fmod(x, y);
    case ScalarOp::kMod: {
      const double r = std::fmod(x, y);
      return r != 0 && (r < 0) != (y < 0) ? r + y : r;
    }
    case ScalarOp::kMax: return x > y || std::isnan(x) ? x : y;
    case ScalarOp::kMin: return x < y || std::isnan(x) ? x : y;
    default: HYPER_CHECK(false, "not a binary float operator");
  }
}

bool CompareOp(ScalarOp op, bool less, bool equal, bool greater) {
  switch (op) {
    case ScalarOp::kEq: return equal;
    case ScalarOp::kNe: return !equal;
    case ScalarOp::kLt: return less;
    case ScalarOp::kLe: return less || equal;
    case ScalarOp::kGt: return greater;
    case ScalarOp::kGe: return greater || equal;
    default: HYPER_CHECK(false, "not a comparison");
  }
}

bool IsComparison(ScalarOp op) { return op >= ScalarOp::kEq && op <= ScalarOp::kGe; }

// Square and multiply, wrapping; a negative exponent truncates 1/x^n.
uint64_t PowInt(uint64_t x, int64_t n, bool is_unsigned) {
  if (n < 0 && !is_unsigned) {
    if (x == 1) return 1;
    if (x == ~uint64_t{0}) return (n & 1) != 0 ? x : 1;
    return 0;
  }
  auto count = static_cast<uint64_t>(n);
  uint64_t result = 1;
  for (; count != 0; count >>= 1) {
    if ((count & 1) != 0) result *= x;
    x *= x;
  }
  return result;
}

// Truncating quotient and remainder; a zero divisor gives 0, and the most negative number over -1
// wraps.
int64_t DivInt(int64_t x, int64_t y, bool is_unsigned, bool remainder) {
  if (y == 0) return 0;
  if (is_unsigned) {
    const auto a = static_cast<uint64_t>(x);
    const auto b = static_cast<uint64_t>(y);
    return static_cast<int64_t>(remainder ? a % b : a / b);
  }
  if (y == -1) return remainder ? 0 : static_cast<int64_t>(0 - static_cast<uint64_t>(x));
  return remainder ? x % y : x / y;
}

int64_t IntArithmetic(ScalarOp op, bool is_unsigned, int64_t x, int64_t y) {
  const auto a = static_cast<uint64_t>(x);
  const auto b = static_cast<uint64_t>(y);
  const bool less = is_unsigned ? a < b : x < y;
  switch (op) {
    case ScalarOp::kNeg: return static_cast<int64_t>(0 - a);
    case ScalarOp::kAbs: return is_unsigned || x >= 0 ? x : static_cast<int64_t>(0 - a);
    case ScalarOp::kSign: return is_unsigned ? x != 0 : (x > 0) - (x < 0);
    case ScalarOp::kAdd: return static_cast<int64_t>(a + b);
    case ScalarOp::kSub: return static_cast<int64_t>(a - b);
    case ScalarOp::kMul: return static_cast<int64_t>(a * b);
    case ScalarOp::kDiv: return DivInt(x, y, is_unsigned, false);
    case ScalarOp::kFmod: return DivInt(x, y, is_unsigned, true);
    case ScalarOp::kMod: {
      const int64_t r = DivInt(x, y, is_unsigned, true);
      return !is_unsigned && r != 0 && (r < 0) != (y < 0) ? r + y : r;
    }
    case ScalarOp::kPow: return static_cast<int64_t>(PowInt(a, y, is_unsigned));
    case ScalarOp::kMax: return less ? y : x;
    case ScalarOp::kMin: return less ? x : y;
    // As many single shifts: beyond the width nothing is left but copies of the sign. A negative
    // distance counts as such a long one.
    case ScalarOp::kShiftLeft: return b > 63 ? 0 : static_cast<int64_t>(a << b);
    case ScalarOp::kShiftRight:
      if (is_unsigned) return b > 63 ? 0 : static_cast<int64_t>(a >> b);
      return x >> (b > 63 ? 63 : b);
    default: HYPER_CHECK(false, "not an integer operator");
  }
}

}  // namespace

double RoundFloat(DType dtype, double x) {
  switch (dtype) {
    case DType::kF32: return static_cast<float>(x);
    case DType::kF16: return RoundToHalf(x);
    case DType::kBF16: return RoundToBFloat16(x);
    default: return x;
  }
}

int64_t WrapInt(DType dtype, int64_t x) {
  switch (dtype) {
    case DType::kI8: return static_cast<int8_t>(x);
    case DType::kI16: return static_cast<int16_t>(x);
    case DType::kI32: return static_cast<int32_t>(x);
    case DType::kU8: return static_cast<uint8_t>(x);
    case DType::kU16: return static_cast<uint16_t>(x);
    case DType::kU32: return static_cast<uint32_t>(x);
    case DType::kBool: return x != 0 ? 1 : 0;
    default: return x;
  }
}

Scalar CastScalar(DType from, DType to, Scalar x) {
  if (IsFloat(from)) {
    if (IsFloat(to)) return {RoundFloat(to, x.f), 0};
    if (to == DType::kBool) return {0, x.f != 0 ? 1 : 0};
    if (std::isnan(x.f)) return {0, 0};
    const bool is_unsigned = IsUnsigned(to);
    const int bits = static_cast<int>(DTypeBytes(to)) * 8;
    const double t = std::trunc(x.f);
    const double limit = std::ldexp(1.0, is_unsigned ? bits : bits - 1);  // first value above
    if (t >= limit) {
      const uint64_t all = ~uint64_t{0} >> (64 - bits);
      return {0, static_cast<int64_t>(is_unsigned ? all : all >> 1)};
    }
    if (is_unsigned) return {0, t <= 0 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(t))};
    if (t <= -limit) {
      return {0, bits == 64 ? std::numeric_limits<int64_t>::min() : -(int64_t{1} << (bits - 1))};
    }
    return {0, static_cast<int64_t>(t)};
  }
  if (!IsFloat(to)) return {0, WrapInt(to, x.i)};
  if (to == DType::kF32) {  // one rounding, not two by way of double
    return {from == DType::kU64 ? static_cast<float>(static_cast<uint64_t>(x.i))
                                : static_cast<float>(x.i),
            0};
  }
  const double d = from == DType::kU64 ? static_cast<double>(static_cast<uint64_t>(x.i))
                                       : static_cast<double>(x.i);
  return {RoundFloat(to, d), 0};
}

Scalar BitcastScalar(DType from, DType to, Scalar x) {
  uint64_t bits = 0;
  switch (from) {
    case DType::kF64: bits = std::bit_cast<uint64_t>(x.f); break;
    case DType::kF32: bits = std::bit_cast<uint32_t>(static_cast<float>(x.f)); break;
    case DType::kF16: bits = HalfBits(x.f); break;
    case DType::kBF16: bits = BFloat16Bits(x.f); break;
    default: bits = static_cast<uint64_t>(x.i);
  }
  switch (to) {
    case DType::kF64: return {std::bit_cast<double>(bits), 0};
    case DType::kF32: return {std::bit_cast<float>(static_cast<uint32_t>(bits)), 0};
    case DType::kF16: return {HalfToDouble(static_cast<uint16_t>(bits)), 0};
    case DType::kBF16: return {BFloat16ToDouble(static_cast<uint16_t>(bits)), 0};
    default: return {0, WrapInt(to, static_cast<int64_t>(bits))};
  }
}

Scalar EvaluateScalar(ScalarOp op, DType dtype, std::span<const Scalar> args) {
  const bool is_float = IsFloat(dtype);
  if (op == ScalarOp::kSelect) return args[0].i != 0 ? args[1] : args[2];
  if (op == ScalarOp::kIsNan) return {0, std::isnan(args[0].f) ? 1 : 0};
  if (op == ScalarOp::kIsInf) return {0, std::isinf(args[0].f) ? 1 : 0};
  if (op == ScalarOp::kNot) {
    return {0, dtype == DType::kBool ? args[0].i ^ 1 : WrapInt(dtype, ~args[0].i)};
  }
  if (op == ScalarOp::kAnd) return {0, args[0].i & args[1].i};
  if (op == ScalarOp::kOr) return {0, args[0].i | args[1].i};
  if (op == ScalarOp::kXor) return {0, args[0].i ^ args[1].i};
  if (IsComparison(op)) {
    bool result;
    if (is_float) {
      const double x = args[0].f;
      const double y = args[1].f;
      result = CompareOp(op, x<y, x == y, x> y);
    } else {
      const int64_t x = args[0].i;
      const int64_t y = args[1].i;
      const bool less =
          dtype == DType::kU64 ? static_cast<uint64_t>(x) < static_cast<uint64_t>(y) : x < y;
      result = CompareOp(op, less, x == y, !less && x != y);
    }
    return {0, result ? 1 : 0};
  }
  if (InfoOf(op).arity == 1) {
    if (is_float) return {RoundFloat(dtype, UnaryFloat(op, args[0].f)), 0};
    return {0, WrapInt(dtype, IntArithmetic(op, IsUnsigned(dtype), args[0].i, 0))};
  }
  if (is_float) return {RoundFloat(dtype, BinaryFloat(op, args[0].f, args[1].f)), 0};
  return {0, WrapInt(dtype, IntArithmetic(op, IsUnsigned(dtype), args[0].i, args[1].i))};
}

Scalar ElementOf(const HostTensor& tensor, int64_t index) {
  if (IsFloat(tensor.type().dtype)) return {tensor.ElementAsDouble(index), 0};
  return {0, tensor.ElementAsInt(index)};
}

HostTensor TensorOf(TensorType type, std::span<const Scalar> elements) {
  const auto size = static_cast<size_t>(DTypeBytes(type.dtype));
  std::vector<std::byte> data(elements.size() * size);
  for (size_t i = 0; i < elements.size(); ++i) {
    std::byte* to = data.data() + i * size;
    const Scalar& e = elements[i];
    if (type.dtype == DType::kF64) {
      std::memcpy(to, &e.f, size);
    } else if (type.dtype == DType::kF32) {
      const auto x = static_cast<float>(e.f);
      std::memcpy(to, &x, size);
    } else if (IsFloat(type.dtype)) {
      const uint16_t x = type.dtype == DType::kF16 ? HalfBits(e.f) : BFloat16Bits(e.f);
      std::memcpy(to, &x, size);
    } else {
      std::memcpy(to, &e.i, size);  // little endian
    }
  }
  return HostTensor(std::move(type), data);
}

Result<DType> ResultDType(ScalarOp op, std::span<const DType> args) {
  const ScalarOpInfo& info = InfoOf(op);
  const std::string where = "'" + std::string(info.name) + "' ";
  if (info.arity == 0 || op == ScalarOp::kCast || op == ScalarOp::kBitcast) {
    return InvalidArgument(where + "is not a call");
  }
  if (static_cast<int>(args.size()) != info.arity) {
    return InvalidArgument(where + "takes " + std::to_string(info.arity) + " arguments, got " +
                           std::to_string(args.size()));
  }
  const size_t first = op == ScalarOp::kSelect ? 1 : 0;
  if (first == 1 && args[0] != DType::kBool) {
    return InvalidArgument(where + "needs a bool condition, got " +
                           std::string(DTypeName(args[0])));
  }
  const DType dtype = args[first];
  for (size_t i = first + 1; i < args.size(); ++i) {
    if (args[i] != dtype) {
      return InvalidArgument(where + "has arguments of types " + std::string(DTypeName(dtype)) +
                             " and " + std::string(DTypeName(args[i])));
    }
  }
  auto expected = [&](std::string_view what) {
    return InvalidArgument(where + "needs " + std::string(what) + " arguments, got " +
                           std::string(DTypeName(dtype)));
  };
  using Takes = ScalarOpInfo::Takes;
  const bool takes_bool = IsComparison(op) || op == ScalarOp::kSelect;
  switch (info.takes) {
    case Takes::kFloats:
      if (!IsFloat(dtype)) return expected("float");
      break;
    case Takes::kIntegers:
      if (!IsInteger(dtype)) return expected("integer");
      break;
    case Takes::kBits:
      if (IsFloat(dtype)) return expected("bool or integer");
      break;
    case Takes::kNumbers:
      if (dtype == DType::kBool && !takes_bool) return expected("numeric");
      break;
  }
  return info.result == ScalarOpInfo::Result::kBool ? DType::kBool : dtype;
}

}  // namespace hyper::ir
