/* attention_rows.h: what both ways of attention share: arguments, query rows, the step of the online softmax.
 * Included by attention.h. */
#ifndef MYCC_ATTENTION_ROWS_H
#define MYCC_ATTENTION_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "gemm_block.h"
#include "vec.h"

namespace mycc {

/* Sizes, addresses and strides (in elements; the last dimension is dense) of one attention. */
struct AttentionArgs {
  int64_t batch, heads, kv_heads, queries, keys, head_size, value_size; /* heads % kv_heads == 0: grouped queries */
  const float *q, *k, *v;
  float *out;
  int64_t q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, out_batch, out_head, out_row;
  float scale;
  bool causal; /* query i sees the keys j <= i + causal_offset */
  int64_t causal_offset;
};

/* score(b, h, m, n0, s, count) changes the scaled scores s[0..count-1] of query m of head h for the keys n0, n0 + 1, ..
 * n0 + count - 1: adds a bias, writes -inf where masked. It is not asked for keys that `causal` hides. */
struct NoScore {
  void operator()(int64_t, int64_t, int64_t, int64_t, float *, int64_t) const {}
};

namespace attention_detail {

constexpr float kInfinity = __builtin_inff();
constexpr int64_t kAhead = 8; /* rows fetched ahead: rows that lie apart are no stream for the hardware */

inline void fetch(const float *row, int64_t size) {
  for (int64_t i = 0; i < size; i += 16) __builtin_prefetch(row + i);
}

/* Rows first .. first + count - 1 of the query rows of a (batch, key head). Row r of them all is query r % queries of
 * the (r / queries)-th head of the group. */
struct Rows {
  const AttentionArgs *args;
  int64_t batch, kv_head, first, count;

  int64_t head(int64_t r) const { return kv_head * (args->heads / args->kv_heads) + (first + r) / args->queries; }
  int64_t query(int64_t r) const { return (first + r) % args->queries; }
  const float *q(int64_t r) const {
    return args->q + batch * args->q_batch + head(r) * args->q_head + query(r) * args->q_row;
  }
  float *out(int64_t r) const {
    return args->out + batch * args->out_batch + head(r) * args->out_head + query(r) * args->out_row;
  }
  const float *k(int64_t n) const { return args->k + batch * args->k_batch + kv_head * args->k_head + n * args->k_row; }
  const float *v(int64_t n) const { return args->v + batch * args->v_batch + kv_head * args->v_head + n * args->v_row; }

  /* Row r sees the keys 0 .. visible(r) - 1. */
  int64_t visible(int64_t r) const {
    return args->causal ? max64(0, min64(args->keys, query(r) + args->causal_offset + 1)) : args->keys;
  }
  /* The most keys that one of the rows r .. r + n - 1 sees. */
  int64_t visible(int64_t r, int64_t n) const {
    if (!args->causal) return args->keys;
    int64_t most = 0;
    for (int64_t i = r; i < r + n; ++i) most = max64(most, visible(i));
    return most;
  }
};

/* Running softmax of a row: the maximum so far, and the sum of exp(s - maximum). */
struct RowState {
  float maximum, sum;
};

/* scale * Q of the rows, dense: the rows of a strided Q share few cache sets. */
inline void copy_queries(const Rows &rows, float *q) {
  const int64_t size = rows.args->head_size;
  const float scale = rows.args->scale;
  for (int64_t r = 0; r < rows.count; ++r, q += size) {
    const float *from = rows.q(r);
    fetch(from + kAhead * rows.args->q_row, size);
    int64_t i = 0;
    for (; i + W <= size; i += W) store(q + i, load(from + i) * scale);
    if (i < size) store_part(q + i, load_part(from + i, int(size - i)) * scale, int(size - i));
  }
}

/* exp(x) for x <= 0 or NaN, within 1.01 ulp; zero where the result would be subnormal. 15 to 18 % faster than exp(),
 * which takes any x. Few constants: with the loop around it they have to fit into 16 registers. */
MYCC_INLINE vf32 exp_negative(vf32 x) {
  constexpr float kLowest = -87.33654f;          /* log(2^-126) */
  constexpr float kRound = 12582912.0f + 127.0f; /* 1.5 * 2^23 + bias: adding it leaves n + 127 in the low bits */
  const vf32 shifted = x * 1.44269504f + kRound; /* n = round(x / log(2)) */
  const vf32 n = shifted - kRound;
  const vf32 r = x - n * 0.693359375f - n * -2.12194440e-4f; /* x - n log(2); the first product is exact */
  vf32 p = splat(8.3686765e-3f) + r * 1.3821744e-3f; /* (exp(r) - 1 - r) / r^2, minimax on |r| < 0.3467 */
  p = p * r + 4.1668255e-2f;
  p = p * r + 1.6666521e-1f;
  p = p * r + 4.9999994e-1f;
  p = p * (r * r) + r + 1.0f;
  return x < kLowest ? vf32{} : p * from_bits(bits(shifted) << 23);
}

/* The largest of s[0..count-1]; s has room for whole vectors, whose rest becomes -inf. A NaN may get lost: the sum of
 * the exponentials keeps it. */
inline float row_maximum(float *s, int64_t count) {
  const int64_t whole = count / W * W;
  vf32 best = splat(-kInfinity), other = best;
  int64_t i = 0;
  for (; i + 2 * W <= whole; i += 2 * W) {
    const vf32 x = load(s + i), y = load(s + i + W);
    best = best > x ? best : x;
    other = other > y ? other : y;
  }
  if (i < whole) {
    const vf32 x = load(s + i);
    best = best > x ? best : x;
  }
  if (whole < count) {
    for (int64_t j = count; j < whole + W; ++j) s[j] = -kInfinity;
    const vf32 x = load(s + whole);
    other = other > x ? other : x;
  }
  return reduce_max(best > other ? best : other);
}

/* One step of the online softmax, with the maximum of s[0..count-1] given: s[0..count-1] become exp(s - new maximum),
 * those up to `padded` zero; s has room for whole vectors. Returns the factor by which the sums over earlier keys have
 * to be multiplied. */
inline float softmax_step(float *s, int64_t count, int64_t padded, float high, RowState *state) {
  const int64_t end = round_up(count, W);
  for (int64_t i = end; i < padded; i += W) store(s + i, vf32{});
  if (count == 0) return 1.0f;
  const float maximum = state->maximum > high ? state->maximum : high;
  const float shift = maximum == -kInfinity ? 0.0f : maximum; /* all masked so far: exp(-inf - 0) = 0 */
  vf32 total = {};
  for (int64_t i = 0; i < end; i += W) {
    const vf32 e = exp_negative(load(s + i) - shift);
    store(s + i, e);
    total = total + e;
  }
  float factor = 1.0f;
  if (maximum != state->maximum) {
    factor = state->maximum == -kInfinity ? 0.0f : exp_negative(splat(state->maximum - shift))[0];
  }
  state->sum = state->sum * factor + reduce_add(total);
  state->maximum = maximum;
  return factor;
}

inline void scale_row(float *o, float factor, int64_t size) {
  for (int64_t i = 0; i < size; i += W) store(o + i, load(o + i) * factor);
}

/* out = o / sum; zeros where nothing was summed. */
inline void write_row(const float *o, float sum, float *out, int64_t size) {
  const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
  int64_t i = 0;
  for (; i + W <= size; i += W) store(out + i, load(o + i) * inverse);
  if (i < size) store_part(out + i, load(o + i) * inverse, int(size - i));
}

} // namespace attention_detail
} // namespace mycc
#endif /* MYCC_ATTENTION_ROWS_H */
