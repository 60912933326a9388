/* fft.h: discrete Fourier transforms of one row, real and imaginary parts apart, not scaled.
 *
 * Routines of lower/core/routines.py. Sizes with the prime factors 2 to 13 go by Stockham's self-sorting algorithm, radix 4
 * first (Van Loan, "Computational Frameworks for the Fast Fourier Transform", 1992); all others as a convolution of a
 * power of two, by Bluestein's algorithm. A vector runs over interleaved transforms, in the first steps, which have few,
 * over butterflies too. Tables of roots of unity come with the call: compiler/ir/fourier.py says what is
 * in them; for sizes that are known at run time only, fft_table makes the same.
 */
#ifndef MYCC_KERNELS_LINALG_FFT_H
#define MYCC_KERNELS_LINALG_FFT_H

#include "kernels/loops/loops.h"

namespace mycc {
namespace fft {

/* A complex vector: real and imaginary parts. */
template <class T> struct Parts {
  T *re, *im;
  MYCC_INLINE Parts operator+(int64_t i) const { return {re + i, im + i}; }
};

/* A complex number; V is a vector or a scalar. */
template <class V> struct Number {
  V re, im;
  MYCC_INLINE Number operator+(const Number &b) const { return {re + b.re, im + b.im}; }
  MYCC_INLINE Number operator-(const Number &b) const { return {re - b.re, im - b.im}; }
  template <class S> MYCC_INLINE Number times(const Number<S> &b) const {
    return {fma(re, b.re, -(im * b.im)), fma(re, b.im, im * b.re)};
  }
  template <class S> MYCC_INLINE Number scaled(S s) const { return {re * s, im * s}; }
  template <class S> MYCC_INLINE Number plus(const Number &b, S s) const { return {fma(b.re, s, re), fma(b.im, s, im)}; }
  MYCC_INLINE Number back() const { return {im, -re}; } /* -i times it */
};

constexpr int64_t kRadices[] = {4, 2, 3, 5, 7, 11, 13};
constexpr int kLargestRadix = 13;

/* The radix of the next step for a length; 0: it has a larger prime factor. */
MYCC_INLINE int64_t radix_of(int64_t n) {
  for (int64_t radix : kRadices)
    if (n % radix == 0) return radix;
  return 0;
}
MYCC_INLINE bool is_smooth(int64_t n) {
  while (n > 1) {
    const int64_t radix = radix_of(n);
    if (!radix) return false;
    n /= radix;
  }
  return true;
}
/* The power of two that holds 2 n - 1. */
MYCC_INLINE int64_t padded(int64_t n) {
  int64_t m = 1;
  while (m < 2 * n - 1) m *= 2;
  return m;
}

/* y[k] = sum over j of x[j] exp(-2 pi i j k / R). */
template <int R> struct Butterfly;
template <> struct Butterfly<2> {
  template <class V, class T> static MYCC_INLINE void run(Number<V> *x, const T *, const T *) {
    const Number<V> a = x[0], b = x[1];
    x[0] = a + b, x[1] = a - b;
  }
};
template <> struct Butterfly<4> {
  template <class V, class T> static MYCC_INLINE void run(Number<V> *x, const T *, const T *) {
    const Number<V> a = x[0] + x[2], b = x[0] - x[2], c = x[1] + x[3], d = (x[1] - x[3]).back();
    x[0] = a + c, x[1] = b + d, x[2] = a - c, x[3] = b - d;
  }
};
/* An odd radix by its symmetry: cosines and sines of the R-th roots, R / 2 of each used. */
template <int R> struct Butterfly {
  template <class V, class T> static MYCC_INLINE void run(Number<V> *x, const T *cosine, const T *sine) {
    constexpr int H = R / 2;
    Number<V> sums[H], gaps[H];
    const Number<V> first = x[0];
    Number<V> all = first;
    for (int j = 0; j < H; ++j) {
      sums[j] = x[j + 1] + x[R - 1 - j], gaps[j] = x[j + 1] - x[R - 1 - j];
      all = all + sums[j];
    }
    x[0] = all;
    for (int k = 1; k <= H; ++k) {
      Number<V> even = first, odd = gaps[0].scaled(sine[k]);
      for (int j = 1; j <= H; ++j) even = even.plus(sums[j - 1], cosine[j * k % R]);
      for (int j = 2; j <= H; ++j) odd = odd.plus(gaps[j - 1], sine[j * k % R]);
      const Number<V> rotated = odd.back();
      x[k] = even + rotated, x[R - k] = even - rotated;
    }
  }
};

/* The first of `m` butterflies of S interleaved transforms, S smaller than a vector and a divisor of it: a vector has
 * several p, which lie one behind the other in x, and are sorted into y. Returns how many p are done. */
template <int R, int S, class T>
int64_t step_across(Parts<const T> x, Parts<T> y, int64_t m, Parts<const T> w, const T *cosine, const T *sine) {
  int64_t i = 0;
  for (; i + W <= m * S; i += W) {
    Number<decltype(load((const T *)0))> z[R];
    for (int j = 0; j < R; ++j) z[j] = {load(x.re + i + m * S * j), load(x.im + i + m * S * j)};
    Butterfly<R>::run(z, cosine, sine);
    T re[R][W], im[R][W];
    for (int k = 0; k < R; ++k) {
      if (k) {
        T turn_re[W], turn_im[W];
        for (int l = 0; l < W; ++l) {
          const int64_t root = (i + l / S * S) * k;
          turn_re[l] = w.re[root], turn_im[l] = w.im[root];
        }
        z[k] = z[k].times(Number<decltype(load((const T *)0))>{load(turn_re), load(turn_im)});
      }
      store(re[k], z[k].re), store(im[k], z[k].im);
    }
    T *to_re = y.re + i * R, *to_im = y.im + i * R;
    for (int p = 0; p < W / S; ++p)
      for (int k = 0; k < R; ++k)
        for (int q = 0; q < S; ++q) {
          to_re[(p * R + k) * S + q] = re[k][p * S + q];
          to_im[(p * R + k) * S + q] = im[k][p * S + q];
        }
  }
  return i / S;
}

/* One step: n = R m values in s interleaved transforms, x[q + s (p + m j)] to y[q + s (R p + k)]. The roots of the whole
 * length n s are w, so that those of n are every s-th. */
template <int R, class T> void step(Parts<const T> x, Parts<T> y, int64_t n, int64_t s, Parts<const T> w) {
  const int64_t m = n / R;
  T cosine[R], sine[R];
  for (int k = 0; k < R; ++k) cosine[k] = w.re[k * m * s], sine[k] = -w.im[k * m * s];
  int64_t p = 0;
  if (R <= 5 && s < W) {
    if (s == 1) p = step_across<R, 1>(x, y, m, w, cosine, sine);
    if (s == 4 && W > 4) p = step_across<R, 4>(x, y, m, w, cosine, sine);
    if (s == 8 && W > 8) p = step_across<R, (W > 8 ? 8 : 1)>(x, y, m, w, cosine, sine);
  }
  for (; p < m; ++p) {
    Number<T> turn[R];
    for (int k = 1; k < R; ++k) turn[k] = {w.re[p * k * s], w.im[p * k * s]};
    const Parts<const T> from = x + s * p;
    const Parts<T> to = y + s * R * p;
    int64_t q = 0;
    for (; q + W <= s; q += W) {
      Number<decltype(load((const T *)0))> z[R];
      for (int j = 0; j < R; ++j) z[j] = {load(from.re + s * m * j + q), load(from.im + s * m * j + q)};
      Butterfly<R>::run(z, cosine, sine);
      for (int k = 0; k < R; ++k) {
        if (k) z[k] = z[k].times(turn[k]);
        store(to.re + s * k + q, z[k].re), store(to.im + s * k + q, z[k].im);
      }
    }
    for (; q < s; ++q) {
      Number<T> z[R];
      for (int j = 0; j < R; ++j) z[j] = {from.re[s * m * j + q], from.im[s * m * j + q]};
      Butterfly<R>::run(z, cosine, sine);
      for (int k = 0; k < R; ++k) {
        if (k) z[k] = z[k].times(turn[k]);
        to.re[s * k + q] = z[k].re, to.im[s * k + q] = z[k].im;
      }
    }
  }
}

template <class T>
void step_of(int64_t radix, Parts<const T> x, Parts<T> y, int64_t n, int64_t s, Parts<const T> w) {
  switch (radix) {
    case 2: return step<2>(x, y, n, s, w);
    case 3: return step<3>(x, y, n, s, w);
    case 4: return step<4>(x, y, n, s, w);
    case 5: return step<5>(x, y, n, s, w);
    case 7: return step<7>(x, y, n, s, w);
    case 11: return step<11>(x, y, n, s, w);
    default: return step<13>(x, y, n, s, w);
  }
}

template <class T> MYCC_INLINE void copy(Parts<const T> x, Parts<T> y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y.re[i] = x.re[i], y.im[i] = x.im[i];
}

/* y = transform of x for a smooth n with roots w; scratch of n. y and scratch are not x. */
template <class T>
void smooth(Parts<const T> x, Parts<T> y, Parts<T> scratch, int64_t n, Parts<const T> w) {
  int steps = 0;
  for (int64_t rest = n; rest > 1; rest /= radix_of(rest)) ++steps;
  if (!steps) return copy(x, y, n);
  int64_t rest = n, s = 1;
  for (int i = steps; i-- > 0;) { /* the last step writes y */
    const int64_t radix = radix_of(rest);
    const Parts<T> to = i % 2 ? scratch : y;
    step_of(radix, x, to, rest, s, w);
    x = {to.re, to.im};
    rest /= radix, s *= radix;
  }
}

/* The table's next part: `count` roots, real parts and then imaginary parts. */
template <class T> MYCC_INLINE Parts<const T> next_part(const T *&table, int64_t count) {
  const Parts<const T> part = {table, table + count};
  table += 2 * count;
  return part;
}

MYCC_INLINE int64_t scratch_size(int64_t n) { return is_smooth(n) ? 2 * n : 6 * padded(n); }

/* Any n: x_j c_j convolved with the conjugate chirp 1 / c, times c_k, where j k = (j^2 + k^2 - (k - j)^2) / 2. */
template <class T> void transform(Parts<const T> x, Parts<T> y, T *scratch, int64_t n, const T *table) {
  if (is_smooth(n)) return smooth(x, y, {scratch, scratch + n}, n, next_part(table, n));
  const int64_t m = padded(n);
  const Parts<const T> chirp = next_part(table, n), kernel = next_part(table, m), w = next_part(table, m);
  const Parts<T> a = {scratch, scratch + m}, b = a + 2 * m, rest = b + 2 * m;
  for (int64_t i = 0; i < n; ++i) {
    const Number<T> z = Number<T>{x.re[i], x.im[i]}.times(Number<T>{chirp.re[i], chirp.im[i]});
    a.re[i] = z.re, a.im[i] = z.im;
  }
  for (int64_t i = n; i < m; ++i) a.re[i] = a.im[i] = 0;
  smooth<T>({a.re, a.im}, b, rest, m, w);
  for (int64_t i = 0; i < m; ++i) { /* parts exchanged: the transform back is that forth of the exchanged */
    const Number<T> z = Number<T>{b.re[i], b.im[i]}.times(Number<T>{kernel.re[i], kernel.im[i]});
    b.re[i] = z.im, b.im[i] = z.re;
  }
  smooth<T>({b.re, b.im}, a, rest, m, w);
  for (int64_t i = 0; i < n; ++i) {
    const Number<T> z = Number<T>{a.im[i], a.re[i]}.times(Number<T>{chirp.re[i], chirp.im[i]});
    y.re[i] = z.re, y.im[i] = z.im;
  }
}

/* exp(-2 pi i k / n) to the last bit or so: the angle is brought into an eighth of the circle in whole numbers. */
inline Number<double> root(int64_t k, int64_t n) {
  k %= n;
  const int64_t quarter = (8 * k / n + 1) / 2;
  const double rest = (double)(4 * k - quarter * n) * (1.5707963267948966 / (double)n);
  const double c = __builtin_cos(rest), s = __builtin_sin(rest);
  switch (quarter % 4) {
    case 0: return {c, -s};
    case 1: return {-s, -c};
    case 2: return {-c, s};
    default: return {s, c};
  }
}

template <class T> inline void write_roots(T *to, int64_t count, int64_t n) {
  for (int64_t i = 0; i < count; ++i) {
    const Number<double> z = root(i, n);
    to[i] = (T)z.re, to[count + i] = (T)z.im;
  }
}

/* compiler/ir/fourier.py's table("fft", n), through doubles in `scratch` (of 10 padded(n)). */
template <class T> inline void write_table(T *to, double *scratch, int64_t n) {
  if (is_smooth(n)) return write_roots(to, n, n);
  const int64_t m = padded(n);
  double *chirp = scratch, *w = chirp + 2 * m;
  const Parts<double> b = {w + 2 * m, w + 3 * m}, kernel = b + 2 * m, rest = kernel + 2 * m;
  write_roots(w, m, m);
  for (int64_t i = 0; i < m; ++i) b.re[i] = b.im[i] = 0;
  for (int64_t i = 0; i < n; ++i) {
    const Number<double> z = root((int64_t)((unsigned __int128)i * i % (2 * n)), 2 * n);
    chirp[i] = z.re, chirp[n + i] = z.im;
    b.re[i] = b.re[(m - i) % m] = z.re, b.im[i] = b.im[(m - i) % m] = -z.im;
  }
  smooth<double>({b.re, b.im}, kernel, rest, m, {w, w + m});
  for (int64_t i = 0; i < 2 * n; ++i) to[i] = (T)chirp[i];
  to += 2 * n;
  for (int64_t i = 0; i < m; ++i) to[i] = (T)(kernel.re[i] / (double)m), to[m + i] = (T)(kernel.im[i] / (double)m);
  to += 2 * m;
  for (int64_t i = 0; i < 2 * m; ++i) to[i] = (T)w[i];
}

/* Elements of the table("fft", n). */
MYCC_INLINE int64_t table_size(int64_t n) { return is_smooth(n) ? 2 * n : 2 * n + 4 * padded(n); }

} /* namespace fft */

/* The table for a size that is known at run time: "fft", or "rfft" where `half`. */
template <class T>
inline void fft_table_block(const mycc_host *host, int32_t worker, T *table, int64_t n, int64_t half) {
  const bool halved = half && n % 2 == 0 && n > 0;
  const int64_t own = halved ? n / 2 : n;
  double *scratch = row_scratch<double>(host, worker, 10 * fft::padded(own));
  if (!scratch || n <= 0) return;
  fft::write_table(table, scratch, own);
  if (halved) fft::write_roots(table + fft::table_size(own), own + 1, n);
}

/* y[k] = sum over j of x[j] exp(-2 pi i j k / n). */
template <class T>
inline void fft_row(
    const mycc_host *host, int32_t worker, T *y_re, T *y_im, const T *x_re, const T *x_im, const T *table, int64_t n) {
  T *scratch = row_scratch<T>(host, worker, fft::scratch_size(n));
  if (scratch) fft::transform<T>({x_re, x_im}, {y_re, y_im}, scratch, n, table);
}

/* The first n / 2 + 1 values of the transform of n real ones: for an even n by a transform of half the size, whose
 * real and imaginary parts are the elements with even and odd places. */
template <class T>
inline void rfft_row(
    const mycc_host *host, int32_t worker, T *y_re, T *y_im, const T *x, const T *table, int64_t n) {
  using namespace fft;
  const bool even = n % 2 == 0;
  const int64_t h = even ? n / 2 : n;
  T *scratch = row_scratch<T>(host, worker, scratch_size(h) + 4 * h);
  if (!scratch) return;
  const Parts<T> z = {scratch, scratch + h}, t = z + 2 * h;
  if (!even) {
    for (int64_t i = 0; i < n; ++i) z.re[i] = x[i], z.im[i] = 0;
    transform<T>({z.re, z.im}, t, scratch + 4 * h, n, table);
    return copy<T>({t.re, t.im}, {y_re, y_im}, n / 2 + 1);
  }
  for (int64_t i = 0; i < h; ++i) z.re[i] = x[2 * i], z.im[i] = x[2 * i + 1];
  transform<T>({z.re, z.im}, t, scratch + 4 * h, h, table);
  table += table_size(h);
  const Parts<const T> w = next_part(table, h + 1);
  const T half = (T)0.5;
  const auto value = [=](int64_t k, int64_t a, int64_t b) __attribute__((always_inline)) {
    const Number<T> sum = {t.re[a] + t.re[b], t.im[a] - t.im[b]}, gap = {t.re[a] - t.re[b], t.im[a] + t.im[b]};
    const Number<T> odd = gap.times(Number<T>{w.re[k], w.im[k]}).back();
    y_re[k] = half * (sum.re + odd.re), y_im[k] = half * (sum.im + odd.im);
  };
  if (h == 0) return;
  value(0, 0, 0), value(h, 0, 0);
  for (int64_t k = 1; k < h; ++k) value(k, k, h - k);
}

/* The n real values whose transform begins with x, times n; the imaginary parts that have to be 0 are not read. */
template <class T>
inline void irfft_row(
    const mycc_host *host, int32_t worker, T *y, const T *x_re, const T *x_im, const T *table, int64_t n) {
  using namespace fft;
  const bool even = n % 2 == 0;
  const int64_t h = even ? n / 2 : n;
  T *scratch = row_scratch<T>(host, worker, scratch_size(h) + 4 * h);
  if (!scratch) return;
  const Parts<T> z = {scratch, scratch + h}, t = z + 2 * h;
  const T *roots = table + table_size(h);
  const Parts<const T> w = even ? next_part(roots, h + 1) : Parts<const T>{0, 0};
  for (int64_t k = 0; k < h; ++k) { /* parts exchanged, for the transform back */
    if (!even) {
      const int64_t i = k <= n / 2 ? k : n - k;
      z.im[k] = x_re[i], z.re[k] = k == 0 ? (T)0 : k <= n / 2 ? x_im[i] : -x_im[i];
      continue;
    }
    const T a_im = k == 0 ? (T)0 : x_im[k], b_im = k == 0 ? (T)0 : x_im[h - k];
    const Number<T> sum = {x_re[k] + x_re[h - k], a_im - b_im}, gap = {x_re[k] - x_re[h - k], a_im + b_im};
    const Number<T> odd = gap.times(Number<T>{w.re[k], -w.im[k]});
    z.im[k] = sum.re - odd.im, z.re[k] = sum.im + odd.re;
  }
  transform<T>({z.re, z.im}, t, scratch + 4 * h, h, table);
  for (int64_t i = 0; i < h; ++i) {
    if (even)
      y[2 * i] = t.im[i], y[2 * i + 1] = t.re[i];
    else
      y[i] = t.im[i];
  }
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_LINALG_FFT_H */
