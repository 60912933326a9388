/* What the convolutions share: arguments, the cut of their depth, pixels in runs. Activations are channels-last.
 *
 * A map has `frames` of height x width: a frame is an image, or a depth position of an image of a 3-d convolution.
 */
#ifndef MYCC_KERNELS_CONV_ARGS_H
#define MYCC_KERNELS_CONV_ARGS_H

#include "machine.h"
#include "kernels/gemm/block.h"
#include "kernels/gemm/pack.h"

namespace mycc {

/* pad_*: zeros in front of the input; how many are behind it follows from the sizes. */
struct ConvArgs {
  int64_t batch, in_h, in_w, in_c, out_h, out_w, out_c;
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups;
  const float *x;
  int64_t x_batch, x_h, x_w; /* strides in elements */
  /* [groups][ceil(out_c / groups / 16)][taps][in_c / groups][16], 8 columns twice; conv_depthwise: [taps][C];
   * conv_winograd: [points][ceil(out_c / 16)][in_c][16], or taps: see there */
  const float *w;
  int64_t in_d = 1, out_d = 1, kernel_d = 1, stride_d = 1, pad_d = 0, dilation_d = 1, x_d = 0; /* 3-d */
  int64_t x_c = 1; /* conv alone takes another: planes of channels, as images come */

  int64_t frames() const { return batch * out_d; }
  /* Zeros that a window can reach along one dimension: none in front and none behind. */
  bool inside() const {
    return pad_d <= 0 && pad_h <= 0 && pad_w <= 0 &&
           (out_d - 1) * stride_d - pad_d + (kernel_d - 1) * dilation_d < in_d &&
           (out_h - 1) * stride_h - pad_h + (kernel_h - 1) * dilation_h < in_h &&
           (out_w - 1) * stride_w - pad_w + (kernel_w - 1) * dilation_w < in_w;
  }
};

/* Taps [first, last) of a kernel of `size` taps that lie inside [0, extent) when the first one is at `start`. */
struct TapRange {
  int64_t first, last;

  TapRange(int64_t start, int64_t dilation, int64_t size, int64_t extent)
      : first(start < 0 ? min64(steps(-start, dilation), size) : 0),
        last(start < extent ? max64(min64(steps(extent - start, dilation), size), first) : first) {}
  int64_t count() const { return last - first; }

private:
  static int64_t steps(int64_t distance, int64_t dilation) {
    return dilation == 1 ? distance : ceil_div(distance, dilation); /* spares a division for every row and border pixel */
  }
};

/* What a choice of the tuner may change; the values here are the cost model's. */
struct ConvTuning {
  int64_t depth = kConvDepth;             /* longest depth block, about */
  int64_t panel_bytes = kConvPanelBytes; /* weights of a depth block of a group of panels, in L2 */
  int64_t pixels = kConvPixels;           /* output pixels of a block, about */
};

/* A part of the depth: whole segments (taps), or a piece of one. `first` is its first value, over all segments. */
struct ConvDepth {
  int64_t segment, segments, offset, depth, first;
};

/* The depth of a convolution, segments x depth values, cut into blocks by its size alone: the sums of a block start
 * from zero and are added to those before it, so an element has the same bits however the work is divided. */
struct ConvCut {
  int64_t segments, depth;
  int64_t segments_step, depth_step, pieces, count;
  int64_t panel_bytes;
  int64_t from = 0, to; /* segments that count: what the others read is zero */
  int64_t row, rows = 1; /* segments of a kernel row, and the rows of a slice of the kernel */

