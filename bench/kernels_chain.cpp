/* The kernel of bench/kernels_chain.py: timed runs of a chain of convolutions. */
#include "kernels_host.h"
#include "kernels/conv/chain.h"

namespace {

/* Adds a bias and keeps the sum between 0 and 6: between the convolutions of a chain. */
struct Inside {
  const float *bias;

  void operator()(int64_t, int64_t, int64_t n, const float *acc, int64_t count, float *to) const {
    for (int64_t i = n; i < n + count; ++i) {
      const float v = acc[i - n] + bias[i];
      to[i] = v > 0 ? v < 6 ? v : 6.0f : 0.0f;
    }
  }
  mycc::Added added(int64_t, int64_t, int64_t column, float *to) const {
    return {to + column, bias + column, nullptr, 0, 0, true, 0.0f, 6.0f};
  }
};

/* Adds a bias and, where it is not NULL, a residual. */
struct Last {
  float *out;
  const float *bias, *residual;
  int64_t row;

  void operator()(int64_t, int64_t m, int64_t n, const float *acc, int64_t count) const {
    for (int64_t i = n; i < n + count; ++i)
      out[m * row + i] = acc[i - n] + bias[i] + (residual ? residual[m * row + i] : 0.0f);
  }
  mycc::Added added(int64_t, int64_t m, int64_t column) const {
    return {out + m * row + column, bias + column, residual ? residual + m * row + column : nullptr, row, row};
  }
};

} // namespace

extern "C" {

/* convolutions: the three of the chain; biases: of each. Seconds of a run. */
double bench_chain(void *host, const mycc::ConvArgs *const *convolutions, const float *const *biases, float *out,
                   const float *residual, int repeats) {
  const mycc::ConvArgs &project = *convolutions[2];
  const Inside first = {biases[0]}, middle = {biases[1]};
  const Last last = {out, biases[2], residual, project.out_c};
  return best(repeats, 1, [&](int64_t) {
    mycc::conv_chain(&((Host *)host)->table, *convolutions[0], *convolutions[1], project, first, middle, last);
  });
}

} // extern "C"
