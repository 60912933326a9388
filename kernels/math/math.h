/* math.h: maths for vectors and scalars of float32 (math/float64.h: float64; math/exact.h: rounding, roots, remainders).
 *
 * Within 2 units in the last place (4 for pow, tan and lgamma) over all of float32, subnormal numbers included; NaN,
 * infinities and signed zeros as torch has them. A scalar gives the bits of a vector's lane. Polynomials are named
 * after their row in tests/vec/minimax.py.
 *
 * exp, log, sigmoid, silu, tanh, erf and the gelus are hot and worked out in float32; all others go through float64.
 */
#ifndef MYCC_KERNELS_MATH_MATH_H
#define MYCC_KERNELS_MATH_MATH_H

#include "kernels/vec/vec.h"
#include "kernels/math/float64.h"
#include "kernels/math/exact.h"

namespace mycc {

/* ---- exponentials in float32 ---- */
namespace kernel {

constexpr float LOG2E_F = 0x1.715476p+0f;
/* ln 2 in two parts; the first has few bits, so that its product with an exponent is exact. */
constexpr float LN2_HI = 0x1.62e400p-1f, LN2_LO = 0x1.7f7d1cp-20f;
/* Adding it rounds to an integer and leaves it, with the bias of an exponent, in the low bits. */
constexpr float TO_SCALE_F = 0x1.8p23f + 127;

/* exp(x) + c for |x| < 87. */
MYCC_INLINE vf32 exp_near(vf32 x, float c) {
  vf32 t = isa::fma(x, splat(LOG2E_F), splat(TO_SCALE_F)), n = t - TO_SCALE_F;
  vf32 r = isa::fma(n, splat(-LN2_HI), x);
  r = isa::fma(n, splat(-LN2_LO), r);
  vf32 p = poly(r, 1, 1, 0.49999994f, 0.166665211f, 0.0416682698f, 0.00836868118f, 0.00138204312f); /* exp */
  return isa::fma(p, from_bits(bits(t) << 23), splat(c));
}
/* 1 - 2^x, |x| small enough for a float32 exponent; good for 2^-23 only. */
MYCC_INLINE vf32 one_less_exp2(vf32 x) {
  vf32 t = x + TO_SCALE_F, r = x - (t - TO_SCALE_F);
  vf32 p = poly(r, 1, 0.693147004f, 0.240222469f, 0.0555071086f, 0.00967129413f, 0.00132695679f);
  return isa::fma(-p, from_bits(bits(t) << 23), splat(1.0f));
}
/* Adding it leaves n + 254 in the low bits; halved, each half carries the bias of an exponent. */
constexpr float TO_HALVES_F = 0x1.8p23f + 254;
/* p 2^n for t = n + TO_HALVES_F; with no instruction for it in two steps, of which the first is exact. */
MYCC_INLINE vf32 times_power(vf32 p, vf32 n, vf32 t) {
#if defined(MYCC_AVX512)
  (void)t;
  return isa::scale(p, n);
#else
  (void)n;
  vi32 i = bits(t) >> 1, j = bits(t) - i;
  return p * from_bits(i << 23) * from_bits(j << 23);
#endif
}
/* x / (1 + exp(r) 2^n), t = n + TO_HALVES_F. With n = i + j in halves it is x / (2^-i + 2^j exp(r)) 2^-i, in which
 * nothing overflows and nothing is subnormal before the last step. */
MYCC_INLINE vf32 over_one_plus_exp(vf32 x, vf32 r, vi32 t_bits) {
  vi32 i = t_bits >> 1, j = t_bits - i;
  vf32 down = from_bits((254 << 23) - (i << 23)), up = from_bits(j << 23);
  vf32 p = poly(r, 0.49999994f, 0.166665211f, 0.0416682698f, 0.00836868118f, 0.00138204312f);
  p = isa::fma(r * r, p, r); /* exp, less 1 */
  return x / (up + isa::fma(p, up, down)) * down;
}
/* x / (1 + exp(-y)), y in [-120, 88]. */
MYCC_INLINE vf32 times_logistic(vf32 x, vf32 y) {
  vf32 t = isa::fma(y, splat(-LOG2E_F), splat(TO_HALVES_F)), n = t - TO_HALVES_F;
  vf32 r = isa::fma(n, splat(-LN2_HI), -y);
  return over_one_plus_exp(x, isa::fma(n, splat(-LN2_LO), r), bits(t));
}
/* The rounding error of p = a b. */
MYCC_INLINE vf32 product_error(vf32 a, vf32 b, vf32 p) {
#if defined(MYCC_HAS_FMA)
  return isa::fma(a, b, -p);
#else
  vf32 a1 = from_bits(bits(a) & (int32_t)0xfffff000), a2 = a - a1; /* 12 bits each */
  vf32 b1 = from_bits(bits(b) & (int32_t)0xfffff000), b2 = b - b1;
  return ((a1 * b1 - p) + (a1 * b2 + a2 * b1)) + a2 * b2;
#endif
}
/* a b + c with the product's rounding error made good. */
MYCC_INLINE vf32 fused(vf32 a, vf32 b, vf32 c) {
#if defined(MYCC_HAS_FMA)
  return isa::fma(a, b, c);
#else
  vf32 p = a * b;
  return (p + c) + product_error(a, b, p);
#endif
}
/* f(lower half), f(upper half) in float64. */
template <class F> MYCC_INLINE vf32 through_f64(vf32 x, F f) {
  vf64 d = to_f64(x);
  return to_f32(vf64{f(d.lo), f(d.hi)});
}
template <class F> MYCC_INLINE vf32 through_f64(vf32 x, vf32 y, F f) {
  vf64 a = to_f64(x), b = to_f64(y);
  return to_f32(vf64{f(a.lo, b.lo), f(a.hi, b.hi)});
}

} /* namespace kernel */

MYCC_INLINE vf32 exp(vf32 x) {
  using namespace kernel;
  x = isa::max(splat(-104.0f), isa::min(splat(89.0f), x));
  vf32 t = isa::fma(x, splat(LOG2E_F), splat(TO_HALVES_F)), n = t - TO_HALVES_F;
  vf32 r = isa::fma(n, splat(-LN2_HI), x);
  r = isa::fma(n, splat(-LN2_LO), r);
  vf32 p = poly(r, 1, 1, 0.49999994f, 0.166665211f, 0.0416682698f, 0.00836868118f, 0.00138204312f); /* exp */
  return times_power(p, n, t);
}
MYCC_INLINE vf32 exp2(vf32 x) {
  using namespace kernel;
  x = isa::max(splat(-151.0f), isa::min(splat(129.0f), x));
  vf32 t = x + TO_HALVES_F, n = t - TO_HALVES_F;
  vf32 p = poly(x - n, 1, 0.693147182f, 0.240226477f, 0.0555035993f, 0.00961850584f, 0.00133908074f, 0.00015326454f);
  return times_power(p, n, t); /* exp2 */
}

MYCC_INLINE vf32 sigmoid(vf32 x) {
  return kernel::times_logistic(splat(1.0f), isa::max(splat(-120.0f), isa::min(splat(88.0f), x)));
}
MYCC_INLINE vf32 silu(vf32 x) {
  vf32 y = isa::max(splat(-120.0f), x);
  y = kernel::times_logistic(y, isa::min(splat(88.0f), y));
  return x == -__builtin_inff() ? splat(__builtin_nanf("")) : y; /* -infinity times 0 */
}

MYCC_INLINE vf32 tanh(vf32 x) {
  vf32 a = abs(x), z = x * x;
  vf32 big = 1 - 2 / kernel::exp_near(2 * isa::min(splat(10.0f), a), 1.0f);
  vf32 small = poly(z, -0.333333254f, 0.133330032f, -0.0539227128f, 0.0215780083f, -0.00789590552f, 0.00190421776f);
  small = isa::fma(a * z, small, a); /* tanh_small */
  return copysign(a < 0.7f ? small : big, x);
}

/* A polynomial up to 0.95; above it 1 - 2^Q(|x|), Q = log2(erfc). */
MYCC_INLINE vf32 erf(vf32 x) {
  vf32 a = abs(x), c = isa::min(splat(4.0f), a);
  vf32 q = poly(c, -0.000353044219f, -1.62660253f, -0.919742763f, -0.149521232f, 0.0318656638f, -0.00434039487f,
                0.000277613843f); /* erf_large */
  vf32 big = kernel::one_less_exp2(q);
  vf32 small = poly(x * x, 0.128379151f, -0.376124769f, 0.112815589f, -0.0267557278f, 0.00497580832f,
                    -0.000589773234f); /* erf_small: erf(x)/x - 1 */
  small = isa::fma(a, small, a);
  return copysign(a < 0.95f ? small : big, x);
}

/* ---- through float64 ---- */
MYCC_INLINE vf32 expm1(vf32 x) {
  vf32 r = kernel::through_f64(x, [](hf64 y) MYCC_INLINED { return kernel::exp(y) - 1; });
  return copysign(abs(x) < 0x1p-13f ? isa::fma(x * x, splat(0.5f), x) : r, x);
}
/* log(x) = e ln 2 + log(m), m in [sqrt(1/2), sqrt(2)); what is no normal number above 0 goes through float64. */
MYCC_INLINE vf32 log(vf32 x) {
  const vi32 normal = (vi32)(x >= 0x1p-126f) & (vi32)(x <= 0x1.fffffep127f);
  const vi32 above = bits(x) - 0x3f3504f3; /* beyond sqrt(1/2) */
  const vf32 f = from_bits((above & 0x7fffff) + 0x3f3504f3) - 1.0f, e = to_f32(above >> 23), square = f * f;
  const vf32 p = poly(f, 0.333333313f, -0.250008196f, 0.200012416f, -0.166234076f, 0.14201577f, -0.131596312f,
                      0.127622649f, -0.0763643831f); /* log */
  vf32 r = isa::fma(square * f, p, isa::fma(square, splat(-0.5f), e * kernel::LN2_LO)) + f;
  r = isa::fma(e, splat(kernel::LN2_HI), r);
  if (__builtin_expect(!isa::all(normal), 0)) {
    const vf32 other = kernel::through_f64(x, [](hf64 y) MYCC_INLINED { return kernel::log(y); });
    return normal ? r : other;
  }
  return r;
}
MYCC_INLINE vf32 log2(vf32 x) {
  return kernel::through_f64(x, [](hf64 y) MYCC_INLINED { return kernel::log(y) * kernel::LOG2E; });
}
MYCC_INLINE vf32 log10(vf32 x) {
  return kernel::through_f64(x, [](hf64 y) MYCC_INLINED { return kernel::log(y) * 0x1.bcb7b1526e50ep-2; });
}
/* 1 + x is exact in float64 for |x| >= 2^-29; below 2^-25 log1p(x) = x. */
MYCC_INLINE vf32 log1p(vf32 x) {
  vf32 r = kernel::through_f64(x, [](hf64 y) MYCC_INLINED { return kernel::log(1 + y); });
  return abs(x) < 0x1p-25f ? x : r;
}
MYCC_INLINE vf32 sin(vf32 x) {
  vf32 r = kernel::through_f64(x, [](hf64 y) MYCC_INLINED { return kernel::sin(y); });
  return x == 0 ? x : r;
}
MYCC_INLINE vf32 cos(vf32 x) {
  return kernel::through_f64(x, [](hf64 y) MYCC_INLINED { return kernel::cos(y); });
}
MYCC_INLINE vf32 tan(vf32 x) {
  vf32 r = kernel::through_f64(x, [](hf64 y) MYCC_INLINED { return kernel::tan(y); });
  return x == 0 ? x : r;
}
MYCC_INLINE vf32 atan2(vf32 y, vf32 x) {
  return kernel::through_f64(y, x, [](hf64 a, hf64 b) MYCC_INLINED { return kernel::atan2(a, b); });
}
MYCC_INLINE vf32 atan(vf32 x) {
  return kernel::through_f64(x, [](hf64 y) MYCC_INLINED { return kernel::atan2(y, kernel::all(1)); });
}
MYCC_INLINE vf32 asin(vf32 x) {
  return kernel::through_f64(x, [](hf64 y) MYCC_INLINED {
    return kernel::atan2(y, isa::sqrt((1 - y) * (1 + y)));
  });
}
MYCC_INLINE vf32 acos(vf32 x) {
  return kernel::through_f64(x, [](hf64 y) MYCC_INLINED {
    return kernel::atan2(isa::sqrt((1 - y) * (1 + y)), y);
  });
}
MYCC_INLINE vf32 sinh(vf32 x) {
  vf32 r = kernel::through_f64(x, [](hf64 y) MYCC_INLINED {
    hf64 e = kernel::exp(y), z = y * y;
    hf64 small = y * poly(z, 1, 1.0 / 6, 1.0 / 120, 1.0 / 5040, 1.0 / 362880);
    return z < 0.25 ? small : 0.5 * (e - 1 / e);
  });
  return r;
}
MYCC_INLINE vf32 cosh(vf32 x) {
  return kernel::through_f64(x, [](hf64 y) MYCC_INLINED {
    hf64 e = kernel::exp(y);
    return 0.5 * (e + 1 / e);
  });
}
/* log(1 + d) with d = a + a^2 / (1 + sqrt(a^2 + 1)); near 0, where 1 + d loses digits, the series. */
MYCC_INLINE vf32 asinh(vf32 x) {
  vf32 r = kernel::through_f64(abs(x), [](hf64 a) MYCC_INLINED {
    hf64 z = a * a;
    hf64 small = a * (1 - z * (1.0 / 6));
    hf64 r = a < 0x1p-11 ? small : kernel::log(1 + (a + z / (1 + isa::sqrt(z + 1))));
    return a < __builtin_inf() ? r : a;
  });
  return copysign(r, x);
}
MYCC_INLINE vf32 acosh(vf32 x) {
  return kernel::through_f64(x, [](hf64 y) MYCC_INLINED {
    hf64 d = y - 1;
    hf64 r = kernel::log(1 + (d + isa::sqrt(d * (y + 1))));
    return d < 0 ? kernel::all(__builtin_nan("")) : r;
  });
}
MYCC_INLINE vf32 atanh(vf32 x) {
  vf32 r = kernel::through_f64(abs(x), [](hf64 a) MYCC_INLINED {
    hf64 small = a * (1 + a * a * (1.0 / 3));
    return a < 0x1p-11 ? small : 0.5 * kernel::log((1 + a) / (1 - a));
  });
  return copysign(r, x);
}
MYCC_INLINE vf32 erfc(vf32 x) {
  return kernel::through_f64(x, [](hf64 y) MYCC_INLINED {
    hf64 r = kernel::erfc_positive(from_bits(bits(y) & INT64_MAX));
    return y < 0 ? 2 - r : r;
  });
}
MYCC_INLINE vf32 hypot(vf32 x, vf32 y) {
  vf32 r = kernel::through_f64(x, y, [](hf64 a, hf64 b) MYCC_INLINED { return isa::sqrt(a * a + b * b); });
  vi32 infinite = (vi32)(abs(x) == __builtin_inff()) | (vi32)(abs(y) == __builtin_inff());
  return infinite ? splat(__builtin_inff()) : r;
}
/* Through the C library's float64: its accuracy near the zeros on the left is hard to match, and it is rare. */
MYCC_INLINE float lgamma(float x) { return (float)__builtin_lgamma((double)x); }
MYCC_INLINE vf32 lgamma(vf32 x) {
  return build<vf32>([=](int i) MYCC_INLINED { return lgamma(x[i]); });
}

/* |x|^y = exp(y log |x|); the sign of an odd power, and NaN for a broken power of a negative number. */
MYCC_INLINE vf32 pow(vf32 x, vf32 y) {
  vf32 r = kernel::through_f64(abs(x), y, [](hf64 a, hf64 b) MYCC_INLINED {
    return kernel::exp(b * kernel::log(a));
  });
  r = abs(x) == 1 ? splat(1.0f) : r; /* also for an infinite y, where 0 times infinity stood above */
  vi32 whole = (vi32)(trunc(y) == y);
  vf32 half = 0.5f * y;
  vi32 odd = whole & (vi32)(trunc(half) != half) & (vi32)(abs(y) < 0x1p24f);
  r = from_bits(bits(r) ^ (bits(x) & odd & (int32_t)0x80000000));
  vi32 broken = (vi32)(x < 0) & (vi32)(x > -__builtin_inff()) & ~whole & (vi32)(y == y);
  r = broken ? splat(__builtin_nanf("")) : r;
  r = (vi32)(x != x) | (vi32)(y != y) ? x + y : r;
  return (vi32)(y == 0) | (vi32)(x == 1) ? splat(1.0f) : r;
}

} /* namespace mycc */

