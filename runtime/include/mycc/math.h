/* math.h: maths for vectors and scalars of float32 (math64.h: float64).
 *
 * Within 2 units in the last place (pow, tan, lgamma: 4) over all of float32, subnormal numbers included; NaN,
 * infinities and signed zeros as torch has them. A scalar gives the bits of a vector's lane. Polynomials are named after
 * their row in tests/vec/minimax.py.
 *
 * exp, sigmoid, silu, tanh, erf and the gelus are hot and worked out in float32 (the arguments of the gelus' exponentials
 * are reduced in float64, which keeps the digits of the left tails); all others go through float64.
 */
#ifndef MYCC_MATH_H
#define MYCC_MATH_H

#include "vec.h"
#include "math64.h"

namespace mycc {

/* ---- exact functions ---- */
#define MYCC_ROUNDING(NAME, MODE, SCALAR)                                                                  \
  MYCC_INLINE vf32 NAME(vf32 x) { return isa::round<isa::MODE>(x); }                                       \
  MYCC_INLINE vf64 NAME(vf64 x) { return {isa::round<isa::MODE>(x.lo), isa::round<isa::MODE>(x.hi)}; }     \
  MYCC_INLINE float NAME(float x) { return __builtin_##SCALAR##f(x); }                                     \
  MYCC_INLINE double NAME(double x) { return __builtin_##SCALAR(x); }
MYCC_ROUNDING(floor, FLOOR, floor)
MYCC_ROUNDING(ceil, CEIL, ceil)
MYCC_ROUNDING(trunc, TRUNC, trunc)
MYCC_ROUNDING(round, NEAREST, nearbyint) /* half to even */
#undef MYCC_ROUNDING

MYCC_INLINE vf32 sqrt(vf32 x) { return isa::sqrt(x); }
MYCC_INLINE vf64 sqrt(vf64 x) { return {isa::sqrt(x.lo), isa::sqrt(x.hi)}; }
MYCC_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
MYCC_INLINE double sqrt(double x) { return __builtin_sqrt(x); }
MYCC_INLINE vf32 reciprocal(vf32 x) { return 1.0f / x; }
MYCC_INLINE vf64 reciprocal(vf64 x) { return 1.0 / x; }
MYCC_INLINE float reciprocal(float x) { return 1.0f / x; }
MYCC_INLINE double reciprocal(double x) { return 1.0 / x; }
template <class T> MYCC_INLINE T rsqrt(T x) { return reciprocal(sqrt(x)); }

/* ---- division with a remainder ---- */
MYCC_INLINE float fmod(float x, float y) { return __builtin_fmodf(x, y); }
inline __attribute__((noinline, cold)) void fmod_lanes(float *x, const float *y) {
  for (int i = 0; i < W; ++i) x[i] = __builtin_fmodf(x[i], y[i]);
}
/* x - trunc(x/y) y is exact in float64 while the quotient has fewer than 28 bits; beyond that, lane by lane. */
MYCC_INLINE vf32 fmod(vf32 x, vf32 y) {
  vf64 a = to_f64(x), b = to_f64(y), q = trunc(a / b);
  vf32 r = to_f32(a - q * b);
  vbool easy = lt(abs(q), 0x1p28) | isnan(q);
  if (__builtin_expect(!all(easy), 0)) {
    float xs[W], ys[W];
    store(xs, x);
    store(ys, y);
    fmod_lanes(xs, ys);
    r = load(xs);
  }
  r = where(isfinite(x) & eq(abs(y), __builtin_inff()), x, r);
  return where(isnan(r), r, copysign(r, x));
}
MYCC_MIXED(vf32, fmod, vf32, float)

/* Python's %: the sign of the divisor. */
template <class T, class S> MYCC_INLINE T remainder_float(T x, T y, S zero) {
  T r = fmod(x, y);
  return where(logical_and(ne(r, zero), ne(lt(r, zero), lt(y, zero))), r + y, r);
}
/* Python's //, computed like torch from the remainder, so that x = floor_div(x, y) y + remainder(x, y) as nearly as it can. */
template <class T, class S> MYCC_INLINE T floor_div_float(T x, T y, S zero, S one, S half) {
  T r = fmod(x, y), q = (x - r) / y;
  q = where(logical_and(ne(r, zero), ne(lt(r, zero), lt(y, zero))), q - one, q);
  T f = floor(q);
  f = where(gt(q - f, half), f + one, f);
  f = where(eq(q, zero), copysign(q - q, x / y), f);
  return where(eq(y, zero), x / y, f);
}
#define MYCC_DIVISIONS(V, S)                                                                               \
  MYCC_INLINE V remainder(V x, V y) { return remainder_float(x, y, (S)0); }                                \
  MYCC_INLINE V floor_div(V x, V y) { return floor_div_float(x, y, (S)0, (S)1, (S)0.5); }                  \
  MYCC_INLINE V trunc_div(V x, V y) { return trunc(x / y); }
MYCC_DIVISIONS(vf32, float)
MYCC_DIVISIONS(vf64, double)
MYCC_DIVISIONS(float, float)
MYCC_DIVISIONS(double, double)
#undef MYCC_DIVISIONS
MYCC_MIXED_FLOATS(remainder)
MYCC_MIXED_FLOATS(floor_div)
MYCC_MIXED_FLOATS(trunc_div)

/* ---- exponentials in float32 ---- */
namespace kernel {

constexpr float LOG2E_F = 0x1.715476p+0f;
/* ln 2 in two parts; the first has few bits, so that its product with an exponent is exact. */
constexpr float LN2_HI = 0x1.62e400p-1f, LN2_LO = 0x1.7f7d1cp-20f;
constexpr float TO_SCALE_F = 0x1.8p23f + 127;

/* exp(x) = p s^2: s^2 is a power of two that may leave the range of float32, s never does. x in [-105, 90]. */
struct scaled {
  vf32 p, s;
};
MYCC_INLINE vf32 exp_wide_poly(vf32 r) {
  return poly(r, 1, 1, 0.500000358f, 0.16666618f, 0.041661229f, 0.00833593495f, 0.00141047814f, 0.000196297944f);
}
MYCC_INLINE scaled exp_scaled(vf32 x) {
  vf32 t = isa::fma(x, splat(LOG2E_F / 2), splat(TO_SCALE_F)), m = t - TO_SCALE_F;
  vf32 r = isa::fma(m, splat(-2 * LN2_HI), x);
  r = isa::fma(m, splat(-2 * LN2_LO), r);
  return {exp_wide_poly(r), from_bits(bits(t) << 23)};
}
/* exp(-|x|), subnormal results too. */
MYCC_INLINE vf32 exp_minus_abs(vf32 x) {
  scaled e = exp_scaled(isa::max(splat(-104.0f), -abs(x)));
  return e.p * e.s * e.s;
}
/* exp(x) for |x| < 87, a little more accurate. */
MYCC_INLINE vf32 exp_near(vf32 x) {
  vf32 t = isa::fma(x, splat(LOG2E_F), splat(TO_SCALE_F)), n = t - TO_SCALE_F;
  vf32 r = isa::fma(n, splat(-LN2_HI), x);
  r = isa::fma(n, splat(-LN2_LO), r);
  vf32 p = poly(r, 1, 1, 0.49999994f, 0.166665211f, 0.0416682698f, 0.00836868118f, 0.00138204312f);
  return p * from_bits(bits(t) << 23);
}
/* exp(-2 q) from q >= 0 in float64, reduced there, the polynomial in float32: as p and s of the above. */
MYCC_INLINE scaled exp_minus_twice(vf64 q) {
  vf64 t = fma(q, splat(-LOG2E), splat(0x1.8p52 + 127)), m = t - (0x1.8p52 + 127); /* exp(-2q) = 2^(2m) exp(r) */
  vf32 h = to_f32(fma(m, splat(LN2), q));                                           /* r = -2 h */
  vf32 p = poly(h, 1, -2, 4 * 0.500000358f, -8 * 0.16666618f, 16 * 0.041661229f, -32 * 0.00833593495f,
                64 * 0.00141047814f, -128 * 0.000196297944f); /* exp_wide */
  return {p, from_bits(narrow(bits(t.lo), bits(t.hi)) << 23)};
}
/* 2^x, |x| small enough for a float32 exponent. */
MYCC_INLINE vf32 exp2_near(vf32 x) {
  vf32 t = x + TO_SCALE_F, r = x - (t - TO_SCALE_F);
  vf32 p = poly(r, 1, 0.693147182f, 0.240226477f, 0.0555035993f, 0.00961850584f, 0.00133908074f, 0.00015326454f);
  return p * from_bits(bits(t) << 23); /* exp2 */
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
  x = isa::max(splat(-104.0f), isa::min(splat(89.0f), x));
  kernel::scaled e = kernel::exp_scaled(x);
  return e.p * e.s * e.s;
}
MYCC_INLINE vf32 exp2(vf32 x) {
  x = isa::max(splat(-151.0f), isa::min(splat(129.0f), x));
  vf32 t = x + 0x1.8p23f, n = t - 0x1.8p23f; /* n = h + (n - h), powers of two within range */
  vi32 i = bits(t) - bits(0x1.8p23f), h = i >> 1;
  vf32 p = kernel::exp2_near(x - n);
  return p * from_bits((h + 127) << 23) * from_bits((i - h + 127) << 23);
}

/* e/(1+e) or 1/(1+e) with e = exp(-|x|): never an overflow, no digits lost on the left. */
MYCC_INLINE vf32 sigmoid(vf32 x) {
  vf32 e = kernel::exp_minus_abs(x);
  return (x < 0 ? e : splat(1.0f)) / (1 + e);
}
MYCC_INLINE vf32 silu(vf32 x) {
  vf32 e = kernel::exp_minus_abs(x);
  return x * (x < 0 ? e : splat(1.0f)) / (1 + e);
}

MYCC_INLINE vf32 tanh(vf32 x) {
  vf32 a = abs(x), z = x * x;
  vf32 e = kernel::exp_near(2 * isa::min(splat(10.0f), a));
  vf32 big = 1 - 2 / (e + 1);
  vf32 small = poly(z, -0.333333254f, 0.133330032f, -0.0539227128f, 0.0215780083f, -0.00789590552f, 0.00190421776f);
  small = isa::fma(a * z, small, a); /* tanh_small */
  return copysign(a < 0.7f ? small : big, x);
}

/* A polynomial up to 0.95; above it 1 - 2^Q(|x|), Q = log2(erfc). */
MYCC_INLINE vf32 erf(vf32 x) {
  vf32 a = abs(x), z = x * x, c = isa::min(splat(4.0f), a);
  vf32 q = poly(c, 0.000263231457f, -1.62959909f, -0.913619101f, -0.156332433f, 0.0363150015f, -0.00604599342f,
                0.000632627343f, -3.0935189e-05f); /* erf_large */
  vf32 big = 1 - kernel::exp2_near(q);
  vf32 small = poly(z, 0.128379166f, -0.376126319f, 0.112836719f, -0.0268581267f, 0.0051978901f, -0.000810707337f,
                    8.21984067e-05f); /* erf_small: erf(x)/x - 1 */
  small = isa::fma(a, small, a);
  return copysign(a < 0.95f ? small : big, x);
}

/* x Phi(x) = max(x, 0) - |x| Phi(-|x|), Phi(-a) = exp(-a^2/2) E(a). */
MYCC_INLINE vf32 gelu_erf(vf32 x) {
  vf32 a = isa::min(splat(14.6f), abs(x));
  vf64 d = to_f64(a);
  kernel::scaled e = kernel::exp_minus_twice(d * d * 0.25);
  vf32 t = (a - 3) / (a + 3);
  vf32 tail = poly(t, 0.121513948f, -0.20640263f, 0.123225018f, -0.0462130271f, 0.00613223482f, 0.00290279416f,
                   -0.000984829268f, -0.000334951328f, 0.000118667725f, 4.96317334e-05f, -3.22795927e-06f); /* phi_tail */
  vf32 g = isa::max(-x, a) * (tail * e.p * e.s) * e.s; /* max: of -infinity the result is NaN */
  return isa::max(splat(0.0f), x) - g;
}
/* 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). */
MYCC_INLINE vf32 gelu_tanh(vf32 x) {
  constexpr double C1 = 0.79788456080286535588, C3 = C1 * 0.044715;
  vf64 d = to_f64(isa::min(splat(10.8f), abs(x)));
  kernel::scaled f = kernel::exp_minus_twice(d * fma(d * d, splat(C3), splat(C1)));
  vf32 e = f.p * f.s * f.s;
  return x * (x < 0 ? e : splat(1.0f)) / (1 + e);
}

/* ---- through float64 ---- */
MYCC_INLINE vf32 expm1(vf32 x) {
  vf32 r = kernel::through_f64(x, [](hf64 y) __attribute__((always_inline)) { return kernel::exp(y) - 1; });
  return abs(x) < 0x1p-13f ? isa::fma(x * x, splat(0.5f), x) : r;
}
MYCC_INLINE vf32 log(vf32 x) { return kernel::through_f64(x, [](hf64 y) __attribute__((always_inline)) { return kernel::log(y); }); }
MYCC_INLINE vf32 log2(vf32 x) {
  return kernel::through_f64(x, [](hf64 y) __attribute__((always_inline)) { return kernel::log(y) * kernel::LOG2E; });
}
MYCC_INLINE vf32 log10(vf32 x) {
  return kernel::through_f64(x, [](hf64 y) __attribute__((always_inline)) { return kernel::log(y) * 0x1.bcb7b1526e50ep-2; });
}
/* 1 + x is exact in float64 for |x| >= 2^-29; below 2^-25 log1p(x) = x. */
MYCC_INLINE vf32 log1p(vf32 x) {
  vf32 r = kernel::through_f64(x, [](hf64 y) __attribute__((always_inline)) { return kernel::log(1 + y); });
  return abs(x) < 0x1p-25f ? x : r;
}
MYCC_INLINE vf32 sin(vf32 x) {
  vf32 r = kernel::through_f64(x, [](hf64 y) __attribute__((always_inline)) { return kernel::sin(y); });
  return x == 0 ? x : r;
}
MYCC_INLINE vf32 cos(vf32 x) { return kernel::through_f64(x, [](hf64 y) __attribute__((always_inline)) { return kernel::cos(y); }); }
MYCC_INLINE vf32 tan(vf32 x) {
  vf32 r = kernel::through_f64(x, [](hf64 y) __attribute__((always_inline)) { return kernel::tan(y); });
  return x == 0 ? x : r;
}
MYCC_INLINE vf32 atan2(vf32 y, vf32 x) {
  return kernel::through_f64(y, x, [](hf64 a, hf64 b) __attribute__((always_inline)) { return kernel::atan2(a, b); });
}
MYCC_INLINE vf32 atan(vf32 x) {
  return kernel::through_f64(x, [](hf64 y) __attribute__((always_inline)) { return kernel::atan2(y, kernel::all(1)); });
}
MYCC_INLINE vf32 asin(vf32 x) {
  return kernel::through_f64(x, [](hf64 y) __attribute__((always_inline)) {
    return kernel::atan2(y, isa::sqrt((1 - y) * (1 + y)));
  });
}
MYCC_INLINE vf32 acos(vf32 x) {
  return kernel::through_f64(x, [](hf64 y) __attribute__((always_inline)) {
    return kernel::atan2(isa::sqrt((1 - y) * (1 + y)), y);
  });
}
MYCC_INLINE vf32 sinh(vf32 x) {
  vf32 r = kernel::through_f64(x, [](hf64 y) __attribute__((always_inline)) {
    hf64 e = kernel::exp(y), z = y * y;
    hf64 small = y * poly(z, 1, 1.0 / 6, 1.0 / 120, 1.0 / 5040, 1.0 / 362880);
    return z < 0.25 ? small : 0.5 * (e - 1 / e);
  });
  return r;
}
MYCC_INLINE vf32 cosh(vf32 x) {
  return kernel::through_f64(x, [](hf64 y) __attribute__((always_inline)) {
    hf64 e = kernel::exp(y);
    return 0.5 * (e + 1 / e);
  });
}
/* log(1 + d) with d = a + a^2 / (1 + sqrt(a^2 + 1)); near 0, where 1 + d loses digits, the series. */
MYCC_INLINE vf32 asinh(vf32 x) {
  vf32 r = kernel::through_f64(abs(x), [](hf64 a) __attribute__((always_inline)) {
    hf64 z = a * a;
    hf64 small = a * (1 - z * (1.0 / 6));
    return a < 0x1p-11 ? small : kernel::log(1 + (a + z / (1 + isa::sqrt(z + 1))));
  });
  return copysign(r, x);
}
MYCC_INLINE vf32 acosh(vf32 x) {
  return kernel::through_f64(x, [](hf64 y) __attribute__((always_inline)) {
    hf64 d = y - 1;
    return kernel::log(1 + (d + isa::sqrt(d * (y + 1))));
  });
}
MYCC_INLINE vf32 atanh(vf32 x) {
  vf32 r = kernel::through_f64(abs(x), [](hf64 a) __attribute__((always_inline)) {
    hf64 small = a * (1 + a * a * (1.0 / 3));
    return a < 0x1p-11 ? small : 0.5 * kernel::log((1 + a) / (1 - a));
  });
  return copysign(r, x);
}
MYCC_INLINE vf32 erfc(vf32 x) {
  return kernel::through_f64(x, [](hf64 y) __attribute__((always_inline)) {
    hf64 r = kernel::erfc_positive(from_bits(bits(y) & INT64_MAX));
    return y < 0 ? 2 - r : r;
  });
}
MYCC_INLINE vf32 hypot(vf32 x, vf32 y) {
  vf32 r = kernel::through_f64(x, y, [](hf64 a, hf64 b) __attribute__((always_inline)) { return isa::sqrt(a * a + b * b); });
  vi32 infinite = (vi32)(abs(x) == __builtin_inff()) | (vi32)(abs(y) == __builtin_inff());
  return infinite ? splat(__builtin_inff()) : r;
}
/* Through the C library's double precision: its accuracy near the zeros on the left is hard to match, and it is rare. */
MYCC_INLINE float lgamma(float x) { return (float)__builtin_lgamma((double)x); }
MYCC_INLINE vf32 lgamma(vf32 x) {
  return build<vf32>([=](int i) __attribute__((always_inline)) { return lgamma(x[i]); });
}

/* |x|^y = exp(y log |x|); the sign of an odd power, and NaN for a broken power of a negative number. */
MYCC_INLINE vf32 pow(vf32 x, vf32 y) {
  vf32 r = kernel::through_f64(abs(x), y, [](hf64 a, hf64 b) __attribute__((always_inline)) {
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

/* ---- integer powers: by squaring, with wraparound; a negative power of an integer is 0 but for 1 and -1 ---- */
template <class T> MYCC_INLINE T pow_int(T x, T y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
  T r = 1;
  for (; y; y >>= 1, x *= x) r = y & 1 ? r * x : r;
  return r;
}
MYCC_INLINE int32_t pow(int32_t x, int32_t y) { return pow_int(x, y); }
MYCC_INLINE int64_t pow(int64_t x, int64_t y) { return pow_int(x, y); }
MYCC_INLINE vi32 pow(vi32 x, vi32 y) {
  return build<vi32>([=](int i) __attribute__((always_inline)) { return pow(x[i], y[i]); });
}
MYCC_INLINE vi64 pow(vi64 x, vi64 y) {
  return build<vi64>([=](int i) __attribute__((always_inline)) { return pow(x[i], y[i]); });
}
MYCC_MIXED_INTS(pow)

/* ---- float64 through the formulas ---- */
#define MYCC_FORMULAS(T)                                                                                   \
  MYCC_INLINE T sigmoid(T x) { return 1.0 / (1.0 + exp(-x)); }                                             \
  MYCC_INLINE T silu(T x) { return x / (1.0 + exp(-x)); }                                                  \
  MYCC_INLINE T gelu_erf(T x) { return 0.5 * x * erfc(x * -0.70710678118654752440); }                      \
  MYCC_INLINE T gelu_tanh(T x) {                                                                           \
    return x / (1.0 + exp(-1.5957691216057307118 * (x + 0.044715 * x * x * x)));                           \
  }
MYCC_FORMULAS(double)
MYCC_FORMULAS(vf64)
#undef MYCC_FORMULAS

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
#endif /* MYCC_MATH_H */
