/* Convolutions on channels-last activations as implicit products, float32, with a fused epilogue.
 *
 * Rows of the product are output pixels, its depth is kernel taps x input channels of a group, its columns are the
 * output channels of a group. Pixels are taken in runs: neighbours of an output row, whose inputs are equally far
 * apart. Where the kernel reaches beyond the input, the input of a block is first copied into a padded strip. With few
 * input channels the taps of a kernel row are merged into one segment of kernel_w * in_c values. Without a window (1x1)
 * it is the product of gemm.h, whose rows are the pixels.
 *
 * epilogue(0, m, n, acc, count): m = ((image * out_d + depth) * out_h + row) * out_w + column, n = output channel, over
 * all groups.
 */
#ifndef MYCC_CONV_H
#define MYCC_CONV_H

#include "conv_args.h"
#include "gemm.h"

namespace mycc {

constexpr int64_t kMergedChannels = 32;       /* fewer input channels than this are merged */
constexpr int64_t kProductChannels = 64;      /* 1x1 from so many channels to more, or the reverse, is a product */
constexpr int64_t kConvStripBytes = 512 << 10; /* padded input of a block, about */
constexpr int64_t kSetFloats = 1024;          /* floats after which addresses fall into the same set of the L1 cache */
constexpr int64_t kConvTaskWork = 1 << 18;    /* multiply-adds below which a task is not worth a chunk of its own */

/* How the taps of a kernel are seen by the product. */
struct ConvTaps {
  bool merged;             /* a kernel row is one segment of kernel_w * in_c values */
  bool strips;             /* the input is copied into padded strips */
  int64_t columns, depth;  /* segments of a kernel row; values of a segment */
  int64_t pitch;           /* floats to the next pixel of a strip: those of a tile lie in several cache sets */

