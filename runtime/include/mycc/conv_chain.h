/* A 1x1 convolution, a depthwise one and a 1x1 one, one after the other: expand, depthwise, project. Either 1x1 may be
 * missing.
 *
 * A task is a block of output rows of the depthwise one, walked in bands from top to bottom. The rows of the expanded map
 * that a band reads, and its own results, are scratch memory that stays in the second level cache; rows that the next
 * band reads again are kept. Only the first rows of a task are expanded once more.
 *
 *   x -> expand -> [rows that a band reads][width][channels] -> depthwise -> [rows][width][channels] -> project
 *
 * The epilogue of a convolution whose results stay inside is called with their place: inside(0, m, n, acc, count, to)
 * finishes channels n .. n + count - 1 of pixel m and writes them to to[n], to[n + 1], ..., and where it only adds,
 * inside.added(0, m, n, to) gives what and to where; the last one's is called as that of conv().
 */
#ifndef MYCC_CONV_CHAIN_H
#define MYCC_CONV_CHAIN_H

#include "conv.h"
#include "conv_depthwise.h"

namespace mycc {

constexpr int64_t kChainBytes = 256 << 10; /* rows of the map that the depthwise convolution reads, of a band */
constexpr int64_t kChainRows = 28;         /* output rows of a task, at least, where there are tasks for all workers */

/* The epilogue of a convolution that is missing. */
struct NoConv {};
template <class Epilogue> constexpr bool kConvThere = true;
template <> inline constexpr bool kConvThere<NoConv> = false;

/* Hands a pixel's sums to an epilogue that writes into scratch memory, where pixel `first` lies at `to`. */
template <class Epilogue> struct FinishInside {
  const Epilogue &epilogue;
  float *to;
  int64_t first, channels;

  void operator()(int64_t m, int64_t column, const float *sums, int64_t count) const {
    epilogue((int64_t)0, m, column, sums, count, to + (m - first) * channels);
  }
  void operator()(int64_t, int64_t m, int64_t column, const float *sums, int64_t count) const {
    (*this)(m, column, sums, count);
  }
  template <class E = Epilogue>
  auto added(int64_t m, int64_t column) const -> decltype(((const E *)nullptr)->added(m, m, column, (float *)nullptr)) {
    Added made = epilogue.added((int64_t)0, m, column, to + (m - first) * channels);
    made.out_row = channels;
    return made;
  }
  template <class E = Epilogue>
  auto added(int64_t z, int64_t m, int64_t column) const
      -> decltype(((const E *)nullptr)->added(z, m, column, (float *)nullptr)) {
    return added(m, column);
  }
  static constexpr bool far() { return false; }
  void fetch(int64_t, int64_t, int64_t) const {}
};

/* A 1x1 convolution of rows of pixels that lie one after the other. */
struct ChainProduct {
  int64_t depth, columns, panels, group, width; /* width: pixels of a row */
  const float *w;
  ConvCut cut;

  ChainProduct(const ConvArgs &a, int64_t row)
      : depth(a.in_c), columns(a.out_c), panels(ceil_div(a.out_c, kPanel)), group(0), width(row), w(a.w),
        cut(1, a.in_c) {
    group = group_panels(cut, panels);
  }
  int64_t spans(int64_t rows) const { return ConvSpans::most(rows, width); }
  int64_t sums(int64_t rows) const { return span_sums(cut, group, spans(rows)); }

  /* `rows` rows from x on, whose first pixel is number m. */
  template <class Finish>
  void run(const float *x, int64_t rows, int64_t m, ConvSpans &spans, float *sums, const Finish &finish) const {
    static const int64_t no_tap = 0;
    spans.count = 0;
    for (int64_t r = 0; r < rows; ++r) spans.add_row(r * width * depth, depth, m + r * width, width);
    multiply_spans(cut, spans, x, depth, &no_tap, w, panels, group, columns, sums, finish);
  }
};

/* How a chain is cut: bands of output rows, tasks of bands. */
struct ChainPlan {
  int64_t rows, in_rows;         /* of a band; rows of the map that it reads */
  int64_t task_rows, blocks;     /* output rows of a task, tasks of an image */
  int64_t in_row, out_row;       /* floats of a row */

