/* Products with integer weights against plain loops; prints what is wrong, and how many elements were right. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gemm_host.h"
#include "kernels/gemm/integer.h"
#include "kernels/gemm/mixed.h"
#include "quantised_weight.h"

namespace {

using namespace mycc;

struct Result {
  double *out;
  int64_t n;
  template <class T> void operator()(int64_t, int64_t m, int64_t column, const T *acc, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) out[m * n + column + i] += acc[i]; /* each once */
  }
};

/* `given`: none, or types of scales and zeros that are taken into account. */
template <int Bits, class A, class Scale, class Zero> void check(int64_t m, int64_t n, int64_t k, int64_t group, int threads) {
  const Weight<Bits> w(n, k, group);
  const Memory<A> a(m * k);
  for (int64_t i = 0; i < m * k; ++i) a[i] = (A)(sizeof(A) == 1 ? (draw(0, 9) ? draw(-128, 127) : -128) : draw(-99, 99));
  QuantisedArgs<A, Bits, Scale, Zero> args = {m, n, k, a.p, k, {}, w.panels.p};
  args.group = group;
  if constexpr (!std::is_same<Scale, none>::value) args.scales = w.scale_panels.p;
  if constexpr (!std::is_same<Zero, none>::value) args.zeros = w.zero_panels.p;
  const Memory<double> found(m * n);
  for (int64_t i = 0; i < m * n; ++i) found[i] = 0;
  TestHost host(threads);
  if constexpr (sizeof(A) == 1)
    gemm_integer(&host.table, args, Result{found.p, n});
  else
    gemm_mixed(&host.table, args, Result{found.p, n});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double want = 0, size = 0;
      for (int64_t l = 0; l < k; ++l) {
        const int64_t g = j * w.groups + (group ? l / group : 0);
        double v = w.w[j * k + l];
        if (!std::is_same<Zero, none>::value) v -= w.zeros[g];
        if (!std::is_same<Scale, none>::value) v *= w.scales[g];
        want += a[i * k + l] * v;
        size += fabs(a[i * k + l] * v) + fabs((double)a[i * k + l]) * 8;
      }
      const bool exact = sizeof(A) == 1 && std::is_same<Scale, none>::value;
      const double error = fabs(found[i * n + j] - want);
      if (exact ? error == 0 : error <= 1e-6 * size) {
        ++right;
      } else if (++wrong < 5) {
        printf("bits %d floats %d scales %d zeros %d: %d x %d x %d by %d: (%d, %d) is %.9g, not %.9g\n", Bits, sizeof(A) > 1,
               !std::is_same<Scale, none>::value, !std::is_same<Zero, none>::value, (int)m, (int)n, (int)k, (int)group,
               (int)i, (int)j, found[i * n + j], want);
      }
    }
}

/* A convolution of images of 5 x 7 with 3 x 3 taps and stride 2, whose runs are `channels` or three times as long. */
void check_patches(int64_t images, int64_t channels, bool side_by_side) {
  const int64_t h = 5, x = 7, out_h = 2, out_w = 3, n = 19, k = 9 * channels, m = images * out_h * out_w;
  const Weight<8> w(n, k, 0);
  const Memory<int8_t> a(images * h * x * channels);
  for (int64_t i = 0; i < images * h * x * channels; ++i) a[i] = (int8_t)draw(-128, 127);
  QuantisedArgs<int8_t, 8> args = {m, n, k, a.p, 0, {}, w.panels.p};
  args.patches = {out_h, out_w, h * x * channels, 2 * x * channels, 2 * channels, 3, side_by_side ? 1 : 3, x * channels,
                  channels, side_by_side ? 3 * channels : channels};
  const Memory<double> found(m * n);
  for (int64_t i = 0; i < m * n; ++i) found[i] = 0;
  TestHost host(1);
  gemm_integer(&host.table, args, Result{found.p, n});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double want = 0;
      for (int64_t l = 0; l < k; ++l) {
        const int64_t tap = l / channels, y = i / out_w % out_h * 2 + tap / 3, column = i % out_w * 2 + tap % 3;
        want += a[((i / (out_h * out_w) * h + y) * x + column) * channels + l % channels] * w.w[j * k + l];
      }
      if (found[i * n + j] == want) ++right;
      else if (++wrong < 5) printf("patches of %d: (%d, %d) is %g, not %g\n", (int)channels, (int)i, (int)j, found[i * n + j], want);
    }
}

