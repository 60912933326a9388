/* bounds.h: vectors of which some lanes lie outside of a row. Included by vec/vec.h.
 *
 *     load_inside<E>(p, at, n, other):   lane i is p[i * E] where 0 <= at + i * E < n, else `other`
 *
 * p belongs to place `at` of the row, which may lie in front of it or behind; nothing outside of the row is read.
 */
#ifndef MYCC_KERNELS_VEC_BOUNDS_H
#define MYCC_KERNELS_VEC_BOUNDS_H

#include "kernels/vec/ops.h"
#include "kernels/vec/interleave.h"

namespace mycc {

constexpr int64_t kNoEnd = INT64_MAX / 2; /* of a row that no lane goes past */

namespace bounds {

MYCC_INLINE int within(int64_t x, int most) { return x < 0 ? 0 : x > most ? most : (int)x; }

#if !defined(MYCC_AVX512)
/* The n bytes at p, 1 to 16, from the lowest on, in whole words that overlap: single elements that are stored for a vector
 * to be loaded would hold it up. */
MYCC_INLINE unsigned __int128 words(const char *p, int n) {
  uint64_t low, high = 0;
  if (n >= 8) {
    __builtin_memcpy(&low, p, 8);
    __builtin_memcpy(&high, p + n - 8, 8);
    high = n > 8 ? high >> 8 * (16 - n) : 0;
  } else if (n >= 4) {
    uint32_t first, last;
    __builtin_memcpy(&first, p, 4);
    __builtin_memcpy(&last, p + n - 4, 4);
    low = first | (uint64_t)last << 8 * (n - 4);
  } else {
    low = (uint8_t)p[0] | (uint64_t)(uint8_t)p[n / 2] << 8 * (n / 2) | (uint64_t)(uint8_t)p[n - 1] << 8 * (n - 1);
  }
  return (unsigned __int128)high << 64 | low;
}
#endif

/* Elements first .. last - 1 of a register at p in their lanes, 0 in the others. */
template <class T> MYCC_INLINE typename interleave::registers<T>::V between(const T *p, int first, int last) {
  typedef typename interleave::registers<T>::V V;
#if defined(MYCC_AVX512)
  const unsigned mask = last > first ? (1u << last) - (1u << first) : 0;
  if constexpr (sizeof(T) == 8) return (V)isa::load_mask64(p, mask);
  if constexpr (sizeof(T) == 4) return (V)isa::load_lanes32(p, mask);
  if constexpr (sizeof(T) == 2) return (V)isa::load_lanes16(p, mask);
  if constexpr (sizeof(T) == 1) return (V)isa::load_lanes8(p, mask);
#else
#if defined(MYCC_AVX2)
  if constexpr (sizeof(T) == 4) return (V)isa::load_mask32(p, (vi32{MYCC_ALL} >= first) & (vi32{MYCC_ALL} < last));
#endif
  V v = {};
  if constexpr (sizeof v <= 16) {
    if (first >= last) return v;
    const auto bytes = words((const char *)(p + first), (last - first) * (int)sizeof(T)) << 8 * sizeof(T) * first;
    __builtin_memcpy(&v, &bytes, sizeof v);
  } else {
    typename interleave::unit<sizeof(T)>::type lanes[interleave::registers<T>::N] = {};
    for (int i = first; i < last; ++i) __builtin_memcpy(lanes + i, p + i, sizeof(T));
    __builtin_memcpy(&v, lanes, sizeof v);
  }
  return v;
#endif
}

/* Every E-th element from p on, of those from `low` to `high`, counted from p; 0 for the others. */
template <int E, int K, class T>
MYCC_INLINE typename interleave::registers<T>::V every(const T *p, int64_t low, int64_t high, typename interleave::registers<T>::V so_far) {
  constexpr int N = interleave::registers<T>::N;
  if constexpr (K * N > E * (N - 1)) {
    return so_far;
  } else {
    const auto next = between(p + K * N, within(low - K * N, N), within(high - K * N, N));
    if constexpr (K == 0)
      return every<E, 1>(p, low, high, next);
    else
      return every<E, K + 1>(p, low, high, interleave::pick<interleave::taken<N, E, 0, K, K * N>>(so_far, next));
  }
}

} /* namespace bounds */

/* The lanes i < count with 0 <= at + i * E < n. */
template <int E> MYCC_INLINE vbool lanes_inside(int64_t at, int64_t n, int count = W) {
  return first_lanes(bounds::within((n - at + E - 1) / E, count)) & ~first_lanes(bounds::within((E - 1 - at) / E, W));
}
/* p[i * E] for the first `count` lanes that are inside, 0 for the others. */
template <int E, class T>
MYCC_INLINE typename element<T>::vector load_inside_tail(const T *p, int64_t at, int64_t n, int count) {
  typedef interleave::registers<T> R;
  const int64_t end = at + (int64_t)(count - 1) * E + 1, high = (n < end ? n : end) - at;
  typename R::V parts[R::PARTS];
#pragma GCC unroll 2
  for (int half = 0; half < R::PARTS; ++half) {
    const int first = half * R::N * E;
    parts[half] = bounds::every<E, 0>(p + first, -at - first, high - first, typename R::V{});
  }
  return element<T>::widen(R::whole(parts));
}
/* The same with `other` in lanes that are outside. */
template <int E, class T>
MYCC_INLINE typename element<T>::vector load_inside_tail(const T *p, int64_t at, int64_t n, typename element<T>::scalar other, int count) {
  return where(lanes_inside<E>(at, n, count), load_inside_tail<E>(p, at, n, count), splat(other));
}

namespace bounds {
template <int E> MYCC_INLINE bool all_inside(int64_t at, int64_t n) {
  return __builtin_expect(at >= 0 && at + (W - 1) * E < n, 1);
}
template <int E, class T> MYCC_INLINE typename element<T>::vector load_all(const T *p) {
  if constexpr (E == 1)
    return load(p);
  else
    return load_every<E>(p);
}
} /* namespace bounds */

template <int E, class T> MYCC_INLINE typename element<T>::vector load_inside(const T *p, int64_t at, int64_t n) {
  return bounds::all_inside<E>(at, n) ? bounds::load_all<E>(p) : load_inside_tail<E>(p, at, n, W);
}
template <int E, class T>
MYCC_INLINE typename element<T>::vector load_inside(const T *p, int64_t at, int64_t n, typename element<T>::scalar other) {
  return bounds::all_inside<E>(at, n) ? bounds::load_all<E>(p) : load_inside_tail<E>(p, at, n, other, W);
}
/* p[0], p[E], .. of the first n lanes; those from n on are 0. */
template <int E, class T> MYCC_INLINE typename element<T>::vector load_every_tail(const T *p, int n) {
#if defined(MYCC_AVX512) || defined(MYCC_AVX2)
  return load_inside_tail<E>(p, 0, kNoEnd, n);
#else
  return gather_tail(p, E, n);
#endif
}

/* p[0], p[-1], .. of the first n lanes; those from n on are 0. */
template <class T> MYCC_INLINE typename element<T>::vector load_reversed_tail(const T *p, int n) {
#if defined(MYCC_AVX512)
  typedef interleave::registers<T> R;
  typename R::V parts[R::PARTS];
#pragma GCC unroll 2
  for (int half = 0; half < R::PARTS; ++half)
    parts[half] = interleave::reversed(bounds::between(p + 1 - (half + 1) * R::N, R::N - bounds::within(n - half * R::N, R::N), R::N));
  return element<T>::widen(R::whole(parts));
#else
  return gather_tail(p, -1, n);
#endif
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_VEC_BOUNDS_H */
