/* reduce.h: reductions of one vector to a scalar and running sums of it, in a fixed order. Included by vec/vec.h. */
#ifndef MYCC_KERNELS_VEC_REDUCE_H
#define MYCC_KERNELS_VEC_REDUCE_H

#include "kernels/vec/ops.h"

namespace mycc {

/* A tree: lane i with lane i + n/2, then n/4, and so on. */
namespace tree {
#if defined(__clang__)
template <int K, class V, int... I> MYCC_INLINE V exchange(V v, lane_list<I...>) {
  return __builtin_shufflevector(v, v, (I ^ K)...);
}
#else
template <int K, int... I> MYCC_INLINE vf32 exchange(vf32 v, lane_list<I...>) {
  return __builtin_shuffle(v, vi32{(I ^ K)...});
}
template <int K, int... I> MYCC_INLINE vi32 exchange(vi32 v, lane_list<I...>) {
  return __builtin_shuffle(v, vi32{(I ^ K)...});
}
template <int K, int... I> MYCC_INLINE hf64 exchange(hf64 v, lane_list<I...>) {
  return __builtin_shuffle(v, hi64{(I ^ K)...});
}
template <int K, int... I> MYCC_INLINE hi64 exchange(hi64 v, lane_list<I...>) {
  return __builtin_shuffle(v, hi64{(I ^ K)...});
}
#endif
template <class L, class V, class F> MYCC_INLINE auto reduce_lanes(V v, F f) {
  constexpr int n = sizeof(V) / sizeof(v[0]);
  if constexpr (n > 8) v = f(v, exchange<8>(v, L()));
  if constexpr (n > 4) v = f(v, exchange<4>(v, L()));
  if constexpr (n > 2) v = f(v, exchange<2>(v, L()));
  v = f(v, exchange<1>(v, L()));
  return v[0];
}
template <class F> MYCC_INLINE float reduce(vf32 v, F f) { return reduce_lanes<all_lanes>(v, f); }
template <class F> MYCC_INLINE int32_t reduce(vi32 v, F f) { return reduce_lanes<all_lanes>(v, f); }
template <class F> MYCC_INLINE double reduce(vf64 v, F f) { return reduce_lanes<lower_lanes>(f(v.lo, v.hi), f); }
template <class F> MYCC_INLINE int64_t reduce(vi64 v, F f) { return reduce_lanes<lower_lanes>(f(v.lo, v.hi), f); }

/* A step of the trees of four vectors at once. a and b each have the lanes that are left of as many trees, 2 K of each. */
template <int K, int... I> MYCC_INLINE vf32 add_halves(vf32 a, vf32 b, lane_list<I...>) {
  constexpr int TREES = W / (2 * K); /* of a vector */
  return MYCC_SHUFFLE(vf32, a, b, (I / K / TREES * W + I / K % TREES * 2 * K + I % K)...) +
         MYCC_SHUFFLE(vf32, a, b, (I / K / TREES * W + I / K % TREES * 2 * K + I % K + K)...);
}
template <int... I> MYCC_INLINE vf32 first_of_quarters(vf32 v, lane_list<I...>) {
  return MYCC_SHUFFLE(vf32, v, v, (I * (W / 4) % W)...);
}
} /* namespace tree */

/* reduce_x(v): all lanes; reduce_x_tail(v, n): the first n, n in [0, W]; of none the neutral element. */
#define MYCC_REDUCE(NAME, V, S, EXPR, NEUTRAL)                                                              \
  MYCC_INLINE S NAME(V v) {                                                                                 \
    return tree::reduce(v, [](auto a, auto b) MYCC_INLINED { return EXPR; });             \
  }                                                                                                         \
  MYCC_INLINE S NAME##_tail(V v, int n) { return NAME(where(first_lanes(n), v, (S)NEUTRAL)); }              \
  MYCC_INLINE S NAME(S v) { return v; }
MYCC_REDUCE(reduce_add, vf32, float, a + b, -0.0f)
MYCC_REDUCE(reduce_add, vf64, double, a + b, -0.0)
MYCC_REDUCE(reduce_add, vi32, int32_t, a + b, 0)
MYCC_REDUCE(reduce_add, vi64, int64_t, a + b, 0)
MYCC_REDUCE(reduce_mul, vf32, float, a * b, 1)
MYCC_REDUCE(reduce_mul, vf64, double, a * b, 1)
MYCC_REDUCE(reduce_mul, vi32, int32_t, a * b, 1)
MYCC_REDUCE(reduce_mul, vi64, int64_t, a * b, 1)
MYCC_REDUCE(reduce_max, vi32, int32_t, maximum(a, b), INT32_MIN)
MYCC_REDUCE(reduce_max, vi64, int64_t, maximum(a, b), INT64_MIN)
MYCC_REDUCE(reduce_min, vi32, int32_t, minimum(a, b), INT32_MAX)
MYCC_REDUCE(reduce_min, vi64, int64_t, minimum(a, b), INT64_MAX)
MYCC_REDUCE(reduce_or, vi32, int32_t, a | b, 0)
MYCC_REDUCE(reduce_or, vi64, int64_t, a | b, 0)
MYCC_REDUCE(reduce_and, vi32, int32_t, a & b, -1)
MYCC_REDUCE(reduce_and, vi64, int64_t, a & b, -1)
#undef MYCC_REDUCE
/* to[0..3] = reduce_add of a, b, c and d, to the bit: half of the steps or less. */
MYCC_INLINE void reduce_add_4(vf32 a, vf32 b, vf32 c, vf32 d, float *to) {
  constexpr all_lanes lanes;
  const vf32 ab = tree::add_halves<W / 2>(a, b, lanes), cd = tree::add_halves<W / 2>(c, d, lanes);
  vf32 sums = tree::add_halves<W / 4>(ab, cd, lanes);
  if constexpr (W > 8) sums = sums + tree::exchange<2>(sums, lanes);
  if constexpr (W > 4) sums = sums + tree::exchange<1>(sums, lanes);
  sums = tree::first_of_quarters(sums, lanes);
  __builtin_memcpy(to, &sums, 4 * sizeof(float));
}
/* Extrema of floats: one look for a NaN beside a tree that takes no care of them, instead of one in each of its steps. */
#define MYCC_REDUCE_EXTREMUM(NAME, V, S, PICK, NEUTRAL)                                                     \
  MYCC_INLINE S NAME(V v) {                                                                                 \
    const S best = tree::reduce(v, [](auto a, auto b) MYCC_INLINED { return isa::PICK(b, a); });            \
    return __builtin_expect(any(isnan(v)), 0) ? (S)__builtin_nan("") : best;                                \
  }                                                                                                         \
  MYCC_INLINE S NAME##_tail(V v, int n) { return NAME(where(first_lanes(n), v, (S)NEUTRAL)); }              \
  MYCC_INLINE S NAME(S v) { return v; }
MYCC_REDUCE_EXTREMUM(reduce_max, vf32, float, max, -__builtin_inff())
MYCC_REDUCE_EXTREMUM(reduce_max, vf64, double, max, -__builtin_inf())
MYCC_REDUCE_EXTREMUM(reduce_min, vf32, float, min, __builtin_inff())
MYCC_REDUCE_EXTREMUM(reduce_min, vf64, double, min, __builtin_inf())
#undef MYCC_REDUCE_EXTREMUM

/* The larger one, a where b is NaN: one instruction, for maxima whose NaN are found by other means. */
MYCC_INLINE vf32 top(vf32 a, vf32 b) { return isa::max(b, a); }
MYCC_INLINE vf64 top(vf64 a, vf64 b) { return {isa::max(b.lo, a.lo), isa::max(b.hi, a.hi)}; }
MYCC_INLINE float top(float a, float b) { return b > a ? b : a; }
MYCC_INLINE double top(double a, double b) { return b > a ? b : a; }
template <class V> MYCC_INLINE auto reduce_top(V v) {
  return tree::reduce(v, [](auto a, auto b) MYCC_INLINED { return isa::max(b, a); });
}
MYCC_INLINE float reduce_top(float v) { return v; }
MYCC_INLINE double reduce_top(double v) { return v; }

/* ---- running sums and products: lane i becomes that of the lanes up to it, in log2(lanes) steps ---- */
namespace running {
/* v with its lanes K places further up, behind the last K of `front`. */
#if defined(__clang__)
template <int K, class H, int... I> MYCC_INLINE H moved_up(H front, H v, lane_list<I...>) {
  return __builtin_shufflevector(front, v, (I < K ? I : int(sizeof...(I)) + I - K)...);
}
template <class H, int... I> MYCC_INLINE H last(H v, lane_list<I...>) {
  return __builtin_shufflevector(v, v, (I - I + int(sizeof...(I)) - 1)...);
}
#else
template <int K, class H, int... I> MYCC_INLINE H moved_up(H front, H v, lane_list<I...>) {
  return __builtin_shuffle(front, v, hi64{(I < K ? I : int(sizeof...(I)) + I - K)...});
}
template <class H, int... I> MYCC_INLINE H last(H v, lane_list<I...>) {
  return __builtin_shuffle(v, hi64{(I - I + int(sizeof...(I)) - 1)...});
}
#endif
template <class H> MYCC_INLINE H last(H v) { return last(v, lower_lanes()); }
template <class H, class F> MYCC_INLINE H reduce_lanes(H v, H neutral, F f) {
  constexpr int n = sizeof(H) / sizeof(double);
  v = f(v, moved_up<1>(neutral, v, lower_lanes()));
  if constexpr (n > 2) v = f(v, moved_up<2>(neutral, v, lower_lanes()));
  if constexpr (n > 4) v = f(v, moved_up<4>(neutral, v, lower_lanes()));
  return v;
}
template <class H> MYCC_INLINE H sum(H v) {
  return reduce_lanes(v, H{}, [](H a, H b) MYCC_INLINED { return a + b; });
}
MYCC_INLINE hf64 product(hf64 v) {
  return reduce_lanes(v, hf64{} + 1.0, [](hf64 a, hf64 b) MYCC_INLINED { return a * b; });
}
} /* namespace running */

/* The sums behind those of the vectors before, which `carry` holds in every lane. float32 is summed in float64. */
template <class V, class H> MYCC_INLINE V running_sum_of(V v, H &carry) {
  const H lo = running::sum(v.lo), hi = running::sum(v.hi) + running::last(lo), before = carry;
  carry += running::last(hi);
  return {lo + before, hi + before};
}
MYCC_INLINE vf64 running_sum(vf64 v, hf64 &carry) { return running_sum_of(v, carry); }
MYCC_INLINE vi64 running_sum(vi64 v, hi64 &carry) { return running_sum_of(v, carry); }
MYCC_INLINE vf32 running_sum(vf32 v, hf64 &carry) { return to_f32(running_sum(to_f64(v), carry)); }
/* Products of what was float32: those of half a vector cannot overflow. */
MYCC_INLINE vf64 running_product(vf64 v, hf64 &carry) {
  const hf64 lo = running::product(v.lo), hi = running::product(v.hi), before = carry;
  const hf64 between = before * running::last(lo);
  carry = between * running::last(hi);
  return {lo * before, hi * between};
}
MYCC_INLINE bool reduce_or(vbool v) { return any(v); }
MYCC_INLINE bool reduce_and(vbool v) { return all(v); }
MYCC_INLINE bool reduce_or_tail(vbool v, int n) { return any(v & first_lanes(n)); }
MYCC_INLINE bool reduce_and_tail(vbool v, int n) { return all(v | ~first_lanes(n)); }
MYCC_INLINE bool reduce_or(bool v) { return v; }
MYCC_INLINE bool reduce_and(bool v) { return v; }

} /* namespace mycc */
#endif /* MYCC_KERNELS_VEC_REDUCE_H */
