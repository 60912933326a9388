/* exact.h: functions that are rounded correctly or nearly so: rounding, roots, quotients with a remainder, integer
 * powers. Included by math/math.h. */
#ifndef MYCC_KERNELS_MATH_EXACT_H
#define MYCC_KERNELS_MATH_EXACT_H

#include "kernels/math/float64.h"

namespace mycc {

/* ---- rounding and roots ---- */
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
  vf32 r = to_f32(fma(-q, b, a));
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
/* Python's //, from the remainder as torch does it: every step is rounded to the type of the operands. */
template <class T, class S> MYCC_INLINE T floor_div_float(T x, T y, S zero, S one, S half) {
  T r = fmod(x, y), q = (x - r) / y;
  q = where(logical_and(ne(r, zero), ne(lt(r, zero), lt(y, zero))), q - one, q);
  T f = floor(q);
  f = where(gt(q - f, half), f + one, f);
  f = where(eq(q, zero), copysign(q - q, x / y), f);
  return where(eq(y, zero), x / y, f);
}
#define MYCC_DIVISION(T, S)                                                                                 \
  MYCC_INLINE T floor_div(T x, T y) { return floor_div_float(x, y, S(0), S(1), S(0.5)); }                   \
  MYCC_INLINE T trunc_div(T x, T y) { return trunc(x / y); }
MYCC_DIVISION(vf32, float)
MYCC_DIVISION(float, float)
MYCC_DIVISION(vf64, double)
MYCC_DIVISION(double, double)
#undef MYCC_DIVISION
MYCC_INLINE vf32 remainder(vf32 x, vf32 y) { return remainder_float(x, y, 0.0f); }
MYCC_INLINE vf64 remainder(vf64 x, vf64 y) { return remainder_float(x, y, 0.0); }
MYCC_INLINE float remainder(float x, float y) { return remainder_float(x, y, 0.0f); }
MYCC_INLINE double remainder(double x, double y) { return remainder_float(x, y, 0.0); }
MYCC_MIXED_FLOATS(remainder)
MYCC_MIXED_FLOATS(floor_div)
MYCC_MIXED_FLOATS(trunc_div)

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
  return build<vi32>([=](int i) MYCC_INLINED { return pow(x[i], y[i]); });
}
MYCC_INLINE vi64 pow(vi64 x, vi64 y) {
  return build<vi64>([=](int i) MYCC_INLINED { return pow(x[i], y[i]); });
}
MYCC_MIXED_INTS(pow)

} /* namespace mycc */
#endif /* MYCC_KERNELS_MATH_EXACT_H */
