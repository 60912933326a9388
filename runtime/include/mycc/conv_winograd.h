/* Winograd's convolution F(E x E, 3 x 3): stride 1, no dilation, one group, channels-last, float32, fused epilogue.
 *
 * A tile of E x E outputs reads (E + 2) x (E + 2) inputs. Both are transformed by small matrices of constants, so that
 * a tile takes (E + 2)^2 products per pair of channels instead of 9 E^2: 2.25 times fewer for E = 2, 4 times for E = 4,
 * which rounds more. Each of the (E + 2)^2 points is a matrix product, tiles x input channels x output channels.
 *
 *   tiles of the input -> points [point][tile][in_c] -> sums [point][tile][out_c] -> tiles of the output -> epilogue
 *
 * The weights are transformed when the package is made. A. Lavin, S. Gray: Fast algorithms for convolutional neural
 * networks, 2015.
 */
#ifndef MYCC_CONV_WINOGRAD_H
#define MYCC_CONV_WINOGRAD_H

#include "conv.h"

namespace mycc {

/* A row of points, for one vector of channels each. */
struct Points4 {
  vf32 a, b, c, d;
};
struct Points6 {
  vf32 a, b, c, d, e, f;
};
MYCC_INLINE Points4 operator+(Points4 x, Points4 y) { return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d}; }
MYCC_INLINE Points4 operator-(Points4 x, Points4 y) { return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d}; }
MYCC_INLINE Points6 operator+(Points6 x, Points6 y) {
  return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d, x.e + y.e, x.f + y.f};
}
MYCC_INLINE Points6 operator-(Points6 x, Points6 y) {
  return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d, x.e - y.e, x.f - y.f};
}
MYCC_INLINE Points6 fma(Points6 x, float s, Points6 y) {
  return {fma(x.a, s, y.a), fma(x.b, s, y.b), fma(x.c, s, y.c), fma(x.d, s, y.d), fma(x.e, s, y.e), fma(x.f, s, y.f)};
}

/* n values, n <= W; all of them when n is W. */
MYCC_INLINE vf32 load_channels(const float *p, int n) { return n == W ? load(p) : load_part(p, n); }
MYCC_INLINE void store_channels(float *p, vf32 v, int n) {
  if (n == W) store(p, v);
  else store_part(p, v, n);
}

template <int E> struct Winograd;

/* Transforms along one dimension, of vectors or of whole rows, and both along two. `step`: floats between points. */
template <> struct Winograd<2> {
  template <class T> static MYCC_INLINE void input(T &a, T &b, T &c, T &d) {
    const T p = a - c, q = b + c, r = c - b, s = b - d;
    a = p, b = q, c = r, d = s;
  }
  template <class T> static MYCC_INLINE void output(const T &a, const T &b, const T &c, const T &d, T &y0, T &y1) {
    y0 = a + b + c;
    y1 = b - c - d;
  }
  static MYCC_INLINE Points4 row(const float *x, int64_t step, int n) {
    return {load_channels(x, n), load_channels(x + step, n), load_channels(x + 2 * step, n),
            load_channels(x + 3 * step, n)};
  }
  static MYCC_INLINE void write(Points4 r, float *to, int64_t step, int n) {
    input(r.a, r.b, r.c, r.d);
    store_channels(to, r.a, n), store_channels(to + step, r.b, n), store_channels(to + 2 * step, r.c, n);
    store_channels(to + 3 * step, r.d, n);
  }
  /* n channels of a tile of inputs, `below` floats to the next row, `right` to the next column. */
  static MYCC_INLINE void points(const float *x, int64_t below, int64_t right, float *to, int64_t step, int n) {
    Points4 r0 = row(x, right, n), r1 = row(x + below, right, n), r2 = row(x + 2 * below, right, n),
            r3 = row(x + 3 * below, right, n);
    input(r0, r1, r2, r3);
    write(r0, to, step, n), write(r1, to + 4 * step, step, n), write(r2, to + 8 * step, step, n);
    write(r3, to + 12 * step, step, n);
  }
  static MYCC_INLINE void finish(const Points4 &r, float *to, int64_t step) {
    vf32 y0, y1;
    output(r.a, r.b, r.c, r.d, y0, y1);
    store(to, y0), store(to + step, y1);
  }
  /* A vector of channels of a tile of outputs, [E][E] at `to`, `next` floats between them. */
  static MYCC_INLINE void outputs(const float *m, int64_t step, float *to, int64_t next) {
    Points4 y0, y1;
    output(row(m, step, W), row(m + 4 * step, step, W), row(m + 8 * step, step, W), row(m + 12 * step, step, W), y0,
           y1);
    finish(y0, to, next), finish(y1, to + 2 * next, next);
  }
};

