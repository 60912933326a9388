/* special.h: special functions, an element at a time in float64. For kernels that use them; not in math/math.h.
 *
 * Series and recurrences from the NIST Digital Library of Mathematical Functions (dlmf.nist.gov); the section is named
 * with each. Edges (poles, signs, out of range) are torch's.
 */
#ifndef MYCC_KERNELS_MATH_SPECIAL_H
#define MYCC_KERNELS_MATH_SPECIAL_H

#include "kernels/math/math.h"
#include "kernels/math/polynomials.h"

namespace mycc {
namespace special {

constexpr double PI = 3.14159265358979323846, SQRT_PI = 1.77245385090551602730, EPSILON = 0x1p-53;
MYCC_INLINE double nan() { return __builtin_nan(""); }
MYCC_INLINE double infinity() { return __builtin_inf(); }

/* sin(pi x) and cos(pi x) with an exact reduction. */
inline double sin_pi(double x) {
  const double r = x - 2 * __builtin_floor(0.5 * x + 0.5); /* in [-1, 1) */
  return __builtin_fabs(r) <= 0.5 ? __builtin_sin(PI * r) : __builtin_sin(PI * (r > 0 ? 1 - r : -1 - r));
}
inline double cos_pi(double x) { return sin_pi(x + 0.5); }

/* ---- gamma and its kin (DLMF 5.11, 5.15, 8.11, 25.11) ---- */
inline double digamma(double x) {
  if (x == 0) return __builtin_copysign(infinity(), -x);
  double sum = 0;
  if (x < 0) {
    if (x == __builtin_floor(x)) return nan();
    sum = -PI * cos_pi(x) / sin_pi(x);
    x = 1 - x;
  }
  for (; x < 12; x += 1) sum -= 1 / x;
  const double y = 1 / (x * x);
  const double tail = y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y * (1.0 / 132 -
                      y * (691.0 / 32760 - y * (1.0 / 12)))))));
  return sum + __builtin_log(x) - 0.5 / x - tail;
}

/* Hurwitz's zeta by Euler and Maclaurin: the sum of (q + k)^-s. */
inline double zeta(double s, double q) {
  if (s == 1) return infinity();
  if (s < 1) return nan();
  if (q <= 0) {
    if (q == __builtin_floor(q)) return infinity();
    if (s != __builtin_floor(s)) return nan();
  }
  if (s != s) return nan();
  double sum = 0;
  for (; q < 12; q += 1) {
    const double term = __builtin_pow(q, -s);
    sum += term;
    if (q > 0 && term < EPSILON * sum * 0.01) return sum;
  }
  static const double bernoulli[] = {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6,
                                     -3617.0 / 510, 43867.0 / 798, -174611.0 / 330};
  const double power = __builtin_pow(q, -s);
  sum += power * q / (s - 1) + 0.5 * power;
  double factor = s * power / q / 2; /* s (s+1) .. (s+2j-2) q^(-s-2j+1) / (2j)! */
  for (int j = 0; j < 10; ++j) {
    const double term = bernoulli[j] * factor;
    sum += term;
    if (__builtin_fabs(term) < EPSILON * __builtin_fabs(sum)) break;
    const double a = s + 2 * j + 1;
    factor *= a * (a + 1) / (q * q * (2 * j + 3) * (2 * j + 4));
  }
  return sum == 0 && s > 0x1p44 ? nan() : sum; /* torch multiplies powers of s that overflow by 0 */
}

/* Near its poles, the integers up to 0, what the sine of a pi x that is rounded to T gives, as torch's. */
template <class T> MYCC_INLINE double trigamma(double x) {
  if (__builtin_isinf(x)) return x > 0 ? 0 : nan();
  if (!(x < 0.5)) return zeta(2, x);
  const double sine = __builtin_sin((double)((T)PI * (T)x));
  return PI * PI / (sine * sine) - zeta(2, 1 - x);
}
template <class T> inline double polygamma(double order, double x) {
  if (order == 0) return digamma(x);
  if (order == 1) return trigamma<T>(x);
  const double sign = __builtin_fmod(order, 2) == 0 ? -1 : 1;
  return sign * __builtin_tgamma(order + 1) * zeta(order + 1, x);
}

/* x^a e^-x / Gamma(a) */
inline double gamma_weight(double a, double x) { return __builtin_exp(a * __builtin_log(x) - x - __builtin_lgamma(a)); }

