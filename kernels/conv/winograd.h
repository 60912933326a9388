/* Winograd's convolutions of 3 x 3 taps or more, in 2 or 3 dimensions: stride 1 or 2 of rows and columns, which are not
 * dilated, channels-last, float32, fused epilogue.
 *
 * The forms (conv/winograd_forms.h) make points of a tile of inputs, and outputs of sums. Each product of points and weights
 * is a matrix product, tiles x input channels x output channels.
 *
 *   tiles of the input -> points [point][tile][in_c] -> sums [sum][tile][out_c] -> tiles of the output -> epilogue
 *
 * Larger kernels are taken 3 x 3 taps at a time, in 3 dimensions slice by slice: the sums are those of all such parts,
 * one after the other. Points and sums that only outputs beyond the border would need are left out, and so are products
 * with the weights of taps that are not there.
 *
 * The weights are transformed when the package is made; or, with Taps, while the convolution runs, for some panels and
 * a part of the depth at a time: then a package has no more than the taps, and no more is read from memory.
 */
#ifndef MYCC_KERNELS_CONV_WINOGRAD_H
#define MYCC_KERNELS_CONV_WINOGRAD_H

#include "machine.h"
#include "kernels/conv/winograd_plan.h"

namespace mycc {

constexpr int64_t kWinogradTaps = 9;

/* The top left output of a tile, and how many of its rows and columns the map has. */
struct WinogradTile {
  int64_t frame, row, column, rows, columns;
};

template <int E, int S, bool Taps, class Epilogue> struct WinogradLoop {
  typedef WinogradPlan<E, S> Plan;
  typedef Winograd<E, S> Form;
  static constexpr int64_t edge = Form::edge;

  const mycc_host *host;
  const Plan &plan;
  const Epilogue &epilogue;
  int64_t first_output; /* of the group */

  /* Floats from one point's weights to the next, where they are made; not a multiple of the L1 cache's sets. */
  static int64_t made_step(int64_t depth) { return (kMadePanels * depth + 1) * kPanel; }

  /* A worker's scratch memory. */
  struct Memory {
    float *points, *sums, *patch, *done, *weights;
    ConvSpans spans[2][2]; /* the tiles that are multiplied: see TilePlaces */
    int64_t held;          /* the first of the tiles whose points are there */

    bool take(const Plan &plan, const mycc_host *host, int32_t worker) {
      const size_t spans_bytes = (size_t)ConvSpans::most(1, plan.tiles.most()) * sizeof(ConvSpan);
      const size_t sizes[] = {(size_t)(Plan::points * plan.point_step) * sizeof(float),
                              (size_t)(Plan::sums * plan.sum_step) * sizeof(float),
                              (size_t)(edge * edge * plan.args.in_c) * sizeof(float),
                              (size_t)(E * E * plan.stride) * sizeof(float),
                              (size_t)(Taps ? Plan::points * made_step(plan.cut.longest()) : 0) * sizeof(float)};
      size_t total = 4 * spans_bytes + 9 * kLineBytes;
      for (size_t size : sizes) total += size;
      void *scratch = host->scratch(host->ctx, worker, total);
      if (!scratch) return false;
      Carver carver = {(uint8_t *)scratch};
      points = carver.take<float>(sizes[0]);
      sums = carver.take<float>(sizes[1]);
      patch = carver.take<float>(sizes[2]);
      done = carver.take<float>(sizes[3]);
      weights = carver.take<float>(sizes[4]);
      for (int i = 0; i < 4; ++i) spans[i / 2][i % 2].spans = carver.take<ConvSpan>(spans_bytes);
      held = -1;
      return true;
    }
  };

  WinogradTile tile(int64_t i) const {
    const int64_t row = i / plan.across % plan.down * E, column = i % plan.across * E;
    return {i / (plan.down * plan.across), row, column, min64(E, plan.args.out_h - row),
            min64(E, plan.args.out_w - column)};
  }

  /* The tiles so far that have the points or sums of TilePlaces: a tile that has none is written over by the next. */
  struct Counts {
    int64_t of[2][2] = {};

    template <class T> TilePlaces<T> places(T *from, int64_t floats) const {
      return {{{from + of[0][0] * floats, from + of[0][1] * floats},
               {from + of[1][0] * floats, from + of[1][1] * floats}}};
    }
    void add(const WinogradTile &tile) {
      for (int r = 0; r < 2; ++r)
        for (int c = 0; c < 2; ++c) of[r][c] += (!r || tile.rows == E) && (!c || tile.columns == E);
    }
  };

  /* A tile of inputs with the zeros around the map, [edge][edge][in_c]; outside: the whole map counts as zeros. */
  void copy_patch(const float *map, bool outside, int64_t top, int64_t left, float *patch) const {
    const ConvArgs &a = plan.args;
    for (int64_t y = top; y < top + edge; ++y)
      for (int64_t x = left; x < left + edge; ++x, patch += a.in_c) {
        if (outside || y < 0 || y >= a.in_h || x < 0 || x >= a.in_w) zero_floats(patch, a.in_c);
        else copy_floats(patch, map + y * a.x_h + x * a.x_w, a.in_c);
      }
  }

  /* The depth of the input that a frame reads by a slice of the kernel. */
  int64_t depth_of(int64_t frame, int64_t slice) const {
    const ConvArgs &a = plan.args;
    return frame % a.out_d * a.stride_d - a.pad_d + slice * a.dilation_d;
  }
  /* Whether all that the tiles read by a slice lies in front of the input or behind it. */
  bool outside(int64_t first, int64_t tiles, int64_t slice) const {
    for (int64_t frame = tile(first).frame; frame <= tile(first + tiles - 1).frame; ++frame) {
      const int64_t z = depth_of(frame, slice);
      if (z >= 0 && z < plan.args.in_d) return false;
    }
    return true;
  }

  /* What the tiles read by a part of the kernel. */
  void transform_input(int64_t first, int64_t tiles, const WinogradPart &part, Memory &memory) const {
    const ConvArgs &a = plan.args;
    Counts counts;
    for (int64_t t = 0; t < tiles; ++t) {
      const WinogradTile at = tile(first + t);
      const int64_t top = at.row * S - a.pad_h + 3 * part.row, left = at.column * S - a.pad_w + 3 * part.column;
      const int64_t z = depth_of(at.frame, part.slice);
      const float *map = a.x + at.frame / a.out_d * a.x_batch + z * a.x_d, *x = map + top * a.x_h + left * a.x_w;
      const bool outside = z < 0 || z >= a.in_d;
      int64_t below = a.x_h, right = a.x_w;
      if (outside || top < 0 || left < 0 || top + edge > a.in_h || left + edge > a.in_w) {
        copy_patch(map, outside, top, left, memory.patch);
        x = memory.patch, below = edge * a.in_c, right = a.in_c;
      }
      const TilePlaces<float> to = counts.places(memory.points, a.in_c);
      int64_t c = 0;
      for (; c + W <= a.in_c; c += W) Form::points(x, below, right, to, c, plan.point_step, W);
      if (c < a.in_c) Form::points(x, below, right, to, c, plan.point_step, (int)(a.in_c - c));
      counts.add(at);
    }
    for (int i = 0; i < 4; ++i) {
      ConvSpans &spans = memory.spans[i / 2][i % 2];
      spans.count = 0;
      if (counts.of[i / 2][i % 2]) spans.add_row(0, a.in_c, 0, counts.of[i / 2][i % 2]);
    }
    memory.held = first;
  }

  /* The weights of a part's product, from panel `first_panel` on. */
  const float *weights(const WinogradPart &part, int64_t product, int64_t first_panel) const {
    const int64_t at = plan.parts.matrix(part, product);
    return plan.args.w + (at * plan.panels.size + first_panel) * plan.args.in_c * kPanel;
  }
  /* The first product from `number` on that a part has. */
  static int64_t next_product(const WinogradPart &part, int64_t number) {
    while (number < Plan::points && !WinogradParts<Form>::has(part, number)) ++number;
    return number;
  }

  /* A product of points and weights: its point, the sum that it is added to, and whether that has begun before. */
  struct Product {
    int row, column;
    bool begun;

    explicit Product(int64_t number) {
      const int i = (int)(number / edge), j = (int)(number % edge);
      row = Form::sum_of(i), column = Form::sum_of(j);
      begun = (i && Form::sum_of(i - 1) == row) || (j && Form::sum_of(j - 1) == column);
    }
    const ConvSpans &spans(const Memory &memory) const {
      return memory.spans[row == Form::sums - 1][column == Form::sums - 1];
    }
    float *sums(const Plan &plan, const Memory &memory) const {
      return memory.sums + (row * Form::sums + column) * plan.sum_step;
    }
  };

  /* All tiles times the weights of some panels, for a part of the depth. next: fetched meanwhile. */
  void multiply_tiles(RunTile &tile, const ConvSpans &spans, const float *x, const float *w, const float *next,
                      float *sums, int64_t panels) const {
    const char *fetched = (const char *)next;
    for (int64_t s = 0; s < spans.count; ++s, fetched += tile.next_step * tile.depth) {
      const ConvSpan &span = spans.spans[s];
      tile.w = w;
      tile.next = fetched;
      tile.x[0] = x + span.x[0];
      tile.x[1] = x + span.x[1];
      tile.c = sums + span.m[0] * plan.stride;
      multiply_span(tile, span, panels, false, [](int64_t, int64_t) {});
    }
  }
  RunTile tile_of(int64_t panel_size) const {
    static const int64_t no_tap = 0;
    RunTile tile;
    tile.pixel = plan.args.in_c;
    tile.taps = &no_tap;
    tile.segments = 1;
    tile.panel_size = panel_size;
    tile.c_stride = plan.stride;
    return tile;
  }
  /* Bytes that a tile fetches with each value of the depth, so that all of them fetch a panel's. */
  static int64_t prefetch_step(const ConvSpans &spans) {
    return ceil_div(kPanel * (int64_t)sizeof(float), max64(spans.count, 1));
  }

  /* sums[sum][tile][panels] = points[point][tile][in_c] x weights, added up over the points of a sum. begun: they have
   * the sums of other parts. */
  void multiply(const WinogradPart &part, bool begun, int64_t first_panel, int64_t panels, const Memory &memory) const {
    const int64_t panel_size = plan.args.in_c * kPanel, group = group_panels(plan.cut, panels);
    RunTile tile = tile_of(panel_size);
    for (int64_t number = next_product(part, 0), following; number < Plan::points; number = following) {
      following = next_product(part, number + 1);
      const Product product(number);
      const ConvSpans &spans = product.spans(memory);
      const float *x = memory.points + number * plan.point_step, *own = weights(part, number, first_panel);
      const float *after = following < Plan::points ? weights(part, following, first_panel) : own;
      tile.next_step = prefetch_step(spans);
      for (int64_t panel = 0; panel < panels; panel += group) {
        const float *next = panel + group < panels ? own + (panel + group) * panel_size : after;
        for (int64_t d = 0; d < plan.cut.count; ++d) {
          const ConvDepth depth = plan.cut.block(d);
          tile.depth = depth.depth;
          tile.accumulate = begun || product.begun || d > 0;
          const float *w = own + panel * panel_size + depth.first * kPanel;
          const float *fetched = d + 1 < plan.cut.count ? w + depth.depth * kPanel : next;
          multiply_tiles(tile, spans, x + depth.offset, w, fetched, product.sums(plan, memory) + panel * kPanel,
                         min64(group, panels - panel));
        }
      }
    }
  }

  /* The same with weights [slice][panel][in_c][taps][16]. */
  void multiply_taps(int64_t slice, bool begun, int64_t first_panel, int64_t panels, const Memory &memory) const {
    const int64_t own_panel = plan.args.in_c * kWinogradTaps * kPanel; /* floats */
    for (int64_t panel = 0; panel < panels; panel += kMadePanels) {
      const int64_t width = min64(kMadePanels, panels - panel);
      const float *taps = plan.args.w + (slice * plan.panels.size + first_panel + panel) * own_panel;
      for (int64_t d = 0; d < plan.cut.count; ++d) {
        const ConvDepth depth = plan.cut.block(d);
        make_weights(taps + depth.first * kWinogradTaps * kPanel, width, depth.depth, memory.weights);
        const float *after = d + 1 < plan.cut.count ? taps + (depth.first + depth.depth) * kWinogradTaps * kPanel
                                                    : taps + width * own_panel;
        RunTile tile = tile_of(depth.depth * kPanel);
        tile.depth = depth.depth;
        for (int64_t number = 0; number < Plan::points; ++number) {
          const Product product(number);
          const ConvSpans &spans = product.spans(memory);
          tile.accumulate = begun || product.begun || d > 0;
          /* A product fetches as much as its own weights are: two lines for each value of the depth. */
          const int64_t part = number % kPrefetching, fetches = number / kPrefetching;
          tile.next_step = fetches < width ? prefetch_step(spans) : 0;
          multiply_tiles(tile, spans, memory.points + number * plan.point_step + depth.offset,
                         memory.weights + number * made_step(depth.depth),
                         after + min64(fetches, width - 1) * own_panel + part * kMadePanels * tile.panel_size,
                         product.sums(plan, memory) + panel * kPanel, width);
        }
      }
    }
  }
  static constexpr int64_t kPrefetching = (kWinogradTaps + kMadePanels - 1) / kMadePanels; /* products, for a panel */

  /* The weights of so many panels for a part of the depth, [point][panel][depth][16] at `to`. */
  void make_weights(const float *taps, int64_t panels, int64_t depth, float *to) const {
    for (int64_t p = 0; p < panels; ++p) {
      const float *from = taps + p * plan.args.in_c * kWinogradTaps * kPanel;
      float *made = to + p * depth * kPanel;
      for (int64_t k = 0; k < depth; ++k, from += kWinogradTaps * kPanel, made += kPanel)
        for (int64_t i = 0; i < kPanel; i += W) Form::make_weights(from + i, kPanel, made + i, made_step(depth));
    }
  }

  void transform_output(int64_t first, int64_t tiles, int64_t column, int64_t columns, const Memory &memory) const {
    const ConvArgs &a = plan.args;
    Counts counts;
    for (int64_t t = 0; t < tiles; ++t) {
      const WinogradTile at = tile(first + t);
      const TilePlaces<const float> sums = counts.places((const float *)memory.sums, plan.stride);
      for (int64_t c = 0; c < columns; c += W) Form::outputs(sums, c, plan.sum_step, memory.done + c, plan.stride);
      for (int64_t i = 0; i < at.rows; ++i)
        for (int64_t j = 0; j < at.columns; ++j) {
          const int64_t m = (at.frame * a.out_h + at.row + i) * a.out_w + at.column + j;
          epilogue((int64_t)0, m, first_output + column, memory.done + (i * E + j) * plan.stride, columns);
        }
      counts.add(at);
    }
  }

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const WinogradLoop &loop = *(const WinogradLoop *)arg;
    const Plan &plan = loop.plan;
    Memory memory;
    if (!memory.take(plan, loop.host, worker)) return;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t part = task % plan.panels.blocks, block = task / plan.panels.blocks;
      const int64_t panel = plan.panels.begin(part), panels = plan.panels.count(part);
      const int64_t first = plan.tiles.begin(block), tiles = plan.tiles.count(block);
      bool begun = false;
      for (int64_t i = 0; i < plan.parts.count; ++i) {
        const WinogradPart part = plan.parts.part(i);
        const bool last = part.slice == plan.args.kernel_d - 1;
        if ((begun || !last) && loop.outside(first, tiles, part.slice)) continue; /* but some part makes the sums */
        if (first != memory.held || plan.parts.count > 1) loop.transform_input(first, tiles, part, memory);
        if constexpr (Taps) loop.multiply_taps(part.slice, begun, panel, panels, memory);
        else loop.multiply(part, begun, panel, panels, memory);
        begun = true;
      }
      const int64_t column = panel * kPanel;
      loop.transform_output(first, tiles, column, min64(panels * kPanel, plan.args.out_c - column), memory);
    }
  }
};