template <> struct Winograd<4> {
  template <class T> static MYCC_INLINE void input(T &a, T &b, T &c, T &d, T &e, T &f) {
    const T s = fma(c, -4.0f, e), t = fma(b, -4.0f, d), u = e - c, v = d - b;
    const T p = fma(a, 4.0f, fma(c, -5.0f, e)), w = fma(b, 4.0f, fma(d, -5.0f, f));
    a = p, b = s + t, c = s - t, d = fma(v, 2.0f, u), e = fma(v, -2.0f, u), f = w;
  }
  template <class T>
  static MYCC_INLINE void output(const T &a, const T &b, const T &c, const T &d, const T &e, const T &f, T &y0, T &y1,
                                 T &y2, T &y3) {
    const T p = b + c, q = b - c, r = d + e, s = d - e;
    y0 = a + p + r, y1 = fma(s, 2.0f, q), y2 = fma(r, 4.0f, p), y3 = fma(s, 8.0f, q) + f;
  }
  static MYCC_INLINE Points6 row(const float *x, int64_t step, int n) {
    return {load_channels(x, n),            load_channels(x + step, n),     load_channels(x + 2 * step, n),
            load_channels(x + 3 * step, n), load_channels(x + 4 * step, n), load_channels(x + 5 * step, n)};
  }
  static MYCC_INLINE void write(Points6 r, float *to, int64_t step, int n) {
    input(r.a, r.b, r.c, r.d, r.e, r.f);
    store_channels(to, r.a, n), store_channels(to + step, r.b, n), store_channels(to + 2 * step, r.c, n);
    store_channels(to + 3 * step, r.d, n), store_channels(to + 4 * step, r.e, n), store_channels(to + 5 * step, r.f, n);
  }
  static MYCC_INLINE void points(const float *x, int64_t below, int64_t right, float *to, int64_t step, int n) {
    Points6 r0 = row(x, right, n), r1 = row(x + below, right, n), r2 = row(x + 2 * below, right, n);
    Points6 r3 = row(x + 3 * below, right, n), r4 = row(x + 4 * below, right, n), r5 = row(x + 5 * below, right, n);
    input(r0, r1, r2, r3, r4, r5);
    write(r0, to, step, n), write(r1, to + 6 * step, step, n), write(r2, to + 12 * step, step, n);
    write(r3, to + 18 * step, step, n), write(r4, to + 24 * step, step, n), write(r5, to + 30 * step, step, n);
  }
  static MYCC_INLINE void finish(const Points6 &r, float *to, int64_t step) {
    vf32 y0, y1, y2, y3;
    output(r.a, r.b, r.c, r.d, r.e, r.f, y0, y1, y2, y3);
    store(to, y0), store(to + step, y1), store(to + 2 * step, y2), store(to + 3 * step, y3);
  }
  static MYCC_INLINE void outputs(const float *m, int64_t step, float *to, int64_t next) {
    Points6 y0, y1, y2, y3;
    output(row(m, step, W), row(m + 6 * step, step, W), row(m + 12 * step, step, W), row(m + 18 * step, step, W),
           row(m + 24 * step, step, W), row(m + 30 * step, step, W), y0, y1, y2, y3);
    finish(y0, to, next), finish(y1, to + 4 * next, next), finish(y2, to + 8 * next, next);
    finish(y3, to + 12 * next, next);
  }
};

constexpr int64_t kWinogradTiles = 56;            /* tiles of a block: points and sums stay near L2 */
constexpr int64_t kWinogradWeights = 512 << 10;   /* bytes of weights that stay in L2; more are read by larger blocks */

