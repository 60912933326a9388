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

/* Running softmax of rows: the maximum so far, and the sum of exp(score - maximum). */
struct RowStates {
  float *maximum, *sum;

  void start(int64_t count) const {
    for (int64_t r = 0; r < count + W; ++r) maximum[r] = -kInfinity, sum[r] = 0.0f;
  }
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

/* exp(x) for x <= 0 or NaN; zero where the result would be subnormal. The relative error is at most 2e-7 + 1e-7 |x|:
 * what is far below the maximum of its row counts for as little as its error. Half the time of exp(), which takes any x.
 * Few constants: with the loop around it they have to fit into 16 registers. */
MYCC_INLINE vf32 exp_negative(vf32 x) {
  const vf32 lowest = splat(-88.03f);            /* below -127 log(2) */
  constexpr float kLog2E = 1.44269504f;
  constexpr float kRound = 12582912.0f + 127.0f; /* 1.5 * 2^23 + bias: adding it leaves n + 127 in the low bits */
  x = lowest > x ? lowest : x;
  const vf32 shifted = x * kLog2E + kRound; /* n = round(x / log(2)) */
  const vf32 r = x * kLog2E - (shifted - kRound);
  vf32 p = splat(9.671292e-3f) + r * 1.3269534e-3f; /* (2^r - 1) / r, minimax on |r| <= 0.5 */
  p = p * r + 5.550711e-2f;
  p = p * r + 2.4022247e-1f;
  p = p * r + 6.93147e-1f;
  p = p * r + 1.0f;
  return p * from_bits(bits(shifted) << 23); /* 2^-127 is zero here */
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

/* s[0..count-1] become exp(s - high), those up to `padded` zero; s has room for whole vectors, the rest of the
 * last one being -inf. Returns their sum. */
inline float exponentials(float *s, int64_t count, int64_t padded, float high) {
  const int64_t end = round_up(count, W);
  vf32 sum = {}, other = {};
  int64_t i = 0;
  for (; i + W < end; i += 2 * W) {
    const vf32 a = exp_negative(load(s + i) - high), b = exp_negative(load(s + i + W) - high);
    store(s + i, a), store(s + i + W, b);
    sum = sum + a, other = other + b;
  }
  if (i < end) {
    const vf32 a = exp_negative(load(s + i) - high);
    store(s + i, a);
    sum = sum + a;
  }
  for (i = end; i < padded; i += W) store(s + i, vf32{});
  return reduce_add(sum + other);
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
 * so have the states. */
inline void softmax_step(const ScoreRows &rows, int64_t padded, const RowStates &state, float *factor) {
  for (int64_t r = 0; r < rows.count; ++r)
    factor[r] = rows.seen[r] > 0 ? row_maximum(rows.scores + r * rows.stride, rows.seen[r]) : -kInfinity;
  for (int64_t r = rows.count; r < round_up(rows.count, W); ++r) factor[r] = -kInfinity; /* changes nothing */
  for (int64_t r = 0; r < rows.count; r += W) {
    const vf32 found = load(factor + r), before = load(state.maximum + r);
    const vf32 maximum = found > before ? found : before;
    const vf32 high = maximum == -kInfinity ? vf32{} : maximum; /* all masked so far: exp(-inf - 0) = 0 */
    const vf32 scale = exp_negative(before - high);
    store(state.maximum + r, maximum);
    store(state.sum + r, load(state.sum + r) * scale);
    store(factor + r, scale);
  }
  for (int64_t r = 0; r < rows.count; ++r) {
    const float high = state.maximum[r] == -kInfinity ? 0.0f : state.maximum[r];
    state.sum[r] += exponentials(rows.scores + r * rows.stride, rows.seen[r], padded, high);
  }
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
