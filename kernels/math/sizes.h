/* sizes.h: numbers of elements and bytes as host programs compute them from the sizes of a call: exact, or known to be
 * out of range. Signed 64-bit products wrap, and memory for a wrapped size is too small.
 */
#ifndef MYCC_KERNELS_MATH_SIZES_H
#define MYCC_KERNELS_MATH_SIZES_H

#include <stdint.h>

namespace mycc {

/* A whole number: `value`, or, once a step of its formula left the range of int64_t, a number beyond the end of that
 * range that `value` is at. Nothing brings it back but a bound (minimum, maximum). */
struct Size {
  int64_t value;
  bool beyond;

  constexpr Size(int64_t number) : value(number), beyond(false) {}
  static constexpr Size past(bool negative) {
    Size size(negative ? INT64_MIN : INT64_MAX);
    size.beyond = true;
    return size;
  }
  constexpr bool negative() const { return value < 0; }
};

constexpr Size operator-(Size a) { return a.beyond || a.value == INT64_MIN ? Size::past(!a.negative()) : Size(-a.value); }

constexpr Size operator+(Size a, Size b) {
  int64_t sum = 0;
  if (a.beyond || b.beyond) return Size::past(a.beyond ? a.negative() : b.negative());
  return __builtin_add_overflow(a.value, b.value, &sum) ? Size::past(a.negative()) : Size(sum);
}
constexpr Size operator-(Size a, Size b) { return a + -b; }

/* 0 of anything is 0. */
constexpr Size operator*(Size a, Size b) {
  int64_t product = 0;
  if ((!a.beyond && a.value == 0) || (!b.beyond && b.value == 0)) return 0;
  if (a.beyond || b.beyond || __builtin_mul_overflow(a.value, b.value, &product))
    return Size::past(a.negative() != b.negative());
  return product;
}

/* Rounded down; by 0, beyond all numbers. */
constexpr Size floor_div(Size a, Size b) {
  if (b.value == 0) return Size::past(a.negative());
  if (a.beyond || (a.value == INT64_MIN && b.value == -1)) return Size::past(a.negative() != b.negative());
  if (b.beyond) return a.value != 0 && a.negative() != b.negative() ? -1 : 0;
  return a.value / b.value - (a.value % b.value != 0 && a.negative() != b.negative());
}
constexpr Size remainder(Size a, Size b) { return a - floor_div(a, b) * b; }
constexpr Size operator/(Size a, Size b) { return floor_div(a, b); }
constexpr Size operator%(Size a, Size b) { return remainder(a, b); }

constexpr bool operator<(Size a, Size b) {
  if (a.beyond || b.beyond) return a.beyond ? a.negative() && !(b.beyond && b.negative()) : !b.negative();
  return a.value < b.value;
}
constexpr bool operator<=(Size a, Size b) { return !(b < a); }
constexpr bool operator==(Size a, Size b) { return !a.beyond && !b.beyond && a.value == b.value; }
constexpr bool operator!=(Size a, Size b) { return !(a == b); }
constexpr Size maximum(Size a, Size b) { return a < b ? b : a; }
constexpr Size minimum(Size a, Size b) { return b < a ? b : a; }

/* Bytes in whole lines of memory; a negative number stays one. */
constexpr int64_t lines(Size bytes) {
  if (bytes.negative()) return bytes.value;
  return bytes.value <= INT64_MAX - 63 ? (bytes.value + 63) / 64 * 64 : INT64_MAX;
}

/* What a kernel goes through without holding it in memory: 0 when it can be counted, and all that is computed from it;
 * else too much for any memory. A negative number stays one. */
constexpr Size excess(Size elements) {
  if (elements.negative()) return elements;
  return elements.beyond || elements.value > INT64_C(1) << 56 ? Size::past(false) : Size(0);
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_MATH_SIZES_H */
