/* transpose.h: a tile of a matrix transposed in registers. Included by kernels that read a tensor across their lanes.
 *
 * Vectors are made of pieces of 16 bytes: the first 16 bytes of rows 0, L, 2 L, .. side by side, then those of rows 1,
 * L + 1, .., L of them for the L elements of a piece. Zipped log2(L) times within the pieces, they are columns:
 *
 *     a0 a1 | c0 c1      zip      a0 b0 | c0 d0
 *     b0 b1 | d0 d1      ->       a1 b1 | c1 d1           (L = 2, vectors of 2 pieces, rows a to d)
 *
 * Zips within pieces are the cheapest shuffles that there are, and whole lines come out however narrow the elements are.
 */
#ifndef MYCC_KERNELS_LOOPS_TRANSPOSE_H
#define MYCC_KERNELS_LOOPS_TRANSPOSE_H

#include "machine.h"
#include "kernels/vec/vec.h"

namespace mycc {

namespace turning {

constexpr int PIECE = 16;              /* bytes */
constexpr int VECTOR = (int)sizeof(vi32); /* bytes */

/* Lane l of a zip of the lower or upper halves of all pieces, of L elements each; N lanes in a vector. */
template <int N, int L, bool UPPER> struct zipped {
  static constexpr int lane(int l) { return l / L * L + (UPPER ? L / 2 : 0) + l % L / 2 + l % 2 * N; }
};

/* Zips L vectors until each has the elements of one place in the pieces of all. */
template <int L, class V> MYCC_INLINE void zip_pieces(V *a) {
  constexpr int N = interleave::count<V>();
  V b[L];
#pragma GCC unroll 4
  for (int round = 1; round < L; round *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < L / 2; ++i) {
      b[2 * i] = interleave::pick<zipped<N, L, false>>(a[i], a[i + L / 2]);
      b[2 * i + 1] = interleave::pick<zipped<N, L, true>>(a[i], a[i + L / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) a[i] = b[i];
  }
}

/* to[c][r] = from[r][c] for the columns of a piece and the rows of a vector. */
template <class U> MYCC_INLINE void square(U *to, int64_t to_row, const U *from, int64_t from_row) {
  constexpr int L = PIECE / (int)sizeof(U);
  typedef U V __attribute__((vector_size(VECTOR)));
  V a[L];
#pragma GCC unroll 16
  for (int i = 0; i < L; ++i) a[i] = (V)isa::load_sixteens(from + i * from_row, L * from_row * (int64_t)sizeof(U));
  zip_pieces<L>(a);
#pragma GCC unroll 16
  for (int i = 0; i < L; ++i) __builtin_memcpy(to + i * to_row, &a[i], VECTOR);
}

#if defined(MYCC_AVX512)
/* Lane l of the even or the odd pieces, of L elements each, of two vectors. */
template <int L, bool ODD> struct every_other {
  static constexpr int lane(int l) { return (l / L * 2 + ODD) * L + l % L; }
};

/* The same for the columns of two pieces: two squares take twice as many loads, and wait for them. A vector is two pieces of
 * a row and the two of the row L behind it; zipped, it has columns c and L + c of rows 0 to 2 L - 1, or of those behind them. */
template <class U> MYCC_INLINE void oblong(U *to, int64_t to_row, const U *from, int64_t from_row) {
  static_assert(VECTOR == 4 * PIECE, "two rows of two pieces");
  constexpr int L = PIECE / (int)sizeof(U);
  typedef U V __attribute__((vector_size(VECTOR)));
  V above[L], below[L];
#pragma GCC unroll 16
  for (int i = 0; i < L; ++i) {
    above[i] = (V)isa::load_halves(from + i * from_row, L * from_row * (int64_t)sizeof(U));
    below[i] = (V)isa::load_halves(from + (2 * L + i) * from_row, L * from_row * (int64_t)sizeof(U));
  }
  zip_pieces<L>(above);
  zip_pieces<L>(below);
#pragma GCC unroll 16
  for (int i = 0; i < L; ++i) {
    const V first = interleave::pick<every_other<L, false>>(above[i], below[i]);
    const V second = interleave::pick<every_other<L, true>>(above[i], below[i]);
    __builtin_memcpy(to + i * to_row, &first, VECTOR);
    __builtin_memcpy(to + (L + i) * to_row, &second, VECTOR);
  }
}
#endif

/* Whether the lines of the rows that a square of whole lines is made of share more sets of a first level cache than
 * that has ways for them. */
template <class U> MYCC_INLINE bool crowded(int64_t row) {
  const int64_t bytes = row * (int64_t)sizeof(U), apart = bytes & -bytes;
  return kTransposedBytes / (int64_t)sizeof(U) * (apart < kSetBytes ? apart : kSetBytes) > kCacheWays * kSetBytes;
}

template <class U> inline void tile(U *to, int64_t to_row, const U *from, int64_t from_row, int64_t rows, int64_t columns) {
  constexpr int L = PIECE / (int)sizeof(U), N = VECTOR / (int)sizeof(U);
  constexpr int64_t PITCH = (kTransposedBytes + PIECE) / (int64_t)sizeof(U);
  alignas(kLineBytes) U own[kTransposedRows * PITCH];
  if (rows % N || columns % L || crowded<U>(from_row)) {
    for (int64_t r = 0; r < rows; ++r)
      isa::copy_bytes<kTransposedBytes, (int)sizeof(U)>(own + r * PITCH, from + r * from_row, columns * (int64_t)sizeof(U));
    from = own;
    from_row = PITCH;
  }
  for (int64_t r = 0; r < rows; r += N)
    for (int64_t c = 0; c < columns; c += L) square(to + c * to_row + r, to_row, from + r * from_row + c, from_row);
}

} /* namespace turning */

/* to[c * to_row + r] = from[r * from_row + c] for r < rows <= kTransposedRows and c < columns, these at most
 * kTransposedBytes. Places for other r < to_row and c may be written too, as far as kTransposedBytes; to_row holds
 * whole vectors. */
template <class T>
inline void transpose_tile(T *to, int64_t to_row, const T *from, int64_t from_row, int64_t rows, int64_t columns) {
  typedef typename interleave::unit<sizeof(T)>::type U;
  turning::tile((U *)(void *)to, to_row, (const U *)(const void *)from, from_row, rows, columns);
}

namespace turning {
/* A block of rows side by side, all of which may be read a piece beyond their ends. */
template <int ROWS, class U> MYCC_INLINE void rows(U *to, const U *from, int64_t pitch, int64_t length) {
  constexpr int L = PIECE / (int)sizeof(U), N = VECTOR / (int)sizeof(U);
  const char *coming = (const char *)from + kShortRowPrefetch;
  for (int64_t r = 0; r < ROWS; r += N)
    for (int64_t c = 0; c < length; c += L) {
#pragma GCC unroll 4
      for (int i = 0; i < N * PIECE; i += kLineBytes) prefetch_l1(coming + i);
      coming += N * PIECE;
      square(to + c * ROWS + r, ROWS, from + r * pitch + c, pitch);
    }
}
} /* namespace turning */

/* to[c * ROWS + r] = from[r * pitch + c] for r < ROWS and c < length; rows from `valid` on are like the one before them.
 * followed: more rows lie behind these. Up to 16 bytes behind each row of `to` may be written. */
template <int ROWS, class T>
inline void transpose_in(T *to, const T *from, int64_t pitch, int64_t length, int64_t valid, bool followed) {
  typedef typename interleave::unit<sizeof(T)>::type U;
  if (__builtin_expect(valid == ROWS && followed, 1)) {
    turning::rows<ROWS>((U *)(void *)to, (const U *)(const void *)from, pitch, length);
    return;
  }
  for (int64_t r = 0; r < ROWS; ++r) {
    const T *row = from + (r < valid ? r : valid - 1) * pitch;
    for (int64_t c = 0; c < length; ++c) to[c * ROWS + r] = row[c];
  }
}

/* to[r * length + c] = from[c * ROWS + r] for r < ROWS and c < length. From the last vector of a row to the first: what is
 * behind a row's end is written over by the next one; a vector behind the last one is written too. */
template <int ROWS, class T> inline void transpose_out(T *to, const T *from, int64_t length) {
  typedef typename interleave::unit<sizeof(T)>::type U;
  constexpr int L = turning::PIECE / (int)sizeof(U), N = turning::VECTOR / (int)sizeof(U);
  for (int64_t r = 0; r < ROWS; r += L)
    for (int64_t c = (length - 1) / N * N; c >= 0; c -= N)
      turning::square((U *)(void *)to + r * length + c, length, (const U *)(const void *)from + c * ROWS + r, ROWS);
}

/* Where a block lies. */
struct BlockPlace { int64_t row, column; };
/* The place of block `number` of rows x columns: in strips of 4 columns, so that both the rows of memory that are read and
 * those that are written are met again before their pages are forgotten. */
MYCC_INLINE BlockPlace block_place(int64_t number, int64_t rows, int64_t columns) {
  constexpr int64_t STRIP = 4;
  const int64_t first = number / (rows * STRIP) * STRIP, within = number - first * rows;
  const int64_t wide = columns - first < STRIP ? columns - first : STRIP;
  return {within / wide, first + within % wide};
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_LOOPS_TRANSPOSE_H */
