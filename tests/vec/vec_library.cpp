/* vec_library.cpp: every memory function, cast and reduction of vec.h, one vector at a time, for the tests. */
#include "kernels/math/math.h"

using namespace mycc;

/* Compute values of all storage types but the 64-bit ones pass through arrays of float, int32 or boolean. */
#define MEMORY(NAME, T, C)                                                                                            \
  extern "C" void load_##NAME(const T *p, C *out) { store(out, load(p)); }                                            \
  extern "C" void load_tail_##NAME(const T *p, int n, C *out) { store(out, load_tail(p, n)); }                        \
  extern "C" void store_##NAME(T *p, const C *in) { store(p, load(in)); }                                             \
  extern "C" void store_tail_##NAME(T *p, const C *in, int n) { store_tail(p, load(in), n); }                         \
  extern "C" void gather_##NAME(const T *p, int64_t stride, C *out) { store(out, gather(p, stride)); }                \
  extern "C" void gather_tail_##NAME(const T *p, int64_t stride, int n, C *out) {                                     \
    store(out, gather_tail(p, stride, n));                                                                            \
  }                                                                                                                   \
  extern "C" void gather_at_##NAME(const T *p, const int64_t *at, C *out) { store(out, gather_at(p, load(at))); }     \
  extern "C" void gather_at_tail_##NAME(const T *p, const int64_t *at, int n, C *out) {                               \
    store(out, gather_at_tail(p, load(at), n));                                                                       \
  }                                                                                                                   \
  extern "C" void scatter_##NAME(T *p, int64_t stride, const C *in) { scatter(p, stride, load(in)); }                 \
  extern "C" void scatter_tail_##NAME(T *p, int64_t stride, const C *in, int n) {                                     \
    scatter_tail(p, stride, load(in), n);                                                                             \
  }                                                                                                                   \
  extern "C" void scalars_##NAME(T *p, C *out, int n) {                                                               \
    for (int i = 0; i < n; ++i) {                                                                                     \
      store_scalar(out + i, load_scalar(p + i));                                                                      \
      store_scalar(p + i, load_scalar(out + i));                                                                      \
    }                                                                                                                 \
  }
MEMORY(f32, float, float)
MEMORY(f64, double, double)
MEMORY(i32, int32_t, int32_t)
MEMORY(i64, int64_t, int64_t)
MEMORY(i16, int16_t, int32_t)
MEMORY(i8, int8_t, int32_t)
MEMORY(u8, uint8_t, int32_t)
MEMORY(bool, boolean, boolean)
MEMORY(f16, half, float)
MEMORY(bf16, bfloat, float)

extern "C" int lanes() { return W; }
extern "C" void iota_at(int64_t base, int64_t *out) { store(out, iota(base)); }
extern "C" void places(const int64_t *a, int64_t b, int64_t *quotient, int64_t *rest) {
  store(quotient, place_quotient(load(a), b));
  store(rest, place_remainder(load(a), b));
}

#define REDUCE(OP, NAME, T)                                                                                           \
  extern "C" void reduce_##OP##_##NAME(const T *p, int n, T *out) {                                                   \
    store_scalar(out, reduce_##OP(load(p)));                                                                          \
    store_scalar(out + 1, reduce_##OP##_tail(load(p), n));                                                            \
  }
#define REDUCE_NUMBERS(NAME, T) REDUCE(add, NAME, T) REDUCE(mul, NAME, T) REDUCE(max, NAME, T) REDUCE(min, NAME, T)
#define REDUCE_BITS(NAME, T) REDUCE(or, NAME, T) REDUCE(and, NAME, T)
REDUCE_NUMBERS(f32, float)
REDUCE_NUMBERS(f64, double)
REDUCE_NUMBERS(i32, int32_t)
REDUCE_NUMBERS(i64, int64_t)
REDUCE_BITS(i32, int32_t)
REDUCE_BITS(i64, int64_t)
REDUCE_BITS(bool, boolean)
/* p: four vectors; out: their sums together, and one by one. */
extern "C" void reduce_four(const float *p, float *out) {
  reduce_add_4(load(p), load(p + W), load(p + 2 * W), load(p + 3 * W), out);
  for (int i = 0; i < 4; ++i) out[4 + i] = reduce_add(load(p + i * W));
}

extern "C" void any_all(const boolean *p, bool *out) {
  out[0] = any(load(p));
  out[1] = all(load(p));
}

/* What generated code mixes: vectors with scalars of their element type, and bool with vectors. */
extern "C" void mixed(const float *a, const int64_t *i, float *out, int64_t n) {
  vf32 x = load(a);
  vbool inside = lt(load(i), n);
  vf32 y = where(inside, x * 2.0f + 1.0f, 0.0f);
  y = maximum(y, 0.5f) - minimum(1.0f, x) / 3.0f;
  y = where(logical_and(gt(x, 0.0f), inside), y, where(n > 3, x, 1.0f));
  store(out, y + to_f32(inside) + to_f32(iota(n)) * 0.25f);
}
