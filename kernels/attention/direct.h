/* direct.h: attention of a few query rows (decoding), at the speed of memory. Included by attention/attention.h. */
#ifndef MYCC_KERNELS_ATTENTION_DIRECT_H
#define MYCC_KERNELS_ATTENTION_DIRECT_H

#include <stddef.h>
#include <stdint.h>

#include "machine.h"
#include "kernels/attention/rows.h"
#include "kernels/attention/softmax.h"
#include "kernels/gemm/block.h"
#include "kernels/vec/vec.h"

namespace mycc {
namespace attention_detail {

/* s[0..3] = q . k0 .. q . k3. */
template <class Element>
inline void dot_4(const float *q, const Element *const k[kScoreKeys], int64_t size, float *s) {
  vf32 s0 = splat(0.0f), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + W <= size; i += W) {
    const vf32 x = load(q + i);
    s0 = fma(x, load(k[0] + i), s0);
    s1 = fma(x, load(k[1] + i), s1);
    s2 = fma(x, load(k[2] + i), s2);
    s3 = fma(x, load(k[3] + i), s3);
  }
  if (i < size) {
    const int rest = int(size - i);
    const vf32 x = load_tail(q + i, rest);
    s0 = fma(x, load_tail(k[0] + i, rest), s0);
    s1 = fma(x, load_tail(k[1] + i, rest), s1);
    s2 = fma(x, load_tail(k[2] + i, rest), s2);
    s3 = fma(x, load_tail(k[3] + i, rest), s3);
  }
  reduce_add_4(s0, s1, s2, s3, s);
}

/* o[0..size-1] += sum over j < count of p[j] v_j; o has room for whole vectors. */
template <class Element>
inline void add_values(const float *p, const Element *v, int64_t stride, int64_t count, int64_t size, float *o) {
  int64_t i = 0;
  for (; i + 4 * W <= size; i += 4 * W) {
    vf32 a = load(o + i), b = load(o + i + W), c = load(o + i + 2 * W), d = load(o + i + 3 * W);
    for (int64_t j = 0; j < count; ++j) {
      const Element *row = v + j * stride + i;
      a = fma(p[j], load(row), a);
      b = fma(p[j], load(row + W), b);
      c = fma(p[j], load(row + 2 * W), c);
      d = fma(p[j], load(row + 3 * W), d);
    }
    store(o + i, a);
    store(o + i + W, b);
    store(o + i + 2 * W, c);
    store(o + i + 3 * W, d);
  }
  for (; i + W <= size; i += W) {
    vf32 a = load(o + i);
    for (int64_t j = 0; j < count; ++j) a = fma(p[j], load(v + j * stride + i), a);
    store(o + i, a);
  }
  if (i < size) {
    vf32 a = load(o + i);
    for (int64_t j = 0; j < count; ++j) a = fma(p[j], load_tail(v + j * stride + i, int(size - i)), a);
    store(o + i, a);
  }
}

/* A block of keys. Keys, their values, the next block's keys and at the end those of the next head are fetched some KB
 * before their turn, in this order, so that memory does not rest in between. */
template <class Element> struct KeyBlock {
  struct Stream {
    const Element *first;
    int64_t step, size; /* elements from row to row, of a row */

    void prefetch(int64_t row) const { prefetch_row_l1(first + row * step, size); }
    int64_t prefetch() const { return max64(kDirectPrefetch, kStreamPrefetch / max64(size * int64_t(sizeof(Element)), 1)); } /* rows */
  };
  const RowsOf<Element> &rows;
  int64_t end, key_prefetch_rows, value_prefetch_rows; /* of all keys; rows that are fetched before their turn */
  int64_t first = 0, count = 0;          /* keys of the block */
  Stream keys, values, behind;           /* where a cache and what is new are one block, of the cache alone */

  explicit KeyBlock(const RowsOf<Element> &of) : rows(of), end(of.visible(0, of.count)) {
    key_prefetch_rows = keys_at(0).prefetch();
    value_prefetch_rows = values_at(0).prefetch();
  }
  Stream keys_at(int64_t n) const {
    const AttentionSizes &args = *rows.args;
    return {rows.k(n), n < args.k_first ? args.k_row : args.k_rest_row, args.head_size};
  }
  Stream values_at(int64_t n) const {
    const AttentionSizes &args = *rows.args;
    return {rows.v(n), n < args.v_first ? args.v_row : args.v_rest_row, args.value_size};
  }
  Stream next_head() const {
    const AttentionArgsOf<Element> &at = *rows.at;
    if (at.k_pages) return {rows.k(0) + at.k_head, at.k_row, at.head_size};
    return {at.k + rows.batch * at.k_batch + (rows.kv_head + 1) * at.k_head, at.k_row, at.head_size};
  }
  /* Whether there is a block behind it, which it becomes. */
  bool next() {
    first += count;
    count = end - first <= kDirectMost ? end - first : kDirectBlock;
    if (count <= 0) return false;
    keys = keys_at(first), values = values_at(first);
    behind = first + count < end ? keys_at(first + count) : next_head();
    return true;
  }
  const Element *key(int64_t j) const { return rows.k(first + min64(j, count - 1)); }
  void prefetch_key(int64_t j) const {
    if (!rows.at->k_pages) return keys.prefetch(j);
    prefetch_row_l1(rows.k(min64(first + j, end - 1)), keys.size);
  }
  void prefetch_value(int64_t j) const {
    if (!rows.at->v_pages) return values.prefetch(j);
    prefetch_row_l1(rows.v(min64(first + j, end - 1)), values.size);
  }
  void prefetch_behind(int64_t j) const {
    if (!rows.at->k_pages || first + count >= end) return behind.prefetch(j);
    prefetch_row_l1(rows.k(min64(first + count + j, end - 1)), keys.size);
  }
  void prefetch_after_key(int64_t j) const {
    const int64_t coming = j + key_prefetch_rows;
    coming < count ? prefetch_key(coming) : prefetch_value(coming - count);
  }
  void prefetch_after_value(int64_t j) const {
    const int64_t coming = j + value_prefetch_rows;
    coming < count ? prefetch_value(coming) : prefetch_behind(coming - count);
  }
};

struct DirectScratch {
  float *q, *scores;
  float *sums, *o; /* P V of a block of keys, and of all before: long sums stay exact when they are summed in parts */

