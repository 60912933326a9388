/* Products of int8 values with weights of 8 bits by AMX: C[m, n] = sum over k of a[m, k] * w[n, k], exact in int32.
 *
 * 16 lines of a panel (quads.h) are a tile of weights as they lie in memory: 64 values of k by 16 columns. Rows are read
 * where they lie; patches, and rows behind whose end there is no memory, are copied first.
 *
 * The weights are unsigned, raised by 128. A tile of weights of -128 gives each row what undoes that, in all columns: sums
 * start from it. So rows may be followed by anything where the weights' lines are zeros, which the last lines of a panel
 * are copied beside.
 */
#ifndef MYCC_KERNELS_GEMM_INTEGER_TILES_H
#define MYCC_KERNELS_GEMM_INTEGER_TILES_H

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

  template <class Args> TiledRows(const Args &args, const TileDepth &depth) : a(args.a), step(args.a_row), copied(0) {
    if (args.patches.run) {
      step = args.patches.row_step(args.m);
      if (step < 0) return;
    }
    /* The last row that is read beyond its end lies in the operand, and so do all 16 rows. */
    const int64_t end = (args.m - 1) * step + args.k, last = end - depth.row_bytes();
    if (last >= 0) copied = min64(args.m, step ? last / step + 1 : args.m) / amx::kRows;
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

  /* What a worker has of its own. */
  struct Scratch {
    int8_t *copies;
    int32_t *undone; /* [tiles][16][16] */
    uint8_t *raised; /* a tile of -128, then the same for the last step */
    uint8_t *last;   /* [kGroupPanels][kTileBytes] */
    int32_t *c;      /* [sums_of_task] */
    RowTile *tiles;
  };

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const IntegerTilesLoop &loop = *(const IntegerTilesLoop *)arg;
    const int64_t tiles = ceil_div(loop.plan.rows.most(), amx::kRows);
    const int64_t copied = min64(tiles, ceil_div(loop.args.m, amx::kRows) - loop.rows.copied);
    const size_t copies = (size_t)(copied * amx::kRows * loop.depth.copied_row());
    const size_t sums = (size_t)sums_of_task(loop.depth) * sizeof(int32_t);
    void *memory = loop.host->scratch(loop.host->ctx, worker, copies + (size_t)tiles * (amx::kTileBytes + sizeof(RowTile)) +
                                                                  (2 + kGroupPanels) * amx::kTileBytes + sums + 7 * 64);
    if (!memory) return;
    Carver carver = {(uint8_t *)memory};
    Scratch own;
    own.copies = carver.take<int8_t>(copies);
    own.undone = carver.take<int32_t>((size_t)tiles * amx::kTileBytes);
    own.raised = carver.take<uint8_t>(2 * amx::kTileBytes);
    own.last = carver.take<uint8_t>(kGroupPanels * amx::kTileBytes);
    own.c = carver.take<int32_t>(sums);
    own.tiles = carver.take<RowTile>((size_t)tiles * sizeof(RowTile));
    __builtin_memset(own.raised, 0x80, amx::kTileBytes);
    __builtin_memset(own.raised + amx::kTileBytes, 0, amx::kTileBytes);
    __builtin_memset(own.raised + amx::kTileBytes, 0x80, (size_t)(loop.depth.last_lines * kTileLine));
    const amx::Configured configured(loop.depth.shapes());
    int64_t filled = -1;
    for (int64_t task = begin; task < end; ++task) {
      const TaskPlace place = place_task(loop.plan, loop.args.n, task);
      if (place.row != filled) loop.fill(own, place);
      filled = place.row;
      loop.multiply(own, place);
    }
  }

  /* Finds the tiles of a task's rows, copies those that have to be, and makes their first sums. */
  void fill(const Scratch &own, const TaskPlace &place) const {
    const int64_t first = place.row / amx::kRows, row_bytes = depth.copied_row();
    const int64_t copied = max64(rows.copied, first);
    for (int64_t t = 0; t * amx::kRows < place.rows; ++t) {
      RowTile &tile = own.tiles[t];
      int32_t *undone = own.undone + t * (amx::kTileBytes / 4);
      tile = {(const char *)rows.a + (first + t) * amx::kRows * rows.step, rows.step, undone};
      if (first + t >= copied) {
        int8_t *to = own.copies + (first + t - copied) * amx::kRows * row_bytes;
        copy(to, place.row + t * amx::kRows, min64(amx::kRows, place.rows - t * amx::kRows));
        tile.rows = (const char *)to, tile.step = row_bytes;
      }
      amx::zero<0>();
      amx::load<6>(own.raised, kTileLine);
      for (int64_t s = 0; s < depth.steps; ++s) {
        amx::load<4>(tile.rows + s * depth.step_lines * 4, tile.step);
        amx::add_signed<0, 4, 6>();
      }
      if (depth.last_lines) {
        amx::load<4>(tile.rows + depth.steps * depth.step_lines * 4, tile.step);
        amx::load<6>(own.raised + amx::kTileBytes, kTileLine);
        amx::add_signed<0, 4, 6>();
      }
      amx::store<0>(undone, 16 * sizeof(int32_t));
    }
  }
  void copy(int8_t *to, int64_t row, int64_t count) const {
    Patches::Place place(args.patches, row);
    for (int64_t r = 0; r < count; ++r, to += depth.copied_row()) {
      if (args.patches.run) {
        args.patches.copy_row(to, args.a + place.at);
        place.next(args.patches);
      } else {
        copy_run(to, args.a + (row + r) * args.a_row, args.k);
      }
    }
  }

  void multiply(const Scratch &own, const TaskPlace &place) const {
    const int64_t bytes = args.panel_bytes();
    const bool near = !depth.last_lines && ceil_div(place.columns, kPanel) * bytes <= kNearWeights;
    const auto panels = [&](int64_t p, int64_t group, int64_t pairs) {
      WeightTiles b = {args.b + (place.panel + p) * bytes, bytes, own.last};
      for (int64_t i = 0; depth.last_lines && i < group; ++i) {
        uint8_t *to = own.last + i * amx::kTileBytes;
        __builtin_memset(to, 0, amx::kTileBytes);
        __builtin_memcpy(to, b.lines + i * bytes + depth.steps * depth.step_lines * kTileLine,
                         (size_t)(depth.last_lines * kTileLine));
      }
      b.ahead = b.lines + group * bytes; /* as many as the group has, while rows pass over it */
      if (pairs) b.ahead_lines = ceil_div(group * depth.lines, max64(pairs * ceil_div(group, 2) * depth.steps, 1));
      return b;
    };
    multiply_task<ByteProducts>(depth, place, own.tiles, bytes, panels, near, own.c, epilogue);
  }
};

template <class Epilogue>
inline void gemm_integer_tiles(const mycc_host *host, const QuantisedArgs<int8_t, 8> &args, const Epilogue &epilogue) {
  const TileDepth depth(ceil_div(args.k, 4));
  const TiledRows rows(args, depth);
  const TaskPlan plan = plan_tiled_tasks(1, args.m, args.n, args.k, host->max_workers, depth, rows.copied == 0);
  IntegerTilesLoop<Epilogue> loop = {host, args, epilogue, plan, depth, rows};
  host->parallel_for(host->ctx, plan.count, plan.grain, IntegerTilesLoop<Epilogue>::body, &loop);
}

} // namespace mycc
#endif
#endif /* MYCC_KERNELS_GEMM_INTEGER_TILES_H */
