/* Integer weights of matrix products in panels of 16 columns, and sums of their products with int8 values.
 *
 * A line is 64 bytes: of each of 16 columns four bytes, side by side.
 *   8 bits: four values of k, each plus 128
 *   4 bits: eight values of k, each plus 8: the first four in the lower halves of the bytes, the others in the upper ones
 *   float8: four values of k, float8_e4m3fn without NaN, whose sign is flipped: as 8 bits are, of the same bytes
 * A panel is one line after the other along k; what lacks in the last line stands for zeros. A group that shares a scale is
 * whole lines.
 *
 * Sums are exact in 32 bits (modulo 2^32). What the weights have been raised by is taken off by the sums of the left
 * operand's values, which are known when it is packed.
 *   VNNI     u8 x s8, four products added to a sum
 *   x86      8 bits: even and odd bytes as words, whose products are added in pairs: no sum saturates, as those of bytes
 *            would; 4 bits: products of bytes added in pairs as words, at most eight of them: 8 x 2 x 15 x 128 < 2^15
 *   others   bytes become signed again, and their products words
 * With MYCC_VNNI_IN_CPP the first one is C++, for tests on machines without it.
 */
#ifndef MYCC_KERNELS_GEMM_QUADS_H
#define MYCC_KERNELS_GEMM_QUADS_H

#include <stdint.h>

#include "machine.h"
#include "kernels/vec/vec.h"

namespace mycc {

#if defined(MYCC_VNNI_IN_CPP) || (defined(MYCC_AVX512) ? defined(__AVX512VNNI__) : (defined(MYCC_AVX2) && defined(__AVXVNNI__)))
#define MYCC_VNNI 1
#endif

constexpr int kLineVectors = 16 / W; /* vectors of a line, and of the sums of a panel */

/* Stands for the bits of numbers of float8_e4m3fn. */
constexpr int kFloat8 = -8;

/* Values of k of a line, by their bits, and what is added to them. */
constexpr int line_values(int bits) { return bits == 4 ? 8 : 4; }
constexpr int raised_by(int bits) { return 1 << (bits - 1); }

namespace quads {

typedef int16_t words __attribute__((vector_size(W * 4)));
typedef uint16_t uwords __attribute__((vector_size(W * 4)));
typedef int8_t bytes __attribute__((vector_size(W * 4)));

MYCC_INLINE vi32 splat_at(const char *a) {
  int32_t x;
  __builtin_memcpy(&x, a, 4);
  return splat(x);
}

#if defined(MYCC_X86)
typedef short x16 __attribute__((vector_size(W * 4)));
typedef char x8 __attribute__((vector_size(W * 4)));
using isa::add_pairs;
/* Products of unsigned bytes with signed ones, added in pairs as words. */
MYCC_INLINE words add_byte_pairs(vi32 u, vi32 s) {
#if defined(MYCC_AVX512)
  return MYCC_PICK((words)__builtin_ia32_pmaddubsw512_mask((x8)u, (x8)s, x16{}, -1),
                   (words)_mm512_maddubs_epi16((__m512i)u, (__m512i)s));
#elif defined(MYCC_AVX2)
  return MYCC_PICK((words)__builtin_ia32_pmaddubsw256((x8)u, (x8)s),
                   (words)_mm256_maddubs_epi16((__m256i)u, (__m256i)s));
#else
  return MYCC_PICK((words)__builtin_ia32_pmaddubsw128((x8)u, (x8)s), (words)_mm_maddubs_epi16((__m128i)u, (__m128i)s));
#endif
}
#endif

#if defined(MYCC_VNNI_IN_CPP)
__attribute__((noinline)) inline vi32 add_fours(vi32 sums, vi32 u, vi32 s) {
  uint8_t w[4 * W];
  int8_t a[4 * W];
  __builtin_memcpy(w, &u, sizeof(w)), __builtin_memcpy(a, &s, sizeof(a));
  for (int i = 0; i < W; ++i)
    for (int j = 0; j < 4; ++j) sums[i] += w[4 * i + j] * a[4 * i + j];
  return sums;
}
#elif defined(MYCC_VNNI)
/* sums + the products of four unsigned bytes with four signed ones. */
MYCC_INLINE vi32 add_fours(vi32 sums, vi32 u, vi32 s) {
#if defined(MYCC_AVX512)
  return MYCC_PICK(__builtin_ia32_vpdpbusd_v16si(sums, u, s),
                   (vi32)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)u, (__m512i)s));
#else
  return MYCC_PICK(__builtin_ia32_vpdpbusd_v8si(sums, u, s),
                   (vi32)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)u, (__m256i)s));
