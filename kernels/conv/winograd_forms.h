/* The small transforms of Winograd's convolutions of 3 x 3, one vector of channels at a time.
 *
 * F(E x E) with stride 1: a tile of E x E outputs reads (E + 2)^2 inputs, which become as many points; each is
 * multiplied by weights of its own, and the sums become the outputs. That takes (E + 2)^2 products per pair of channels
 * instead of 9 E^2. The points are values of polynomials: 0, 1, -1 for E = 2, +-3/8, +-5/4 for 3, 0, +-sqrt(1/2),
 * +-sqrt(2) for 4, and infinity; those keep rounding small. A. Lavin, S. Gray: Fast algorithms for convolutional neural
 * networks, 2015; B. Barabasz and others: Error analysis and improving the accuracy of Winograd convolution, 2018.
 *
 * With stride 2 the odd inputs see the outer taps g0, g2 with stride 1, the even ones the middle tap g1:
 *   y0 = (x0 - x2) g0 + x1 g1 + x2 (g0 + g2),  y1 = (x4 - x2) g2 + x3 g1 + x2 (g0 + g2)
 * takes 5 products instead of 6 along each dimension, of which those of a sum are added up as they are made.
 */
#ifndef MYCC_KERNELS_CONV_WINOGRAD_FORMS_H
#define MYCC_KERNELS_CONV_WINOGRAD_FORMS_H

#include "kernels/vec/vec.h"

namespace mycc {

/* A row of points, for one vector of channels each. */
struct Points3 {
  vf32 a, b, c;
};
struct Points4 {
  vf32 a, b, c, d;
};
struct Points5 {
  vf32 a, b, c, d, e;
};
struct Points6 {
  vf32 a, b, c, d, e, f;
};
MYCC_INLINE Points3 operator+(Points3 x, Points3 y) { return {x.a + y.a, x.b + y.b, x.c + y.c}; }
MYCC_INLINE Points3 operator-(Points3 x, Points3 y) { return {x.a - y.a, x.b - y.b, x.c - y.c}; }
MYCC_INLINE Points3 operator*(Points3 x, float s) { return {x.a * s, x.b * s, x.c * s}; }
MYCC_INLINE Points3 fma(Points3 x, float s, Points3 y) {
  return {fma(x.a, s, y.a), fma(x.b, s, y.b), fma(x.c, s, y.c)};
}
MYCC_INLINE Points4 operator+(Points4 x, Points4 y) { return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d}; }
MYCC_INLINE Points4 operator-(Points4 x, Points4 y) { return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d}; }
MYCC_INLINE Points5 operator+(Points5 x, Points5 y) {
  return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d, x.e + y.e};
}
MYCC_INLINE Points5 operator-(Points5 x, Points5 y) {
  return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d, x.e - y.e};
}
MYCC_INLINE Points5 operator*(Points5 x, float s) { return {x.a * s, x.b * s, x.c * s, x.d * s, x.e * s}; }
MYCC_INLINE Points5 fma(Points5 x, float s, Points5 y) {
  return {fma(x.a, s, y.a), fma(x.b, s, y.b), fma(x.c, s, y.c), fma(x.d, s, y.d), fma(x.e, s, y.e)};
}
MYCC_INLINE Points6 operator+(Points6 x, Points6 y) {
  return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d, x.e + y.e, x.f + y.f};
}
MYCC_INLINE Points6 operator-(Points6 x, Points6 y) {
  return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d, x.e - y.e, x.f - y.f};
}
MYCC_INLINE Points6 operator*(Points6 x, float s) {
  return {x.a * s, x.b * s, x.c * s, x.d * s, x.e * s, x.f * s};
}
MYCC_INLINE Points6 fma(Points6 x, float s, Points6 y) {
  return {fma(x.a, s, y.a), fma(x.b, s, y.b), fma(x.c, s, y.c), fma(x.d, s, y.d), fma(x.e, s, y.e), fma(x.f, s, y.f)};
}

/* n values, n <= W; all of them when n is W. */
MYCC_INLINE vf32 load_channels(const float *p, int n) { return n == W ? load(p) : load_tail(p, n); }
MYCC_INLINE void store_channels(float *p, vf32 v, int n) {
  if (n == W) store(p, v);
  else store_tail(p, v, n);
}

