/* Depthwise convolution on NHWC activations: groups == in_c == out_c, weights [kernel_h * kernel_w][C]. */
#ifndef MYCC_CONV_DEPTHWISE_H
#define MYCC_CONV_DEPTHWISE_H

#include "conv.h"

namespace mycc {

constexpr int64_t kDepthwiseChannels = 512; /* channels of a row segment */

/* Sums of `count` channels of one output pixel. */
static inline void depthwise_pixel(const ConvArgs &args, const float *image, int64_t row, int64_t column, int64_t channel,
                                   int64_t count, float *sums) {
  const int64_t top = row * args.stride_h - args.pad_h, left = column * args.stride_w - args.pad_w;
  for (int64_t c = 0; c < count; ++c) sums[c] = 0.0f;
  for (int64_t tap_h = 0; tap_h < args.kernel_h; ++tap_h) {
    const int64_t y = top + tap_h * args.dilation_h;
    if (y < 0 || y >= args.in_h) continue;
    for (int64_t tap_w = 0; tap_w < args.kernel_w; ++tap_w) {
      const int64_t x = left + tap_w * args.dilation_w;
      if (x < 0 || x >= args.in_w) continue;
      const float *from = image + y * args.x_h + x * args.x_w + channel;
      const float *w = args.w + (tap_h * args.kernel_w + tap_w) * args.out_c + channel;
      for (int64_t c = 0; c < count; ++c) sums[c] += from[c] * w[c];
    }
  }
}

template <class Epilogue> struct DepthwiseLoop {
  const mycc_host *host;
  const ConvArgs &args;
  const Epilogue &epilogue;

  /* [begin, end) counts output rows over all images. */
  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const DepthwiseLoop &loop = *(const DepthwiseLoop *)arg;
    const ConvArgs &args = loop.args;
    float *sums = (float *)loop.host->scratch(loop.host->ctx, worker, kDepthwiseChannels * sizeof(float));
    if (!sums) return;
    for (int64_t line = begin; line < end; ++line) {
      const float *image = args.x + line / args.out_h * args.x_batch;
      for (int64_t column = 0; column < args.out_w; ++column)
        for (int64_t channel = 0; channel < args.out_c; channel += kDepthwiseChannels) {
          const int64_t count = min64(kDepthwiseChannels, args.out_c - channel);
          depthwise_pixel(args, image, line % args.out_h, column, channel, count, sums);
          loop.epilogue((int64_t)0, line * args.out_w + column, channel, sums, count);
        }
    }
  }
};

template <class Epilogue> inline void conv_depthwise(const mycc_host *host, const ConvArgs &args, const Epilogue &epilogue) {
  const int64_t lines = args.batch * args.out_h;
  if (lines <= 0 || args.out_w <= 0 || args.out_c <= 0) return;
  DepthwiseLoop<Epilogue> loop = {host, args, epilogue};
  host->parallel_for(host->ctx, lines, 1, DepthwiseLoop<Epilogue>::body, &loop);
}

} // namespace mycc
#endif /* MYCC_CONV_DEPTHWISE_H */
