/* Products of int8 values with weights of 8 bits by AMX: C[m, n] = sum over k of a[m, k] * w[n, k], exact in int32.
 *
 * 16 lines of a panel (quads.h) are a tile of weights as they lie in memory: 64 values of k by 16 columns. Rows are read
 * where they lie; patches, and rows behind whose end there is no memory, are copied first.
 *
 * The weights are unsigned, raised by 128. Few of them become signed again when a task begins. Else a tile of weights of
 * -128 gives each row what undoes that, in all columns: sums start from it. Rows may be followed by anything where the
 * weights' lines are zeros, which the last lines of a panel are copied beside.
 */
#ifndef MYCC_KERNELS_GEMM_INTEGER_TILES_H
#define MYCC_KERNELS_GEMM_INTEGER_TILES_H

#include "machine.h"
#include "kernels/gemm/quantised.h"
#include "kernels/gemm/tiles.h"

#if defined(MYCC_AMX)
namespace mycc {

/* The left operand by tiles of 16 rows, counted from its first row: those from `copied` on are copied before they are
 * multiplied, as tiles read more than they have. */
struct TiledRows {
  const int8_t *a;
  int64_t step;   /* elements from a row to the next, where rows are read in place */
  int64_t copied; /* number of the first tile that is copied */
  int64_t last;   /* where the last row of patches begins */

  template <class Args> TiledRows(const Args &args, const TileDepth &depth) : a(args.a), step(args.a_row), copied(0), last(0) {
    if (args.patches.run) {
      last = Patches::Place(args.patches, args.m - 1).at;
      step = args.patches.row_step(args.m);
      if (step < 0) return;
    }
    /* The last row that is read beyond its end lies in the operand, and so do all 16 rows. */
    const int64_t end = (args.m - 1) * step + args.k, most = end - depth.row_bytes();
    if (most >= 0) copied = min64(args.m, step ? most / step + 1 : args.m) / amx::kRows;
  }
};

template <class Epilogue> struct IntegerTilesLoop {
  typedef QuantisedArgs<int8_t, 8> Args;
  const mycc_host *host;
  const Args &args;
  const Epilogue &epilogue;
  TaskPlan plan;
  TileDepth depth;
  TiledRows rows;

  bool near;      /* all weights of a task: two tiles of rows are made ready when they are wanted */
  bool is_signed; /* weights become that */

  /* What a worker has of its own. */
  struct Scratch {
    int8_t *copies;
    uint8_t *weights; /* [panels][panel_bytes], signed */
    int32_t *undone; /* [tiles][2][16][16] */
    uint8_t *raised; /* a tile of -128, then the same for the last step */
    uint8_t *last;   /* [kSummedPanels][kTileBytes] */
    int32_t *c;      /* [sums_of_task] */
    RowTile *tiles;
  };

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const IntegerTilesLoop &loop = *(const IntegerTilesLoop *)arg;
    const int64_t tiles = loop.near ? 2 : round_up(ceil_div(loop.plan.rows.most(), amx::kRows), 2);
    const int64_t copied = min64(tiles, ceil_div(loop.args.m, amx::kRows) - loop.rows.copied);
    const size_t copies = (size_t)(copied * amx::kRows * loop.depth.copied_row()) + 8; /* copied by eights */
    const size_t sums = (size_t)sums_of_task(loop.depth) * sizeof(int32_t);
    const size_t of_tiles = (size_t)tiles * (2 * amx::kTileBytes + sizeof(RowTile));
    const size_t weights = loop.is_signed ? (size_t)(loop.plan.panels.most() * loop.args.panel_bytes()) : 0;
    const size_t of_panels = (2 + kSummedPanels) * amx::kTileBytes + weights;
    void *memory = loop.host->scratch(loop.host->ctx, worker, copies + of_tiles + of_panels + sums + 8 * kLineBytes);
    if (!memory) return;
    Carver carver = {(uint8_t *)memory};
    Scratch own;
    own.copies = carver.take<int8_t>(copies);
    own.weights = carver.take<uint8_t>(weights);
    own.undone = carver.take<int32_t>((size_t)tiles * 2 * amx::kTileBytes);
    own.raised = carver.take<uint8_t>(2 * amx::kTileBytes);
    own.last = carver.take<uint8_t>(kSummedPanels * amx::kTileBytes);
    own.c = carver.take<int32_t>(sums);
    own.tiles = carver.take<RowTile>((size_t)tiles * sizeof(RowTile));
    __builtin_memset(own.raised, 0x80, amx::kTileBytes);
    __builtin_memset(own.raised + amx::kTileBytes, 0, amx::kTileBytes);
    __builtin_memset(own.raised + amx::kTileBytes, 0x80, (size_t)(loop.depth.last_lines * kTileLine));
    const amx::Configured configured(loop.depth.shapes());
    int64_t filled = -1, made = -1;
    for (int64_t task = begin; task < end; ++task) {
      const TaskPlace place = place_task(loop.plan, loop.args.n, task);
      if (loop.is_signed && place.panel != made) loop.make_signed(own, place);
      made = place.panel;
      for (int64_t t = 0; !loop.near && place.row != filled && t * amx::kRows < place.rows; t += 2)
        loop.ready(own, place, t, own.tiles + t);
      filled = place.row;
      loop.multiply(own, place);
    }
  }