  size_t place(const AttentionSizes &args, void *memory) {
    Carver carver = {(uint8_t *)memory};
    q = carver.take<float>(size_t(kDirectRows * args.head_size) * sizeof(float));
    sums = carver.take<float>(size_t(kDirectRows * round_up(args.value_size, W)) * sizeof(float));
    o = carver.take<float>(size_t(kDirectRows * round_up(args.value_size, W)) * sizeof(float));
    scores = carver.take<float>(size_t(kDirectRows * kDirectMost) * sizeof(float));
    return size_t(carver.next - (uint8_t *)memory);
  }
};

/* A few rows against all keys that they see; every key and value comes from memory once for all rows. */
template <class Element, class Score>
void attend_direct(const RowsOf<Element> &rows, const Score &score, const DirectScratch &scratch) {
  const AttentionSizes &args = *rows.args;
  const int64_t values = round_up(args.value_size, W);
  int64_t seen[kDirectRows];
  float factor[kDirectRows + W], high[kDirectRows + W], maximum[kDirectRows + W];
  alignas(kLineBytes) float lane_sums[kDirectRows * W];
  const RowStates state = {maximum, lane_sums};
  copy_queries(rows, args.scale * Powers<Score>::kScale, scratch.q);
  __builtin_memset(scratch.o, 0, size_t(rows.count * values) * sizeof(float));
  state.start(rows.count);
  for (KeyBlock<Element> block(rows); block.next();) {
    const int64_t n0 = block.first, keys = block.count;
    if (HidesKeys<Score>::value && all_hidden(rows, {0, rows.count, n0, keys}, score, scratch.scores)) continue;
    for (int64_t j = 0; j < keys; j += kScoreKeys) {
      const Element *k[kScoreKeys];
      for (int64_t i = 0; i < kScoreKeys; ++i) {
        k[i] = block.key(j + i);
        block.prefetch_after_key(j + i);
      }
      for (int64_t r = 0; r < rows.count; ++r) {
        dot_4(scratch.q + r * args.head_size, k, args.head_size, scratch.scores + r * kDirectMost + j);
      }
    }
    for (int64_t r = 0; r < rows.count; ++r) {
      seen[r] = max64(0, min64(keys, rows.visible(r) - n0));
      if (seen[r] > 0)
        score(rows.batch, rows.head(r), rows.query(r), n0, scratch.scores + r * kDirectMost, seen[r]);
    }
    const ScoreRows scores = {scratch.scores, kDirectMost, rows.count, seen};
    raise_maxima<Score>(scores, state, {high, factor});
    weigh<Weights<Score>>(scores, state, {high, factor});
    __builtin_memset(scratch.sums, 0, size_t(rows.count * values) * sizeof(float));
    for (int64_t j = 0, step; j < keys; j += step) {
      int64_t stride;
      step = rows.v_run(n0 + j, min64(kValueKeys, keys - j), &stride);
      for (int64_t i = 0; i < step; ++i) block.prefetch_after_value(j + i);
      for (int64_t r = 0; r < rows.count; ++r) {
        const float *p = scratch.scores + r * kDirectMost + j;
        add_values(p, rows.v(n0 + j), stride, min64(step, seen[r] - j), args.value_size, scratch.sums + r * values);
      }
    }
    for (int64_t r = 0; r < rows.count; ++r) {
      float *o = scratch.o + r * values;
      const float *sums = scratch.sums + r * values;
      for (int64_t i = 0; i < values; i += W) store(o + i, fma(load(o + i), factor[r], load(sums + i)));
    }
  }
  for (int64_t r = 0; r < rows.count; ++r) {
    const float sum = state.sum(r) + sink_weight<Score>(rows.sink(r), state.maximum[r]);
    write_row(scratch.o + r * values, sum, rows.out(r), args.value_size);
  }
}

} // namespace attention_detail
} // namespace mycc
#endif /* MYCC_KERNELS_ATTENTION_DIRECT_H */
