/* sort.h: rows in order, stable, NaN as the largest: whole, or the first of them. Short rows are sorted by ranks, long
 * ones by digits; the first few of many are kept in a list, and of the rest only what comes before its last joins it.
 *
 * Routines of lower/core/routines.py: one row each, scratch from the host.
 */
#ifndef MYCC_KERNELS_SORT_SORT_H
#define MYCC_KERNELS_SORT_SORT_H

#include "machine.h"
#include "kernels/sort/keys.h"

namespace mycc {
namespace sorting {

/* Rows and lists of up to so many are sorted by ranks, which takes n^2 / W steps. */
template <class Key> constexpr int64_t kRanked = kRankedVectors * W * (int64_t)sizeof(float) / (int64_t)sizeof(Key);

/* f(the n items of x in order). */
template <class T, class Item, class F>
inline void with_items(const mycc_host *host, int32_t worker, const T *x, int64_t n, bool descending, F f) {
  typedef typename SortKey<T>::type Key;
  constexpr int64_t counts = digits<T> * 256 * sizeof(typename Item::count);
  /* the keys, in the place of the spare items, end with a whole vector */
  char *scratch = row_scratch<char>(host, worker, counts + (2 * n + W) * (int64_t)sizeof(Item));
  if (!scratch) return;
  Item *items = (Item *)(scratch + counts), *spare = items + n;
  const Key *keys = (const Key *)spare;
  store_keys((Key *)spare, x, n, descending);
  for (int64_t i = 0; i < n; ++i) items[i] = Item::of((uint64_t)keys[i] + bias<T>, i);
  f(by_digits<digits<T>>(items, spare, n, (typename Item::count *)scratch));
}
template <class T, class F>
inline void with_sorted(const mycc_host *host, int32_t worker, const T *x, int64_t n, bool descending, F f) {
  typedef typename ItemOf<typename SortKey<T>::type>::type Item;
  if (n <= (int64_t)UINT32_MAX)
    with_items<T, Item>(host, worker, x, n, descending, f);
  else
    with_items<T, Pair>(host, worker, x, n, descending, f);
}

/* The first k of what was seen so far, and some that may be among them, in the order of their places. */
template <class T> struct FirstList {
  typedef typename SortKey<T>::type Key;
  typedef typename ItemOf<Key>::type Item;
  static constexpr int64_t kCounts = digits<T> * 256 * sizeof(typename Item::count);
  int64_t k, room, count;
  Key *keys;
  int32_t *places;
  char *spare; /* to sort in */

  static int64_t room_for(int64_t k) { return 2 * k + 2 * W; }
  static int64_t memory(int64_t k) {
    const int64_t most = room_for(k) + W; /* as a vector joins before the list is looked at */
    return most * (int64_t)(sizeof(Key) + sizeof(int32_t)) + kCounts + 2 * most * (int64_t)sizeof(Item);
  }
  FirstList(char *scratch, int64_t k) : k(k), room(room_for(k)), count(0), keys((Key *)scratch) {
    places = (int32_t *)(keys + room + W);
    spare = (char *)(places + room + W);
  }

  /* The first k in order, the others gone. */
  void sort() {
    const int64_t kept = k < count ? k : count;
    if (count <= kRanked<Key>) {
      Key *first = (Key *)spare;
      int32_t *at = (int32_t *)(first + kept);
      rank_keys(keys, count, [=](int64_t i, int64_t rank) {
        if (rank < kept) first[rank] = keys[i], at[rank] = places[i];
      });
      for (int64_t i = 0; i < kept; ++i) keys[i] = first[i], places[i] = at[i];
    } else {
      Item *items = (Item *)(spare + kCounts);
      for (int64_t i = 0; i < count; ++i) items[i] = Item::of((uint64_t)keys[i] + bias<T>, places[i]);
      items = by_digits<digits<T>>(items, items + count, count, (typename Item::count *)spare);
      for (int64_t i = 0; i < kept; ++i) keys[i] = (Key)(items[i].key() - bias<T>), places[i] = (int32_t)items[i].place();
    }
    count = kept;
  }

  /* All n elements of x, the first `room` of them without a look. */
  void take(const T *x, int64_t n, bool descending) {
    count = room < n ? room : n;
    store_keys(keys, x, count, descending);
    for (int64_t i = 0; i < count; i += W) store(places + i, lane_numbers() + (int32_t)i);
    int64_t i = count;
    sort();
    for (auto last = splat(keys[k - 1]); i < n; i += W) {
      const int here = (int)(n - i < W ? n - i : W);
      prefetch_l1(x + i + kKeyPrefetch / (int64_t)sizeof(T));
      const auto key = sorting::keys<T>(here == W ? load(x + i) : load_tail(x + i, here), descending);
      const vbool before = here == W ? lt(key, last) : lt(key, last) & first_lanes(here);
      if (__builtin_expect(!any(before), 1)) continue;
      const unsigned mask = lane_mask(before);
      store_set(keys + count, key, mask);
      count += store_set(places + count, lane_numbers() + (int32_t)i, mask);
      if (count > room) {
        sort();
        last = splat(keys[k - 1]);
      }
    }
    sort();
  }
};

} /* namespace sorting */

/* values[0, k) and places[0, k): the first k of the n elements of x in order. */
template <class T>
inline void sort_row(
    const mycc_host *host, int32_t worker, T *values, int64_t *places, const T *x, int64_t n, int64_t k,
    int64_t descending) {
  using namespace sorting;
  typedef typename SortKey<T>::type Key;
  if (k <= 0) return;
  if (n <= kRanked<Key>) {
    Key *keys = row_scratch<Key>(host, worker, n + W);
    if (!keys) return;
    store_keys(keys, x, n, descending != 0);
    const auto take = [=](int64_t i, int64_t rank) {
      if (rank < k) values[rank] = x[i], places[rank] = i;
    };
    if (k <= kPicked && pick_keys(keys, n, k, take)) return;
    if (k <= kPicked) store_keys(keys, x, n, descending != 0);
    rank_keys(keys, n, take);
  } else if (k <= n / 4 && n <= INT32_MAX) {
    char *scratch = row_scratch<char>(host, worker, FirstList<T>::memory(k));
    if (!scratch) return;
    FirstList<T> list(scratch, k);
    list.take(x, n, descending != 0);
    for (int64_t i = 0; i < k; ++i) values[i] = x[list.places[i]], places[i] = list.places[i];
  } else {
    with_sorted(host, worker, x, n, descending != 0, [=](const auto *items) {
      for (int64_t i = 0; i < k; ++i) {
        const int64_t place = items[i].place();
        values[i] = x[place], places[i] = place;
      }
    });
  }
}

/* The most frequent of the n elements of x, the smallest of several, and the place of its last occurrence. */
template <class T>
inline void mode_row(const mycc_host *host, int32_t worker, T *value, int64_t *place, const T *x, int64_t n) {
  if (n <= 0) return;
  sorting::with_sorted(host, worker, x, n, false, [=](const auto *items) {
    int64_t best = 0, run = 0;
    for (int64_t i = 0; i < n; ++i) {
      ++run;
      const int64_t own = items[i].place();
      if (i + 1 < n && load_scalar(x + own) == load_scalar(x + items[i + 1].place())) continue;
      if (run > best) {
        best = run;
        *value = x[own];
        *place = own;
      }
      run = 0;
    }
  });
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_SORT_SORT_H */
