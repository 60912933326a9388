/* Convolutions on NHWC activations as implicit products, float32, with a fused epilogue.
 *
 * A's rows are output pixels (image, row and column flattened), K is kernel taps x input channels of a group, columns
 * are the output channels of a group. The input is not rearranged: a table of pointers says where each pixel finds its
 * channels for each tap, a row of zeros standing for the padding. With few input channels the taps of a kernel row are
 * merged into one run of kernel_w * in_c values; when there is padding the input rows of a block are first copied into
 * padded strips.
 *
 * epilogue(0, m, n, acc, count): m = (image * out_h + row) * out_w + column, n = output channel, over all groups.
 */
#ifndef MYCC_CONV_H
#define MYCC_CONV_H

#include "gemm.h"

namespace mycc {

struct ConvArgs {
  int64_t batch, in_h, in_w, in_c, out_h, out_w, out_c;
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups;
  const float *x;
  int64_t x_batch, x_h, x_w; /* strides in elements; that of channels is 1 */
  /* [groups][ceil(out_c / groups / 16)][kernel_h * kernel_w][in_c / groups][16]; conv_depthwise: [taps][C] */
  const float *w;
};

/* How the taps of a kernel are seen by the product. */
struct ConvTaps {
  bool merged;              /* a kernel row is one segment of kernel_w * in_c values */
  bool strips;              /* merged, and the input is copied into padded strips */
  int64_t columns, depth;   /* segments of a kernel row; values of a segment */
};

constexpr int64_t kMergedChannels = 32; /* fewer input channels than this are merged */
constexpr int64_t kStripRows = 256;     /* output pixels of a strip */
constexpr int64_t kConvPointers = 3072; /* pointers of a block, about */
constexpr int64_t kConvGroupFloats = 32768; /* input of a block, in all groups */

static inline ConvTaps conv_taps(const ConvArgs &args) {
  const bool merged = args.groups == 1 && args.kernel_w > 1 && args.dilation_w == 1 && args.in_c < kMergedChannels;
  if (!merged) return {false, false, args.kernel_w, args.in_c / args.groups};
  const bool direct = args.x_w == args.in_c && args.pad_w == 0 &&
                      (args.out_w - 1) * args.stride_w + args.kernel_w <= args.in_w;
  return {true, !direct, 1, args.kernel_w * args.in_c};
}

/* Output pixels [first, first + count): an image, row and column that move on by one pixel. */
struct ConvPixel {
  int64_t image, row, column;

  ConvPixel(const ConvArgs &args, int64_t m)
      : image(m / (args.out_h * args.out_w)), row(m / args.out_w % args.out_h), column(m % args.out_w) {}
  void advance(const ConvArgs &args) {
    if (++column < args.out_w) return;
    column = 0;
    if (++row < args.out_h) return;
    row = 0;
    ++image;
  }
};

/* pointers[tap * count + i]: where output pixel first + i finds the channels of a tap. */
inline void conv_pointers(const ConvArgs &args, const ConvTaps &taps, int64_t first, int64_t count, const float *zeros,
                          const float **pointers) {
  ConvPixel pixel(args, first);
  for (int64_t i = 0; i < count; ++i, pixel.advance(args)) {
    const float **to = pointers + i;
    const int64_t top = pixel.row * args.stride_h - args.pad_h, left = pixel.column * args.stride_w - args.pad_w;
    for (int64_t tap_h = 0; tap_h < args.kernel_h; ++tap_h) {
      const int64_t y = top + tap_h * args.dilation_h;
      const bool row_inside = y >= 0 && y < args.in_h;
      const float *row = args.x + pixel.image * args.x_batch + y * args.x_h;
      for (int64_t tap_w = 0; tap_w < taps.columns; ++tap_w, to += count) {
        const int64_t x = left + tap_w * args.dilation_w;
        *to = row_inside && x >= 0 && x < args.in_w ? row + x * args.x_w : zeros;
      }
    }
  }
}

/* A padded copy of the input that a block of output pixels of one image reads. */
struct ConvStrip {
  int64_t rows, columns; /* output rows and columns of the largest block: several rows only when they are whole */
  int64_t in_rows, stride; /* input rows of a block; floats of an input row */

