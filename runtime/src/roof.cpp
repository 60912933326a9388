// roof.cpp: what one core can do at most, measured: fused multiply-adds in registers, and bytes read from or copied in
// memory. A library of its own (libmycc_roof.so) beside the loader, for `mycc bench`; packages do not carry it.
//
// Each function works in the calling thread, with the widest vectors of this CPU, and returns its best round.
#include <stdint.h>
#include <time.h>

namespace {

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

constexpr int64_t kSteps = 1 << 16;  // of a round of multiply-adds
constexpr int kChains = 12;          // independent ones: they hide the latency, and all fit into 16 registers

volatile float sink, start = 1.0f;  // volatile: a chain whose value is known would be folded

// Calls round() for about `seconds`, at least 5 times; returns the seconds of the fastest.
template <class Round> double fastest(double seconds, const Round &round) {
  double best = 1e30;
  const double end = now() + seconds;
  for (int i = 0; i < 5 || now() < end; ++i) {
    const double begin = now();
    round();
    const double spent = now() - begin;
    if (spent < best) best = spent;
  }
  return best;
}

struct Loops {
  int lanes;
  void (*multiply_add)();
  void (*read)(const float *from, int64_t n);
  void (*copy)(float *to, const float *from, int64_t n);
};

// The loops for vectors of LANES floats. Each chain is a variable: an array would go through memory.
#define MYCC_LOOPS(NAME, LANES, TARGET)                                                                        \
  namespace NAME {                                                                                             \
  typedef float vec __attribute__((vector_size(4 * LANES)));                                                   \
  typedef float raw __attribute__((vector_size(4 * LANES), aligned(4), may_alias));                            \
  TARGET void multiply_add() {                                                                                 \
    const vec a = vec{} + 0.999999f, b = vec{} + 1e-6f;                                                        \
    vec c0 = vec{} + start, c1 = c0 + 1, c2 = c0 + 2, c3 = c0 + 3, c4 = c0 + 4, c5 = c0 + 5;                   \
    vec c6 = c0 + 6, c7 = c0 + 7, c8 = c0 + 8, c9 = c0 + 9, c10 = c0 + 10, c11 = c0 + 11;                      \
    for (int64_t i = 0; i < kSteps; ++i) {                                                                     \
      c0 = c0 * a + b, c1 = c1 * a + b, c2 = c2 * a + b, c3 = c3 * a + b, c4 = c4 * a + b, c5 = c5 * a + b;    \
      c6 = c6 * a + b, c7 = c7 * a + b, c8 = c8 * a + b, c9 = c9 * a + b, c10 = c10 * a + b, c11 = c11 * a + b;\
    }                                                                                                          \
    const vec all = c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + c10 + c11;                               \
    float total = 0;                                                                                           \
    for (int i = 0; i < LANES; ++i) total += all[i];                                                           \
    sink = total;                                                                                              \
  }                                                                                                            \
  TARGET void read(const float *from, int64_t n) {                                                             \
    vec s0 = {}, s1 = {}, s2 = {}, s3 = {}, s4 = {}, s5 = {}, s6 = {}, s7 = {};                                \
    const raw *v = reinterpret_cast<const raw *>(from);                                                        \
    for (int64_t i = 0; i + 8 <= n / LANES; i += 8) {                                                          \
      s0 += v[i], s1 += v[i + 1], s2 += v[i + 2], s3 += v[i + 3];                                              \
      s4 += v[i + 4], s5 += v[i + 5], s6 += v[i + 6], s7 += v[i + 7];                                          \
    }                                                                                                          \
    const vec all = s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7;                                                     \
    sink = all[0];                                                                                             \
  }                                                                                                            \
  TARGET void copy(float *to, const float *from, int64_t n) {                                                  \
    raw *w = reinterpret_cast<raw *>(to);                                                                      \
    const raw *v = reinterpret_cast<const raw *>(from);                                                        \
    for (int64_t i = 0; i + 4 <= n / LANES; i += 4) {                                                          \
      w[i] = v[i], w[i + 1] = v[i + 1], w[i + 2] = v[i + 2], w[i + 3] = v[i + 3];                              \
    }                                                                                                          \
  }                                                                                                            \
  const Loops loops = {LANES, multiply_add, read, copy};                                                       \
  }

MYCC_LOOPS(narrow, 4, )
#if defined(__x86_64__)
MYCC_LOOPS(avx2, 8, __attribute__((target("avx2,fma"))))
MYCC_LOOPS(avx512, 16, __attribute__((target("avx512f"))))
#endif

const Loops &best_loops() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return avx512::loops;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2::loops;
#endif
  return narrow::loops;
}

}  // namespace

#define MYCC_EXPORT extern "C" __attribute__((visibility("default")))

/* GFLOP/s of multiply-adds (two operations each), measured for about `seconds`. */
MYCC_EXPORT double mycc_roof_fma(double seconds) {
  const Loops &loops = best_loops();
  return 2e-9 * loops.lanes * kChains * kSteps / fastest(seconds, loops.multiply_add);
}

/* GB/s of reading n floats over and over. */
MYCC_EXPORT double mycc_roof_read(const float *from, int64_t n, double seconds) {
  const Loops &loops = best_loops();
  return 4e-9 * double(n) / fastest(seconds, [&] { loops.read(from, n); });
}

/* GB/s of copying n floats over and over; a byte read and a byte written are two. */
MYCC_EXPORT double mycc_roof_copy(float *to, const float *from, int64_t n, double seconds) {
  const Loops &loops = best_loops();
  return 8e-9 * double(n) / fastest(seconds, [&] { loops.copy(to, from, n); });
}
