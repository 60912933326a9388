/* Convolutions of few channels to few in NCHW, as images come, or of groups of few: float32, fused epilogue.
 *
 *     y[o][h][w .. w + W - 1] = sum of x[c][h * sh + i][w * sw + j ..] * weight[o][c][i][j]
 *
 * The lanes run along the rows, so nothing is multiplied that is not needed however few outputs there are. The rows of a
 * block, of the inputs of one group, are first copied into a strip with the zeros around them; where windows are s
 * columns apart, column s * i + p of a row becomes column i of the row's part p, for a tap's columns to be neighbours.
 *
 * epilogue(0, m, column, sums, count): m = ((image * out_c + output) * out_d + depth) * out_h + row
 */
#ifndef MYCC_KERNELS_CONV_NCHW_H
#define MYCC_KERNELS_CONV_NCHW_H

#include "machine.h"
#include "kernels/conv/args.h"
#include "kernels/vec/interleave.h"

namespace mycc {

/* Vectors of a tile's row, of so many outputs. */
constexpr int nchw_vectors(int outputs) { return (int)kNchwVectors[outputs - 1]; }
constexpr int64_t kNchwWidest = kNchwVectors[0];

/* How a convolution is cut into blocks of rows and columns, and how a block's strip lies. */
struct NchwPlan {
  const ConvArgs &args;
  int64_t in_c, out_c;                        /* of a group */
  int64_t columns, rows, across, down, tasks; /* of a block; blocks of a row, of a group's frame, of all */
  int64_t grain;                              /* tasks of a chunk */
  int64_t in_rows, in_columns, part, in_row;  /* of a strip: floats of a part of a row, and of a row */

