/* linalg.h: factorisations of dense row-major matrices, one at a time, in float64 whatever the element.
 *
 * Routines of lower/routines.py, for the small matrices that models have: plain textbook algorithms (Golub and Van Loan,
 * "Matrix Computations"), with LAPACK's conventions for pivots, signs of reflectors and info.
 */
#ifndef MYCC_LINALG_H
#define MYCC_LINALG_H

#include "loops.h"

namespace mycc {
namespace linalg {

/* Doubles from the worker's scratch; NULL when memory is short. */
inline double *scratch(const mycc_host *host, int32_t worker, int64_t count) {
  return row_scratch<double>(host, worker, count > 0 ? count : 1);
}

template <class T> inline void read(double *to, const T *from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = (double)load_scalar(from + i);
}
template <class T> inline void write(T *to, const double *from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) store_scalar(to + i, (typename element<T>::scalar)from[i]);
}
MYCC_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
MYCC_INLINE void exchange(double &a, double &b) {
  const double c = a;
  a = b;
  b = c;
}

/* H = 1 - tau v v^T with H x = (beta, 0, ..): x[0, n) at a stride becomes beta and the rest of v, whose first is 1. */
inline double reflector(double *x, int64_t n, int64_t stride) {
  double size = 0;
  for (int64_t i = 1; i < n; ++i) size = __builtin_hypot(size, x[i * stride]);
  if (size == 0) return 0;
  const double alpha = x[0], beta = -__builtin_copysign(__builtin_hypot(alpha, size), alpha);
  for (int64_t i = 1; i < n; ++i) x[i * stride] /= alpha - beta;
  x[0] = beta;
  return (beta - alpha) / beta;
}

/* c[0, m) x [0, n) -= tau v (v^T c), where v[0] is 1 whatever lies there. */
inline void reflect(double *c, int64_t c_row, int64_t m, int64_t n, const double *v, int64_t v_stride, double tau) {
  if (tau == 0) return;
  for (int64_t j = 0; j < n; ++j) {
    double sum = c[j];
    for (int64_t i = 1; i < m; ++i) sum += v[i * v_stride] * c[i * c_row + j];
    sum *= tau;
    c[j] -= sum;
    for (int64_t i = 1; i < m; ++i) c[i * c_row + j] -= v[i * v_stride] * sum;
  }
}

/* Elements x and y of n pairs, at a stride, become c x - s y and s x + c y. */
inline void rotate(double *x, double *y, int64_t n, int64_t stride, double c, double s) {
  for (int64_t k = 0; k < n * stride; k += stride) {
    const double p = x[k], r = y[k];
    x[k] = c * p - s * r;
    y[k] = s * p + c * r;
  }
}

} /* namespace linalg */

/* lu [m][n] with unit L below the diagonal; pivots[min]: the row that row i was exchanged with, counted from 1; info: the
 * first zero pivot, counted from 1, or 0. */
template <class T>
inline void lu_block(
    const mycc_host *host, int32_t worker, T *lu, int32_t *pivots, int32_t *info, const T *x, int64_t m, int64_t n) {
  double *a = linalg::scratch(host, worker, m * n);
  if (!a) return;
  linalg::read(a, x, m * n);
  *info = 0;
  for (int64_t k = 0; k < linalg::smaller(m, n); ++k) {
    int64_t best = k;
    for (int64_t i = k + 1; i < m; ++i)
      if (__builtin_fabs(a[i * n + k]) > __builtin_fabs(a[best * n + k])) best = i;
    pivots[k] = (int32_t)best + 1;
    if (a[best * n + k] == 0) {
      *info = *info ? *info : (int32_t)k + 1;
      continue;
    }
    for (int64_t j = 0; best != k && j < n; ++j) linalg::exchange(a[k * n + j], a[best * n + j]);
    for (int64_t i = k + 1; i < m; ++i) {
      const double factor = a[i * n + k] /= a[k * n + k];
      for (int64_t j = k + 1; j < n; ++j) a[i * n + j] -= factor * a[k * n + j];
    }
  }
  linalg::write(lu, a, m * n);
}

