/* Depthwise convolution on NHWC activations: groups == in_c == out_c, weights [kernel_h * kernel_w][C].
 *
 * A task is a block of output rows times a block of channels; it is walked in bands of columns, top to bottom, so that
 * the input rows that the next output row needs again are still in L1. Where the kernel lies inside the input, several
 * neighbouring pixels are computed together (micro_kernels.h); at the left and right border pixel by pixel, with the
 * taps outside left out. epilogue(0, m, n, acc, count) as conv().
 */
#ifndef MYCC_KERNELS_CONV_DEPTHWISE_H
#define MYCC_KERNELS_CONV_DEPTHWISE_H

#include "machine.h"
#include "kernels/conv/conv.h"

namespace mycc {

/* A row of output pixels and a block of channels. */
struct DepthwiseRow {
  const ConvArgs &args;
  DepthwiseTile tile; /* x and w at the first channel of the block, in the first tap row that lies inside the input */
  int64_t top;        /* row of the input where it reads first */

  DepthwiseRow(const ConvArgs &a, int64_t line, int64_t channel, int64_t channels, float *sums) : args(a), tile() {
    const int64_t start = line % a.out_h * a.stride_h - a.pad_h;
    const TapRange taps_h(start, a.dilation_h, a.kernel_h, a.in_h);
    const bool empty = taps_h.count() == 0;
    top = empty ? 0 : start + taps_h.first * a.dilation_h;
    tile.x = a.x + (empty ? 0 : line / a.out_h * a.x_batch + top * a.x_h) + channel;
    tile.x_row = a.dilation_h * a.x_h;
    tile.w_column = a.out_c;
    tile.w_row = a.kernel_w * a.out_c;
    tile.w = a.w + taps_h.first * tile.w_row + channel;
    tile.rows = taps_h.count();
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
    one.columns = taps.count();
    if (one.columns == 0) one.rows = 0;
    else one.x += (left + taps.first * args.dilation_w) * args.x_w;
    one.w += taps.first * one.w_column;
    if (one.channels >= kDepthwiseLanes) return depthwise_pixel(one);
    for (int64_t c = 0; c < one.channels; ++c) {
      float sum = 0.0f;
      for (int64_t i = 0; i < one.rows; ++i)
        for (int64_t j = 0; j < one.columns; ++j)
          sum = fma(one.row(i)[j * one.x_column + c], one.w[i * one.w_row + j * one.w_column + c], sum);
      one.sums[c] = sum;
    }
  }

  /* Neighbouring pixels, whose kernels lie inside the input from left to right; of a dilated kernel every dilation_w-th
   * pixel, whose taps lie as those of neighbours do. */
  DepthwiseTile pixels(int64_t column) const {
    DepthwiseTile several = tile;
    several.x += (column * args.stride_w - args.pad_w) * args.x_w;
    several.x_column = args.dilation_w * args.x_w;
    several.columns = args.kernel_w;
    return several;
  }
};

/* Has the tile finish its pixels, m and those behind it, when there is only to add. Not a residual: tiles may overlap,
 * and results may lie over it. */
template <class Epilogue>
MYCC_INLINE auto adds(const Epilogue &epilogue, DepthwiseTile &tile, int64_t m, int64_t channel, int)
    -> decltype(epilogue.added(m, m, channel), true) {
  const Added to = epilogue.added((int64_t)0, m, channel);
  if (to.residual) return false;
  tile.sums = to.out;
  tile.sums_stride = to.out_row;
  take_bias_and_bounds(tile, to);
  return true;
}
template <class Epilogue> MYCC_INLINE bool adds(const Epilogue &, DepthwiseTile &, int64_t, int64_t, long) {
  return false;
}

/* How a depthwise convolution is cut. */
struct DepthwisePlan {
  const DepthwiseKernel *kernels; /* NULL: pixel by pixel */
  int64_t inside, outside;        /* columns [inside, outside) have their kernels inside the input */
  int64_t step;                   /* columns from a pixel of a tile to the next */
  int64_t channels, channel_blocks, rows, row_blocks, band; /* of a block; columns of a band */
  int64_t tasks, grain;

  DepthwisePlan(const ConvArgs &args, int64_t workers) {
    step = args.stride_w == 1 ? args.dilation_w : 1;
    kernels = args.dilation_w == step ? depthwise_kernels(args.kernel_w, args.stride_w) : nullptr;
    const int64_t reach = args.in_w + args.pad_w - (args.kernel_w - 1) * args.dilation_w; /* first start beyond */
    inside = min64(args.pad_w > 0 ? ceil_div(args.pad_w, args.stride_w) : 0, args.out_w);
    outside = reach > 0 ? max64(min64(ceil_div(reach, args.stride_w), args.out_w), inside) : inside;
    channel_blocks = ceil_div(args.out_c, kDepthwiseChannels);
    channels = min64(round_up(ceil_div(args.out_c, channel_blocks), kPanel), args.out_c);
    channel_blocks = ceil_div(args.out_c, channels);
    if (channels < kDepthwiseLanes) kernels = nullptr;
    const int64_t fitting = kDepthwiseBandBytes / (4 * channels * args.kernel_h * args.stride_w);
    band = max64(fitting / (kDepthwisePixels[0] * step), 1) * kDepthwisePixels[0] * step;
    const int64_t wanted = workers > 1 ? ceil_div(6 * workers, args.batch * channel_blocks) : 1;
    const int64_t work = args.out_w * channels * args.kernel_h * args.kernel_w; /* of a row */
    rows = max64(ceil_div(args.out_h, wanted), min64(kDepthwiseWork / max64(work, 1), args.out_h));
    rows = max64(rows, 1);
    row_blocks = ceil_div(args.out_h, rows);
    tasks = args.batch * row_blocks * channel_blocks;
    grain = workers > 1 ? max64(kDepthwiseWork / max64(rows * work, 1), 1) : tasks;
  }

