/* Convolutions on NHWC activations as implicit products, float32, with a fused epilogue.
 *
 * A's rows are output pixels (image, row and column flattened), K is kernel taps x input channels of a group, columns are
 * the output channels of a group. The input is not rearranged: a table of pointers says where each pixel finds its
 * channels for each tap, a row of zeros standing for the padding. With few input channels the taps of a kernel row are
 * merged into one run of kernel_w * in_c values; when there is padding the input rows of a block are first copied into
 * padded strips.
 *
 * epilogue(0, m, n, acc, count): m = (image * out_h + row) * out_w + column, n = output channel, counted over all groups.
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
  const float *w;            /* [groups][ceil(out_c / groups / 16)][kernel_h * kernel_w][in_c / groups][16]; depthwise: [taps][C] */
};

/* How the taps of a kernel are seen by the product. */
struct ConvTaps {
  bool merged;              /* a kernel row is one segment of kernel_w * in_c values */
  bool strips;              /* merged, and the input is copied into padded strips */
  int64_t columns, depth;   /* segments of a kernel row; values of a segment */
};

constexpr int64_t kMergedChannels = 32; /* fewer input channels than this are merged */
constexpr int64_t kStripRows = 256;     /* output pixels of a strip */

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

/* Copies the strip of the block of `rows` x `columns` pixels at (row, column) of an image, and points into it. */
inline void conv_fill_strip(const ConvArgs &args, const ConvStrip &strip, int64_t image, int64_t row, int64_t rows,
                            int64_t column, int64_t columns, float *copy, const float **pointers) {
  const int64_t top = row * args.stride_h - args.pad_h, left = column * args.stride_w - args.pad_w;
  const int64_t in_rows = (rows - 1) * args.stride_h + (args.kernel_h - 1) * args.dilation_h + 1;
  const int64_t pixels = (columns - 1) * args.stride_w + args.kernel_w;
  for (int64_t i = 0; i < in_rows; ++i) {
    const int64_t y = top + i;
    if (y < 0 || y >= args.in_h) zero_floats(copy + i * strip.stride, pixels * args.in_c);
    else conv_copy_row(args, args.x + image * args.x_batch + y * args.x_h, left, pixels, copy + i * strip.stride);
  }
  for (int64_t tap = 0; tap < args.kernel_h; ++tap)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        *pointers++ = copy + (r * args.stride_h + tap * args.dilation_h) * strip.stride + c * args.stride_w * args.in_c;
}

template <class Epilogue> struct ConvLoop {
  const mycc_host *host;
  const ConvArgs &args;
  const Epilogue &epilogue;
  ConvTaps taps;
  DepthCut cut;
  ConvStrip strip;
  TaskPlan plan; /* batch = groups */

  int64_t max_rows() const { return taps.strips ? strip.rows * strip.columns : plan.rows; }

  /* First pixel of a row block, and how many. */
  void rows_of(int64_t block, int64_t *first, int64_t *count) const {
    if (!taps.strips) {
      *first = block * plan.rows;
      *count = min64(plan.rows, args.batch * args.out_h * args.out_w - *first);
      return;
    }
    int64_t image, row, rows, column, columns;
    strip_of(block, &image, &row, &rows, &column, &columns);
    *first = (image * args.out_h + row) * args.out_w + column;
    *count = rows * columns;
  }
  void strip_of(int64_t block, int64_t *image, int64_t *row, int64_t *rows, int64_t *column, int64_t *columns) const {
    const int64_t across = strip.column_blocks(args), down = strip.row_blocks(args);
    *column = block % across * strip.columns;
    *columns = min64(strip.columns, args.out_w - *column);
    *row = block / across % down * strip.rows;
    *rows = min64(strip.rows, args.out_h - *row);
    *image = block / across / down;
  }

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const ConvLoop &loop = *(const ConvLoop *)arg;
    const ConvArgs &args = loop.args;
    const int64_t max_rows = loop.max_rows(), group_out = args.out_c / args.groups, group_in = args.in_c / args.groups;
    const int64_t zeros = loop.taps.strips ? 0 : max64(args.in_c, loop.taps.depth);
    const int64_t copies = loop.taps.strips ? loop.strip.in_rows * loop.strip.stride : 0;
    const BlockPlan largest = plan_block(loop.cut, max_rows, loop.plan.panels);
    const size_t pointer_bytes = (size_t)(loop.cut.segments * max_rows) * sizeof(float *);
    const size_t fill_bytes = (size_t)(zeros + copies) * sizeof(float);
    void *scratch = loop.host->scratch(loop.host->ctx, worker, pointer_bytes + fill_bytes + largest.bytes() + 3 * 64);
    if (!scratch) return;
    Carver carver = {(uint8_t *)scratch};
    const float **pointers = carver.take<const float *>(pointer_bytes);
    float *fill = carver.take<float>(fill_bytes), *sums = carver.take<float>(largest.bytes());
    zero_floats(fill, zeros);
    int64_t filled = -1;
    for (int64_t task = begin; task < end; ++task) {
      int64_t group = task % args.groups, block = task / args.groups % loop.plan.row_blocks, first, count;
      const int64_t panel = task / args.groups / loop.plan.row_blocks * loop.plan.panels;
      loop.rows_of(block, &first, &count);
      if (block != filled && loop.taps.strips) {
        int64_t image, row, rows, column, columns;
        loop.strip_of(block, &image, &row, &rows, &column, &columns);
        conv_fill_strip(args, loop.strip, image, row, rows, column, columns, fill, pointers);
      } else if (block != filled) {
        conv_pointers(args, loop.taps, first, count, fill, pointers);
      }
      filled = block;
      const int64_t columns = min64(loop.plan.panels * kPanel, group_out - panel * kPanel);
      const int64_t panel_size = loop.cut.segments * loop.cut.depth * kPanel;
      PackedPanels panels = {args.w + (group * ceil_div(group_out, kPanel) + panel) * panel_size, panel_size};
      const BlockPlan plan = plan_block(loop.cut, count, ceil_div(columns, kPanel));
      const FinishRows<Epilogue> finish = {loop.epilogue, 0, first, group * group_out + panel * kPanel};
      multiply_block(loop.cut, plan, {pointers, count, count, group * group_in}, panels, columns, sums, finish);
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
  const ConvTaps taps = conv_taps(args);
  const DepthCut cut = cut_depth(args.kernel_h * taps.columns, taps.depth);
  const ConvStrip strip(args);
  TaskPlan plan = plan_tasks(cut, args.groups, m, n, host->max_workers, 4);
  if (taps.strips) {
    plan.row_blocks = args.batch * strip.row_blocks(args) * strip.column_blocks(args);
    plan.count = plan.row_blocks * plan.panel_blocks;
    plan.grain = host->max_workers > 1 ? 1 : plan.count;
  }
  ConvLoop<Epilogue> loop = {host, args, epilogue, taps, cut, strip, plan};
  host->parallel_for(host->ctx, plan.count, plan.grain, ConvLoop<Epilogue>::body, &loop);
}

} // namespace mycc

#include "conv_depthwise.h"

#endif /* MYCC_CONV_H */