/* args: of one group, whose outputs begin at `first`. */
template <int E, int S, bool Taps, class Epilogue>
inline void winograd_of_group(const mycc_host *host, const ConvArgs &args, const Epilogue &epilogue, int64_t first) {
  const WinogradPlan<E, S> plan(args, host->max_workers);
  WinogradLoop<E, S, Taps, Epilogue> loop = {host, plan, epilogue, first};
  host->parallel_for(host->ctx, plan.tasks, plan.grain, WinogradLoop<E, S, Taps, Epilogue>::body, &loop);
}

/* The groups one after the other. args.w: [group][kernel_d][matrices][ceil(out_c / 16)][in_c][16], in_c and out_c those
 * of a group, the matrices part by part, each without those of taps that it lacks; with Taps
 * [group][kernel_d][ceil(out_c / 16)][in_c][9][16]. kernel_h and _w 3 at least, with Taps 3; stride S, dilation 1. */
template <int E, int S = 1, bool Taps = false, class Epilogue>
inline void conv_winograd(const mycc_host *host, const ConvArgs &args, const Epilogue &epilogue) {
  if (args.frames() <= 0 || args.out_h <= 0 || args.out_w <= 0 || args.out_c <= 0) return;
  const WinogradParts<Winograd<E, S>> parts(args);
  ConvArgs own = args;
  own.groups = 1;
  own.in_c = args.in_c / args.groups;
  own.out_c = args.out_c / args.groups;
  const int64_t matrices = args.kernel_d * (Taps ? kWinogradTaps : parts.rows * parts.columns);
  for (int64_t group = 0; group < args.groups; ++group) {
    winograd_of_group<E, S, Taps>(host, own, epilogue, group * own.out_c);
    own.x += own.in_c;
    own.w += matrices * round_up(own.out_c, kPanel) * own.in_c;
  }
}

} // namespace mycc
#endif /* MYCC_KERNELS_CONV_WINOGRAD_H */
