/* transpose.h: a block of a matrix turned in registers. Included by kernels that read a tensor across their lanes.
 *
 * A square of as many rows as a vector has lanes is loaded, zipped log2(lanes) times and stored:
 *
 *     a0 a1 a2 a3      a0 c0 a1 c1      a0 b0 c0 d0
 *     b0 b1 b2 b3  ->  a2 c2 a3 c3  ->  a1 b1 c1 d1
 *     c0 c1 c2 c3      b0 d0 b1 d1      a2 b2 c2 d2
 *     d0 d1 d2 d3      b2 d2 b3 d3      a3 b3 c3 d3
 */
#ifndef MYCC_TRANSPOSE_H
#define MYCC_TRANSPOSE_H

#include "vec.h"

namespace mycc {
namespace turning {

/* Lanes of a square: a register of 4-byte and 8-byte elements, as many of the narrow ones, at least 8 bytes of them. */
template <int SIZE> constexpr int lanes() { return SIZE == 8 ? W / 2 : SIZE * W < 8 ? 8 / SIZE : W; }

/* to[c][r] = from[r][c] for N rows and columns. */
template <class U, int N> MYCC_INLINE void square(U *to, int64_t to_row, const U *from, int64_t from_row) {
  typedef U V __attribute__((vector_size(sizeof(U) * N)));
  V a[N], b[N];
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) __builtin_memcpy(&a[i], from + i * from_row, sizeof(V));
#pragma GCC unroll 4
  for (int round = 1; round < N; round *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < N / 2; ++i) {
      b[2 * i] = weave::zip_low(a[i], a[i + N / 2]);
      b[2 * i + 1] = weave::zip_high(a[i], a[i + N / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) a[i] = b[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) __builtin_memcpy(to + i * to_row, &a[i], sizeof(V));
}

template <class U> inline void block(U *to, int64_t to_row, const U *from, int64_t from_row, int64_t rows, int64_t columns) {
  constexpr int N = lanes<sizeof(U)>();
  int64_t r = 0;
  for (; r + N <= rows; r += N) {
    int64_t c = 0;
    for (; c + N <= columns; c += N) square<U, N>(to + c * to_row + r, to_row, from + r * from_row + c, from_row);
    for (; c < columns; ++c)
      for (int i = 0; i < N; ++i) to[c * to_row + r + i] = from[(r + i) * from_row + c];
  }
  for (; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[c * to_row + r] = from[r * from_row + c];
}

} /* namespace turning */

/* to[c * to_row + r] = from[r * from_row + c] for r < rows, c < columns; steps in elements. */
template <class T>
inline void turn_block(T *to, int64_t to_row, const T *from, int64_t from_row, int64_t rows, int64_t columns) {
  typedef typename weave::unit<sizeof(T)>::type U;
  turning::block((U *)(void *)to, to_row, (const U *)(const void *)from, from_row, rows, columns);
}

} /* namespace mycc */
#endif /* MYCC_TRANSPOSE_H */