/* Of a large a, at x = a times ratio: the first two terms of Temme's expansion (DLMF 8.12). */
inline double large_incomplete_gamma(double a, double ratio, bool upper) {
  const double from = ratio - 1, root = __builtin_sqrt(2 * (from - __builtin_log1p(from)));
  const double eta = __builtin_copysign(root, from), size = eta * __builtin_sqrt(0.5 * a);
  const double factor = __builtin_fabs(from) < 1e-4 ? -1.0 / 3 : 1 / from - 1 / eta;
  const double rest = __builtin_exp(-size * size) / __builtin_sqrt(2 * PI * a) * factor;
  return upper ? 0.5 * __builtin_erfc(size) + rest : 0.5 * __builtin_erfc(-size) - rest;
}

/* The regularised upper incomplete gamma function where it is near 0, for x <= 1 (DLMF 8.7.3). */
inline double upper_gamma_of_small(double a, double x) {
  double factor = 1, sum = 0;
  for (int n = 1; n < 100; ++n) {
    factor *= -x / n;
    const double term = factor / (a + n);
    sum += term;
    if (__builtin_fabs(term) <= EPSILON * __builtin_fabs(sum)) break;
  }
  const double power = a * __builtin_log(x), beside = __builtin_lgamma(1 + a);
  return -__builtin_expm1(power - beside) - a * __builtin_exp(power - beside) * sum;
}

/* The regularised lower (upper) incomplete gamma function: a series below a + 1, a continued fraction above. */
inline double incomplete_gamma(double a, double x, bool upper) {
  if (x < 0 || a < 0) return nan();
  if (a == 0) return x > 0 ? (upper ? 0 : 1) : nan();
  if (x == 0) return upper ? 1 : 0;
  if (__builtin_isinf(a)) return __builtin_isinf(x) ? nan() : (upper ? 1 : 0);
  if (__builtin_isinf(x)) return upper ? 0 : 1;
  if (a != a || x != x) return nan();
  if (a > 1e9) {
    const double power = a * __builtin_log(x), factor = __builtin_lgamma(a); /* both may overflow: torch's NaN */
    if (x < 0.6 * a && power - factor != power - factor) return nan();
    return large_incomplete_gamma(a, x / a, upper);
  }
  if (!upper && x <= 1 && a < 0x1p-1024) return 0; /* 1 / a is infinite: torch's weight of the series is 0 */
  if (upper && x <= 1 && a < (x > 0.5 ? x : -0.4 / __builtin_log(x))) return upper_gamma_of_small(a, x);
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (double n = a + 1; term > EPSILON * sum; n += 1) sum += term *= x / n;
    const double lower = sum * gamma_weight(a, x);
    return upper ? 1 - lower : lower;
  }
  double b = x + 1 - a, c = 1e300, d = 1 / b, h = d; /* Lentz */
  for (int i = 1; i < 100000; ++i) {
    const double term = -i * (i - a);
    b += 2;
    d = 1 / (term * d + b);
    c = b + term / c;
    h *= d * c;
    if (__builtin_fabs(d * c - 1) < 4 * EPSILON) break;
  }
  const double above = gamma_weight(a, x) * h;
  return upper ? above : 1 - above;
}
inline double igamma(double a, double x) { return incomplete_gamma(a, x, false); }
inline double igammac(double a, double x) { return incomplete_gamma(a, x, true); }

