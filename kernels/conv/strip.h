/* The input of a block of pixels as a strip with the zeros around it, channels last; and a worker's memory for it. */
#ifndef MYCC_KERNELS_CONV_STRIP_H
#define MYCC_KERNELS_CONV_STRIP_H

#include "machine.h"
#include "kernels/conv/plan.h"
#include "kernels/loops/transpose.h"

namespace mycc {

/* Pixels from planes of channels, `pitch` floats apart: tiles of them are transposed. Up to kSpilt pixels behind the
 * last one may be written. */
static inline void conv_transpose_pixels(const ConvArgs &args, const float *from, int64_t pixels, int64_t pitch, float *to) {
  constexpr int64_t COLUMNS = kTransposedBytes / (int64_t)sizeof(float);
  for (int64_t c = 0; c < args.in_c; c += kTransposedRows) {
    const int64_t channels = min64(args.in_c - c, kTransposedRows);
    for (int64_t i = 0; i < pixels; i += COLUMNS) {
      const int64_t p = min64(i, max64(pixels - COLUMNS, 0)); /* the last ones are whole tiles, where they can be */
      transpose_tile(to + p * pitch + c, pitch, from + c * args.x_c + p, args.x_c, channels, min64(pixels - p, COLUMNS));
    }
  }
}

/* Pixels from planes of channels, `step` floats to the next pixel. */
static inline void conv_interleave(const ConvArgs &args, const float *from, int64_t pixels, int64_t pitch, float *to) {
  const int64_t step = args.x_w, plane = args.x_c, channels = args.in_c;
  if (channels == 3 && pitch == 3) {
    int64_t p = 0;
    for (; step == 1 && p + W <= pixels; p += W, from += W, to += 3 * W)
      store_interleaved(to, false, load(from), load(from + plane), load(from + 2 * plane));
    for (; p < pixels; ++p, from += step, to += 3) {
      to[0] = from[0];
      to[1] = from[plane];
      to[2] = from[2 * plane];
    }
    return;
  }
  if (step == 1 && channels % kPanel == 0) return conv_transpose_pixels(args, from, pixels, pitch, to);
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t p = 0; p < pixels; ++p) to[p * pitch + c] = from[p * step + c * plane];
}

/* Copies `pixels` input pixels from column `left` of a row into `to`, `pitch` apart; what is outside the input becomes
 * zero. */
static inline void conv_copy_row(const ConvArgs &args, const float *row, int64_t left, int64_t pixels, int64_t pitch,
                                 float *to) {
  const int64_t begin = min64(max64(-left, 0), pixels), end = max64(min64(args.in_w - left, pixels), begin);
  zero_floats(to, begin * pitch);
  if (args.x_c != 1) {
    conv_interleave(args, row + (left + begin) * args.x_w, end - begin, pitch, to + begin * pitch);
  } else if (args.x_w == pitch) {
    copy_floats(to + begin * pitch, row + (left + begin) * pitch, (end - begin) * pitch);
  } else {
    for (int64_t p = begin; p < end; ++p) copy_floats(to + p * pitch, row + (left + p) * args.x_w, args.in_c);
  }
  zero_floats(to + end * pitch, (pixels - end) * pitch);
}

/* Copies what a block reads of slice z of an image, zeros where that is outside the input. */
static inline void conv_fill_slice(const ConvPlan &plan, const ConvBlock &block, int64_t image, int64_t z, float *to) {
  const ConvArgs &a = plan.args;
  const int64_t top = block.row * a.stride_h - a.pad_h, left = block.column * a.stride_w - a.pad_w;
  const int64_t in_rows = (block.rows - 1) * a.stride_h + (a.kernel_h - 1) * a.dilation_h + 1;
  const int64_t pixels = (block.columns - 1) * a.stride_w + (a.kernel_w - 1) * a.dilation_w + 1;
  for (int64_t r = 0; r < in_rows; ++r, to += plan.in_row) {
    const int64_t y = top + r;
    if (z < 0 || z >= a.in_d || y < 0 || y >= a.in_h) zero_floats(to, pixels * plan.taps.pitch);
    else conv_copy_row(a, a.x + image * a.x_batch + z * a.x_d + y * a.x_h, left, pixels, plan.taps.pitch, to);
  }
}

/* A worker's scratch memory, and which block it holds. */
struct ConvMemory {
  int64_t *taps;   /* floats from a pixel's input to each segment */
  int64_t *slices; /* of a ring: the slice of the input that lies in each place */
  float *strip, *sums;
  float *results;  /* what the caller has asked for */
  ConvSpans spans;
  ConvBlock held;