  ConvCut(int64_t s, int64_t d, const ConvTuning &tuning = ConvTuning())
      : segments(s), depth(d), segments_step(1), depth_step(d), pieces(1), count(1), panel_bytes(tuning.panel_bytes),
        to(s), row(s) {
    if (depth > tuning.depth) {
      depth_step = ceil_div(depth, ceil_div(depth, tuning.depth));
      pieces = ceil_div(depth, depth_step);
      count = segments * pieces;
    } else {
      const int64_t blocks = max64(ceil_div(segments * depth, tuning.depth), 1);
      segments_step = max64(ceil_div(segments, blocks), 1);
      count = ceil_div(segments, segments_step);
    }
  }
  ConvDepth block(int64_t i) const {
    if (count == 1) return {from, to - from, 0, depth, from * depth}; /* without divisions */
    const int64_t start = i / pieces * segments_step, offset = i % pieces * depth_step;
    const int64_t segment = max64(start, from), end = min64(start + segments_step, to);
    return {segment, end - segment, offset, min64(depth_step, depth - offset), segment * depth + offset};
  }
  /* The blocks that have segments that count. */
  int64_t begin() const { return count == 1 ? 0 : from / segments_step * pieces; }
  int64_t end() const { return count == 1 ? 1 : ceil_div(to, segments_step) * pieces; }
  int64_t longest() const { return segments_step * depth_step; }
};

/* Kernel rows of a slice that count: what the others read is zero. */
struct KernelRows {
  int32_t from, to;

  bool operator==(const KernelRows &other) const { return from == other.from && to == other.to; }
};

/* The pixels of one tile: `runs` runs of `pixels` each. */
struct ConvSpan {
  int64_t x[2];         /* floats to the input of each run's first pixel */
  int64_t m[2];         /* output pixel that it is */
  int32_t runs, pixels;
  KernelRows rows;
};

/* Segments from .. to - 1. */
struct ConvRun {
  int64_t from, to;
};

/* The first segments of at .. end - 1 that count for pixels with these kernel rows, side by side; none: from is end. */
MYCC_INLINE ConvRun next_run(const ConvCut &cut, const KernelRows &rows, int64_t at, int64_t end) {
  if (rows.to - rows.from == cut.rows) return {at, end};
  const int64_t slice = cut.rows * cut.row;
  int64_t first = at / slice * slice;
  if (at >= first + rows.to * cut.row) first += slice;
  return {min64(max64(at, first + rows.from * cut.row), end), min64(first + rows.to * cut.row, end)};
}

/* How many runs a row of `width` pixels has: all as long, or some one less. The longest spare most calls and broadcasts;
 * others come in pairs, better than one that is left over. long_runs: it is whole long runs. */
static inline int64_t runs_of(int64_t width, bool long_runs) {
  if (kLongRun && long_runs) return width / max64(kLongRun, 1);
  const int64_t runs = ceil_div(width, kRunPixels);
  return kRuns == 2 && runs > 1 && width % kRunPixels != 0 ? round_up(runs, 2) : runs;
}

/* Tiles that hold the taps of kernel rows, for the runs of rows of `width` pixels. */
struct TapRuns {
  const TapRows *rows = nullptr;
  int64_t width = 0;
  bool zeros = false; /* half as many pixels of zeros as a kernel row has taps lie left and right of rows */

  explicit operator bool() const { return rows; }
  /* Multiplies run `i` of a span, c and out those of its tile. */
  void multiply(const RunTile &tile, const ConvSpan &span, int64_t i) const {
    RunTile run = tile;
    run.x[0] = tile.x[i];
    run.c = tile.c + i * kLongRun * tile.c_stride;
    run.out[0] = tile.out[i];
    run.residual[0] = tile.residual[i];
    const int64_t column = span.m[i] % width;
    const RunKernel last = column + kLongRun == width ? rows->last : rows->within;
    (!zeros ? rows->within : column == 0 ? rows->first : last)(run);
  }
};

/* Collects runs into tiles: a run waits for the next one of its length. */
struct ConvSpans {
  ConvSpan *spans;
  int64_t count = 0;
  bool long_runs = false; /* of one panel */
  TapRuns tap_runs;       /* of them, if any */

  /* Spans of rows of at most so many pixels: narrower ones may have shorter runs, and more of them. */
  static int64_t most(int64_t rows, int64_t width) {
    return rows * ceil_div(width, kRuns == 2 ? min64(4, kRunPixels) : kRunPixels);
  }