/* ---- the error function's inverse and scaled form (DLMF 7.12, 7.17) ---- */
/* exp(x^2) erfc(x) */
inline double erfcx(double x) {
  if (x < -26.7) return infinity();
  if (x < 10) return __builtin_exp(x * x) * __builtin_erfc(x);
  const double y = 1 / (2 * x * x);
  double term = 1, sum = 1;
  for (int k = 1; k < 40 && __builtin_fabs(term) > EPSILON; ++k) sum += term *= -(2 * k - 1) * y;
  return sum / SQRT_PI / x;
}
/* x >= 0 with erfc(x) = q, 0 < q <= 1: Halley's steps from a closed approximation of logarithm and root. */
inline double erfc_inverse(double q) {
  const double a = 0.147, l = __builtin_log(q * (2 - q)), m = 2 / (PI * a) + 0.5 * l;
  double x = __builtin_sqrt(__builtin_sqrt(m * m - l / a) - m);
  if (q < 1e-290) { /* erfc has few bits or none here: Newton's steps on its logarithm */
    for (int i = 0; i < 4; ++i) {
      const double scaled = erfcx(x);
      x += SQRT_PI / 2 * scaled * (__builtin_log(scaled) - x * x - __builtin_log(q));
    }
    return x;
  }
  for (int i = 0; i < 4; ++i) {
    const double error = x < 0.5 ? 1 - q - __builtin_erf(x) : __builtin_erfc(x) - q;
    const double slope = 2 / SQRT_PI * __builtin_exp(-x * x);
    if (slope == 0) break;
    const double u = -error / slope;
    x -= u / (1 + x * u);
  }
  return x;
}
inline double erfinv(double y) {
  const double size = __builtin_fabs(y);
  if (!(size <= 1)) return nan();
  if (size == 1) return __builtin_copysign(infinity(), y);
  if (size < 1e-8) return y * (SQRT_PI / 2);
  if (size >= 0.5) return __builtin_copysign(erfc_inverse(1 - size), y);
  double x = size * (SQRT_PI / 2);
  for (int i = 0; i < 5; ++i) {
    const double u = (__builtin_erf(x) - size) / (2 / SQRT_PI * __builtin_exp(-x * x));
    x -= u / (1 + x * u);
  }
  return __builtin_copysign(x, y);
}
inline double ndtri(double p) {
  if (!(p >= 0 && p <= 1)) return nan();
  if (p == 0) return -infinity();
  if (p == 1) return infinity();
  const double root2 = 1.41421356237309504880;
  if (p > 0.25 && p < 0.75) return root2 * erfinv(2 * p - 1);
  return p < 0.5 ? -root2 * erfc_inverse(2 * p) : root2 * erfc_inverse(2 * (1 - p));
}

/* ---- Bessel functions (DLMF 10.25, 10.32, 10.40, 9.2) ---- */
/* exp(-x) I_v(x) for x >= 0 and v = 0 or 1. */
inline double scaled_bessel_i(int v, double x) {
  if (x <= 20) {
    const double y = 0.25 * x * x;
    double term = v == 0 ? 1 : 0.5 * x, sum = term;
    for (int k = 1; term > EPSILON * sum; ++k) sum += term *= y / (k * (double)(k + v));
    return sum * __builtin_exp(-x);
  }
  if (__builtin_isinf(x)) return 0;
  double term = 1, sum = 1;
  for (int k = 1; k < 60 && __builtin_fabs(term) > EPSILON; ++k) {
    const double odd = 2 * k - 1;
    sum += term *= -(4.0 * v * v - odd * odd) / (k * 8 * x);
  }
  return sum / (__builtin_sqrt(2 * PI) * __builtin_sqrt(x));
}
inline double i0e(double x) { return x != x ? x : scaled_bessel_i(0, __builtin_fabs(x)); }
inline double i1e(double x) { return x != x ? x : (x < 0 ? -1 : 1) * scaled_bessel_i(1, __builtin_fabs(x)); }
inline double unscaled(double scaled, double x) {
  const double half = __builtin_exp(0.5 * __builtin_fabs(x)); /* in two steps: exp(x) alone is infinite too early */
  return scaled * half * half;
}
inline double i0(double x) { return __builtin_isinf(x) ? nan() : unscaled(i0e(x), x); }
inline double i1(double x) { return __builtin_isinf(x) ? nan() : unscaled(i1e(x), x); }

