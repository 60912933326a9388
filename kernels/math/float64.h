/* float64.h: maths in double precision. Included by math/math.h.
 *
 * Two layers:
 * - namespace kernel: exp, log, sin, cos, atan, erfc of hf64, good to about 2^-40. The float32 functions that are not
 *   hot go through them: all but the last rounding is out of sight.
 * - the functions of vf64 and double: lane by lane the C library's.
 *
 * The polynomials come from tests/vec/minimax.py (Remez exchange), which prints them by name.
 */
#ifndef MYCC_KERNELS_MATH_FLOAT64_H
#define MYCC_KERNELS_MATH_FLOAT64_H

#include "kernels/vec/vec.h"

namespace mycc {

/* c0 + x (c1 + x (c2 + ..)), each step a fused multiply-add where there is one. */
template <class V> struct lanes_of;
template <> struct lanes_of<vf32> {
  static MYCC_INLINE vf32 all(double c) { return splat((float)c); }
};
template <> struct lanes_of<hf64> {
  static MYCC_INLINE hf64 all(double c) {
    return build_lanes<hf64>([=](int) MYCC_INLINED { return c; }, lower_lanes());
  }
};
template <class V> MYCC_INLINE V poly(V, double c) { return lanes_of<V>::all(c); }
template <class V, class... C> MYCC_INLINE V poly(V x, double c, C... rest) {
  return isa::fma(poly(x, rest...), x, lanes_of<V>::all(c));
}

namespace kernel {

constexpr double LN2 = 0x1.62e42fefa39efp-1, LOG2E = 0x1.71547652b82fep+0;
constexpr double PI = 0x1.921fb54442d18p+1, PI_2 = 0x1.921fb54442d18p+0;
/* Adding 2^52 * 1.5 rounds to an integer and leaves it, with the bias of the exponent, in the low bits. */
constexpr double TO_SCALE = 0x1.8p52 + 1023;

MYCC_INLINE hf64 all(double c) { return lanes_of<hf64>::all(c); }

/* exp(y), y clamped to [-700, 700]: beyond what float32 holds. */
MYCC_INLINE hf64 exp(hf64 y) {
  y = isa::max(all(-700), isa::min(all(700), y));
  hf64 t = isa::fma(y, all(LOG2E), all(TO_SCALE)), n = t - TO_SCALE;
  hf64 r = isa::fma(n, all(-0x1.62e42fee00000p-1), y);
  r = isa::fma(n, all(-0x1.a39ef35793c76p-33), r);
  hf64 p = poly(r, 1, 0x1.fffffffffb920p-1, 0x1.fffffffff72b6p-2, 0x1.5555555d1117fp-3, 0x1.555555740c151p-5,
                0x1.1111028af4b9ep-7, 0x1.6c164e2d71a64p-10, 0x1.a0423d8a3a516p-13, 0x1.a15a0ecf06108p-16,
                0x1.4d2a3cd69e62ep-19); /* exp_f64 */
  return p * from_bits(bits(t) << 52);
}

/* log(x) for x >= 0 that is not subnormal as a double (every float32 is not); NaN below 0. */
MYCC_INLINE hf64 log(hf64 x) {
  constexpr int64_t ROOT_HALF = 0x3fe6a09e667f3bcd;
  hi64 u = bits(x) - ROOT_HALF; /* the exponent of x relative to sqrt(1/2), sign included, is u >> 52 */
  hi64 e = (hi64)((hu64)(u + (INT64_C(1024) << 52)) >> 52);
  hf64 n = from_bits(e | 0x4330000000000000) - (0x1p52 + 1024);
  hf64 m = from_bits((u & 0x000fffffffffffff) + ROOT_HALF); /* in [sqrt(1/2), sqrt(2)) */
  hf64 s = (m - 1) / (m + 1), z = s * s;
  hf64 p = poly(z, 1, 0x1.555555555395fp-2, 0x1.999999a29507fp-3, 0x1.24924176a2e4cp-3, 0x1.c72278b84194bp-4,
                0x1.732c0fdcbe163p-4, 0x1.587892143578ap-4); /* log_f64: atanh(s) / s */
  hf64 r = isa::fma(n, all(LN2), 2 * s * p);
  r = x < __builtin_inf() ? r : x; /* infinity, NaN */
  return x > 0 ? r : (x == 0 ? all(-__builtin_inf()) : all(__builtin_nan("")));
}

/* sin and cos of r in [-pi/4, pi/4]. */
MYCC_INLINE hf64 sin_reduced(hf64 r) {
  hf64 z = r * r;
  return r * poly(z, 1, -0x1.5555555554ce3p-3, 0x1.1111110e43a8ap-7, -0x1.a019fa4208f26p-13, 0x1.71d785f23753dp-19,
                  -0x1.a95097e1e8fd8p-26); /* sin_f64 */
}
MYCC_INLINE hf64 cos_reduced(hf64 r) {
  return poly(r * r, 1, -0x1.fffffffffc92ap-2, 0x1.5555554c3ce62p-5, -0x1.6c16b5772c026p-10, 0x1.a00f1fb6b906bp-16,
              -0x1.23c5dbc491055p-22); /* cos_f64 */
}

/* x = n pi/2 + r for the huge float32 values (2^22 and more) among W/2 doubles: Payne and Hanek's reduction. Only those
 * bits of 2/pi count that the product with x does not shift beyond a multiple of 4. */
inline __attribute__((noinline, cold)) void reduce_huge(const double *x, double *n, double *r) {
  static const uint32_t TWO_OVER_PI[] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                         0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561, 0xb7246e3a};
  for (int i = 0; i < W / 2; ++i) {
    double a = __builtin_fabs(x[i]);
    if (!(a >= 0x1p22 && a < __builtin_inf())) continue;
    int64_t b = bits(a);
    int e = (int)(b >> 52) - 1023 - 23; /* a = m * 2^e with a 24-bit integer m */
    uint64_t m = (uint64_t)((b & 0x000fffffffffffff) | 0x0010000000000000) >> 29;
    int first = e - 2 + 32, word = first >> 5, shift = first & 31;
    unsigned __int128 window = 0; /* 128 bits of 2/pi * 2^e, from the one worth 2 on */
    for (int k = 0; k < 4; ++k) window = window << 32 | TWO_OVER_PI[word + k];
    if (shift) window = window << shift | TWO_OVER_PI[word + 4] >> (32 - shift);
    unsigned __int128 product = window * m;
    int quadrant = (int)(product >> 126);
    int64_t fraction = (int64_t)(uint64_t)(product >> 62); /* of a quadrant, scaled by 2^64; signed: nearest quadrant */
    quadrant += fraction < 0;
    double rest = (double)fraction * (0x1p-64 * PI_2);
    n[i] = x[i] < 0 ? -quadrant : quadrant;
    r[i] = x[i] < 0 ? -rest : rest;
  }
}

struct reduced {
  hf64 n, r; /* x = n pi/2 + r, n an integer in its low bits only */
};
/* x holds float32 values. pi/2 in three parts, the first two of 29 bits, so that n times them is exact. */
MYCC_INLINE reduced reduce_angle(hf64 x) {
  hf64 n = isa::round<isa::NEAREST>(x * (1 / PI_2));
  hf64 r = isa::fma(n, all(-0x1.921fb54p+0), x);
  r = isa::fma(n, all(-0x1.10b4611p-30), r);
  r = isa::fma(n, all(-0x1.4c4c6628b80dcp-59), r);
  hi64 huge = (hi64)((hf64)(bits(x) & 0x7fffffffffffffff) >= 0x1p22);
  if (__builtin_expect(isa::any((vi32)huge), 0)) {
    double xs[W / 2], ns[W / 2], rs[W / 2];
    __builtin_memcpy(xs, &x, sizeof x);
    __builtin_memcpy(ns, &n, sizeof n);
    __builtin_memcpy(rs, &r, sizeof r);
    reduce_huge(xs, ns, rs);
    __builtin_memcpy(&n, ns, sizeof n);
    __builtin_memcpy(&r, rs, sizeof r);
    r = x - x == 0 ? r : x - x; /* sin(inf) is NaN */
    n = x - x == 0 ? n : hf64{};
  }
  return {n, r};
}
/* Quadrants as integers: adding 2^52 * 1.5 leaves n mod 2^51 in the low bits. */
MYCC_INLINE hi64 quadrant(hf64 n) { return bits(n + 0x1.8p52); }
MYCC_INLINE hf64 sin(hf64 x) {
  reduced a = reduce_angle(x);
  hi64 q = quadrant(a.n);
  hf64 v = (q & 1) != 0 ? cos_reduced(a.r) : sin_reduced(a.r);
  return from_bits(bits(v) ^ (q << 62 & INT64_MIN));
}
MYCC_INLINE hf64 cos(hf64 x) {
  reduced a = reduce_angle(x);
  hi64 q = quadrant(a.n);
  hf64 v = (q & 1) != 0 ? sin_reduced(a.r) : cos_reduced(a.r);
  return from_bits(bits(v) ^ ((q + 1) << 62 & INT64_MIN));
}
MYCC_INLINE hf64 tan(hf64 x) {
  reduced a = reduce_angle(x);
  hf64 s = sin_reduced(a.r), c = cos_reduced(a.r);
  hi64 odd = (hi64)((quadrant(a.n) & 1) != 0);
  return odd ? -c / s : s / c;
}

/* The angle of (x, y) in [-pi, pi], as C's atan2 has it for zeros and infinities. */
MYCC_INLINE hf64 atan2(hf64 y, hf64 x) {
  constexpr int64_t SIGN = INT64_MIN, REST = INT64_MAX;
  hf64 ax = from_bits(bits(x) & REST), ay = from_bits(bits(y) & REST);
  hi64 swap = (hi64)(ay > ax);
  hf64 top = swap ? ax : ay, bottom = swap ? ay : ax; /* top <= bottom */
  hi64 both = (hi64)(top == bottom);                  /* 0/0 and inf/inf: they are told by sign only */
  /* atan(t) = pi/4 + atan((t - 1) / (t + 1)) brings t down to tan(pi/8). */
  hi64 folded = (hi64)(top > bottom * 0x1.a827999fcef32p-2);
  hf64 num = folded ? top - bottom : top, den = folded ? top + bottom : bottom;
  hf64 s = num / den, z = s * s;
  hf64 a = s * poly(z, 1, -0x1.555555550d5b4p-2, 0x1.9999992d8ef4fp-3, -0x1.24922d5e7cbcap-3, 0x1.c71582dad6b12p-4,
                    -0x1.73e1a59c05f44p-4, 0x1.3601d1589e75fp-4, -0x1.e297e7d2d294cp-5, 0x1.fa2c3836e05c3p-6);
  a = folded ? a + PI / 4 : a; /* atan_f64 */
  a = both ? (top == 0 ? hf64{} : all(PI / 4)) : a;
  a = swap ? PI_2 - a : a;
  a = (hi64)(bits(x) < 0) ? PI - a : a;
  a = from_bits((bits(a) & REST) | (bits(y) & SIGN));
  return (hi64)(x != x) | (hi64)(y != y) ? x + y : a;
}

/* erfc(a) for a >= 0. */
MYCC_INLINE hf64 erfc_positive(hf64 a) {
  a = isa::min(all(10.1), a); /* erfc(10.1) is below half the smallest float32 */
  hf64 t = (a - 2) / (a + 2);
  hf64 p = poly(t, 0x1.058671b568ff0p-2, -0x1.b57034f42001bp-2, 0x1.eeea7d9194dd8p-3, -0x1.437f07e339e99p-4,
                0x1.e9482acd501e5p-9, 0x1.ca92cf45e56c0p-8, -0x1.bc4a9c75af0f2p-11, -0x1.0121701ce7a88p-10,
                0x1.7852144d96612p-15, 0x1.671b3021f0203p-13, 0x1.90da512f2a86ap-16, -0x1.8a7e3347f1ad7p-16,
                -0x1.1a99c150a184ap-17); /* erfcx_f64 */
  return exp(-(a * a)) * p;
}

} /* namespace kernel */