  explicit ConvTaps(const ConvArgs &a) {
    merged = a.groups == 1 && a.kernel_w > 1 && a.dilation_w == 1 && a.in_c < kMergedChannels;
    strips = !a.inside() || (merged && a.x_w != a.in_c) || a.x_c != 1;
    columns = merged ? 1 : a.kernel_w;
    depth = merged ? a.kernel_w * a.in_c : a.in_c / a.groups;
    pitch = a.in_c;
    if (a.x_c == 1 && !merged && a.stride_w * a.in_c % kSetFloats == 0) pitch += kPanel;
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
  int64_t in_rows, in_columns, in_row, in_frame; /* of a strip: rows and pixels of a slice, floats of a row and frame */

  ConvPlan(const ConvArgs &a, int64_t workers, const ConvTuning &tuning = ConvTuning())
      : args(a), taps(a), cut(a.kernel_d * a.kernel_h * taps.columns, taps.depth, tuning), frames(1), rows(1),
        columns(a.out_w) {
    cut.row = taps.columns;
    cut.rows = a.kernel_h;
    const int64_t per_group = ceil_div(a.out_c / a.groups, kPanel);
    const int64_t work = a.frames() * a.out_h * a.out_w * a.out_c * cut.segments * cut.depth;
    const int64_t wanted = workers > 1 ? min64(4 * workers, max64(work / kConvTaskWork, 1)) : 1;
    fit(taps.merged ? 4 * tuning.pixels : tuning.pixels); /* with few channels the strip is small */
    const int64_t pixels = a.frames() * a.out_h * a.out_w;
    if (blocks >= wanted && blocks % workers != 0 && blocks < 8 * workers)
      fit(ceil_div(pixels, round_up(blocks, workers)));
    panel_blocks = even_blocks(per_group, blocks * a.groups, wanted, workers);
    panels = ceil_div(per_group, panel_blocks);
    panel_blocks = ceil_div(per_group, panels);
    group = group_panels(cut, panels);
    if (blocks * panel_blocks * a.groups < wanted / 2) { /* too few channels to share out: smaller blocks of pixels */
      fit(max64(pixels / ceil_div(wanted, panel_blocks * a.groups), 2 * kRuns * kRunPixels));
    }
    tasks = blocks * panel_blocks * a.groups;
    const int64_t each = work / max64(tasks, 1);
    grain = workers > 1 ? max64(min64(kConvTaskWork / max64(each, 1), tasks / workers), 1) : max64(tasks, 1);
    in_rows = (rows - 1) * a.stride_h + (a.kernel_h - 1) * a.dilation_h + 1;
    in_columns = (columns - 1) * a.stride_w + (a.kernel_w - 1) * a.dilation_w + 1;
    in_row = in_columns * taps.pitch;
    in_frame = a.kernel_d * in_rows * in_row;
  }

  ConvBlock block(int64_t i) const {
    const int64_t c = i % across * columns, r = i / across % down * rows, f = i / across / down * frames;
    return {f, min64(frames, args.frames() - f), r, min64(rows, args.out_h - r), c, min64(columns, args.out_w - c)};
  }
  int64_t strip_floats() const { return taps.strips ? frames * in_frame : 0; }
  /* Of the kernel, for a row of outputs. */
  KernelRows rows_inside(int64_t row) const {
    const TapsInside taps(row, args.stride_h, args.pad_h, args.dilation_h, args.kernel_h, args.in_h);
    return taps.count() ? KernelRows{(int32_t)taps.from, (int32_t)taps.to} : KernelRows{0, (int32_t)args.kernel_h};
  }

private:
  /* Blocks of panels for so many blocks of pixels, each of 4 panels at least: as keeps all workers equally busy. */
  static int64_t even_blocks(int64_t panels, int64_t others, int64_t wanted, int64_t workers) {
    if (others >= wanted) return 1;
    const int64_t most = max64(panels / 4, 1), about = ceil_div(wanted, others);
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
    rows = ceil_div(a.out_h, ceil_div(a.out_h, rows));
    across = ceil_div(a.out_w, columns);
    down = ceil_div(a.out_h, rows);
    if (across * down == 1) frames = max64(min64(pixels / max64(a.out_h * a.out_w, 1), a.frames()), 1);
    frames = ceil_div(a.frames(), ceil_div(a.frames(), frames));
    blocks = across * down * ceil_div(a.frames(), frames);
  }
};

/* Pixels from planes of channels, `step` floats to the next pixel. */
static inline void conv_interleave(const ConvArgs &args, const float *from, int64_t pixels, float *to) {
  const int64_t step = args.x_w, plane = args.x_c, channels = args.in_c;
  if (channels == 3) {
    int64_t p = 0;
    for (; step == 1 && p + W <= pixels; p += W, from += W, to += 3 * W)
      store_woven(to, false, load(from), load(from + plane), load(from + 2 * plane));
    for (; p < pixels; ++p, from += step, to += 3) {
      to[0] = from[0];
      to[1] = from[plane];
      to[2] = from[2 * plane];
    }
    return;
  }
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t p = 0; p < pixels; ++p) to[p * channels + c] = from[p * step + c * plane];
}

/* Copies `pixels` input pixels from column `left` of a row into `to`, `pitch` apart; what is outside the input becomes
 * zero. */
static inline void conv_copy_row(const ConvArgs &args, const float *row, int64_t left, int64_t pixels, int64_t pitch,
                                 float *to) {
  const int64_t begin = min64(max64(-left, 0), pixels), end = max64(min64(args.in_w - left, pixels), begin);
  zero_floats(to, begin * pitch);
  if (args.x_c != 1) {
    conv_interleave(args, row + (left + begin) * args.x_w, end - begin, to + begin * pitch);
  } else if (args.x_w == pitch) {
    copy_floats(to + begin * pitch, row + (left + begin) * pitch, (end - begin) * pitch);
  } else {
    for (int64_t p = begin; p < end; ++p) copy_floats(to + p * pitch, row + (left + p) * args.x_w, args.in_c);
  }
  zero_floats(to + end * pitch, (pixels - end) * pitch);
}

/* Copies what a block reads into `strip`, zeros where that is outside the input. */
inline void conv_fill_strip(const ConvPlan &plan, const ConvBlock &block, float *strip) {
  const ConvArgs &a = plan.args;
  const int64_t top = block.row * a.stride_h - a.pad_h, left = block.column * a.stride_w - a.pad_w;
  const int64_t in_rows = (block.rows - 1) * a.stride_h + (a.kernel_h - 1) * a.dilation_h + 1;
  const int64_t pixels = (block.columns - 1) * a.stride_w + (a.kernel_w - 1) * a.dilation_w + 1;
  for (int64_t f = 0; f < block.frames; ++f) {
    const int64_t image = (block.frame + f) / a.out_d, depth = (block.frame + f) % a.out_d * a.stride_d - a.pad_d;
    for (int64_t tap = 0; tap < a.kernel_d; ++tap) {
      const int64_t z = depth + tap * a.dilation_d;
      for (int64_t r = 0; r < in_rows; ++r) {
        const int64_t y = top + r;
        float *to = strip + f * plan.in_frame + (tap * plan.in_rows + r) * plan.in_row;
        if (z < 0 || z >= a.in_d || y < 0 || y >= a.in_h) zero_floats(to, pixels * plan.taps.pitch);
        else conv_copy_row(a, a.x + image * a.x_batch + z * a.x_d + y * a.x_h, left, pixels, plan.taps.pitch, to);
      }
    }
  }
}

/* A worker's scratch memory, and which block it holds. */
struct ConvMemory {
  int64_t *taps;   /* floats from a pixel's input to each segment */
  float *strip, *sums;
  ConvSpans spans;
  ConvBlock held;

