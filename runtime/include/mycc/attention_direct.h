/* attention_direct.h: attention of a few query rows (decoding), at the speed of memory. Included by attention.h. */
#ifndef MYCC_ATTENTION_DIRECT_H
#define MYCC_ATTENTION_DIRECT_H

#include <stddef.h>
#include <stdint.h>

#include "attention_rows.h"
#include "attention_softmax.h"
#include "gemm_block.h"
#include "vec.h"

namespace mycc {
namespace attention_detail {

constexpr int64_t kDirectRows = 8;    /* most rows of a task; up to here packing does not pay */
constexpr int64_t kDirectBlock = 128; /* keys of a block */
constexpr int64_t kScoreKeys = 4;     /* keys whose dot products with a row are formed together */
constexpr int64_t kValueKeys = 8;     /* keys whose values are added to a row together */

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
    const vf32 x = load_part(q + i, rest);
    s0 = fma(x, load_part(k[0] + i, rest), s0);
    s1 = fma(x, load_part(k[1] + i, rest), s1);
    s2 = fma(x, load_part(k[2] + i, rest), s2);
    s3 = fma(x, load_part(k[3] + i, rest), s3);
  }
  s[0] = reduce_add(s0);
  s[1] = reduce_add(s1);
  s[2] = reduce_add(s2);
  s[3] = reduce_add(s3);
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
    for (int64_t j = 0; j < count; ++j) a = fma(p[j], load_part(v + j * stride + i, int(size - i)), a);
    store(o + i, a);
  }
}

struct DirectScratch {
  float *q, *scores;
  float *sums, *o; /* P V of a block of keys, and of all before: long sums stay exact when they are summed in parts */

  size_t place(const AttentionSizes &args, void *memory) {
    Carver carver = {(uint8_t *)memory};
    q = carver.take<float>(size_t(kDirectRows * args.head_size) * sizeof(float));
    sums = carver.take<float>(size_t(kDirectRows * round_up(args.value_size, W)) * sizeof(float));
    o = carver.take<float>(size_t(kDirectRows * round_up(args.value_size, W)) * sizeof(float));
    scores = carver.take<float>(size_t(kDirectRows * kDirectBlock) * sizeof(float));
    return size_t(carver.next - (uint8_t *)memory);
  }
};

/* A few rows against all keys that they see; every key and value comes from memory once for all rows. */
template <class Element, class Score>
void attend_direct(const RowsOf<Element> &rows, const Score &score, const DirectScratch &scratch) {
  const AttentionSizes &args = *rows.args;
  const int64_t values = round_up(args.value_size, W), end = rows.visible(0, rows.count);
  int64_t seen[kDirectRows];
  float factor[kDirectRows + W], high[kDirectRows + W], maximum[kDirectRows + W];
  alignas(64) float lane_sums[kDirectRows * W];
  const RowStates state = {maximum, lane_sums};
  copy_queries(rows, args.scale * Powers<Score>::kScale, scratch.q);
  __builtin_memset(scratch.o, 0, size_t(rows.count * values) * sizeof(float));
  state.start(rows.count);
  for (int64_t n0 = 0; n0 < end; n0 += kDirectBlock) {
    const int64_t keys = min64(kDirectBlock, end - n0);
    for (int64_t j = 0; j < keys; j += kScoreKeys) {
      const Element *k[kScoreKeys];
      for (int64_t i = 0; i < kScoreKeys; ++i) {
        k[i] = rows.k(n0 + min64(j + i, keys - 1));
        fetch(k[i] + kAhead * args.k_row, args.head_size);
      }
      for (int64_t r = 0; r < rows.count; ++r) {
        dot_4(scratch.q + r * args.head_size, k, args.head_size, scratch.scores + r * kDirectBlock + j);
      }
    }
    for (int64_t r = 0; r < rows.count; ++r) {
      seen[r] = max64(0, min64(keys, rows.visible(r) - n0));
      if (seen[r] > 0)
        score(rows.batch, rows.head(r), rows.query(r), n0, scratch.scores + r * kDirectBlock, seen[r]);
    }
    const ScoreRows scores = {scratch.scores, kDirectBlock, rows.count, seen};
    raise_maxima<Score>(scores, state, {high, factor});
    weigh<Weights<Score>>(scores, state, {high, factor});
    __builtin_memset(scratch.sums, 0, size_t(rows.count * values) * sizeof(float));
    for (int64_t j = 0, step; j < keys; j += step) {
      int64_t stride;
      step = rows.v_run(n0 + j, min64(kValueKeys, keys - j), &stride);
      for (int64_t i = 0; i < step; ++i) fetch(rows.v(n0 + j + kAhead + i), args.value_size);
      for (int64_t r = 0; r < rows.count; ++r) {
        const float *p = scratch.scores + r * kDirectBlock + j;
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
    write_row(scratch.o + r * values, state.sum(r), rows.out(r), args.value_size);
  }
}

} // namespace attention_detail
} // namespace mycc
#endif /* MYCC_ATTENTION_DIRECT_H */