#endif
}
#elif !defined(MYCC_X86)
/* The same of bytes that are both signed. */
MYCC_INLINE vi32 add_fours(vi32 sums, vi32 w, vi32 s) {
#if defined(__ARM_FEATURE_DOTPROD)
  return (vi32)vdotq_s32((int32x4_t)sums, (int8x16_t)w, (int8x16_t)s);
#elif defined(MYCC_NEON)
  const int8x16_t a = (int8x16_t)w, b = (int8x16_t)s;
  const int16x8_t lo = vmull_s8(vget_low_s8(a), vget_low_s8(b)), hi = vmull_high_s8(a, b);
  return sums + (vi32)vpaddq_s32(vpaddlq_s16(lo), vpaddlq_s16(hi));
#else
  const bytes a = (bytes)w, b = (bytes)s;
  for (int i = 0; i < W; ++i)
    for (int j = 0; j < 4; ++j) sums[i] += a[4 * i + j] * b[4 * i + j];
  return sums;
#endif
}
#endif

/* How W columns of a line are multiplied. Left: bytes that four values of the left operand take. kLines: lines whose
 * sums a Partial holds; 0: any number. raised: what the weights are still raised by. */
template <int Bits> struct Dot;

#if defined(MYCC_VNNI) || !defined(MYCC_X86)
template <> struct Dot<8> {
  static constexpr int kLeft = 4, kLines = 0, kQuads = 1;
#if defined(MYCC_X86)
  static constexpr int raised = 128;
  static MYCC_INLINE vi32 plain(vi32 w) { return w; }
#else
  static constexpr int raised = 0;
  static MYCC_INLINE vi32 plain(vi32 w) { return w ^ (int32_t)0x80808080; }
#endif
  struct Weights { vi32 w; };
  typedef vi32 Partial;
  static MYCC_INLINE Weights take(vi32 line) { return {plain(line)}; }
  static MYCC_INLINE void add(Partial &sum, Weights w, const char *a, int64_t) {
    sum = add_fours(sum, w.w, splat_at(a));
  }
  static MYCC_INLINE vi32 sums(Partial p) { return p; }
};
template <> struct Dot<4> {
  static constexpr int kLeft = 4, kLines = 0, kQuads = 2;
#if defined(MYCC_X86)
  static constexpr int raised = 8;
  static MYCC_INLINE vi32 plain(vi32 w) { return w; }
#else
  static constexpr int raised = 0;
  static MYCC_INLINE vi32 plain(vi32 w) { return (vi32)((bytes)w - (int8_t)8); }
#endif
  struct Weights { vi32 lower, upper; };
  typedef vi32 Partial;
  static MYCC_INLINE Weights take(vi32 line) {
    return {plain(line & 0x0f0f0f0f), plain((vi32)((vu32)line >> 4) & 0x0f0f0f0f)};
  }
  static MYCC_INLINE void add(Partial &sum, Weights w, const char *a, int64_t quad) {
    sum = add_fours(sum, w.lower, splat_at(a));
    sum = add_fours(sum, w.upper, splat_at(a + quad));
  }
  static MYCC_INLINE vi32 sums(Partial p) { return p; }
};
#else
template <> struct Dot<8> {
  static constexpr int kLeft = 8, kLines = 0, kQuads = 1, raised = 128;
  struct Weights { vi32 even, odd; };
  typedef vi32 Partial;
  static MYCC_INLINE Weights take(vi32 line) {
    return {line & 0x00ff00ff, (vi32)((uwords)line >> 8)};
  }
  static MYCC_INLINE void add(Partial &sum, Weights w, const char *a, int64_t) {
    sum += add_pairs(w.even, splat_at(a));
    sum += add_pairs(w.odd, splat_at(a + 4));
  }
  static MYCC_INLINE vi32 sums(Partial p) { return p; }
};
template <> struct Dot<4> {
  static constexpr int kLeft = 4, kLines = 4, kQuads = 2, raised = 8;
  struct Weights { vi32 lower, upper; };
  typedef words Partial;
  static MYCC_INLINE Weights take(vi32 line) {
    return {line & 0x0f0f0f0f, (vi32)((vu32)line >> 4) & 0x0f0f0f0f};
  }
  static MYCC_INLINE void add(Partial &sum, Weights w, const char *a, int64_t quad) {
    sum += add_byte_pairs(w.lower, splat_at(a));
    sum += add_byte_pairs(w.upper, splat_at(a + quad));
  }
  static MYCC_INLINE vi32 sums(Partial p) { return add_pairs((vi32)p, splat((int32_t)0x00010001)); }
};
#endif

/* The sum of bytes. */
MYCC_INLINE int32_t sum_of_bytes(const int8_t *a, int64_t count) {
  vi32 sums = {};
  int64_t i = 0;
#if defined(MYCC_VNNI) || !defined(MYCC_X86)
  for (; i + 4 * W <= count; i += 4 * W) {
    vi32 values;
    __builtin_memcpy(&values, a + i, sizeof(values));
    sums = add_fours(sums, splat((int32_t)0x01010101), values);
  }
#endif
  for (; i + W <= count; i += W) sums += load(a + i);
  int32_t sum = reduce_add(sums);
  for (; i < count; ++i) sum += a[i];
  return sum;
}

/* Four values of the left operand as Dot takes them: as they are, or as words, even ones first. */
template <int Left> MYCC_INLINE void put_quad(char *to, uint32_t x) {
  if constexpr (Left == 4) {
    __builtin_memcpy(to, &x, 4);
  } else {
    uint64_t v = (x & 0x00ff00ffu) | (uint64_t)(x >> 8 & 0x00ff00ffu) << 32;
    v |= (v & 0x0080008000800080u) * 0x1fe; /* their signs */
    __builtin_memcpy(to, &v, 8);
  }
}

