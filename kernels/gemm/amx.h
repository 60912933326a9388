/* AMX: the eight tiles of a thread, 16 rows of 64 bytes each, and their products (Intel 64 and IA-32 Architectures Software
 * Developer's Manual, volume 2, LDTILECFG to TILEZERO).
 *
 * The instructions are spelled in assembly, as GCC's <immintrin.h> does: it costs 0.25 s in every translation unit. With
 * MYCC_AMX_IN_CPP the same is C++, for tests on machines without AMX.
 */
#ifndef MYCC_KERNELS_GEMM_AMX_H
#define MYCC_KERNELS_GEMM_AMX_H

#include <stdint.h>

#include "kernels/vec/types.h"

#if defined(MYCC_AMX_IN_CPP) || (defined(__AMX_TILE__) && defined(__AMX_INT8__) && defined(__AMX_BF16__))
#define MYCC_AMX 1
#endif

#if defined(MYCC_AMX)
namespace mycc {
namespace amx {

constexpr int kRows = 16, kRowBytes = 64, kTileBytes = kRows * kRowBytes;

/* The shapes of the tiles, as LDTILECFG reads them. */
struct alignas(64) Shapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int64_t height, int64_t bytes) {
    rows[tile] = (uint8_t)height;
    row_bytes[tile] = (uint16_t)bytes;
  }
};

#if !defined(MYCC_AMX_IN_CPP)
/* While it lives, the thread's tiles have these shapes; then they are as before, and the system need not save them. */
struct Configured {
  explicit MYCC_INLINE Configured(const Shapes &shapes) { __asm__ volatile("ldtilecfg %0" ::"m"(shapes) : "memory"); }
  MYCC_INLINE ~Configured() { __asm__ volatile("tilerelease" ::: "memory"); }
  Configured(const Configured &) = delete;
};
template <int T> MYCC_INLINE void zero() { __asm__ volatile("tilezero %%tmm%c0" ::"i"(T)); }
template <int T> MYCC_INLINE void load(const void *from, int64_t step) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(step), "i"(T) : "memory");
}
template <int T> MYCC_INLINE void store(void *to, int64_t step) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(step), "i"(T) : "memory");
}
/* C[m][n] += sum over k of A[m][k] * B[k / 4][n][k % 4]: bytes, A's signed and B's unsigned; or both signed. */
template <int C, int A, int B> MYCC_INLINE void add_signed_unsigned() {
  __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}
template <int C, int A, int B> MYCC_INLINE void add_signed() {
  __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}
/* The same of pairs of bfloat16, in float32: rounded to nearest, subnormal numbers are zeros. */
template <int C, int A, int B> MYCC_INLINE void add_bfloats() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}
#else
struct Configured {
  Shapes shapes;
  uint8_t bytes[8][kRows][kRowBytes] = {};
  explicit Configured(const Shapes &own);
  ~Configured();
  Configured(const Configured &) = delete;
};
inline thread_local Configured *tiles __attribute__((tls_model("initial-exec"))) = nullptr;
inline Configured::Configured(const Shapes &own) : shapes(own) { tiles = this; }
inline Configured::~Configured() { tiles = nullptr; }
template <int T> void zero() { __builtin_memset(tiles->bytes[T], 0, kTileBytes); }
template <int T> void load(const void *from, int64_t step) {
  zero<T>(); /* rows and bytes beyond the shape too */
  for (int r = 0; r < tiles->shapes.rows[T]; ++r)
    __builtin_memcpy(tiles->bytes[T][r], (const char *)from + r * step, tiles->shapes.row_bytes[T]);
}
template <int T> void store(void *to, int64_t step) {
  for (int r = 0; r < tiles->shapes.rows[T]; ++r)
    __builtin_memcpy((char *)to + r * step, tiles->bytes[T][r], tiles->shapes.row_bytes[T]);
}
template <class BByte, int C, int A, int B> void add_products() {
  for (int m = 0; m < tiles->shapes.rows[C]; ++m)
    for (int n = 0; n < tiles->shapes.row_bytes[C] / 4; ++n) {
      uint32_t sum;
      __builtin_memcpy(&sum, tiles->bytes[C][m] + 4 * n, 4);
      for (int k = 0; k < tiles->shapes.row_bytes[A] && k / 4 < tiles->shapes.rows[B]; ++k)
        sum += (uint32_t)((int8_t)tiles->bytes[A][m][k] * (BByte)tiles->bytes[B][k / 4][4 * n + k % 4]);
      __builtin_memcpy(tiles->bytes[C][m] + 4 * n, &sum, 4);
    }
  for (int m = tiles->shapes.rows[C]; m < kRows; ++m) __builtin_memset(tiles->bytes[C][m], 0, kRowBytes);
}
template <int C, int A, int B> void add_signed_unsigned() { add_products<uint8_t, C, A, B>(); }
template <int C, int A, int B> void add_signed() { add_products<int8_t, C, A, B>(); }
inline float bfloat_at(const uint8_t *bytes) {
  uint32_t bits = (uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 24;
  if (!(bits & 0x7f800000u)) bits &= 0x80000000u;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}
/* Even values of k have a sum of their own, and odd ones, which are added to C in the end. */
template <int C, int A, int B> void add_bfloats() {
  for (int m = 0; m < tiles->shapes.rows[C]; ++m)
    for (int n = 0; n < tiles->shapes.row_bytes[C] / 4; ++n) {
      float sum, sums[2] = {0, 0};
      for (int k = 0; 2 * k < tiles->shapes.row_bytes[A] && k / 2 < tiles->shapes.rows[B]; ++k)
        sums[k % 2] = __builtin_fmaf(bfloat_at(tiles->bytes[A][m] + 2 * k),
                                     bfloat_at(tiles->bytes[B][k / 2] + 4 * n + 2 * (k % 2)), sums[k % 2]);
      __builtin_memcpy(&sum, tiles->bytes[C][m] + 4 * n, 4);
      sum += sums[0] + sums[1];
      __builtin_memcpy(tiles->bytes[C][m] + 4 * n, &sum, 4);
    }
  for (int m = tiles->shapes.rows[C]; m < kRows; ++m) __builtin_memset(tiles->bytes[C][m], 0, kRowBytes);
}
#endif

} // namespace amx
} // namespace mycc
#endif
#endif /* MYCC_KERNELS_GEMM_AMX_H */
