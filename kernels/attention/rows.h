/* rows.h: what both ways of attention share: arguments, query rows. Included by attention/attention.h. */
#ifndef MYCC_KERNELS_ATTENTION_ROWS_H
#define MYCC_KERNELS_ATTENTION_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include <type_traits>

#include "machine.h"
#include "mycc/abi.h"
#include "kernels/gemm/block.h"
#include "kernels/vec/vec.h"

namespace mycc {

/* Sizes and strides (in elements; the last dimension is dense) of one attention. */
struct AttentionSizes {
  int64_t batch, heads, kv_heads, queries, keys, head_size, value_size; /* heads % kv_heads == 0: grouped queries */
  int64_t q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, out_batch, out_head, out_row;
  float scale;
  bool causal; /* query i sees the keys j <= i + causal_offset */
  int64_t causal_offset;
  /* Keys from k_first on lie at k_rest, values from v_first on at v_rest: a cache, and what this call adds to it. */
  int64_t k_first = INT64_MAX, v_first = INT64_MAX;
  int64_t k_rest_batch = 0, k_rest_head = 0, k_rest_row = 0, v_rest_batch = 0, v_rest_head = 0, v_rest_row = 0;
  /* Where keys, values lie in blocks: row n of text b is row n % 2^shift of block pages[b * batch + (n >> shift)], and
   * `step` elements lie between blocks. */
  const int64_t *k_pages = nullptr, *v_pages = nullptr;
  int64_t k_pages_batch = 0, k_pages_step = 0, v_pages_batch = 0, v_pages_step = 0;
  int k_pages_shift = 0, v_pages_shift = 0;
  int64_t logsumexp_batch = 0, logsumexp_head = 0, logsumexp_row = 0;
};

/* The same with addresses. Elements of 16 bits become float32 where they are read. */
template <class Element> struct AttentionArgsOf : AttentionSizes {
  const Element *q, *k, *v;
  Element *out;
  const Element *k_rest = nullptr, *v_rest = nullptr;
  float *logsumexp = nullptr; /* of each query row: the logarithm of its sum of exponentials, for the gradient */
  const float *sink = nullptr; /* of each query row: one more score, which takes weight and has no value */
  int64_t sink_batch = 0, sink_head = 0, sink_row = 0;
  float empty = 0; /* logsumexp of a row that sees no key */
};
typedef AttentionArgsOf<float> AttentionArgs;
typedef AttentionArgsOf<half> AttentionArgsF16;
typedef AttentionArgsOf<bfloat> AttentionArgsBf16;

/* score(b, h, m, n0, s, count) changes the scaled scores s[0..count-1] of query m of head h for the keys n0, n0 + 1, ..
 * n0 + count - 1: adds a bias, writes -inf where masked. It is not asked for keys that `causal` hides. */
struct NoScore {
  void operator()(int64_t, int64_t, int64_t, int64_t, float *, int64_t) const {}
};

/* Whether blocks of keys are left out for which score changes zeros to -inf. That it changes any number to -inf then is
 * what `kHides` of a score says. */
template <class Score, class = void> struct HidesKeys : std::false_type {};
template <class Score> struct HidesKeys<Score, std::void_t<decltype(Score::kHides)>> : std::true_type {};

namespace attention_detail {

constexpr float kInfinity = __builtin_inff();

/* Rows first .. first + count - 1 of the query rows of a (batch, key head). Row r of them all is query r % queries of
 * the (r / queries)-th head of the group. */
struct Rows {
  const AttentionSizes *args;
  int64_t batch, kv_head, first, count;

