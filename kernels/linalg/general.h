/* general.h: eigenvalues of general matrices, and L D L^T of symmetric and Hermitian ones; see linalg/core.h.
 *
 * eig: Householder reduction to Hessenberg form and shifted QR with Givens rotations, in complex arithmetic, as
 * EISPACK's comqr2 has it; vectors by back-substitution. ldl: Bunch and Kaufman's diagonal pivots, with LAPACK's
 * (sytf2, hetf2, sytrs) conventions for the lower triangle.
 */
#ifndef MYCC_KERNELS_LINALG_GENERAL_H
#define MYCC_KERNELS_LINALG_GENERAL_H

#include "kernels/linalg/core.h"

namespace mycc {
namespace linalg {

static const double unit_roundoff = 0x1p-53;

/* The square root with a real part that is not negative. */
inline Number square_root(Number z) {
  const double length = size(z);
  if (length == 0) return 0;
  const double re = __builtin_sqrt(0.5 * (length + __builtin_fabs(z.re))), im = 0.5 * z.im / re;
  return z.re >= 0 ? Number(re, im) : Number(__builtin_fabs(im), __builtin_copysign(re, z.im));
}

/* h [n][n] becomes upper Hessenberg, q [n][n] is multiplied from the right by what does that: q h q* stays. */
inline void to_hessenberg(Number *h, Number *q, int64_t n) {
  for (int64_t k = 0; k + 2 < n; ++k) {
    Number *column = h + (k + 1) * n + k;
    const Number tau = reflector(column, n - k - 1, n);
    reflect(h + (k + 1) * n + k + 1, n, n - k - 1, n - k - 1, column, n, conjugate(tau));
    for (Number *rows = h; rows; rows = rows == h ? q : nullptr) { /* from the right: rows -= (rows v) tau v* */
      for (int64_t i = 0; i < n; ++i) {
        Number *row = rows + i * n + k + 1, sum = row[0];
        for (int64_t j = 1; j < n - k - 1; ++j) sum += row[j] * column[j * n];
        sum *= tau;
        row[0] -= sum;
        for (int64_t j = 1; j < n - k - 1; ++j) row[j] -= sum * conjugate(column[j * n]);
      }
    }
    for (int64_t i = 1; i < n - k - 1; ++i) column[i * n] = 0;
  }
}

/* The eigenvalue of the 2 x 2 block that ends at h[i][i] which lies nearer to h[i][i] (Wilkinson). */
inline Number shift_of(const Number *h, int64_t n, int64_t i) {
  const Number a = h[(i - 1) * n + i - 1], b = h[(i - 1) * n + i], c = h[i * n + i - 1], d = h[i * n + i];
  const Number half = (a - d) * Number(0.5), root = square_root(half * half + b * c);
  const Number sum = half + root, difference = half - root, larger = size(sum) > size(difference) ? sum : difference;
  return is_zero(larger) ? d : d - b * c / larger;
}

/* One step of QR with a shift on rows and columns [first, last] of a Hessenberg matrix, kept up in q. */
inline void qr_step(Number *h, Number *q, int64_t n, int64_t first, int64_t last, Number shift) {
  Number x = h[first * n + first] - shift, y = h[(first + 1) * n + first];
  for (int64_t k = first; k < last; ++k) {
    const double length = __builtin_hypot(size(x), size(y));
    if (length == 0) {
      if (k + 2 <= last) x = h[(k + 1) * n + k], y = h[(k + 2) * n + k];
      continue;
    }
    const Number c = x / length, s = y / length; /* rows: (c* s*; -s c) */
    for (int64_t j = k > first ? k - 1 : first; j < n; ++j) {
      const Number a = h[k * n + j], b = h[(k + 1) * n + j];
      h[k * n + j] = conjugate(c) * a + conjugate(s) * b;
      h[(k + 1) * n + j] = c * b - s * a;
    }
    const int64_t rows = smaller(k + 2, last) + 1;
    for (Number *m = h; m; m = m == h ? q : nullptr) {
      for (int64_t i = 0; i < (m == h ? rows : n); ++i) {
        const Number a = m[i * n + k], b = m[i * n + k + 1];
        m[i * n + k] = a * c + b * s;
        m[i * n + k + 1] = b * conjugate(c) - a * conjugate(s);
      }
    }
    if (k > first) h[(k + 1) * n + k - 1] = 0;
    if (k + 2 <= last) x = h[(k + 1) * n + k], y = h[(k + 2) * n + k];
  }
}

/* h becomes upper triangular with q h q* as it was. */
inline void to_triangular(Number *h, Number *q, int64_t n) {
  double all = 0;
  for (int64_t i = 0; i < n * n; ++i) all = __builtin_hypot(all, size(h[i]));
  int steps = 0;
  for (int64_t last = n - 1; last > 0;) {
    int64_t first = last;
    for (; first > 0; --first) {
      double around = size(h[first * n + first]) + size(h[(first - 1) * n + first - 1]);
      if (around == 0) around = all;
      if (!(size(h[first * n + first - 1]) > unit_roundoff * around)) break;
    }
    if (first > 0) h[first * n + first - 1] = 0;
    if (first == last || ++steps > 300) { /* NaN never converges */
      --last, steps = 0;
      continue;
    }
    Number shift = shift_of(h, n, last);
    if (steps % 10 == 0) shift = h[last * n + last] + Number(size(h[last * n + last - 1])); /* leaves a cycle */
    qr_step(h, q, n, first, last, shift);
  }
}

/* Eigenvalues w[n] and vectors v [n][n], as columns of length 1 whose largest element is real, of a general matrix.
 * Of a real one, values closer to the real axis than the error are real, and so are their vectors. */
template <class B, class A> inline void eig(const mycc_host *host, int32_t worker, B w, B v, A x, int64_t n) {
  Number *h = scratch<Number>(host, worker, 2 * n * n + n);
  if (!h) return;
  Number *q = h + n * n, *y = q + n * n;
  double all = 0;
  bool is_real = true;
  for (int64_t i = 0; i < n * n; ++i) {
    h[i] = Number(real(x[i]), imaginary(x[i]));
    all = __builtin_hypot(all, size(h[i]));
    is_real = is_real && h[i].im == 0;
  }
  set_identity(q, n, n);
  to_hessenberg(h, q, n);
  to_triangular(h, q, n);
  for (int64_t k = 0; k < n; ++k) {
    Number value = h[k * n + k];
    for (int64_t i = 0; i < n; ++i) y[i] = i == k ? 1 : 0;
    for (int64_t i = k - 1; i >= 0; --i) {
      Number sum = 0, gap = h[i * n + i] - value;
      for (int64_t j = i + 1; j <= k; ++j) sum -= h[i * n + j] * y[j];
      if (size(gap) < unit_roundoff * all) gap = unit_roundoff * (all > 0 ? all : 1);
      y[i] = sum / gap;
      const double large = size(y[i]);
      for (int64_t j = i; large > 1e100 && j <= k; ++j) y[j] /= large;
    }
    double length = 0;
    int64_t largest = 0;
    const auto element = [=](int64_t i) {
      Number sum = 0;
      for (int64_t j = 0; j <= k; ++j) sum += q[i * n + j] * y[j];
      return sum;
    };
    for (int64_t i = 0; i < n; ++i) {
      const double s = size(element(i));
      length = __builtin_hypot(length, s);
      if (s > size(element(largest))) largest = i;
    }
    const Number top = element(largest), turn = conjugate(top) / (size(top) > 0 ? size(top) * length : 1);
    const bool on_axis = is_real && __builtin_fabs(value.im) <= 16 * unit_roundoff * all;
    if (on_axis) value.im = 0;
    w.set(k, value);
    for (int64_t i = 0; i < n; ++i) {
      Number z = element(i) * turn;
      if (on_axis || i == largest) z.im = 0;
      v.set(i * n + k, z);
    }
  }
}

/* L, unit and below the diagonal, and the blocks of D on it, of a symmetric (or Hermitian: `adjoint`) matrix whose lower
 * triangle is given. pivots[k] > 0: row k was exchanged with that one, counted from 1; two equal negative ones: a block of
 * 2 x 2, whose second row was exchanged with minus that. info: the first zero pivot, counted from 1, or 0. */
template <class B, class A>
inline void ldl(
    const mycc_host *host, int32_t worker, B ld, int32_t *pivots, int32_t *info, A x, int64_t n, int64_t adjoint) {
  typedef typename A::S S;
  S *a = scratch<S>(host, worker, n * n);
  if (!a) return;
  const auto conjugated = [=](S z) { return adjoint ? conjugate(z) : z; };
  const double alpha = (1 + __builtin_sqrt(17.0)) / 8;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) a[i * n + j] = j > i ? S(0) : j == i && adjoint ? S(real(x[i * n + j])) : x[i * n + j];
  *info = 0;
  for (int64_t k = 0, step; k < n; k += step) {
    step = 1;
    int64_t with = k, below = k;
    const double own = pivot_size(a[k * n + k]);
    double column = 0;
    for (int64_t i = k + 1; i < n; ++i)
      if (pivot_size(a[i * n + k]) > column) below = i, column = pivot_size(a[i * n + k]);
    if (!(own > 0 || column > 0)) {
      *info = *info ? *info : (int32_t)k + 1;
      pivots[k] = (int32_t)k + 1;
      continue;
    }
    if (own < alpha * column) {
      double row = 0;
      for (int64_t j = k; j < n; ++j)
        if (j != below) row = __builtin_fmax(row, pivot_size(j < below ? a[below * n + j] : a[j * n + below]));
      if (own < alpha * column * (column / row)) {
        with = below;
        step = pivot_size(a[below * n + below]) >= alpha * row ? 1 : 2;
      }
    }
    const int64_t last = k + step - 1;
    if (with != last) { /* rows and columns `with` and `last` change places, in the lower triangle */
      for (int64_t i = with + 1; i < n; ++i) exchange(a[i * n + last], a[i * n + with]);
      for (int64_t j = last + 1; j < with; ++j) {
        const S z = conjugated(a[j * n + last]);
        a[j * n + last] = conjugated(a[with * n + j]), a[with * n + j] = z;
      }
      a[with * n + last] = conjugated(a[with * n + last]);
      exchange(a[last * n + last], a[with * n + with]);
      if (step == 2) exchange(a[(k + 1) * n + k], a[with * n + k]);
    }
    pivots[k] = pivots[last] = step == 1 ? (int32_t)with + 1 : -(int32_t)with - 1;
    /* The block d of D, and its inverse times what lies under it: l. The rest loses l d l^T = (what lay there) l^T. */
    const S d11 = a[k * n + k];
    const S d21 = step == 2 ? a[(k + 1) * n + k] : S(0), d12 = conjugated(d21);
    const S d22 = step == 2 ? a[(k + 1) * n + k + 1] : S(1), determinant = d11 * d22 - d12 * d21;
    for (int64_t j = k + step; j < n; ++j) {
      const S p = a[j * n + k], r = step == 2 ? a[j * n + k + 1] : S(0);
      const S first = step == 1 ? p / d11 : (p * d22 - r * d21) / determinant;
      const S second = step == 1 ? S(0) : (r * d11 - p * d12) / determinant;
      for (int64_t i = j; i < n; ++i) {
        a[i * n + j] -= a[i * n + k] * conjugated(first);
        if (step == 2) a[i * n + j] -= a[i * n + k + 1] * conjugated(second);
      }
      if (adjoint) a[j * n + j] = real(a[j * n + j]);
      a[j * n + k] = first;
      if (step == 2) a[j * n + k + 1] = second;
    }
  }
  write(ld, a, n * n);
}

/* x [n][m] with (L D L^T) x = b, of the factors that `ldl` makes. */
template <class B, class A>
inline void ldl_solve(
    const mycc_host *host, int32_t worker, B x, A a, const int32_t *pivots, A b, int64_t n, int64_t m, int64_t adjoint) {
  typedef typename A::S S;
  S *s = scratch<S>(host, worker, n * m);
  if (!s) return;
  const auto conjugated = [=](S z) { return adjoint ? conjugate(z) : z; };
  const auto row_of = [=](int64_t k) { /* the row that row k was exchanged with */
    const int64_t row = (pivots[k] > 0 ? pivots[k] : -(int64_t)pivots[k]) - 1;
    return row >= 0 && row < n ? row : k;
  };
  const auto exchange_rows = [=](int64_t i, int64_t j) {
    for (int64_t c = 0; i != j && c < m; ++c) exchange(s[i * m + c], s[j * m + c]);
  };
  read(s, b, n * m);
  for (int64_t k = 0, step; k < n; k += step) {
    step = pivots[k] < 0 && k + 1 < n ? 2 : 1;
    const int64_t last = k + step - 1;
    exchange_rows(last, row_of(k));
    const S d11 = a[k * n + k];
    const S d21 = step == 2 ? a[last * n + k] : S(0), d12 = conjugated(d21);
    const S d22 = step == 2 ? a[last * n + last] : S(1), determinant = d11 * d22 - d12 * d21;
    for (int64_t c = 0; c < m; ++c) {
      const S p = s[k * m + c], r = s[last * m + c];
      for (int64_t i = k + step; i < n; ++i) {
        s[i * m + c] -= a[i * n + k] * p;
        if (step == 2) s[i * m + c] -= a[i * n + last] * r;
      }
      s[k * m + c] = step == 1 ? p / d11 : (p * d22 - r * d12) / determinant;
      if (step == 2) s[last * m + c] = (r * d11 - p * d21) / determinant;
    }
  }
  for (int64_t last = n - 1, step; last >= 0; last -= step) {
    step = pivots[last] < 0 && last > 0 ? 2 : 1;
    for (int64_t k = last - step + 1; k <= last; ++k)
      for (int64_t i = last + 1; i < n; ++i)
        for (int64_t c = 0; c < m; ++c) s[k * m + c] -= conjugated(a[i * n + k]) * s[i * m + c];
    exchange_rows(last, row_of(last));
  }
  write(x, s, n * m);
}

} /* namespace linalg */
} /* namespace mycc */
#endif /* MYCC_KERNELS_LINALG_GENERAL_H */
