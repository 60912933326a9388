/* linalg.h: factorisations of one matrix: routines of lower/core/routines.py.
 *
 * Over linalg/core.h and linalg/general.h. Those called complex_ take real and imaginary parts apart, wherever the others
 * have one block.
 */
#ifndef MYCC_KERNELS_LINALG_LINALG_H
#define MYCC_KERNELS_LINALG_LINALG_H

#include "kernels/linalg/general.h"

namespace mycc {

/* lu [m][n] with unit L below the diagonal; pivots[min]: the row that row i was exchanged with, counted from 1; info: the
 * first zero pivot, counted from 1, or 0. */
template <class T>
inline void lu_block(
    const mycc_host *host, int32_t worker, T *lu, int32_t *pivots, int32_t *info, const T *x, int64_t m, int64_t n) {
  linalg::lu(host, worker, linalg::Real<T>{lu}, pivots, info, linalg::Real<const T>{x}, m, n);
}
template <class T>
inline void complex_lu_block(
    const mycc_host *host, int32_t worker, T *re, T *im, int32_t *pivots, int32_t *info, const T *x, const T *xi,
    int64_t m, int64_t n) {
  linalg::lu(host, worker, linalg::Complex<T>{re, im}, pivots, info, linalg::Complex<const T>{x, xi}, m, n);
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
  linalg::triangular(
      host, worker, linalg::Real<T>{x}, linalg::Real<const T>{a}, linalg::Real<const T>{b}, n, k, upper, unit);
}
template <class T>
inline void complex_triangular_block(
    const mycc_host *host, int32_t worker, T *re, T *im, const T *a, const T *ai, const T *b, const T *bi, int64_t n,
    int64_t k, int64_t upper, int64_t unit) {
  linalg::triangular(
      host, worker, linalg::Complex<T>{re, im}, linalg::Complex<const T>{a, ai}, linalg::Complex<const T>{b, bi}, n, k,
      upper, unit);
}

/* l [n][n] with l l* = a, from the lower triangle of a; info: the first minor that is not positive, from 1, or 0. */
template <class T>
inline void cholesky_block(const mycc_host *host, int32_t worker, T *l, int32_t *info, const T *a, int64_t n) {
  linalg::cholesky(host, worker, linalg::Real<T>{l}, info, linalg::Real<const T>{a}, n);
}
template <class T>
inline void complex_cholesky_block(
    const mycc_host *host, int32_t worker, T *re, T *im, int32_t *info, const T *a, const T *ai, int64_t n) {
  linalg::cholesky(host, worker, linalg::Complex<T>{re, im}, info, linalg::Complex<const T>{a, ai}, n);
}

/* Reflectors below the diagonal of qr [m][n], R on and above it, and their factors tau[min]. */
template <class T>
inline void qr_block(const mycc_host *host, int32_t worker, T *qr, T *tau, const T *x, int64_t m, int64_t n) {
  linalg::qr(host, worker, linalg::Real<T>{qr}, linalg::Real<T>{tau}, linalg::Real<const T>{x}, m, n);
}
template <class T>
inline void complex_qr_block(
    const mycc_host *host, int32_t worker, T *re, T *im, T *tau, T *tau_im, const T *x, const T *xi, int64_t m,
    int64_t n) {
  linalg::qr(
      host, worker, linalg::Complex<T>{re, im}, linalg::Complex<T>{tau, tau_im}, linalg::Complex<const T>{x, xi}, m, n);
}

/* q [m][n]: the first n columns of the product of k reflectors, which lie below the diagonal of a [m][n]. */
template <class T>
inline void reflectors_block(
    const mycc_host *host, int32_t worker, T *q, const T *a, const T *tau, int64_t m, int64_t n, int64_t k) {
  linalg::reflectors(host, worker, linalg::Real<T>{q}, linalg::Real<const T>{a}, linalg::Real<const T>{tau}, m, n, k);
}
template <class T>
inline void complex_reflectors_block(
    const mycc_host *host, int32_t worker, T *re, T *im, const T *a, const T *ai, const T *tau, const T *tau_im,
    int64_t m, int64_t n, int64_t k) {
  linalg::reflectors(
      host, worker, linalg::Complex<T>{re, im}, linalg::Complex<const T>{a, ai}, linalg::Complex<const T>{tau, tau_im},
      m, n, k);
}

/* Eigenvalues w[n], ascending, and vectors (columns of v [n][n]) of the symmetric or Hermitian matrix whose lower
 * triangle is given: Jacobi's rotations. */
template <class T>
inline void eigh_block(const mycc_host *host, int32_t worker, T *w, T *v, const T *x, int64_t n) {
  linalg::eigh(host, worker, linalg::Real<T>{w}, linalg::Real<T>{v}, linalg::Real<const T>{x}, n);
}
template <class T>
inline void complex_eigh_block(
    const mycc_host *host, int32_t worker, T *w, T *re, T *im, const T *x, const T *xi, int64_t n) {
  linalg::eigh(host, worker, linalg::Real<T>{w}, linalg::Complex<T>{re, im}, linalg::Complex<const T>{x, xi}, n);
}

/* u [m][columns], s[n] descending and v [n][n] with x = u diag(s) v* for m >= n: rotations make the columns orthogonal
 * (Hestenes). A column of u that belongs to no singular value is completed to an orthonormal set. */
template <class T>
inline void svd_block(
    const mycc_host *host, int32_t worker, T *u, T *s, T *v, const T *x, int64_t m, int64_t n, int64_t columns) {
  linalg::svd(
      host, worker, linalg::Real<T>{u}, linalg::Real<T>{s}, linalg::Real<T>{v}, linalg::Real<const T>{x}, m, n,
      columns);
}
template <class T>
inline void complex_svd_block(
    const mycc_host *host, int32_t worker, T *re, T *im, T *s, T *v, T *vi, const T *x, const T *xi, int64_t m,
    int64_t n, int64_t columns) {
  linalg::svd(
      host, worker, linalg::Complex<T>{re, im}, linalg::Real<T>{s}, linalg::Complex<T>{v, vi},
      linalg::Complex<const T>{x, xi}, m, n, columns);
}

/* Eigenvalues and vectors (columns) of a general matrix, both complex: linalg::eig. */
template <class T>
inline void eig_block(
    const mycc_host *host, int32_t worker, T *w, T *wi, T *v, T *vi, const T *x, int64_t n) {
  linalg::eig(host, worker, linalg::Complex<T>{w, wi}, linalg::Complex<T>{v, vi}, linalg::Real<const T>{x}, n);
}
template <class T>
inline void complex_eig_block(
    const mycc_host *host, int32_t worker, T *w, T *wi, T *v, T *vi, const T *x, const T *xi, int64_t n) {
  linalg::eig(host, worker, linalg::Complex<T>{w, wi}, linalg::Complex<T>{v, vi}, linalg::Complex<const T>{x, xi}, n);
}

/* L D L^T, or L D L* when `adjoint`, and x [n][m] with (L D L^T) x = b: linalg::ldl and linalg::ldl_solve. */
template <class T>
inline void ldl_block(
    const mycc_host *host, int32_t worker, T *ld, int32_t *pivots, int32_t *info, const T *x, int64_t n,
    int64_t adjoint) {
  linalg::ldl(host, worker, linalg::Real<T>{ld}, pivots, info, linalg::Real<const T>{x}, n, adjoint);
}
template <class T>
inline void complex_ldl_block(
    const mycc_host *host, int32_t worker, T *ld, T *ldi, int32_t *pivots, int32_t *info, const T *x, const T *xi,
    int64_t n, int64_t adjoint) {
  linalg::ldl(host, worker, linalg::Complex<T>{ld, ldi}, pivots, info, linalg::Complex<const T>{x, xi}, n, adjoint);
}
template <class T>
inline void ldl_solve_block(
    const mycc_host *host, int32_t worker, T *x, const T *ld, const int32_t *pivots, const T *b, int64_t n, int64_t m,
    int64_t adjoint) {
  linalg::ldl_solve(
      host, worker, linalg::Real<T>{x}, linalg::Real<const T>{ld}, pivots, linalg::Real<const T>{b}, n, m, adjoint);
}
template <class T>
inline void complex_ldl_solve_block(
    const mycc_host *host, int32_t worker, T *x, T *xi, const T *ld, const T *ldi, const int32_t *pivots, const T *b,
    const T *bi, int64_t n, int64_t m, int64_t adjoint) {
  linalg::ldl_solve(
      host, worker, linalg::Complex<T>{x, xi}, linalg::Complex<const T>{ld, ldi}, pivots,
      linalg::Complex<const T>{b, bi}, n, m, adjoint);
}

/* e [n][n] = exp(a): a Taylor polynomial of a / 2^k, squared k times. */
template <class T>
inline void matrix_exp_block(const mycc_host *host, int32_t worker, T *e, const T *a, int64_t n) {
  double *x = linalg::scratch<double>(host, worker, 4 * n * n);
  if (!x) return;
  double *term = x + n * n, *sum = term + n * n, *next = sum + n * n, largest = 0;
  linalg::read(x, linalg::Real<const T>{a}, n * n);
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
  linalg::write(linalg::Real<T>{e}, sum, n * n);
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_LINALG_LINALG_H */
