/* keys.h: rows as integers in the order of the sort, and two stable sorts of these: by counting the smaller ones,
 * for short rows, and by digits (least significant first) for long ones.
 */
#ifndef MYCC_KERNELS_SORT_KEYS_H
#define MYCC_KERNELS_SORT_KEYS_H

#include "kernels/loops/loops.h"
#include "kernels/vec/compress.h"

namespace mycc {

/* Elements of 32 bits or less have keys of 32 bits, from -2^(bits - 1) to 2^(bits - 1) - 1; the others of 64. */
template <class T> struct SortKey { typedef int32_t type; static constexpr int bits = 32, shift = 0; };
template <> struct SortKey<half> { typedef int32_t type; static constexpr int bits = 19, shift = 13; };
template <> struct SortKey<bfloat> { typedef int32_t type; static constexpr int bits = 16, shift = 16; };
template <> struct SortKey<int16_t> { typedef int32_t type; static constexpr int bits = 16, shift = 0; };
template <> struct SortKey<int8_t> { typedef int32_t type; static constexpr int bits = 8, shift = 0; };
template <> struct SortKey<uint8_t> { typedef int32_t type; static constexpr int bits = 16, shift = 0; };
template <> struct SortKey<boolean> { typedef int32_t type; static constexpr int bits = 8, shift = 0; };
template <> struct SortKey<int64_t> { typedef int64_t type; static constexpr int bits = 64, shift = 0; };
template <> struct SortKey<double> { typedef int64_t type; static constexpr int bits = 64, shift = 0; };

namespace sorting {

/* Keys of a vector: NaN is the largest, both zeros are one. */
MYCC_INLINE vi32 ordered(vi32 v) { return v; }
MYCC_INLINE vi64 ordered(vi64 v) { return v; }
MYCC_INLINE vi32 ordered(vbool v) { return to_i32(v); }
MYCC_INLINE vi32 ordered(vf32 v) {
  const vi32 b = bits(v), key = b ^ (vi32)((vu32)(b >> 31) >> 1);
  return where(isnan(v), INT32_MAX, where(eq(v, 0.0f), 0, key));
}
MYCC_INLINE vi64 ordered(vf64 v) {
  const vi64 b = bits(v);
  const vi64 key = {b.lo ^ (hi64)((hu64)(b.lo >> 63) >> 1), b.hi ^ (hi64)((hu64)(b.hi >> 63) >> 1)};
  return where(isnan(v), INT64_MAX, where(eq(v, 0.0), (int64_t)0, key));
}

/* Keys of a vector of x; those of a descending order are inverted. */
template <class T> MYCC_INLINE auto keys(typename element<T>::vector v, bool descending) {
  const auto key = ordered(v) >> SortKey<T>::shift;
  return descending ? ~key : key;
}
/* The largest of all keys. */
template <class Key> constexpr Key kLast = (Key)(((uint64_t)1 << (8 * sizeof(Key) - 1)) - 1);

/* Keys of the n elements of x; the rest of the last vector of them gets the largest key. */
template <class T> inline void store_keys(typename SortKey<T>::type *to, const T *x, int64_t n, bool descending) {
  int64_t i = 0;
  for (; i + W <= n; i += W) store(to + i, keys<T>(load(x + i), descending));
  if (i == n) return;
  const int count = (int)(n - i);
  store(to + i, where(first_lanes(count), keys<T>(load_tail(x + i, count), descending),
                      kLast<typename SortKey<T>::type>));
}

/* f(i, place) for the first k of n keys, one after the other: for few. False, and not all are found, when the largest
 * key is among them. The keys are lost. */
template <class Key, class F> inline bool pick_keys(Key *keys, int64_t n, int64_t k, F f) {
  for (int64_t found = 0; found < k; ++found) {
    auto least = load(keys);
    for (int64_t i = W; i < n; i += W) least = minimum(least, load(keys + i));
    const Key key = reduce_min(least);
    if (__builtin_expect(key == kLast<Key>, 0)) return false;
    int64_t i = 0;
    unsigned mask = lane_mask(eq(load(keys), key));
    while (!mask) i += W, mask = lane_mask(eq(load(keys + i), key));
    const int lane = __builtin_ctz(mask);
    store(keys + i, where(vbool{lane_numbers() == lane}, kLast<Key>, load(keys + i)));
    f(i + lane, found);
  }
  return true;
}

/* f(i, place) for each of n keys: its place is the number of those that come before it. */
template <class Key, class F> inline void rank_keys(const Key *keys, int64_t n, F f) {
  for (int64_t begin = 0; begin < n; begin += W) {
    const auto own = load(keys + begin);
    const int64_t end = begin + W < n ? begin + W : n;
    vi32 rank = {};
    for (int64_t j = 0; j < begin; ++j) rank -= le(splat(keys[j]), own).m;
    for (int64_t j = begin; j < end; ++j) {
      const auto other = splat(keys[j]);
      rank -= (lt(other, own) | (eq(other, own) & vbool{lane_numbers() > (int32_t)(j - begin)})).m;
    }
    for (int64_t j = end; j < n; ++j) rank -= lt(splat(keys[j]), own).m;
    for (int64_t i = begin; i < end; ++i) f(i, (int64_t)rank[(int)(i - begin)]);
  }
}

/* A key and the place of its element: one word where both have 32 bits. */
struct Word {
  typedef uint32_t count;
  uint64_t word;
  MYCC_INLINE uint64_t key() const { return word >> 32; }
  static MYCC_INLINE Word of(uint64_t key, int64_t place) { return {key << 32 | (uint64_t)place}; }
  MYCC_INLINE unsigned digit(int d) const { return (unsigned)(word >> (32 + 8 * d)) & 255; }
  MYCC_INLINE int64_t place() const { return (int64_t)(uint32_t)word; }
};
struct Pair {
  typedef int64_t count;
  uint64_t own;
  int64_t at;
  MYCC_INLINE uint64_t key() const { return own; }
  static MYCC_INLINE Pair of(uint64_t key, int64_t place) { return {key, place}; }
  MYCC_INLINE unsigned digit(int d) const { return (unsigned)(own >> (8 * d)) & 255; }
  MYCC_INLINE int64_t place() const { return at; }
};

template <class Key> struct ItemOf { typedef Pair type; };
template <> struct ItemOf<int32_t> { typedef Word type; };

/* items[0, n) in the order of their lowest DIGITS bytes, in `items` or in `spare`; digits that all share are left out.
 * counts: DIGITS * 256. */
template <int DIGITS, class Item>
inline Item *by_digits(Item *items, Item *spare, int64_t n, typename Item::count *counts) {
  for (int64_t i = 0; i < DIGITS * 256; ++i) counts[i] = 0;
  for (int64_t i = 0; i < n; ++i) {
    const Item item = items[i];
    for (int d = 0; d < DIGITS; ++d) ++counts[256 * d + item.digit(d)];
  }
  for (int d = 0; d < DIGITS; ++d, counts += 256) {
    if ((int64_t)counts[items[0].digit(d)] == n) continue;
    typename Item::count sum = 0;
    for (int digit = 0; digit < 256; ++digit) {
      const typename Item::count own = counts[digit];
      counts[digit] = sum;
      sum += own;
    }
    for (int64_t i = 0; i < n; ++i) {
      const Item item = items[i];
      spare[counts[item.digit(d)]++] = item;
    }
    Item *sorted = spare;
    spare = items;
    items = sorted;
  }
  return items;
}

/* What keys have to be added to be numbers from 0 on, and how many bytes these have. */
template <class T> constexpr uint64_t bias = (uint64_t)1 << (SortKey<T>::bits - 1);
template <class T> constexpr int digits = (SortKey<T>::bits + 7) / 8;

} /* namespace sorting */
} /* namespace mycc */
#endif /* MYCC_KERNELS_SORT_KEYS_H */
