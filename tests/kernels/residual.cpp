// A product whose epilogue prefetches the residual that it adds: test_hot_loops.py reads its code.
#include "kernels/gemm/gemm.h"
using namespace mycc;
struct Add {
  float *y;
  const float *x;
  void operator()(int64_t, int64_t m, int64_t n, const float *acc, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) y[64 * m + n + i] = acc[i] + x[64 * m + n + i];
  }
  void prefetch(int64_t, int64_t m, int64_t n, int64_t count) const {
    for (int64_t column = n; column < n + count; column += 16) prefetch_l1(x + 64 * m + column);
  }
};
void product(const mycc_host *host, const GemmArgs &args, float *y, const float *x) { gemm(host, args, Add{y, x}); }