  int64_t head(int64_t r) const { return kv_head * (args->heads / args->kv_heads) + (first + r) / args->queries; }
  int64_t query(int64_t r) const { return (first + r) % args->queries; }
  /* Values n .. n + count - 1, as many of them as lie `stride` apart from v(n) on. */
  int64_t v_run(int64_t n, int64_t count, int64_t *stride) const {
    if (args->v_pages) {
      *stride = args->v_row;
      return min64(count, (int64_t(1) << args->v_pages_shift) - (n & ((int64_t(1) << args->v_pages_shift) - 1)));
    }
    *stride = n < args->v_first ? args->v_row : args->v_rest_row;
    return n < args->v_first ? min64(count, args->v_first - n) : count;
  }

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

/* The same with where the rows lie. */
template <class Element> struct RowsOf : Rows {
  const AttentionArgsOf<Element> *at;

  RowsOf(const AttentionArgsOf<Element> &from, int64_t b, int64_t h, int64_t r, int64_t n)
      : Rows{&from, b, h, r, n}, at(&from) {}

  const Element *q(int64_t r) const { return at->q + batch * at->q_batch + head(r) * at->q_head + query(r) * at->q_row; }
  Element *out(int64_t r) const {
    return at->out + batch * at->out_batch + head(r) * at->out_head + query(r) * at->out_row;
  }
  /* NULL: not wanted. */
  float *logsumexp(int64_t r) const {
    if (!at->logsumexp) return nullptr;
    return at->logsumexp + batch * at->logsumexp_batch + head(r) * at->logsumexp_head + query(r) * at->logsumexp_row;
  }
  /* NULL: there is none. */
  const float *sink(int64_t r) const {
    if (!at->sink) return nullptr;
    return at->sink + batch * at->sink_batch + head(r) * at->sink_head + query(r) * at->sink_row;
  }
  const Element *k(int64_t n) const {
    if (at->k_pages) {
      const int64_t block = at->k_pages[batch * at->k_pages_batch + (n >> at->k_pages_shift)];
      const int64_t row = n & ((int64_t(1) << at->k_pages_shift) - 1);
      return at->k + block * at->k_pages_step + kv_head * at->k_head + row * at->k_row;
    }
    const int64_t i = n - at->k_first;
    if (i < 0) return at->k + batch * at->k_batch + kv_head * at->k_head + n * at->k_row;
    return at->k_rest + batch * at->k_rest_batch + kv_head * at->k_rest_head + i * at->k_rest_row;
  }
  const Element *v(int64_t n) const {
    if (at->v_pages) {
      const int64_t block = at->v_pages[batch * at->v_pages_batch + (n >> at->v_pages_shift)];
      const int64_t row = n & ((int64_t(1) << at->v_pages_shift) - 1);
      return at->v + block * at->v_pages_step + kv_head * at->v_head + row * at->v_row;
    }
    const int64_t i = n - at->v_first;
    if (i < 0) return at->v + batch * at->v_batch + kv_head * at->v_head + n * at->v_row;
    return at->v_rest + batch * at->v_rest_batch + kv_head * at->v_rest_head + i * at->v_rest_row;
  }
};

/* The part of a task at hand: rows r0 .. r0 + count - 1 of its rows, keys n0 .. n0 + keys - 1. */
struct Block {
  int64_t r0, count, n0, keys;
};

/* Keys of a block that one of the rows r .. r + n - 1 of the block sees. */
inline int64_t seen_keys(const Rows &rows, const Block &block, int64_t r, int64_t n) {
  return max64(0, min64(block.keys, rows.visible(block.r0 + r, n) - block.n0));
}

/* Whether the score hides all keys of a block from all of its rows: zeros become -inf. */
template <class Score>
bool all_hidden(const Rows &rows, const Block &block, const Score &score, float *s) {
  for (int64_t i = 0; i < block.count; ++i) {
    const int64_t r = block.r0 + i, seen = seen_keys(rows, block, i, 1), whole = round_up(seen, W);
    for (int64_t j = 0; j < whole; j += W) store(s + j, splat(-kInfinity));
    __builtin_memset(s, 0, size_t(seen) * sizeof(float));
    score(rows.batch, rows.head(r), rows.query(r), block.n0, s, seen);
    vf32 most = splat(-kInfinity);
    for (int64_t j = 0; j < whole; j += W) most = maximum(most, load(s + j));
    if (!(reduce_max(most) == -kInfinity)) return false;
  }
  return true;
}

/* scale * Q of the rows, dense: the rows of a strided Q share few cache sets. */
template <class Element> inline void copy_queries(const RowsOf<Element> &rows, float scale, float *q) {
  const int64_t size = rows.args->head_size;
  for (int64_t r = 0; r < rows.count; ++r, q += size) {
    const Element *from = rows.q(r);
    prefetch_row_l1(from + kRowPrefetch * rows.args->q_row, size);
    int64_t i = 0;
    for (; i + W <= size; i += W) store(q + i, load(from + i) * scale);
    if (i < size) store_tail(q + i, load_tail(from + i, int(size - i)) * scale, int(size - i));
  }
}

inline void scale_row(float *o, float factor, int64_t size) {
  for (int64_t i = 0; i < size; i += W) store(o + i, load(o + i) * factor);
}

/* out = o / sum; zeros where nothing was summed. */
template <class Element> inline void write_row(const float *o, float sum, Element *out, int64_t size) {
  const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
  int64_t i = 0;
  for (; i + W <= size; i += W) store(out + i, load(o + i) * inverse);
  if (i < size) store_tail(out + i, load(o + i) * inverse, int(size - i));
}

} // namespace attention_detail
} // namespace mycc
#endif /* MYCC_KERNELS_ATTENTION_ROWS_H */