  /* False: there is no memory. */
  bool take(const ConvPlan &plan, const mycc_host *host, int32_t worker) {
    const int64_t most = ConvSpans::most(plan.frames * plan.rows, plan.columns);
    const size_t tap_bytes = (size_t)plan.cut.segments * sizeof(int64_t), span_bytes = (size_t)most * sizeof(ConvSpan);
    const size_t strip_bytes = (size_t)plan.strip_floats() * sizeof(float);
    const size_t sums_bytes = (size_t)span_sums(plan.cut, plan.group, most) * sizeof(float);
    void *scratch = host->scratch(host->ctx, worker, tap_bytes + span_bytes + strip_bytes + sums_bytes + 4 * 64);
    if (!scratch) return false;
    Carver carver = {(uint8_t *)scratch};
    taps = carver.take<int64_t>(tap_bytes);
    spans.spans = carver.take<ConvSpan>(span_bytes);
    strip = carver.take<float>(strip_bytes);
    sums = carver.take<float>(sums_bytes);
    held = {-1, 0, 0, 0, 0, 0};
    const ConvArgs &a = plan.args;
    const int64_t slice = plan.taps.strips ? plan.in_rows * plan.in_row : a.dilation_d * a.x_d;
    const int64_t row = a.dilation_h * (plan.taps.strips ? plan.in_row : a.x_h);
    const int64_t column = a.dilation_w * (plan.taps.strips ? plan.taps.pitch : a.x_w);
    int64_t *to = taps;
    for (int64_t d = 0; d < a.kernel_d; ++d)
      for (int64_t h = 0; h < a.kernel_h; ++h)
        for (int64_t w = 0; w < plan.taps.columns; ++w) *to++ = d * slice + h * row + w * column;
    return true;
  }

  /* Makes the strip and the spans those of a block. */
  void hold(const ConvPlan &plan, const ConvBlock &block) {
    if (held.frame == block.frame && held.row == block.row && held.column == block.column) return;
    const ConvArgs &a = plan.args;
    const bool strips = plan.taps.strips;
    if (strips) conv_fill_strip(plan, block, strip);
    held = block;
    spans.count = 0;
    const int64_t pixel = a.stride_w * (strips ? plan.taps.pitch : a.x_w);
    const int64_t line = a.stride_h * (strips ? plan.in_row : a.x_h);
    for (int64_t f = 0; f < block.frames; ++f) {
      const int64_t frame = block.frame + f;
      int64_t start = f * plan.in_frame;
      if (!strips) {
        start = frame / a.out_d * a.x_batch + (frame % a.out_d * a.stride_d - a.pad_d) * a.x_d;
        start += (block.row * a.stride_h - a.pad_h) * a.x_h + (block.column * a.stride_w - a.pad_w) * a.x_w;
      }
      for (int64_t r = 0; r < block.rows; ++r) {
        const int64_t m = (frame * a.out_h + block.row + r) * a.out_w + block.column;
        spans.add_row(start + r * line, pixel, m, block.columns, plan.rows_inside(block.row + r));
      }
    }
  }
};

/* The cut without the slices of the kernel that lie outside of the input for all frames of a block. */
inline ConvCut conv_cut_of(const ConvPlan &plan, const ConvBlock &block) {
  const ConvArgs &a = plan.args;
  const int64_t slice = a.kernel_h * plan.taps.columns;
  int64_t from = a.kernel_d, to = 0;
  for (int64_t f = block.frame; f < block.frame + block.frames; ++f) {
    const TapsInside slices(f % a.out_d, a.stride_d, a.pad_d, a.dilation_d, a.kernel_d, a.in_d);
    if (slices.count() == 0) continue;
    from = min64(from, slices.from);
    to = max64(to, slices.to);
  }
  ConvCut cut = plan.cut;
  if (from < to) cut.from = from * slice, cut.to = to * slice;
  return cut;
}

/* Hands a pixel's sums to the epilogue; columns are counted from `first`. */
template <class Epilogue> struct FinishPixel {
  const Epilogue &epilogue;
  int64_t first;

  void operator()(int64_t m, int64_t column, const float *sums, int64_t count) const {
    epilogue((int64_t)0, m, first + column, sums, count);
  }
  template <class E = Epilogue>
  auto added(int64_t m, int64_t column) const -> decltype(((const E *)nullptr)->added(m, m, column)) {
    return epilogue.added((int64_t)0, m, first + column);
  }
  static constexpr bool far() { return true; }
  void fetch(int64_t m, int64_t column, int64_t count) const {
    fetch_ahead(epilogue, 0, m, first + column, count, 0);
  }
};

template <class Epilogue> struct ConvLoop {
  const mycc_host *host;
  const ConvPlan &plan;
  const Epilogue &epilogue;

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const ConvLoop &loop = *(const ConvLoop *)arg;
    const ConvPlan &plan = loop.plan;
    const ConvArgs &a = plan.args;
    const int64_t n = a.out_c / a.groups, depth = a.in_c / a.groups;
    const int64_t panel_size = plan.cut.segments * plan.cut.depth * kPanel;
    ConvMemory memory;
    if (!memory.take(plan, loop.host, worker)) return;
    const float *x = plan.taps.strips ? memory.strip : a.x;
    const int64_t pixel = a.stride_w * (plan.taps.strips ? plan.taps.pitch : a.x_w);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t part = task % (plan.panel_blocks * a.groups), group = part / plan.panel_blocks;
      const int64_t panel = part % plan.panel_blocks * plan.panels;
      const int64_t panels = min64(plan.panels, ceil_div(n, kPanel) - panel);
      if (panels <= 0) continue;
      const ConvBlock block = plan.block(task / (plan.panel_blocks * a.groups));
      memory.hold(plan, block);
      const float *w = a.w + (group * ceil_div(n, kPanel) + panel) * panel_size;
      const int64_t first = group * n + panel * kPanel;
      multiply_spans(conv_cut_of(plan, block), memory.spans, x + group * depth, pixel, memory.taps, w, panels, plan.group,
                     n - panel * kPanel, memory.sums, FinishPixel<Epilogue>{loop.epilogue, first});
    }
  }
};

