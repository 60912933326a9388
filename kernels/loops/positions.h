/* positions.h: which elements are set, and how often each is repeated: what sizes that a run finds are made from.
 *
 * Routines of lower/core/routines.py.
 */
#ifndef MYCC_KERNELS_LOOPS_POSITIONS_H
#define MYCC_KERNELS_LOOPS_POSITIONS_H

#include "machine.h"
#include "kernels/loops/loops.h"
#include "kernels/vec/compress.h"
#include "kernels/loops/write_combining.h"

namespace mycc {

/* places[0, count): where the mask is true, in order. Behind them places may have anything. */
inline void nonzero_indices(
    const mycc_host *, int32_t, int64_t *places, int64_t *count, const boolean *mask, int64_t n) {
  int64_t found = 0, i = 0;
  for (; i + W <= n; i += W) /* found <= i: there is room for a whole vector */
    found += store_set(places + found, iota(i), lane_mask(load(mask + i)));
  for (; i < n; ++i) {
    places[found] = i;
    found += load_scalar(mask + i);
  }
  *count = found;
}

/* How many elements of the mask are true. */
inline void true_count(const mycc_host *, int32_t, int64_t *count, const boolean *mask, int64_t n) {
  int64_t found = 0, i = 0;
  for (uint64_t eight; i + 8 <= n; i += 8) {
    __builtin_memcpy(&eight, mask + i, 8);
    const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f); /* the upper bit of a byte is set where the byte is not 0 */
    found += __builtin_popcountll((((eight & low) + low) | eight) & ~low);
  }
  for (; i < n; ++i) found += load_scalar(mask + i);
  *count = found;
}

/* Elements of x where the mask is true, one behind the other: the first `count` of them. */
template <class T>
inline void true_elements(
    const mycc_host *host, int32_t worker, T *to, const T *x, const boolean *mask, int64_t n, int64_t count) {
  int64_t found = 0, i = 0;
  if (count * (int64_t)sizeof(T) >= kStreamedBytes) {
    T *combined = row_scratch<T>(host, worker, W + kCombined<T>);
    if (!combined) return;
    WriteCombiner<T> lines(to, combined);
    for (; i + W <= n && found + W <= count; i += W) {
      prefetch_l1(x + i + kPickedPrefetch / sizeof(T));
      const int64_t some = store_set_of(lines.row(), x + i, lane_mask(load(mask + i)));
      found += some;
      lines.next(some);
    }
    lines.finish();
  } else {
    for (; i + W <= n && found + W <= count; i += W) {
      prefetch_l1(x + i + kPickedPrefetch / sizeof(T));
      found += store_set_of(to + found, x + i, lane_mask(load(mask + i)));
    }
  }
  for (; i < n && found < count; ++i)
    if (load_scalar(mask + i)) to[found++] = x[i];
}

/* The sum of the n repeats; a negative one fails the call. */
inline void repeats_total(const mycc_host *host, int32_t, int64_t *total, const int64_t *repeats, int64_t n) {
  int64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (repeats[i] < 0) {
      host->fail(host->ctx, MYCC_ERROR_RUN, "repeats of repeat_interleave must not be negative");
      *total = 0;
      return;
    }
    if (__builtin_add_overflow(sum, repeats[i], &sum)) {
      host->fail(host->ctx, MYCC_ERROR_RUN, "out of memory: repeat_interleave makes 9223372036854775807 elements or more");
      *total = 0;
      return;
    }
  }
  *total = sum;
}

/* places[0, total): i, repeats[i] times, in order. */
inline void repeated_places(
    const mycc_host *, int32_t, int64_t *places, const int64_t *repeats, int64_t n, int64_t total) {
  int64_t at = 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < repeats[i] && at < total; ++j) places[at++] = i;
  while (at < total) places[at++] = 0; /* the sizes were given by the caller and do not add up */
}

/* order[0, n): the rows of x (n by m) in lexicographic order, stable: a bottom-up merge sort of their numbers. */
template <class T>
inline void row_order(const mycc_host *host, int32_t worker, int64_t *order, const T *x, int64_t n, int64_t m) {
  int64_t *spare = row_scratch<int64_t>(host, worker, n);
  if (!spare) return;
  const auto before = [=](int64_t a, int64_t b) {
    for (int64_t j = 0; j < m; ++j) {
      const auto p = load_scalar(x + a * m + j), q = load_scalar(x + b * m + j);
      if (p < q) return true;
      if (q < p) return false;
    }
    return false;
  };
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  int64_t *from = order, *to = spare;
  for (int64_t run = 1; run < n; run *= 2) {
    for (int64_t begin = 0; begin < n; begin += 2 * run) {
      const int64_t middle = begin + run < n ? begin + run : n, end = begin + 2 * run < n ? begin + 2 * run : n;
      int64_t left = begin, right = middle;
      for (int64_t at = begin; at < end; ++at) {
        const bool take_right = left >= middle || (right < end && before(from[right], from[left]));
        to[at] = take_right ? from[right++] : from[left++];
      }
    }
    int64_t *sorted = to;
    to = from;
    from = sorted;
  }
  if (from != order)
    for (int64_t i = 0; i < n; ++i) order[i] = from[i];
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_LOOPS_POSITIONS_H */