/* order[m]: the row of the matrix that the exchanges of `pivots`[k] bring to each place. */
inline void pivot_order_block(
    const mycc_host *, int32_t, int64_t *order, const int32_t *pivots, int64_t m, int64_t k) {
  for (int64_t i = 0; i < m; ++i) order[i] = i;
  for (int64_t i = 0; i < k; ++i) {
    const int64_t other = pivots[i] - 1;
    if (other < 0 || other >= m) continue;
    const int64_t moved = order[i];
    order[i] = order[other];
    order[other] = moved;
  }
}

/* x [n][k] with a x = b for a triangular a [n][n]; unit: ones on the diagonal, whatever lies there. */
template <class T>
inline void triangular_block(
    const mycc_host *host, int32_t worker, T *x, const T *a, const T *b, int64_t n, int64_t k, int64_t upper,
    int64_t unit) {
  double *s = linalg::scratch(host, worker, n * k);
  if (!s) return;
  linalg::read(s, b, n * k);
  for (int64_t step = 0; step < n; ++step) {
    const int64_t i = upper ? n - 1 - step : step;
    const double diagonal = unit ? 1.0 : (double)load_scalar(a + i * n + i);
    for (int64_t j = 0; j < k; ++j) {
      double sum = s[i * k + j];
      for (int64_t l = upper ? i + 1 : 0; l < (upper ? n : i); ++l)
        sum -= (double)load_scalar(a + i * n + l) * s[l * k + j];
      s[i * k + j] = sum / diagonal;
    }
  }
  linalg::write(x, s, n * k);
}

/* l [n][n] with l l^T = a, from the lower triangle of a; info: the first minor that is not positive, from 1, or 0. */
template <class T>
inline void cholesky_block(const mycc_host *host, int32_t worker, T *l, int32_t *info, const T *a, int64_t n) {
  double *s = linalg::scratch(host, worker, n * n);
  if (!s) return;
  for (int64_t i = 0; i < n * n; ++i) s[i] = 0;
  *info = 0;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      double sum = (double)load_scalar(a + i * n + j);
      for (int64_t k = 0; k < j; ++k) sum -= s[i * n + k] * s[j * n + k];
      if (i == j && !(sum > 0) && !*info) *info = (int32_t)j + 1;
      s[i * n + j] = i == j ? __builtin_sqrt(sum) : sum / s[j * n + j];
    }
  }
  linalg::write(l, s, n * n);
}

/* Reflectors below the diagonal of qr [m][n], R on and above it, and their factors tau[min]. */
template <class T>
inline void qr_block(const mycc_host *host, int32_t worker, T *qr, T *tau, const T *x, int64_t m, int64_t n) {
  double *a = linalg::scratch(host, worker, m * n);
  if (!a) return;
  linalg::read(a, x, m * n);
  for (int64_t k = 0; k < linalg::smaller(m, n); ++k) {
    double *corner = a + k * n + k;
    const double factor = linalg::reflector(corner, m - k, n);
    linalg::reflect(corner + 1, n, m - k, n - k - 1, corner, n, factor);
    store_scalar(tau + k, (typename element<T>::scalar)factor);
  }
  linalg::write(qr, a, m * n);
}

/* q [m][n]: the first n columns of the product of k reflectors, which lie below the diagonal of a [m][n]. */
template <class T>
inline void reflectors_block(
    const mycc_host *host, int32_t worker, T *q, const T *a, const T *tau, int64_t m, int64_t n, int64_t k) {
  double *s = linalg::scratch(host, worker, 2 * m * n);
  if (!s) return;
  double *v = s + m * n;
  linalg::read(v, a, m * n);
  for (int64_t i = 0; i < m * n; ++i) s[i] = i / n == i % n ? 1 : 0;
  for (int64_t j = k - 1; j >= 0; --j)
    linalg::reflect(s + j * n, n, m - j, n, v + j * n + j, n, (double)load_scalar(tau + j));
  linalg::write(q, s, m * n);
}

