/* How a convolution by panels is cut into blocks of pixels and tasks. */
#ifndef MYCC_KERNELS_CONV_PLAN_H
#define MYCC_KERNELS_CONV_PLAN_H

#include "machine.h"
#include "kernels/conv/args.h"

namespace mycc {

constexpr int64_t kSpilt = 4;                 /* pixels that may be written behind a row of a strip, transposed ones */

/* How the taps of a kernel are seen by the product. */
struct ConvTaps {
  bool merged;             /* few channels: the input is copied so that a kernel row can be one segment */
  bool strips;             /* the input is copied into padded strips */
  int64_t columns, depth;  /* segments of a kernel row; values of a segment */
  int64_t pitch;           /* floats to the next pixel of a strip: those of a tile lie in several cache sets */

  explicit ConvTaps(const ConvArgs &a) {
    const bool neighbours = a.groups == 1 && a.kernel_w > 1 && a.dilation_w == 1;
    merged = neighbours && a.in_c < kMergedChannels;
    strips = !a.inside() || (merged && a.x_w != a.in_c) || a.x_c != 1;
    pitch = a.in_c;
    if (!merged && a.stride_w * a.in_c * (int64_t)sizeof(float) % kSetBytes == 0) pitch += kPanel;
    const bool one = neighbours && (strips ? pitch : a.x_w) == a.in_c; /* a kernel row lies densely: one segment */
    columns = one ? 1 : a.kernel_w;
    depth = one ? a.kernel_w * a.in_c : a.in_c / a.groups;
  }
};

/* Output pixels of a block: frames x rows x columns, several frames only when their rows are all there. */
struct ConvBlock {
  int64_t frame, frames, row, rows, column, columns;
};

/* How a convolution is cut into blocks of pixels, and those into tasks. */
struct ConvPlan {
  const ConvArgs &args;
  ConvTaps taps;
  ConvCut cut;
  int64_t frames, rows, columns;           /* of a block, at most */
  int64_t across, down, blocks;            /* blocks of a row, of a frame, of all */
  int64_t panels, panel_blocks, group;     /* panels of a task, and those that are multiplied together */
  int64_t tasks, grain;
  int64_t in_rows, in_columns;             /* of a strip: rows and pixels of a slice */
  int64_t in_row, in_slice, in_frame;      /* floats of a row, of a slice, of those that a frame reads */
  bool ring;                               /* the slices of a strip are kept for the frame behind it, which comes next */
  bool long_runs = false;                  /* the rows of blocks are long runs, by one panel */
  TapRuns tap_runs;                        /* those hold the taps of kernel rows */

  ConvPlan(const ConvArgs &a, int64_t workers, const ConvTuning &tuning = ConvTuning())
      : args(a), taps(a), cut(a.kernel_d * a.kernel_h * taps.columns, taps.depth, tuning), frames(1), rows(1),
        columns(a.out_w), ring(taps.strips && a.kernel_d > 1) {
    cut.row = taps.columns;
    cut.rows = a.kernel_h;
    const int64_t per_group = ceil_div(a.out_c / a.groups, kPanel);
    const int64_t work = a.frames() * a.out_h * a.out_w * a.out_c * cut.segments * cut.depth;
    const int64_t wanted = workers > 1 ? min64(kConvTasks * workers, max64(work / kConvTaskWork, 1)) : 1;
    /* With few channels the strip is small; that of several slices is filled once for all the frames behind it. */
    fit(tuning.pixels * (taps.merged ? kMergedPixels : a.kernel_d > 1 ? kDeepPixels : 1));
    const int64_t pixels = a.frames() * a.out_h * a.out_w;
    if (blocks >= wanted && blocks % workers != 0 && blocks < kFewTasks * workers)
      fit(ceil_div(pixels, round_up(blocks, workers)));
    panel_blocks = even_blocks(per_group, blocks * a.groups, wanted, workers);
    panels = ceil_div(per_group, panel_blocks);
    panel_blocks = ceil_div(per_group, panels);
    group = group_panels(cut, panels);
    if (blocks * panel_blocks * a.groups < wanted / 2) { /* too few channels to share out: smaller blocks of pixels */
      fit(max64(pixels / ceil_div(wanted, panel_blocks * a.groups), 2 * kRuns * kRunPixels));
    }
    tasks = blocks * panel_blocks * a.groups;
    const int64_t each = work / max64(tasks, 1), along = ring ? a.out_d * panel_blocks * a.groups : 1;
    grain = max64(min64(kConvTaskWork / max64(each, 1), tasks / workers), min64(along, tasks / (kConvTasks * workers)));
    grain = workers > 1 ? max64(grain, 1) : max64(tasks, 1);
    in_rows = (rows - 1) * a.stride_h + (a.kernel_h - 1) * a.dilation_h + 1;
    in_columns = (columns - 1) * a.stride_w + (a.kernel_w - 1) * a.dilation_w + 1;
    in_row = in_columns * taps.pitch;
    in_slice = in_rows * in_row + (a.x_c != 1 ? kSpilt * taps.pitch : 0);
    in_frame = a.kernel_d * in_slice;
  }