  void add(int64_t x, int64_t m, int64_t pixels, KernelRows rows) {
    for (int64_t i = count - 1; kRuns == 2 && i >= 0 && i >= count - 2; --i) {
      ConvSpan &span = spans[i];
      if (span.runs == 2 || span.pixels != pixels || !(span.rows == rows)) continue;
      span.x[1] = x, span.m[1] = m, span.runs = 2;
      return;
    }
    spans[count++] = {{x, x}, {m, m}, 1, (int32_t)pixels, rows};
  }
  /* A row of `width` output pixels, `step` floats apart in the input. */
  void add_row(int64_t x, int64_t step, int64_t m, int64_t width, KernelRows rows = {0, 1}) {
    const int64_t runs = runs_of(width, long_runs);
    for (int64_t i = 0, at = 0; i < runs; ++i) {
      const int64_t pixels = width / runs + (i < width % runs);
      add(x + at * step, m + at, pixels, rows);
      at += pixels;
    }
  }
};

/* The panels of a group times the pixels of one tile, whose places move on from panel to panel. half: the last panel has
 * 8 columns, twice. before(panel, width): these panels come next. */
template <class Before>
inline void multiply_span(RunTile &tile, const ConvSpan &span, int64_t panels, bool half, const Before &before) {
  const bool is_long = kLongRun && span.pixels == kLongRun;
  const RunKernel *kernels = is_long ? &kLongRunKernels[span.runs - 1] : kRunKernels[span.runs - 1][span.pixels - 1];
  const int64_t widest = is_long ? 1 : kRunPanels[span.pixels - 1];
  for (int64_t panel = 0;;) {
    const int64_t width = min64(widest, panels - panel);
    before(panel, width);
    tile.half = half && panel + width == panels;
    kernels[tile.half && width == 2 ? 2 : width - 1](tile);
    panel += width;
    if (panel >= panels) return;
    tile.w += width * tile.panel_size;
    tile.next += width * tile.panel_size * (int64_t)sizeof(float);
    tile.c += width * kPanel;
    if (!tile.out[0]) continue;
    for (int r = 0; r < 2; ++r) {
      tile.out[r] += width * kPanel;
      if (tile.residual[r]) tile.residual[r] += width * kPanel;
    }
    if (tile.bias) tile.bias += width * kPanel;
  }
}

/* Has the tile finish its pixels, `width` panels, in registers when that is all there is to do, with the bits of the
 * epilogue. Results that are far away are fetched: a tile's stores come all at once, and would wait for their lines. */
template <class Finish>
MYCC_INLINE auto adds(const Finish &finish, RunTile &tile, const ConvSpan &span, int64_t column, int64_t width, int)
    -> decltype(finish.added(column, column), true) {
  for (int64_t r = 0; r < span.runs; ++r) {
    const Added to = finish.added(span.m[r], column);
    for (int64_t p = 0; p < span.pixels && finish.far(); ++p)
      for (int64_t n = 0; n < width * kPanel; n += kPanel) __builtin_prefetch(to.out + p * to.out_row + n, 1);
    tile.out[r] = to.out;
    tile.residual[r] = to.residual;
    tile.out_stride = to.out_row;
    tile.residual_stride = to.residual_row;
    take_bias_and_bounds(tile, to);
  }
  return true;
}
template <class Finish> MYCC_INLINE bool adds(const Finish &, RunTile &, const ConvSpan &, int64_t, int64_t, long) {
  return false;
}

/* Panels of a group, evenly. */
static inline int64_t group_panels(const ConvCut &cut, int64_t panels) {
  const int64_t fitting = cut.panel_bytes / max64(cut.longest() * kPanel * (int64_t)sizeof(float), 1);
  const int64_t most = max64(min64(fitting, kConvMaxGroup), 2);
  return min64(round_up(ceil_div(panels, ceil_div(max64(panels, 1), most)), 2), max64(panels, 1));
}

/* Floats of scratch memory that multiply_spans needs, for groups of at most so many panels. */
static inline int64_t span_sums(const ConvCut &cut, int64_t group, int64_t spans) {
  return (cut.count > 1 ? spans : 1) * kRuns * kMostRun * group * kPanel;
}

/* Has the tile multiply the pixels of a span by `width` panels from `column` on, of which `valid` columns count. last: the
 * sums are complete then, and are finished. */
template <class Finish>
inline void multiply_run(RunTile &tile, const ConvSpan &span, const TapRuns &taps, int64_t column, int64_t width,
                         int64_t valid, bool last, const Finish &finish) {
  const bool half = valid == width * kPanel - kPanel / 2; /* tiles finish such a panel too */
  const float *c = tile.c;
  tile.out[0] = tile.out[1] = nullptr;
  const bool added = last && (half || valid == width * kPanel) && adds(finish, tile, span, column, width, 0);
  const auto before = [&](int64_t p, int64_t count) {
    const int64_t first = p * kPanel;
    for (int64_t r = 0; r < span.runs && last; ++r)
      for (int64_t m = span.m[r]; m < span.m[r] + span.pixels; ++m)
        finish.prefetch(m, column + first, min64(count * kPanel, valid - first));
  };
  if (taps) {
    before(0, 1);
    for (int64_t r = 0; r < span.runs; ++r) taps.multiply(tile, span, r);
  } else {
    multiply_span(tile, span, width, half, before);
  }
  for (int64_t r = 0; r < span.runs && last && !added; ++r)
    for (int64_t p = 0; p < span.pixels; ++p)
      finish(span.m[r] + p, column, c + (r * span.pixels + p) * tile.c_stride, valid);
}

/* Multiplies the pixels of `spans` by `panels` panels of weights, of which `columns` columns are valid, `group` panels
 * at a time. finish(m, column, sums, count) gets each pixel's sums of a group of panels once; finish.prefetch(m,
 * column, count) is told of them, part by part, while they are made. finish.added(m, column), where there is one, says
 * what of whole panels the tiles may do themselves, and finish.far() whether the results go to memory. */
template <class Finish>
inline void multiply_spans(const ConvCut &cut, const ConvSpans &spans, const float *x, int64_t pixel,
                           const int64_t *taps, const float *w, int64_t panels, int64_t group, int64_t columns,
                           float *sums, const Finish &finish) {
  const int64_t panel_size = cut.segments * cut.depth * kPanel;
  const int64_t stride = group * kPanel, kept = cut.count > 1 ? kRuns * kMostRun * stride : 0;
  RunTile tile;
  tile.pixel = pixel;
  tile.panel_size = panel_size;
  tile.c_stride = stride;
  const int64_t first = cut.begin(), end = cut.end();
  for (int64_t panel = 0; panel < panels; panel += group) {
    const int64_t width = min64(group, panels - panel), valid = min64(columns - panel * kPanel, width * kPanel);
    for (int64_t d = first; d < end; ++d) {
      const ConvDepth block = cut.block(d);
      const int64_t stop = block.segment + block.segments;
      tile.depth = block.depth;
      const float *begin = w + panel * panel_size + block.first * kPanel;
      const char *next = (const char *)begin;
      tile.next_step = 0;
      if (d < end - 1 || panel + group < panels) { /* the weights that come next, a part with each tile */
        next = (const char *)(d == end - 1 ? begin + group * panel_size - block.first * kPanel
                                           : w + panel * panel_size + cut.block(d + 1).first * kPanel);
        tile.next_step = ceil_div(kPanel * (int64_t)sizeof(float), spans.count);
      }
      const int64_t fetched = tile.next_step * block.segments * block.depth;
      for (int64_t i = 0; i < spans.count; ++i, next += fetched) {
        const ConvSpan &span = spans.spans[i];
        float *c = sums + i * kept;
        tile.x[0] = x + span.x[0] + block.offset;
        tile.x[1] = x + span.x[1] + block.offset;
        for (ConvRun run = next_run(cut, span.rows, block.segment, stop); run.from < stop;
             run = next_run(cut, span.rows, run.to, stop)) {
          const bool whole = block.offset + block.depth == cut.depth; /* of its segments, with those before it */
          tile.accumulate = block.offset > 0 || run.from > next_run(cut, span.rows, cut.from, cut.to).from;
          tile.taps = taps + run.from;
          tile.segments = run.to - run.from;
          tile.w = begin + (run.from - block.segment) * block.depth * kPanel;
          tile.next = next;
          tile.c = c;
          const bool last = whole && next_run(cut, span.rows, run.to, cut.to).from >= cut.to;
          multiply_run(tile, span, spans.tap_runs, panel * kPanel, width, valid, last, finish);
        }
      }
    }
  }
}

} // namespace mycc
#endif /* MYCC_KERNELS_CONV_ARGS_H */
