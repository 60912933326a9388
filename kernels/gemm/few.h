/* Products of a few rows with an unpacked B: packing would cost more than multiplying.
 *
 * Rows of B contiguous (b_n == 1): a block of columns of up to four rows is summed in registers, one row of B after the
 * other: all of its lines that are needed are read together.
 * Columns of B contiguous (b_k == 1): dot products, several columns at a time.
 * As everywhere, K is walked in depth blocks whose sums start from zero.
 */
#ifndef MYCC_KERNELS_GEMM_FEW_H
#define MYCC_KERNELS_GEMM_FEW_H

#include <utility>

#include "machine.h"
#include "kernels/gemm/block.h"
#include "kernels/vec/vec.h"

namespace mycc {

/* Vectors of columns that so many rows sum at a time: the sums, elements of the rows and of B fit into the registers. */
constexpr int few_vectors(int rows) { return (int)kFewVectors[rows - 1]; }

/* sums[r][0 .. V W) += a[r][k] * b[k * b_k + ..]: depth rows of B. I: sums, V of a row; J: 0 .. V - 1. */
template <int... I, int... J>
inline void few_tile(const float *a, int64_t a_row, const float *b, int64_t b_k, int64_t depth, float *sums,
                     std::integer_sequence<int, I...>, std::integer_sequence<int, J...>) {
  constexpr int V = sizeof...(J);
  vf32 c[] = {((void)I, vf32{})...};
  for (int64_t k = 0; k < depth; ++k, b += b_k) {
    const vf32 y[] = {load(b + J * W)...};
    ((c[I] = fma(splat(a[I / V * a_row + k]), y[I % V], c[I])), ...);
  }
  float *to[] = {(sums + I / V * kFewColumns + I % V * W)...};
  (store(to[I], load(to[I]) + c[I]), ...);
}

/* The same for the last `n` < W columns of a row. */
static inline void few_last_columns(const float *a, const float *b, int64_t b_k, int64_t depth, int n, float *sums) {
  vf32 c = {};
  for (int64_t k = 0; k < depth; ++k) c = fma(a[k], load_tail(b + k * b_k, n), c);
  store(sums, load(sums) + c);
}

/* The same of R rows and all columns, V vectors at a time and then half of them. Returns where it ends. */
template <int R, int V>
inline int64_t few_tiles(const float *a, int64_t a_row, const float *b, int64_t b_k, int64_t depth, int64_t columns,
                         int64_t first, float *sums) {
  int64_t j = first;
  for (; j + V * W <= columns; j += V * W)
    few_tile(a, a_row, b + j, b_k, depth, sums + j, std::make_integer_sequence<int, R * V>(),
             std::make_integer_sequence<int, V>());
  if constexpr (V > 1) return few_tiles<R, V / 2>(a, a_row, b, b_k, depth, columns, j, sums);
  return j;
}

template <int R>
inline void few_rows(const float *a, int64_t a_row, const float *b, int64_t b_k, int64_t depth, int64_t columns,
                     float *sums) {
  const int64_t j = few_tiles<R, few_vectors(R)>(a, a_row, b, b_k, depth, columns, 0, sums);
  for (int64_t r = 0; r < R && j < columns; ++r)
    few_last_columns(a + r * a_row, b + j, b_k, depth, (int)(columns - j), sums + r * kFewColumns + j);
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
    const vf32 x = load_tail(a + k, n);
    c0 = fma(x, load_tail(b + k, n), c0), c1 = fma(x, load_tail(b + b_n + k, n), c1);
    c2 = fma(x, load_tail(b + 2 * b_n + k, n), c2), c3 = fma(x, load_tail(b + 3 * b_n + k, n), c3);
  }
  float found[4];
  reduce_add_4(c0, c1, c2, c3, found);
  for (int j = 0; j < 4; ++j) sums[j] += found[j];
}

static inline void few_dots_1(const float *a, const float *b, int64_t depth, float *sums) {
  vf32 c = {};
  int64_t k = 0;
  for (; k + W <= depth; k += W) c = fma(load(a + k), load(b + k), c);
  if (k < depth) c = fma(load_tail(a + k, (int)(depth - k)), load_tail(b + k, (int)(depth - k)), c);
  sums[0] += reduce_add(c);
}

/* Sums of `columns` <= kFewColumns columns of `rows` <= kFewRows rows, kFewColumns apart. */
inline void few_columns(const DepthCut &cut, const float *a, int64_t a_row, int64_t rows, const float *b, int64_t b_k,
                        int64_t b_n, int64_t columns, float *sums) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < columns; j += W) store(sums + r * kFewColumns + j, vf32{});
  for (int64_t i = 0; i < cut.count; ++i) {
    const DepthPart block = cut.block(i);
    const float *y = b + block.first * b_k;
    for (int64_t r = 0; r < rows; r += kFewTall) {
      const float *x = a + r * a_row + block.first;
      float *to = sums + r * kFewColumns;
      if (b_n == 1) {
        const int64_t left = min64(rows - r, kFewTall);
        if (left == 1) few_rows<1>(x, a_row, y, b_k, block.depth, columns, to);
        if (left == 2) few_rows<2>(x, a_row, y, b_k, block.depth, columns, to);
        if (left == 3) few_rows<3>(x, a_row, y, b_k, block.depth, columns, to);
        if (left == 4) few_rows<4>(x, a_row, y, b_k, block.depth, columns, to);
        continue;
      }
      for (int64_t last = min64(rows, r + kFewTall), m = r; m < last; ++m, x += a_row, to += kFewColumns) {
        int64_t j = 0;
        for (; j + 4 <= columns; j += 4) few_dots_4(x, y + j * b_n, b_n, block.depth, to + j);
        for (; j < columns; ++j) few_dots_1(x, y + j * b_n, block.depth, to + j);
      }
    }
  }
}

} // namespace mycc
#endif /* MYCC_KERNELS_GEMM_FEW_H */
