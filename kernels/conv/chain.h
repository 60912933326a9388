/* A 1x1 convolution, a depthwise one and a 1x1 one, one after the other: expand, depthwise, project. Either 1x1 may be
 * missing; the first one may have a window on few channels instead, as at the beginning of a network.
 *
 * A task is a block of output rows of the depthwise one, walked in bands from top to bottom. The rows of the expanded
 * map that a band reads, with the zeros at their ends, are a ring of rows in scratch memory that stays in the second
 * level cache, as do the band's own results; rows that the next band reads again are kept. Only the first rows of a task
 * are expanded once more.
 *
 *   x -> expand -> [ring of rows][zeros, width, zeros][channels] -> depthwise -> [rows][width][channels] -> project
 *
 * The epilogue of a convolution whose results stay inside is called with their place: inside(0, m, n, acc, count, to)
 * finishes channels n .. n + count - 1 of pixel m and writes them to to[n], to[n + 1], ..., and where it only adds,
 * inside.added(0, m, n, to) gives what and to where; the last one's is called as that of conv().
 */
#ifndef MYCC_KERNELS_CONV_CHAIN_H
#define MYCC_KERNELS_CONV_CHAIN_H

#include "machine.h"
#include "kernels/conv/conv.h"
#include "kernels/conv/depthwise.h"

namespace mycc {

/* The epilogue of a convolution that is missing. */
struct NoConv {};
template <class Epilogue> constexpr bool kConvThere = true;
template <> inline constexpr bool kConvThere<NoConv> = false;

/* Some rows of a map in scratch memory. Rows have fixed places, row y that of row y + rows. */
struct ChainMap {
  float *memory;
  int64_t rows, row, channels; /* row: floats */
  int64_t width, border;       /* pixels of a row of the map; those in front of them */

  int64_t place(int64_t y) const { return (int64_t)((uint32_t)y % (uint32_t)rows) * row; }
  float *pixel(int64_t number) const { /* of an image */
    const int64_t y = (uint32_t)number / (uint32_t)width;
    return memory + place(y) + (border + number - y * width) * channels;
  }
};

/* Hands a pixel's sums to an epilogue that writes into a map. */
template <class Epilogue> struct FinishInside {
  const Epilogue &epilogue;
  const ChainMap &map;
  int64_t image; /* number of the image's first pixel */

  void operator()(int64_t m, int64_t column, const float *sums, int64_t count) const {
    epilogue((int64_t)0, m, column, sums, count, map.pixel(m - image));
  }
  void operator()(int64_t, int64_t m, int64_t column, const float *sums, int64_t count) const {
    (*this)(m, column, sums, count);
  }
  template <class E = Epilogue>
  auto added(int64_t m, int64_t column) const -> decltype(((const E *)nullptr)->added(m, m, column, (float *)nullptr)) {
    Added made = epilogue.added((int64_t)0, m, column, map.pixel(m - image));
    made.out_row = map.channels;
    return made;
  }
  template <class E = Epilogue>
  auto added(int64_t z, int64_t m, int64_t column) const
      -> decltype(((const E *)nullptr)->added(z, m, column, (float *)nullptr)) {
    return added(m, column);
  }
  static constexpr bool far() { return false; }
  void prefetch(int64_t, int64_t, int64_t) const {}
};

/* A convolution of pixels in spans: 1x1, or with a window whose rows are one segment each. */
struct ChainProduct {
  bool window;
  int64_t pixel, columns, panels, group; /* pixel: floats to the input of the next one */
  const float *w;
  ConvCut cut;

  explicit ChainProduct(const ConvArgs &a)
      : window(a.kernel_h * a.kernel_w > 1), pixel(window ? a.stride_w * a.in_c : a.in_c), columns(a.out_c),
        panels(ceil_div(a.out_c, kPanel)), group(0), w(a.w),
        cut(window ? a.kernel_h : 1, window ? a.kernel_w * a.in_c : a.in_c) {
    group = group_panels(cut, panels);
  }
  int64_t sums(int64_t spans) const { return span_sums(cut, group, spans); }

  template <class Finish>
  void run(const float *x, const int64_t *taps, const ConvSpans &spans, float *sums, const Finish &finish) const {
    multiply_spans(cut, spans, x, pixel, taps, w, panels, group, columns, sums, finish);
  }
};

static const int64_t kNoTap[1] = {0};

/* How a chain is cut: bands of output rows, tasks of bands. */
struct ChainPlan {
  int64_t rows, in_rows;     /* of a band; rows of the map that it reads */
  int64_t in_columns;        /* pixels of such a row, with those around the map */
  int64_t task_rows, blocks; /* output rows of a task, tasks of an image */