  void make_signed(const Scratch &own, const TaskPlace &place) const {
    const int64_t bytes = args.panel_bytes(), count = ceil_div(place.columns, kPanel) * bytes;
    const int32_t *from = (const int32_t *)(args.b + place.panel * bytes);
    int32_t *to = (int32_t *)own.weights;
    for (int64_t i = 0; i < count / 4; i += W) store(to + i, load(from + i) ^ (int32_t)0x80808080);
  }

  /* Finds two tiles of a task's rows, copies those that have to be, and makes their first sums. */
  void ready(const Scratch &own, const TaskPlace &place, int64_t t, RowTile *to) const {
    const int64_t row_bytes = depth.copied_row(), first = place.row / amx::kRows + t;
    const int64_t place_of_copy = near ? 0 : max64(first - max64(rows.copied, place.row / amx::kRows), 0);
    int8_t *free = own.copies + place_of_copy * amx::kRows * row_bytes;
    const bool two = (t + 1) * amx::kRows < place.rows;
    for (int64_t i = 0; i <= two; ++i) {
      to[i] = {(const char *)rows.a + (first + i) * amx::kRows * rows.step, rows.step,
               is_signed ? nullptr : own.undone + ((to - own.tiles) + i) * 2 * (amx::kTileBytes / 4)};
      if (first + i < rows.copied) continue;
      const int64_t row = (t + i) * amx::kRows;
      copy(free, place.row + row, min64(amx::kRows, place.rows - row));
      to[i].rows = (const char *)free, to[i].step = row_bytes;
      free += amx::kRows * row_bytes;
    }
    if (!is_signed) two ? undo<2>(own, to) : undo<1>(own, to);
  }

  /* Rows times -128: the sums of even steps and of odd ones, which do not wait for each other. */
  template <int R> void undo(const Scratch &own, const RowTile *to) const {
    amx::zero<0>(), amx::zero<1>(), amx::zero<2>(), amx::zero<3>();
    amx::load<6>(own.raised, kTileLine);
    const int64_t step = depth.step_lines * 4;
    int64_t at = 0;
    for (int64_t s = 0; s + 2 <= depth.steps; s += 2, at += 2 * step) {
      undo_step<R, 0>(to, at);
      undo_step<R, 1>(to, at + step);
    }
    if (depth.steps % 2) undo_step<R, 0>(to, at), at += step;
    amx::load<6>(own.raised + amx::kTileBytes, kTileLine);
    if (depth.last_lines) undo_step<R, 1>(to, at);
    store_undone<0>((int32_t *)to[0].first);
    if constexpr (R > 1) store_undone<2>((int32_t *)to[1].first);
  }
  template <int R, int Odd> static MYCC_INLINE void undo_step(const RowTile *to, int64_t at) {
    amx::load<4>(to[0].rows + at, to[0].step);
    amx::add_signed<Odd, 4, 6>();
    if constexpr (R > 1) {
      amx::load<5>(to[1].rows + at, to[1].step);
      amx::add_signed<2 + Odd, 5, 6>();
    }
  }
  template <int T> static MYCC_INLINE void store_undone(int32_t *to) {
    amx::store<T>(to, kTileLine);
    amx::store<T + 1>(to + amx::kTileBytes / 4, kTileLine);
    for (int i = 0; i < amx::kTileBytes / 4; i += W) store(to + i, load(to + i) + load(to + amx::kTileBytes / 4 + i));
  }

