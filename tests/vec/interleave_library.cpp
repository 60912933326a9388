/* interleave_library.cpp: the functions of kernels/vec/interleave.h on elements as they lie in memory, one vector at a
 * time, for the tests. */
#include "kernels/math/math.h"

using namespace mycc;

template <class T, int... I> static void interleaved(T *p, const T *in, int n, bool part, lane_list<I...>) {
  if (part)
    store_interleaved_tail(p, n, load(in + I * W)...);
  else
    store_interleaved(p, false, load(in + I * W)...);
}

/* E vectors at `in`, interleaved to p: all lanes, or the first n of each. */
#define COUNT(NAME, T, E, ...)                                                                                        \
  extern "C" void woven_##NAME##_##E(T *p, const T *in) { interleaved(p, in, W, false, lane_list<__VA_ARGS__>()); }         \
  extern "C" void woven_tail_##NAME##_##E(T *p, const T *in, int n) {                                                 \
    interleaved(p, in, n, true, lane_list<__VA_ARGS__>());                                                                  \
  }                                                                                                                   \
  extern "C" void every_##NAME##_##E(const T *p, T *out) { store(out, load_every<E>(p)); }                            \
  extern "C" void turn_##NAME##_##E(const T *p, T *out, int n) {                                                      \
    store(out, load_strided<E, 0>(p));                                                                                   \
    store(out + W, load_strided<E, E - 1>(p));                                                                           \
    store_tail(out + 2 * W, load_every_tail<E>(p, n), n);                                                           \
    store_tail(out + 3 * W, load_every_tail<E>(p + E - 1, n), n);                                                       \
  }
#define TYPE(NAME, T)                                                                                                 \
  COUNT(NAME, T, 2, 0, 1)                                                                                             \
  COUNT(NAME, T, 3, 0, 1, 2)                                                                                          \
  COUNT(NAME, T, 4, 0, 1, 2, 3)                                                                                       \
  COUNT(NAME, T, 5, 0, 1, 2, 3, 4)                                                                                    \
  COUNT(NAME, T, 6, 0, 1, 2, 3, 4, 5)                                                                                 \
  COUNT(NAME, T, 7, 0, 1, 2, 3, 4, 5, 6)                                                                              \
  COUNT(NAME, T, 8, 0, 1, 2, 3, 4, 5, 6, 7)                                                                           \
  extern "C" void reversed_##NAME(const T *p, T *out) { store(out, load_reversed(p)); }                               \
  extern "C" void round_##NAME(const T *row, int64_t at, int64_t n, T *out) { store(out, load_round(row, at, n)); }   \
  extern "C" void round_tail_##NAME(const T *row, int64_t at, int64_t n, int lanes, T *out) {                         \
    store(out, load_round_tail(row, at, n, lanes));                                                                   \
  }
TYPE(f64, double)
TYPE(f32, float)
TYPE(i16, int16_t)
TYPE(word, word)
TYPE(u8, uint8_t)

extern "C" int lanes() { return W; }
