// The text that stands once before generated kernels: Philox and vectorisable scalar functions.
// f16 and bf16 are their bits; they convert to float and round to nearest even on the way back.
// Every function is branch-free, so that the host compiler's vectoriser takes the loop around it;
// accuracy is 2-3 ulp (tests/codegen/emit_math_test compares them with the C library).
#include <string>
#include <string_view>

#include "codegen/emit.h"
#include "codegen/emit/kernel_text.h"

namespace hyper::codegen {
namespace {

constexpr std::string_view kBasics = R"TEXT(
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#define HY_INLINE static inline __attribute__((always_inline))
typedef int64_t i64;
HY_INLINE float hy_bits(int32_t x) { return __builtin_bit_cast(float, x); }
HY_INLINE double hy_bits(i64 x) { return __builtin_bit_cast(double, x); }
HY_INLINE int32_t hy_int(float x) { return __builtin_bit_cast(int32_t, x); }
HY_INLINE i64 hy_int(double x) { return __builtin_bit_cast(i64, x); }

HY_INLINE float hy_abs(float x) { return __builtin_fabsf(x); }
HY_INLINE double hy_abs(double x) { return __builtin_fabs(x); }
template <typename T> HY_INLINE T hy_abs(T x) { return x < 0 ? T(-x) : x; }
HY_INLINE float hy_sqrt(float x) { return __builtin_sqrtf(x); }
HY_INLINE double hy_sqrt(double x) { return __builtin_sqrt(x); }
HY_INLINE float hy_floor(float x) { return __builtin_floorf(x); }
HY_INLINE double hy_floor(double x) { return __builtin_floor(x); }
HY_INLINE float hy_ceil(float x) { return __builtin_ceilf(x); }
HY_INLINE double hy_ceil(double x) { return __builtin_ceil(x); }
HY_INLINE float hy_round(float x) { return __builtin_rintf(x); }
HY_INLINE double hy_round(double x) { return __builtin_rint(x); }
HY_INLINE uint32_t hy_word(float x) { return __builtin_bit_cast(uint32_t, x); }
HY_INLINE float hy_float(uint32_t x) { return __builtin_bit_cast(float, x); }
// Rounds to odd: what is rounded to fewer bits afterwards is rounded once.
HY_INLINE float hy_odd(double x) {
  const float f = (float)x;
  const double back = f;
  const uint32_t towards = hy_word(f) - (__builtin_fabs(back) > __builtin_fabs(x) ? 1u : 0u);
  return hy_float(towards | (back != x ? 1u : 0u));
}
struct hy_f16 {
  uint16_t bits;
  hy_f16() = default;
  hy_f16(float x) {
    const uint32_t w = hy_word(x), a = w & 0x7fffffffu, odd = (a >> 13) & 1u;
    const uint32_t subnormal = hy_word(hy_float(a) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (a + 0xc8000fffu + odd) >> 13;
    const uint32_t big = a > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const uint32_t r = a >= 0x477ff000u ? big : a < 0x38800000u ? subnormal : normal;
    bits = (uint16_t)(((w >> 16) & 0x8000u) | r);
  }
  hy_f16(double x) : hy_f16(hy_odd(x)) {}
  template <typename I, I = I(0)> hy_f16(I x) : hy_f16(hy_odd((double)x)) {}
  operator float() const {
    const uint32_t a = bits & 0x7fffu, s = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t finite = hy_word(hy_float(a << 13) * 0x1p112f);
    return hy_float(s | (a >= 0x7c00u ? (a << 13) | 0x7f800000u : finite));
  }
  static hy_f16 of(uint16_t bits) { return __builtin_bit_cast(hy_f16, bits); }
};
struct hy_bf16 {
  uint16_t bits;
  hy_bf16() = default;
  hy_bf16(float x) {
    const uint32_t w = hy_word(x);
    bits = (uint16_t)(x != x ? (w >> 16) | 0x40u : (w + 0x7fffu + ((w >> 16) & 1u)) >> 16);
  }
  hy_bf16(double x) : hy_bf16(hy_odd(x)) {}
  template <typename I, I = I(0)> hy_bf16(I x) : hy_bf16(hy_odd((double)x)) {}
  operator float() const { return hy_float((uint32_t)bits << 16); }
  static hy_bf16 of(uint16_t bits) { return __builtin_bit_cast(hy_bf16, bits); }
};
// Better matches than the templates for integers below.
#define HY_HALF(T) \
  HY_INLINE T hy_abs(T x) { return hy_abs((float)x); } \
  HY_INLINE T hy_floor(T x) { return hy_floor((float)x); } \
  HY_INLINE T hy_ceil(T x) { return hy_ceil((float)x); } \
  HY_INLINE T hy_round(T x) { return hy_round((float)x); } \
  HY_INLINE T hy_fmod(T a, T b) { return std::fmod((float)a, (float)b); }
HY_HALF(hy_f16) HY_HALF(hy_bf16)
template <typename T> HY_INLINE T hy_floor(T x) { return x; }
template <typename T> HY_INLINE T hy_ceil(T x) { return x; }
template <typename T> HY_INLINE T hy_round(T x) { return x; }
// A NaN wins; otherwise the second of equal ones.
template <typename T> HY_INLINE T hy_max(T a, T b) { return (a > b) | (a != a) ? a : b; }
template <typename T> HY_INLINE T hy_min(T a, T b) { return (a < b) | (a != a) ? a : b; }
template <typename T> HY_INLINE T hy_sign(T x) {
  return x > T(0) ? T(1) : x < T(0) ? T(-1) : x;  // keeps zeros and NaN
}
template <typename T> HY_INLINE bool hy_isinf(T x) { return x - x != x - x && x == x; }
HY_INLINE float hy_fmod(float a, float b) { return std::fmod(a, b); }
HY_INLINE double hy_fmod(double a, double b) { return std::fmod(a, b); }
template <typename T> HY_INLINE T hy_fmod(T a, T b) {
  return b == 0 || (T(-1) < T(0) && b == T(-1)) ? T(0) : T(a % b);
}
// Sign of the divisor.
template <typename T> HY_INLINE T hy_mod(T a, T b) {
  const T r = hy_fmod(a, b);
  return r != T(0) && ((r < T(0)) != (b < T(0))) ? T(r + b) : r;
}
template <typename T> HY_INLINE T hy_idiv(T a, T b) {
  return b == 0 ? T(0) : T(-1) < T(0) && b == T(-1) ? T(T(0) - a) : T(a / b);
}
template <typename T> HY_INLINE T hy_ipow(T a, T b) {
  if (b < 0) return a == 1 ? T(1) : a == T(-1) ? (b % 2 != 0 ? T(-1) : T(1)) : T(0);
  uint64_t x = (uint64_t)a, r = 1;  // wraps
  for (; b > 0; b = T(b / 2), x *= x) if (b % 2 != 0) r *= x;
  return T(r);
}
// As many single shifts: a distance beyond the width (or below 0) leaves nothing but the sign.
template <typename T> HY_INLINE T hy_shl(T a, T b) {
  return (uint64_t)b >= sizeof(T) * 8 ? T(0) : T((uint64_t)a << ((uint64_t)b & 63));
}
template <typename T> HY_INLINE T hy_shr(T a, T b) {
  constexpr uint64_t last = sizeof(T) * 8 - 1;
  return (uint64_t)b > last ? (T(-1) < T(0) ? T(a >> last) : T(0)) : T(a >> ((uint64_t)b & last));
}
// Truncates, saturates; NaN gives 0.
template <typename To, typename From> HY_INLINE To hy_toint(From x) {
  constexpr int bits = sizeof(To) * 8;
  constexpr bool is_unsigned = To(-1) > To(0);
  constexpr To high = To(~uint64_t(0) >> (64 - bits + (is_unsigned ? 0 : 1)));
  constexpr From limit = From(uint64_t(1) << (bits - 1)) * (is_unsigned ? 2 : 1);
  const To low = is_unsigned ? To(0) : To(-high - 1);
  const bool over = x >= limit, under = is_unsigned ? x <= From(0) : x < -limit;
  const From inside = (x != x) | over | under ? From(0) : x;
  return over ? high : under ? low : To(inside);
}
HY_INLINE i64 hy_lo(i64 n, i64 task, i64 tasks) { return n / tasks * task + n % tasks * task / tasks; }

// Philox4x32-10: word `e % 4` of block `e / 4`.
struct HyKey { uint32_t k0, k1, s0, s1; };
HY_INLINE HyKey hy_key(i64 seed, i64 step, i64 op_id) {
  const uint64_t k = (uint64_t)seed ^ ((uint64_t)op_id * 0x9E3779B97F4A7C15ull);
  return {(uint32_t)k, (uint32_t)(k >> 32), (uint32_t)(uint64_t)step,
          (uint32_t)((uint64_t)step >> 32)};
}
HY_INLINE void hy_philox(HyKey key, uint64_t block, uint32_t* w) {
  uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = key.s0, c3 = key.s1;
  uint32_t k0 = key.k0, k1 = key.k1;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c0 = n0; c1 = (uint32_t)p1; c2 = n2; c3 = (uint32_t)p0;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  w[0] = c0; w[1] = c1; w[2] = c2; w[3] = c3;
}
HY_INLINE float hy_uniform(HyKey key, uint64_t e) {
  uint32_t w[4];
  hy_philox(key, e >> 2, w);
  const uint32_t i = (uint32_t)e & 3;
  const uint32_t v = i == 0 ? w[0] : i == 1 ? w[1] : i == 2 ? w[2] : w[3];
  return (float)(int32_t)(v >> 8) * 0x1p-24f;
}
// out[j] = draw of element first + j.
static __attribute__((noinline)) void hy_uniform_row(HyKey key, uint64_t first, i64 n, float* out) {
  i64 j = 0;
  for (; j < n && ((first + (uint64_t)j) & 3) != 0; ++j) out[j] = hy_uniform(key, first + (uint64_t)j);
  const uint64_t block = (first + (uint64_t)j) >> 2;
  const i64 blocks = (n - j) / 4;
#pragma omp simd
  for (i64 b = 0; b < blocks; ++b) {
    uint32_t c0 = (uint32_t)(block + (uint64_t)b), c1 = (uint32_t)((block + (uint64_t)b) >> 32);
    uint32_t c2 = key.s0, c3 = key.s1, k0 = key.k0, k1 = key.k1;
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
      const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
      c0 = n0; c1 = (uint32_t)p1; c2 = n2; c3 = (uint32_t)p0;
      k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
    out[j + 4 * b] = (float)(int32_t)(c0 >> 8) * 0x1p-24f;
    out[j + 4 * b + 1] = (float)(int32_t)(c1 >> 8) * 0x1p-24f;
    out[j + 4 * b + 2] = (float)(int32_t)(c2 >> 8) * 0x1p-24f;
    out[j + 4 * b + 3] = (float)(int32_t)(c3 >> 8) * 0x1p-24f;
  }
  for (j += 4 * blocks; j < n; ++j) out[j] = hy_uniform(key, first + (uint64_t)j);
}
)TEXT";

// exp: x = n ln2 + r, Taylor in r (the first neglected term is below 0.1 ulp), two exact scalings
// so that subnormal results round once. log: fdlibm's s = f/(2+f) series.
constexpr std::string_view kExpLog = R"TEXT(
// Horner's rule, highest power first.
template <typename T> HY_INLINE T hy_poly(T, T sum) { return sum; }
template <typename T, typename... Rest> HY_INLINE T hy_poly(T x, T sum, T next, Rest... rest) {
  return hy_poly(x, sum * x + next, rest...);
}
HY_INLINE float hy_exp(float x) {
  const float c = x > 89.0f ? 89.0f : (x < -104.0f ? -104.0f : x);
  const float t = c * 0x1.715476p0f + 0x1.8p23f;
  const float n = t - 0x1.8p23f;
  const int32_t k = hy_int(t) - 0x4B400000;
  const float r = (c - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = hy_poly(r, 0x1.a01a02p-13f, 0x1.6c16c2p-10f, 0x1.111112p-7f, 0x1.555556p-5f,
                       0x1.555556p-3f, 0.5f);
  p = (p * r) * r + r + 1.0f;
  const int32_t h = k >> 1;
  const float y = (p * hy_bits((h + 127) << 23)) * hy_bits((k - h + 127) << 23);
  return x != x ? x : y;
}
HY_INLINE double hy_exp(double x) {
  const double c = x > 710.0 ? 710.0 : (x < -746.0 ? -746.0 : x);
  const double t = c * 0x1.71547652b82fep0 + 0x1.8p52;
  const double n = t - 0x1.8p52;
  const i64 k = hy_int(t) - 0x4338000000000000ll;
  const double r = (c - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
  double p = hy_poly(r, 1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
                        1.0 / 362880.0, 1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0,
                        1.0 / 24.0, 1.0 / 6.0, 0.5);
  p = (p * r) * r + r + 1.0;
  const i64 h = k >> 1;
  const double y = (p * hy_bits((h + 1023) << 52)) * hy_bits((k - h + 1023) << 52);
  return x != x ? x : y;
}
HY_INLINE float hy_log(float x) {
  const bool tiny = x < 0x1p-126f;
  const float v = tiny ? x * 0x1p25f : x;
  const int32_t b = hy_int(v) - 0x3F3504F3;  // sqrt(1/2): the mantissa lies in [0.707, 1.414)
  const int32_t k = b >> 23;
  const float f = hy_bits(hy_int(v) - (k << 23)) - 1.0f;
  const float s = f / (2.0f + f), z = s * s, w = z * z;
  const float t1 = w * (0.40000972152f + w * 0.24279078841f);
  const float t2 = z * (0.66666662693f + w * 0.28498786688f);
  const float hf = 0.5f * f * f;
  const float dk = (float)k - (tiny ? 25.0f : 0.0f);
  const float y = dk * 6.9313812256e-01f - ((hf - (s * (hf + (t1 + t2)) + dk * 9.0580006145e-06f)) - f);
  return x > 0.0f ? (x > 0x1.fffffep127f ? x : y) : (x == 0.0f ? -__builtin_inff() : __builtin_nanf(""));
}
HY_INLINE double hy_log(double x) {
  const bool tiny = x < 0x1p-1022;
  const double v = tiny ? x * 0x1p54 : x;
  const i64 b = hy_int(v) - 0x3FE6A09E667F3BCDll;
  const i64 m = hy_int(v) - (b & (i64)0xFFF0000000000000ull);
  // Exponent as a double without a 64-bit conversion.
  const double e = hy_bits((i64)(((b >> 52) & 0xFFFFFFFFll) ^ 0x4330000080000000ll)) - 0x1.000008p52;
  const double f = hy_bits(m) - 1.0;
  const double s = f / (2.0 + f), z = s * s, w = z * z;
  const double t1 = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const double t2 = z * (6.666666666666735130e-01 + w * (2.857142874366239149e-01 +
                    w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  const double hf = 0.5 * f * f;
  const double dk = e - (tiny ? 54.0 : 0.0);
  const double y = dk * 6.93147180369123816490e-01 -
                   ((hf - (s * (hf + (t1 + t2)) + dk * 1.90821492927058770002e-10)) - f);
  return x > 0.0 ? (x > 0x1.fffffffffffffp1023 ? x : y) : (x == 0.0 ? -__builtin_inf() : __builtin_nan(""));
}
HY_INLINE double hy_log1p(double x) {
  const double u = 1.0 + x, d = u - 1.0;
  const double y = hy_log(u) * (x / (d == 0.0 ? 1.0 : d));
  return d == 0.0 || u > 0x1p1000 ? (d == 0.0 ? x : hy_log(x)) : (x == -1.0 ? -__builtin_inf() : y);
}
HY_INLINE float hy_log1p(float x) { return (float)hy_log1p((double)x); }
HY_INLINE double hy_expm1(double x) {
  const double u = hy_exp(x), d = u - 1.0, l = hy_log(u);
  const double y = d * (x / (l == 0.0 ? 1.0 : l));
  return x > 40.0 ? u : (x < -40.0 ? -1.0 : (u == 1.0 ? x : y));
}
HY_INLINE float hy_expm1(float x) {
  const double a = x, y = hy_exp(a) - 1.0;
  return x != x ? x : (float)(hy_abs(a) < 1e-5 ? a + 0.5 * a * a : y);
}
template <typename T> HY_INLINE T hy_sigmoid(T x) {
  const T z = hy_exp(-hy_abs(x)), r = T(1) / (T(1) + z);
  return x >= T(0) ? r : z * r;
}
HY_INLINE hy_f16 hy_sigmoid(hy_f16 x) { return hy_sigmoid((float)x); }
HY_INLINE hy_bf16 hy_sigmoid(hy_bf16 x) { return hy_sigmoid((float)x); }
)TEXT";

// tanh: Cephes' small-argument forms, 1 - 2/(exp(2x)+1) beyond 0.625. erf: Chebyshev fits of
// erf(x)/x below 1 and of log(erfc(x))/x above (mpmath, 50 digits).
constexpr std::string_view kTanhErf = R"TEXT(
HY_INLINE float hy_tanh(float x) {
  const float a = hy_abs(x), z = x * x;
  const float s = ((((-5.70498872745e-3f * z + 2.06390887954e-2f) * z - 5.37397155531e-2f) * z +
                    1.33314422036e-1f) * z - 3.33332819422e-1f) * z * x + x;
  const float m = a > 20.0f ? 20.0f : a;
  const float l = 1.0f - 2.0f / (hy_exp(2.0f * m) + 1.0f);
  return x != x ? x : (a < 0.625f ? s : __builtin_copysignf(l, x));
}
HY_INLINE double hy_tanh(double x) {
  const double a = hy_abs(x), z = x * x;
  const double p = (-9.64399179425052238628e-1 * z - 9.92877231001918586564e1) * z - 1.61468768441708447952e3;
  const double q = ((z + 1.12811678491632931402e2) * z + 2.23548839060100448583e3) * z + 4.84406305325125486048e3;
  const double s = x + x * z * (p / q);
  const double m = a > 40.0 ? 40.0 : a;
  const double l = 1.0 - 2.0 / (hy_exp(2.0 * m) + 1.0);
  return x != x ? x : (a < 0.625 ? s : __builtin_copysign(l, x));
}
HY_INLINE float hy_erf(float x) {
  const float a = hy_abs(x), z = x * x;
  float s = hy_poly(z, 0.0000787587506268548834f, -0.000801686428716586953f,
                       0.00518908742343397399f, -0.0268542120106264124f, 0.112835947151602177f,
                       -0.37612626666720331f, 0.128379165848350950f);
  s = s * x + x;
  const float m = a > 4.0f ? 4.0f : a, t = m - 2.5f;
  float q = hy_poly(t, 1.16603250045995718e-6f, -0.0000161874430623884478f,
                       0.000119892152198635075f, -0.000720023911550763383f, 0.00396234155063794396f,
                       -0.0207641980234129982f, -0.891981833472406069f, -3.12272614843343719f);
  const float l = a > 4.0f ? 1.0f : 1.0f - hy_exp(q * m);
  return x != x ? x : (a < 1.0f ? s : __builtin_copysignf(l, x));
}
HY_INLINE double hy_erf(double x) {
  const double a = hy_abs(x), z = x * x;
  double s = hy_poly(z, 5.9571761477489114e-11, -1.13728488567916737e-9, 1.46597752740474358e-8,
                        -1.6350312701054695e-7, 1.6461000484121368e-6, -0.0000149255952668311816,
                        0.000120553311116427109, -0.000854832698083378991, 0.00522397762481801447,
                        -0.0268661706450767932, 0.112837916709548787, -0.376126389031837481,
                        0.12837916709551257);
  s = s * x + x;
  const double m1 = a > 2.25 ? 2.25 : a, t1 = m1 - 1.625;
  double q1 = hy_poly(t1, -9.80796821720160476e-10, 2.85150212004003694e-9, -2.26793678975727235e-9,
                          -2.34459614168759337e-8, 1.88653435382174093e-7, -8.89284891059427791e-7,
                          2.94606044124257618e-6, -5.28400601315515169e-6, -0.000015377490093703145,
                          0.000220478864612449674, -0.00146111907489097603, 0.0076443478221698926,
                          -0.0354310325368224529, -0.844209601785584796, -2.36128535617104165);
  const double m2 = a > 6.0 ? 6.0 : a, t2 = m2 - 4.125;
  double q2 = hy_poly(t2, -2.20019359651590362e-13, 1.36412185901984395e-12,
                          -4.39438444317768999e-12, 1.56901597776901576e-11,
                          -2.80827029796601578e-11, -4.19446731146990643e-10,
                          6.50587868656452006e-9, -6.38744288901901958e-8, 5.321204494004572e-7,
                          -4.05065274615034761e-6, 0.0000291002316224182998,
                          -0.000201131120639893087, 0.00135809572429114653, -0.00911790197296684651,
                          -0.937202822514869729, -4.6139497610830265);
  const double l = 1.0 - hy_exp(a < 2.25 ? q1 * m1 : q2 * m2);
  return x != x ? x : (a < 1.0 ? s : __builtin_copysign(l, x));
}
)TEXT";

// Rare functions go to the C library, one call per element.
constexpr std::string_view kLibm = R"TEXT(
#define HY_LIBM(name) \
  HY_INLINE float hy_##name(float x) { return std::name(x); } \
  HY_INLINE double hy_##name(double x) { return std::name(x); }
HY_LIBM(sin) HY_LIBM(cos) HY_LIBM(tan) HY_LIBM(asin) HY_LIBM(acos) HY_LIBM(atan) HY_LIBM(sinh)
HY_LIBM(cosh) HY_LIBM(asinh) HY_LIBM(acosh) HY_LIBM(atanh)
HY_INLINE float hy_pow(float a, float b) { return std::pow(a, b); }
HY_INLINE double hy_pow(double a, double b) { return std::pow(a, b); }
HY_INLINE hy_f16 hy_pow(hy_f16 a, hy_f16 b) { return hy_pow((float)a, (float)b); }
HY_INLINE hy_bf16 hy_pow(hy_bf16 a, hy_bf16 b) { return hy_pow((float)a, (float)b); }
template <typename T> HY_INLINE T hy_pow(T a, T b) { return hy_ipow(a, b); }
)TEXT";

}  // namespace

std::string CpuPrelude() {
  return std::string(kBasics) + std::string(kExpLog) + std::string(kTanhErf) + std::string(kLibm) +
         MatrixPrelude();
}

}  // namespace hyper::codegen