/* One tap: pixels of a map of 6 x 8, all of them or every second one, which lie where rows are read. */
void check_pixels(int64_t images, int64_t channels, int64_t stride) {
  const int64_t h = 6, x = 8, out_h = h / stride, out_w = x / stride, n = 70, m = images * out_h * out_w;
  const Weight<8> w(n, channels, 0);
  const Memory<int8_t> a(images * h * x * channels);
  for (int64_t i = 0; i < images * h * x * channels; ++i) a[i] = (int8_t)draw(-128, 127);
  QuantisedArgs<int8_t, 8> args = {m, n, channels, a.p, 0, {}, w.panels.p};
  args.patches = {out_h, out_w, h * x * channels, stride * x * channels, stride * channels, 1, 1, 0, 0, channels};
  const Memory<double> found(m * n);
  for (int64_t i = 0; i < m * n; ++i) found[i] = 0;
  TestHost host(2);
  gemm_integer(&host.table, args, Result{found.p, n});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const int64_t pixel = (i / (out_h * out_w) * h + i / out_w % out_h * stride) * x + i % out_w * stride;
      double want = 0;
      for (int64_t l = 0; l < channels; ++l) want += a[pixel * channels + l] * w.w[j * channels + l];
      if (found[i * n + j] == want) ++right;
      else if (++wrong < 5) printf("pixels of %d: (%d, %d) is %g, not %g\n", (int)channels, (int)i, (int)j, found[i * n + j], want);
    }
}

template <int Bits, class A> [[maybe_unused]] void check_all(int64_t m) {
  const int64_t sizes[][3] = {{33, 40, 8}, {16, 129, 0}, {5, 3, 0}, {70, 264, 88}, {17, 96, 32}, {50, 75, 75}, {1, 1, 1}};
  for (const auto &s : sizes) {
    if constexpr (Bits == 8) check<8, A, none, none>(m, s[0], s[1], 0, 1);
    if (s[2] == 0) continue;
    check<Bits, A, float, none>(m, s[0], s[1], s[2], 1);
    check<Bits, A, float, int8_t>(m, s[0], s[1], s[2], 2);
  }
}

} // namespace

int main() {
  for (int64_t m : {1, 2, 3, 4, 5, 7, 8, 16, 65}) {
#if defined(MYCC_VNNI_IN_CPP) /* of all that, what reads rows where they lie */
    for (int64_t k : {1, 3, 8, 75, 96, 264}) check<8, int8_t, none, none>(m, 33, k, 0, 1);
#else
    check_all<8, int8_t>(m);
    check_all<4, int8_t>(m);
    check_all<8, float>(m);
    check_all<4, float>(m);
#endif
  }
  for (int64_t channels : {1, 3, 4, 8, 70})
    for (int64_t images : {2, 7}) check_patches(images, channels, true), check_patches(images, channels, false);
  for (int64_t channels : {1, 4, 12, 14, 64, 70, 196})
    for (int64_t stride : {1, 2}) check_pixels(3, channels, stride);
  /* tasks of few rows behind tasks of many, and panels that are near and far */
  for (int threads : {1, 3}) {
    check<8, int8_t, none, none>(1100, 60, 19, 0, threads);
    check<8, int8_t, none, none>(130, 410, 700, 0, threads);
  }
  printf("%lld right, %lld wrong\n", (long long)right, (long long)wrong);
  return wrong > 0;
}