  NchwPlan(const ConvArgs &a, int64_t workers) : args(a), in_c(a.in_c / a.groups), out_c(a.out_c / a.groups) {
    across = ceil_div(a.out_w * a.stride_w, kNchwColumns);
    columns = min64(round_up(ceil_div(a.out_w, across), kNchwWhole), a.out_w); /* whole tiles, but for the last block */
    across = ceil_div(a.out_w, columns);
    in_columns = (columns - 1) * a.stride_w + (a.kernel_w - 1) * a.dilation_w + 1;
    part = round_up(ceil_div(in_columns, a.stride_w) + W, kPanel); /* a tile's last vector reads beyond the end */
    in_row = part * a.stride_w;
    const int64_t line = in_c * a.kernel_d * in_row * (int64_t)sizeof(float);
    const int64_t held = max64(kNchwStripBytes / line - ((a.kernel_h - 1) * a.dilation_h + 1), 0) / a.stride_h + 1;
    const int64_t frames = a.frames() * a.groups;
    const int64_t shared = workers > 1 ? ceil_div(frames * across * a.out_h, kConvTasks * workers) : a.out_h;
    rows = max64(min64(held, min64(shared, a.out_h)), 1);
    down = ceil_div(a.out_h, rows);
    in_rows = (rows - 1) * a.stride_h + (a.kernel_h - 1) * a.dilation_h + 1;
    tasks = frames * across * down;
    grain = workers > 1 ? max64(kNchwTaskWork / max64(rows * columns * out_c * taps(), 1), 1) : tasks;
  }
  int64_t slice() const { return in_c * args.kernel_w; } /* taps of a row of the kernel, over all inputs */
  int64_t taps() const { return args.kernel_d * args.kernel_h * slice(); }
  int64_t strip_floats() const { return in_c * args.kernel_d * in_rows * in_row; }
  int64_t width() const { return min64(out_c, kNchwOutputs); } /* outputs whose weights lie together */
};

/* Every E-th element of `from`, `count` of them. */
template <int E> inline void nchw_copy_every(const float *from, int64_t count, float *to) {
  int64_t i = 0;
  for (; i + W < count; i += W) store(to + i, load_every<E>(from + E * i)); /* reads what lies between, too */
  for (; i < count; ++i) to[i] = from[E * i];
}
static inline void nchw_copy_every(const float *from, int64_t step, int64_t count, float *to) {
  if (step == 1) return copy_floats(to, from, count);
  if (step == 2) return nchw_copy_every<2>(from, count, to);
  if (step == 3) return nchw_copy_every<3>(from, count, to);
  if (step == 4) return nchw_copy_every<4>(from, count, to);
  for (int64_t i = 0; i < count; ++i) to[i] = from[step * i];
}

/* Columns left, left + 1, .. of a row of the input as the parts of a row of a strip; those outside are zero. */
static inline void nchw_copy_row(const NchwPlan &plan, const float *row, int64_t left, float *to) {
  const ConvArgs &a = plan.args;
  const int64_t step = a.stride_w, end = min64(a.in_w - left, plan.in_columns);
  for (int64_t p = 0; p < step; ++p, to += plan.part) {
    const int64_t first = min64(ceil_div(max64(-left - p, 0), step), plan.part);
    const int64_t last = max64(min64(ceil_div(max64(end - p, 0), step), plan.part), first);
    zero_floats(to, first);
    nchw_copy_every(row + (left + p + first * step) * a.x_w, step * a.x_w, last - first, to + first);
    zero_floats(to + last, plan.part - last);
  }
}

/* A row of outputs: `count` taps of each slice of the kernel from the one at `taps` on, `slice` taps apart. */
struct NchwRow {
  const float *x;       /* the strip, the row's first column */
  const int64_t *taps;  /* floats from there to each tap's values */
  const float *w;       /* [taps][width] */
  int64_t slices, slice, count, width;
  float *sums;          /* [N][kNchwWidest * W] */
};

/* N outputs by V vectors of neighbours from `column` on. */
template <int N, int V> __attribute__((noinline)) void nchw_tile(const NchwRow &row, int64_t column) {
  vf32 sums[N][V] = {};
  for (int64_t d = 0; d < row.slices; ++d) {
    const int64_t *tap = row.taps + d * row.slice;
    const float *w = row.w + d * row.slice * row.width, *x = row.x + column;
    for (int64_t count = row.count; count > 0; --count, w += row.width) {
      const float *const at = x + *tap++;
      vf32 values[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) values[v] = N == 1 ? load(at + v * W) : (vf32)tile_register(at + v * W);
#pragma GCC unroll 4
      for (int o = 0; o < N; ++o) {
        const vf32 weight = splat(w[o]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sums[o][v] = fma(weight, values[v], sums[o][v]);
      }
    }
  }
  float *const to = row.sums;
#pragma GCC unroll 4
  for (int o = 0; o < N; ++o)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) store(to + (o * kNchwWidest + v) * W, sums[o][v]);
}

template <class Epilogue> struct NchwLoop {
  const mycc_host *host;
  const NchwPlan &plan;
  const Epilogue &epilogue;

  /* The tile of so many vectors, at most V. */
  template <int N, int V> static void tile(const NchwRow &row, int64_t column, int64_t vectors) {
    if constexpr (V > 1) {
      if (vectors < V) return tile<N, V - 1>(row, column, vectors);
    }
    nchw_tile<N, V>(row, column);
  }

  /* Outputs of one row. m: of the first of them; `apart` to the next one's. */
  template <int N> void outputs(const NchwRow &row, int64_t m, int64_t apart, int64_t first, int64_t columns) const {
    const int64_t vectors = ceil_div(columns, W), tiles = ceil_div(vectors, nchw_vectors(N));
    for (int64_t at = 0, i = 0; i < tiles; ++i) {
      const int64_t taken = vectors / tiles + (i < vectors % tiles);
      tile<N, nchw_vectors(N)>(row, at, taken);
      for (int64_t o = 0; o < N; ++o)
        epilogue((int64_t)0, m + o * apart, first + at, row.sums + o * kNchwWidest * W,
                 min64(taken * W, columns - at));
      at += taken * W;
    }
  }

  /* channel: the first one of the group. */
  void fill(int64_t image, int64_t channel, int64_t depth, int64_t top, int64_t left, float *strip) const {
    const ConvArgs &a = plan.args;
    for (int64_t tap = 0; tap < a.kernel_d; ++tap) {
      const int64_t z = depth * a.stride_d - a.pad_d + tap * a.dilation_d;
      if (z < 0 || z >= a.in_d) continue; /* never read */
      for (int64_t c = 0; c < plan.in_c; ++c)
        for (int64_t r = max64(-top, 0); r < min64(plan.in_rows, a.in_h - top); ++r) {
          const float *row = a.x + image * a.x_batch + (channel + c) * a.x_c + z * a.x_d + (top + r) * a.x_h;
          nchw_copy_row(plan, row, left, strip + ((tap * plan.in_c + c) * plan.in_rows + r) * plan.in_row);
        }
    }
  }

  /* Where the values of each tap lie from a row's first column on. */
  void places(int64_t *taps) const {
    const ConvArgs &a = plan.args;
    for (int64_t d = 0; d < a.kernel_d; ++d)
      for (int64_t i = 0; i < a.kernel_h; ++i)
        for (int64_t c = 0; c < plan.in_c; ++c)
          for (int64_t j = 0; j < a.kernel_w; ++j) {
            const int64_t row = (d * plan.in_c + c) * plan.in_rows + i * a.dilation_h, column = j * a.dilation_w;
            *taps++ = row * plan.in_row + column % a.stride_w * plan.part + column / a.stride_w;
          }
  }

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const NchwLoop &loop = *(const NchwLoop *)arg;
    const NchwPlan &plan = loop.plan;
    const ConvArgs &a = plan.args;
    const size_t tap_bytes = (size_t)plan.taps() * sizeof(int64_t);
    const size_t strip_bytes = (size_t)plan.strip_floats() * sizeof(float);
    void *scratch = loop.host->scratch(loop.host->ctx, worker, tap_bytes + strip_bytes + 3 * kLineBytes);
    if (!scratch) return;
    Carver carver = {(uint8_t *)scratch};
    int64_t *taps = carver.take<int64_t>(tap_bytes);
    float *strip = carver.take<float>(strip_bytes);
    alignas(kLineBytes) float sums[kNchwOutputs * kNchwWidest * W];
    loop.places(taps);
    NchwRow row;
    row.sums = sums;
    row.slice = a.kernel_h * plan.slice();
    row.width = plan.width();
    const int64_t group_weights = ceil_div(plan.out_c, kNchwOutputs) * row.width * plan.taps();
    const int64_t apart = a.out_d * a.out_h;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t part = task / (plan.across * plan.down), group = part % a.groups;
      const int64_t image = part / a.groups / a.out_d, depth = part / a.groups % a.out_d;
      const int64_t first = task % plan.across * plan.columns, top = task / plan.across % plan.down * plan.rows;
      const int64_t columns = min64(plan.columns, a.out_w - first), bottom = min64(top + plan.rows, a.out_h);
      loop.fill(image, group * plan.in_c, depth, top * a.stride_h - a.pad_h, first * a.stride_w - a.pad_w, strip);
      const TapRange slices(depth * a.stride_d - a.pad_d, a.dilation_d, a.kernel_d, a.in_d);
      row.slices = slices.count();
      for (int64_t h = top; h < bottom; ++h) {
        const TapRange lines(h * a.stride_h - a.pad_h, a.dilation_h, a.kernel_h, a.in_h);
        const int64_t skipped = slices.first * row.slice + lines.first * plan.slice();
        row.x = strip + (h - top) * a.stride_h * plan.in_row;
        row.taps = taps + skipped;
        row.count = lines.count() * plan.slice();
        for (int64_t o = 0; o < plan.out_c; o += kNchwOutputs) {
          const int64_t output = group * plan.out_c + o, left = plan.out_c - o;
          const int64_t m = ((image * a.out_c + output) * a.out_d + depth) * a.out_h + h;
          row.w = a.w + group * group_weights + o * plan.taps() + skipped * row.width;
          if (left >= 4) loop.template outputs<4>(row, m, apart, first, columns);
          else if (left == 3) loop.template outputs<3>(row, m, apart, first, columns);
          else if (left == 2) loop.template outputs<2>(row, m, apart, first, columns);
          else loop.template outputs<1>(row, m, apart, first, columns);
        }
      }
    }
  }
};

/* args.w: for each group [ceil(out_c / 4)][kernel_d][kernel_h][in_c][kernel_w][4], zeros behind the outputs; of fewer
 * outputs than 4 as many. */
template <class Epilogue>
inline void conv_nchw(const mycc_host *host, const ConvArgs &args, const Epilogue &epilogue) {
  if (args.frames() * args.out_h * args.out_w <= 0 || args.out_c <= 0) return;
  const NchwPlan plan(args, host->max_workers);
  NchwLoop<Epilogue> loop = {host, plan, epilogue};
  host->parallel_for(host->ctx, plan.tasks, plan.grain, NchwLoop<Epilogue>::body, &loop);
}

} // namespace mycc
#endif /* MYCC_KERNELS_CONV_NCHW_H */