/* Where a tile's points or sums lie: [r][c], r and c: whether they count for its last row, its last column of outputs
 * alone, which tiles at the border of a map do without. */
template <class T> struct TilePlaces {
  T *at[2][2];
};

/* What a form has, along one dimension: `edge` inputs and points; `sums`, to which products of points with one of
 * `weights` matrices are added. Only the last sum counts for the last output alone. third: the weights that the third
 * tap makes alone. longest: channels that are summed up one after the other; forms that magnify what is rounded take
 * fewer. */
template <int Edge, int Longest> struct WinogradPoints {
  static constexpr int edge = Edge, sums = Edge, weights = Edge, third = Edge - 1, longest = Longest;
  static constexpr int sum_of(int point) { return point; }
  static constexpr int weights_of(int point) { return point; }
};

/* E outputs along each dimension, stride S. input, output: along one dimension, of vectors or of whole rows. points,
 * outputs: along both, of n or W channels from `c` on; `step` floats from a point or sum to the next one. */
template <int E, int S = 1> struct Winograd;

template <> struct Winograd<2> : WinogradPoints<4, 128> {
  template <class T> static MYCC_INLINE void input(T &a, T &b, T &c, T &d) {
    const T p = a - c, q = b + c, r = c - b, s = b - d;
    a = p, b = q, c = r, d = s;
  }
  template <class T> static MYCC_INLINE void output(const T &a, const T &b, const T &c, const T &d, T &y0, T &y1) {
    y0 = a + b + c;
    y1 = b - c - d;
  }
  static MYCC_INLINE Points4 row(const float *x, int64_t step, int n) {
    return {load_channels(x, n), load_channels(x + step, n), load_channels(x + 2 * step, n),
            load_channels(x + 3 * step, n)};
  }
  static MYCC_INLINE void write(Points4 r, float *const to[2], int64_t i, int64_t step, int n) {
    input(r.a, r.b, r.c, r.d);
    store_channels(to[0] + i, r.a, n), store_channels(to[0] + i + step, r.b, n);
    store_channels(to[0] + i + 2 * step, r.c, n), store_channels(to[1] + i + 3 * step, r.d, n);
  }
  /* n channels of a tile of inputs, `below` floats to the next row, `right` to the next column. */
  static MYCC_INLINE void points(const float *x, int64_t below, int64_t right, const TilePlaces<float> &to, int64_t c,
                                 int64_t step, int n) {
    Points4 r0 = row(x + c, right, n), r1 = row(x + c + below, right, n), r2 = row(x + c + 2 * below, right, n),
            r3 = row(x + c + 3 * below, right, n);
    input(r0, r1, r2, r3);
    write(r0, to.at[0], c, step, n), write(r1, to.at[0], c + 4 * step, step, n);
    write(r2, to.at[0], c + 8 * step, step, n), write(r3, to.at[1], c + 12 * step, step, n);
  }
  static MYCC_INLINE Points4 read(const float *const m[2], int64_t i, int64_t step) {
    return {load(m[0] + i), load(m[0] + i + step), load(m[0] + i + 2 * step), load(m[1] + i + 3 * step)};
  }
  static MYCC_INLINE void finish(const Points4 &r, float *to, int64_t next) {
    vf32 y0, y1;
    output(r.a, r.b, r.c, r.d, y0, y1);
    store(to, y0), store(to + next, y1);
  }
  /* A vector of channels of a tile of outputs, [E][E] at `to`, `next` floats between them. */
  static MYCC_INLINE void outputs(const TilePlaces<const float> &m, int64_t c, int64_t step, float *to, int64_t next) {
    Points4 y0, y1;
    output(read(m.at[0], c, step), read(m.at[0], c + 4 * step, step), read(m.at[0], c + 8 * step, step),
           read(m.at[1], c + 12 * step, step), y0, y1);
    finish(y0, to, next), finish(y1, to + 2 * next, next);
  }
};

