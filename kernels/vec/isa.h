/* isa.h: the few operations that the vector extensions cannot say, or say badly, by instruction set.
 * Included by vec/vec.h; everything here works on native vectors (vf32, vi32, hf64, hi64).
 *
 * With GCC the builtins are named directly: <immintrin.h> costs 0.25 s in every translation unit.
 */
#ifndef MYCC_KERNELS_VEC_ISA_H
#define MYCC_KERNELS_VEC_ISA_H

#include "kernels/vec/types.h"

#if defined(MYCC_AVX512) || defined(MYCC_AVX2) || defined(MYCC_SSE4)
#define MYCC_X86 1
#if defined(__clang__)
/* Without its mm_malloc.h, which declares abs(float) and more in the global namespace when the library is C++'s. */
#if !defined(__MM_MALLOC_H)
#define __MM_MALLOC_H
#endif
#include <immintrin.h>
#define MYCC_PICK(gcc, intrinsic) intrinsic
#else
#define MYCC_PICK(gcc, intrinsic) gcc
#endif
#elif defined(MYCC_NEON)
#include <arm_neon.h>
#endif

namespace mycc {
namespace isa {

typedef long long hll __attribute__((vector_size(W * 4)));
typedef char c8 __attribute__((vector_size(16)));
typedef short s16 __attribute__((vector_size(32)));

/* Non-temporal stores; p is aligned to v. They become visible to other threads with the fence. */
#if defined(__clang__)
template <class V> MYCC_INLINE void stream(void *p, V v) { __builtin_nontemporal_store(v, (V *)p); }
#elif defined(MYCC_X86)
typedef long long l2 __attribute__((vector_size(16)));
typedef long long l4 __attribute__((vector_size(32)));
template <class V> MYCC_INLINE void stream(void *p, V v) {
#if defined(MYCC_AVX512)
  if constexpr (sizeof(V) == 64) __builtin_ia32_movntdq512((hll *)p, (hll)v);
#endif
#if defined(MYCC_AVX2)
  if constexpr (sizeof(V) == 32) __builtin_ia32_movntdq256((l4 *)p, (l4)v);
#endif
  if constexpr (sizeof(V) == 16) __builtin_ia32_movntdq((l2 *)p, (l2)v);
  if constexpr (sizeof(V) < 16) __builtin_memcpy(p, &v, sizeof v);
}
#else
template <class V> MYCC_INLINE void stream(void *p, V v) { __builtin_memcpy(p, &v, sizeof v); }
#endif
MYCC_INLINE void stream_fence() {
#if defined(MYCC_X86)
  MYCC_PICK(__builtin_ia32_sfence(), _mm_sfence());
#endif
}

#if defined(MYCC_X86)
/* Products of words of 16 bits, added in pairs. */
MYCC_INLINE vi32 add_pairs(vi32 a, vi32 b) {
  typedef short words __attribute__((vector_size(W * 4)));
#if defined(MYCC_AVX512)
  return MYCC_PICK(__builtin_ia32_pmaddwd512_mask((words)a, (words)b, vi32{}, (short)-1),
                   (vi32)_mm512_madd_epi16((__m512i)a, (__m512i)b));
#elif defined(MYCC_AVX2)
  return MYCC_PICK((vi32)__builtin_ia32_pmaddwd256((words)a, (words)b), (vi32)_mm256_madd_epi16((__m256i)a, (__m256i)b));
#else
  return MYCC_PICK((vi32)__builtin_ia32_pmaddwd128((words)a, (words)b), (vi32)_mm_madd_epi16((__m128i)a, (__m128i)b));
#endif
}
#endif

/* Rounding modes of x86's round instructions, exceptions off. */
enum { NEAREST = 8, FLOOR = 9, CEIL = 10, TRUNC = 11 };

/* Whether a part is known to be half a vector, which goes as it is: stores with masks to lines that are not in the cache
 * take twice as long. */
#define MYCC_IS_HALF(n) (__builtin_constant_p(n) && (n) == W / 2)
MYCC_INLINE vi32 load_half32(const void *p) {
  qi32 half;
  __builtin_memcpy(&half, p, sizeof half);
  return join(half, qi32{});
}
MYCC_INLINE void store_half32(void *p, vi32 v) {
  const qi32 half = lower(v);
  __builtin_memcpy(p, &half, sizeof half);
}

#if defined(MYCC_AVX512)

MYCC_INLINE unsigned mask16(int n) { return (1u << n) - 1u; }
MYCC_INLINE vf32 sqrt(vf32 x) {
  return MYCC_PICK(__builtin_ia32_sqrtps512_mask(x, x, (short)-1, 4), (vf32)_mm512_sqrt_ps((__m512)x));
}
MYCC_INLINE hf64 sqrt(hf64 x) {
  return MYCC_PICK(__builtin_ia32_sqrtpd512_mask(x, x, (char)-1, 4), (hf64)_mm512_sqrt_pd((__m512d)x));
}
MYCC_INLINE vf32 fma(vf32 a, vf32 b, vf32 c) {
  return MYCC_PICK(__builtin_ia32_vfmaddps512_mask(a, b, c, (short)-1, 4), (vf32)_mm512_fmadd_ps(a, b, c));
}
MYCC_INLINE hf64 fma(hf64 a, hf64 b, hf64 c) {
  return MYCC_PICK(__builtin_ia32_vfmaddpd512_mask(a, b, c, (char)-1, 4), (hf64)_mm512_fmadd_pd(a, b, c));
}
template <int MODE> MYCC_INLINE vf32 round(vf32 x) {
  return MYCC_PICK(__builtin_ia32_rndscaleps_mask(x, MODE, x, (short)-1, 4), (vf32)_mm512_roundscale_ps(x, MODE));
}
template <int MODE> MYCC_INLINE hf64 round(hf64 x) {
  return MYCC_PICK(__builtin_ia32_rndscalepd_mask(x, MODE, x, (char)-1, 4), (hf64)_mm512_roundscale_pd(x, MODE));
}
/* The nearest integers, of two the even one. */
MYCC_INLINE vi32 nearest(vf32 x) {
  return MYCC_PICK((vi32)__builtin_ia32_cvtps2dq512_mask(x, vi32{}, (short)-1, 4), (vi32)_mm512_cvtps_epi32(x));
}
/* p 2^n for an integer n. */
MYCC_INLINE vf32 scale(vf32 p, vf32 n) {
  return MYCC_PICK(__builtin_ia32_scalefps512_mask(p, n, p, (short)-1, 4), (vf32)_mm512_scalef_ps(p, n));
}
/* The second operand when one is NaN or both are equal. */
MYCC_INLINE vf32 max(vf32 x, vf32 y) {
  return MYCC_PICK(__builtin_ia32_maxps512_mask(x, y, x, (short)-1, 4), (vf32)_mm512_max_ps(x, y));
}
MYCC_INLINE hf64 max(hf64 x, hf64 y) {
  return MYCC_PICK(__builtin_ia32_maxpd512_mask(x, y, x, (char)-1, 4), (hf64)_mm512_max_pd(x, y));
}
MYCC_INLINE vf32 min(vf32 x, vf32 y) {
  return MYCC_PICK(__builtin_ia32_minps512_mask(x, y, x, (short)-1, 4), (vf32)_mm512_min_ps(x, y));
}
MYCC_INLINE hf64 min(hf64 x, hf64 y) {
  return MYCC_PICK(__builtin_ia32_minpd512_mask(x, y, x, (char)-1, 4), (hf64)_mm512_min_pd(x, y));
}
MYCC_INLINE unsigned sign_mask(vi32 m) {
  return MYCC_PICK((uint16_t)__builtin_ia32_cvtd2mask512(m), (uint16_t)_mm512_movepi32_mask((__m512i)m));
}
MYCC_INLINE bool any(vi32 m) { return sign_mask(m) != 0; }
MYCC_INLINE bool all(vi32 m) { return sign_mask(m) == 0xffffu; }

/* Masked loads and stores of some lanes, or of the first n; the others load as 0 and are not touched in memory. */
MYCC_INLINE vi32 load_lanes32(const void *p, unsigned mask) {
  return MYCC_PICK((vi32)__builtin_ia32_loaddqusi512_mask((const int *)p, vi32{}, (uint16_t)mask),
                   (vi32)_mm512_maskz_loadu_epi32((__mmask16)mask, p));
}
MYCC_INLINE vi16 load_lanes16(const void *p, unsigned mask) {
  return MYCC_PICK((vi16)__builtin_ia32_loaddquhi256_mask((const short *)p, s16{}, (uint16_t)mask),
                   (vi16)_mm256_maskz_loadu_epi16((__mmask16)mask, p));
}
MYCC_INLINE vi32 load_tail32(const void *p, int n) {
  return MYCC_IS_HALF(n) ? load_half32(p) : load_lanes32(p, mask16(n));
}
MYCC_INLINE void store_tail32(void *p, vi32 v, int n) {
  if (MYCC_IS_HALF(n)) return store_half32(p, v);
  MYCC_PICK(__builtin_ia32_storedqusi512_mask((int *)p, v, (uint16_t)mask16(n)),
            _mm512_mask_storeu_epi32(p, (__mmask16)mask16(n), (__m512i)v));
}
MYCC_INLINE hi64 load_mask64(const void *p, unsigned mask) {
  return MYCC_PICK((hi64)__builtin_ia32_loaddqudi512_mask((const long long *)p, hll{}, (uint8_t)mask),
                   (hi64)_mm512_maskz_loadu_epi64((__mmask8)mask, p));
}
MYCC_INLINE void store_mask64(void *p, hi64 v, unsigned mask) {
  MYCC_PICK(__builtin_ia32_storedqudi512_mask((long long *)p, (hll)v, (uint8_t)mask),
            _mm512_mask_storeu_epi64(p, (__mmask8)mask, (__m512i)v));
}
MYCC_INLINE vi64 load_tail64(const void *p, int n) {
  return {load_mask64(p, mask16(n) & 0xff), load_mask64((const char *)p + 64, mask16(n) >> 8)};
}
MYCC_INLINE void store_tail64(void *p, vi64 v, int n) {
  store_mask64(p, v.lo, mask16(n) & 0xff);
  store_mask64((char *)p + 64, v.hi, mask16(n) >> 8);
}
MYCC_INLINE vi16 load_tail16(const void *p, int n) { return load_lanes16(p, mask16(n)); }
MYCC_INLINE void store_tail16(void *p, vi16 v, int n) {
  MYCC_PICK(__builtin_ia32_storedquhi256_mask((short *)p, (s16)v, (uint16_t)mask16(n)),
            _mm256_mask_storeu_epi16(p, (__mmask16)mask16(n), (__m256i)v));
}
MYCC_INLINE vi8 load_lanes8(const void *p, unsigned mask) {
  return MYCC_PICK((vi8)__builtin_ia32_loaddquqi128_mask((const char *)p, c8{}, (uint16_t)mask),
                   (vi8)_mm_maskz_loadu_epi8((__mmask16)mask, p));
}
MYCC_INLINE vi8 load_tail8(const void *p, int n) { return load_lanes8(p, mask16(n)); }
MYCC_INLINE void store_tail8(void *p, vi8 v, int n) {
  MYCC_PICK(__builtin_ia32_storedquqi128_mask((char *)p, (c8)v, (uint16_t)mask16(n)),
            _mm_mask_storeu_epi8(p, (__mmask16)mask16(n), (__m128i)v));
}

#elif defined(MYCC_AVX2)

MYCC_INLINE vf32 sqrt(vf32 x) { return MYCC_PICK(__builtin_ia32_sqrtps256(x), (vf32)_mm256_sqrt_ps(x)); }
MYCC_INLINE hf64 sqrt(hf64 x) { return MYCC_PICK(__builtin_ia32_sqrtpd256(x), (hf64)_mm256_sqrt_pd(x)); }
MYCC_INLINE vf32 fma(vf32 a, vf32 b, vf32 c) {
  return MYCC_PICK(__builtin_ia32_vfmaddps256(a, b, c), (vf32)_mm256_fmadd_ps(a, b, c));
}
MYCC_INLINE hf64 fma(hf64 a, hf64 b, hf64 c) {
  return MYCC_PICK(__builtin_ia32_vfmaddpd256(a, b, c), (hf64)_mm256_fmadd_pd(a, b, c));
}
template <int MODE> MYCC_INLINE vf32 round(vf32 x) {
  return MYCC_PICK(__builtin_ia32_roundps256(x, MODE), (vf32)_mm256_round_ps(x, MODE));
}
template <int MODE> MYCC_INLINE hf64 round(hf64 x) {
  return MYCC_PICK(__builtin_ia32_roundpd256(x, MODE), (hf64)_mm256_round_pd(x, MODE));
}
/* The nearest integers, of two the even one. */
MYCC_INLINE vi32 nearest(vf32 x) { return MYCC_PICK((vi32)__builtin_ia32_cvtps2dq256(x), (vi32)_mm256_cvtps_epi32(x)); }
/* The second operand when one is NaN or both are equal. */
MYCC_INLINE vf32 max(vf32 x, vf32 y) { return MYCC_PICK(__builtin_ia32_maxps256(x, y), (vf32)_mm256_max_ps(x, y)); }
MYCC_INLINE hf64 max(hf64 x, hf64 y) { return MYCC_PICK(__builtin_ia32_maxpd256(x, y), (hf64)_mm256_max_pd(x, y)); }
MYCC_INLINE vf32 min(vf32 x, vf32 y) { return MYCC_PICK(__builtin_ia32_minps256(x, y), (vf32)_mm256_min_ps(x, y)); }
MYCC_INLINE hf64 min(hf64 x, hf64 y) { return MYCC_PICK(__builtin_ia32_minpd256(x, y), (hf64)_mm256_min_pd(x, y)); }
MYCC_INLINE unsigned sign_mask(vi32 m) {
  return (unsigned)MYCC_PICK(__builtin_ia32_movmskps256((vf32)m), _mm256_movemask_ps((__m256)m));
}
MYCC_INLINE bool any(vi32 m) { return sign_mask(m) != 0; }
MYCC_INLINE bool all(vi32 m) { return sign_mask(m) == 0xffu; }
MYCC_INLINE vi32 first(int n) { return vi32{MYCC_ALL} < n; }
MYCC_INLINE vi32 load_mask32(const void *p, vi32 mask) {
  return MYCC_PICK((vi32)__builtin_ia32_maskloadd256((const vi32 *)p, mask),
                   (vi32)_mm256_maskload_epi32((const int *)p, (__m256i)mask));
}
MYCC_INLINE vi32 load_tail32(const void *p, int n) {
  return MYCC_IS_HALF(n) ? load_half32(p) : load_mask32(p, first(n));
}
MYCC_INLINE void store_tail32(void *p, vi32 v, int n) {
  if (MYCC_IS_HALF(n)) return store_half32(p, v);
  MYCC_PICK(__builtin_ia32_maskstored256((vi32 *)p, first(n), v),
            _mm256_maskstore_epi32((int *)p, (__m256i)first(n), (__m256i)v));
}
MYCC_INLINE hi64 load_mask64(const void *p, hi64 mask) {
  return MYCC_PICK((hi64)__builtin_ia32_maskloadq256((const hll *)p, (hll)mask),
                   (hi64)_mm256_maskload_epi64((const long long *)p, (__m256i)mask));
}
MYCC_INLINE void store_mask64(void *p, hi64 v, hi64 mask) {
  MYCC_PICK(__builtin_ia32_maskstoreq256((hll *)p, (hll)mask, (hll)v),
            _mm256_maskstore_epi64((long long *)p, (__m256i)mask, (__m256i)v));
}
MYCC_INLINE vi64 load_tail64(const void *p, int n) {
  return {load_mask64(p, hi64{MYCC_LOWER} < n), load_mask64((const char *)p + 32, hi64{MYCC_UPPER} < n)};
}
MYCC_INLINE void store_tail64(void *p, vi64 v, int n) {
  store_mask64(p, v.lo, hi64{MYCC_LOWER} < n);
  store_mask64((char *)p + 32, v.hi, hi64{MYCC_UPPER} < n);
}

#elif defined(MYCC_SSE4)

MYCC_INLINE vf32 sqrt(vf32 x) { return MYCC_PICK(__builtin_ia32_sqrtps(x), (vf32)_mm_sqrt_ps(x)); }
MYCC_INLINE hf64 sqrt(hf64 x) { return MYCC_PICK(__builtin_ia32_sqrtpd(x), (hf64)_mm_sqrt_pd(x)); }
template <int MODE> MYCC_INLINE vf32 round(vf32 x) {
  return MYCC_PICK(__builtin_ia32_roundps(x, MODE), (vf32)_mm_round_ps(x, MODE));
}
template <int MODE> MYCC_INLINE hf64 round(hf64 x) {
  return MYCC_PICK(__builtin_ia32_roundpd(x, MODE), (hf64)_mm_round_pd(x, MODE));
}
/* The nearest integers, of two the even one. */
MYCC_INLINE vi32 nearest(vf32 x) { return MYCC_PICK((vi32)__builtin_ia32_cvtps2dq(x), (vi32)_mm_cvtps_epi32(x)); }
/* The second operand when one is NaN or both are equal. */
MYCC_INLINE vf32 max(vf32 x, vf32 y) { return MYCC_PICK(__builtin_ia32_maxps(x, y), (vf32)_mm_max_ps(x, y)); }
MYCC_INLINE hf64 max(hf64 x, hf64 y) { return MYCC_PICK(__builtin_ia32_maxpd(x, y), (hf64)_mm_max_pd(x, y)); }
MYCC_INLINE vf32 min(vf32 x, vf32 y) { return MYCC_PICK(__builtin_ia32_minps(x, y), (vf32)_mm_min_ps(x, y)); }
MYCC_INLINE hf64 min(hf64 x, hf64 y) { return MYCC_PICK(__builtin_ia32_minpd(x, y), (hf64)_mm_min_pd(x, y)); }
MYCC_INLINE unsigned sign_mask(vi32 m) {
  return (unsigned)MYCC_PICK(__builtin_ia32_movmskps((vf32)m), _mm_movemask_ps((__m128)m));
}
MYCC_INLINE bool any(vi32 m) { return sign_mask(m) != 0; }
MYCC_INLINE bool all(vi32 m) { return sign_mask(m) == 0xfu; }

#else /* NEON, or any machine with W = 4 */

#if defined(MYCC_NEON)
MYCC_INLINE vf32 sqrt(vf32 x) { return (vf32)vsqrtq_f32((float32x4_t)x); }
MYCC_INLINE hf64 sqrt(hf64 x) { return (hf64)vsqrtq_f64((float64x2_t)x); }
MYCC_INLINE vf32 fma(vf32 a, vf32 b, vf32 c) {
  return (vf32)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
MYCC_INLINE hf64 fma(hf64 a, hf64 b, hf64 c) {
  return (hf64)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}
template <int MODE> MYCC_INLINE vf32 round(vf32 x) {
  float32x4_t v = (float32x4_t)x;
  return (vf32)(MODE == NEAREST ? vrndnq_f32(v) : MODE == FLOOR ? vrndmq_f32(v)
                : MODE == CEIL ? vrndpq_f32(v) : vrndq_f32(v));
}
template <int MODE> MYCC_INLINE hf64 round(hf64 x) {
  float64x2_t v = (float64x2_t)x;
  return (hf64)(MODE == NEAREST ? vrndnq_f64(v) : MODE == FLOOR ? vrndmq_f64(v)
                : MODE == CEIL ? vrndpq_f64(v) : vrndq_f64(v));
}
#else
MYCC_INLINE vf32 sqrt(vf32 x) {
  return vf32{__builtin_sqrtf(x[0]), __builtin_sqrtf(x[1]), __builtin_sqrtf(x[2]), __builtin_sqrtf(x[3])};
}
MYCC_INLINE hf64 sqrt(hf64 x) { return hf64{__builtin_sqrt(x[0]), __builtin_sqrt(x[1])}; }
template <int MODE> MYCC_INLINE double round_one(double x) {
  return MODE == NEAREST ? __builtin_nearbyint(x) : MODE == FLOOR ? __builtin_floor(x)
         : MODE == CEIL ? __builtin_ceil(x) : __builtin_trunc(x);
}
template <int MODE> MYCC_INLINE vf32 round(vf32 x) {
  return vf32{(float)round_one<MODE>(x[0]), (float)round_one<MODE>(x[1]), (float)round_one<MODE>(x[2]),
              (float)round_one<MODE>(x[3])};
}
template <int MODE> MYCC_INLINE hf64 round(hf64 x) { return hf64{round_one<MODE>(x[0]), round_one<MODE>(x[1])}; }
#endif
/* The nearest integers, of two the even one. */
MYCC_INLINE vi32 nearest(vf32 x) { return __builtin_convertvector(round<NEAREST>(x), vi32); }
MYCC_INLINE vf32 max(vf32 x, vf32 y) { return x > y ? x : y; }
MYCC_INLINE hf64 max(hf64 x, hf64 y) { return x > y ? x : y; }
MYCC_INLINE vf32 min(vf32 x, vf32 y) { return x < y ? x : y; }
MYCC_INLINE hf64 min(hf64 x, hf64 y) { return x < y ? x : y; }
MYCC_INLINE bool any(vi32 m) { return (((hi64)m)[0] | ((hi64)m)[1]) != 0; }
MYCC_INLINE bool all(vi32 m) { return (((hi64)m)[0] & ((hi64)m)[1]) == -1; }

#endif

#if !defined(MYCC_AVX2) && !defined(MYCC_NEON)
/* No fused multiply-add on these machines: two roundings. */
MYCC_INLINE vf32 fma(vf32 a, vf32 b, vf32 c) { return a * b + c; }
MYCC_INLINE hf64 fma(hf64 a, hf64 b, hf64 c) { return a * b + c; }
#else
#define MYCC_HAS_FMA 1
#endif

/* Copies n < 2 * MOST bytes, a multiple of LEAST, in pieces of fixed size, so that no call to memcpy is left and nothing
 * behind them is touched. */
template <int MOST, int LEAST = 1> MYCC_INLINE void copy_bytes(void *to, const void *from, int64_t n) {
  char *d = (char *)to;
  const char *s = (const char *)from;
  if (n & MOST) { __builtin_memcpy(d, s, MOST); d += MOST; s += MOST; }
  if constexpr (MOST > LEAST) copy_bytes<MOST / 2, LEAST>(d, s, n);
}
/* n in [0, W] elements of SIZE bytes. */
template <int SIZE> MYCC_INLINE void copy_tail(void *to, const void *from, int n) {
  copy_bytes<W * SIZE, SIZE>(to, from, (int64_t)n * SIZE);
}
template <class V, int SIZE> MYCC_INLINE V load_pieces(const void *p, int n) {
  V v = {};
  copy_tail<SIZE>(&v, p, n);
  return v;
}
#if !defined(MYCC_AVX512)
MYCC_INLINE vi16 load_tail16(const void *p, int n) { return load_pieces<vi16, 2>(p, n); }
MYCC_INLINE void store_tail16(void *p, vi16 v, int n) { copy_tail<2>(p, &v, n); }
MYCC_INLINE vi8 load_tail8(const void *p, int n) { return load_pieces<vi8, 1>(p, n); }
MYCC_INLINE void store_tail8(void *p, vi8 v, int n) { copy_tail<1>(p, &v, n); }
#endif
#if !defined(MYCC_AVX2)
MYCC_INLINE vi32 load_tail32(const void *p, int n) { return load_pieces<vi32, 4>(p, n); }
MYCC_INLINE void store_tail32(void *p, vi32 v, int n) { copy_tail<4>(p, &v, n); }
MYCC_INLINE vi64 load_tail64(const void *p, int n) { return load_pieces<vi64, 8>(p, n); }
MYCC_INLINE void store_tail64(void *p, vi64 v, int n) { copy_tail<8>(p, &v, n); }
#endif

#undef MYCC_IS_HALF

/* Bytes to 32 bits, floats to doubles: GCC 12 takes the general conversions apart. */
#if defined(MYCC_X86)
typedef long long ll2 __attribute__((vector_size(16)));
template <class V> MYCC_INLINE c8 bytes16(V v) {
  long long x = 0;
  __builtin_memcpy(&x, &v, sizeof v);
  return (c8)ll2{x, 0};
}
#endif
#if defined(MYCC_AVX512)
MYCC_INLINE vi32 widen(vi8 v) {
  return MYCC_PICK((vi32)__builtin_ia32_pmovsxbd512_mask((c8)v, vi32{}, (short)-1),
                   (vi32)_mm512_cvtepi8_epi32((__m128i)v));
}
MYCC_INLINE vi32 widen(vu8 v) {
  return MYCC_PICK((vi32)__builtin_ia32_pmovzxbd512_mask((c8)v, vi32{}, (short)-1),
                   (vi32)_mm512_cvtepu8_epi32((__m128i)v));
}
MYCC_INLINE vi32 widen(vi16 v) {
  return MYCC_PICK((vi32)__builtin_ia32_pmovsxwd512_mask((s16)v, vi32{}, (short)-1),
                   (vi32)_mm512_cvtepi16_epi32((__m256i)v));
}
MYCC_INLINE vi32 widen(vu16 v) {
  return MYCC_PICK((vi32)__builtin_ia32_pmovzxwd512_mask((s16)v, vi32{}, (short)-1),
                   (vi32)_mm512_cvtepu16_epi32((__m256i)v));
}
MYCC_INLINE hf64 widen(qf32 v) {
  return MYCC_PICK(__builtin_ia32_cvtps2pd512_mask(v, hf64{}, (char)-1, 4), (hf64)_mm512_cvtps_pd((__m256)v));
}
#elif defined(MYCC_AVX2)
MYCC_INLINE vi32 widen(vi8 v) {
  return MYCC_PICK(__builtin_ia32_pmovsxbd256(bytes16(v)), (vi32)_mm256_cvtepi8_epi32((__m128i)bytes16(v)));
}
MYCC_INLINE vi32 widen(vu8 v) {
  return MYCC_PICK(__builtin_ia32_pmovzxbd256(bytes16(v)), (vi32)_mm256_cvtepu8_epi32((__m128i)bytes16(v)));
}
MYCC_INLINE vi32 widen(vi16 v) {
  return MYCC_PICK(__builtin_ia32_pmovsxwd256(v), (vi32)_mm256_cvtepi16_epi32((__m128i)v));
}
MYCC_INLINE vi32 widen(vu16 v) {
  return MYCC_PICK(__builtin_ia32_pmovzxwd256((vi16)v), (vi32)_mm256_cvtepu16_epi32((__m128i)v));
}
MYCC_INLINE hf64 widen(qf32 v) { return MYCC_PICK(__builtin_ia32_cvtps2pd256(v), (hf64)_mm256_cvtps_pd((__m128)v)); }
#elif defined(MYCC_SSE4)
MYCC_INLINE vi32 widen(vi8 v) {
  return MYCC_PICK(__builtin_ia32_pmovsxbd128(bytes16(v)), (vi32)_mm_cvtepi8_epi32((__m128i)bytes16(v)));
}
MYCC_INLINE vi32 widen(vu8 v) {
  return MYCC_PICK(__builtin_ia32_pmovzxbd128(bytes16(v)), (vi32)_mm_cvtepu8_epi32((__m128i)bytes16(v)));
}
MYCC_INLINE vi32 widen(vi16 v) { return __builtin_convertvector(v, vi32); }
MYCC_INLINE vi32 widen(vu16 v) { return __builtin_convertvector(v, vi32); }
MYCC_INLINE hf64 widen(qf32 v) { return __builtin_convertvector(v, hf64); }
#else
MYCC_INLINE vi32 widen(vi8 v) { return __builtin_convertvector(v, vi32); }
MYCC_INLINE vi32 widen(vu8 v) { return __builtin_convertvector(v, vi32); }
MYCC_INLINE vi32 widen(vi16 v) { return __builtin_convertvector(v, vi32); }
MYCC_INLINE vi32 widen(vu16 v) { return __builtin_convertvector(v, vi32); }
MYCC_INLINE hf64 widen(qf32 v) { return __builtin_convertvector(v, hf64); }
#endif

/* The lowest bytes: compilers mask them and pack twice. */
#if defined(MYCC_AVX512)
MYCC_INLINE vi8 narrow8(vi32 v) {
  return MYCC_PICK((vi8)__builtin_ia32_pmovdb512_mask(v, c8{}, (short)-1), (vi8)_mm512_cvtepi32_epi8((__m512i)v));
}
#elif defined(MYCC_AVX2)
MYCC_INLINE vi8 narrow8(vi32 v) {
  typedef char c32 __attribute__((vector_size(32)));
  const vi32 low = {0x0c080400, -1, -1, -1, 0x0c080400, -1, -1, -1};
  const c32 packed = MYCC_PICK(__builtin_ia32_pshufb256((c32)v, (c32)low),
                               (c32)_mm256_shuffle_epi8((__m256i)v, (__m256i)low));
  const vi32 halves = __builtin_shufflevector((vi32)packed, (vi32)packed, 0, 4, 1, 1, 4, 5, 6, 7);
  vi8 bytes;
  __builtin_memcpy(&bytes, &halves, sizeof bytes);
  return bytes;
}
#else
MYCC_INLINE vi8 narrow8(vi32 v) { return __builtin_convertvector(__builtin_convertvector(v, vi16), vi8); }
#endif

/* v[at[0]], v[at[1]], ..., of one vector or of two that lie side by side. */
#if !defined(__clang__)
template <class V> MYCC_INLINE V permute(V v, vi32 at) { return __builtin_shuffle(v, at); }
template <class V> MYCC_INLINE V permute(V a, V b, vi32 at) { return __builtin_shuffle(a, b, at); }
#elif defined(MYCC_AVX512)
template <class V> MYCC_INLINE V permute(V v, vi32 at) { return (V)_mm512_permutexvar_epi32((__m512i)at, (__m512i)v); }
template <class V> MYCC_INLINE V permute(V a, V b, vi32 at) {
  return (V)_mm512_permutex2var_epi32((__m512i)a, (__m512i)at, (__m512i)b);
}
#else
template <class V> MYCC_INLINE V permute(V v, vi32 at) {
#if defined(MYCC_AVX2)
  return (V)_mm256_permutevar8x32_epi32((__m256i)v, (__m256i)at);
#else
  return build<V>([=](int i) MYCC_INLINED { return v[at[i] & (W - 1)]; });
#endif
}
template <class V> MYCC_INLINE V permute(V a, V b, vi32 at) {
  const vi32 second = (at & W) != 0;
  return (V)((second & (vi32)permute(b, at)) | (~second & (vi32)permute(a, at)));
}
#endif

/* binary16 <-> binary32: round to nearest even; NaN stays NaN. */
#if defined(MYCC_AVX512)
MYCC_INLINE vf32 from_half(vi16 h) {
  return MYCC_PICK(__builtin_ia32_vcvtph2ps512_mask((s16)h, vf32{}, (short)-1, 4), (vf32)_mm512_cvtph_ps((__m256i)h));
}
MYCC_INLINE vi16 to_half(vf32 x) {
  return MYCC_PICK((vi16)__builtin_ia32_vcvtps2ph512_mask(x, 8, s16{}, (short)-1), (vi16)_mm512_cvtps_ph((__m512)x, 8));
}
#elif defined(MYCC_AVX2)
MYCC_INLINE vf32 from_half(vi16 h) {
  return MYCC_PICK(__builtin_ia32_vcvtph2ps256(h), (vf32)_mm256_cvtph_ps((__m128i)h));
}
MYCC_INLINE vi16 to_half(vf32 x) {
  return MYCC_PICK((vi16)__builtin_ia32_vcvtps2ph256(x, 8), (vi16)_mm256_cvtps_ph((__m256)x, 8));
}
#elif defined(MYCC_NEON)
MYCC_INLINE vf32 from_half(vi16 h) { return (vf32)vcvt_f32_f16((float16x4_t)h); }
MYCC_INLINE vi16 to_half(vf32 x) { return (vi16)vcvt_f16_f32((float32x4_t)x); }
#else
MYCC_INLINE vf32 from_half(vi16 h) {
  vi32 x = __builtin_convertvector((vu16)h, vi32);
  vi32 magnitude = (x & 0x7fff) << 13;
  vi32 scaled = bits(from_bits(magnitude) * 0x1p112f); /* moves the exponent; exact for subnormals too */
  vi32 special = magnitude | 0x7f800000;               /* infinity and NaN keep their payload */
  vi32 is_special = magnitude >= 0x0f800000;
  /* A signaling NaN becomes quiet, as with the instruction. */
  vi32 quiet = magnitude > 0x0f800000;
  special |= quiet & 0x00400000;
  return from_bits(((is_special & special) | (~is_special & scaled)) | ((x & 0x8000) << 16));
}
MYCC_INLINE vi16 to_half(vf32 v) {
  vi32 x = bits(v), magnitude = x & 0x7fffffff;
  /* Subnormal halves: adding 1/2 leaves the result, rounded to a multiple of 2^-24, in the low bits of the sum. */
  vi32 subnormal = bits(from_bits(magnitude) + 0.5f) - 0x3f000000;
  vi32 normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  vi32 nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  vi32 is_small = magnitude < 0x38800000, is_big = magnitude >= 0x477ff000, is_nan = magnitude > 0x7f800000;
  vi32 r = (is_small & subnormal) | (~is_small & normal);
  r = (is_big & 0x7c00) | (~is_big & r);
  r = (is_nan & nan) | (~is_nan & r);
  r |= (x >> 16) & 0x8000;
  return __builtin_convertvector(r, vi16);
}
#endif

/* binary32 -> its upper half: round to nearest even; NaN stays NaN and becomes quiet. */
#if defined(MYCC_AVX512)
MYCC_INLINE vi16 to_bfloat(vf32 x) { /* by masks, and a shuffle that takes the upper halves: 6 instructions, not 9 */
  typedef int16_t halves __attribute__((vector_size(64)));
  const vi32 b = bits(x), up = b + 0x8000, even = (up & 0xffff) == 0 ? up & ~0x10000 : up;
  const halves h = (halves)(x != x ? b | 0x400000 : even);
#if defined(__clang__)
  return __builtin_shufflevector(h, h, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#else
  const halves upper = __builtin_shuffle(h, halves{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31});
  vi16 result;
  __builtin_memcpy(&result, &upper, sizeof result);
  return result;
#endif
}
#else
MYCC_INLINE vi16 to_bfloat(vf32 x) {
  const vi32 b = bits(x), rounded = (vi32)((vu32)b + 0x7fffu + (((vu32)b >> 16) & 1u));
  return __builtin_convertvector((x != x ? b | 0x400000 : rounded) >> 16, vi16);
}
#endif

typedef int i4 __attribute__((vector_size(16)));
/* The 16 bytes at p, at p + step, .. side by side. */
#if defined(MYCC_AVX512)
MYCC_INLINE vi32 put_sixteen(vi32 v, const char *p, unsigned lanes) {
  ll2 piece;
  __builtin_memcpy(&piece, p, sizeof piece);
  return MYCC_PICK((vi32)__builtin_ia32_broadcasti32x4_512((i4)piece, v, (uint16_t)lanes),
                   (vi32)_mm512_mask_broadcast_i32x4((__m512i)v, (__mmask16)lanes, (__m128i)piece));
}
MYCC_INLINE vi32 load_sixteens(const void *p, int64_t step) {
  const char *at = (const char *)p;
  const vi32 two = put_sixteen(put_sixteen(vi32{}, at, 0xffffu), at + step, 0x00f0u);
  return put_sixteen(put_sixteen(two, at + 2 * step, 0x0f00u), at + 3 * step, 0xf000u);
}
/* The 32 bytes at p and at p + step side by side. */
MYCC_INLINE vi32 load_halves(const void *p, int64_t step) {
  typedef long long half __attribute__((vector_size(32)));
  half first, second;
  __builtin_memcpy(&first, p, sizeof first);
  __builtin_memcpy(&second, (const char *)p + step, sizeof second);
  return MYCC_PICK(
      (vi32)__builtin_ia32_broadcasti64x4_512(second, __builtin_ia32_broadcasti64x4_512(first, hll{}, 0xffu), 0xf0u),
      (vi32)_mm512_mask_broadcast_i64x4(_mm512_castsi256_si512((__m256i)first), 0xf0u, (__m256i)second));
}
#elif defined(MYCC_AVX2)
MYCC_INLINE vi32 load_sixteens(const void *p, int64_t step) {
  ll2 a, b;
  __builtin_memcpy(&a, p, sizeof a);
  __builtin_memcpy(&b, (const char *)p + step, sizeof b);
  return (vi32)MYCC_PICK(__builtin_ia32_insert128i256((hll)__builtin_ia32_si256_si((i4)a), b, 1),
                         _mm256_inserti128_si256(_mm256_castsi128_si256((__m128i)a), (__m128i)b, 1));
}
#else
MYCC_INLINE vi32 load_sixteens(const void *p, int64_t) {
  vi32 v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
#endif

} /* namespace isa */
} /* namespace mycc */
#endif /* MYCC_KERNELS_VEC_ISA_H */