  void copy(int8_t *to, int64_t row, int64_t count) const {
    Patches::Place place(args.patches, row);
    for (int64_t r = 0; r < count; ++r, to += depth.copied_row()) {
      if (args.patches.run) {
        args.patches.copy_row(to, args.a + place.at, place.at + 8 - args.patches.run <= rows.last);
        place.next(args.patches);
      } else {
        copy_run(to, args.a + (row + r) * args.a_row, args.k);
      }
    }
  }

  void multiply(const Scratch &own, const TaskPlace &place) const {
    const int64_t bytes = args.panel_bytes();
    const auto panels = [&](int64_t p, int64_t group, int64_t pairs) {
      WeightTiles b = {is_signed ? own.weights + p * bytes : args.b + (place.panel + p) * bytes, bytes, own.last};
      b.is_signed = is_signed;
      for (int64_t i = 0; depth.last_lines && i < group; ++i) {
        uint8_t *to = own.last + i * amx::kTileBytes;
        __builtin_memset(to, 0, amx::kTileBytes);
        __builtin_memcpy(to, b.lines + i * bytes + depth.steps * depth.step_lines * kTileLine,
                         (size_t)(depth.last_lines * kTileLine));
      }
      b.ahead = b.lines + group * bytes; /* as many as the group has, while rows pass over it */
      if (pairs && !is_signed) b.ahead_lines = ceil_div(group * depth.lines, max64(pairs * ceil_div(group, 2) * depth.steps, 1));
      return b;
    };
    const auto tiles = [&](int64_t t) {
      if (near) ready(own, place, t, own.tiles);
      return own.tiles + (near ? 0 : t);
    };
    multiply_task<ByteProducts>(depth, place, tiles, bytes, panels, near, own.c, epilogue);
  }
};

/* Whether it is less work to make the weights of a task signed than to undo for its rows that they are not, counted in
 * lines of weights that are copied. */
static inline bool pays_signed(const TileDepth &depth, const TaskPlan &plan) {
  const int64_t pairs = ceil_div(plan.rows.most(), 2 * amx::kRows);
  return plan.panels.most() * depth.lines <= pairs * (depth.steps * kTileUndoneStep + kTileUndone);
}

template <class Epilogue>
inline void gemm_integer_tiles(const mycc_host *host, const QuantisedArgs<int8_t, 8> &args, const Epilogue &epilogue) {
  const TileDepth depth(ceil_div(args.k, 4));
  const TiledRows rows(args, depth);
  /* Maps, whose rows are enough for the workers, stay with them from one convolution to the next. */
  const bool map = args.patches.run && ceil_div(args.m, amx::kRows) > host->max_workers;
  const TaskPlan plan = plan_tiled_tasks(1, args.m, args.n, args.k, host->max_workers, depth, rows.copied == 0 || map);
  const bool near = is_near(depth, plan.panels.most(), args.panel_bytes());
  IntegerTilesLoop<Epilogue> loop = {host, args, epilogue, plan, depth, rows, near, near && pays_signed(depth, plan)};
  host->parallel_for(host->ctx, plan.count, plan.grain, IntegerTilesLoop<Epilogue>::body, &loop);
}

} // namespace mycc
#endif
#endif /* MYCC_KERNELS_GEMM_INTEGER_TILES_H */
