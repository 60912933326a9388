/* polynomials.h: orthogonal polynomials by their recurrences (DLMF 18.9), an element at a time in float64. Included
 * by math/special.h.
 *
 * Edges are torch's: a degree that is negative, or too large for an integer of 64 bits, gives 0, and a broken one is
 * cut. A step that overflows T, the type that torch computes in, is infinite, so that a later one is NaN.
 */
#ifndef MYCC_KERNELS_MATH_POLYNOMIALS_H
#define MYCC_KERNELS_MATH_POLYNOMIALS_H

#include "kernels/math/math.h"

namespace mycc {
namespace special {

/* Steps of a recurrence: behind them only rounding errors are left of those in floats. */
constexpr int64_t MOST_STEPS = 1000000;
/* The largest degrees of Hermite's polynomials in torch. */
template <class T> constexpr int64_t MOST_HERMITE = sizeof(T) == 4 ? 128 : 512;

/* x, infinite where T holds no number of its size. */
template <class T> MYCC_INLINE double within(double x) {
  const T rounded = (T)x;
  return __builtin_isinf(rounded) ? (double)rounded : x;
}

MYCC_INLINE bool has_degree(double degree) { return degree > -1 && degree < 0x1p63; }

/* The polynomial of degree n >= 0 where those of degrees 0 and 1 are 1 and `first`; step(now, before, k): the one behind
 * degree k. */
template <class T, class Step> MYCC_INLINE double recurrence(int64_t n, double first, Step step) {
  double before = 1, now = within<T>(first);
  if (n == 0) return before;
  for (int64_t k = 1; k < n && k < MOST_STEPS && now == now; ++k) {
    const double next = within<T>(step(now, before, (double)k));
    before = now;
    now = next;
  }
  return now;
}

/* ---- Chebyshev's of the four kinds (DLMF 18.5: closed forms inside of [-1, 1], and at its ends) ---- */
constexpr int64_t MOST_CHEBYSHEV_STEPS = 8; /* inside of [-1, 1] */

enum class Chebyshev { t, u, v, w };

/* At 1; at -1 of the kind whose ends are mirrored, up to the sign of an odd degree. */
template <Chebyshev KIND> MYCC_INLINE double chebyshev_end(bool right, double n) {
  if constexpr (KIND == Chebyshev::t) return 1;
  if constexpr (KIND == Chebyshev::u) return n + 1;
  return right == (KIND == Chebyshev::w) ? 2 * n + 1 : 1;
}
template <Chebyshev KIND> MYCC_INLINE double chebyshev_inside(double x, double n) {
  const double angle = __builtin_acos(x);
  if constexpr (KIND == Chebyshev::t) return __builtin_cos(n * angle);
  if constexpr (KIND == Chebyshev::u) return __builtin_sin((n + 1) * angle) / __builtin_sin(angle);
  if constexpr (KIND == Chebyshev::v) return __builtin_cos((n + 0.5) * angle) / __builtin_cos(0.5 * angle);
  return __builtin_sin((n + 0.5) * angle) / __builtin_sin(0.5 * angle);
}
template <class T, Chebyshev KIND> MYCC_INLINE double chebyshev(double x, double degree) {
  if (!has_degree(degree)) return 0;
  const int64_t n = (int64_t)degree;
  const double size = __builtin_fabs(x);
  if (size == 1) {
    const double end = chebyshev_end<KIND>(x > 0, (double)n);
    return x > 0 || n % 2 == 0 ? end : -end;
  }
  if (size < 1 && n > MOST_CHEBYSHEV_STEPS) return chebyshev_inside<KIND>(x, (double)n);
  constexpr double shift = KIND == Chebyshev::v ? -1 : KIND == Chebyshev::w ? 1 : 0;
  const double first = KIND == Chebyshev::t ? x : 2 * x + shift;
  return recurrence<T>(n, first, [=](double now, double before, double) { return within<T>(2 * x * now) - before; });
}
template <class T> inline double chebyshev_t(double x, double n) { return chebyshev<T, Chebyshev::t>(x, n); }
template <class T> inline double chebyshev_u(double x, double n) { return chebyshev<T, Chebyshev::u>(x, n); }
template <class T> inline double chebyshev_v(double x, double n) { return chebyshev<T, Chebyshev::v>(x, n); }
template <class T> inline double chebyshev_w(double x, double n) { return chebyshev<T, Chebyshev::w>(x, n); }
template <class T> inline double shifted_chebyshev_t(double x, double n) { return chebyshev_t<T>(2 * x - 1, n); }
template <class T> inline double shifted_chebyshev_u(double x, double n) { return chebyshev_u<T>(2 * x - 1, n); }
template <class T> inline double shifted_chebyshev_v(double x, double n) { return chebyshev_v<T>(2 * x - 1, n); }
template <class T> inline double shifted_chebyshev_w(double x, double n) { return chebyshev_w<T>(2 * x - 1, n); }

/* ---- Hermite's, Laguerre's and Legendre's ---- */
template <class T, class Step> MYCC_INLINE double hermite(double degree, double first, Step step) {
  if (!has_degree(degree)) return 0;
  const int64_t n = (int64_t)degree;
  return n > MOST_HERMITE<T> ? __builtin_nan("") : recurrence<T>(n, first, step);
}
template <class T> inline double hermite_h(double x, double n) {
  return hermite<T>(n, 2 * x, [=](double now, double before, double k) {
    return within<T>(2 * x * now) - within<T>(2 * k * before);
  });
}
template <class T> inline double hermite_he(double x, double n) {
  return hermite<T>(n, x, [=](double now, double before, double k) {
    return within<T>(x * now) - within<T>(k * before);
  });
}
template <class T> inline double laguerre_l(double x, double n) {
  if (!has_degree(n)) return 0;
  return recurrence<T>((int64_t)n, 1 - x, [=](double now, double before, double k) {
    return within<T>(within<T>((2 * k + 1 - x) * now) - within<T>(k * before)) / (k + 1);
  });
}
template <class T> inline double legendre_p(double x, double n) {
  if (!has_degree(n)) return 0;
  if (__builtin_fabs(x) == 1) return x > 0 || (int64_t)n % 2 == 0 ? 1 : -1;
  return recurrence<T>((int64_t)n, x, [=](double now, double before, double k) {
    return within<T>(within<T>((2 * k + 1) * x * now) - within<T>(k * before)) / (k + 1);
  });
}

} /* namespace special */
} /* namespace mycc */
#endif