/* exp(x) K_v(x), the integral of exp(-x (cosh t - 1)) cosh(v t) over t > 0: the trapezoidal rule converges at once. */
inline double scaled_bessel_k(double v, double x) {
  if (x != x || x < 0) return nan();
  if (x == 0) return infinity();
  if (__builtin_isinf(x)) return 0;
  if (0.5 * x == 0) return v == 0 ? infinity() : nan(); /* as torch's, which takes the logarithm of 0 */
  if (v == 1 && x < 1e-100) return 1 / x;
  const double root = __builtin_sqrt(x), narrow = 0.6 / root, h = narrow < 0.15 ? narrow : 0.15;
  double sum = 0.5;
  for (int i = 1;; ++i) {
    const double t = i * h, s = root * __builtin_sinh(0.5 * t), weight = 2 * s * s;
    const double term = __builtin_exp(v * t - weight) * 0.5 * (1 + __builtin_exp(-2 * v * t));
    sum += term;
    if (weight > 1 && term < 0.01 * EPSILON * sum) return sum * h;
  }
}
inline double scaled_k0(double x) { return scaled_bessel_k(0, x); }
inline double scaled_k1(double x) { return scaled_bessel_k(1, x); }
inline double k0(double x) { return scaled_bessel_k(0, x) * __builtin_exp(-x); }
inline double k1(double x) { return scaled_bessel_k(1, x) * __builtin_exp(-x); }
inline double j0(double x) { return __builtin_isinf(x) ? nan() : __builtin_j0(x); }
inline double j1(double x) { return __builtin_isinf(x) ? nan() : __builtin_j1(x); }
inline double y0(double x) { return x == 0 ? -infinity() : x < 0 || __builtin_isinf(x) ? nan() : __builtin_y0(x); }
inline double y1(double x) { return x == 0 ? -infinity() : x < 0 || __builtin_isinf(x) ? nan() : __builtin_y1(x); }
inline double spherical_j0(double x) {
  if (__builtin_isinf(x)) return 0;
  const double y = x * x;
  if (y < 0.01) return 1 - y / 6 * (1 - y / 20 * (1 - y / 42 * (1 - y / 72)));
  return __builtin_sin(x) / x;
}
/* Airy's function: Bessel's K of order 1/3 on the right, its power series to -8, its oscillation beyond. */
inline double airy_ai(double x) {
  if (x != x) return x;
  if (__builtin_isinf(x)) return nan();
  const double z = 2.0 / 3 * __builtin_fabs(x) * __builtin_sqrt(__builtin_fabs(x));
  if (x > 0.5) return __builtin_sqrt(x / 3) / PI * scaled_bessel_k(1.0 / 3, z) * __builtin_exp(-z);
  if (x >= -8) {
    const double cube = x * x * x;
    double f = 1, g = x, sum_f = 1, sum_g = x;
    for (int k = 1; k < 100; ++k) {
      sum_f += f *= cube / ((3 * k - 1) * (3.0 * k));
      sum_g += g *= cube / ((3 * k) * (3.0 * k + 1));
      if (__builtin_fabs(f) + __builtin_fabs(g) < 1e-20) break;
    }
    return 0.35502805388781723926 * sum_f - 0.25881940379280679840 * sum_g;
  }
  double term = 1, even = 1, odd = 0; /* u_k z^-k with alternating signs in pairs */
  for (int k = 1; k < 16; ++k) {
    term *= (6.0 * k - 5) * (6.0 * k - 1) / (72.0 * k * z);
    (k % 2 ? odd : even) += (k / 2 % 2 ? -1 : 1) * term;
  }
  const double phase = z + PI / 4;
  const double wave = __builtin_sin(phase) * even - __builtin_cos(phase) * odd;
  return wave / (SQRT_PI * __builtin_sqrt(__builtin_sqrt(-x)));
}

/* ---- parts of numbers ---- */
inline double frexp_mantissa(double x) {
  int exponent = 0;
  return __builtin_frexp(x, &exponent);
}
inline double frexp_exponent(double x) {
  int exponent = 0;
  if (x - x != 0) return 0;
  (void)__builtin_frexp(x, &exponent);
  return exponent;
}

} /* namespace special */