  ChainPlan(const ConvArgs &a, int64_t workers) {
    const int64_t reach = (a.kernel_h - 1) * a.dilation_h + 1;
    in_columns = max64((a.out_w - 1) * a.stride_w + (a.kernel_w - 1) * a.dilation_w + 1, a.pad_w + a.in_w);
    const int64_t fitting = kChainBytes / max64(in_columns * a.in_c * (int64_t)sizeof(float), 1);
    rows = min64(max64((fitting - reach) / a.stride_h + 1, 1), a.out_h);
    /* Every task expands its first rows anew: more of them than workers only where they stay large. */
    const int64_t least = ceil_div(workers, a.batch), most = ceil_div(kConvTasks * workers, a.batch);
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
  DepthwisePlan taps;
  ChainProduct before, behind;

  /* A worker's scratch memory, and how far it is. */
  struct Memory {
    ChainMap map, results;
    float *sums, *pixels, *strip; /* strip: input rows of a window, with zeros around */
    int64_t *strip_taps;
    ConvSpans spans;
    int64_t expanded_to; /* first row of the map that does not lie in `map` yet */
  };

  bool take(int32_t worker, Memory &memory) const {
    const ConvArgs &a = depthwise;
    const int64_t spans = max64(expands ? ConvSpans::most(plan.in_rows, a.in_w) : 0,
                                projects ? ConvSpans::most(plan.rows, a.out_w) : 0);
    const int64_t sums = max64(expands ? before.sums(spans) : 0, projects ? behind.sums(spans) : 0);
    const int64_t in_row = plan.in_columns * a.in_c, out_row = a.out_w * a.out_c;
    const size_t sizes[] = {(size_t)(expands ? plan.in_rows * in_row : 0) * sizeof(float),
                            (size_t)(projects ? plan.rows * out_row : 0) * sizeof(float),
                            (size_t)sums * sizeof(float),
                            (size_t)(kDepthwisePixels[0] * taps.channels) * sizeof(float),
                            (size_t)spans * sizeof(ConvSpan),
                            (size_t)(before.window ? strip_rows(plan.in_rows) * strip_row() : 0) * sizeof(float),
                            (size_t)(before.window ? expand.kernel_h : 0) * sizeof(int64_t)};
    size_t total = 7 * kLineBytes;
    for (size_t size : sizes) total += size;
    void *scratch = host->scratch(host->ctx, worker, total);
    if (!scratch) return false;
    Carver carver = {(uint8_t *)scratch};
    memory.map = {carver.take<float>(sizes[0]), plan.in_rows, in_row, a.in_c, a.in_w, a.pad_w};
    memory.results = {carver.take<float>(sizes[1]), plan.rows, out_row, a.out_c, a.out_w, 0};
    memory.sums = carver.take<float>(sizes[2]);
    memory.pixels = carver.take<float>(sizes[3]);
    memory.spans.spans = carver.take<ConvSpan>(sizes[4]);
    memory.strip = carver.take<float>(sizes[5]);
    memory.strip_taps = carver.take<int64_t>(sizes[6]);
    for (int64_t tap = 0; before.window && tap < expand.kernel_h; ++tap)
      memory.strip_taps[tap] = tap * expand.dilation_h * strip_row();
    const int64_t border = a.pad_w * a.in_c, end = border + a.in_w * a.in_c;
    for (int64_t y = 0; y < plan.in_rows && expands; ++y) {
      zero_floats(memory.map.memory + y * in_row, border);
      zero_floats(memory.map.memory + y * in_row + end, in_row - end);
    }
    return true;
  }

  /* The input of so many rows of the map, when `expand` has a window: rows, and floats of a row. */
  int64_t strip_rows(int64_t rows) const {
    return (rows - 1) * expand.stride_h + (expand.kernel_h - 1) * expand.dilation_h + 1;
  }
  int64_t strip_row() const { return ((expand.out_w - 1) * expand.stride_w + expand.kernel_w) * expand.in_c; }

  /* Copies the input of rows [row, until) of the map, pixel by pixel, with the zeros around it. */
  void fill_strip(int64_t image, int64_t row, int64_t until, float *strip) const {
    const ConvArgs &a = expand;
    const int64_t top = row * a.stride_h - a.pad_h, width = strip_row() / a.in_c;
    for (int64_t y = top; y < top + strip_rows(until - row); ++y, strip += strip_row()) {
      if (y < 0 || y >= a.in_h) zero_floats(strip, strip_row());
      else conv_copy_row(a, a.x + image * a.x_batch + y * a.x_h, -a.pad_w, width, a.in_c, strip);
    }
  }

  /* Makes the rows of the map that output rows [row, row + rows) read; those that are there are kept. */
  void expand_rows(int64_t image, int64_t row, int64_t rows, Memory &memory) const {
    const ConvArgs &a = depthwise;
    const int64_t top = row * a.stride_h - a.pad_h, first_pixel = image * a.in_h * a.in_w;
    const int64_t until = min64(top + (rows - 1) * a.stride_h + (a.kernel_h - 1) * a.dilation_h + 1, a.in_h);
    const int64_t from = max64(max64(top, 0), memory.expanded_to);
    if (from >= until) return;
    memory.expanded_to = until;
    if (before.window) fill_strip(image, from, until, memory.strip);
    const float *x = before.window ? memory.strip : expand.x + image * expand.x_batch + from * expand.x_h;
    const int64_t step = before.window ? expand.stride_h * strip_row() : expand.x_h;
    memory.spans.count = 0;
    for (int64_t y = from; y < until; ++y)
      memory.spans.add_row((y - from) * step, before.pixel, first_pixel + y * a.in_w, a.in_w);
    before.run(x, before.window ? memory.strip_taps : kNoTap, memory.spans, memory.sums,
               FinishInside<First>{first, memory.map, first_pixel});
  }

  /* Output rows [row, row + rows) of an image. */
  template <class Epilogue>
  void depthwise_rows(int64_t image, int64_t row, int64_t rows, const Memory &memory, const Epilogue &epilogue) const {
    const ConvArgs &a = depthwise;
    const DepthwiseLoop<Epilogue> loop = {host, a, epilogue, taps};
    for (int64_t channel = 0; channel < a.out_c; channel += taps.channels)
      for (int64_t column = 0, end; column < a.out_w; column = end) {
        end = taps.band_end(column, a.out_w);
        for (int64_t line = image * a.out_h + row; line < image * a.out_h + row + rows; ++line) {
          DepthwiseRow pixels(a, line, channel, min64(taps.channels, a.out_c - channel), memory.pixels);
          if constexpr (expands) read_map(memory.map, channel, pixels);
          loop.run(pixels, line * a.out_w, column, end, channel);
        }
      }
  }

  /* Has a row of pixels read the map. */
  void read_map(const ChainMap &map, int64_t channel, DepthwiseRow &pixels) const {
    const ConvArgs &a = depthwise;
    DepthwiseTile &tile = pixels.tile;
    const int64_t place = map.place(pixels.top);
    tile.x = map.memory + place + map.border * map.channels + channel;
    tile.x_row = a.dilation_h * map.row;
    tile.ring = map.rows * map.row;
    tile.folded = max64(tile.rows - ceil_div(tile.ring - place, tile.x_row), 0);
  }

  /* Output rows [row, row + rows) of an image. */
  void band(int64_t image, int64_t row, int64_t rows, Memory &memory) const {
    const ConvArgs &a = depthwise;
    const int64_t first_pixel = image * a.out_h * a.out_w;
    if constexpr (expands) expand_rows(image, row, rows, memory);
    if constexpr (projects) {
      depthwise_rows(image, row, rows, memory, FinishInside<Middle>{middle, memory.results, first_pixel});
      memory.spans.count = 0;
      for (int64_t y = row; y < row + rows; ++y)
        memory.spans.add_row(memory.results.place(y), a.out_c, first_pixel + y * a.out_w, a.out_w);
      behind.run(memory.results.memory, kNoTap, memory.spans, memory.sums, FinishPixel<Last>{last, 0});
    } else {
      depthwise_rows(image, row, rows, memory, middle);
    }
  }

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const ConvChain &chain = *(const ConvChain *)arg;
    const ChainPlan &plan = chain.plan;
    Memory memory;
    if (!chain.take(worker, memory)) return;
    const ConvArgs &a = chain.depthwise;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t image = task / plan.blocks, from = task % plan.blocks * plan.task_rows;
      const int64_t to = min64(from + plan.task_rows, a.out_h);
      const bool follows = task > begin && from > 0; /* the task before it was the one above */
      if (!follows) memory.expanded_to = 0;
      for (int64_t row = from; row < to; row += plan.rows) chain.band(image, row, min64(plan.rows, to - row), memory);
    }
  }
};