/* Eigenvalues w[n], ascending, and vectors (columns of v [n][n]) of the symmetric matrix whose lower triangle is given:
 * Jacobi's rotations. */
template <class T>
inline void eigh_block(const mycc_host *host, int32_t worker, T *w, T *v, const T *x, int64_t n) {
  double *a = linalg::scratch(host, worker, 2 * n * n);
  if (!a) return;
  double *q = a + n * n;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      a[i * n + j] = (double)load_scalar(x + (i > j ? i * n + j : j * n + i));
      q[i * n + j] = i == j ? 1 : 0;
    }
  }
  for (int sweep = 0; sweep < 60; ++sweep) {
    double off = 0, all = 0;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        all += a[i * n + j] * a[i * n + j];
        if (i != j) off += a[i * n + j] * a[i * n + j];
      }
    if (!(off > all * 1e-32)) break;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i + 1; j < n; ++j) {
        if (a[i * n + j] == 0) continue;
        const double theta = (a[j * n + j] - a[i * n + i]) / (2 * a[i * n + j]);
        const double t = __builtin_copysign(1 / (__builtin_fabs(theta) + __builtin_hypot(theta, 1)), theta);
        const double c = 1 / __builtin_hypot(t, 1), s = t * c;
        linalg::rotate(a + i, a + j, n, n, c, s);
        linalg::rotate(a + i * n, a + j * n, n, 1, c, s);
        linalg::rotate(q + i, q + j, n, n, c, s);
      }
    }
  }
  for (int64_t i = 0; i < n; ++i) { /* by size, smallest first */
    int64_t best = i;
    for (int64_t j = i + 1; j < n; ++j)
      if (a[j * n + j] < a[best * n + best]) best = j;
    linalg::exchange(a[i * n + i], a[best * n + best]);
    for (int64_t k = 0; best != i && k < n; ++k) linalg::exchange(q[k * n + i], q[k * n + best]);
    store_scalar(w + i, (typename element<T>::scalar)a[i * n + i]);
  }
  linalg::write(v, q, n * n);
}

/* u [m][columns], s[n] descending and v [n][n] with x = u diag(s) v^T for m >= n: rotations make the columns orthogonal
 * (Hestenes). A column of u that belongs to no singular value is completed to an orthonormal set. */