  ConvBlock block(int64_t i) const {
    const int64_t area = across * down, deep = blocks / area, place = ring ? i / deep : i % area;
    const int64_t c = place % across * columns, r = place / across * rows;
    const int64_t f = ring ? frame_at(i % deep) : i / area * frames;
    return {f, min64(frames, args.frames() - f), r, min64(rows, args.out_h - r), c, min64(columns, args.out_w - c)};
  }
  /* The i-th frame, in an order in which those side by side read the same slices: those that are a dilation apart. */
  int64_t frame_at(int64_t i) const {
    const int64_t n = args.out_d, step = args.stride_d == 1 ? min64(args.dilation_d, n) : 1, image = i / n * n;
    const int64_t each = n / step, longer = n % step, split = longer * (each + 1), at = i - image;
    if (at < split) return image + at % (each + 1) * step + at / (each + 1);
    return image + (at - split) % each * step + longer + (at - split) / each;
  }
  /* Where one panel is all there is. */
  void take_long_runs() {
    long_runs = kLongRun && panels == 1 && columns % max64(kLongRun, 1) == 0 && (args.out_w % columns == 0 || tap_rows());
    tap_runs.rows = tap_rows();
    tap_runs.width = args.out_w;
    tap_runs.zeros = taps.strips && args.pad_w == args.kernel_w / 2 && args.in_w == args.out_w;
  }
  int64_t strip_floats() const { return taps.strips ? frames * in_frame : 0; }
  /* Of the kernel, for a row of outputs. */
  KernelRows rows_inside(int64_t row) const {
    const TapRange taps(row * args.stride_h - args.pad_h, args.dilation_h, args.kernel_h, args.in_h);
    return taps.count() ? KernelRows{(int32_t)taps.first, (int32_t)taps.last} : KernelRows{0, (int32_t)args.kernel_h};
  }

private:
  /* The tiles that hold the taps of kernel rows, where sizes alone say so: sums have another order in them. */
  const TapRows *tap_rows() const {
    const bool merged = taps.columns == 1 && args.kernel_w > 1 && args.stride_w == 1 && cut.pieces == 1;
    if (!merged || args.out_c > kPanel || args.out_c <= kPanel / 2 || args.out_w % max64(kLongRun, 1) != 0) return nullptr;
    for (const TapRows *rows = kTapRowKernels; rows->taps; ++rows)
      if (rows->taps == args.kernel_w) return rows;
    return nullptr;
  }
  /* Blocks of panels for so many blocks of pixels, each of kConvTaskPanels at least: as keeps all workers equally busy. */
  static int64_t even_blocks(int64_t panels, int64_t others, int64_t wanted, int64_t workers) {
    if (others >= wanted) return 1;
    const int64_t most = max64(panels / kConvTaskPanels, 1), about = ceil_div(wanted, others);
    int64_t best = min64(about, most), least = -1;
    for (int64_t count = min64(max64(about / 2, 1), most); count <= min64(2 * about, most); ++count) {
      const int64_t busiest = ceil_div(others * count, workers) * round_up(ceil_div(panels, count), 2);
      if (least < 0 || busiest <= least) best = count, least = busiest;
    }
    return best;
  }
  /* Blocks of about `pixels` output pixels, whose strips are not too large. */
  void fit(int64_t pixels) {
    const ConvArgs &a = args;
    if (taps.strips) { /* input floats of an output pixel */
      const int64_t each = taps.pitch * a.stride_w * min64(a.stride_h, a.kernel_h) * (int64_t)sizeof(float);
      pixels = max64(min64(pixels, kConvStripBytes / max64(each, 1)), kRuns * kRunPixels);
    }
    frames = rows = 1;
    columns = a.out_w;
    if (a.out_w > pixels) columns = ceil_div(a.out_w, ceil_div(a.out_w, pixels));
    else rows = min64(max64(pixels / max64(a.out_w, 1), 1), max64(a.out_h, 1));
    if (columns < a.out_w && columns > kRunPixels) columns = min64(round_up(columns, 4), a.out_w);
    if (tap_rows()) columns = round_up(columns, kLongRun);
    rows = ceil_div(a.out_h, ceil_div(a.out_h, rows));
    across = ceil_div(a.out_w, columns);
    down = ceil_div(a.out_h, rows);
    if (across * down == 1 && !ring)
      frames = max64(min64(pixels / max64(a.out_h * a.out_w, 1), a.frames()), 1);
    frames = ceil_div(a.frames(), ceil_div(a.frames(), frames));
    blocks = across * down * ceil_div(a.frames(), frames);
  }
};

} // namespace mycc
#endif /* MYCC_KERNELS_CONV_PLAN_H */
