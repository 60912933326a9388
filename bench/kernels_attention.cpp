/* What bench/kernels_attention.py times: the attention header on a host of spinning threads, and the core's FMA roof. */
#include <stdlib.h>
#include <time.h>

#include <atomic>
#include <thread>
#include <vector>

#include "kernels/attention/attention.h"

namespace {

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

/* Helper threads spin while a measurement runs; scratch memory is kept from call to call, as the runtime keeps it. */
class Host {
 public:
  explicit Host(int threads) : memory_(threads), sizes_(threads) {
    table = {this, parallel_for, scratch, [](void *, int32_t, const char *) {}, nullptr, threads};
    for (int i = 1; i < threads; ++i) helpers_.emplace_back([this, i] { help(i); });
  }
  ~Host() {
    generation_ = -1;
    for (std::thread &helper : helpers_) helper.join();
    for (void *p : memory_) free(p);
  }
  mycc_host table;

 private:
  void work(int32_t worker) {
    for (int64_t i; (i = next_.fetch_add(grain_)) < n_;) body_(arg_, i, i + grain_ < n_ ? i + grain_ : n_, worker);
  }
  void help(int32_t worker) {
    for (int64_t seen = 0, current;;) {
      while ((current = generation_.load()) == seen) {
      }
      if (current < 0) return;
      seen = current;
      work(worker);
      ++done_;
    }
  }
  static void parallel_for(void *ctx, int64_t n, int64_t grain, mycc_body body, void *arg) {
    Host &host = *(Host *)ctx;
    host.n_ = n, host.grain_ = grain, host.body_ = body, host.arg_ = arg;
    host.next_ = 0, host.done_ = 0;
    ++host.generation_;
    host.work(0);
    while (host.done_ < int64_t(host.helpers_.size())) {
    }
  }
  static void *scratch(void *ctx, int32_t worker, size_t bytes) {
    Host &host = *(Host *)ctx;
    if (host.sizes_[worker] < bytes) {
      free(host.memory_[worker]);
      host.sizes_[worker] = (bytes + 63) / 64 * 64;
      host.memory_[worker] = aligned_alloc(64, host.sizes_[worker]);
    }
    return host.memory_[worker];
  }

  std::vector<void *> memory_;
  std::vector<size_t> sizes_;
  std::vector<std::thread> helpers_;
  std::atomic<int64_t> generation_{0}, next_{0}, done_{0};
  int64_t n_ = 0, grain_ = 0;
  mycc_body body_ = nullptr;
  void *arg_ = nullptr;
};

} // namespace

/* Seconds of the fastest of `repeats` runs. */
extern "C" double bench_attention(const mycc::AttentionArgs *args, int threads, int repeats) {
  Host host(threads);
  double least = 1e30;
  for (int i = 0; i < repeats + 2; ++i) {
    const double begin = now();
    mycc::attention(&host.table, *args, mycc::NoScore());
    const double seconds = now() - begin;
    if (i >= 2 && seconds < least) least = seconds;
  }
  return least;
}

/* FLOP/s of one core in a loop of independent multiply-adds. */
extern "C" double bench_roof() {
  using mycc::vf32;
  double best = 0;
  vf32 x = mycc::splat(0.999f), y = mycc::splat(1e-3f);
  for (int run = 0; run < 20; ++run) {
    vf32 a = x, b = x + 1, c = x + 2, d = x + 3, e = x + 4, f = x + 5, g = x + 6, h = x + 7, i = x + 8, j = x + 9, k = x + 10, l = x + 11;
    constexpr int kSteps = 200000;
    const double begin = now();
    for (int step = 0; step < kSteps; ++step) {
      a = a * x + y, b = b * x + y, c = c * x + y, d = d * x + y, e = e * x + y, f = f * x + y;
      g = g * x + y, h = h * x + y, i = i * x + y, j = j * x + y, k = k * x + y, l = l * x + y;
    }
    const double seconds = now() - begin;
    x = x + (a + b + c + d + e + f + g + h + i + j + k + l) * 1e-30f; /* used: the loop stays */
    const double rate = 12.0 * 2 * mycc::W * kSteps / seconds;
    if (rate > best) best = rate;
  }
  return best + double(x[0]) * 1e-30;
}