  ConvStrip(const ConvArgs &args)
      : rows(1), columns(args.out_w), in_rows(0), stride(0) {
    if (args.out_w > kStripRows) columns = ceil_div(args.out_w, ceil_div(args.out_w, kStripRows));
    else rows = min64(kStripRows / args.out_w, args.out_h);
    rows = ceil_div(args.out_h, ceil_div(args.out_h, rows));
    in_rows = (rows - 1) * args.stride_h + (args.kernel_h - 1) * args.dilation_h + 1;
    stride = ((columns - 1) * args.stride_w + args.kernel_w) * args.in_c;
  }
  int64_t row_blocks(const ConvArgs &args) const { return ceil_div(args.out_h, rows); }
  int64_t column_blocks(const ConvArgs &args) const { return ceil_div(args.out_w, columns); }
};

/* Copies `pixels` input pixels from column `left` of a row into `to`; what is outside the input becomes zero. */
static inline void conv_copy_row(const ConvArgs &args, const float *row, int64_t left, int64_t pixels, float *to) {
  const int64_t begin = min64(max64(-left, 0), pixels), end = max64(min64(args.in_w - left, pixels), begin);
  zero_floats(to, begin * args.in_c);
  if (args.x_w == args.in_c) {
    copy_floats(to + begin * args.in_c, row + (left + begin) * args.in_c, (end - begin) * args.in_c);
  } else {
    for (int64_t p = begin; p < end; ++p)
      for (int64_t c = 0; c < args.in_c; ++c) to[p * args.in_c + c] = row[(left + p) * args.x_w + c];
  }
  zero_floats(to + end * args.in_c, (pixels - end) * args.in_c);
}

/* Copies what the block of `rows` x `columns` output pixels at (row, column) of an image reads. */
inline void conv_fill_strip(const ConvArgs &args, const ConvStrip &strip, int64_t image, int64_t row, int64_t rows,
                            int64_t column, int64_t columns, float *copy) {
  const int64_t top = row * args.stride_h - args.pad_h, left = column * args.stride_w - args.pad_w;
  const int64_t in_rows = (rows - 1) * args.stride_h + (args.kernel_h - 1) * args.dilation_h + 1;
  const int64_t pixels = (columns - 1) * args.stride_w + args.kernel_w;
  for (int64_t i = 0; i < in_rows; ++i) {
    const int64_t y = top + i;
    if (y < 0 || y >= args.in_h) zero_floats(copy + i * strip.stride, pixels * args.in_c);
    else conv_copy_row(args, args.x + image * args.x_batch + y * args.x_h, left, pixels, copy + i * strip.stride);
  }
}

/* pointers[tap row * rows * columns + i]: where pixel i of a block finds a kernel row in the strip's copy. */
inline void conv_strip_pointers(const ConvArgs &args, const ConvStrip &strip, int64_t rows, int64_t columns,
                                const float *copy, const float **pointers) {
  for (int64_t tap = 0; tap < args.kernel_h; ++tap)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        *pointers++ = copy + (r * args.stride_h + tap * args.dilation_h) * strip.stride + c * args.stride_w * args.in_c;
}

/* Output pixels of one row block: `count` of them from pixel `first` on, which is (image, row, column). */
struct ConvBlock {
  int64_t first, count, image, row, rows, column, columns;
};

/* What all tasks of a convolution share, whatever the epilogue. */
struct ConvWork {
  const ConvArgs &args;
  ConvTaps taps;
  DepthCut cut;
  ConvStrip strip;
  TaskPlan plan; /* batch = groups */

  ConvWork(const ConvArgs &a, int64_t workers)
      : args(a), taps(conv_taps(a)), cut(cut_depth(a.kernel_h * taps.columns, taps.depth)), strip(a),
        plan(plan_tasks(cut, a.groups, a.batch * a.out_h * a.out_w, a.out_c / a.groups, workers, limits(a, taps))) {
    if (!taps.strips) return;
    plan.rows = strip.rows * strip.columns;
    plan.row_blocks = a.batch * strip.row_blocks(a) * strip.column_blocks(a);
    plan.count = plan.row_blocks * plan.panel_blocks;
    plan.grain = workers > 1 ? max64(plan.count / (8 * workers), 1) : plan.count;
  }

  /* The pointers of a block stay in L1; with groups its input stays in L2 while all groups pass over it. */
  static TaskLimits limits(const ConvArgs &a, const ConvTaps &taps) {
    TaskLimits limits;
    const int64_t least = 8 * kTileRows;
    limits.max_rows = max64(min64(kConvPointers / (a.kernel_h * taps.columns), limits.max_rows), least);
    if (a.groups > 1) limits.max_rows = max64(min64(kConvGroupFloats / a.in_c, limits.max_rows), least);
    return limits;
  }

  ConvBlock block(int64_t i) const {
    ConvBlock block = {};
    if (!taps.strips) {
      block.first = i * plan.rows;
      block.count = min64(plan.rows, args.batch * args.out_h * args.out_w - block.first);
      return block;
    }
    const int64_t across = strip.column_blocks(args), down = strip.row_blocks(args);
    block.column = i % across * strip.columns;
    block.columns = min64(strip.columns, args.out_w - block.column);
    block.row = i / across % down * strip.rows;
    block.rows = min64(strip.rows, args.out_h - block.row);
    block.image = i / across / down;
    block.first = (block.image * args.out_h + block.row) * args.out_w + block.column;
    block.count = block.rows * block.columns;
    return block;
  }
};

/* A worker's scratch memory, and which block it holds. */
struct ConvMemory {
  const float **pointers;
  float *fill, *sums; /* zeros or a strip's copy; sums of a block */
  ConvBlock held;

