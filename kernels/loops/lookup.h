/* lookup.h: indices that are read from memory: checked, and their elements taken out of whole vectors where those lie
 * near each other.
 */
#ifndef MYCC_KERNELS_LOOPS_LOOKUP_H
#define MYCC_KERNELS_LOOPS_LOOKUP_H

#include "machine.h"
#include "mycc/abi.h"
#include "kernels/vec/vec.h"

namespace mycc {

/* Appends a text or a number to `text`; returns its new end. */
inline char *append(char *text, const char *more) {
  while (*more) *text++ = *more++;
  *text = 0;
  return text;
}

inline char *append(char *text, int64_t number) {
  char digits[24], *at = digits + sizeof digits;
  uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
  *--at = 0;
  do *--at = (char)('0' + rest % 10);
  while (rest /= 10);
  if (number < 0) *--at = '-';
  return append(text, at);
}

/* Records that an index is out of range: "index out of range: 30522 in a dimension of size 30522". */
__attribute__((noinline, cold)) inline void index_failure(
    const mycc_host *host, int64_t index, int64_t extent, const char *what) {
  char text[256], *end = text;
  for (int i = 0; i < 160 && what[i]; ++i) *end++ = what[i];
  end = append(append(end, ": "), index);
  append(append(end, " in a dimension of size "), extent);
  host->fail(host->ctx, MYCC_ERROR_RUN, text);
}

/* Values of which the compiler has to believe nothing: what it knows of the type or the cast that they come from holds
 * for defined values alone (a float out of range has none as an integer), and it would drop a check that is needed. */
MYCC_INLINE int64_t any_value(int64_t x) {
  __asm__("" : "+r"(x));
  return x;
}
MYCC_INLINE vi64 any_value(vi64 x) {
#if defined(__x86_64__)
  __asm__("" : "+v"(x.lo), "+v"(x.hi));
#else
  __asm__("" : "+w"(x.lo), "+w"(x.hi));
#endif
  return x;
}

/* An index read from memory, 0 <= index < extent, or counted from the end when `wrap`. Out of range: the call fails with
 * `what` and the index is 0, so that no memory outside the buffer is touched. */
MYCC_INLINE int64_t checked_index(const mycc_host *host, int64_t index, int64_t extent, bool wrap, const char *what) {
  index = any_value(index);
  const int64_t place = wrap && index < 0 ? index + extent : index;
  if (__builtin_expect((uint64_t)place >= (uint64_t)extent, 0)) {
    index_failure(host, index, extent, what);
    return 0;
  }
  return place;
}

inline vi64 checked_index(const mycc_host *host, vi64 index, int64_t extent, bool wrap, const char *what, int lanes = W) {
  index = any_value(index);
  const vi64 place = wrap ? where(lt(index, 0), index + extent, index) : index;
  const vbool outside = (lt(place, 0) | ge(place, extent)) & first_lanes(lanes);
  if (__builtin_expect(!any(outside), 1)) return lanes == W ? place : where(first_lanes(lanes), place, splat((int64_t)0));
  int64_t values[W];
  store(values, index);
  for (int i = 0; i < W; ++i) values[i] = i < lanes ? checked_index(host, values[i], extent, wrap, what) : 0;
  return load(values);
}

/* Whether n indices lie in [0, extent). */
MYCC_INLINE bool all_inside(const int64_t *at, int64_t n, int64_t extent) {
  const hu64 end = (hu64)splat(extent).lo;
  hi64 outside = {};
  for (int64_t i = 0; i < n; i += W) {
    const vi64 index = i + W <= n ? load(at + i) : load_tail(at + i, (int)(n - i));
    outside |= (hi64)((hu64)index.lo >= end) | (hi64)((hu64)index.hi >= end);
  }
  return !isa::any((vi32)outside);
}

/* What is known of a table of indices: that all are `inside` of their dimension; `near`: that any W of them in turn lie
 * within so many vectors of the row (1 or 2). 0: they may lie anywhere. Of near ones `entries` has for each W indices the
 * lanes, and where the vectors start: [n / W][2][W]. */
struct Lookup {
  bool inside;
  int near;
  const int32_t *entries;
};

namespace lookup {
MYCC_INLINE bool any_less(vi64 a, vi64 b) { return isa::any((vi32)((hi64)(a.lo < b.lo) | (hi64)(a.hi < b.hi))); }

/* In how many vectors these lie, the lowest of which is `first`. A row of at most two has every place near. */
MYCC_INLINE int vectors(vi64 at, int64_t first, int64_t extent) {
  if (extent <= W || !any_less(splat(first + W - 1), at)) return 1;
  return extent <= 2 * W || !any_less(splat(first + 2 * W - 1), at) ? 2 : 0;
}

/* The W indices of a table at place i; behind its end the first of them. */
MYCC_INLINE vi64 indices(const int64_t *at, int64_t i, int64_t n) {
  const int rest = (int)(n - i < W ? n - i : W);
  return where(first_lanes(rest), load_tail(at + i, rest), splat(at[i]));
}
} /* namespace lookup */

/* Integers that a table of n indices takes in memory. */
constexpr int64_t lookup_size(int64_t n) { return (n + W - 1) / W * (2 * W); }

/* Of n indices into a dimension of `extent`. */
inline Lookup lookup_table(int32_t *entries, const int64_t *at, int64_t n, int64_t extent) {
  if (!all_inside(at, n, extent)) return {false, 0, nullptr};
  int near = extent <= INT32_MAX;
  for (int64_t i = 0; near && i < n; i += W) {
    const vi64 own = lookup::indices(at, i, n);
    const int vectors = lookup::vectors(own, reduce_min(own), extent);
    near = vectors > near || !vectors ? vectors : near;
  }
  for (int64_t i = 0; near && i < n; i += W) {
    const vi64 own = lookup::indices(at, i, n);
    const int64_t last = extent - near * W, first = reduce_min(own), start = first < last ? first : last > 0 ? last : 0;
    const vi64 lane = own - start;
    store(entries + 2 * i, narrow(lane.lo, lane.hi));
    entries[2 * i + W] = (int32_t)start;
  }
  return {true, near, entries};
}

/* row[at[i]], .. row[at[i + W - 1]] of a table whose indices are near. */
template <class T>
MYCC_INLINE typename element<T>::vector load_near(Lookup table, const T *row, int64_t i, int64_t extent) {
  const T *from = row + table.entries[2 * i + W];
  const vi32 lanes = load(table.entries + 2 * i);
  const auto a = extent < W ? load_tail(from, (int)extent) : load(from);
  if (table.near == 1) return isa::permute(a, lanes);
  const auto b = extent < 2 * W ? load_tail(from + W, (int)extent - W) : load(from + W);
  return isa::permute(a, b, lanes);
}

MYCC_INLINE void prefetch_indices(const int64_t *at) {
  for (int i = 0; i < W; i += 8) prefetch_l1(at + kIndexPrefetch + i);
}

/* p[i] for W indices i in memory, or the first n of them, each checked. */
template <class T> MYCC_INLINE typename element<T>::vector gather_checked(
    const mycc_host *host, const T *p, const int64_t *at, int64_t extent, bool wrap, const char *what) {
  prefetch_indices(at);
  if (__builtin_expect(!all_inside(at, W, extent), 0))
    return gather_at(p, checked_index(host, load(at), extent, wrap, what));
  return gather_at(p, at);
}
template <class T> MYCC_INLINE typename element<T>::vector gather_checked_tail(
    const mycc_host *host, const T *p, const int64_t *at, int64_t extent, bool wrap, const char *what, int n) {
  return gather_at_tail(p, checked_index(host, load_tail(at, n), extent, wrap, what, n), n);
}

namespace lookup {
/* Types of W lanes that take one register. */
template <class T>
constexpr bool single = sizeof(typename element<T>::vector) == sizeof(vi32) && sizeof(typename element<T>::scalar) == 4;

/* Functions of their own, so that they do not stand in the way of the others. */
template <class T> __attribute__((noinline)) typename element<T>::vector gather_far(
    bool inside, const mycc_host *host, const T *p, const int64_t *at, int64_t extent, bool wrap, const char *what) {
  return inside ? gather_at(p, at) : gather_checked(host, p, at, extent, wrap, what);
}
} /* namespace lookup */

/* The same of the indices from place i of a table on. */
template <class T> MYCC_INLINE typename element<T>::vector gather_table(Lookup table, int64_t i, const mycc_host *host,
    const T *p, const int64_t *at, int64_t extent, bool wrap, const char *what) {
  if constexpr (lookup::single<T>)
    if (__builtin_expect(table.near, 1)) return load_near(table, p, i, extent);
  return lookup::gather_far(table.inside, host, p, at + i, extent, wrap, what);
}
template <class T> MYCC_INLINE typename element<T>::vector gather_table_tail(Lookup table, int64_t i,
    const mycc_host *host, const T *p, const int64_t *at, int64_t extent, bool wrap, const char *what, int n) {
  if constexpr (lookup::single<T>)
    if (__builtin_expect(table.near, 1)) return load_near(table, p, i, extent);
  return gather_checked_tail(host, p, at + i, extent, wrap, what, n);
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_LOOPS_LOOKUP_H */
