/* sliding_window.h: windows that overlap, reduced in one walk over the rows that they share.
 *
 *     each_strip<OPEN, LANES, FROM, TO>(strip):         strip(q, Strip) for some vectors of a row at a time
 *     roll<TAPS, STEP, N>(first, last, pad, size, ..):  window r of [first, last) reduces the rows at [r * STEP - pad,
 *                                                       r * STEP - pad + TAPS) of those in [0, size), N vectors of each
 *
 *     slide_products<TAPS, STEP, N>(first, last, ..):    the same of sums of products with a weight for every tap
 *
 * A row is read once: it is added into all windows that have begun, whose vectors are in registers.
 */
#ifndef MYCC_KERNELS_LOOPS_SLIDING_WINDOW_H
#define MYCC_KERNELS_LOOPS_SLIDING_WINDOW_H

#include "machine.h"
#include "kernels/loops/loops.h"

namespace mycc {

/* f(n), n at most N: Known where it is N. */
template <int N, class F> MYCC_INLINE void known_iterations(int64_t n, const F &f) {
  if (__builtin_expect(n == N, 1))
    f(Known<N>{});
  else
    f(n);
}

/* value(0), value(1), .. value(n - 1) as one, n at most N; `none` where there is none. */
template <int N, class V, class Combine, class F> MYCC_INLINE V combine_iterations(int64_t n, V none, const Combine &combine, const F &value) {
  if (n <= 0) return none;
  V all = value(0);
  each_iteration<N - 1>(n - 1, [&](int64_t i) MYCC_INLINED { all = combine(all, value(i + 1)); });
  return all;
}

/* VECTORS side by side, the last of COUNT lanes. EDGE: some lanes have windows that lie partly outside of the row. */
template <int VECTORS, bool EDGE, int COUNT> struct Strip {
  static constexpr int vectors = VECTORS;
  static constexpr int64_t lanes = (int64_t)(VECTORS - 1) * W + COUNT;
  static constexpr bool edge = EDGE;
  static constexpr int count(int v) { return v + 1 < VECTORS ? W : COUNT; }
};

namespace windows {

/* Vectors of a strip: those of OPEN windows that have begun, of the one that ends and of a row stay in registers. Rows of
 * whole lines may are written by non-temporal stores: a line is not written by two strips. */
template <int OPEN, int64_t LANES> constexpr int strip_vectors() {
  constexpr int most = (int)kWindowVectors / (OPEN + 1);
  constexpr int line = LANES % 16 == 0 && 16 / W > 1 ? 16 / W : 1;
  return most > 4 ? 4 : most < 1 ? 1 : most > line ? most / line * line : most;
}

template <int MOST, int64_t LANES, int64_t FROM, int64_t TO, int64_t AT, class F> MYCC_INLINE void strips(const F &strip) {
  if constexpr (AT < LANES) {
    constexpr int64_t end = TO < LANES ? TO : LANES, whole = AT < FROM || AT > end ? 0 : (end - AT) / (MOST * W);
    if constexpr (whole > 0) {
      for (int64_t q = AT; q < AT + whole * MOST * W; q += MOST * W) strip(q, Strip<MOST, false, W>{});
      strips<MOST, LANES, FROM, TO, AT + whole * MOST * W>(strip);
    } else {
      constexpr int left = (int)((LANES - AT + W - 1) / W), n = left < MOST ? left : MOST;
      constexpr int64_t lanes = LANES - AT - (n - 1) * W;
      strip(Known<AT>{}, Strip<n, true, lanes < W ? (int)lanes : W>{});
      strips<MOST, LANES, FROM, TO, AT + n * W>(strip);
    }
  }
}

/* f(Known<V>) for V in [V, N). */
template <int V, int N, class F> MYCC_INLINE void each(const F &f) {
  if constexpr (V < N) {
    f(Known<V>{});
    each<V + 1, N>(f);
  }
}

/* The rows that some windows reduce: those of [begin, end) that are not in front of the first. */
struct Places {
  int64_t begin, end;
  MYCC_INLINE bool hold(int64_t at) const { return at >= (begin > 0 ? begin : 0) && at < end; }
};

/* Tap T of the window that ends next: its row in all of the windows that have begun; the last tap leaves the window
 * that ends in `out`, and each of the others one place further to the front. */
template <int TAPS, int STEP, int T, int D, class V, class Combine> MYCC_INLINE void take(V *a, V &out, V row, const Combine &combine) {
  constexpr int OPEN = (TAPS - 1) / STEP;
  if constexpr (D <= OPEN && D * STEP <= T) {
    V next = row;
    if constexpr (D * STEP < T) next = combine(a[D], row);
    if constexpr (T < TAPS - 1)
      a[D] = next;
    else if constexpr (D == 0)
      out = next;
    else
      a[D - 1] = next;
    take<TAPS, STEP, T, D + 1>(a, out, row, combine);
  }
}

/* Row T of the window that ends next, in those that have begun: a product is added to each. */
template <int TAPS, int STEP, int T, int D, class V, class W_> MYCC_INLINE void add_products(V *a, const V &x, const W_ &weight) {
  if constexpr (D <= (TAPS - 1) / STEP && D * STEP <= T) {
    a[D] = fma(x, weight(Known<T - D * STEP>{}), a[D]);
    add_products<TAPS, STEP, T, D + 1>(a, x, weight);
  }
}

} /* namespace windows */

/* strip(q, s) for strips of vectors from lane q on that make up LANES; s: a Strip. The windows of lanes in [FROM, TO) lie
 * inside; q is Known where others are among them. */
template <int OPEN, int64_t LANES, int64_t FROM, int64_t TO, class F> MYCC_INLINE void each_strip(const F &strip) {
  windows::strips<windows::strip_vectors<OPEN, LANES>(), LANES, FROM, TO, 0>(strip);
}

/* combine(a, b): of two vectors, `none` without effect; row(at, v): the v-th vector of the row at `at`; put(r, v, x):
 * what window r holds. */
template <int TAPS, int STEP, int N, class V, class Combine, class Row, class Put>
MYCC_INLINE void roll(int64_t first, int64_t last, int64_t pad, int64_t size, V none, const Combine &combine, const Row &row, const Put &put) {
  constexpr int OPEN = (TAPS - 1) / STEP;
  const windows::Places places = {first * STEP - pad, smaller(size, (last - 1) * STEP - pad + TAPS)};
  V a[N][OPEN + 1], out[N];
  windows::each<0, N>([&](auto v) MYCC_INLINED { windows::each<0, OPEN + 1>([&](auto d) MYCC_INLINED { a[v][d] = none; }); });
  for (int64_t r = first - OPEN; r < last; ++r) {
    windows::each<TAPS - STEP, TAPS>([&](auto t) MYCC_INLINED {
      constexpr int T = (int)decltype(t)::value;
      const int64_t at = r * STEP - pad + T;
      if (__builtin_expect(places.hold(at), 1))
        windows::each<0, N>([&](auto v) MYCC_INLINED { windows::take<TAPS, STEP, T, 0>(a[v], out[v], row(at, v), combine); });
      else
        windows::each<0, N>([&](auto v) MYCC_INLINED { windows::take<TAPS, STEP, T, 0>(a[v], out[v], none, combine); });
    });
    if (__builtin_expect(r >= first, 1)) windows::each<0, N>([&](auto v) MYCC_INLINED { put(r, v, out[v]); });
  }
}

/* Sums of products whose weights depend on the tap: row(at, v, add) calls add(x, weight) for each x of the v-th vector of
 * the row at `at`; weight(tap) is what a window multiplies by whose tap it is. */
template <int TAPS, int STEP, int N, class V, class Row, class Put>
MYCC_INLINE void slide_products(int64_t first, int64_t last, int64_t pad, int64_t size, V none, const Row &row, const Put &put) {
  constexpr int OPEN = (TAPS - 1) / STEP;
  const windows::Places places = {first * STEP - pad, smaller(size, (last - 1) * STEP - pad + TAPS)};
  V a[N][OPEN + 1];
  windows::each<0, N>([&](auto v) MYCC_INLINED { windows::each<0, OPEN + 1>([&](auto d) MYCC_INLINED { a[v][d] = none; }); });
  for (int64_t r = first - OPEN; r < last; ++r) {
    windows::each<TAPS - STEP, TAPS>([&](auto t) MYCC_INLINED {
      constexpr int T = (int)decltype(t)::value;
      const int64_t at = r * STEP - pad + T;
      if (__builtin_expect(places.hold(at), 1))
        windows::each<0, N>([&](auto v) MYCC_INLINED {
          row(at, v, [&](const V &x, const auto &weight) MYCC_INLINED { windows::add_products<TAPS, STEP, T, 0>(a[v], x, weight); });
        });
    });
    windows::each<0, N>([&](auto v) MYCC_INLINED {
      if (__builtin_expect(r >= first, 1)) put(r, v, a[v][0]);
      windows::each<0, OPEN>([&](auto d) MYCC_INLINED { a[v][d] = a[v][d + 1]; });
      a[v][OPEN] = none;
    });
  }
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_LOOPS_SLIDING_WINDOW_H */
