/* Products of bytes and of bfloat16 by AMX against plain loops; prints what is wrong, and how many elements were right. */
#include <stdio.h>

#include <atomic>

#include "gemm_host.h"
#include "kernels/gemm/integer_tiles.h"
#include "quantised_weight.h"

namespace {

/* Sums of a result, each of which has to come once. */
struct Result {
  int32_t *out;
  uint8_t *seen;
  int64_t n;
  void operator()(int64_t, int64_t m, int64_t column, const int32_t *acc, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) out[m * n + column + i] = acc[i], ++seen[m * n + column + i];
  }
};

/* The left operand of a check: value k of row m. */
template <class Left>
void compare(const char *what, const QuantisedArgs<int8_t, 8> &args, const Weight<8> &w, int threads, const Left &left) {
  const Memory<int32_t> found(args.m * args.n);
  const Memory<uint8_t> seen(args.m * args.n);
  memset(seen.p, 0, (size_t)(args.m * args.n));
  TestHost host(threads);
  gemm_integer_tiles(&host.table, args, Result{found.p, seen.p, args.n});
  for (int64_t i = 0; i < args.m; ++i)
    for (int64_t j = 0; j < args.n; ++j) {
      uint32_t want = 0;
      for (int64_t l = 0; l < args.k; ++l) want += (uint32_t)(left(i, l) * w.w[j * args.k + l]);
      if (found[i * args.n + j] == (int32_t)want && seen[i * args.n + j] == 1)
        ++right;
      else if (++wrong < 5)
        printf("%s %d x %d x %d, %d threads: (%d, %d) is %d, %d times, not %d\n", what, (int)args.m, (int)args.n, (int)args.k,
               threads, (int)i, (int)j, found[i * args.n + j], seen[i * args.n + j], (int32_t)want);
    }
}

/* Rows of a matrix, `gap` bytes apart; memory ends with the last value. */
void check_rows(int64_t m, int64_t n, int64_t k, int64_t gap, int threads) {
  const Weight<8> w(n, k, 0);
  const int64_t row = k + gap;
  int8_t *const a = (int8_t *)malloc((size_t)((m - 1) * row + k));
  for (int64_t i = 0; i < (m - 1) * row + k; ++i) a[i] = (int8_t)(draw(0, 9) ? draw(-128, 127) : -128);
  const QuantisedArgs<int8_t, 8> args = {m, n, k, a, row, {}, w.panels.p};
  compare("rows", args, w, threads, [&](int64_t i, int64_t l) { return a[i * row + l]; });
  free(a);
}

/* Patches of 2 images of `channels`, taps x taps, `stride` apart. */
void check_patches(int64_t channels, int64_t taps, int64_t stride, int64_t n, int threads) {
  const int64_t h = 9, x = 11, out_h = (h - taps) / stride + 1, out_w = (x - taps) / stride + 1;
  const int64_t k = taps * taps * channels, m = 2 * out_h * out_w;
  const Weight<8> w(n, k, 0);
  int8_t *const a = (int8_t *)malloc((size_t)(2 * h * x * channels));
  for (int64_t i = 0; i < 2 * h * x * channels; ++i) a[i] = (int8_t)draw(-128, 127);
  QuantisedArgs<int8_t, 8> args = {m, n, k, a, 0, {}, w.panels.p};
  args.patches = {out_h, out_w, h * x * channels, stride * x * channels, stride * channels, taps, taps, x * channels, channels, channels};
  compare("patches", args, w, threads, [&](int64_t i, int64_t l) {
    const int64_t tap = l / channels, y = i / out_w % out_h * stride + tap / taps, column = i % out_w * stride + tap % taps;
    return a[((i / (out_h * out_w) * h + y) * x + column) * channels + l % channels];
  });
  free(a);
}

