// roof.cpp: what threads can do at most, measured: fused multiply-adds in registers, and bytes read from or copied in
// memory. A library of its own (libmycc_roof.so) beside the loader, for `mycc bench`; packages do not carry it.
//
// Each function works in the calling thread, with the widest vectors of this CPU. The threads of a team work at the same
// time and count what they have done; the first one looks at all counts now and then. What counts is the best window of
// time of all together: threads whose best moments are not the same ones never reach their sum. What cores give just now,
// which may be less where others use them too, is what is done in all of the time.
#include <stdint.h>
#include <time.h>

#include <atomic>

namespace {

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

constexpr int64_t kSteps = 1 << 12;   // of a round of multiply-adds
constexpr int kChains = 12;           // independent ones: they hide the latency, and all fit into 16 registers
constexpr int64_t kPiece = 64 << 10;  // floats of a round that reads or copies
constexpr int64_t kRounds = 16;       // of the first thread between two looks at the clock, at least
constexpr int kWindows = 64;          // of a measurement of several threads, at most

volatile float sink, start = 1.0f;  // volatile: a chain whose value is known would be folded

// One line of memory for each thread, the first one's with the end for all.
struct alignas(64) Line {
  std::atomic<int64_t> done;
  std::atomic<int32_t> ended;
};

struct Team {
  Line *lines;
  int32_t threads, self;

  int64_t done() const {
    int64_t sum = 0;
    for (int32_t i = 0; i < threads; ++i) sum += lines[i].done.load(std::memory_order_relaxed);
    return sum;
  }
};

struct Rates {
  double best, mean;  // of all windows, and of the whole time
};

// Calls round(), which returns how much it did, until `seconds` have passed. In thread 0, what the team did in a second, in
// windows of at least `rounds`; in the others 0, when thread 0 has ended.
template <class Round> Rates rates(const Team &team, double seconds, int64_t rounds, const Round &round) {
  Line &own = team.lines[team.self];
  const double start = now(), window = team.threads > 1 ? seconds / kWindows : 0;
  if (rounds < kRounds) rounds = kRounds;
  double best = 0, begin = start;
  const int64_t first = team.done();
  int64_t before = first;
  while (begin - start < seconds && !team.lines[0].ended.load(std::memory_order_relaxed)) {
    for (int64_t i = 0; i < (team.self == 0 ? rounds : 1); ++i)
      own.done.store(own.done.load(std::memory_order_relaxed) + round(), std::memory_order_relaxed);
    const double end = team.self == 0 ? now() : begin;
    if (team.self != 0 || end - begin < window) continue;
    const int64_t done = team.done();
    const double rate = double(done - before) / (end - begin);
    if (rate > best) best = rate;
    before = done, begin = end;
  }
  if (team.self != 0) return {0, 0};
  team.lines[0].ended.store(1, std::memory_order_relaxed);
  return {best, double(before - first) / (begin - start)};
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

// The next piece of n floats, and after the last one the first.
struct Pieces {
  int64_t n, next = 0;

  int64_t count() const { return (n + kPiece - 1) / kPiece; }
  int64_t take() {
    const int64_t first = next < n ? next : 0;
    next = n - first < kPiece ? n : first + kPiece;
    return first;
  }
};

Rates multiply_adds(const Team &team, double seconds) {
  const Loops &loops = best_loops();
  return rates(team, seconds, kRounds, [&] {
    loops.multiply_add();
    return int64_t(2) * loops.lanes * kChains * kSteps;
  });
}

}  // namespace

#define MYCC_EXPORT extern "C" __attribute__((visibility("default")))

/* All threads of a measurement call the same function at the same time: `self` is 0 .. threads - 1, `lines` are 64 bytes
 * for each, aligned to 64 and zero at first, the same for all. Thread 0 gets the rate of all together, the others 0. */

/* GFLOP/s of multiply-adds (two operations each), measured for about `seconds`. */
MYCC_EXPORT double mycc_roof_fma(void *lines, int32_t threads, int32_t self, double seconds) {
  return 1e-9 * multiply_adds({(Line *)lines, threads, self}, seconds).best;
}

/* The same over all of the time: what the cores give just now. */
MYCC_EXPORT double mycc_roof_fma_now(void *lines, int32_t threads, int32_t self, double seconds) {
  return 1e-9 * multiply_adds({(Line *)lines, threads, self}, seconds).mean;
}

/* GB/s of reading n floats over and over; a window is all of them at least. */
MYCC_EXPORT double mycc_roof_read(void *lines, int32_t threads, int32_t self, const float *from, int64_t n,
                                  double seconds) {
  const Loops &loops = best_loops();
  Pieces pieces = {n};
  return 1e-9 * rates({(Line *)lines, threads, self}, seconds, pieces.count(), [&] {
    const int64_t first = pieces.take();
    loops.read(from + first, pieces.next - first);
    return 4 * (pieces.next - first);
  }).best;
}

/* GB/s of copying n floats over and over; a byte read and a byte written are two. */
MYCC_EXPORT double mycc_roof_copy(void *lines, int32_t threads, int32_t self, float *to, const float *from, int64_t n,
                                  double seconds) {
  const Loops &loops = best_loops();
  Pieces pieces = {n};
  return 1e-9 * rates({(Line *)lines, threads, self}, seconds, pieces.count(), [&] {
    const int64_t first = pieces.take();
    loops.copy(to + first, from + first, pieces.next - first);
    return 8 * (pieces.next - first);
  }).best;
}
