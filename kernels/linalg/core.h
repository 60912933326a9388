/* core.h: factorisations of dense row-major matrices, real and complex, in float64 whatever the element.
 *
 * For the small matrices that models have: plain textbook algorithms (Golub and Van Loan, "Matrix Computations"), with
 * LAPACK's conventions for pivots, signs of reflectors and info. S is double or Number; B a block in memory (Real,
 * Complex), which is read into scratch and written from it.
 */
#ifndef MYCC_KERNELS_LINALG_CORE_H
#define MYCC_KERNELS_LINALG_CORE_H

#include "kernels/loops/loops.h"

namespace mycc {
namespace linalg {

/* A complex number. */
struct Number {
  double re, im;
  Number() = default;
  MYCC_INLINE Number(double re, double im = 0) : re(re), im(im) {}
  MYCC_INLINE Number operator+(Number b) const { return {re + b.re, im + b.im}; }
  MYCC_INLINE Number operator-() const { return {-re, -im}; }
  MYCC_INLINE Number operator-(Number b) const { return {re - b.re, im - b.im}; }
  MYCC_INLINE Number operator*(Number b) const { return {fma(re, b.re, -(im * b.im)), fma(re, b.im, im * b.re)}; }
  MYCC_INLINE Number operator/(Number b) const { /* Smith */
    if (__builtin_fabs(b.re) >= __builtin_fabs(b.im)) {
      const double ratio = b.re == 0 ? 0 : b.im / b.re, scale = 1 / (b.re + b.im * ratio);
      return {(re + im * ratio) * scale, (im - re * ratio) * scale};
    }
    const double ratio = b.re / b.im, scale = 1 / (b.im + b.re * ratio);
    return {(re * ratio + im) * scale, (im * ratio - re) * scale};
  }
  MYCC_INLINE Number operator/(double b) const { return {re / b, im / b}; }
  MYCC_INLINE Number &operator+=(Number b) { return *this = *this + b; }
  MYCC_INLINE Number &operator-=(Number b) { return *this = *this - b; }
  MYCC_INLINE Number &operator*=(Number b) { return *this = *this * b; }
  MYCC_INLINE Number &operator/=(Number b) { return *this = *this / b; }
};
/* a b + c; real numbers are rounded once. */
MYCC_INLINE double multiply_add(double a, double b, double c) { return fma(a, b, c); }
MYCC_INLINE Number multiply_add(Number a, Number b, Number c) { return a * b + c; }
MYCC_INLINE double conjugate(double x) { return x; }
MYCC_INLINE Number conjugate(Number x) { return {x.re, -x.im}; }
MYCC_INLINE double real(double x) { return x; }
MYCC_INLINE double real(Number x) { return x.re; }
MYCC_INLINE double imaginary(double) { return 0; }
MYCC_INLINE double imaginary(Number x) { return x.im; }
MYCC_INLINE double size(double x) { return __builtin_fabs(x); }
MYCC_INLINE double size(Number x) { return __builtin_hypot(x.re, x.im); }
MYCC_INLINE double square(double x) { return x * x; }
MYCC_INLINE double square(Number x) { return x.re * x.re + x.im * x.im; }
/* What LAPACK compares pivots by. */
MYCC_INLINE double pivot_size(double x) { return __builtin_fabs(x); }
MYCC_INLINE double pivot_size(Number x) { return __builtin_fabs(x.re) + __builtin_fabs(x.im); }
template <class S> MYCC_INLINE bool is_zero(S x) { return real(x) == 0 && imaginary(x) == 0; }

/* Blocks in memory: one array, or one of real and one of imaginary parts. */
template <class T> struct Real {
  typedef double S;
  T *p;
  MYCC_INLINE double operator[](int64_t i) const { return (double)load_scalar(p + i); }
  MYCC_INLINE void set(int64_t i, double x) const { store_scalar(p + i, (typename element<T>::scalar)x); }
};
template <class T> struct Complex {
  typedef Number S;
  T *re, *im;
  MYCC_INLINE Number operator[](int64_t i) const { return {(double)load_scalar(re + i), (double)load_scalar(im + i)}; }
  MYCC_INLINE void set(int64_t i, Number x) const {
    store_scalar(re + i, (typename element<T>::scalar)x.re), store_scalar(im + i, (typename element<T>::scalar)x.im);
  }
};

/* Memory from the worker's scratch; NULL when it is short. */
template <class S> inline S *scratch(const mycc_host *host, int32_t worker, int64_t count) {
  return row_scratch<S>(host, worker, count > 0 ? count : 1);
}
template <class S, class B> inline void read(S *to, B from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}
template <class S, class B> inline void write(B to, const S *from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to.set(i, from[i]);
}
template <class S> MYCC_INLINE void exchange(S &a, S &b) {
  const S c = a;
  a = b;
  b = c;
}
template <class S> inline void set_identity(S *a, int64_t m, int64_t n) {
  for (int64_t i = 0; i < m * n; ++i) a[i] = i / n == i % n ? 1 : 0;
}

/* H = 1 - tau v v* with H* x = (beta, 0, ..) for a real beta: x[0, n) at a stride becomes beta and the rest of v, whose
 * first is 1. */
template <class S> inline S reflector(S *x, int64_t n, int64_t stride) {
  double rest = 0;
  for (int64_t i = 1; i < n; ++i) rest = __builtin_hypot(rest, size(x[i * stride]));
  const S alpha = x[0];
  if (rest == 0 && imaginary(alpha) == 0) return 0;
  const double beta = -__builtin_copysign(__builtin_hypot(size(alpha), rest), real(alpha));
  for (int64_t i = 1; i < n; ++i) x[i * stride] /= alpha - beta;
  x[0] = beta;
  return (S(beta) - alpha) / beta;
}

/* c[0, m) x [0, n) -= tau v (v* c), where v[0] is 1 whatever lies there. */
template <class S>
inline void reflect(S *c, int64_t c_row, int64_t m, int64_t n, const S *v, int64_t v_stride, S tau) {
  if (is_zero(tau)) return;
  for (int64_t j = 0; j < n; ++j) {
    S sum = c[j];
    for (int64_t i = 1; i < m; ++i) sum += conjugate(v[i * v_stride]) * c[i * c_row + j];
    sum *= tau;
    c[j] -= sum;
    for (int64_t i = 1; i < m; ++i) c[i * c_row + j] -= v[i * v_stride] * sum;
  }
}

/* Jacobi's rotation: c, and s with the angle of the coupling. */
template <class S> struct Rotation {
  double c;
  S s;
};
/* The one that takes the coupling a* b out of two columns with squares p and r. */
template <class S> MYCC_INLINE Rotation<S> rotation(double p, double r, S coupling) {
  const double strength = size(coupling), theta = (r - p) / (2 * strength);
  const double t = __builtin_copysign(1 / (__builtin_fabs(theta) + __builtin_hypot(theta, 1)), theta);
  const double c = 1 / __builtin_hypot(t, 1);
  return {c, conjugate(coupling) / strength * (t * c)};
}
/* Elements x and y of n pairs, at a stride, become c x - s y and s* x + c y. */
template <class S> inline void rotate(S *x, S *y, int64_t n, int64_t stride, double c, S s) {
  for (int64_t k = 0; k < n * stride; k += stride) {
    const S p = x[k], r = y[k];
    x[k] = multiply_add(p, S(c), -(s * r));
    y[k] = multiply_add(conjugate(s), p, r * c);
  }
}

template <class B, class A>
inline void lu(const mycc_host *host, int32_t worker, B lu, int32_t *pivots, int32_t *info, A x, int64_t m, int64_t n) {
  typedef typename A::S S;
  S *a = scratch<S>(host, worker, m * n);
  if (!a) return;
  read(a, x, m * n);
  *info = 0;
  for (int64_t k = 0; k < smaller(m, n); ++k) {
    int64_t best = k;
    for (int64_t i = k + 1; i < m; ++i)
      if (pivot_size(a[i * n + k]) > pivot_size(a[best * n + k])) best = i;
    pivots[k] = (int32_t)best + 1;
    if (is_zero(a[best * n + k])) {
      *info = *info ? *info : (int32_t)k + 1;
      continue;
    }
    for (int64_t j = 0; best != k && j < n; ++j) exchange(a[k * n + j], a[best * n + j]);
    for (int64_t i = k + 1; i < m; ++i) {
      const S factor = a[i * n + k] /= a[k * n + k];
      for (int64_t j = k + 1; j < n; ++j) a[i * n + j] -= factor * a[k * n + j];
    }
  }
  write(lu, a, m * n);
}

template <class B, class A>
inline void triangular(
    const mycc_host *host, int32_t worker, B x, A a, A b, int64_t n, int64_t k, int64_t upper, int64_t unit) {
  typedef typename A::S S;
  S *s = scratch<S>(host, worker, n * k);
  if (!s) return;
  read(s, b, n * k);
  for (int64_t step = 0; step < n; ++step) {
    const int64_t i = upper ? n - 1 - step : step;
    const S diagonal = unit ? S(1) : a[i * n + i];
    for (int64_t j = 0; j < k; ++j) {
      S sum = s[i * k + j];
      for (int64_t l = upper ? i + 1 : 0; l < (upper ? n : i); ++l) sum -= a[i * n + l] * s[l * k + j];
      s[i * k + j] = sum / diagonal;
    }
  }
  write(x, s, n * k);
}

template <class B, class A>
inline void cholesky(const mycc_host *host, int32_t worker, B l, int32_t *info, A a, int64_t n) {
  typedef typename A::S S;
  S *s = scratch<S>(host, worker, n * n);
  if (!s) return;
  for (int64_t i = 0; i < n * n; ++i) s[i] = 0;
  *info = 0;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      S sum = a[i * n + j];
      for (int64_t k = 0; k < j; ++k) sum -= s[i * n + k] * conjugate(s[j * n + k]);
      if (i == j && !(real(sum) > 0) && !*info) *info = (int32_t)j + 1;
      s[i * n + j] = i == j ? S(__builtin_sqrt(real(sum))) : sum / s[j * n + j];
    }
  }
  write(l, s, n * n);
}

