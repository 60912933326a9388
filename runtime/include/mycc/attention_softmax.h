/* attention_softmax.h: the step of the online softmax over rows of scores. Included by attention.h. */
#ifndef MYCC_ATTENTION_SOFTMAX_H
#define MYCC_ATTENTION_SOFTMAX_H

#include <stddef.h>
#include <stdint.h>

#include "attention_rows.h"
#include "vec.h"

namespace mycc {
namespace attention_detail {

constexpr float kLog2E = 1.44269504f;

/* Of which number the weights are powers. Without a score functor Q is scaled by log2(e) too, so that they are powers
 * of 2. A functor sees natural scores: a mask of the lowest finite number times log2(e) would overflow. */
template <class Score> struct Powers {
  static constexpr float kScale = 1.0f, kLog2 = kLog2E;
};
template <> struct Powers<NoScore> {
  static constexpr float kScale = kLog2E, kLog2 = 1.0f;
};

/* p[i] = 2^x[i] for x[i] <= 0 or NaN, zero where the result would be subnormal; x is no longer needed. The relative error
 * is at most 2e-7. Several vectors go through every step together, as one alone would wait for its own results. Few
 * constants: with the loop around it they have to fit into 16 registers. */
template <int... I> MYCC_INLINE void exp2_negative(vf32 *x, vf32 *p, lane_list<I...>) {
  constexpr float kRound = 12582912.0f + 127.0f; /* 1.5 * 2^23 + bias: adding it leaves n + 127 in the low bits */
  ((x[I] = isa::max(splat(-127.0f), x[I])), ...);
  const vf32 shifted[] = {(x[I] + kRound)...}; /* n = round(x) */
  ((x[I] = x[I] - (shifted[I] - kRound)), ...);
  ((p[I] = fma(x[I], 1.3269534e-3f, 9.671292e-3f)), ...); /* (2^x - 1) / x, minimax on |x| <= 0.5 */
  ((p[I] = fma(p[I], x[I], 5.550711e-2f)), ...);
  ((p[I] = fma(p[I], x[I], 2.4022247e-1f)), ...);
  ((p[I] = fma(p[I], x[I], 6.93147e-1f)), ...);
  ((p[I] = fma(p[I], x[I], 1.0f)), ...);
  ((p[I] = p[I] * from_bits(bits(shifted[I]) << 23)), ...); /* 2^-127 is zero here */
}
MYCC_INLINE vf32 exp2_negative(vf32 x) {
  vf32 p;
  exp2_negative(&x, &p, lane_list<0>());
  return p;
}

/* Running softmax of rows: the maximum so far, and vectors whose lanes sum up the weights. */
struct RowStates {
  float *maximum, *sums;

  void start(int64_t count) const {
    for (int64_t r = 0; r < count + W; ++r) maximum[r] = -kInfinity;
    for (int64_t r = 0; r < count; ++r) store(sums + r * W, vf32{});
  }
  RowStates from(int64_t row) const { return {maximum + row, sums + row * W}; }
  float sum(int64_t row) const { return reduce_add(load(sums + row * W)); }
};

/* The largest of s[0..count-1]; s has room for whole vectors, whose rest becomes -inf. A NaN may get lost: the sum of
 * the exponentials keeps it. */
inline float row_maximum(float *s, int64_t count) {
  const int64_t whole = count / W * W;
  vf32 best = splat(-kInfinity), other = best;
  int64_t i = 0;
  for (; i + 2 * W <= whole; i += 2 * W) {
    best = isa::max(best, load(s + i));
    other = isa::max(other, load(s + i + W));
  }
  if (i < whole) best = isa::max(best, load(s + i));
  if (whole < count) { /* as one vector: a load waits for stores of single elements */
    const vf32 last = lane_numbers() < splat(int32_t(count - whole)) ? load(s + whole) : splat(-kInfinity);
    store(s + whole, last);
    other = isa::max(other, last);
  }
  return tree::reduce(isa::max(best, other), [](vf32 a, vf32 b) MYCC_INLINED { return isa::max(a, b); });
}

template <int... I> MYCC_INLINE void exponentials(float *s, vf32 high, float unit, vf32 *sums, lane_list<I...> all) {
  vf32 x[] = {((load(s + I * W) - high) * unit)...}, p[sizeof...(I)];
  exp2_negative(x, p, all);
  (store(s + I * W, p[I]), ...);
  ((sums[I] += p[I]), ...);
}

/* s[0..count-1] become the powers of s - high, those up to `padded` zero; s has room for whole vectors, the rest of the
 * last one being -inf. Returns what the lanes sum up to. */
template <class Score> inline vf32 exponentials(float *s, int64_t count, int64_t padded, float high) {
  constexpr float unit = Powers<Score>::kLog2;
  const int64_t end = round_up(count, W);
  const vf32 maximum = splat(high);
  vf32 sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * W <= end; i += 4 * W) exponentials(s + i, maximum, unit, sums, lane_list<0, 1, 2, 3>());
  for (; i < end; i += W) exponentials(s + i, maximum, unit, sums, lane_list<0>());
  for (; i < padded; i += W) store(s + i, vf32{});
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* A block of rows of scores, `stride` apart; row r sees the keys 0 .. seen[r] - 1 of the block. */
struct ScoreRows {
  float *scores;
  int64_t stride, count;
  const int64_t *seen;
};

/* One step of the online softmax of some rows, which work on each other's latencies: first all maxima, then a vector of
 * rows at a time what they change, then the exponentials. Scores become the weights of their keys, those up to `padded`
 * zero. factor[r]: by what the sums over earlier keys have to be multiplied; it has room for whole vectors of rows, and
 * so have the states' maxima. */
template <class Score>
inline void softmax_step(const ScoreRows &rows, int64_t padded, const RowStates &state, float *factor) {
  for (int64_t r = 0; r < rows.count; ++r)
    factor[r] = rows.seen[r] > 0 ? row_maximum(rows.scores + r * rows.stride, rows.seen[r]) : -kInfinity;
  for (int64_t r = rows.count; r < round_up(rows.count, W); ++r) factor[r] = -kInfinity; /* changes nothing */
  for (int64_t r = 0; r < rows.count; r += W) {
    const vf32 found = load(factor + r), before = load(state.maximum + r);
    const vf32 maximum = found > before ? found : before;
    const vf32 high = maximum == -kInfinity ? vf32{} : maximum; /* all masked so far: exp(-inf - 0) = 0 */
    store(state.maximum + r, maximum);
    store(factor + r, exp2_negative((before - high) * Powers<Score>::kLog2));
  }
  for (int64_t r = 0; r < rows.count; ++r) {
    const float high = state.maximum[r] == -kInfinity ? 0.0f : state.maximum[r];
    const vf32 sums = exponentials<Score>(rows.scores + r * rows.stride, rows.seen[r], padded, high);
    store(state.sums + r * W, fma(load(state.sums + r * W), factor[r], sums));
  }
}

} // namespace attention_detail
} // namespace mycc
#endif /* MYCC_ATTENTION_SOFTMAX_H */