  ChainPlan(const ConvArgs &a, int64_t workers) : in_row(a.in_w * a.in_c), out_row(a.out_w * a.out_c) {
    const int64_t reach = (a.kernel_h - 1) * a.dilation_h + 1;
    const int64_t fitting = kChainBytes / max64(in_row * (int64_t)sizeof(float), 1);
    rows = min64(max64((fitting - reach) / a.stride_h + 1, 1), a.out_h);
    /* Every task expands its first rows anew: more of them than workers only where they stay large. */
    const int64_t least = ceil_div(workers, a.batch), most = ceil_div(4 * workers, a.batch);
    const int64_t wanted = workers > 1 ? max64(min64(most, a.out_h / kChainRows), least) : 1;
    task_rows = max64(ceil_div(a.out_h, wanted), 1);
    rows = ceil_div(task_rows, ceil_div(task_rows, rows));
    in_rows = (rows - 1) * a.stride_h + reach;
    blocks = ceil_div(a.out_h, task_rows);
  }
};

template <class First, class Middle, class Last> struct ConvChain {
  static constexpr bool expands = kConvThere<First>, projects = kConvThere<Last>;

  const mycc_host *host;
  const ConvArgs &expand, &depthwise, &project;
  const First &first;
  const Middle &middle;
  const Last &last;
  ChainPlan plan;
  DepthwisePlan columns;
  ChainProduct before, behind;

  struct Memory {
    float *expanded, *results, *sums, *pixels;
    ConvSpans spans;
    int64_t top, expanded_to; /* first row of the map that lies in `expanded`, and the first that does not yet */
  };

  bool take(int32_t worker, Memory &memory) const {
    const int64_t spans = max64(expands ? before.spans(plan.in_rows) : 0, projects ? behind.spans(plan.rows) : 0);
    const int64_t sums = max64(expands ? before.sums(plan.in_rows) : 0, projects ? behind.sums(plan.rows) : 0);
    const size_t sizes[] = {(size_t)(expands ? plan.in_rows * plan.in_row : 0) * sizeof(float),
                            (size_t)(projects ? plan.rows * plan.out_row : 0) * sizeof(float),
                            (size_t)sums * sizeof(float),
                            (size_t)(kDepthwisePixels[0] * columns.channels) * sizeof(float),
                            (size_t)spans * sizeof(ConvSpan)};
    size_t total = 5 * 64;
    for (size_t size : sizes) total += size;
    void *scratch = host->scratch(host->ctx, worker, total);
    if (!scratch) return false;
    Carver carver = {(uint8_t *)scratch};
    memory.expanded = carver.take<float>(sizes[0]);
    memory.results = carver.take<float>(sizes[1]);
    memory.sums = carver.take<float>(sizes[2]);
    memory.pixels = carver.take<float>(sizes[3]);
    memory.spans.spans = carver.take<ConvSpan>(sizes[4]);
    return true;
  }

  /* Makes the rows of the map from `top` on that output rows up to `end` read; those that are there are kept. */
  void expand_rows(int64_t image, int64_t top, int64_t end, Memory &memory) const {
    const ConvArgs &a = depthwise;
    const int64_t until = min64((end - 1) * a.stride_h - a.pad_h + (a.kernel_h - 1) * a.dilation_h + 1, a.in_h);
    const int64_t from = max64(max64(top, 0), memory.expanded_to);
    if (memory.expanded_to > top)
      copy_floats(memory.expanded, memory.expanded + (top - memory.top) * plan.in_row,
                  (memory.expanded_to - top) * plan.in_row);
    memory.top = top;
    memory.expanded_to = max64(until, from);
    if (until <= from) return;
    const int64_t m = (image * a.in_h + from) * a.in_w;
    const FinishInside<First> finish = {first, memory.expanded + (from - top) * plan.in_row, m, a.in_c};
    before.run(expand.x + image * expand.x_batch + from * expand.x_h, until - from, m, memory.spans, memory.sums, finish);
  }

  template <class Epilogue>
  void depthwise_rows(const ConvArgs &args, int64_t line, int64_t rows, float *pixels, const Epilogue &epilogue) const {
    const DepthwiseLoop<Epilogue> loop = {host, args, epilogue, columns};
    for (int64_t channel = 0; channel < args.out_c; channel += columns.channels)
      for (int64_t column = 0, end; column < args.out_w; column = end) {
        end = columns.band_end(column, args.out_w);
        for (int64_t r = 0; r < rows; ++r) loop.run(line + r, column, end, channel, pixels);
      }
  }

  /* Output rows [row, row + rows) of an image. */
  void band(int64_t image, int64_t row, int64_t rows, Memory &memory) const {
    ConvArgs args = depthwise;
    const int64_t line = image * args.out_h + row;
    if constexpr (expands) {
      const int64_t top = row * args.stride_h - args.pad_h;
      expand_rows(image, top, row + rows, memory);
      args.x = memory.expanded - top * plan.in_row;
      args.x_batch = 0, args.x_h = plan.in_row, args.x_w = args.in_c;
    }
    if constexpr (projects) {
      const int64_t m = line * args.out_w;
      depthwise_rows(args, line, rows, memory.pixels, FinishInside<Middle>{middle, memory.results, m, args.out_c});
      behind.run(memory.results, rows, m, memory.spans, memory.sums, FinishPixel<Last>{last, 0});
    } else {
      depthwise_rows(args, line, rows, memory.pixels, middle);
    }
  }

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const ConvChain &chain = *(const ConvChain *)arg;
    const ChainPlan &plan = chain.plan;
    Memory memory;
    if (!chain.take(worker, memory)) return;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t image = task / plan.blocks, from = task % plan.blocks * plan.task_rows;
      const int64_t to = min64(from + plan.task_rows, chain.depthwise.out_h);
      const bool follows = task > begin && from > 0; /* the task before it was the one above */
      if (!follows) memory.top = memory.expanded_to = INT64_MIN / 2;
      for (int64_t row = from; row < to; row += plan.rows)
        chain.band(image, row, min64(plan.rows, to - row), memory);
    }
  }
};

/* expand and project: 1x1, stride 1, one group, their pixels dense rows of the map; what is missing has the epilogue
 * NoConv. The map between them has no memory: x of `depthwise` counts only when nothing is expanded. */
template <class First, class Middle, class Last>
inline void conv_chain(const mycc_host *host, const ConvArgs &expand, const ConvArgs &depthwise,
                       const ConvArgs &project, const First &first, const Middle &middle, const Last &last) {
  const ConvArgs &a = depthwise;
  if (a.batch <= 0 || a.out_h <= 0 || a.out_w <= 0 || a.out_c <= 0) return;
  const ChainPlan plan(a, host->max_workers);
  ConvChain<First, Middle, Last> chain = {host, expand, depthwise, project, first, middle, last, plan,
                                          DepthwisePlan(a, 1), ChainProduct(expand, a.in_w),
                                          ChainProduct(project, a.out_w)};
  const int64_t tasks = a.batch * plan.blocks;
  host->parallel_for(host->ctx, tasks, host->max_workers > 1 ? 1 : tasks, ConvChain<First, Middle, Last>::body, &chain);
}

} // namespace mycc
#endif /* MYCC_CONV_CHAIN_H */
