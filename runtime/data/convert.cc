#include "runtime/data/convert.h"

#include <limits>
#include <type_traits>

#include <fmt/format.h>

namespace hyper::runtime {
namespace {

using ir::DType;

// Half-precision bits, so that the type can be told from uint16_t.
struct Half {
  uint16_t bits;
};

double ToDouble(Half half) {
  const int exponent = half.bits >> 10 & 31;
  const int mantissa = half.bits & 1023;
  double value;
  if (exponent == 0) {
    value = mantissa * 0x1.0p-24;
  } else if (exponent == 31) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else {
    value = (1024 + mantissa) * 0x1.0p-25 * static_cast<double>(int64_t{1} << exponent);
  }
  return (half.bits & 0x8000) != 0 ? -value : value;
}
template <typename T>
double ToDouble(T value) {
  return static_cast<double>(value);
}

template <typename In, typename Out>
bool Convert(const std::byte* in_bytes, int64_t count, const Affine& affine, std::byte* out_bytes) {
  const In* in = reinterpret_cast<const In*>(in_bytes);
  Out* out = reinterpret_cast<Out*>(out_bytes);
  if constexpr (std::is_same_v<Out, bool>) {
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<In, Half>) {
        out[i] = ToDouble(in[i]) != 0;
      } else {
        out[i] = in[i] != In{};
      }
    }
  } else if constexpr (std::is_floating_point_v<Out>) {
    if (affine.IsIdentity()) {
      // Direct, so that an f32 or f64 array arrives bit for bit.
      for (int64_t i = 0; i < count; ++i) {
        if constexpr (std::is_same_v<In, Half>) {
          out[i] = static_cast<Out>(ToDouble(in[i]));
        } else {
          out[i] = static_cast<Out>(in[i]);
        }
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        out[i] = static_cast<Out>(affine.Apply(ToDouble(in[i])));
      }
    }
  } else if constexpr (std::is_integral_v<In>) {
    for (int64_t i = 0; i < count; ++i) {
      if (!std::in_range<Out>(in[i])) return false;
      out[i] = static_cast<Out>(in[i]);
    }
  } else {
    return false;  // FindConversion never hands this out
  }
  return true;
}

// std::in_range refuses bool.
template <typename Out>
bool ConvertBool(const std::byte* in, int64_t count, const Affine& affine, std::byte* out) {
  return Convert<uint8_t, Out>(in, count, affine, out);
}

template <typename Out>
ConvertFunction ForOutput(DType stored) {
  switch (stored) {
    case DType::kF32: return Convert<float, Out>;
    case DType::kF64: return Convert<double, Out>;
    case DType::kF16: return Convert<Half, Out>;
    case DType::kI8: return Convert<int8_t, Out>;
    case DType::kI16: return Convert<int16_t, Out>;
    case DType::kI32: return Convert<int32_t, Out>;
    case DType::kI64: return Convert<int64_t, Out>;
    case DType::kU8: return Convert<uint8_t, Out>;
    case DType::kU16: return Convert<uint16_t, Out>;
    case DType::kU32: return Convert<uint32_t, Out>;
    case DType::kU64: return Convert<uint64_t, Out>;
    case DType::kBool: return ConvertBool<Out>;
    case DType::kBF16: return nullptr;
  }
  return nullptr;
}

}  // namespace

Result<ConvertFunction> FindConversion(DType stored, DType input, const Affine& affine) {
  if (!ir::IsFloat(input)) {
    if (!affine.IsIdentity()) {
      return InvalidArgument(fmt::format("scale, mean and std need a float input, this one is {}",
                                         ir::DTypeName(input)));
    }
    if (ir::IsFloat(stored) && input != DType::kBool) {
      return InvalidArgument(fmt::format("{} data cannot feed an {} input; save it as integers",
                                         ir::DTypeName(stored), ir::DTypeName(input)));
    }
  }
  ConvertFunction function = nullptr;
  switch (input) {
    case DType::kF32: function = ForOutput<float>(stored); break;
    case DType::kF64: function = ForOutput<double>(stored); break;
    case DType::kI64: function = ForOutput<int64_t>(stored); break;
    case DType::kI32: function = ForOutput<int32_t>(stored); break;
    case DType::kU8: function = ForOutput<uint8_t>(stored); break;
    case DType::kBool: function = ForOutput<bool>(stored); break;
    default: break;
  }
  if (function == nullptr) {
    return InvalidArgument(
        fmt::format("{} data cannot feed an {} input; inputs are f32, f64, i64, "
                    "i32, u8 or bool",
                    ir::DTypeName(stored), ir::DTypeName(input)));
  }
  return function;
}

void FillByteTable(DType stored, const Affine& affine, float* table) {
  for (int i = 0; i < 256; ++i) {
    const double value = stored == DType::kI8 ? static_cast<int8_t>(i) : i;
    table[i] = static_cast<float>(affine.Apply(value));
  }
}

}  // namespace hyper::runtime
