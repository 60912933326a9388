/* softmax.h: the step of the online softmax over rows of scores. Included by attention/attention.h. */
#ifndef MYCC_KERNELS_ATTENTION_SOFTMAX_H
#define MYCC_KERNELS_ATTENTION_SOFTMAX_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/attention/rows.h"
#include "kernels/math/math.h"
#include "kernels/math/powers.h"

namespace mycc {
namespace attention_detail {

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

/* Of which number the weights are powers. Without a score functor Q is scaled by log2(e) too, so that they are powers
 * of 2. A functor sees natural scores: a mask of the lowest finite number times log2(e) would overflow. */
template <class Score> struct Powers {
  static constexpr float kScale = 1.0f, kLog2 = kLog2E;
};
template <> struct Powers<NoScore> {
  static constexpr float kScale = kLog2E, kLog2 = 1.0f;
};

/* p[i] = 2^(x[i] - Less) for -127 <= x[i] - Less <= 0 or NaN, zero for -127; x is no longer needed. The relative error
 * of normal numbers is at most 2e-7. Several vectors go through every step together, as one alone would wait for its own
 * results. */
#if defined(MYCC_AVX512)
template <int Less, int... I> MYCC_INLINE void exp2_within(vf32 *x, vf32 *p, lane_list<I...>) {
  constexpr float kRound = 393216.0f - Less; /* 1.5 * 2^18: adding it leaves round(32 (x - Less)) in the low bits */
  const vi32 low = load(kernel::kPowers), high = load(kernel::kPowers + W);
  const vf32 shifted[] = {(x[I] + kRound)...};
  ((x[I] = x[I] - (shifted[I] - kRound)), ...);
  const vi32 near[] = {(isa::permute(low, high, bits(shifted[I])) + (bits(shifted[I]) << 18))...}; /* zero for -127 */
  ((p[I] = x[I] * fma(x[I], 0.24022676f, 0.6931573f)), ...); /* 2^x - 1, minimax on |x| <= 1 / 64 */
  ((p[I] = fma(from_bits(near[I]), p[I], from_bits(near[I]))), ...);
}
#else
/* Few constants: with the loop around it they have to fit into 16 registers. */
template <int Less, int... I> MYCC_INLINE void exp2_within(vf32 *x, vf32 *p, lane_list<I...>) {
  constexpr float kRound = 12582912.0f + 127.0f - Less; /* 1.5 * 2^23 + bias: adding it leaves n + 127 in the low bits */
  const vf32 shifted[] = {(x[I] + kRound)...}; /* n = round(x) - Less */
  ((x[I] = x[I] - (shifted[I] - kRound)), ...);
  ((p[I] = fma(x[I], 1.3269534e-3f, 9.671292e-3f)), ...); /* (2^x - 1) / x, minimax on |x| <= 0.5 */
  ((p[I] = fma(p[I], x[I], 5.550711e-2f)), ...);
  ((p[I] = fma(p[I], x[I], 2.4022247e-1f)), ...);
  ((p[I] = fma(p[I], x[I], 6.93147e-1f)), ...);
  ((p[I] = fma(p[I], x[I], 1.0f)), ...);
  ((p[I] = p[I] * from_bits(bits(shifted[I]) << 23)), ...); /* 2^-127 is zero here */
}
#endif
/* p[i] = 2^x[i] for x[i] <= 0 or NaN, zero from -127 down. */
template <int... I> MYCC_INLINE void exp2_negative(vf32 *x, vf32 *p, lane_list<I...> all) {
  ((x[I] = isa::max(splat(-127.0f), x[I])), ...);
  exp2_within<0>(x, p, all);
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

/* A block of rows of scores, `stride` apart; row r sees the keys 0 .. seen[r] - 1 of the block. */
struct ScoreRows {
  float *scores;
  int64_t stride, count;
  const int64_t *seen;
};

/* The maxima of rows so far, less which they are raised to powers, and by what the sums over earlier keys have to be
 * multiplied. */
struct RowFactors {
  float *maximum, *factor; /* [count], with room for whole vectors of rows */

  RowFactors from(int64_t row) const { return {maximum + row, factor + row}; }
};

/* The first half of a step of the online softmax of some rows, which work on each other's latencies: all maxima, then a
 * vector of rows at a time what they change. */
template <class Score>
inline void raise_maxima(const ScoreRows &rows, const RowStates &state, const RowFactors &found) {
  for (int64_t r = 0; r < rows.count; ++r)
    found.factor[r] = rows.seen[r] > 0 ? row_maximum(rows.scores + r * rows.stride, rows.seen[r]) : -kInfinity;
  for (int64_t r = rows.count; r < round_up(rows.count, W); ++r) found.factor[r] = -kInfinity; /* changes nothing */
  for (int64_t r = 0; r < rows.count; r += W) {
    const vf32 here = load(found.factor + r), before = load(state.maximum + r);
    const vf32 maximum = here > before ? here : before;
    const vf32 high = maximum == -kInfinity ? vf32{} : maximum; /* all masked so far: exp(-inf - 0) = 0 */
    store(state.maximum + r, maximum);
    store(found.maximum + r, high);
    store(found.factor + r, exp2_negative((before - high) * Powers<Score>::kLog2));
  }
}

constexpr int kBound = 32; /* of scores that are small, as powers of 2 */

/* The first half where all scores are small: softmax does not change when the same number is taken from all scores of a
 * row, and this one serves them all. */
inline void keep_bound(const ScoreRows &rows, const RowStates &state, const RowFactors &found) {
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t whole = rows.seen[r] / W * W;
    float *last = rows.scores + r * rows.stride + whole;
    if (whole < rows.seen[r])
      store(last, lane_numbers() < splat(int32_t(rows.seen[r] - whole)) ? load(last) : splat(kBound - 127.0f));
    state.maximum[r] = kBound;
    found.factor[r] = 1;
    found.maximum[r] = kBound;
  }
}

/* The logarithm of a row's sum of exponentials, in natural scores; `empty` of a row that sees no key. The bound of small
 * scores is a whole power of 2: it goes into the sum, where it costs no bits. */
template <class Score> inline float log_of_sum(float maximum, float sum, float empty) {
  if (sum == 0.0f) return empty;
  const bool powers = Powers<Score>::kLog2 == 1.0f;
  if (powers && maximum == kBound) return log(splat(sum * 0x1p32f))[0];
  return maximum * (powers ? kLn2 : 1.0f) + log(splat(sum))[0];
}

/* The weight of a row's sink, if it has one, beside those of scores less `maximum`. */
template <class Score> inline float sink_weight(const float *sink, float maximum) {
  if (!sink) return 0;
  const float high = maximum == -kInfinity ? 0.0f : maximum;
  return exp2(splat((*sink * Powers<Score>::kScale - high) * Powers<Score>::kLog2))[0];
}

/* Weights out of scores, less their row's maximum. */
template <class Score> struct Weights {
  static void maxima(const ScoreRows &rows, const RowStates &state, const RowFactors &found) {
    raise_maxima<Score>(rows, state, found);
  }
  template <int... I> static MYCC_INLINE void make(vf32 *x, vf32 *p, float maximum, lane_list<I...> all) {
    ((x[I] = (x[I] - maximum) * Powers<Score>::kLog2), ...);
    exp2_negative(x, p, all);
  }
};

/* Weights out of scores from -kBound to kBound: at least 2^-64 and at most 1. */
struct BoundedWeights {
  static void maxima(const ScoreRows &rows, const RowStates &state, const RowFactors &found) {
    keep_bound(rows, state, found);
  }
  template <int... I> static MYCC_INLINE void make(vf32 *x, vf32 *p, float, lane_list<I...> all) {
    exp2_within<kBound>(x, p, all);
  }
};

/* A weight out of a score of the row with this maximum. */
template <class Made> struct Weight {
  MYCC_INLINE vf32 operator()(vf32 x, const float *maximum) const {
    vf32 p;
    Made::make(&x, &p, *maximum, lane_list<0>());
    return p;
  }
};

template <class Made, int... I>
MYCC_INLINE void exponentials(float *s, float maximum, vf32 *sums, lane_list<I...> all) {
  vf32 x[] = {load(s + I * W)...}, p[sizeof...(I)];
  Made::make(x, p, maximum, all);
  (store(s + I * W, p[I]), ...);
  ((sums[I] += p[I]), ...);
}

/* s[0..count-1] become weights; s has room for whole vectors, the rest of the last one being what gives the weight zero.
 * Returns what the lanes sum up to. */
template <class Made> inline vf32 exponentials(float *s, int64_t count, float maximum) {
  const int64_t end = round_up(count, W);
  vf32 sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * W <= end; i += 4 * W) exponentials<Made>(s + i, maximum, sums, lane_list<0, 1, 2, 3>());
  for (; i < end; i += W) exponentials<Made>(s + i, maximum, sums, lane_list<0>());
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* The second half: scores become the weights of their keys. */
template <class Made>
inline void weigh(const ScoreRows &rows, const RowStates &state, const RowFactors &found) {
  for (int64_t r = 0; r < rows.count; ++r) {
    const vf32 sums = exponentials<Made>(rows.scores + r * rows.stride, rows.seen[r], found.maximum[r]);
    store(state.sums + r * W, fma(load(state.sums + r * W), found.factor[r], sums));
  }
}

/* The vectors of scores behind s[0..seen-1] become -inf, up to `padded`. */
inline void hide(float *s, int64_t seen, int64_t padded) {
  for (int64_t i = round_up(seen, W); i < padded; i += W) store(s + i, splat(-kInfinity));
}

} // namespace attention_detail
} // namespace mycc
#endif /* MYCC_KERNELS_ATTENTION_SOFTMAX_H */
