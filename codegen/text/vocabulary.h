// The scalar vocabulary: what bodies of scalar ops are written in, for every target.
//
// This text is put before every generated kernel. A host C++ compiler and NVRTC both accept it, and it includes nothing.
// On the host every function is branch-free f32 code that the compiler vectorises (with -fno-math-errno and
// -fno-trapping-math, never -ffast-math), so an element's value does not depend on where in a vector it stood. Each is accurate
// to a few units in the last place over the whole range; NaN goes through, and infinities and denormal results are right (a card's
// ig_exp has none: it gives 0).
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define IG_FN static __device__ __forceinline__
#define IG_CUDA 1
#else
#define IG_FN static inline __attribute__((always_inline, unused))
#define IG_CUDA 0
#endif

#if defined(__CUDACC_RTC__)
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __INT32_TYPE__ int32_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT64_TYPE__ uint64_t;
#endif

#if IG_CUDA
IG_FN uint32_t ig_bits(float x) { return __float_as_uint(x); }
IG_FN float ig_float(uint32_t u) { return __uint_as_float(u); }
IG_FN uint64_t ig_bits64(double x) { return static_cast<uint64_t>(__double_as_longlong(x)); }
#else
IG_FN uint32_t ig_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
IG_FN float ig_float(uint32_t u) { return __builtin_bit_cast(float, u); }
IG_FN uint64_t ig_bits64(double x) { return __builtin_bit_cast(uint64_t, x); }
IG_FN double ig_double(uint64_t u) { return __builtin_bit_cast(double, u); }
#endif

#define IG_INF ig_float(0x7f800000u)
#define IG_NAN ig_float(0x7fc00000u)

// ---------------------------------------------------------------- storage: what is read from and written to buffers

/// 16-bit storage. Round to nearest even; NaN stays NaN (made quiet).
struct ig_bf16 {
  uint16_t bits;
};
struct ig_f16 {
  uint16_t bits;
};

