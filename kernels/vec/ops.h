/* ops.h: comparisons, logic, selection, minima and maxima, integers and casts. Included by vec/vec.h.
 *
 * All functions take vectors, scalars, or a vector and a scalar of its element type. Meanings are torch's: Python's
 * sign rules for floor_div and remainder, NaN propagated by maximum and minimum, shifts out of range saturate,
 * integers wrap (compile with -fwrapv).
 */
#ifndef MYCC_KERNELS_VEC_OPS_H
#define MYCC_KERNELS_VEC_OPS_H

#include "kernels/vec/memory.h"

namespace mycc {

/* name(V, S) and name(S, V) from name(V, V). */
#define MYCC_MIXED(R, NAME, V, S)                                       \
  MYCC_INLINE R NAME(V a, S b) { return NAME(a, splat(b)); }            \
  MYCC_INLINE R NAME(S a, V b) { return NAME(splat(a), b); }
#define MYCC_MIXED_FLOATS(NAME) MYCC_MIXED(vf32, NAME, vf32, float) MYCC_MIXED(vf64, NAME, vf64, double)
#define MYCC_MIXED_INTS(NAME) MYCC_MIXED(vi32, NAME, vi32, int32_t) MYCC_MIXED(vi64, NAME, vi64, int64_t)

/* ---- comparisons ---- */
#define MYCC_COMPARE(NAME, OP)                                                                               \
  MYCC_INLINE vbool NAME(vf32 a, vf32 b) { return {a OP b}; }                                                \
  MYCC_INLINE vbool NAME(vi32 a, vi32 b) { return {a OP b}; }                                                \
  MYCC_INLINE vbool NAME(vf64 a, vf64 b) { return {narrow((hi64)(a.lo OP b.lo), (hi64)(a.hi OP b.hi))}; }    \
  MYCC_INLINE vbool NAME(vi64 a, vi64 b) { return {narrow((hi64)(a.lo OP b.lo), (hi64)(a.hi OP b.hi))}; }    \
  MYCC_INLINE vbool NAME(vbool a, vbool b) { return {-a.m OP -b.m}; }                                        \
  MYCC_INLINE bool NAME(float a, float b) { return a OP b; }                                                 \
  MYCC_INLINE bool NAME(double a, double b) { return a OP b; }                                               \
  MYCC_INLINE bool NAME(int32_t a, int32_t b) { return a OP b; }                                             \
  MYCC_INLINE bool NAME(int64_t a, int64_t b) { return a OP b; }                                             \
  MYCC_INLINE bool NAME(bool a, bool b) { return a OP b; }                                                   \
  MYCC_MIXED(vbool, NAME, vf32, float)                                                                       \
  MYCC_MIXED(vbool, NAME, vf64, double)                                                                      \
  MYCC_MIXED(vbool, NAME, vi32, int32_t)                                                                     \
  MYCC_MIXED(vbool, NAME, vi64, int64_t)                                                                     \
  MYCC_MIXED(vbool, NAME, vbool, bool)
MYCC_COMPARE(eq, ==)
MYCC_COMPARE(ne, !=)
MYCC_COMPARE(lt, <)
MYCC_COMPARE(le, <=)
MYCC_COMPARE(gt, >)
MYCC_COMPARE(ge, >=)
#undef MYCC_COMPARE

/* The first n lanes. */
MYCC_INLINE vbool first_lanes(int n) { return {lane_numbers() < n}; }
/* The lanes i with first + i < limit, and those with first + i <= limit. */
MYCC_INLINE vbool lanes_below(int64_t first, int64_t limit) {
  const uint64_t lanes = (uint64_t)limit - (uint64_t)first;
  return first_lanes(limit <= first ? 0 : lanes < W ? (int)lanes : W);
}
MYCC_INLINE vbool lanes_up_to(int64_t first, int64_t limit) {
  const uint64_t lanes = (uint64_t)limit - (uint64_t)first;
  return first_lanes(limit < first ? 0 : lanes < W ? (int)lanes + 1 : W);
}
MYCC_INLINE bool any(vbool c) { return isa::any(c.m); }
MYCC_INLINE bool all(vbool c) { return isa::all(c.m); }
MYCC_INLINE bool any(bool c) { return c; }
MYCC_INLINE bool all(bool c) { return c; }

/* ---- selection ---- */
MYCC_INLINE vf32 where(vbool c, vf32 a, vf32 b) { return c.m < 0 ? a : b; }
MYCC_INLINE vi32 where(vbool c, vi32 a, vi32 b) { return c.m < 0 ? a : b; }
MYCC_INLINE vf64 where(vbool c, vf64 a, vf64 b) {
  return {widen_lower(c.m) < 0 ? a.lo : b.lo, widen_upper(c.m) < 0 ? a.hi : b.hi};
}
MYCC_INLINE vi64 where(vbool c, vi64 a, vi64 b) {
  return {widen_lower(c.m) < 0 ? a.lo : b.lo, widen_upper(c.m) < 0 ? a.hi : b.hi};
}
MYCC_INLINE vbool where(vbool c, vbool a, vbool b) { return (c & a) | (~c & b); }
#define MYCC_WHERE(V, S)                                                                   \
  MYCC_INLINE V where(vbool c, V a, S b) { return where(c, a, splat(b)); }                 \
  MYCC_INLINE V where(vbool c, S a, V b) { return where(c, splat(a), b); }                 \
  MYCC_INLINE V where(vbool c, S a, S b) { return where(c, splat(a), splat(b)); }          \
  MYCC_INLINE V where(bool c, V a, V b) { return c ? a : b; }                              \
  MYCC_INLINE V where(bool c, V a, S b) { return c ? a : splat(b); }                       \
  MYCC_INLINE V where(bool c, S a, V b) { return c ? splat(a) : b; }                       \
  MYCC_INLINE S where(bool c, S a, S b) { return c ? a : b; }
MYCC_WHERE(vf32, float)
MYCC_WHERE(vf64, double)
MYCC_WHERE(vi32, int32_t)
MYCC_WHERE(vi64, int64_t)
MYCC_WHERE(vbool, bool)
#undef MYCC_WHERE

/* ---- casts ---- */
MYCC_INLINE float to_f32(float x) { return x; }
MYCC_INLINE float to_f32(double x) { return (float)x; }
MYCC_INLINE float to_f32(int32_t x) { return (float)x; }
MYCC_INLINE float to_f32(int64_t x) { return (float)x; }
MYCC_INLINE float to_f32(bool x) { return x ? 1.0f : 0.0f; }
MYCC_INLINE double to_f64(float x) { return x; }
MYCC_INLINE double to_f64(double x) { return x; }
MYCC_INLINE double to_f64(int32_t x) { return x; }
MYCC_INLINE double to_f64(int64_t x) { return (double)x; }
MYCC_INLINE double to_f64(bool x) { return x ? 1.0 : 0.0; }
MYCC_INLINE int32_t to_i32(float x) { return (int32_t)x; }
MYCC_INLINE int32_t to_i32(double x) { return (int32_t)x; }
MYCC_INLINE int32_t nearest_i32(float x) { return (int32_t)__builtin_nearbyintf(x); }
MYCC_INLINE int32_t to_i32(int32_t x) { return x; }
MYCC_INLINE int32_t to_i32(int64_t x) { return (int32_t)x; }
MYCC_INLINE int32_t to_i32(bool x) { return x; }
MYCC_INLINE int64_t to_i64(float x) { return (int64_t)x; }
MYCC_INLINE int64_t to_i64(double x) { return (int64_t)x; }
MYCC_INLINE int64_t to_i64(int32_t x) { return x; }
MYCC_INLINE int64_t to_i64(int64_t x) { return x; }
MYCC_INLINE int64_t to_i64(bool x) { return x; }
MYCC_INLINE bool to_bool(float x) { return x != 0; }
MYCC_INLINE bool to_bool(double x) { return x != 0; }
MYCC_INLINE bool to_bool(int32_t x) { return x != 0; }
MYCC_INLINE bool to_bool(int64_t x) { return x != 0; }
MYCC_INLINE bool to_bool(bool x) { return x; }

/* A number that no type of integers holds: the compiler would convert it as it likes, the machine does it as in torch. */
MYCC_INLINE float unfolded(float x) { volatile float read = x; return read; }
MYCC_INLINE double unfolded(double x) { volatile double read = x; return read; }

/* 64-bit integers and floats: instructions where the machine has them, else lane by lane. */
#if defined(MYCC_AVX512) || defined(MYCC_NEON)
MYCC_INLINE vf64 to_f64(vi64 x) { return {__builtin_convertvector(x.lo, hf64), __builtin_convertvector(x.hi, hf64)}; }
MYCC_INLINE vi64 to_i64(vf64 x) { return {__builtin_convertvector(x.lo, hi64), __builtin_convertvector(x.hi, hi64)}; }
#else
MYCC_INLINE vf64 to_f64(vi64 x) {
  return build<vf64>([=](int i) MYCC_INLINED { return (double)x[i]; });
}
MYCC_INLINE vi64 to_i64(vf64 x) {
  return build<vi64>([=](int i) MYCC_INLINED { return (int64_t)x[i]; });
}
#endif
#if defined(MYCC_AVX512)
MYCC_INLINE vi64 to_i64(vf32 x) {
  return {__builtin_convertvector(lower(x), hi64), __builtin_convertvector(upper(x), hi64)};
}
MYCC_INLINE vf32 to_f32(vi64 x) {
  return join(__builtin_convertvector(x.lo, qf32), __builtin_convertvector(x.hi, qf32));
}
#else
MYCC_INLINE vi64 to_i64(vf32 x) {
  return build<vi64>([=](int i) MYCC_INLINED { return (int64_t)x[i]; });
}
MYCC_INLINE vf32 to_f32(vi64 x) {
  return build<vf32>([=](int i) MYCC_INLINED { return (float)x[i]; });
}
#endif
MYCC_INLINE vf32 to_f32(vf32 x) { return x; }
MYCC_INLINE vf32 to_f32(vf64 x) {
  return join(__builtin_convertvector(x.lo, qf32), __builtin_convertvector(x.hi, qf32));
}
MYCC_INLINE vf32 to_f32(vi32 x) { return __builtin_convertvector(x, vf32); }
MYCC_INLINE vf32 to_f32(vbool x) { return from_bits(x.m & bits(1.0f)); }
MYCC_INLINE vf64 to_f64(vf32 x) {
  return {isa::widen(lower(x)), isa::widen(upper(x))};
}
MYCC_INLINE vf64 to_f64(vf64 x) { return x; }
MYCC_INLINE vf64 to_f64(vi32 x) {
  return {__builtin_convertvector(lower(x), hf64), __builtin_convertvector(upper(x), hf64)};
}
MYCC_INLINE vf64 to_f64(vbool x) { return to_f64(-x.m); }
MYCC_INLINE vi32 to_i32(vf32 x) { return __builtin_convertvector(x, vi32); }
MYCC_INLINE vi32 to_i32(vf64 x) {
  return join(__builtin_convertvector(x.lo, qi32), __builtin_convertvector(x.hi, qi32));
}
MYCC_INLINE vi32 nearest_i32(vf32 x) { return isa::nearest(x); }
MYCC_INLINE vi32 to_i32(vi32 x) { return x; }
MYCC_INLINE vi32 to_i32(vi64 x) { return narrow(x.lo, x.hi); }
MYCC_INLINE vi32 to_i32(vbool x) { return -x.m; }
MYCC_INLINE vi64 to_i64(vi32 x) {
  return {__builtin_convertvector(lower(x), hi64), __builtin_convertvector(upper(x), hi64)};
}
MYCC_INLINE vi64 to_i64(vi64 x) { return x; }
MYCC_INLINE vi64 to_i64(vbool x) { return to_i64(-x.m); }
MYCC_INLINE vbool to_bool(vf32 x) { return ne(x, 0.0f); }
MYCC_INLINE vbool to_bool(vf64 x) { return ne(x, 0.0); }
MYCC_INLINE vbool to_bool(vi32 x) { return ne(x, 0); }
MYCC_INLINE vbool to_bool(vi64 x) { return ne(x, (int64_t)0); }
MYCC_INLINE vbool to_bool(vbool x) { return x; }

/* Values of the narrow integers, kept in 32 bits: the wrapped low bits. */
template <class T> MYCC_INLINE auto to_i8(T x) { return (to_i32(x) << 24) >> 24; }
template <class T> MYCC_INLINE auto to_u8(T x) { return to_i32(x) & 0xff; }
template <class T> MYCC_INLINE auto to_i16(T x) { return (to_i32(x) << 16) >> 16; }

/* Values of the narrow floats, kept in 32 bits: rounded to nearest even. */
MYCC_INLINE vf32 round_f16(vf32 x) { return isa::from_half(isa::to_half(x)); }
MYCC_INLINE vf32 round_bf16(vf32 x) { return storage::from_bfloat(storage::to_bfloat(x)); }
MYCC_INLINE float round_f16(float x) { return round_f16(splat(x))[0]; }
MYCC_INLINE float round_bf16(float x) { return round_bf16(splat(x))[0]; }
template <class T> MYCC_INLINE auto to_f16(T x) { return round_f16(to_f32(x)); }
template <class T> MYCC_INLINE auto to_bf16(T x) { return round_bf16(to_f32(x)); }

/* ---- bits as integers, and back; those of narrow floats are the lowest 16 ---- */
MYCC_INLINE vi32 bits_of_f32(vf32 x) { return bits(x); }
MYCC_INLINE vf32 f32_of_bits(vi32 x) { return from_bits(x); }
MYCC_INLINE vi64 bits_of_f64(vf64 x) { return bits(x); }
MYCC_INLINE vf64 f64_of_bits(vi64 x) { return from_bits(x); }
MYCC_INLINE vi32 bits_of_f16(vf32 x) { return storage::widen((vu16)isa::to_half(x)); }
MYCC_INLINE vf32 f16_of_bits(vi32 x) { return isa::from_half(__builtin_convertvector(x, vi16)); }
MYCC_INLINE vi32 bits_of_bf16(vf32 x) { return storage::widen((vu16)storage::to_bfloat(x)); }
MYCC_INLINE vf32 bf16_of_bits(vi32 x) { return from_bits(x << 16); }
MYCC_INLINE int32_t bits_of_f32(float x) { return bits(x); }
MYCC_INLINE float f32_of_bits(int32_t x) { return from_bits(x); }
MYCC_INLINE int64_t bits_of_f64(double x) { return bits(x); }
MYCC_INLINE double f64_of_bits(int64_t x) { return from_bits(x); }
MYCC_INLINE int32_t bits_of_f16(float x) { return bits_of_f16(splat(x))[0]; }
MYCC_INLINE float f16_of_bits(int32_t x) { return f16_of_bits(splat(x))[0]; }
MYCC_INLINE int32_t bits_of_bf16(float x) { return bits_of_bf16(splat(x))[0]; }
MYCC_INLINE float bf16_of_bits(int32_t x) { return from_bits((int32_t)((uint32_t)x << 16)); }

/* ---- signs and classes ---- */
MYCC_INLINE vf32 abs(vf32 x) { return from_bits(bits(x) & 0x7fffffff); }
MYCC_INLINE vf64 abs(vf64 x) { return from_bits(bits(x) & INT64_C(0x7fffffffffffffff)); }
MYCC_INLINE float abs(float x) { return __builtin_fabsf(x); }
MYCC_INLINE double abs(double x) { return __builtin_fabs(x); }
MYCC_INLINE vi32 abs(vi32 x) { return x < 0 ? -x : x; }
MYCC_INLINE vi64 abs(vi64 x) { return {x.lo < 0 ? -x.lo : x.lo, x.hi < 0 ? -x.hi : x.hi}; }
MYCC_INLINE int32_t abs(int32_t x) { return x < 0 ? -x : x; }
MYCC_INLINE int64_t abs(int64_t x) { return x < 0 ? -x : x; }

MYCC_INLINE vf32 copysign(vf32 x, vf32 sign) {
  return from_bits((bits(x) & 0x7fffffff) | (bits(sign) & (int32_t)0x80000000));
}
MYCC_INLINE vf64 copysign(vf64 x, vf64 sign) {
  return from_bits((bits(x) & INT64_C(0x7fffffffffffffff)) | (bits(sign) & INT64_MIN));
}
MYCC_INLINE float copysign(float x, float sign) { return __builtin_copysignf(x, sign); }
MYCC_INLINE double copysign(double x, double sign) { return __builtin_copysign(x, sign); }
MYCC_MIXED_FLOATS(copysign)

/* -1, 0 or 1; of NaN 0, as torch has it. */
template <class T> MYCC_INLINE T sign_of(T x, T zero, T one) {
  return where(lt(zero, x), one, zero) - where(lt(x, zero), one, zero);
}
MYCC_INLINE vf32 sign(vf32 x) { return sign_of(x, splat(0.0f), splat(1.0f)); }
MYCC_INLINE vf64 sign(vf64 x) { return sign_of(x, splat(0.0), splat(1.0)); }
MYCC_INLINE vi32 sign(vi32 x) { return (x < 0) - (x > 0); }
MYCC_INLINE vi64 sign(vi64 x) { return sign_of(x, splat(INT64_C(0)), splat(INT64_C(1))); }
MYCC_INLINE float sign(float x) { return (float)((x > 0) - (x < 0)); }
MYCC_INLINE double sign(double x) { return (double)((x > 0) - (x < 0)); }
MYCC_INLINE int32_t sign(int32_t x) { return (x > 0) - (x < 0); }
MYCC_INLINE int64_t sign(int64_t x) { return (x > 0) - (x < 0); }

template <class T> MYCC_INLINE auto isnan(T x) { return ne(x, x); }
MYCC_INLINE vbool isinf(vf32 x) { return eq(abs(x), __builtin_inff()); }
MYCC_INLINE vbool isinf(vf64 x) { return eq(abs(x), __builtin_inf()); }
MYCC_INLINE bool isinf(float x) { return abs(x) == __builtin_inff(); }
MYCC_INLINE bool isinf(double x) { return abs(x) == __builtin_inf(); }
MYCC_INLINE vbool isfinite(vf32 x) { return lt(abs(x), __builtin_inff()); }
MYCC_INLINE vbool isfinite(vf64 x) { return lt(abs(x), __builtin_inf()); }
MYCC_INLINE bool isfinite(float x) { return abs(x) < __builtin_inff(); }
MYCC_INLINE bool isfinite(double x) { return abs(x) < __builtin_inf(); }

/* ---- minima and maxima: maximum and minimum propagate NaN, fmax and fmin ignore it; of equals the first ---- */
#define MYCC_EXTREMUM(NAME, FNAME, PICK, OP, BITS)                                                          \
  MYCC_INLINE hf64 NAME(hf64 a, hf64 b) { return b != b ? b : isa::PICK(b, a); }                            \
  MYCC_INLINE hf64 FNAME(hf64 a, hf64 b) { return a != a ? b : isa::PICK(b, a); }                           \
  MYCC_INLINE vf32 NAME(vf32 a, vf32 b) { return b != b ? b : isa::PICK(b, a); }                            \
  MYCC_INLINE vf32 FNAME(vf32 a, vf32 b) { return a != a ? b : isa::PICK(b, a); }                           \
  MYCC_INLINE vf64 NAME(vf64 a, vf64 b) { return {NAME(a.lo, b.lo), NAME(a.hi, b.hi)}; }                    \
  MYCC_INLINE vf64 FNAME(vf64 a, vf64 b) { return {FNAME(a.lo, b.lo), FNAME(a.hi, b.hi)}; }                 \
  MYCC_INLINE hi64 NAME(hi64 a, hi64 b) { return b OP a ? b : a; }                                          \
  MYCC_INLINE vi32 NAME(vi32 a, vi32 b) { return b OP a ? b : a; }                                          \
  MYCC_INLINE vi64 NAME(vi64 a, vi64 b) { return {NAME(a.lo, b.lo), NAME(a.hi, b.hi)}; }                    \
  MYCC_INLINE vbool NAME(vbool a, vbool b) { return a BITS b; }                                             \
  MYCC_INLINE float NAME(float a, float b) { return b != b || b OP a ? b : a; }                             \
  MYCC_INLINE float FNAME(float a, float b) { return a != a || b OP a ? b : a; }                            \
  MYCC_INLINE double NAME(double a, double b) { return b != b || b OP a ? b : a; }                          \
  MYCC_INLINE double FNAME(double a, double b) { return a != a || b OP a ? b : a; }                         \
  MYCC_INLINE int32_t NAME(int32_t a, int32_t b) { return b OP a ? b : a; }                                 \
  MYCC_INLINE int64_t NAME(int64_t a, int64_t b) { return b OP a ? b : a; }                                 \
  MYCC_INLINE bool NAME(bool a, bool b) { return (a BITS b) != 0; }                                         \
  /* With a number on the right, the usual clamp, one instruction does: it gives `a` when `a` is NaN. */    \
  MYCC_INLINE vf32 NAME(vf32 a, float b) { return b != b ? splat(b) : isa::PICK(splat(b), a); }             \
  MYCC_INLINE vf32 NAME(float a, vf32 b) { return NAME(splat(a), b); }                                      \
  MYCC_MIXED(vf64, NAME, vf64, double)                                                                      \
  MYCC_MIXED_FLOATS(FNAME)                                                                                  \
  MYCC_MIXED_INTS(NAME)                                                                                     \
  MYCC_MIXED(vbool, NAME, vbool, bool)
MYCC_EXTREMUM(maximum, fmax, max, >, |)
MYCC_EXTREMUM(minimum, fmin, min, <, &)
#undef MYCC_EXTREMUM

/* ---- integers ---- */
MYCC_INLINE vi32 bit_not(vi32 a) { return ~a; }
MYCC_INLINE vi64 bit_not(vi64 a) { return ~a; }
MYCC_INLINE int32_t bit_not(int32_t a) { return ~a; }
MYCC_INLINE int64_t bit_not(int64_t a) { return ~a; }
MYCC_INLINE vbool bit_not(vbool a) { return ~a; }
MYCC_INLINE bool bit_not(bool a) { return !a; }
#define MYCC_BITWISE(NAME, OP)                                         \
  MYCC_INLINE vi32 NAME(vi32 a, vi32 b) { return a OP b; }             \
  MYCC_INLINE vi64 NAME(vi64 a, vi64 b) { return a OP b; }             \
  MYCC_INLINE vbool NAME(vbool a, vbool b) { return a OP b; }          \
  MYCC_INLINE int32_t NAME(int32_t a, int32_t b) { return a OP b; }    \
  MYCC_INLINE int64_t NAME(int64_t a, int64_t b) { return a OP b; }    \
  MYCC_INLINE bool NAME(bool a, bool b) { return (a OP b) != 0; }      \
  MYCC_MIXED_INTS(NAME)                                                \
  MYCC_MIXED(vbool, NAME, vbool, bool)
MYCC_BITWISE(bit_and, &)
MYCC_BITWISE(bit_or, |)
MYCC_BITWISE(bit_xor, ^)
#undef MYCC_BITWISE

/* A product of numbers from -2^15 to 2^15 - 1: x86 multiplies words faster than it does numbers of 32 bits. */
MYCC_INLINE vi32 mul_words(vi32 a, vi32 b) {
#if defined(MYCC_X86)
  return isa::add_pairs(a, b & 0xffff);
#else
  return a * b;
#endif
}
MYCC_INLINE int32_t mul_words(int32_t a, int32_t b) { return a * b; }
MYCC_MIXED(vi32, mul_words, vi32, int32_t)

/* ---- logic of truth values; other types are compared with 0 first ---- */
template <class A, class B> MYCC_INLINE auto logical_and(A a, B b) { return bit_and(to_bool(a), to_bool(b)); }
template <class A, class B> MYCC_INLINE auto logical_or(A a, B b) { return bit_or(to_bool(a), to_bool(b)); }
template <class A, class B> MYCC_INLINE auto logical_xor(A a, B b) { return bit_xor(to_bool(a), to_bool(b)); }
template <class A> MYCC_INLINE auto logical_not(A a) { return bit_not(to_bool(a)); }

/* A shift by less than 0 or by the width or more: 0 to the left, all sign bits to the right. */
MYCC_INLINE vi32 shift_left(vi32 a, vi32 b) {
  vi32 outside = (vi32)((vu32)b > 31u);
  return (vi32)((vu32)a << (vu32)(b & 31)) & ~outside;
}
MYCC_INLINE vi32 shift_right(vi32 a, vi32 b) { return a >> ((vu32)b > 31u ? splat(31) : b); }
MYCC_INLINE hi64 shift_left(hi64 a, hi64 b) {
  hi64 outside = (hi64)((hu64)b > 63u);
  return (hi64)((hu64)a << (hu64)(b & 63)) & ~outside;
}
MYCC_INLINE hi64 shift_right(hi64 a, hi64 b) { return a >> ((hu64)b > 63u ? hi64{} + 63 : b); }
MYCC_INLINE vi64 shift_left(vi64 a, vi64 b) { return {shift_left(a.lo, b.lo), shift_left(a.hi, b.hi)}; }
MYCC_INLINE vi64 shift_right(vi64 a, vi64 b) { return {shift_right(a.lo, b.lo), shift_right(a.hi, b.hi)}; }
MYCC_INLINE int32_t shift_left(int32_t a, int32_t b) { return (uint32_t)b > 31 ? 0 : (int32_t)((uint32_t)a << b); }
MYCC_INLINE int64_t shift_left(int64_t a, int64_t b) { return (uint64_t)b > 63 ? 0 : (int64_t)((uint64_t)a << b); }
MYCC_INLINE int32_t shift_right(int32_t a, int32_t b) { return a >> ((uint32_t)b > 31 ? 31 : b); }
MYCC_INLINE int64_t shift_right(int64_t a, int64_t b) { return a >> ((uint64_t)b > 63 ? 63 : b); }
MYCC_MIXED_INTS(shift_left)
MYCC_MIXED_INTS(shift_right)

/* Integer division never traps: a division by zero gives 0, and so does its remainder; the smallest integer divided
 * by -1 wraps. trunc_div and fmod round to zero as C does, floor_div and remainder down as Python does. */
MYCC_INLINE int64_t trunc_div(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}
MYCC_INLINE int32_t trunc_div(int32_t a, int32_t b) {
  return b == 0 ? 0 : b == -1 ? (int32_t)(0 - (uint32_t)a) : a / b;
}
template <class T> MYCC_INLINE T fmod_int(T a, T b) { return b == 0 || b == -1 ? 0 : a % b; }
MYCC_INLINE int32_t fmod(int32_t a, int32_t b) { return fmod_int(a, b); }
MYCC_INLINE int64_t fmod(int64_t a, int64_t b) { return fmod_int(a, b); }
template <class T> MYCC_INLINE T floor_div_int(T a, T b) {
  return trunc_div(a, b) - (T)(fmod_int(a, b) != 0 && (a < 0) != (b < 0));
}
template <class T> MYCC_INLINE T remainder_int(T a, T b) {
  T r = fmod_int(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
MYCC_INLINE int32_t floor_div(int32_t a, int32_t b) { return floor_div_int(a, b); }
MYCC_INLINE int64_t floor_div(int64_t a, int64_t b) { return floor_div_int(a, b); }
MYCC_INLINE int32_t remainder(int32_t a, int32_t b) { return remainder_int(a, b); }
MYCC_INLINE int64_t remainder(int64_t a, int64_t b) { return remainder_int(a, b); }
/* 32-bit vectors divide in double precision: the quotient of two 32-bit integers differs from the next integer by at
 * least 2^-31 of itself, far more than the rounding error, so truncation and floor are exact. */
MYCC_INLINE vi32 trunc_div(vi32 a, vi32 b) {
  vi32 q = to_i32(to_f64(a) / to_f64(b));
  return b != 0 ? q : vi32{};
}
MYCC_INLINE vi32 fmod(vi32 a, vi32 b) { return b != 0 ? a - trunc_div(a, b) * b : vi32{}; }
MYCC_INLINE vi32 remainder(vi32 a, vi32 b) {
  vi32 r = fmod(a, b);
  return r + (b & (vi32)((r != 0) & ((r ^ b) < 0)));
}
MYCC_INLINE vi32 floor_div(vi32 a, vi32 b) {
  vi32 q = trunc_div(a, b), r = b != 0 ? a - q * b : vi32{};
  return q + (vi32)((r != 0) & ((r ^ b) < 0));
}
#define MYCC_LANEWISE_INT64(NAME)                                                                           \
  MYCC_INLINE vi64 NAME(vi64 a, vi64 b) {                                                                   \
    return build<vi64>([=](int i) MYCC_INLINED { return NAME(a[i], b[i]); });             \
  }
MYCC_LANEWISE_INT64(trunc_div)
MYCC_LANEWISE_INT64(fmod)
MYCC_LANEWISE_INT64(floor_div)
#undef MYCC_LANEWISE_INT64
/* Without divisions where 0 <= a < b in all lanes, as with indices that are taken around. */
MYCC_INLINE vi64 remainder(vi64 a, vi64 b) {
  const hi64 low = (hi64)((hu64)a.lo >= (hu64)b.lo) | (b.lo < 0), high = (hi64)((hu64)a.hi >= (hu64)b.hi) | (b.hi < 0);
  if (!isa::any((vi32)(low | high))) return a;
  return build<vi64>([=](int i) MYCC_INLINED { return remainder(a[i], b[i]); });
}
MYCC_MIXED_INTS(trunc_div)
MYCC_MIXED_INTS(fmod)
MYCC_MIXED_INTS(floor_div)
MYCC_MIXED_INTS(remainder)

/* ---- places in memory ---- */
/* a / b and a % b, rounded down, for |a| < 2^51 and 0 < b < 2^51, in double precision: a quotient that is no integer
 * differs from the next one by 1 / b at least, more than its rounding error. */
namespace places {
constexpr int64_t SHIFT_BITS = 0x4338000000000000; /* of SHIFT, whose low bits count ones */
constexpr double SHIFT = 0x1.8p52;
MYCC_INLINE hf64 to_double(hi64 a) { return (hf64)(a + SHIFT_BITS) - SHIFT; }
MYCC_INLINE hi64 to_int(hf64 a) { return (hi64)(a + SHIFT) - SHIFT_BITS; }
MYCC_INLINE hi64 quotient(hi64 a, double b) { return to_int(isa::round<isa::FLOOR>(to_double(a) / b)); }
MYCC_INLINE hi64 remainder(hi64 a, double b) {
  const hf64 x = to_double(a);
  return to_int(isa::fma(isa::round<isa::FLOOR>(x / b), hf64{} - b, x));
}
} /* namespace places */
MYCC_INLINE vi64 place_quotient(vi64 a, int64_t b) {
  return {places::quotient(a.lo, (double)b), places::quotient(a.hi, (double)b)};
}
MYCC_INLINE vi64 place_remainder(vi64 a, int64_t b) {
  return {places::remainder(a.lo, (double)b), places::remainder(a.hi, (double)b)};
}

/* ---- a b + c, rounded once (product and sum where the machine has no such instruction) ----
 * Compilers are kept from making one of a * b + c (-ffp-contract=off): they find them in some forms of an expression and
 * not in others, and lanes, scalars and threads would differ in bits. What is to be fused says so. */
MYCC_INLINE vf32 fma(vf32 a, vf32 b, vf32 c) { return isa::fma(a, b, c); }
MYCC_INLINE hf64 fma(hf64 a, hf64 b, hf64 c) { return isa::fma(a, b, c); }
MYCC_INLINE vf64 fma(vf64 a, vf64 b, vf64 c) { return {isa::fma(a.lo, b.lo, c.lo), isa::fma(a.hi, b.hi, c.hi)}; }
#if defined(MYCC_HAS_FMA)
MYCC_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MYCC_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
MYCC_INLINE float fma(float a, float b, float c) { return a * b + c; }
MYCC_INLINE double fma(double a, double b, double c) { return a * b + c; }
#endif
#define MYCC_MIXED_FMA(V, S)                                                            \
  MYCC_INLINE V fma(V a, V b, S c) { return fma(a, b, splat(c)); }                      \
  MYCC_INLINE V fma(V a, S b, V c) { return fma(a, splat(b), c); }                      \
  MYCC_INLINE V fma(S a, V b, V c) { return fma(splat(a), b, c); }                      \
  MYCC_INLINE V fma(V a, S b, S c) { return fma(a, splat(b), splat(c)); }               \
  MYCC_INLINE V fma(S a, V b, S c) { return fma(splat(a), b, splat(c)); }               \
  MYCC_INLINE V fma(S a, S b, V c) { return fma(splat(a), splat(b), c); }
MYCC_MIXED_FMA(vf32, float)
MYCC_MIXED_FMA(vf64, double)
#undef MYCC_MIXED_FMA

} /* namespace mycc */
#endif /* MYCC_KERNELS_VEC_OPS_H */