template <class Epilogue>
inline void run_conv(const mycc_host *host, const ConvArgs &args, const Epilogue &epilogue, const ConvTuning &tuning) {
  const ConvPlan plan(args, host->max_workers, tuning);
  ConvLoop<Epilogue> loop = {host, plan, epilogue};
  host->parallel_for(host->ctx, plan.tasks, plan.grain, ConvLoop<Epilogue>::body, &loop);
}

/* The pixels that a 1x1 convolution reads, as rows of a product: where they lie if they are evenly apart, else copied. */
struct PixelRows {
  const ConvArgs &args;

  int64_t step() const { return args.stride_w * args.x_w; }
  bool fills() const {
    const int64_t line = args.out_w * step(), plane = args.out_h * line;
    return (args.out_h > 1 && args.stride_h * args.x_h != line) ||
           (args.out_d > 1 && args.stride_d * args.x_d != plane) ||
           (args.batch > 1 && args.x_batch != args.out_d * plane);
  }
  int64_t stride() const { return fills() ? copied_row(args.in_c) : step(); }
  const float *at(int64_t, int64_t m) const {
    const int64_t column = m % args.out_w, line = m / args.out_w, row = line % args.out_h, frame = line / args.out_h;
    return args.x + frame / args.out_d * args.x_batch + (frame % args.out_d * args.stride_d - args.pad_d) * args.x_d +
           (row * args.stride_h - args.pad_h) * args.x_h + (column * args.stride_w - args.pad_w) * args.x_w;
  }
  void fill(int64_t z, int64_t m, float *to) const { copy_floats(to, at(z, m), args.in_c); }
};

template <class Epilogue>
inline void conv(const mycc_host *host, const ConvArgs &args, const Epilogue &epilogue,
                 const ConvTuning &tuning = ConvTuning()) {
  const int64_t m = args.frames() * args.out_h * args.out_w;
  if (m <= 0 || args.out_c <= 0) return;
  const bool pointwise = args.x_c == 1 && args.groups == 1 && args.kernel_d == 1 && args.kernel_h == 1 &&
                         args.kernel_w == 1 && args.inside();
  if (!pointwise) return run_conv(host, args, epilogue, tuning);
  const int64_t few = kProductChannels;
  if (args.in_c < few || args.out_c < few || args.in_c * args.out_c <= few * few) {
    const bool alike = args.stride_d == 1 && args.stride_h == 1 && args.stride_w == 1 && args.out_h == args.in_h &&
                       args.out_w == args.in_w && args.out_d == args.in_d;
    const bool dense = (args.in_h == 1 || args.x_h == args.in_w * args.x_w) &&
                       (args.in_d == 1 || args.x_d == args.in_h * args.in_w * args.x_w) &&
                       (args.batch == 1 || args.x_batch == args.in_d * args.in_h * args.in_w * args.x_w);
    ConvArgs flat = args;
    flat.batch = flat.in_d = flat.out_d = flat.in_h = flat.out_h = 1;
    flat.in_w = flat.out_w = m; /* one row of pixels */
    return run_conv(host, alike && dense ? flat : args, epilogue, tuning);
  }
  const GemmArgs product = {1, m, args.out_c, args.in_c, nullptr, 0, 0, args.w, 0};
  GemmTuning own;
  own.depth = tuning.depth * 3 / 2;
  run_gemm(host, product, PixelRows{args}, epilogue, own);
}

} // namespace mycc

#include "conv_depthwise.h"

#endif /* MYCC_CONV_H */
