/* Depthwise convolution on NHWC activations: groups == in_c == out_c, weights [kernel_h * kernel_w][C].
 *
 * A task is a row of output pixels times a block of channels. Where the kernel lies inside the input, several neighbouring
 * pixels are computed together (micro_kernels.h); at the left and right border pixel by pixel, with the taps outside left
 * out. epilogue(0, m, n, acc, count) as conv().
 */
#ifndef MYCC_CONV_DEPTHWISE_H
#define MYCC_CONV_DEPTHWISE_H

#include "conv.h"

namespace mycc {

constexpr int64_t kDepthwiseChannels = 512; /* channels of a block, so that a row of pixels stays near */
constexpr int64_t kDepthwiseWork = 1 << 15; /* multiply-adds below which a task is not worth a chunk of its own */

/* Taps [first, last) of a kernel of `size` taps that lie inside [0, extent) when the first one is at `start`. */
struct TapRange {
  int64_t first, last;

  TapRange(int64_t start, int64_t dilation, int64_t size, int64_t extent)
      : first(start < 0 ? min64(ceil_div(-start, dilation), size) : 0),
        last(start < extent ? max64(min64(ceil_div(extent - start, dilation), size), first) : first) {}
};

/* A row of output pixels and a block of channels. */
struct DepthwiseRow {
  const ConvArgs &args;
  DepthwiseTile tile; /* x and w at the first channel of the block, in the first tap row that lies inside the input */
  TapRange taps_h;

  DepthwiseRow(const ConvArgs &a, int64_t line, int64_t channel, int64_t channels, float *sums)
      : args(a), tile(),
        taps_h(line % a.out_h * a.stride_h - a.pad_h, a.dilation_h, a.kernel_h, a.in_h) {
    const int64_t y = line % a.out_h * a.stride_h - a.pad_h + taps_h.first * a.dilation_h;
    const bool empty = taps_h.last == taps_h.first;
    tile.x = a.x + (empty ? 0 : line / a.out_h * a.x_batch + y * a.x_h) + channel;
    tile.x_row = a.dilation_h * a.x_h;
    tile.w_column = a.out_c;
    tile.w_row = a.kernel_w * a.out_c;
    tile.w = a.w + taps_h.first * tile.w_row + channel;
    tile.rows = taps_h.last - taps_h.first;
    tile.channels = channels;
    tile.sums = sums;
    tile.sums_stride = channels;
  }

  /* One pixel, wherever it lies. */
  void pixel(int64_t column) const {
    const int64_t left = column * args.stride_w - args.pad_w;
    const TapRange taps(left, args.dilation_w, args.kernel_w, args.in_w);
    DepthwiseTile one = tile;
    one.x_column = args.dilation_w * args.x_w;
    one.columns = taps.last - taps.first;
    if (one.columns == 0) one.rows = 0;
    else one.x += (left + taps.first * args.dilation_w) * args.x_w;
    one.w += taps.first * one.w_column;
    if (one.channels >= kDepthwiseLanes) return depthwise_pixel(one);
    for (int64_t c = 0; c < one.channels; ++c) {
      float sum = 0.0f;
      for (int64_t i = 0; i < one.rows; ++i)
        for (int64_t j = 0; j < one.columns; ++j)
          sum += one.x[i * one.x_row + j * one.x_column + c] * one.w[i * one.w_row + j * one.w_column + c];
      one.sums[c] = sum;
    }
  }

  /* kDepthwisePixels pixels, whose kernels lie inside the input from left to right. */
  void pixels(DepthwiseKernel kernel, int64_t column) const {
    DepthwiseTile several = tile;
    several.x += (column * args.stride_w - args.pad_w) * args.x_w;
    several.x_column = args.x_w;
    several.columns = args.kernel_w;
    kernel(several);
  }
};

template <class Epilogue> struct DepthwiseLoop {
  const mycc_host *host;
  const ConvArgs &args;
  const Epilogue &epilogue;
  DepthwiseKernel kernel;   /* NULL: pixel by pixel */
  int64_t inside, outside;  /* columns [inside, outside) have their kernels inside the input */
  int64_t channels, blocks; /* of a block of channels; of blocks */

  void run(int64_t line, int64_t channel, float *sums) const {
    const int64_t count = min64(channels, args.out_c - channel), m = line * args.out_w;
    const DepthwiseRow row(args, line, channel, count, sums);
    const bool tiled = kernel && count >= kDepthwiseLanes && outside - inside >= kDepthwisePixels;
    for (int64_t column = 0; column < args.out_w;) {
      if (!tiled || column < inside || column >= outside) {
        row.pixel(column);
        epilogue((int64_t)0, m + column, channel, sums, count);
        ++column;
        continue;
      }
      const int64_t first = min64(column, outside - kDepthwisePixels); /* the last tile overlaps the one before it */
      row.pixels(kernel, first);
      for (; column < first + kDepthwisePixels; ++column)
        epilogue((int64_t)0, m + column, channel, sums + (column - first) * count, count);
    }
  }

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const DepthwiseLoop &loop = *(const DepthwiseLoop *)arg;
    const size_t bytes = (size_t)(kDepthwisePixels * loop.channels) * sizeof(float);
    float *sums = (float *)loop.host->scratch(loop.host->ctx, worker, bytes);
    if (!sums) return;
    const int64_t lines = loop.args.batch * loop.args.out_h;
    for (int64_t task = begin; task < end; ++task) loop.run(task % lines, task / lines * loop.channels, sums);
  }
};

template <class Epilogue> inline void conv_depthwise(const mycc_host *host, const ConvArgs &args, const Epilogue &epilogue) {
  const int64_t lines = args.batch * args.out_h;
  if (lines <= 0 || args.out_w <= 0 || args.out_c <= 0) return;
  const int64_t blocks = ceil_div(args.out_c, kDepthwiseChannels);
  const int64_t channels = min64(round_up(ceil_div(args.out_c, blocks), kPanel), args.out_c);
  const int64_t inside = max64(ceil_div(args.pad_w, args.stride_w), 0);
  const int64_t reach = args.in_w + args.pad_w - (args.kernel_w - 1) * args.dilation_w; /* first start beyond */
  const int64_t outside = reach > 0 ? min64(ceil_div(reach, args.stride_w), args.out_w) : 0;
  const DepthwiseKernel kernel = args.dilation_w == 1 ? depthwise_kernel(args.kernel_w, args.stride_w) : nullptr;
  DepthwiseLoop<Epilogue> loop = {host, args, epilogue, kernel, inside, max64(outside, inside), channels, blocks};
  const int64_t tasks = lines * ceil_div(args.out_c, channels), work = args.out_w * channels * args.kernel_h * args.kernel_w;
  const int64_t fair = max64(tasks / (4 * host->max_workers), 1);
  const int64_t grain = host->max_workers > 1 ? max64(min64(fair, max64(tasks / host->max_workers, 1)), kDepthwiseWork / work) : tasks;
  host->parallel_for(host->ctx, tasks, grain, DepthwiseLoop<Epilogue>::body, &loop);
}

} // namespace mycc
#endif /* MYCC_CONV_DEPTHWISE_H */