template <class T>
inline void svd_block(
    const mycc_host *host, int32_t worker, T *u, T *s, T *v, const T *x, int64_t m, int64_t n, int64_t columns) {
  double *a = linalg::scratch(host, worker, m * columns + n * n + columns);
  if (!a) return;
  double *q = a + m * columns, *size = q + n * n;
  const auto norm = [=](int64_t j) {
    double sum = 0;
    for (int64_t k = 0; k < m; ++k) sum = __builtin_hypot(sum, a[k * columns + j]);
    return sum;
  };
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < columns; ++j) a[i * columns + j] = j < n ? (double)load_scalar(x + i * n + j) : 0;
  for (int64_t i = 0; i < n * n; ++i) q[i] = i / n == i % n ? 1 : 0;
  for (int sweep = 0; sweep < 80; ++sweep) {
    bool moved = false;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i + 1; j < n; ++j) {
        double p = 0, r = 0, d = 0;
        for (int64_t k = 0; k < m; ++k) {
          const double *row = a + k * columns;
          p += row[i] * row[i];
          r += row[j] * row[j];
          d += row[i] * row[j];
        }
        if (!(__builtin_fabs(d) > 1e-16 * __builtin_sqrt(p) * __builtin_sqrt(r))) continue;
        moved = true;
        const double theta = (r - p) / (2 * d);
        const double t = __builtin_copysign(1 / (__builtin_fabs(theta) + __builtin_hypot(theta, 1)), theta);
        const double c = 1 / __builtin_hypot(t, 1), z = t * c;
        linalg::rotate(a + i, a + j, m, columns, c, z);
        linalg::rotate(q + i, q + j, n, n, c, z);
      }
    }
    if (!moved) break;
  }
  for (int64_t j = 0; j < columns; ++j) size[j] = norm(j);
  for (int64_t i = 0; i < columns; ++i) {
    int64_t best = i;
    for (int64_t j = i + 1; j < n; ++j)
      if (size[j] > size[best]) best = j;
    linalg::exchange(size[i], size[best]);
    for (int64_t k = 0; best != i && k < m; ++k) linalg::exchange(a[k * columns + i], a[k * columns + best]);
    for (int64_t k = 0; best != i && k < n; ++k) linalg::exchange(q[k * n + i], q[k * n + best]);
    for (int64_t k = 0; size[i] > 0 && k < m; ++k) a[k * columns + i] /= size[i];
    for (int64_t unit = 0; !(size[i] > 1e-15 * size[0]) && unit < m; ++unit) { /* Gram and Schmidt, twice */
      for (int64_t k = 0; k < m; ++k) a[k * columns + i] = k == unit ? 1 : 0;
      for (int64_t j = 0; j < 2 * i; ++j) {
        double d = 0;
        for (int64_t k = 0; k < m; ++k) d += a[k * columns + i] * a[k * columns + j % i];
        for (int64_t k = 0; k < m; ++k) a[k * columns + i] -= d * a[k * columns + j % i];
      }
      const double left = norm(i);
      if (left * left * m < 0.5 && unit + 1 < m) continue; /* some unit vector keeps a share of 1 / m */
      for (int64_t k = 0; k < m; ++k) a[k * columns + i] /= left;
      break;
    }
    if (i < n) store_scalar(s + i, (typename element<T>::scalar)size[i]);
  }
  linalg::write(u, a, m * columns);
  linalg::write(v, q, n * n);
}

/* e [n][n] = exp(a): a Taylor polynomial of a / 2^k, squared k times. */
template <class T>
inline void matrix_exp_block(const mycc_host *host, int32_t worker, T *e, const T *a, int64_t n) {
  double *x = linalg::scratch(host, worker, 4 * n * n);
  if (!x) return;
  double *term = x + n * n, *sum = term + n * n, *next = sum + n * n, largest = 0;
  linalg::read(x, a, n * n);
  for (int64_t i = 0; i < n; ++i) {
    double row = 0;
    for (int64_t j = 0; j < n; ++j) row += __builtin_fabs(x[i * n + j]);
    largest = row > largest ? row : largest;
  }
  int halvings = 0;
  for (; largest > 0.5 && halvings < 1000; ++halvings) largest *= 0.5;
  for (int64_t i = 0; i < n * n; ++i) {
    x[i] = __builtin_ldexp(x[i], -halvings);
    sum[i] = term[i] = i / n == i % n ? 1 : 0;
  }
  const auto multiply = [=](const double *left, const double *right, double scale) {
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double d = 0;
        for (int64_t k = 0; k < n; ++k) d += left[i * n + k] * right[k * n + j];
        next[i * n + j] = d * scale;
      }
  };
  for (int k = 1; k <= 18; ++k) {
    multiply(term, x, 1.0 / k);
    for (int64_t i = 0; i < n * n; ++i) sum[i] += term[i] = next[i];
  }
  for (int k = 0; k < halvings; ++k) {
    multiply(sum, sum, 1);
    for (int64_t i = 0; i < n * n; ++i) sum[i] = next[i];
  }
  linalg::write(e, sum, n * n);
}

} /* namespace mycc */
#endif /* MYCC_LINALG_H */