/* How the tiles of all images are cut into tasks: blocks of tiles x blocks of panels. */
template <int E> struct WinogradPlan {
  static constexpr int64_t edge = E + 2, count = edge * edge; /* points */

  const ConvArgs &args;
  ConvCut cut;
  int64_t down, across;                   /* tiles of an image */
  Spread tiles, panels;                   /* tiles of all images */
  int64_t tasks, grain;
  int64_t stride, point_step, sum_step;   /* floats of a tile's sums, between points, between points of the sums */

  WinogradPlan(const ConvArgs &a, int64_t workers)
      : args(a), cut(1, a.in_c), down(ceil_div(a.out_h, E)), across(ceil_div(a.out_w, E)),
        tiles{a.batch * down * across, 1, 1}, panels{ceil_div(a.out_c, kPanel), 1, 1} {
    const int64_t weights = count * a.in_c * panels.size * kPanel * (int64_t)sizeof(float);
    const int64_t most = weights <= kWinogradWeights ? kWinogradTiles : kWinogradTiles * 5 / 4;
    const int64_t work = tiles.size * count * a.in_c * a.out_c;
    const int64_t sharers = max64(min64(workers, work / kConvTaskWork), 1);
    tiles.blocks = ceil_div(tiles.size, most);
    /* Every block of panels transforms the input again, few tiles multiply slowly. */
    if (tiles.size >= 2 * kRuns * kRunPixels * sharers) tiles.blocks = round_up(tiles.blocks, sharers);
    else panels.blocks = min64(ceil_div(sharers, tiles.blocks), max64(panels.size / 4, 1));
    if (tiles.blocks * panels.blocks < sharers)
      tiles.blocks = min64(ceil_div(sharers, panels.blocks), max64(tiles.size / 4, 1));
    tasks = tiles.blocks * panels.blocks;
    grain = workers > 1 ? max64(min64(kConvTaskWork / max64(work / tasks, 1), tasks / workers), 1) : tasks;
    stride = panels.most() * kPanel;
    point_step = round_up(tiles.most() * a.in_c, kPanel) + kPanel; /* not a multiple of the L1 cache's sets */
    sum_step = tiles.most() * stride + kPanel;
  }
};

