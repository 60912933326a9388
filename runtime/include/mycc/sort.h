/* sort.h: rows in order. A stable merge sort of (key, place) pairs; the first k of many by insertion. NaN is the largest.
 *
 * Routines of lower/routines.py: one row each, scratch from the host.
 */
#ifndef MYCC_SORT_H
#define MYCC_SORT_H

#include "loops.h"

namespace mycc {

template <class Key> struct SortPair {
  Key key;
  int64_t place;
};

template <class Key> MYCC_INLINE bool sorts_before(Key a, Key b, bool descending) {
  if (descending) return a > b || (a != a && b == b);
  return a < b || (a == a && b != b);
}

constexpr int64_t kInsertionRun = 16;

/* pairs[begin, end) in order, by insertion. */
template <class Key> inline void sort_run(SortPair<Key> *pairs, int64_t begin, int64_t end, bool descending) {
  for (int64_t i = begin + 1; i < end; ++i) {
    const SortPair<Key> moved = pairs[i];
    int64_t at = i;
    for (; at > begin && sorts_before(moved.key, pairs[at - 1].key, descending); --at) pairs[at] = pairs[at - 1];
    pairs[at] = moved;
  }
}

/* Merges the runs [begin, middle) and [middle, end) of `from` into `to`; of equals the left one comes first. */
template <class Key>
inline void merge_runs(
    const SortPair<Key> *from, SortPair<Key> *to, int64_t begin, int64_t middle, int64_t end, bool descending) {
  int64_t left = begin, right = middle;
  for (int64_t at = begin; at < end; ++at) {
    const bool take_right = left >= middle || (right < end && sorts_before(from[right].key, from[left].key, descending));
    to[at] = take_right ? from[right++] : from[left++];
  }
}

/* Sorts n pairs; the result lies in the memory that is returned, `pairs` or `spare`. */
template <class Key>
inline SortPair<Key> *merge_sort(SortPair<Key> *pairs, SortPair<Key> *spare, int64_t n, bool descending) {
  for (int64_t begin = 0; begin < n; begin += kInsertionRun)
    sort_run(pairs, begin, begin + kInsertionRun < n ? begin + kInsertionRun : n, descending);
  for (int64_t run = kInsertionRun; run < n; run *= 2) {
    for (int64_t begin = 0; begin < n; begin += 2 * run) {
      const int64_t middle = begin + run < n ? begin + run : n, end = begin + 2 * run < n ? begin + 2 * run : n;
      merge_runs(pairs, spare, begin, middle, end, descending);
    }
    SortPair<Key> *sorted = spare;
    spare = pairs;
    pairs = sorted;
  }
  return pairs;
}

/* The first k of n elements in order, each inserted where it belongs: for small k. */
template <class Key, class T>
inline void insert_first(SortPair<Key> *first, const T *x, int64_t n, int64_t k, bool descending) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    const Key key = (Key)load_scalar(x + i);
    if (count == k && !sorts_before(key, first[k - 1].key, descending)) continue;
    int64_t at = count < k ? count++ : k - 1;
    for (; at > 0 && sorts_before(key, first[at - 1].key, descending); --at) first[at] = first[at - 1];
    first[at] = {key, i};
  }
}

constexpr int64_t kInsertFirst = 32;

/* values[0, k) and places[0, k): the first k of the n elements of x in order. */
template <class T>
inline void sort_row(
    const mycc_host *host, int32_t worker, T *values, int64_t *places, const T *x, int64_t n, int64_t k,
    int64_t descending) {
  typedef decltype(load_scalar(x)) Key;
  if (k <= 0) return;
  const bool few = k <= kInsertFirst && k < n;
  SortPair<Key> *pairs = row_scratch<SortPair<Key>>(host, worker, few ? k : 2 * n);
  if (!pairs) return;
  if (few) {
    insert_first(pairs, x, n, k, descending != 0);
  } else {
    for (int64_t i = 0; i < n; ++i) pairs[i] = {load_scalar(x + i), i};
    pairs = merge_sort(pairs, pairs + n, n, descending != 0);
  }
  for (int64_t i = 0; i < k; ++i) {
    store_scalar(values + i, pairs[i].key);
    places[i] = pairs[i].place;
  }
}

/* The most frequent of the n elements of x, the smallest of several, and the place of its last occurrence. */
template <class T>
inline void mode_row(const mycc_host *host, int32_t worker, T *value, int64_t *place, const T *x, int64_t n) {
  typedef decltype(load_scalar(x)) Key;
  SortPair<Key> *pairs = row_scratch<SortPair<Key>>(host, worker, 2 * n);
  if (!pairs || n <= 0) return;
  for (int64_t i = 0; i < n; ++i) pairs[i] = {load_scalar(x + i), i};
  pairs = merge_sort(pairs, pairs + n, n, false);
  int64_t best = 0, run = 0;
  for (int64_t i = 0; i < n; ++i) {
    ++run;
    if (i + 1 < n && pairs[i].key == pairs[i + 1].key) continue;
    if (run > best) {
      best = run;
      store_scalar(value, pairs[i].key);
      *place = pairs[i].place;
    }
    run = 0;
  }
}

} /* namespace mycc */
#endif /* MYCC_SORT_H */