#define MYCC_SPECIAL1(NAME)                                                           \
  inline double special_##NAME(double x) { return special::NAME(x); }                 \
  inline float special_##NAME(float x) { return (float)special::NAME((double)x); }    \
  inline vf32 special_##NAME(vf32 x) {                                                \
    return build<vf32>([=](int i) MYCC_INLINED { return special_##NAME(x[i]); });     \
  }                                                                                   \
  inline vf64 special_##NAME(vf64 x) {                                                \
    return build<vf64>([=](int i) MYCC_INLINED { return special_##NAME(x[i]); });     \
  }
#define MYCC_SPECIAL2_LANES(NAME)                                                       \
  inline vf32 special_##NAME(vf32 a, vf32 b) {                                          \
    return build<vf32>([=](int i) MYCC_INLINED { return special_##NAME(a[i], b[i]); }); \
  }                                                                                     \
  inline vf64 special_##NAME(vf64 a, vf64 b) {                                          \
    return build<vf64>([=](int i) MYCC_INLINED { return special_##NAME(a[i], b[i]); }); \
  }
#define MYCC_SPECIAL2(NAME)                                                                            \
  inline double special_##NAME(double a, double b) { return special::NAME(a, b); }                     \
  inline float special_##NAME(float a, float b) { return (float)special::NAME((double)a, (double)b); } \
  MYCC_SPECIAL2_LANES(NAME)
/* Of functions whose edges differ between the types that torch computes in. */
#define MYCC_SPECIAL2_OF_TYPE(NAME)                                                          \
  inline double special_##NAME(double a, double b) { return special::NAME<double>(a, b); }   \
  inline float special_##NAME(float a, float b) { return (float)special::NAME<float>(a, b); } \
  MYCC_SPECIAL2_LANES(NAME)
MYCC_SPECIAL1(digamma)
MYCC_SPECIAL1(erfinv)
MYCC_SPECIAL1(ndtri)
MYCC_SPECIAL1(erfcx)
MYCC_SPECIAL1(i0)
MYCC_SPECIAL1(i0e)
MYCC_SPECIAL1(i1)
MYCC_SPECIAL1(i1e)
MYCC_SPECIAL1(k0)
MYCC_SPECIAL1(k1)
MYCC_SPECIAL1(scaled_k0)
MYCC_SPECIAL1(scaled_k1)
MYCC_SPECIAL1(j0)
MYCC_SPECIAL1(j1)
MYCC_SPECIAL1(y0)
MYCC_SPECIAL1(y1)
MYCC_SPECIAL1(spherical_j0)
MYCC_SPECIAL1(airy_ai)
MYCC_SPECIAL1(frexp_mantissa)
MYCC_SPECIAL1(frexp_exponent)
MYCC_SPECIAL2(zeta)
MYCC_SPECIAL2_OF_TYPE(polygamma)
MYCC_SPECIAL2(igamma)
MYCC_SPECIAL2(igammac)
MYCC_SPECIAL2_OF_TYPE(chebyshev_t)
MYCC_SPECIAL2_OF_TYPE(chebyshev_u)
MYCC_SPECIAL2_OF_TYPE(chebyshev_v)
MYCC_SPECIAL2_OF_TYPE(chebyshev_w)
MYCC_SPECIAL2_OF_TYPE(shifted_chebyshev_t)
MYCC_SPECIAL2_OF_TYPE(shifted_chebyshev_u)
MYCC_SPECIAL2_OF_TYPE(shifted_chebyshev_v)
MYCC_SPECIAL2_OF_TYPE(shifted_chebyshev_w)
MYCC_SPECIAL2_OF_TYPE(hermite_h)
MYCC_SPECIAL2_OF_TYPE(hermite_he)
MYCC_SPECIAL2_OF_TYPE(laguerre_l)
MYCC_SPECIAL2_OF_TYPE(legendre_p)
#undef MYCC_SPECIAL1
#undef MYCC_SPECIAL2
#undef MYCC_SPECIAL2_OF_TYPE
#undef MYCC_SPECIAL2_LANES

/* Greatest common divisors. The size of the least integer wraps to itself, as in torch, whose result may be negative. */
template <class T> inline T special_gcd(T a, T b) {
  if (a < 0) a = -a;
  if (b < 0) b = -b;
  while (a != 0) {
    const T rest = a == -1 ? 0 : b % a;
    b = a;
    a = rest;
  }
  return b;
}
inline vi32 special_gcd(vi32 a, vi32 b) {
  return build<vi32>([=](int i) MYCC_INLINED { return special_gcd((int32_t)a[i], (int32_t)b[i]); });
}
inline vi64 special_gcd(vi64 a, vi64 b) {
  return build<vi64>([=](int i) MYCC_INLINED { return special_gcd((int64_t)a[i], (int64_t)b[i]); });
}

/* The neighbour of a towards b, in the type at hand. */
inline double special_nextafter(double a, double b) { return __builtin_nextafter(a, b); }
inline float special_nextafter(float a, float b) { return __builtin_nextafterf(a, b); }
inline vf32 special_nextafter(vf32 a, vf32 b) {
  return build<vf32>([=](int i) MYCC_INLINED { return special_nextafter(a[i], b[i]); });
}
inline vf64 special_nextafter(vf64 a, vf64 b) {
  return build<vf64>([=](int i) MYCC_INLINED { return special_nextafter(a[i], b[i]); });
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_MATH_SPECIAL_H */