template <class B, class A> inline void qr(const mycc_host *host, int32_t worker, B qr, B tau, A x, int64_t m, int64_t n) {
  typedef typename A::S S;
  S *a = scratch<S>(host, worker, m * n);
  if (!a) return;
  read(a, x, m * n);
  for (int64_t k = 0; k < smaller(m, n); ++k) {
    S *corner = a + k * n + k;
    const S factor = reflector(corner, m - k, n);
    reflect(corner + 1, n, m - k, n - k - 1, corner, n, conjugate(factor));
    tau.set(k, factor);
  }
  write(qr, a, m * n);
}

template <class B, class A>
inline void reflectors(const mycc_host *host, int32_t worker, B q, A a, A tau, int64_t m, int64_t n, int64_t k) {
  typedef typename A::S S;
  S *s = scratch<S>(host, worker, 2 * m * n);
  if (!s) return;
  S *v = s + m * n;
  read(v, a, m * n);
  set_identity(s, m, n);
  for (int64_t j = k - 1; j >= 0; --j) reflect(s + j * n, n, m - j, n, v + j * n + j, n, S(tau[j]));
  write(q, s, m * n);
}

template <class W, class B, class A>
inline void eigh(const mycc_host *host, int32_t worker, W w, B v, A x, int64_t n) {
  typedef typename A::S S;
  S *a = scratch<S>(host, worker, 2 * n * n);
  if (!a) return;
  S *q = a + n * n;
  set_identity(q, n, n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      a[i * n + j] = i == j ? S(real(x[i * n + j])) : i > j ? x[i * n + j] : conjugate(x[j * n + i]);
  for (int sweep = 0; sweep < 60; ++sweep) {
    double off = 0, all = 0;
    for (int64_t i = 0; i < n * n; ++i) {
      all += square(a[i]);
      if (i / n != i % n) off += square(a[i]);
    }
    if (!(off > all * 1e-32)) break;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i + 1; j < n; ++j) {
        if (is_zero(a[i * n + j])) continue;
        const Rotation<S> r = rotation(real(a[i * n + i]), real(a[j * n + j]), a[i * n + j]);
        rotate(a + i, a + j, n, n, r.c, r.s);
        rotate(a + i * n, a + j * n, n, 1, r.c, conjugate(r.s));
        rotate(q + i, q + j, n, n, r.c, r.s);
      }
    }
  }
  for (int64_t i = 0; i < n; ++i) { /* by size, smallest first */
    int64_t best = i;
    for (int64_t j = i + 1; j < n; ++j)
      if (real(a[j * n + j]) < real(a[best * n + best])) best = j;
    exchange(a[i * n + i], a[best * n + best]);
    for (int64_t k = 0; best != i && k < n; ++k) exchange(q[k * n + i], q[k * n + best]);
    w.set(i, real(a[i * n + i]));
  }
  write(v, q, n * n);
}

