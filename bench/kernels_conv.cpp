/* The kernels of bench/kernels_conv.py: timed runs of the convolution headers. */
#include "kernels_host.h"
#include "kernels/conv/conv.h"
#include "kernels/conv/grouped.h"
#include "kernels/conv/winograd.h"

namespace {

/* Adds a bias and a residual, clamps at zero, writes: what follows a convolution in a residual network. */
struct Finish {
  float *out;
  const float *bias, *residual; /* residual: NULL for none */
  int64_t row_stride;

  void operator()(int64_t, int64_t m, int64_t n, const float *acc, int64_t count) const {
    float *to = out + m * row_stride + n;
    const float *add = bias + n, *more = residual ? residual + m * row_stride + n : add;
    constexpr int64_t lanes = sizeof(Loose) / sizeof(float);
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      Loose v = *(const Loose *)(acc + i) + *(const Loose *)(add + i);
      if (residual) v += *(const Loose *)(more + i);
      *(Loose *)(to + i) = v > 0 ? v : Loose{};
    }
    for (; i < count; ++i) {
      const float v = acc[i] + add[i] + (residual ? more[i] : 0.0f);
      to[i] = v > 0 ? v : 0.0f;
    }
  }
};

} // namespace

/* Seconds of a run. The weights are followed by copies - 1 others, `stride` elements apart. */
#define MYCC_TIMED(name, function)                                                                                   \
  double name(void *host, const mycc::ConvArgs *args, float *out, const float *bias, const float *residual,          \
              int repeats, int64_t copies, int64_t stride) {                                                         \
    const Finish epilogue = {out, bias, residual, args->out_c};                                                      \
    return best(repeats, copies, [&](int64_t i) {                                                                    \
      mycc::ConvArgs now_args = *args;                                                                               \
      now_args.w += i * stride;                                                                                      \
      function(&((Host *)host)->table, now_args, epilogue);                                                          \
    });                                                                                                              \
  }

extern "C" {

MYCC_TIMED(bench_conv, mycc::conv)
MYCC_TIMED(bench_winograd2, mycc::conv_winograd<2>)
MYCC_TIMED(bench_winograd3, mycc::conv_winograd<3>)
MYCC_TIMED(bench_winograd3taps, (mycc::conv_winograd<3, 1, true>))
MYCC_TIMED(bench_winograd4, mycc::conv_winograd<4>)
MYCC_TIMED(bench_winograd2s2, (mycc::conv_winograd<2, 2>))
MYCC_TIMED(bench_grouped, mycc::conv_grouped)
MYCC_TIMED(bench_depthwise, mycc::conv_depthwise)

} // extern "C"