/// condition ? yes : no by masks: the compiler must not make branches of chains of these.
IG_FN uint32_t ig_choose(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

IG_FN float ig_from_bf16(uint16_t h) { return ig_float(static_cast<uint32_t>(h) << 16); }

// On a card one instruction each; it gives every NaN the same bits.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
IG_FN uint16_t ig_to_bf16(float x) {
  uint16_t h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
#else
IG_FN uint16_t ig_to_bf16(float x) {
  const uint32_t u = ig_bits(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const uint32_t quiet = (u >> 16) | 0x40u;
  return static_cast<uint16_t>(ig_choose((u & 0x7fffffffu) > 0x7f800000u, quiet, rounded));
}
#endif

#if defined(__CUDA_ARCH__)
IG_FN float ig_from_f16(uint16_t h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}
IG_FN uint16_t ig_to_f16(float x) {
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
#else
IG_FN float ig_from_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(h & 0x7fffu) << 13;
  // Normal: move the exponent's bias from 15 to 127. Denormal: the same bits are an integer multiple of 2^-24.
  const uint32_t normal = magnitude + (magnitude >= 0x0f800000u ? 0x70000000u : 0x38000000u);
  const uint32_t denormal = ig_bits(static_cast<float>(static_cast<int32_t>(magnitude >> 13)) * 5.9604644775390625e-8f);
  return ig_float(sign | (magnitude < 0x00800000u ? denormal : normal));
}

IG_FN uint16_t ig_to_f16(float x) {
  const uint32_t u = ig_bits(x);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7fffffffu;
  // Normal: rebias, then round away 13 bits; a carry out of the mantissa is the next exponent, past the largest it is infinity.
  const uint32_t normal = (magnitude - 0x38000000u + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  // Denormal: adding 0.5 makes the unit of the last place 2^-24, so the sum's low bits are the rounded answer.
  const uint32_t denormal = ig_bits(ig_float(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t h = ig_choose(magnitude < 0x38800000u, denormal, normal);
  h = ig_choose(magnitude >= 0x477ff000u, 0x7c00u, h);
  h = ig_choose(magnitude > 0x7f800000u, 0x7e00u, h);
  return static_cast<uint16_t>(sign | h);
}
#endif

IG_FN float ig_load(float x) { return x; }
IG_FN float ig_load(ig_bf16 x) { return ig_from_bf16(x.bits); }
IG_FN float ig_load(ig_f16 x) { return ig_from_f16(x.bits); }
IG_FN int32_t ig_load(int32_t x) { return x; }
IG_FN int64_t ig_load(int64_t x) { return x; }
IG_FN bool ig_load(uint8_t x) { return x != 0; }

/// Rounds a body's value to what is stored: ig_store<T>::from(value).
template <class T>
struct ig_store {
  template <class V>
  IG_FN T from(V v) {
    return static_cast<T>(v);
  }
  IG_FN T from(bool v) { return static_cast<T>(static_cast<int32_t>(v)); }
};
template <>
struct ig_store<ig_bf16> {
  template <class V>
  IG_FN ig_bf16 from(V v) {
    return ig_bf16{ig_to_bf16(static_cast<float>(v))};
  }
};
template <>
struct ig_store<ig_f16> {
  template <class V>
  IG_FN ig_f16 from(V v) {
    return ig_f16{ig_to_f16(static_cast<float>(v))};
  }
};
template <>
struct ig_store<uint8_t> {  // bool
  template <class V>
  IG_FN uint8_t from(V v) {
    return v != V(0) ? uint8_t(1) : uint8_t(0);
  }
};

// ---------------------------------------------------------------- exact operations

IG_FN float ig_abs(float x) { return ig_float(ig_bits(x) & 0x7fffffffu); }
IG_FN int32_t ig_abs(int32_t x) { return x < 0 ? static_cast<int32_t>(0u - static_cast<uint32_t>(x)) : x; }
IG_FN int64_t ig_abs(int64_t x) { return x < 0 ? static_cast<int64_t>(uint64_t(0) - static_cast<uint64_t>(x)) : x; }
IG_FN bool ig_abs(bool x) { return x; }

IG_FN bool ig_isfinite(float x) { return (ig_bits(x) & 0x7fffffffu) < 0x7f800000u; }
IG_FN bool ig_isnan(float x) { return (ig_bits(x) & 0x7fffffffu) > 0x7f800000u; }

/// Maximum and minimum of the operands' common type; NaN if either is NaN.
template <class A, class B>
IG_FN auto ig_max(A a, B b) -> decltype(a + b) {
  typedef decltype(a + b) C;
  const C x = a, y = b;
  return x > y || x != x ? x : y;
}
template <class A, class B>
IG_FN auto ig_min(A a, B b) -> decltype(a + b) {
  typedef decltype(a + b) C;
  const C x = a, y = b;
  return x < y || x != x ? x : y;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
// One instruction each.
IG_FN float ig_max(float x, float y) {
  float v;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(x), "f"(y));
  return v;
}
IG_FN float ig_min(float x, float y) {
  float v;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(x), "f"(y));
  return v;
}
#endif

#if IG_CUDA
IG_FN float ig_sqrt(float x) { return sqrtf(x); }
IG_FN float ig_floor(float x) { return floorf(x); }
IG_FN float ig_rsqrt(float x) { return rsqrtf(x); }  // within 2 units of the last place, in one instruction
/// a / b for b from 1 to 2, within 2 units of the last place.
IG_FN float ig_divide_near(float a, float b) { return __fdividef(a, b); }
#else
IG_FN float ig_sqrt(float x) { return __builtin_sqrtf(x); }
IG_FN float ig_floor(float x) { return __builtin_floorf(x); }
IG_FN float ig_rsqrt(float x) { return 1.0f / ig_sqrt(x); }
IG_FN float ig_divide_near(float a, float b) { return a / b; }
#endif
IG_FN int32_t ig_floor(int32_t x) { return x; }
IG_FN int64_t ig_floor(int64_t x) { return x; }

/// Remainder with the sign of b, as in Python. Integers modulo 0 are 0, floats NaN.
IG_FN int64_t ig_mod(int64_t a, int64_t b) {
  const int64_t divisor = b == 0 || b == -1 ? 1 : b;  // modulo -1 is 0 too, and dividing by it can trap
  const int64_t rest = a % divisor;
  return rest != 0 && (rest < 0) != (divisor < 0) ? rest + divisor : rest;
}
IG_FN int32_t ig_mod(int32_t a, int32_t b) {
  return static_cast<int32_t>(ig_mod(static_cast<int64_t>(a), static_cast<int64_t>(b)));
}
#if IG_CUDA
IG_FN float ig_mod(float a, float b) {
  const float rest = fmodf(a, b);
  return rest != 0.0f && (rest < 0.0f) != (b < 0.0f) ? rest + b : rest;
}
#else
IG_FN float ig_mod(float a, float b) {
  // In double the quotient is off by at most one while it is below 2^52, which the two corrections undo.
  const double x = static_cast<double>(ig_abs(a)), y = static_cast<double>(ig_abs(b));
  double rest = x - __builtin_trunc(x / y) * y;
  rest = rest < 0 ? rest + y : rest;
  rest = rest >= y ? rest - y : rest;
  rest = y > x ? x : rest;  // also an infinite divisor
  rest = a < 0.0f ? -rest : rest;
  return static_cast<float>(rest != 0 && (rest < 0) != (b < 0.0f) ? rest + static_cast<double>(b) : rest);
}
#endif
template <class A, class B>
IG_FN auto ig_mod(A a, B b) -> decltype(a + b) {
  typedef decltype(a + b) C;
  return ig_mod(static_cast<C>(a), static_cast<C>(b));
}

// ---------------------------------------------------------------- exponentials and logarithms

#if IG_CUDA

/// exp(x) = 2^t exp(d) with t near x log2(e) - 1 and d = x - t ln 2, which is ln 2 and what rounding t lost: exp(d) is
/// 2 (1 + d - ln 2). Five instructions where the library has eight; a few units of the last place, and 1 at 0. Cutting d to 0..1
/// touches it only where it is no number or far off, which is where 2^t is 0 or infinite. Below 2^-125: 0.
IG_FN float ig_exp(float x) {
  const float t = fmaf(x, 1.44269502f, -1.0f);
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(t));
  return power * fmaf(__saturatef(fmaf(t, -0.693147182f, x)), 2.0f, 0.613705635f);
}
IG_FN float ig_expm1(float x) { return expm1f(x); }
IG_FN float ig_log(float x) { return logf(x); }
IG_FN float ig_log1p(float x) { return log1pf(x); }
IG_FN float ig_tanh(float x) { return tanhf(x); }
IG_FN float ig_pow(float a, float b) { return powf(a, b); }

#else

/// a * b + c, in one rounding where the machine has such an instruction. Written where it helps: the compiler joins nothing.
IG_FN float ig_mad(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

/// x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits; ln 2 is split so
/// that n times its upper part is exact.
struct ig_reduced {
  float r;
  int32_t n;
};
IG_FN ig_reduced ig_reduce_ln2(float x) {
  const float shifted = ig_mad(x, 1.44269504f, 12582912.0f);
  const float n = shifted - 12582912.0f;
  float r = ig_mad(n, -0.693145751953125f, x);
  r = ig_mad(n, -1.42860682030941723e-6f, r);
  return ig_reduced{r, static_cast<int32_t>(ig_bits(shifted) - 0x4b400000u)};
}
/// 2^n for n in -126..127.
IG_FN float ig_power_of_two(int32_t n) { return ig_float(static_cast<uint32_t>(n + 127) << 23); }

IG_FN float ig_exp(float x) {
  // Past these bounds the answer is infinite or rounds to zero; both comparisons are false for NaN.
  float c = x > 89.0f ? 89.0f : x;
  c = c < -104.0f ? -104.0f : c;
  const ig_reduced v = ig_reduce_ln2(c);
  float q = 1.3926926614e-3f;
  q = ig_mad(q, v.r, 8.36377387441e-3f);
  q = ig_mad(q, v.r, 4.16665501103e-2f);
  q = ig_mad(q, v.r, 1.66665733819e-1f);
  q = ig_mad(q, v.r, 0.5f);
  const float p = 1.0f + ig_mad(v.r * v.r, q, v.r);
  // Two factors: n reaches 128 above and -150 below, and a denormal answer is rounded once, by the second.
  const int32_t half = v.n >> 1;
  return p * ig_power_of_two(half) * ig_power_of_two(v.n - half);
}

IG_FN float ig_expm1(float x) {
  float c = x > 89.0f ? 89.0f : x;
  c = c < -18.0f ? -18.0f : c;
  const ig_reduced v = ig_reduce_ln2(c);
  float q = 1.9891981314e-4f;
  q = ig_mad(q, v.r, 1.39345419283e-3f);
  q = ig_mad(q, v.r, 8.33331002423e-3f);
  q = ig_mad(q, v.r, 4.16664568097e-2f);
  q = ig_mad(q, v.r, 1.66666666825e-1f);
  q = ig_mad(q, v.r, 0.5f);
  const float p = ig_mad(v.r * v.r, q, v.r);
  const float half_scale = ig_power_of_two(v.n - 1);
  return 2.0f * ig_mad(half_scale, p, half_scale - 0.5f);
}

/// log of a positive normal number or denormal, without the special cases. With m in [sqrt(1/2), sqrt(2)), f = m - 1 and
/// s = f / (2 + f): log(1 + f) = f - (f^2/2 - s (f^2/2 + R(s^2))).
IG_FN float ig_log_positive(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const uint32_t u = ig_bits(tiny ? x * 8388608.0f : x);
  const int32_t e = static_cast<int32_t>(u - 0x3f3504f3u) >> 23;
  const float f = ig_float(u - (static_cast<uint32_t>(e) << 23)) - 1.0f;
  const float k = static_cast<float>(tiny ? e - 23 : e);
  const float s = f / (2.0f + f);
  const float z = s * s;
  float p = 2.33534276037e-1f;
  p = ig_mad(p, z, 2.85499685913e-1f);
  p = ig_mad(p, z, 4.0000129427e-1f);
  p = ig_mad(p, z, 6.66666665451e-1f);
  const float half_square = 0.5f * f * f;
  return k * 0.693145751953125f - ((half_square - (s * (half_square + z * p) + k * 1.42860682030941723e-6f)) - f);
}

IG_FN float ig_log(float x) {
  float y = ig_log_positive(x);
  y = x < IG_INF ? y : x;  // +inf and NaN stand for themselves
  y = x == 0.0f ? -IG_INF : y;
  return x < 0.0f ? IG_NAN : y;
}

IG_FN float ig_log1p(float x) {
  const float u = 1.0f + x;
  // What rounding 1 + x lost comes back to first order.
  float y = ig_log_positive(u) - ((u - 1.0f) - x) / u;
  y = x < IG_INF ? y : x;
  y = x == -1.0f ? -IG_INF : y;
  return x < -1.0f ? IG_NAN : y;
}

IG_FN float ig_tanh(float x) {
  const uint32_t sign = ig_bits(x) & 0x80000000u;
  const float magnitude = ig_abs(x);
  const float t = ig_expm1(2.0f * (magnitude > 10.0f ? 10.0f : magnitude));
  return ig_float(ig_bits(t / (t + 2.0f)) | sign);
}

/// a^b through doubles: log2 by the atanh series, then 2^y by Taylor; both better than 1e-12.
IG_FN float ig_pow(float a, float b) {
  const double magnitude = static_cast<double>(ig_abs(a));
  const uint64_t u = ig_bits64(magnitude);
  const int64_t e = static_cast<int64_t>(u - 0x3fe6a09e667f3bcdull) >> 52;
  const double f = ig_double(u - (static_cast<uint64_t>(e) << 52)) - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double p = 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  p = 2.0 * (s + s * z * p);
  double log2 = static_cast<double>(e) + p * 1.4426950408889634;
  log2 = magnitude == 0.0 ? -static_cast<double>(IG_INF) : log2;
  log2 = a - a == 0.0f ? log2 : magnitude;  // infinity and NaN
  double y = log2 * static_cast<double>(b);
  y = y > 400.0 ? 400.0 : y;
  y = y < -400.0 ? -400.0 : y;
  const double shifted = y + 6755399441055744.0;  // 1.5 * 2^52: rounds to an integer
  const double r = (y - (shifted - 6755399441055744.0)) * 0.6931471805599453;
  double q = 1.0 / 479001600;
  q = q * r + 1.0 / 39916800;
  q = q * r + 1.0 / 3628800;
  q = q * r + 1.0 / 362880;
  q = q * r + 1.0 / 40320;
  q = q * r + 1.0 / 5040;
  q = q * r + 1.0 / 720;
  q = q * r + 1.0 / 120;
  q = q * r + 1.0 / 24;
  q = q * r + 1.0 / 6;
  q = q * r + 0.5;
  q = q * r + 1.0;
  q = q * r + 1.0;
  const float scaled = static_cast<float>(q * ig_double((ig_bits64(shifted) + 1023) << 52));
  const bool integral = ig_floor(b) == b;
  const bool odd = integral && ig_floor(b * 0.5f) != b * 0.5f;
  float result = (ig_bits(a) >> 31) != 0 && odd ? -scaled : scaled;
  result = a < 0.0f && !integral && ig_abs(a) < IG_INF ? IG_NAN : result;
  result = ig_abs(a) == 1.0f && ig_abs(b) == IG_INF ? 1.0f : result;
  return b == 0.0f || a == 1.0f ? 1.0f : result;
}

#endif  // host

/// x = q pi/2 + r, on a GPU too, whose own functions keep a table on the stack; the polynomials run in double, and the upper part of pi/2 has 33
/// bits, so that q times it is exact while |x| < 10^6.
struct ig_turned {
  double r;
  uint32_t quadrant;
};
IG_FN ig_turned ig_reduce_half_pi(float x) {
  const double shifted = static_cast<double>(x) * 0.6366197723675814 + 6755399441055744.0;
  const double q = shifted - 6755399441055744.0;
  const double r = (static_cast<double>(x) - q * 1.57079632673412561417) - q * 6.0771005065061922e-11;
  return ig_turned{r, static_cast<uint32_t>(ig_bits64(shifted)) & 3u};
}
/// sin(r + quadrant * pi/2)
IG_FN float ig_sin_turned(double r, uint32_t quadrant) {
  const double z = r * r;
  double s = 1.0 / 39916800;
  s = 1.0 / 362880 - s * z;
  s = 1.0 / 5040 - s * z;
  s = 1.0 / 120 - s * z;
  s = 1.0 / 6 - s * z;
  s = r - r * z * s;
  double c = 1.0 / 479001600;
  c = 1.0 / 3628800 - c * z;
  c = 1.0 / 40320 - c * z;
  c = 1.0 / 720 - c * z;
  c = 1.0 / 24 - c * z;
  c = 1.0 - z * (0.5 - z * c);
  const double v = (quadrant & 1u) != 0 ? c : s;
  return static_cast<float>((quadrant & 2u) != 0 ? -v : v);
}
IG_FN float ig_sin(float x) {
  const ig_turned v = ig_reduce_half_pi(x);
  return ig_sin_turned(v.r, v.quadrant);
}
IG_FN float ig_cos(float x) {
  const ig_turned v = ig_reduce_half_pi(x);
  return ig_sin_turned(v.r, v.quadrant + 1u);
}

/// 1 / (1 + e^-x), from e^-|x| so that neither tail loses digits.
IG_FN float ig_sigmoid(float x) {
  const float e = ig_exp(-ig_abs(x));
  return ig_divide_near(x < 0.0f ? e : 1.0f, 1.0f + e);
}
IG_FN float ig_silu(float x) { return x * ig_sigmoid(x); }
/// log(1 + e^x)
IG_FN float ig_softplus(float x) { return ig_max(x, 0.0f) + ig_log1p(ig_exp(-ig_abs(x))); }