/* ---- double precision, lane by lane through the C library ---- */
#define MYCC_LIBM(NAME, FUNCTION)                                                                           \
  MYCC_INLINE double NAME(double x) { return FUNCTION(x); }                                                 \
  MYCC_INLINE vf64 NAME(vf64 x) {                                                                           \
    return build<vf64>([=](int i) MYCC_INLINED { return FUNCTION(x[i]); });               \
  }
#define MYCC_LIBM2(NAME, FUNCTION)                                                                          \
  MYCC_INLINE double NAME(double x, double y) { return FUNCTION(x, y); }                                    \
  MYCC_INLINE vf64 NAME(vf64 x, vf64 y) {                                                                   \
    return build<vf64>([=](int i) MYCC_INLINED { return FUNCTION(x[i], y[i]); });         \
  }                                                                                                         \
  MYCC_MIXED(vf64, NAME, vf64, double)
MYCC_LIBM(exp, __builtin_exp)
MYCC_LIBM(exp2, __builtin_exp2)
MYCC_LIBM(expm1, __builtin_expm1)
MYCC_LIBM(log, __builtin_log)
MYCC_LIBM(log2, __builtin_log2)
MYCC_LIBM(log10, __builtin_log10)
MYCC_LIBM(log1p, __builtin_log1p)
MYCC_LIBM(sin, __builtin_sin)
MYCC_LIBM(cos, __builtin_cos)
MYCC_LIBM(tan, __builtin_tan)
MYCC_LIBM(asin, __builtin_asin)
MYCC_LIBM(acos, __builtin_acos)
MYCC_LIBM(atan, __builtin_atan)
MYCC_LIBM(sinh, __builtin_sinh)
MYCC_LIBM(cosh, __builtin_cosh)
MYCC_LIBM(tanh, __builtin_tanh)
MYCC_LIBM(asinh, __builtin_asinh)
MYCC_LIBM(acosh, __builtin_acosh)
MYCC_LIBM(atanh, __builtin_atanh)
MYCC_LIBM(erf, __builtin_erf)
MYCC_LIBM(erfc, __builtin_erfc)
MYCC_LIBM(lgamma, __builtin_lgamma)
MYCC_LIBM2(pow, __builtin_pow)
MYCC_LIBM2(atan2, __builtin_atan2)
MYCC_LIBM2(hypot, __builtin_hypot)
MYCC_LIBM2(fmod, __builtin_fmod)
#undef MYCC_LIBM
#undef MYCC_LIBM2

/* ---- and through formulas ---- */
#define MYCC_FORMULAS(T)                                                                                   \
  MYCC_INLINE T sigmoid(T x) { return 1.0 / (1.0 + exp(-x)); }                                             \
  MYCC_INLINE T silu(T x) { return x / (1.0 + exp(-x)); }                                                  \
  MYCC_INLINE T gelu_erf(T x) { return 0.5 * x * erfc(x * -0.70710678118654752440); }                      \
  MYCC_INLINE T gelu_tanh(T x) {                                                                           \
    return x / (1.0 + exp(-1.5957691216057307118 * fma(0.044715 * x * x, x, x)));                          \
  }
MYCC_FORMULAS(double)
MYCC_FORMULAS(vf64)
#undef MYCC_FORMULAS

} /* namespace mycc */
#endif /* MYCC_KERNELS_MATH_FLOAT64_H */
