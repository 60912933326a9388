/* What the kernel benchmarks share: a host, an epilogue, the best of several runs, and a core's FMA roof. */
#ifndef MYCC_BENCH_KERNELS_HOST_H
#define MYCC_BENCH_KERNELS_HOST_H

#include <stdlib.h>
#include <time.h>

#include <atomic>
#include <initializer_list>
#include <thread>

#include "kernels/gemm/gemm.h"

namespace {

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A host with one helper thread per further worker, which spin while a measurement runs. */
struct Host {
  int threads;
  mycc_host table;
  void *memory[16] = {};
  size_t sizes[16] = {};
  std::atomic<int64_t> generation{0}, next{0}, done{0};
  int64_t n = 0, grain = 0;
  mycc_body body = nullptr;
  void *arg = nullptr;
  std::thread helpers[16];

  explicit Host(int count) : threads(count) {
    table = {this, parallel_for, scratch, [](void *, int32_t, const char *) {}, nullptr, count, nullptr, nullptr, nullptr};
    for (int i = 1; i < threads; ++i) helpers[i] = std::thread([this, i] { help(i); });
  }
  ~Host() {
    generation.store(-1);
    for (int i = 1; i < threads; ++i) helpers[i].join();
    for (void *p : memory) free(p);
  }
  void work(int32_t worker) {
    for (int64_t begin; (begin = next.fetch_add(grain)) < n;)
      body(arg, begin, begin + grain < n ? begin + grain : n, worker);
  }
  void help(int32_t worker) {
    for (int64_t seen = 0;;) {
      int64_t current;
      while ((current = generation.load()) == seen) __builtin_ia32_pause();
      if (current < 0) return;
      seen = current;
      work(worker);
      done.fetch_add(1);
    }
  }
  static void parallel_for(void *ctx, int64_t n, int64_t grain, mycc_body body, void *arg) {
    Host &host = *(Host *)ctx;
    if (host.threads == 1 || n <= grain) {
      for (int64_t i = 0; i < n; i += grain) body(arg, i, i + grain < n ? i + grain : n, 0);
      return;
    }
    host.n = n, host.grain = grain, host.body = body, host.arg = arg;
    host.next.store(0);
    host.done.store(0);
    host.generation.fetch_add(1);
    host.work(0);
    while (host.done.load() < host.threads - 1) __builtin_ia32_pause();
  }
  static void *scratch(void *ctx, int32_t worker, size_t bytes) {
    Host &host = *(Host *)ctx;
    if (host.sizes[worker] < bytes) {
      free(host.memory[worker]);
      host.memory[worker] = aligned_alloc(64, (bytes + 63) / 64 * 64);
      host.sizes[worker] = bytes;
    }
    return host.memory[worker];
  }
};

typedef float Loose __attribute__((vector_size(sizeof(mycc::TileVector)), may_alias, aligned(4)));

/* out = sums + bias, as generated kernels say it; of a product without a bias that is NULL. */
struct Bias {
  float *out;
  const float *bias;
  int64_t batch_stride, row_stride;

  float *place(int64_t z, int64_t m, int64_t n) const { return out + z * batch_stride + m * row_stride + n; }
  void operator()(int64_t z, int64_t m, int64_t n, const float *acc, int64_t count) const {
    float *to = place(z, m, n);
    constexpr int64_t lanes = sizeof(Loose) / sizeof(float);
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      const Loose sums = *(const Loose *)(acc + i);
      *(Loose *)(to + i) = bias ? sums + *(const Loose *)(bias + n + i) : sums;
    }
    for (; i < count; ++i) to[i] = bias ? acc[i] + bias[n + i] : acc[i];
  }
  mycc::Added added(int64_t z, int64_t m, int64_t n) const {
    return {place(z, m, n), bias ? bias + n : nullptr, nullptr, row_stride, 0};
  }
};

/* Makes a value unknown to the compiler, so that chains that are alike are not merged. */
void hide(mycc::TileVector &v) { __asm__ volatile("" : "+m"(v)); }

/* Seconds of one run: the best of `repeats`, each with the next of `copies` weights. */
template <class Run> double best(int repeats, int64_t copies, Run run) {
  double least = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const double begin = now();
    run(i % copies);
    const double taken = now() - begin;
    if (taken < least) least = taken;
  }
  return least;
}

} // namespace

extern "C" {

void *bench_host(int threads) { return new Host(threads); }
void bench_host_free(void *host) { delete (Host *)host; }

/* Floating-point operations per second of 12 independent multiply-adds on registers. */
double bench_roof() {
  typedef mycc::TileVector V;
  V c0 = {}, c1 = {}, c2 = {}, c3 = {}, c4 = {}, c5 = {}, c6 = {}, c7 = {}, c8 = {}, c9 = {}, ca = {}, cb = {};
  V x = mycc::tile_splat(0.999f), y = mycc::tile_splat(1e-3f);
  for (V *c : {&x, &y, &c0, &c1, &c2, &c3, &c4, &c5, &c6, &c7, &c8, &c9, &ca, &cb}) hide(*c);
  const int64_t count = 400000;
  double least = 1e30;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const double begin = now();
    for (int64_t i = 0; i < count; ++i) {
      c0 = c0 * x + y, c1 = c1 * x + y, c2 = c2 * x + y, c3 = c3 * x + y, c4 = c4 * x + y, c5 = c5 * x + y;
      c6 = c6 * x + y, c7 = c7 * x + y, c8 = c8 * x + y, c9 = c9 * x + y, ca = ca * x + y, cb = cb * x + y;
    }
    const double taken = now() - begin;
    if (taken < least) least = taken;
  }
  volatile V sink = c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + ca + cb;
  (void)sink;
  return 2.0 * 12 * (double)(sizeof(V) / sizeof(float)) * (double)count / least;
}

} // extern "C"
#endif
