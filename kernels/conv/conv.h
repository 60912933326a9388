/* Convolutions on channels-last activations as implicit products, float32, with a fused epilogue.
 *
 * Rows of the product are output pixels, its depth is kernel taps x input channels of a group, its columns are the
 * output channels of a group. Pixels are taken in runs: neighbours of an output row, whose inputs are equally far
 * apart. Where the kernel reaches beyond the input, the input of a block is first copied into a padded strip. With few
 * input channels the taps of a kernel row are merged into one segment of kernel_w * in_c values. Without a window (1x1)
 * it is the product of gemm/gemm.h, whose rows are the pixels.
 *
 * epilogue(0, m, n, acc, count): m = ((image * out_d + depth) * out_h + row) * out_w + column, n = output channel, over
 * all groups.
 */
#ifndef MYCC_KERNELS_CONV_CONV_H
#define MYCC_KERNELS_CONV_CONV_H

#include "machine.h"
#include "kernels/conv/strip.h"
#include "kernels/gemm/gemm.h"

namespace mycc {

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
  void prefetch(int64_t m, int64_t column, int64_t count) const {
    prefetch_operands(epilogue, 0, m, first + column, count, 0);
  }
};

/* Results channels last, pixel by pixel. */
template <class Epilogue> struct PixelResults {
  const Epilogue &epilogue;

  int64_t floats(const ConvPlan &) const { return 0; }
  /* multiply(finish, first, count) multiplies `count` of the task's panels. column: the output that they begin with. */
  template <class Multiply>
  void make(const ConvPlan &, const ConvBlock &, int64_t column, int64_t panels, int64_t, float *,
            const Multiply &multiply) const {
    multiply(FinishPixel<Epilogue>{epilogue, column}, (int64_t)0, panels);
  }
};

/* Results: PixelResults, or what takes the sums of a block of pixels to other places. */
template <class Results> struct ConvLoop {
  const mycc_host *host;
  const ConvPlan &plan;
  const Results &results;

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const ConvLoop &loop = *(const ConvLoop *)arg;
    const ConvPlan &plan = loop.plan;
    const ConvArgs &a = plan.args;
    const int64_t n = a.out_c / a.groups, depth = a.in_c / a.groups;
    const int64_t panel_size = plan.cut.segments * plan.cut.depth * kPanel;
    ConvMemory memory;
    if (!memory.take(plan, loop.host, worker, loop.results.floats(plan))) return;
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
      const int64_t columns = n - panel * kPanel;
      const ConvCut cut = conv_cut_of(plan, block);
      const auto multiply = [&](const auto &finish, int64_t first, int64_t count) {
        multiply_spans(cut, memory.spans, x + group * depth, pixel, memory.taps, w + first * panel_size, count,
                       plan.group, columns - first * kPanel, memory.sums, finish);
      };
      loop.results.make(plan, block, group * n + panel * kPanel, panels, columns, memory.results, multiply);
    }
  }
};

template <class Results>
inline void run_panels(const mycc_host *host, const ConvArgs &args, const Results &results, const ConvTuning &tuning) {
  ConvPlan plan(args, host->max_workers, tuning);
  plan.take_long_runs();
  ConvLoop<Results> loop = {host, plan, results};
  host->parallel_for(host->ctx, plan.tasks, plan.grain, ConvLoop<Results>::body, &loop);
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
  if (!pointwise) return run_panels(host, args, PixelResults<Epilogue>{epilogue}, tuning);
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
    return run_panels(host, alike && dense ? flat : args, PixelResults<Epilogue>{epilogue}, tuning);
  }
  const GemmArgs product = {1, m, args.out_c, args.in_c, nullptr, 0, 0, args.w, 0};
  GemmTuning own;
  own.depth = tuning.depth * 3 / 2;
  run_gemm(host, product, PixelRows{args}, epilogue, own);
}

} // namespace mycc

#include "kernels/conv/depthwise.h"

#endif /* MYCC_KERNELS_CONV_CONV_H */