template <class B, class W, class A>
inline void svd(
    const mycc_host *host, int32_t worker, B u, W s, B v, A x, int64_t m, int64_t n, int64_t columns) {
  typedef typename A::S S;
  S *a = scratch<S>(host, worker, m * columns + n * n + columns);
  if (!a) return;
  S *q = a + m * columns;
  double *length = (double *)(q + n * n);
  const auto norm = [=](int64_t j) {
    double sum = 0;
    for (int64_t k = 0; k < m; ++k) sum = __builtin_hypot(sum, size(a[k * columns + j]));
    return sum;
  };
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < columns; ++j) a[i * columns + j] = j < n ? S(x[i * n + j]) : S(0);
  set_identity(q, n, n);
  for (int sweep = 0; sweep < 80; ++sweep) {
    bool moved = false;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i + 1; j < n; ++j) {
        double p = 0, r = 0;
        S d = 0;
        for (int64_t k = 0; k < m; ++k) {
          const S *row = a + k * columns;
          p += square(row[i]), r += square(row[j]);
          d += conjugate(row[i]) * row[j];
        }
        if (!(size(d) > 1e-16 * __builtin_sqrt(p) * __builtin_sqrt(r))) continue;
        moved = true;
        const Rotation<S> turn = rotation(p, r, d);
        rotate(a + i, a + j, m, columns, turn.c, turn.s);
        rotate(q + i, q + j, n, n, turn.c, turn.s);
      }
    }
    if (!moved) break;
  }
  for (int64_t j = 0; j < columns; ++j) length[j] = norm(j);
  for (int64_t i = 0; i < columns; ++i) {
    int64_t best = i;
    for (int64_t j = i + 1; j < n; ++j)
      if (length[j] > length[best]) best = j;
    exchange(length[i], length[best]);
    for (int64_t k = 0; best != i && k < m; ++k) exchange(a[k * columns + i], a[k * columns + best]);
    for (int64_t k = 0; best != i && k < n; ++k) exchange(q[k * n + i], q[k * n + best]);
    for (int64_t k = 0; length[i] > 0 && k < m; ++k) a[k * columns + i] /= length[i];
    for (int64_t unit = 0; !(length[i] > 1e-15 * length[0]) && unit < m; ++unit) { /* Gram and Schmidt, twice */
      for (int64_t k = 0; k < m; ++k) a[k * columns + i] = k == unit ? 1 : 0;
      for (int64_t j = 0; j < 2 * i; ++j) {
        S d = 0;
        for (int64_t k = 0; k < m; ++k) d += conjugate(a[k * columns + j % i]) * a[k * columns + i];
        for (int64_t k = 0; k < m; ++k) a[k * columns + i] -= d * a[k * columns + j % i];
      }
      const double left = norm(i);
      if (left * left * m < 0.5 && unit + 1 < m) continue; /* some unit vector keeps a share of 1 / m */
      for (int64_t k = 0; k < m; ++k) a[k * columns + i] /= left;
      break;
    }
    if (i < n) s.set(i, length[i]);
  }
  write(u, a, m * columns);
  write(v, q, n * n);
}

} /* namespace linalg */
} /* namespace mycc */
#endif /* MYCC_KERNELS_LINALG_CORE_H */