/* Products of bfloat16, of numbers whose sums are exact; the last value of a row is followed by NaN. */
void check_bfloats(int64_t batch, int64_t m, int64_t n, int64_t k, int threads) {
  const int64_t row = k + 1, panels = ceil_div(n, kPanel);
  const Memory<float> a(batch * m * row), found(batch * m * n);
  const Memory<bfloat> b(batch * panels * k * kPanel);
  for (int64_t i = 0; i < batch * m * row; ++i) a[i] = i % row < k ? (float)draw(-40, 40) / 8 : NAN;
  for (int64_t i = 0; i < batch * panels * k * kPanel; ++i) store_scalar(&b[i], (float)draw(-40, 40) / 4);
  for (int64_t i = 0; i < batch * m * n; ++i) found[i] = NAN;
  GemmArgsBf16 args = {batch, m, n, k, a.p, m * row, row, b.p, panels * k * kPanel};
  TestHost host(threads);
  gemm_bfloat_tiles<1>(&host.table, args, [&](int64_t z, int64_t i, int64_t column, const float *acc, int64_t count) {
    for (int64_t j = 0; j < count; ++j) found[(z * m + i) * n + column + j] = acc[j];
  });
  for (int64_t z = 0; z < batch; ++z)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        float want = 0, is = found[(z * m + i) * n + j];
        for (int64_t l = 0; l < k; ++l)
          want += a[(z * m + i) * row + l] * load_scalar(&b[((z * panels + j / kPanel) * k + l) * kPanel + j % kPanel]);
        if (is == want) ++right;
        else if (++wrong < 5)
          printf("bfloat16 %d x %d x %d x %d: (%d, %d, %d) is %g, not %g\n", (int)batch, (int)m, (int)n, (int)k, (int)z, (int)i, (int)j, is, want);
      }
}

/* The same with columns and partners, which are finished together: n pairs, whole panels. */
void check_pairs(int64_t m, int64_t n, int64_t k, int threads) {
  const Memory<float> a(m * k), found(m * n);
  const Memory<bfloat> b(2 * n * k);
  for (int64_t i = 0; i < m * k; ++i) a[i] = (float)draw(-40, 40) / 8;
  for (int64_t i = 0; i < 2 * n * k; ++i) store_scalar(&b[i], (float)draw(-40, 40) / 4);
  GemmArgsBf16 args = {1, m, n, k, a.p, 0, k, b.p, 0};
  TestHost host(threads);
  gemm_bfloat_tiles<2>(&host.table, args, [&](int64_t, int64_t i, int64_t column, const float *acc, const float *other, int64_t count) {
    for (int64_t j = 0; j < count; ++j) found[i * n + column + j] = acc[j] + 3 * other[j];
  });
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sums[2] = {0, 0};
      for (int64_t l = 0; l < 2 * k; ++l)
        sums[l / k] += a[i * k + l % k] * load_scalar(&b[((l / k * n + j) / kPanel * k + l % k) * kPanel + j % kPanel]);
      if (found[i * n + j] == sums[0] + 3 * sums[1]) ++right;
      else if (++wrong < 5) printf("pairs %d x %d x %d: (%d, %d)\n", (int)m, (int)n, (int)k, (int)i, (int)j);
    }
}

} // namespace

int main() {
  for (int64_t n : {16, 32, 80}) check_pairs(35, n, 70, 1), check_pairs(70, n, 32, 2);
  check_bfloats(1, 80, 70, 500, 1), check_pairs(70, 64, 500, 1);
  for (int64_t k : {1, 2, 7, 31, 32, 33, 96, 200}) check_bfloats(1, 33, 50, k, 1), check_bfloats(2, 16, 90, k, 2);
  for (int64_t k : {1, 3, 27, 64, 66, 75, 96, 129, 147, 192, 264, 320})
    for (int64_t m : {1, 7, 16, 33, 70}) check_rows(m, k % 2 ? 33 : 50, k, 0, 1), check_rows(m, 16, k, 5, 2);
  check_rows(300, 200, 128, 0, 3);
  check_rows(100, 70, 640, 0, 1); /* parts of k */
  check_rows(150, 500, 1000, 3, 2);
  check_rows(40, 290, 66, 0, 1); /* groups of panels, and lines that are no whole step */
  check_rows(2000, 5, 576, 0, 1); /* more rows than a task copies */
  check_rows(2000, 40, 40, 24, 2);
  for (int64_t channels : {1, 3, 8, 70})
    for (int64_t taps : {1, 3})
      for (int64_t stride : {1, 2}) check_patches(channels, taps, stride, 19, (int)stride);
  printf("%lld right, %lld wrong\n", (long long)right, (long long)wrong);
  return wrong > 0;
}