/* expand and project: 1x1, stride 1, one group, their pixels dense rows of the map; what is missing has the epilogue
 * NoConv. expand may have a window instead, with few channels and no dilation along a row. The map between them has no
 * memory: x of `depthwise` counts only when nothing is expanded. */
template <class First, class Middle, class Last>
inline void conv_chain(const mycc_host *host, const ConvArgs &expand, const ConvArgs &depthwise,
                       const ConvArgs &project, const First &first, const Middle &middle, const Last &last) {
  ConvArgs a = depthwise;
  if (a.batch <= 0 || a.out_h <= 0 || a.out_w <= 0 || a.out_c <= 0) return;
  const bool expands = kConvThere<First>;
  if (expands) a.x_w = a.in_c; /* of the map */
  const ChainPlan plan(a, host->max_workers);
  DepthwisePlan taps(a, 1);
  if (expands) taps.inside = 0, taps.outside = a.out_w; /* it has zeros around it */
  ConvChain<First, Middle, Last> chain = {host, expand, a, project, first, middle, last, plan, taps,
                                          ChainProduct(expand), ChainProduct(project)};
  const int64_t tasks = a.batch * plan.blocks;
  host->parallel_for(host->ctx, tasks, host->max_workers > 1 ? 1 : tasks, ConvChain<First, Middle, Last>::body, &chain);
}

} // namespace mycc
#endif /* MYCC_KERNELS_CONV_CHAIN_H */
