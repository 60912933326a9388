/* Host tables for kernel tests: a serial one, and one that spreads chunks over threads in an unfair order. */
#ifndef MYCC_TEST_HOST_H
#define MYCC_TEST_HOST_H

#include <stdlib.h>

#include <atomic>
#include <thread>
#include <vector>

#if defined(__AMX_TILE__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "mycc/abi.h"

#if defined(__AMX_TILE__)
/* Linux gives tiles to processes that ask: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA). */
inline const long may_use_tiles = syscall(SYS_arch_prctl, 0x1023, 18);
#endif

struct TestHost {
  int threads = 1;
  bool no_scratch = false; /* scratch() gives NULL */
  std::vector<void *> memory;
  mycc_host table;

  explicit TestHost(int n, bool fails = false) : threads(n), no_scratch(fails), memory(n, nullptr) {
    table = {};
    table.ctx = this, table.max_workers = n;
    table.parallel_for = parallel_for, table.scratch = scratch, table.fail = [](void *, int32_t, const char *) {};
  }
  ~TestHost() {
    for (void *p : memory) free(p);
  }

  static void parallel_for(void *ctx, int64_t n, int64_t grain, mycc_body body, void *arg) {
    TestHost &host = *(TestHost *)ctx;
    std::atomic<int64_t> next{0};
    auto work = [&](int32_t worker) {
      for (int64_t begin; (begin = next.fetch_add(grain)) < n;)
        body(arg, begin, begin + grain < n ? begin + grain : n, worker);
    };
    std::vector<std::thread> others;
    for (int32_t i = 1; i < host.threads; ++i) others.emplace_back(work, i);
    work(0);
    for (auto &t : others) t.join();
  }
  /* A new piece at every call, filled with NaN, exactly as long as asked for. */
  static void *scratch(void *ctx, int32_t worker, size_t bytes) {
    TestHost &host = *(TestHost *)ctx;
    free(host.memory[worker]);
    host.memory[worker] = nullptr;
    if (host.no_scratch) return nullptr;
    host.memory[worker] = aligned_alloc(64, (bytes + 63) / 64 * 64);
    for (size_t i = 0; i < bytes / 4; ++i) ((uint32_t *)host.memory[worker])[i] = 0x7fc00000u;
    return host.memory[worker];
  }
};

/* Writes sums to out [z][m][n] and counts how often each element was finished; wrong places are counted apart. */
struct Record {
  float *out;
  int32_t *seen;
  int64_t batch, m, n;
  std::atomic<int64_t> *misplaced;

  void operator()(int64_t z, int64_t row, int64_t column, const float *acc, int64_t count) const {
    if (z < 0 || z >= batch || row < 0 || row >= m || column < 0 || count < 1 || column + count > n) {
      ++*misplaced;
      return;
    }
    const int64_t at = (z * m + row) * n + column;
    for (int64_t i = 0; i < count; ++i) {
      out[at + i] = acc[i];
      ++seen[at + i];
    }
  }
};
#endif