template <int E, class Epilogue> struct WinogradLoop {
  typedef WinogradPlan<E> Plan;
  static constexpr int64_t edge = Plan::edge;

  const mycc_host *host;
  const Plan &plan;
  const Epilogue &epilogue;

  /* A worker's scratch memory. */
  struct Memory {
    float *points, *sums, *patch, *done;
    ConvSpans spans;
    int64_t held_first, held_tiles; /* the tiles whose points are there; the number that the spans are for */

    bool take(const Plan &plan, const mycc_host *host, int32_t worker) {
      const size_t sizes[] = {(size_t)(Plan::count * plan.point_step) * sizeof(float),
                              (size_t)(Plan::count * plan.sum_step) * sizeof(float),
                              (size_t)(edge * edge * plan.args.in_c) * sizeof(float),
                              (size_t)(E * E * plan.stride) * sizeof(float),
                              (size_t)ConvSpans::most(1, plan.tiles.most()) * sizeof(ConvSpan)};
      size_t total = 5 * 64;
      for (size_t size : sizes) total += size;
      void *scratch = host->scratch(host->ctx, worker, total);
      if (!scratch) return false;
      Carver carver = {(uint8_t *)scratch};
      points = carver.take<float>(sizes[0]);
      sums = carver.take<float>(sizes[1]);
      patch = carver.take<float>(sizes[2]);
      done = carver.take<float>(sizes[3]);
      spans.spans = carver.take<ConvSpan>(sizes[4]);
      held_first = held_tiles = -1;
      return true;
    }
  };

  /* The top left output of a tile. */
  struct Place {
    int64_t image, row, column;
  };
  Place place(int64_t tile) const {
    return {tile / (plan.down * plan.across), tile / plan.across % plan.down * E, tile % plan.across * E};
  }

  /* A tile of inputs with the zeros around the map, [edge][edge][in_c]. */
  void copy_patch(const Place &at, float *patch) const {
    const ConvArgs &a = plan.args;
    for (int64_t i = 0; i < edge; ++i)
      for (int64_t j = 0; j < edge; ++j, patch += a.in_c) {
        const int64_t y = at.row - a.pad_h + i, x = at.column - a.pad_w + j;
        if (y < 0 || y >= a.in_h || x < 0 || x >= a.in_w) zero_floats(patch, a.in_c);
        else copy_floats(patch, a.x + at.image * a.x_batch + y * a.x_h + x * a.x_w, a.in_c);
      }
  }

  void transform_input(int64_t first, int64_t tiles, const Memory &memory) const {
    const ConvArgs &a = plan.args;
    for (int64_t t = 0; t < tiles; ++t) {
      const Place at = place(first + t);
      const int64_t top = at.row - a.pad_h, left = at.column - a.pad_w;
      const float *x = a.x + at.image * a.x_batch + top * a.x_h + left * a.x_w;
      int64_t below = a.x_h, right = a.x_w;
      if (top < 0 || left < 0 || top + edge > a.in_h || left + edge > a.in_w) {
        copy_patch(at, memory.patch);
        x = memory.patch, below = edge * a.in_c, right = a.in_c;
      }
      float *to = memory.points + t * a.in_c;
      int64_t c = 0;
      for (; c + W <= a.in_c; c += W) Winograd<E>::points(x + c, below, right, to + c, plan.point_step, W);
      if (c < a.in_c) Winograd<E>::points(x + c, below, right, to + c, plan.point_step, (int)(a.in_c - c));
    }
  }

  /* sums[point][tile][panels] = points[point][tile][in_c] x weights[point]. */
  void multiply(int64_t first_panel, int64_t panels, const Memory &memory) const {
    static const int64_t no_tap = 0;
    const int64_t panel_size = plan.args.in_c * kPanel, group = group_panels(plan.cut, panels);
    RunTile tile;
    tile.pixel = plan.args.in_c;
    tile.taps = &no_tap;
    tile.segments = 1;
    tile.panel_size = panel_size;
    tile.c_stride = plan.stride;
    tile.next_step = ceil_div(kPanel * (int64_t)sizeof(float), max64(memory.spans.count, 1));
    for (int64_t point = 0; point < Plan::count; ++point) {
      const float *x = memory.points + point * plan.point_step;
      const float *weights = plan.args.w + (point * plan.panels.size + first_panel) * panel_size;
      for (int64_t panel = 0; panel < panels; panel += group) {
        const bool last = panel + group >= panels;
        for (int64_t d = 0; d < plan.cut.count; ++d) {
          const ConvDepth depth = plan.cut.block(d);
          tile.depth = depth.depth;
          tile.accumulate = d > 0;
          tile.w = weights + panel * panel_size + depth.first * kPanel;
          const float *next = weights + (last ? plan.panels.size : panel + group) * panel_size; /* of the next point */
          tile.next = (const char *)(d + 1 < plan.cut.count ? tile.w + depth.depth * kPanel : next);
          for (int64_t i = 0; i < memory.spans.count; ++i, tile.next += tile.next_step * depth.depth) {
            const ConvSpan &span = memory.spans.spans[i];
            tile.x[0] = x + span.x[0] + depth.offset;
            tile.x[1] = x + span.x[1] + depth.offset;
            tile.c = memory.sums + point * plan.sum_step + span.m[0] * plan.stride + panel * kPanel;
            multiply_span(tile, span, min64(group, panels - panel), [](int64_t, int64_t) {});
          }
        }
      }
    }
  }

  void transform_output(int64_t first, int64_t tiles, int64_t column, int64_t columns, const Memory &memory) const {
    const ConvArgs &a = plan.args;
    for (int64_t t = 0; t < tiles; ++t) {
      const Place at = place(first + t);
      const float *sums = memory.sums + t * plan.stride;
      for (int64_t c = 0; c < columns; c += W)
        Winograd<E>::outputs(sums + c, plan.sum_step, memory.done + c, plan.stride);
      for (int64_t i = 0; i < E && at.row + i < a.out_h; ++i)
        for (int64_t j = 0; j < E && at.column + j < a.out_w; ++j) {
          const int64_t m = (at.image * a.out_h + at.row + i) * a.out_w + at.column + j;
          epilogue((int64_t)0, m, column, memory.done + (i * E + j) * plan.stride, columns);
        }
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
      if (tiles != memory.held_tiles) {
        memory.spans.count = 0;
        memory.spans.add_row(0, plan.args.in_c, 0, tiles);
      }
      if (first != memory.held_first) loop.transform_input(first, tiles, memory);
      memory.held_first = first, memory.held_tiles = tiles;
      loop.multiply(panel, panels, memory);
      const int64_t column = panel * kPanel;
      loop.transform_output(first, tiles, column, min64(panels * kPanel, plan.args.out_c - column), memory);
    }
  }
};

/* args.w: [(E + 2)^2][ceil(out_c / 16)][in_c][16]; kernel 3 x 3, stride and dilation 1, groups 1, two dimensions. */
template <int E, class Epilogue>
inline void conv_winograd(const mycc_host *host, const ConvArgs &args, const Epilogue &epilogue) {
  if (args.batch <= 0 || args.out_h <= 0 || args.out_w <= 0 || args.out_c <= 0) return;
  const WinogradPlan<E> plan(args, host->max_workers);
  WinogradLoop<E, Epilogue> loop = {host, plan, epilogue};
  host->parallel_for(host->ctx, plan.tasks, plan.grain, WinogradLoop<E, Epilogue>::body, &loop);
}

} // namespace mycc
#endif /* MYCC_CONV_WINOGRAD_H */
