/* types.h: lanes, vector types and lane helpers. Included by vec/vec.h.
 *
 * Every vector has W lanes whatever its element, so that one loop handles mixed types. 32-bit elements fill one
 * register (vf32, vi32); 64-bit elements take two, kept as a pair of registers: GCC keeps vectors that are wider than
 * the machine's registers in memory, a struct of two native vectors it does not.
 */
#ifndef MYCC_KERNELS_VEC_TYPES_H
#define MYCC_KERNELS_VEC_TYPES_H

#include <stddef.h>
#include <stdint.h>

#if !defined(__GNUC__)
#error "mycc's kernels need GCC 11 or Clang 14 (vector extensions)"
#endif

#define MYCC_INLINE inline __attribute__((always_inline))
/* Behind the parameters of a lambda. */
#define MYCC_INLINED __attribute__((always_inline))

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define MYCC_AVX512 1
#define MYCC_AVX2 1
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define MYCC_AVX2 1
#elif defined(__SSE4_1__)
#define MYCC_SSE4 1
#elif defined(__aarch64__) && defined(__ARM_NEON)
#define MYCC_NEON 1
#endif

/* Calls M with all lane numbers, or with those of half a vector, followed by the further arguments. */
#if defined(MYCC_AVX512)
#define MYCC_LANES 16
#define MYCC_ALL 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#define MYCC_LOWER 0, 1, 2, 3, 4, 5, 6, 7
#define MYCC_UPPER 8, 9, 10, 11, 12, 13, 14, 15
#define MYCC_EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define MYCC_TWICE_LOWER 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7
#define MYCC_TWICE_UPPER 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15
#elif defined(MYCC_AVX2)
#define MYCC_LANES 8
#define MYCC_ALL 0, 1, 2, 3, 4, 5, 6, 7
#define MYCC_LOWER 0, 1, 2, 3
#define MYCC_UPPER 4, 5, 6, 7
#define MYCC_EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define MYCC_TWICE_LOWER 0, 0, 1, 1, 2, 2, 3, 3
#define MYCC_TWICE_UPPER 4, 4, 5, 5, 6, 6, 7, 7
#else
#define MYCC_LANES 4
#define MYCC_ALL 0, 1, 2, 3
#define MYCC_LOWER 0, 1
#define MYCC_UPPER 2, 3
#define MYCC_EVEN 0, 2, 4, 6
#define MYCC_TWICE_LOWER 0, 0, 1, 1
#define MYCC_TWICE_UPPER 2, 2, 3, 3
#endif