#include "kernels/math/gelu.h"

namespace mycc {

/* ---- scalars: the first lane ---- */
#define MYCC_SCALAR(NAME) \
  MYCC_INLINE float NAME(float x) { return NAME(splat(x))[0]; }
#define MYCC_SCALAR2(NAME)                                                                \
  MYCC_INLINE float NAME(float x, float y) { return NAME(splat(x), splat(y))[0]; }        \
  MYCC_MIXED(vf32, NAME, vf32, float)
MYCC_SCALAR(exp)
MYCC_SCALAR(exp2)
MYCC_SCALAR(expm1)
MYCC_SCALAR(log)
MYCC_SCALAR(log2)
MYCC_SCALAR(log10)
MYCC_SCALAR(log1p)
MYCC_SCALAR(sin)
MYCC_SCALAR(cos)
MYCC_SCALAR(tan)
MYCC_SCALAR(asin)
MYCC_SCALAR(acos)
MYCC_SCALAR(atan)
MYCC_SCALAR(sinh)
MYCC_SCALAR(cosh)
MYCC_SCALAR(tanh)
MYCC_SCALAR(asinh)
MYCC_SCALAR(acosh)
MYCC_SCALAR(atanh)
MYCC_SCALAR(erf)
MYCC_SCALAR(erfc)
MYCC_SCALAR(sigmoid)
MYCC_SCALAR(silu)
MYCC_SCALAR(gelu_erf)
MYCC_SCALAR(gelu_tanh)
MYCC_SCALAR2(atan2)
MYCC_SCALAR2(hypot)
MYCC_SCALAR2(pow)
#undef MYCC_SCALAR
#undef MYCC_SCALAR2

} /* namespace mycc */

#include "kernels/math/softmax_weight.h"

#endif /* MYCC_KERNELS_MATH_MATH_H */
