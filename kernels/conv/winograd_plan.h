/* How Winograd's convolutions are cut: a kernel into parts of 3 x 3 taps, the tiles of a map into tasks. */
#ifndef MYCC_KERNELS_CONV_WINOGRAD_PLAN_H
#define MYCC_KERNELS_CONV_WINOGRAD_PLAN_H

#include "machine.h"
#include "kernels/conv/conv.h"
#include "kernels/conv/winograd_forms.h"

namespace mycc {

/* 3 x 3 taps of a kernel. lacks_row, lacks_column: it has less than three of them, the others count as zeros. */
struct WinogradPart {
  int64_t slice, row, column;
  bool lacks_row, lacks_column;
};

/* A kernel as parts, slice by slice and row by row; which weights a part has, and where. */
template <class Form> struct WinogradParts {
  int64_t down, across, count;
  int64_t rows, columns;         /* matrices of weights of a slice */
  bool short_down, short_across; /* the last parts lack taps */

  explicit WinogradParts(const ConvArgs &a)
      : down(ceil_div(a.kernel_h, 3)), across(ceil_div(a.kernel_w, 3)), count(a.kernel_d * down * across),
        short_down(a.kernel_h % 3 != 0), short_across(a.kernel_w % 3 != 0) {
    rows = down * Form::weights - short_down;
    columns = across * Form::weights - short_across;
  }
  WinogradPart part(int64_t i) const {
    const int64_t row = i / across % down, column = i % across;
    return {i / (down * across), row, column, short_down && row == down - 1, short_across && column == across - 1};
  }
  /* Whether a part has the weights of a product; products are numbered row by row of the points. */
  static bool has(const WinogradPart &part, int64_t product) {
    return !(part.lacks_row && row_of(product) == Form::third) &&
           !(part.lacks_column && column_of(product) == Form::third);
  }
  /* Their matrix. */
  int64_t matrix(const WinogradPart &part, int64_t product) const {
    const int64_t row = row_of(product) - (part.lacks_row && row_of(product) > Form::third);
    const int64_t column = column_of(product) - (part.lacks_column && column_of(product) > Form::third);
    const int64_t own_rows = Form::weights - part.lacks_row, own_columns = Form::weights - part.lacks_column;
    const int64_t before = (part.slice * rows + part.row * Form::weights) * columns +
                           own_rows * part.column * Form::weights;
    return before + row * own_columns + column;
  }

private:
  static int64_t row_of(int64_t product) { return Form::weights_of((int)(product / Form::edge)); }
  static int64_t column_of(int64_t product) { return Form::weights_of((int)(product % Form::edge)); }
};

/* How the tiles of all frames are cut into tasks: blocks of tiles x blocks of panels. */
template <int E, int S> struct WinogradPlan {
  typedef Winograd<E, S> Form;
  static constexpr int64_t points = Form::edge * Form::edge, sums = Form::sums * Form::sums;

  const ConvArgs &args;
  WinogradParts<Form> parts;
  ConvCut cut;
  int64_t down, across;                   /* tiles of a frame */
  Spread tiles, panels;                   /* tiles of all frames */
  int64_t tasks, grain;
  int64_t stride, point_step, sum_step;   /* floats of a tile's sums, between points, between sums */

  WinogradPlan(const ConvArgs &a, int64_t workers)
      : args(a), parts(a), cut(cut_of(a.in_c)), down(ceil_div(a.out_h, E)), across(ceil_div(a.out_w, E)),
        tiles{a.frames() * down * across, 1, 1}, panels{ceil_div(a.out_c, kPanel), 1, 1} {
    const int64_t matrix = a.in_c * panels.size * kPanel * (int64_t)sizeof(float);
    const int64_t weights = Form::weights * Form::weights * matrix;
    const int64_t most = weights <= kWinogradWeights ? kWinogradTiles : kMoreTiles;
    const int64_t work = tiles.size * parts.count * points * a.in_c * a.out_c;
    const int64_t sharers = max64(min64(workers, work / kConvTaskWork), 1);
    tiles.blocks = ceil_div(tiles.size, most);
    /* Every block of panels transforms the input again, few tiles multiply slowly. */
    if (tiles.size >= 2 * kRuns * kRunPixels * sharers) tiles.blocks = round_up(tiles.blocks, sharers);
    else panels.blocks = min64(ceil_div(sharers, tiles.blocks), max64(panels.size / kLeastPart, 1));
    if (tiles.blocks * panels.blocks < sharers)
      tiles.blocks = min64(ceil_div(sharers, panels.blocks), max64(tiles.size / kLeastPart, 1));
    tasks = tiles.blocks * panels.blocks;
    grain = workers > 1 ? max64(min64(kConvTaskWork / max64(work / tasks, 1), tasks / workers), 1) : tasks;
    stride = panels.most() * kPanel;
    point_step = round_up(tiles.most() * a.in_c, kPanel) + kPanel; /* not a multiple of the L1 cache's sets */
    sum_step = tiles.most() * stride + kPanel;
  }

private:
  static ConvCut cut_of(int64_t channels) {
    ConvTuning tuning;
    tuning.depth = Form::longest;
    return ConvCut(1, channels, tuning);
  }
};

} // namespace mycc
#endif /* MYCC_KERNELS_CONV_WINOGRAD_PLAN_H */
