/* interleave.h: vectors that lie in memory in turn, element by element, or backwards, or around an end. Included by vec/vec.h.
 *
 *     store_interleaved(p, false, a, b):   p = a0 b0 a1 b1 a2 b2 ..
 *     load_every<2>(p):              p[0] p[2] p[4] ..
 *     load_strided<2, 1>(p):            p[1] p[3] p[5] ..
 *     load_reversed(p):              p[0] p[-1] p[-2] ..
 *     load_round(row, at, n):        row[at] .. row[n - 1] row[0] row[1] ..
 *
 * Elements are moved as the integers of their size, in shuffles of two registers: E - 1 of them for each vector, or
 * log2(E) where E is a power of two.
 */
#ifndef MYCC_KERNELS_VEC_INTERLEAVE_H
#define MYCC_KERNELS_VEC_INTERLEAVE_H

#include "machine.h"
#include "kernels/vec/memory.h"

namespace mycc {

/* 16 bits that are not computed with: vectors of them are as they lie in memory. */
struct word { int16_t bits; };
template <> struct element<word> {
  typedef vi16 vector; typedef word scalar; typedef vi16 stored; typedef int16_t raw;
  static MYCC_INLINE vector widen(stored v) { return v; }
  static MYCC_INLINE stored narrow(vector v) { return v; }
  static MYCC_INLINE stored part(const void *p, int n) { return isa::load_tail16(p, n); }
  static MYCC_INLINE void put(void *p, stored v, int n) { isa::store_tail16(p, v, n); }
};
MYCC_INLINE vi16 splat(word x) { return build<vi16>([=](int) MYCC_INLINED { return x.bits; }); }
MYCC_INLINE vi16 splat(vi16 x) { return x; }

namespace interleave {

/* The bits of an element of SIZE bytes. */
template <int SIZE> struct unit;
template <> struct unit<1> { typedef int8_t type; };
template <> struct unit<2> { typedef int16_t type; };
template <> struct unit<4> { typedef int32_t type; };
template <> struct unit<8> { typedef int64_t type; };

/* 0, 1, .. N - 1 as a pack of lane numbers. */
template <int N, int... I> struct counted : counted<N - 1, N - 1, I...> {};
template <int... I> struct counted<0, I...> { typedef lane_list<I...> list; };

template <class V> constexpr int count() { return int(sizeof(V) / sizeof(V{}[0])); }

/* Lane l of the result is lane At::lane(l) of a, or of b when that is at least N. */
template <class At, class V, int... I> MYCC_INLINE V pick(V a, V b, lane_list<I...>) {
#if defined(MYCC_SHUFFLEVECTOR)
  return __builtin_shufflevector(a, b, At::lane(I)...);
#else
  return __builtin_shuffle(a, b, V{At::lane(I)...});
#endif
}
template <class At, class V> MYCC_INLINE V pick(V a, V b) { return pick<At>(a, b, typename counted<count<V>()>::list()); }

/* a0 b0 a1 b1 .. of the first halves, of the second halves. */
template <int N> struct low { static constexpr int lane(int l) { return l / 2 + l % 2 * N; } };
template <int N> struct high { static constexpr int lane(int l) { return (l + N) / 2 + l % 2 * N; } };
template <class V> MYCC_INLINE V zip_low(V a, V b) { return pick<low<count<V>()>>(a, b); }
template <class V> MYCC_INLINE V zip_high(V a, V b) { return pick<high<count<V>()>>(a, b); }

/* What the S-th of E inputs adds to the K-th output: element g of all is lane g / E of input g % E. */
template <int N, int E, int K, int S> struct added {
  static constexpr int lane(int l) {
    const int g = K * N + l;
    return g % E == S ? N + g / E : S == 1 ? g / E : l;
  }
};
template <int E, int K, int S, class V> MYCC_INLINE V output(const V *in, V so_far) {
  if constexpr (S == E)
    return so_far;
  else
    return output<E, K, S + 1>(in, pick<added<count<V>(), E, K, S>>(so_far, in[S]));
}
template <int E, int K, class V> MYCC_INLINE void outputs(V *out, const V *in) {
  if constexpr (K < E) {
    out[K] = output<E, K, 1>(in, in[0]);
    outputs<E, K + 1>(out, in);
  }
}

/* out = in[0][0] in[1][0] .. in[E - 1][0] in[0][1] .. */
template <int E, class V> MYCC_INLINE void interleave(V *out, const V *in) {
  if constexpr (E == 1) {
    out[0] = in[0];
  } else if constexpr (E % 2) {
    outputs<E, 0>(out, in);
  } else {
    V halves[2][E / 2], interleaved[2][E / 2];
#pragma GCC unroll 8
    for (int i = 0; i < E; ++i) halves[i % 2][i / 2] = in[i];
    interleave<E / 2>(interleaved[0], halves[0]);
    interleave<E / 2>(interleaved[1], halves[1]);
#pragma GCC unroll 4
    for (int i = 0; i < E / 2; ++i) {
      out[2 * i] = zip_low(interleaved[0][i], interleaved[1][i]);
      out[2 * i + 1] = zip_high(interleaved[0][i], interleaved[1][i]);
    }
  }
}

/* What the K-th vector of memory, which starts at element `start`, adds to every E-th element from the FROM-th on. */
template <int N, int E, int FROM, int K, int START> struct taken {
  static constexpr int lane(int l) {
    const int g = l * E + FROM;
    return g / N == K ? N + g - START : K == 1 ? (g < N ? g : 0) : l;
  }
};
/* Where the K-th vector starts: `whole` reads E vectors, else the last ends with the last element that is wanted. */
template <int N, int E, bool WHOLE, int K> constexpr int start() {
  return WHOLE || K < E * (N - 1) / N ? K * N : E * (N - 1) + 1 - N;
}
template <int E, int FROM, bool WHOLE, int K, class V> MYCC_INLINE V every(const char *p, V so_far) {
  constexpr int N = count<V>(), START = start<N, E, WHOLE, K>();
  if constexpr (K * N > E * (N - 1) + FROM) {
    return so_far;
  } else {
    V next;
    __builtin_memcpy(&next, p + START * (int)sizeof(next[0]), sizeof next);
    return every<E, FROM, WHOLE, K + 1>(p, pick<taken<N, E, FROM, K, START>>(so_far, next));
  }
}

/* Groups of E lanes backwards; the lanes of each group backwards. */
template <int N, int E> struct groups_backwards { static constexpr int lane(int l) { return (N / E - 1 - l / E) * E + l % E; } };
template <int N, int E> struct backwards { static constexpr int lane(int l) { return l / E * E + E - 1 - l % E; } };
template <class V> MYCC_INLINE V reversed(V v) {
  constexpr int N = count<V>(), E = 16 / (int)sizeof(v[0]);
  if constexpr (sizeof(v[0]) < 4 && N > E) { /* shuffles of single bytes stay within 16 of them */
    typedef int64_t Words __attribute__((vector_size(sizeof(V))));
    const V within = pick<backwards<N, E>>(v, v);
    return (V)pick<groups_backwards<N * (int)sizeof(v[0]) / 8, 2>>((Words)within, (Words)within);
  } else {
    return pick<backwards<N, N>>(v, v);
  }
}

/* How W elements of T lie in registers: 64-bit elements take two. */
template <class T> struct registers {
  typedef typename unit<sizeof(T)>::type U;
  static constexpr int PARTS = sizeof(T) == 8 ? 2 : 1, N = W / PARTS;
  typedef U V __attribute__((vector_size(sizeof(U) * N)));
  typedef typename element<T>::stored stored;
  static MYCC_INLINE V part(stored v, int i) {
    if constexpr (PARTS == 2)
      return i ? (V)v.hi : (V)v.lo;
    else
      return (V)v;
  }
  static MYCC_INLINE stored whole(const V *v) {
    if constexpr (PARTS == 2) {
      typedef decltype(stored{}.lo) H;
      return {(H)v[0], (H)v[1]};
    } else {
      return (stored)v[0];
    }
  }
  static MYCC_INLINE void put(T *p, V v, int n) {
    if constexpr (sizeof(T) == 4)
      isa::store_tail32(p, (vi32)v, n);
    else if constexpr (sizeof(T) == 2)
      isa::store_tail16(p, (vi16)v, n);
    else if constexpr (sizeof(T) == 1)
      isa::store_tail8(p, (vi8)v, n);
    else
      isa::copy_tail<8>(p, &v, n);
  }
};

} /* namespace interleave */

namespace interleave {
/* put(place, vector) for the vectors of v[0][0] v[1][0] .. v[E - 1][0] v[0][1] .. in their order. */
template <class T, int E, class Put> MYCC_INLINE void each_interleaved(const typename element<T>::stored *v, Put put) {
  typedef registers<T> R;
#pragma GCC unroll 2
  for (int half = 0; half < R::PARTS; ++half) {
    typename R::V in[E], out[E];
#pragma GCC unroll 8
    for (int e = 0; e < E; ++e) in[e] = R::part(v[e], half);
    interleave<E>(out, in);
#pragma GCC unroll 8
    for (int e = 0; e < E; ++e) put((half * E + e) * R::N, out[e]);
  }
}
} /* namespace interleave */

/* p[i * E + e] = e-th vector[i], E of them; by non-temporal stores when `streams`, p aligned to W elements then. */
template <class T, class... Vectors> MYCC_INLINE void store_interleaved(T *p, bool streams, Vectors... v) {
  const typename element<T>::stored all[] = {element<T>::narrow(v)...};
  interleave::each_interleaved<T, sizeof...(Vectors)>(all, [=](int place, typename interleave::registers<T>::V lanes) MYCC_INLINED {
    if (streams)
      isa::stream(p + place, lanes);
    else
      __builtin_memcpy((void *)(p + place), &lanes, sizeof lanes);
  });
}
/* The first n lanes of each, n in [0, W]. */
template <class T, class... Vectors> MYCC_INLINE void store_interleaved_tail(T *p, int n, Vectors... v) {
  typedef interleave::registers<T> R;
  const typename element<T>::stored all[] = {element<T>::narrow(v)...};
  interleave::each_interleaved<T, sizeof...(Vectors)>(all, [=](int place, typename R::V lanes) MYCC_INLINED {
    const int left = n * (int)sizeof...(Vectors) - place;
    if (left > 0) R::put(p + place, lanes, left < R::N ? left : R::N);
  });
}

namespace interleave {
template <int E, int FROM, bool WHOLE, class T> MYCC_INLINE typename element<T>::vector every_of(const T *p) {
  typedef registers<T> R;
  typename R::V parts[R::PARTS];
#pragma GCC unroll 2
  for (int half = 0; half < R::PARTS; ++half) {
    const char *at = (const char *)(p + half * R::N * E);
    typename R::V first;
    __builtin_memcpy(&first, at, sizeof first);
    parts[half] = every<E, FROM, WHOLE, 1>(at, first);
  }
  return element<T>::widen(R::whole(parts));
}
} /* namespace interleave */

/* p[0], p[E], .. p[(W - 1) * E], E >= 2; nothing outside of them is read. */
template <int E, class T> MYCC_INLINE typename element<T>::vector load_every(const T *p) {
  return interleave::every_of<E, 0, false>(p);
}
/* p[e], p[E + e], .. of the E * W elements at p, all of which may be read: for E vectors that lie in turn. */
template <int E, int e, class T> MYCC_INLINE typename element<T>::vector load_strided(const T *p) {
  return interleave::every_of<E, e, true>(p);
}
/* p[0], p[-1], .. p[1 - W]. */
template <class T> MYCC_INLINE typename element<T>::vector load_reversed(const T *p) {
  typedef interleave::registers<T> R;
  typename R::V parts[R::PARTS];
#pragma GCC unroll 2
  for (int half = 0; half < R::PARTS; ++half) {
    typename R::V v;
    __builtin_memcpy(&v, p + 1 - (half + 1) * R::N, sizeof v);
    parts[half] = interleave::reversed(v);
  }
  return element<T>::widen(R::whole(parts));
}

namespace interleave {
/* A whole register at p; by non-temporal stores when `streams`. */
MYCC_INLINE void put_register(void *p, vi32 v, bool streams) {
  if (streams)
    isa::stream(p, v);
  else
    __builtin_memcpy(p, &v, sizeof v);
}
} /* namespace interleave */

/* to[i] = from[i] for i < n, in whole registers; by non-temporal stores when `streams`, `to` aligned to a line then. */
template <class T> MYCC_INLINE void put_row(T *to, const T *from, int64_t n, bool streams) {
  constexpr int N = (int)sizeof(vi32) / (int)sizeof(T);
  int64_t i = 0;
  for (; i + N <= n; i += N) {
    vi32 v;
    __builtin_memcpy(&v, (const void *)(from + i), sizeof v);
    interleave::put_register(to + i, v, streams);
  }
  isa::copy_bytes<(int)sizeof(vi32) / 2, (int)sizeof(T)>(to + i, from + i, (n - i) * (int64_t)sizeof(T));
}
/* to[i] = from[-i] for i < n, likewise; they do not overlap. */
template <class T> MYCC_INLINE void put_reversed(T *to, const T *from, int64_t n, bool streams) {
  constexpr int N = (int)sizeof(vi32) / (int)sizeof(T);
  typedef typename interleave::unit<sizeof(T)>::type V __attribute__((vector_size(sizeof(vi32))));
  const auto put = [=](int64_t i, bool nontemporal) MYCC_INLINED {
    V v;
    __builtin_memcpy(&v, (const void *)(from + 1 - N - i), sizeof v);
    interleave::put_register(to + i, (vi32)interleave::reversed(v), nontemporal);
  };
  int64_t i = 0;
  for (; i + N <= n; i += N) put(i, streams);
  if (i < n && n >= N)
    put(n - N, false);
  else
    for (; i < n; ++i) __builtin_memcpy((void *)(to + i), (const void *)(from - i), sizeof(T));
}

/* to[i] = row[(at + i) % n] for i < count, likewise; 0 <= at < n. */
template <class T> MYCC_INLINE void put_round(T *to, const T *row, int64_t at, int64_t n, int64_t count, bool streams) {
  constexpr int N = (int)sizeof(vi32) / (int)sizeof(T);
  for (int64_t i = 0; i < count;) {
    vi32 v;
    for (; i + N <= count && at + N <= n; i += N, at += N) {
      __builtin_memcpy(&v, (const void *)(row + at), sizeof v);
      interleave::put_register(to + i, v, streams);
    }
    const int some = count - i < N ? (int)(count - i) : N; /* around the end of the row, or the last ones */
    T piece[N];
    for (int k = 0; k < some;) {
      const int part = n - at < some - k ? (int)(n - at) : some - k;
      isa::copy_bytes<(int)sizeof(vi32), (int)sizeof(T)>(piece + k, row + at, part * (int64_t)sizeof(T));
      k += part;
      at = at + part == n ? 0 : at + part;
    }
    __builtin_memcpy(&v, (const void *)piece, sizeof v);
    if (some == N)
      interleave::put_register(to + i, v, streams);
    else
      __builtin_memcpy((void *)(to + i), (const void *)piece, (size_t)some * sizeof(T));
    i += some;
  }
}

/* row[(at + i) % n] for the first `lanes` lanes, 0 for the others; 0 <= at < n. */
template <class T> MYCC_INLINE typename element<T>::vector load_round_tail(const T *row, int64_t at, int64_t n, int lanes) {
  typename element<T>::stored v;
#if defined(MYCC_AVX512)
  if constexpr (sizeof(T) == 4 || sizeof(T) == 2) {
    if (__builtin_expect(n >= W, 1)) {
      const unsigned all = (1u << lanes) - 1, first = at + W <= n ? all : all & ((1u << (n - at)) - 1);
      typename interleave::registers<T>::V bits;
      if constexpr (sizeof(T) == 4)
        bits = isa::load_lanes32(row + at, first) | isa::load_lanes32(row + at - n, all & ~first);
      else
        bits = isa::load_lanes16(row + at, first) | isa::load_lanes16(row + at - n, all & ~first);
      return element<T>::widen(interleave::registers<T>::whole(&bits));
    }
  }
#endif
  typename element<T>::raw values[W] = {};
  for (int i = 0; i < lanes; ++i) {
    values[i] = storage::raw(row + at);
    if (++at == n) at = 0;
  }
  storage::read(values, v);
  return element<T>::widen(v);
}
/* row[(at + i) % n]: nearly every vector is of neighbours. */
template <class T> MYCC_INLINE typename element<T>::vector load_round(const T *row, int64_t at, int64_t n) {
  return __builtin_expect(at + W <= n, 1) ? load(row + at) : load_round_tail(row, at, n, W);
}

/* Elements of 16 bits that are moved and nothing else keep their bits. */
MYCC_INLINE const word *as_bits(const half *p) { return (const word *)(const void *)p; }
MYCC_INLINE const word *as_bits(const bfloat *p) { return (const word *)(const void *)p; }
MYCC_INLINE word *as_bits(half *p) { return (word *)(void *)p; }
MYCC_INLINE word *as_bits(bfloat *p) { return (word *)(void *)p; }

/* Fetches the lines of n elements from p on, into L2 or into L1; of the elements of N vectors. */
template <class T> MYCC_INLINE void prefetch_row_l2(const T *p, int64_t n) {
  for (int64_t i = 0; i < n; i += kLineBytes / (int64_t)sizeof(T)) prefetch_l2(p + i);
}
template <class T> MYCC_INLINE void prefetch_row_l1(const T *p, int64_t n) {
  for (int64_t i = 0; i < n; i += kLineBytes / (int64_t)sizeof(T)) prefetch_l1(p + i);
}
template <int N, class T> MYCC_INLINE void prefetch_lines(const T *p) {
  constexpr int LINES = (N * W * (int)sizeof(T) + kLineBytes - 1) / kLineBytes;
#pragma GCC unroll 8
  for (int i = 0; i < LINES; ++i) prefetch_l2((const char *)p + kLineBytes * i);
}

/* Element `at` of rows of `columns` elements each, one behind the other. */
template <class T> MYCC_INLINE const T *element_of(int64_t, int64_t at, const T *row) { return row + at; }
template <class T, class... Rows> MYCC_INLINE const T *element_of(int64_t columns, int64_t at, const T *row, Rows... others) {
  return at < columns ? row + at : element_of(columns, at - columns, others...);
}
/* The share that the vector at `column` has of rows of COLUMNS elements each: all vectors of a row together fetch all lines
 * of all rows, in their order. */
template <int64_t COLUMNS, class Prefetch, class... Rows>
MYCC_INLINE void each_line_of_share(const Prefetch &prefetch, int64_t column, Rows... rows) {
  constexpr int64_t LINE = kLineBytes / (int64_t)sizeof(*element_of(0, 0, rows...)), SHARE = W * (int64_t)sizeof...(rows);
  if constexpr (SHARE >= LINE) {
#pragma GCC unroll 4
    for (int64_t at = 0; at < SHARE; at += LINE) prefetch(element_of(COLUMNS, column * (SHARE / W) + at, rows...));
  } else if (column * (SHARE / W) % LINE < SHARE) { /* several vectors have a line */
    prefetch(element_of(COLUMNS, column * (SHARE / W), rows...));
  }
}
template <int64_t COLUMNS, class... Rows> MYCC_INLINE void prefetch_share_l2(int64_t column, Rows... rows) {
  each_line_of_share<COLUMNS>([](const void *p) MYCC_INLINED { prefetch_l2(p); }, column, rows...);
}
template <int64_t COLUMNS, class... Rows> MYCC_INLINE void prefetch_share_l1(int64_t column, Rows... rows) {
  each_line_of_share<COLUMNS>([](const void *p) MYCC_INLINED { prefetch_l1(p); }, column, rows...);
}

/* A block of memory that is read later: its lines are fetched some at a time, in the order in which they lie. */
struct Coming {
  const char *row;
  int64_t step, bytes, rows, at; /* bytes from row to row, of a row; rows that are left; where in the first of them */

  MYCC_INLINE void prefetch(int lines) {
    for (; lines > 0 && rows > 0; --lines) {
      prefetch_l2(row + at);
      at += kLineBytes;
      if (at >= bytes) at = 0, row += step, --rows;
    }
  }
  /* As much as that many vectors of elements of `size` bytes. */
  MYCC_INLINE void prefetch_vectors(int vectors, int size) { prefetch((vectors * W * size + kLineBytes - 1) / kLineBytes); }
};
template <class T> MYCC_INLINE Coming coming(const T *from, int64_t step, int64_t rows, int64_t columns) {
  return {(const char *)from, step * (int64_t)sizeof(T), columns * (int64_t)sizeof(T), rows, 0};
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_VEC_INTERLEAVE_H */
