/* Products of a few rows with an unpacked B: packing would cost more than multiplying.
 *
 * Rows of B contiguous (b_n == 1): a block of columns is summed in registers, one row of B after the other.
 * Columns of B contiguous (b_k == 1): dot products, several columns at a time.
 * As everywhere, K is walked in depth blocks whose sums start from zero.
 */
#ifndef MYCC_GEMM_FEW_H
#define MYCC_GEMM_FEW_H

#include "gemm_block.h"
#include "vec.h"

namespace mycc {

constexpr int64_t kFewRows = 3;              /* rows up to which B is not packed */
constexpr int64_t kFewColumns = 128;         /* columns that are finished at a time */
constexpr int64_t kFewVectors = 8;           /* vectors of columns that are summed at a time */

/* sums[0 .. 8 W) += a[k] * b[k * b_k + ..]: depth rows of B. */
static inline void few_columns_8(const float *a, const float *b, int64_t b_k, int64_t depth, float *sums) {
  vf32 c0 = {}, c1 = {}, c2 = {}, c3 = {}, c4 = {}, c5 = {}, c6 = {}, c7 = {};
  for (int64_t k = 0; k < depth; ++k, b += b_k) {
    const vf32 x = splat(a[k]);
    c0 = fma(x, load(b), c0), c1 = fma(x, load(b + W), c1);
    c2 = fma(x, load(b + 2 * W), c2), c3 = fma(x, load(b + 3 * W), c3);
    c4 = fma(x, load(b + 4 * W), c4), c5 = fma(x, load(b + 5 * W), c5);
    c6 = fma(x, load(b + 6 * W), c6), c7 = fma(x, load(b + 7 * W), c7);
  }
  store(sums, load(sums) + c0), store(sums + W, load(sums + W) + c1);
  store(sums + 2 * W, load(sums + 2 * W) + c2), store(sums + 3 * W, load(sums + 3 * W) + c3);
  store(sums + 4 * W, load(sums + 4 * W) + c4), store(sums + 5 * W, load(sums + 5 * W) + c5);
  store(sums + 6 * W, load(sums + 6 * W) + c6), store(sums + 7 * W, load(sums + 7 * W) + c7);
}

/* The same for `n` <= W columns. */
static inline void few_columns_1(const float *a, const float *b, int64_t b_k, int64_t depth, int n, float *sums) {
  vf32 c = {};
  if (n == W)
    for (int64_t k = 0; k < depth; ++k) c = fma(a[k], load(b + k * b_k), c);
  else
    for (int64_t k = 0; k < depth; ++k) c = fma(a[k], load_part(b + k * b_k, n), c);
  store(sums, load(sums) + c);
}

/* sums[j] += dot(a, b + j * b_n) for 4 columns. */
static inline void few_dots_4(const float *a, const float *b, int64_t b_n, int64_t depth, float *sums) {
  vf32 c0 = {}, c1 = {}, c2 = {}, c3 = {};
  int64_t k = 0;
  for (; k + W <= depth; k += W) {
    const vf32 x = load(a + k);
    c0 = fma(x, load(b + k), c0), c1 = fma(x, load(b + b_n + k), c1);
    c2 = fma(x, load(b + 2 * b_n + k), c2), c3 = fma(x, load(b + 3 * b_n + k), c3);
  }
  if (k < depth) {
    const int n = (int)(depth - k);
    const vf32 x = load_part(a + k, n);
    c0 = fma(x, load_part(b + k, n), c0), c1 = fma(x, load_part(b + b_n + k, n), c1);
    c2 = fma(x, load_part(b + 2 * b_n + k, n), c2), c3 = fma(x, load_part(b + 3 * b_n + k, n), c3);
  }
  sums[0] += reduce_add(c0), sums[1] += reduce_add(c1), sums[2] += reduce_add(c2), sums[3] += reduce_add(c3);
}

static inline void few_dots_1(const float *a, const float *b, int64_t depth, float *sums) {
  vf32 c = {};
  int64_t k = 0;
  for (; k + W <= depth; k += W) c = fma(load(a + k), load(b + k), c);
  if (k < depth) c = fma(load_part(a + k, (int)(depth - k)), load_part(b + k, (int)(depth - k)), c);
  sums[0] += reduce_add(c);
}

/* Sums of `columns` <= kFewColumns columns of one row; `sums` has room for columns rounded up to W. */
inline void few_columns(const DepthCut &cut, const float *a, const float *b, int64_t b_k, int64_t b_n, int64_t columns,
                        float *sums) {
  for (int64_t j = 0; j < columns; j += W) store(sums + j, vf32{});
  for (int64_t i = 0; i < cut.count; ++i) {
    const DepthPart block = cut.block(i);
    const float *x = a + block.first, *y = b + block.first * b_k;
    int64_t j = 0;
    if (b_n == 1) {
      for (; j + kFewVectors * W <= columns; j += kFewVectors * W) few_columns_8(x, y + j, b_k, block.depth, sums + j);
      for (; j < columns; j += W) few_columns_1(x, y + j, b_k, block.depth, (int)min64(W, columns - j), sums + j);
    } else {
      for (; j + 4 <= columns; j += 4) few_dots_4(x, y + j * b_n, b_n, block.depth, sums + j);
      for (; j < columns; ++j) few_dots_1(x, y + j * b_n, block.depth, sums + j);
    }
  }
}

} // namespace mycc
#endif /* MYCC_GEMM_FEW_H */