  /* False: there is no memory. result_floats: of `results`. */
  bool take(const ConvPlan &plan, const mycc_host *host, int32_t worker, int64_t result_floats = 0) {
    const ConvArgs &a = plan.args;
    const int64_t most = ConvSpans::most(plan.frames * plan.rows, plan.columns);
    const size_t tap_bytes = (size_t)plan.cut.segments * sizeof(int64_t), span_bytes = (size_t)most * sizeof(ConvSpan);
    const size_t slice_bytes = (size_t)a.kernel_d * sizeof(int64_t);
    const size_t strip_bytes = (size_t)plan.strip_floats() * sizeof(float);
    const size_t sums_bytes = (size_t)span_sums(plan.cut, plan.group, most) * sizeof(float);
    const size_t result_bytes = (size_t)result_floats * sizeof(float);
    const size_t all = tap_bytes + slice_bytes + span_bytes + strip_bytes + sums_bytes + result_bytes;
    void *scratch = host->scratch(host->ctx, worker, all + 6 * kLineBytes);
    if (!scratch) return false;
    Carver carver = {(uint8_t *)scratch};
    taps = carver.take<int64_t>(tap_bytes);
    slices = carver.take<int64_t>(slice_bytes);
    spans.spans = carver.take<ConvSpan>(span_bytes);
    spans.long_runs = plan.long_runs;
    spans.tap_runs = plan.tap_runs;
    strip = carver.take<float>(strip_bytes);
    sums = carver.take<float>(sums_bytes);
    results = carver.take<float>(result_bytes);
    held = {-1, 0, 0, 0, 0, 0};
    for (int64_t d = 0; d < a.kernel_d; ++d) place(plan, d, d);
    return true;
  }

  /* Makes the strip and the spans those of a block. */
  void hold(const ConvPlan &plan, const ConvBlock &block) {
    if (held.frame == block.frame && held.row == block.row && held.column == block.column) return;
    const ConvArgs &a = plan.args;
    const bool strips = plan.taps.strips;
    if (strips) fill(plan, block);
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

private:
  /* The segments of slice `tap` of the kernel read the slice of the strip at a place. */
  void place(const ConvPlan &plan, int64_t tap, int64_t at) {
    const ConvArgs &a = plan.args;
    const bool strips = plan.taps.strips;
    const int64_t slice = strips ? plan.in_slice : a.dilation_d * a.x_d;
    const int64_t row = a.dilation_h * (strips ? plan.in_row : a.x_h);
    const int64_t column = a.dilation_w * (strips ? plan.taps.pitch : a.x_w);
    int64_t *to = taps + tap * a.kernel_h * plan.taps.columns;
    for (int64_t h = 0; h < a.kernel_h; ++h)
      for (int64_t w = 0; w < plan.taps.columns; ++w) *to++ = at * slice + h * row + w * column;
  }

  void fill(const ConvPlan &plan, const ConvBlock &block) {
    const ConvArgs &a = plan.args;
    for (int64_t f = 0; f < block.frames; ++f) {
      const int64_t image = (block.frame + f) / a.out_d, depth = (block.frame + f) % a.out_d;
      if (plan.ring) {
        fill_ring(plan, block, image, depth);
        continue;
      }
      for (int64_t tap = 0; tap < a.kernel_d; ++tap) {
        const int64_t z = depth * a.stride_d - a.pad_d + tap * a.dilation_d;
        conv_fill_slice(plan, block, image, z, strip + f * plan.in_frame + tap * plan.in_slice);
      }
    }
  }

  /* Slices z, z + dilation, .. take places side by side, so those that the frame before it read as well stay. */
  void fill_ring(const ConvPlan &plan, const ConvBlock &block, int64_t image, int64_t depth) {
    const ConvArgs &a = plan.args;
    const bool fresh = held.frame < 0 || held.frame / a.out_d != image || held.row != block.row ||
                       held.column != block.column;
    for (int64_t d = 0; d < a.kernel_d && fresh; ++d) slices[d] = -1;
    const int64_t start = depth * a.stride_d - a.pad_d;
    const TapRange inside(start, a.dilation_d, a.kernel_d, a.in_d);
    for (int64_t tap = 0; tap < a.kernel_d; ++tap) {
      const int64_t z = start + tap * a.dilation_d;
      const bool read = inside.first <= tap && tap < inside.last;
      const int64_t at = read ? z / a.dilation_d % a.kernel_d : tap;
      if (!read && inside.count()) continue; /* left out of the product */
      if (!read || slices[at] != z) conv_fill_slice(plan, block, image, z, strip + at * plan.in_slice);
      slices[at] = read ? z : -1;
      place(plan, tap, at);
    }
  }
};

/* The cut without the slices of the kernel that lie outside of the input for all frames of a block. */
inline ConvCut conv_cut_of(const ConvPlan &plan, const ConvBlock &block) {
  const ConvArgs &a = plan.args;
  const int64_t slice = a.kernel_h * plan.taps.columns;
  int64_t from = a.kernel_d, to = 0;
  for (int64_t f = block.frame; f < block.frame + block.frames; ++f) {
    const TapRange slices(f % a.out_d * a.stride_d - a.pad_d, a.dilation_d, a.kernel_d, a.in_d);
    if (slices.count() == 0) continue;
    from = min64(from, slices.first);
    to = max64(to, slices.last);
  }
  ConvCut cut = plan.cut;
  if (from < to) cut.from = from * slice, cut.to = to * slice;
  return cut;
}

} // namespace mycc
#endif /* MYCC_KERNELS_CONV_STRIP_H */