template <> struct Winograd<3> : WinogradPoints<5, 64> {
  static constexpr float near = 0.375f, far = 1.25f; /* the points +-near, +-far; their squares: */
  static constexpr float near2 = near * near, far2 = far * far;

  template <class T> static MYCC_INLINE void input(T &a, T &b, T &c, T &d, T &e) {
    const T o = fma(b, -far2, d), p = fma(a, -far2, c), q = fma(b, -near2, d), r = fma(a, -near2, c);
    const T last = fma(a, near2 * far2, fma(c, -(near2 + far2), e));
    a = fma(p, near, o), b = fma(p, -near, o), c = fma(r, far, q), d = fma(r, -far, q), e = last;
  }
  template <class T>
  static MYCC_INLINE void output(const T &a, const T &b, const T &c, const T &d, const T &e, T &y0, T &y1, T &y2) {
    const T p = a + b, q = a - b, r = c + d, s = c - d;
    y0 = p + r, y1 = fma(s, far, q * near), y2 = fma(r, far2, fma(p, near2, e));
  }
  /* The weights of the four finite points, of taps or rows of taps; that of infinity is g2. */
  template <class T>
  static MYCC_INLINE void weigh(const T &g0, const T &g1, const T &g2, T &w0, T &w1, T &w2, T &w3) {
    constexpr float by_near = 0.5f / (near2 - far2), by_far = 0.5f / (far2 - near2);
    const T p = fma(g2, near2, g0) * (by_near / near), q = g1 * by_near;
    const T r = fma(g2, far2, g0) * (by_far / far), s = g1 * by_far;
    w0 = q + p, w1 = q - p, w2 = s + r, w3 = s - r;
  }
  static MYCC_INLINE void write_weights(const Points3 &g, float *to, int64_t step) {
    vf32 w0, w1, w2, w3;
    weigh(g.a, g.b, g.c, w0, w1, w2, w3);
    store(to, w0), store(to + step, w1), store(to + 2 * step, w2), store(to + 3 * step, w3), store(to + 4 * step, g.c);
  }
  /* The weights of 3 x 3 taps, `next` floats from tap to tap, as the compiler makes them in float64. */
  static MYCC_INLINE void make_weights(const float *g, int64_t next, float *to, int64_t step) {
    const Points3 g0 = taps(g, next), g1 = taps(g + 3 * next, next), g2 = taps(g + 6 * next, next);
    Points3 w0, w1, w2, w3;
    weigh(g0, g1, g2, w0, w1, w2, w3);
    write_weights(w0, to, step), write_weights(w1, to + 5 * step, step), write_weights(w2, to + 10 * step, step);
    write_weights(w3, to + 15 * step, step), write_weights(g2, to + 20 * step, step);
  }
  static MYCC_INLINE Points3 taps(const float *g, int64_t next) {
    return {load(g), load(g + next), load(g + 2 * next)};
  }
  static MYCC_INLINE Points5 row(const float *x, int64_t step, int n) {
    return {load_channels(x, n), load_channels(x + step, n), load_channels(x + 2 * step, n),
            load_channels(x + 3 * step, n), load_channels(x + 4 * step, n)};
  }
  static MYCC_INLINE void write(Points5 r, float *const to[2], int64_t i, int64_t step, int n) {
    input(r.a, r.b, r.c, r.d, r.e);
    store_channels(to[0] + i, r.a, n), store_channels(to[0] + i + step, r.b, n);
    store_channels(to[0] + i + 2 * step, r.c, n), store_channels(to[0] + i + 3 * step, r.d, n);
    store_channels(to[1] + i + 4 * step, r.e, n);
  }
  static MYCC_INLINE void points(const float *x, int64_t below, int64_t right, const TilePlaces<float> &to, int64_t c,
                                 int64_t step, int n) {
    Points5 r0 = row(x + c, right, n), r1 = row(x + c + below, right, n), r2 = row(x + c + 2 * below, right, n);
    Points5 r3 = row(x + c + 3 * below, right, n), r4 = row(x + c + 4 * below, right, n);
    input(r0, r1, r2, r3, r4);
    write(r0, to.at[0], c, step, n), write(r1, to.at[0], c + 5 * step, step, n);
    write(r2, to.at[0], c + 10 * step, step, n), write(r3, to.at[0], c + 15 * step, step, n);
    write(r4, to.at[1], c + 20 * step, step, n);
  }
  static MYCC_INLINE Points5 read(const float *const m[2], int64_t i, int64_t step) {
    return {load(m[0] + i), load(m[0] + i + step), load(m[0] + i + 2 * step), load(m[0] + i + 3 * step),
            load(m[1] + i + 4 * step)};
  }
  static MYCC_INLINE void finish(const Points5 &r, float *to, int64_t next) {
    vf32 y0, y1, y2;
    output(r.a, r.b, r.c, r.d, r.e, y0, y1, y2);
    store(to, y0), store(to + next, y1), store(to + 2 * next, y2);
  }
  static MYCC_INLINE void outputs(const TilePlaces<const float> &m, int64_t c, int64_t step, float *to, int64_t next) {
    Points5 y0, y1, y2;
    output(read(m.at[0], c, step), read(m.at[0], c + 5 * step, step), read(m.at[0], c + 10 * step, step),
           read(m.at[0], c + 15 * step, step), read(m.at[1], c + 20 * step, step), y0, y1, y2);
    finish(y0, to, next), finish(y1, to + 3 * next, next), finish(y2, to + 6 * next, next);
  }
};