  /* Where the band that begins at a column ends: bands are whole tiles, the first has the left border, the last the
   * right one. */
  int64_t band_end(int64_t column, int64_t out_w) const {
    const int64_t end = max64(column, inside) + band;
    return end >= outside ? out_w : end;
  }
};

template <class Epilogue> struct DepthwiseLoop {
  const mycc_host *host;
  const ConvArgs &args;
  const Epilogue &epilogue;
  DepthwisePlan plan;

  /* Columns [begin, end) of an output row, counted over all images. */
  void run(int64_t line, int64_t begin, int64_t end, int64_t channel, float *sums) const {
    const int64_t count = min64(plan.channels, args.out_c - channel);
    run(DepthwiseRow(args, line, channel, count, sums), line * args.out_w, begin, end, channel);
  }
  /* Columns of a row whose first pixel is number m. */
  void run(const DepthwiseRow &row, int64_t m, int64_t begin, int64_t end, int64_t channel) const {
    for (int64_t phase = begin; phase < min64(begin + plan.step, end); ++phase) run_phase(row, m, phase, end, channel);
  }
  /* Every step-th column from `begin` on. */
  void run_phase(const DepthwiseRow &row, int64_t m, int64_t begin, int64_t end, int64_t channel) const {
    const int64_t count = row.tile.channels, step = plan.step;
    float *sums = row.tile.sums;
    const auto turns = [step](int64_t n) { return step == 1 || n <= 0 ? max64(n, 0) : ceil_div(n, step); };
    const int64_t columns = turns(end - begin);
    const int64_t first = turns(plan.inside - begin), last = turns(min64(end, plan.outside) - begin); /* inside the input */
    for (int64_t i = 0; i < columns;) {
      const int64_t left = last - i;
      int64_t size = 1, start = i;
      if (plan.kernels && count >= kDepthwiseLanes && i >= first && left > 0) {
        /* A tile that would reach beyond `last` overlaps the one before it, if there is room. */
        for (int k = 0; k < 2 && size == 1; ++k)
          if (left > kDepthwisePixels[1] || k == 1)
            if (last - first >= kDepthwisePixels[k]) size = kDepthwisePixels[k];
        start = min64(i, last - size);
      }
      if (size == 1) {
        row.pixel(begin + i * step);
      } else {
        DepthwiseTile tile = row.pixels(begin + start * step);
        const bool added = adds(epilogue, tile, m + begin + start * step, channel, 0);
        if (added) { /* all of the row's */
          tile.sums_stride *= step;
          tile.count = (last - start) / size;
        }
        plan.kernels[size == kDepthwisePixels[0] ? 0 : 1](tile);
        if (added) {
          i = start + tile.count * size;
          continue;
        }
      }
      for (; i < start + size; ++i)
        epilogue((int64_t)0, m + begin + i * step, channel, sums + (i - start) * count, count);
    }
  }

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const DepthwiseLoop &loop = *(const DepthwiseLoop *)arg;
    const DepthwisePlan &plan = loop.plan;
    const ConvArgs &args = loop.args;
    const size_t bytes = (size_t)(kDepthwisePixels[0] * plan.channels) * sizeof(float);
    float *sums = (float *)loop.host->scratch(loop.host->ctx, worker, bytes);
    if (!sums) return;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t channel = task % plan.channel_blocks * plan.channels, block = task / plan.channel_blocks;
      const int64_t image = block / plan.row_blocks, row = block % plan.row_blocks * plan.rows;
      const int64_t last_row = min64(row + plan.rows, args.out_h);
      for (int64_t column = 0, end; column < args.out_w; column = end) {
        end = plan.band_end(column, args.out_w);
        for (int64_t r = row; r < last_row; ++r) loop.run(image * args.out_h + r, column, end, channel, sums);
      }
    }
  }
};

template <class Epilogue>
inline void conv_depthwise(const mycc_host *host, const ConvArgs &args, const Epilogue &epilogue) {
  if (args.batch <= 0 || args.out_h <= 0 || args.out_w <= 0 || args.out_c <= 0) return;
  DepthwiseLoop<Epilogue> loop = {host, args, epilogue, DepthwisePlan(args, host->max_workers)};
  host->parallel_for(host->ctx, loop.plan.tasks, loop.plan.grain, DepthwiseLoop<Epilogue>::body, &loop);
}

} // namespace mycc
#endif /* MYCC_KERNELS_CONV_DEPTHWISE_H */