namespace mycc {

constexpr int W = MYCC_LANES;

/* Storage types. */
typedef float f32;
typedef double f64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef uint8_t u8;
struct half { uint16_t bits; };    /* IEEE binary16 */
struct bfloat { uint16_t bits; };  /* the upper half of a binary32 */
/* True where the byte is not 0. Memory is never read as a `bool`: callers may pass bytes other than 0 and 1, of which
 * compilers assume that there are none. */
struct boolean { uint8_t byte; };

/* Native vectors: W lanes of 32 bits, W/2 lanes of 64 bits (h...: half a vector), W/2 lanes of 32 bits (q...). */
typedef float vf32 __attribute__((vector_size(W * 4)));
typedef int32_t vi32 __attribute__((vector_size(W * 4)));
typedef uint32_t vu32 __attribute__((vector_size(W * 4)));
typedef double hf64 __attribute__((vector_size(W * 4)));
typedef int64_t hi64 __attribute__((vector_size(W * 4)));
typedef uint64_t hu64 __attribute__((vector_size(W * 4)));
typedef float qf32 __attribute__((vector_size(W * 2)));
typedef int32_t qi32 __attribute__((vector_size(W * 2)));
typedef int16_t vi16 __attribute__((vector_size(W * 2)));
typedef uint16_t vu16 __attribute__((vector_size(W * 2)));
typedef int8_t vi8 __attribute__((vector_size(W)));
typedef uint8_t vu8 __attribute__((vector_size(W)));

/* W lanes of 64 bits as two registers; lane i < W/2 lies in lo. */
struct vf64 {
  hf64 lo, hi;
  MYCC_INLINE double operator[](int i) const { return i < W / 2 ? lo[i] : hi[i - W / 2]; }
};
struct vi64 {
  hi64 lo, hi;
  MYCC_INLINE int64_t operator[](int i) const { return i < W / 2 ? lo[i] : hi[i - W / 2]; }
};

/* Truth of W lanes: 0 or -1 in each. A type of its own, so that overloads tell it from vi32. */
struct vbool {
  vi32 m;
  MYCC_INLINE bool operator[](int i) const { return m[i] != 0; }
};

#define MYCC_WIDE_BINARY(V, S, OP)                                                            \
  MYCC_INLINE V operator OP(V a, V b) { return {a.lo OP b.lo, a.hi OP b.hi}; }                \
  MYCC_INLINE V operator OP(V a, S b) { return {a.lo OP b, a.hi OP b}; }                      \
  MYCC_INLINE V operator OP(S a, V b) { return {a OP b.lo, a OP b.hi}; }                      \
  MYCC_INLINE V &operator OP##=(V &a, V b) { return a = a OP b; }                             \
  MYCC_INLINE V &operator OP##=(V &a, S b) { return a = a OP b; }
MYCC_WIDE_BINARY(vf64, double, +)
MYCC_WIDE_BINARY(vf64, double, -)
MYCC_WIDE_BINARY(vf64, double, *)
MYCC_WIDE_BINARY(vf64, double, /)
MYCC_WIDE_BINARY(vi64, int64_t, +)
MYCC_WIDE_BINARY(vi64, int64_t, -)
MYCC_WIDE_BINARY(vi64, int64_t, *)
MYCC_WIDE_BINARY(vi64, int64_t, &)
MYCC_WIDE_BINARY(vi64, int64_t, |)
MYCC_WIDE_BINARY(vi64, int64_t, ^)
MYCC_WIDE_BINARY(vi64, int64_t, <<)
MYCC_WIDE_BINARY(vi64, int64_t, >>)
#undef MYCC_WIDE_BINARY
MYCC_INLINE vf64 operator-(vf64 a) { return {-a.lo, -a.hi}; }
MYCC_INLINE vi64 operator-(vi64 a) { return {-a.lo, -a.hi}; }
MYCC_INLINE vi64 operator~(vi64 a) { return {~a.lo, ~a.hi}; }
MYCC_INLINE vbool operator&(vbool a, vbool b) { return {a.m & b.m}; }
MYCC_INLINE vbool operator|(vbool a, vbool b) { return {a.m | b.m}; }
MYCC_INLINE vbool operator^(vbool a, vbool b) { return {a.m ^ b.m}; }
MYCC_INLINE vbool operator~(vbool a) { return {~a.m}; }

/* Lane numbers as a pack: build<V>(f) is the vector of f(0) .. f(W-1), built in registers. */
template <int... I> struct lane_list {};
typedef lane_list<MYCC_ALL> all_lanes;
typedef lane_list<MYCC_LOWER> lower_lanes;
typedef lane_list<MYCC_UPPER> upper_lanes;
template <class V, class F, int... I> MYCC_INLINE V build_lanes(F f, lane_list<I...>) { return V{f(I)...}; }
template <class V> struct builder {
  template <class F> static MYCC_INLINE V of(F f) { return build_lanes<V>(f, all_lanes()); }
};
template <> struct builder<vf64> {
  template <class F> static MYCC_INLINE vf64 of(F f) {
    return {build_lanes<hf64>(f, lower_lanes()), build_lanes<hf64>(f, upper_lanes())};
  }
};
template <> struct builder<vi64> {
  template <class F> static MYCC_INLINE vi64 of(F f) {
    return {build_lanes<hi64>(f, lower_lanes()), build_lanes<hi64>(f, upper_lanes())};
  }
};
template <> struct builder<vbool> {
  template <class F> static MYCC_INLINE vbool of(F f) {
    return {build_lanes<vi32>([&](int i) MYCC_INLINED { return f(i) ? -1 : 0; }, all_lanes())};
  }
};
template <class V, class F> MYCC_INLINE V build(F f) { return builder<V>::of(f); }

/* The bits of a vector as integers, and back. */
MYCC_INLINE vi32 bits(vf32 x) { return (vi32)x; }
MYCC_INLINE hi64 bits(hf64 x) { return (hi64)x; }
MYCC_INLINE vi64 bits(vf64 x) { return {(hi64)x.lo, (hi64)x.hi}; }
MYCC_INLINE vf32 from_bits(vi32 x) { return (vf32)x; }
MYCC_INLINE hf64 from_bits(hi64 x) { return (hf64)x; }
MYCC_INLINE vf64 from_bits(vi64 x) { return {(hf64)x.lo, (hf64)x.hi}; }
MYCC_INLINE int32_t bits(float x) { int32_t r; __builtin_memcpy(&r, &x, 4); return r; }
MYCC_INLINE int64_t bits(double x) { int64_t r; __builtin_memcpy(&r, &x, 8); return r; }
MYCC_INLINE float from_bits(int32_t x) { float r; __builtin_memcpy(&r, &x, 4); return r; }
MYCC_INLINE double from_bits(int64_t x) { double r; __builtin_memcpy(&r, &x, 8); return r; }

/* Halves of vectors. Named shuffles, because GCC 11 lacks the one builtin that all later compilers share. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define MYCC_SHUFFLEVECTOR 1
#endif
#endif
#if defined(MYCC_SHUFFLEVECTOR)
#define MYCC_SHUFFLE(R, a, b, ...) ((R)__builtin_shufflevector(a, b, __VA_ARGS__))
#else
template <class R, class A, int... I> MYCC_INLINE R shuffle_lanes(A a, A b, lane_list<I...>) {
  constexpr int n = int(sizeof(A) / sizeof(a[0]));
  return R{(I < n ? a[I < n ? I : 0] : b[I < n ? 0 : I - n])...};
}
#define MYCC_SHUFFLE(R, a, b, ...) shuffle_lanes<R>(a, b, lane_list<__VA_ARGS__>())
#endif
MYCC_INLINE qf32 lower(vf32 v) { return MYCC_SHUFFLE(qf32, v, v, MYCC_LOWER); }
MYCC_INLINE qf32 upper(vf32 v) { return MYCC_SHUFFLE(qf32, v, v, MYCC_UPPER); }
MYCC_INLINE qi32 lower(vi32 v) { return MYCC_SHUFFLE(qi32, v, v, MYCC_LOWER); }
MYCC_INLINE qi32 upper(vi32 v) { return MYCC_SHUFFLE(qi32, v, v, MYCC_UPPER); }
MYCC_INLINE vf32 join(qf32 lo, qf32 hi) { return MYCC_SHUFFLE(vf32, lo, hi, MYCC_ALL); }
MYCC_INLINE vi32 join(qi32 lo, qi32 hi) { return MYCC_SHUFFLE(vi32, lo, hi, MYCC_ALL); }
/* The lower 32 bits of each lane (the machines are little endian). */
MYCC_INLINE vi32 narrow(hi64 lo, hi64 hi) { return MYCC_SHUFFLE(vi32, (vi32)lo, (vi32)hi, MYCC_EVEN); }
/* A 32-bit mask as masks of 64-bit lanes. */
MYCC_INLINE hi64 widen_lower(vi32 m) { return (hi64)MYCC_SHUFFLE(vi32, m, m, MYCC_TWICE_LOWER); }
MYCC_INLINE hi64 widen_upper(vi32 m) { return (hi64)MYCC_SHUFFLE(vi32, m, m, MYCC_TWICE_UPPER); }

MYCC_INLINE vf32 splat(float x) { return build<vf32>([=](int) MYCC_INLINED { return x; }); }
MYCC_INLINE vi32 splat(int32_t x) { return build<vi32>([=](int) MYCC_INLINED { return x; }); }
MYCC_INLINE vf64 splat(double x) { return build<vf64>([=](int) MYCC_INLINED { return x; }); }
MYCC_INLINE vi64 splat(int64_t x) { return build<vi64>([=](int) MYCC_INLINED { return x; }); }
MYCC_INLINE vbool splat(bool x) { return {splat(x ? -1 : 0)}; }
MYCC_INLINE vf32 splat(vf32 x) { return x; }
MYCC_INLINE vi32 splat(vi32 x) { return x; }
MYCC_INLINE vf64 splat(vf64 x) { return x; }
MYCC_INLINE vi64 splat(vi64 x) { return x; }
MYCC_INLINE vbool splat(vbool x) { return x; }

/* base, base + 1, .. base + W - 1. */
MYCC_INLINE vi32 lane_numbers() { return vi32{MYCC_ALL}; }
MYCC_INLINE vi64 iota(int64_t base) { return {hi64{MYCC_LOWER} + base, hi64{MYCC_UPPER} + base}; }

} /* namespace mycc */
#endif /* MYCC_KERNELS_VEC_TYPES_H */
