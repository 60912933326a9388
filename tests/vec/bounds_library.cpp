/* bounds_library.cpp: the functions of kernels/vec/bounds.h, one vector at a time, for the tests. */
#include "kernels/vec/vec.h"

using namespace mycc;

/* Whole vectors with 0 and with `other` outside, then the same of the first `count` lanes. */
#define COUNT(NAME, T, E)                                                                                             \
  extern "C" void inside_##NAME##_##E(const T *row, int64_t at, int64_t n, int open, int count, T *out) {             \
    const T *p = row + at;                                                                                            \
    const int64_t end = open ? kNoEnd : n;                                                                            \
    store(out, load_inside<E>(p, at, end));                                                                           \
    store(out + W, load_inside<E>(p, at, end, (T)7));                                                                 \
    store(out + 2 * W, load_inside_tail<E>(p, at, end, count));                                                       \
    store(out + 3 * W, load_inside_tail<E>(p, at, end, (T)7, count));                                                 \
  }
#define TYPE(NAME, T)                                                                                                 \
  COUNT(NAME, T, 1) COUNT(NAME, T, 2) COUNT(NAME, T, 3)                                                               \
  extern "C" void backwards_##NAME(const T *p, int count, T *out) { store(out, load_reversed_tail(p, count)); }
TYPE(f64, double)
TYPE(f32, float)
TYPE(i16, int16_t)
TYPE(u8, uint8_t)

extern "C" int lanes() { return W; }
