// IEEE binary16 and bfloat16 as bit patterns, rounded once (to nearest, ties to even) from double.
// Thread safety: pure functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace hyper::ir {

// Rounds to `mantissa_bits` stored bits with the exponent range given (min_exponent: of the least
// normal number). Values past the largest finite one become infinite.
inline double RoundToFormat(double x, int mantissa_bits, int min_exponent, int max_exponent) {
  if (!std::isfinite(x) || x == 0) return x;
  int exponent = std::ilogb(x);
  if (exponent < min_exponent) exponent = min_exponent;  // subnormal: fixed quantum
  const double quantum = std::ldexp(1.0, exponent - mantissa_bits);
  const double rounded = std::nearbyint(x / quantum) * quantum;
  if (std::fabs(rounded) >= std::ldexp(1.0, max_exponent + 1)) return std::copysign(INFINITY, x);
  return std::copysign(rounded, x);
}

inline double RoundToHalf(double x) { return RoundToFormat(x, 10, -14, 15); }
inline double RoundToBFloat16(double x) { return RoundToFormat(x, 7, -126, 127); }

inline uint16_t BFloat16Bits(double x) {
  if (std::isnan(x)) return 0x7fc0;
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(RoundToBFloat16(x))) >>
                               16);
}

inline double BFloat16ToDouble(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t HalfBits(double x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return 0x7e00;
  const double r = std::fabs(RoundToHalf(x));
  if (std::isinf(r)) return static_cast<uint16_t>(sign | 0x7c00);
  if (r == 0) return sign;
  const int exponent = std::ilogb(r);
  if (exponent < -14) return static_cast<uint16_t>(sign | static_cast<int>(std::ldexp(r, 24)));
  const int mantissa = static_cast<int>(std::ldexp(r, 10 - exponent)) - 1024;
  return static_cast<uint16_t>(sign | ((exponent + 15) << 10) | mantissa);
}

inline double HalfToDouble(uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

}  // namespace hyper::ir