template <> struct Winograd<4> : WinogradPoints<6, 64> {
  static constexpr float near = 0.70710678f, far = 1.41421356f; /* the points +-near, +-far; their cubes: */
  static constexpr float near3 = 0.35355339f, far3 = 2.82842712f;

  template <class T> static MYCC_INLINE void input(T &a, T &b, T &c, T &d, T &e, T &f) {
    const T p = fma(c, -2.0f, e), q = fma(b, -2.0f, d), r = fma(c, -0.5f, e), s = fma(b, -0.5f, d);
    const T first = fma(c, -2.5f, e) + a, last = fma(d, -2.5f, f) + b;
    a = first, b = fma(q, near, p), c = fma(q, -near, p), d = fma(s, far, r), e = fma(s, -far, r), f = last;
  }
  template <class T>
  static MYCC_INLINE void output(const T &a, const T &b, const T &c, const T &d, const T &e, const T &f, T &y0, T &y1,
                                 T &y2, T &y3) {
    const T p = b + c, q = b - c, r = d + e, s = d - e;
    y0 = a + p + r, y1 = fma(s, far, q * near), y2 = fma(r, 2.0f, p * 0.5f), y3 = fma(s, far3, fma(q, near3, f));
  }
  static MYCC_INLINE Points6 row(const float *x, int64_t step, int n) {
    return {load_channels(x, n),            load_channels(x + step, n),     load_channels(x + 2 * step, n),
            load_channels(x + 3 * step, n), load_channels(x + 4 * step, n), load_channels(x + 5 * step, n)};
  }
  static MYCC_INLINE void write(Points6 r, float *const to[2], int64_t i, int64_t step, int n) {
    input(r.a, r.b, r.c, r.d, r.e, r.f);
    store_channels(to[0] + i, r.a, n), store_channels(to[0] + i + step, r.b, n);
    store_channels(to[0] + i + 2 * step, r.c, n), store_channels(to[0] + i + 3 * step, r.d, n);
    store_channels(to[0] + i + 4 * step, r.e, n), store_channels(to[1] + i + 5 * step, r.f, n);
  }
  static MYCC_INLINE void points(const float *x, int64_t below, int64_t right, const TilePlaces<float> &to, int64_t c,
                                 int64_t step, int n) {
    Points6 r0 = row(x + c, right, n), r1 = row(x + c + below, right, n), r2 = row(x + c + 2 * below, right, n);
    Points6 r3 = row(x + c + 3 * below, right, n), r4 = row(x + c + 4 * below, right, n);
    Points6 r5 = row(x + c + 5 * below, right, n);
    input(r0, r1, r2, r3, r4, r5);
    write(r0, to.at[0], c, step, n), write(r1, to.at[0], c + 6 * step, step, n);
    write(r2, to.at[0], c + 12 * step, step, n), write(r3, to.at[0], c + 18 * step, step, n);
    write(r4, to.at[0], c + 24 * step, step, n), write(r5, to.at[1], c + 30 * step, step, n);
  }
  static MYCC_INLINE Points6 read(const float *const m[2], int64_t i, int64_t step) {
    return {load(m[0] + i),            load(m[0] + i + step),     load(m[0] + i + 2 * step),
            load(m[0] + i + 3 * step), load(m[0] + i + 4 * step), load(m[1] + i + 5 * step)};
  }
  static MYCC_INLINE void finish(const Points6 &r, float *to, int64_t next) {
    vf32 y0, y1, y2, y3;
    output(r.a, r.b, r.c, r.d, r.e, r.f, y0, y1, y2, y3);
    store(to, y0), store(to + next, y1), store(to + 2 * next, y2), store(to + 3 * next, y3);
  }
  static MYCC_INLINE void outputs(const TilePlaces<const float> &m, int64_t c, int64_t step, float *to, int64_t next) {
    Points6 y0, y1, y2, y3;
    output(read(m.at[0], c, step), read(m.at[0], c + 6 * step, step), read(m.at[0], c + 12 * step, step),
           read(m.at[0], c + 18 * step, step), read(m.at[0], c + 24 * step, step), read(m.at[1], c + 30 * step, step),
           y0, y1, y2, y3);
    finish(y0, to, next), finish(y1, to + 4 * next, next), finish(y2, to + 8 * next, next);
    finish(y3, to + 12 * next, next);
  }
};