/* kTogether quads at once, `step` bytes from one to the next; lanes of `sums` grow by their values, but for those of the
 * first `known` quads. */
#if defined(MYCC_AVX2) || defined(MYCC_AVX512)
typedef char c16 __attribute__((vector_size(16)));
typedef long long q4 __attribute__((vector_size(32)));
constexpr int kTogether = 4;
MYCC_INLINE void put_eight(char *to, long long bytes) { __builtin_memcpy(to, &bytes, 8); }
#else
constexpr int kTogether = W / 4;
#endif
template <int Left> MYCC_INLINE void put_quads(char *to, const int8_t *a, int64_t step, vi32 &sums, int64_t known = 0) {
#if defined(MYCC_AVX2) && !defined(MYCC_AVX512)
  if constexpr (Left == 8) {
    c16 v;
    __builtin_memcpy(&v, a, 16);
    const words wide = MYCC_PICK((words)__builtin_ia32_pmovsxbw256(v), (words)_mm256_cvtepi8_epi16((__m128i)v));
    const q4 even = (q4)__builtin_shufflevector(wide, wide, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    const words places = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    const words counted = known ? wide & (places >= (int16_t)known) : wide;
    sums += isa::add_pairs((vi32)counted, splat((int32_t)0x00010001));
    put_eight(to, even[0]), put_eight(to + step, even[1]), put_eight(to + 2 * step, even[2]), put_eight(to + 3 * step, even[3]);
    return;
  }
#endif
#pragma GCC unroll 8
  for (int i = 0; i < kTogether; ++i) { /* an array of them would go through the stack */
    uint32_t x;
    __builtin_memcpy(&x, a + 4 * i, 4);
    put_quad<Left>(to + i * step, x);
  }
  for (int i = 0; i < 4 * kTogether; i += W) {
    const vi32 values = load(a + i);
    sums += known ? values & (vi32)(lane_numbers() + i >= (int32_t)(4 * known)) : values;
  }
}

} // namespace quads

/* W columns of a line as floats: value I of k of each. */
template <int Bits> struct FloatLine;

template <> struct FloatLine<8> {
  vi32 line;
  explicit MYCC_INLINE FloatLine(vi32 raised) : line(raised ^ (int32_t)0x80808080) {}
  template <int I> MYCC_INLINE vf32 value() const {
    const vi32 top = I < 3 ? (vi32)((vu32)line << (24 - 8 * I)) : line;
    return __builtin_convertvector(top >> 24, vf32);
  }
};
template <> struct FloatLine<4> {
  vi32 line;
  explicit MYCC_INLINE FloatLine(vi32 raised) : line(raised) {}
  /* Bits behind value I: the first four are in the lower halves. */
  static constexpr int shift(int i) { return i < 4 ? 8 * i : 8 * (i - 4) + 4; }
  /* What value I is still multiplied by where it stays raised and in its place: the last one would be negative there. */
  static constexpr int place(int i) { return i == 7 ? 0 : shift(i); }
  template <int I> MYCC_INLINE vf32 raised_in_place() const {
    return __builtin_convertvector(I == 7 ? (vi32)((vu32)line >> 28) : line & 15 << shift(I), vf32);
  }
  template <int I> MYCC_INLINE vf32 value() const {
    const vi32 low = I ? (vi32)((vu32)line >> shift(I)) : line;
#if defined(MYCC_AVX512)
    const vf32 table = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}; /* the lower four bits choose */
    return MYCC_PICK(__builtin_ia32_permvarsf512_mask(table, low, table, (short)-1),
                     (vf32)_mm512_permutexvar_ps((__m512i)low, (__m512)table));
#else
    return __builtin_convertvector(I == 7 ? low : low & 15, vf32) - 8.0f;
#endif
  }
};

/* Exponents of normal numbers move from the bias 7 to 127. A subnormal number d / 8 * 2^-6 reads as (1 + d / 8) * 2^-7 then,
 * and is twice that less 2^-6, which of normal numbers is larger than they are. No float32 on the way is subnormal. */
template <> struct FloatLine<kFloat8> {
  vi32 line;
  explicit MYCC_INLINE FloatLine(vi32 flipped) : line(flipped) {}
  template <int I> MYCC_INLINE vf32 value() const {
    const vi32 low = I < 3 ? (vi32)((vu32)line << (20 - 8 * I)) : (vi32)((vu32)line >> 4);
    const vi32 top = I < 3 ? (vi32)((vu32)line << (24 - 8 * I)) : line;
    const vf32 normal = (vf32)((low & 0x07f00000) + 0x3c000000);
    const vf32 small = fma(normal, splat(2.0f), splat(-0x1p-6f));
    return (vf32)((vi32)isa::min(normal, small) | (~top & (int32_t)0x80000000));
  }
};

} // namespace mycc
#endif /* MYCC_KERNELS_GEMM_QUADS_H */