  /* False: there is no memory. */
  bool take(const ConvWork &work, const mycc_host *host, int32_t worker) {
    const int64_t zeros = max64(work.args.in_c, work.taps.depth), copies = work.strip.in_rows * work.strip.stride;
    const size_t fill_bytes = (size_t)(work.taps.strips ? copies : zeros) * sizeof(float);
    const size_t pointer_bytes = (size_t)(work.cut.segments * work.plan.rows) * sizeof(float *);
    const size_t sums_bytes = plan_block(work.cut, work.plan.rows, work.plan.panels).bytes();
    void *scratch = host->scratch(host->ctx, worker, pointer_bytes + fill_bytes + sums_bytes + 3 * 64);
    if (!scratch) return false;
    Carver carver = {(uint8_t *)scratch};
    pointers = carver.take<const float *>(pointer_bytes);
    fill = carver.take<float>(fill_bytes);
    sums = carver.take<float>(sums_bytes);
    if (!work.taps.strips) zero_floats(fill, zeros);
    held = {-1, 0, 0, 0, 0, 0, 0};
    return true;
  }

  /* Makes `pointers` those of a block. Strips of one shape share them: only what they point to differs. */
  void hold(const ConvWork &work, const ConvBlock &block) {
    if (held.first == block.first) return;
    if (!work.taps.strips) {
      conv_pointers(work.args, work.taps, block.first, block.count, fill, pointers);
    } else {
      conv_fill_strip(work.args, work.strip, block.image, block.row, block.rows, block.column, block.columns, fill);
      if (held.rows != block.rows || held.columns != block.columns)
        conv_strip_pointers(work.args, work.strip, block.rows, block.columns, fill, pointers);
    }
    held = block;
  }
};

template <class Epilogue> struct ConvLoop {
  const mycc_host *host;
  const ConvWork &work;
  const Epilogue &epilogue;

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const ConvLoop &loop = *(const ConvLoop *)arg;
    const ConvWork &work = loop.work;
    const int64_t groups = work.args.groups, n = work.args.out_c / groups, depth = work.args.in_c / groups;
    ConvMemory memory;
    if (!memory.take(work, loop.host, worker)) return;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t group = task % groups, panel = task / groups / work.plan.row_blocks * work.plan.panels;
      const ConvBlock block = work.block(task / groups % work.plan.row_blocks);
      memory.hold(work, block);
      const int64_t columns = min64(work.plan.panels * kPanel, n - panel * kPanel);
      const int64_t panel_size = work.cut.segments * work.cut.depth * kPanel;
      PackedPanels panels = {work.args.w + (group * ceil_div(n, kPanel) + panel) * panel_size, panel_size};
      const BlockPlan plan = plan_block(work.cut, block.count, ceil_div(columns, kPanel));
      const FinishRows<Epilogue> finish = {loop.epilogue, 0, block.first, group * n + panel * kPanel};
      const BlockRows rows = {memory.pointers, block.count, block.count, group * depth};
      multiply_block(work.cut, plan, rows, panels, columns, memory.sums, finish);
    }
  }
};

template <class Epilogue> inline void conv(const mycc_host *host, const ConvArgs &args, const Epilogue &epilogue) {
  const int64_t m = args.batch * args.out_h * args.out_w, n = args.out_c / args.groups;
  if (m <= 0 || n <= 0) return;
  const bool pointwise = args.kernel_h == 1 && args.kernel_w == 1 && args.stride_h == 1 && args.stride_w == 1 &&
                         args.pad_h == 0 && args.pad_w == 0 && args.groups == 1;
  const bool dense = (args.in_h == 1 || args.x_h == args.in_w * args.x_w) &&
                     (args.batch == 1 || args.x_batch == args.in_h * args.in_w * args.x_w) &&
                     args.out_h == args.in_h && args.out_w == args.in_w;
  if (pointwise && dense) {
    gemm(host, GemmArgs{1, m, args.out_c, args.in_c, args.x, 0, args.x_w, args.w, 0}, epilogue);
    return;
  }
  const ConvWork work(args, host->max_workers);
  ConvLoop<Epilogue> loop = {host, work, epilogue};
  host->parallel_for(host->ctx, work.plan.count, work.plan.grain, ConvLoop<Epilogue>::body, &loop);
}

} // namespace mycc

#include "conv_depthwise.h"

#endif /* MYCC_CONV_H */