/* Points x0 - x2, x1, x2, x3, x4 - x2; sums of the first two, of the third, of the last two; weights g0, g1, g2 and
 * g0 + g2. */
template <> struct Winograd<2, 2> {
  static constexpr int edge = 5, sums = 3, weights = 4, third = 2, longest = 128;
  static constexpr int sum_of(int point) { return point / 2 + (point == 3); }
  static constexpr int weights_of(int point) { return point == 2 ? 3 : point == 3 ? 1 : point == 4 ? 2 : point; }

  template <class T> static MYCC_INLINE void input(T &a, const T &c, T &e) { a = a - c, e = e - c; }
  static MYCC_INLINE void write(Points5 r, float *const to[2], int64_t i, int64_t step, int n) {
    input(r.a, r.c, r.e);
    store_channels(to[0] + i, r.a, n), store_channels(to[0] + i + step, r.b, n);
    store_channels(to[0] + i + 2 * step, r.c, n), store_channels(to[1] + i + 3 * step, r.d, n);
    store_channels(to[1] + i + 4 * step, r.e, n);
  }
  static MYCC_INLINE void points(const float *x, int64_t below, int64_t right, const TilePlaces<float> &to, int64_t c,
                                 int64_t step, int n) {
    typedef Winograd<3> Rows;
    Points5 r0 = Rows::row(x + c, right, n), r4 = Rows::row(x + c + 4 * below, right, n);
    const Points5 r2 = Rows::row(x + c + 2 * below, right, n);
    input(r0, r2, r4);
    write(r0, to.at[0], c, step, n);
    write(Rows::row(x + c + below, right, n), to.at[0], c + 5 * step, step, n);
    write(r2, to.at[0], c + 10 * step, step, n);
    write(Rows::row(x + c + 3 * below, right, n), to.at[1], c + 15 * step, step, n);
    write(r4, to.at[1], c + 20 * step, step, n);
  }
  static MYCC_INLINE Points3 read(const float *const m[2], int64_t i, int64_t step) {
    return {load(m[0] + i), load(m[0] + i + step), load(m[1] + i + 2 * step)};
  }
  static MYCC_INLINE void finish(const Points3 &r, float *to, int64_t next) {
    store(to, r.a + r.b), store(to + next, r.b + r.c);
  }
  static MYCC_INLINE void outputs(const TilePlaces<const float> &m, int64_t c, int64_t step, float *to, int64_t next) {
    const Points3 middle = read(m.at[0], c + 3 * step, step);
    finish(read(m.at[0], c, step) + middle, to, next);
    finish(middle + read(m.at[1], c + 6 * step, step), to + 2 * next, next);
  }
};

} // namespace mycc
#endif /* MYCC_KERNELS_CONV_WINOGRAD_FORMS_H */
