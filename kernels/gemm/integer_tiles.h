/* Products of int8 values with weights of 8 bits by AMX: C[m, n] = sum over k of a[m, k] * w[n, k], exact in int32.
 *
 * 16 lines of a panel (quads.h) are a tile of weights as they lie in memory: 64 values of k by 16 columns. Rows are read
 * where they lie, 64 values of each of 16 rows at a time; patches, and rows behind whose end there is no memory, are copied
 * first. Two tiles of rows times two panels are four tiles of sums.
 *
 * The weights are unsigned, raised by 128. A tile of weights of -128 gives each row what undoes that, in all columns: sums
 * start from it. So rows may be followed by anything where the weights' lines are zeros, which the last lines of a panel
 * are copied beside.
 */
#ifndef MYCC_KERNELS_GEMM_INTEGER_TILES_H
#define MYCC_KERNELS_GEMM_INTEGER_TILES_H

#include "kernels/gemm/amx.h"
#include "kernels/gemm/quantised.h"

#if defined(MYCC_AMX)
namespace mycc {

/* How k is cut: into steps of equal lines where that comes out even, else the last one has fewer. */
struct TileDepth {
  int64_t lines, steps, step_lines, last_lines; /* last_lines: of one more step; 0: there is none */

  explicit TileDepth(int64_t k) : lines(ceil_div(k, 4)) {
    const int64_t even = ceil_div(lines, max64(ceil_div(lines, amx::kRows), 1));
    step_lines = even && lines % even == 0 ? even : min64(amx::kRows, lines);
    steps = step_lines ? lines / step_lines : 0;
    last_lines = lines - steps * step_lines;
  }
  /* Bytes of a row that tiles read. */
  int64_t row_bytes() const { return (steps + (last_lines > 0)) * step_lines * 4; }
  /* Bytes from a copied row to the next: an odd number of lines, so that rows share no set of the cache. */
  int64_t copied_row() const { return (round_up(row_bytes(), 64) / 64 | 1) * 64; }

  /* Tiles 0 to 3 are sums, 4 and 5 rows, 6 and 7 weights. */
  amx::Shapes shapes() const {
    amx::Shapes shapes;
    for (int i = 0; i < 4; ++i) shapes.set(i, amx::kRows, amx::kRowBytes);
    for (int i = 4; i < 6; ++i) shapes.set(i, amx::kRows, 4 * max64(step_lines, 1));
    for (int i = 6; i < 8; ++i) shapes.set(i, max64(step_lines, 1), amx::kRowBytes);
    return shapes;
  }
};

/* The rows of a tile: `step` bytes from one to the next, and where their first sums lie. */
struct RowTile {
  const int8_t *rows;
  int64_t step;
  const int32_t *undone; /* [16][16] */
};

/* Panels of weights: their lines, and copies of the last ones, followed by zeros. */
struct WeightTiles {
  const uint8_t *lines;
  int64_t panel_bytes;
  const uint8_t *last;        /* [panels][kTileBytes] */
  const uint8_t *ahead;       /* lines that are fetched, so many a step */
  int64_t ahead_lines;
};

constexpr int64_t kGroupPanels = 8;         /* whose sums are finished together, at most */
constexpr int64_t kGroupBytes = 24 << 10;   /* of weights, in the first cache of 48 KiB */
constexpr int64_t kCopiedBytes = 512 << 10; /* of a task's rows, in the second cache of 2 MiB */
constexpr int64_t kTiledTaskWork = 1 << 21; /* multiply-adds below which a task is not worth a chunk of its own */

/* One step of k. */
template <int R, int P> MYCC_INLINE void multiply_step(const RowTile *a, int64_t at, const uint8_t *b, int64_t panel_bytes) {
  amx::load<4>(a[0].rows + at, a[0].step);
  amx::load<6>(b, kLineBytes);
  amx::add_signed_unsigned<0, 4, 6>();
  if constexpr (P > 1) {
    amx::load<7>(b + panel_bytes, kLineBytes);
    amx::add_signed_unsigned<1, 4, 7>();
  }
  if constexpr (R > 1) {
    amx::load<5>(a[1].rows + at, a[1].step);
    amx::add_signed_unsigned<2, 5, 6>();
    if constexpr (P > 1) amx::add_signed_unsigned<3, 5, 7>();
  }
}
/* Sums of R tiles of rows and P panels, to c[R * 16][kGroupPanels * 16]. */
template <int R, int P> void multiply_tiles(const TileDepth &depth, const RowTile *a, const WeightTiles &b, int32_t *c) {
  constexpr int64_t row = 16 * sizeof(int32_t), c_row = kGroupPanels * kPanel * sizeof(int32_t);
  amx::load<0>(a[0].undone, row);
  if constexpr (P > 1) amx::load<1>(a[0].undone, row);
  if constexpr (R > 1) amx::load<2>(a[1].undone, row);
  if constexpr (R > 1 && P > 1) amx::load<3>(a[1].undone, row);
  const uint8_t *ahead = b.ahead;
  for (int64_t s = 0; s < depth.steps; ++s) {
    multiply_step<R, P>(a, s * depth.step_lines * 4, b.lines + s * depth.step_lines * kLineBytes, b.panel_bytes);
    for (int64_t i = 0; i < b.ahead_lines; ++i, ahead += kLineBytes) __builtin_prefetch(ahead, 0, 2);
  }
  if (depth.last_lines) multiply_step<R, P>(a, depth.steps * depth.step_lines * 4, b.last, amx::kTileBytes);
  amx::store<0>(c, c_row);
  if constexpr (P > 1) amx::store<1>(c + 16, c_row);
  if constexpr (R > 1) amx::store<2>(c + 16 * kGroupPanels * kPanel, c_row);
  if constexpr (R > 1 && P > 1) amx::store<3>(c + 16 * kGroupPanels * kPanel + 16, c_row);
}

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
    int32_t *c;      /* [32][kGroupPanels * 16] */
    RowTile *tiles;
  };

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const IntegerTilesLoop &loop = *(const IntegerTilesLoop *)arg;
    const int64_t tiles = ceil_div(loop.plan.rows.most(), amx::kRows);
    const int64_t copied = min64(tiles, ceil_div(loop.args.m, amx::kRows) - loop.rows.copied);
    const size_t copies = (size_t)(copied * amx::kRows * loop.depth.copied_row());
    void *memory = loop.host->scratch(loop.host->ctx, worker, copies + (size_t)tiles * (amx::kTileBytes + sizeof(RowTile)) +
                                                                  (2 + 3 * kGroupPanels) * amx::kTileBytes + 7 * 64);
    if (!memory) return;
    Carver carver = {(uint8_t *)memory};
    Scratch own;
    own.copies = carver.take<int8_t>(copies);
    own.undone = carver.take<int32_t>((size_t)tiles * amx::kTileBytes);
    own.raised = carver.take<uint8_t>(2 * amx::kTileBytes);
    own.last = carver.take<uint8_t>(kGroupPanels * amx::kTileBytes);
    own.c = carver.take<int32_t>(2 * kGroupPanels * amx::kTileBytes);
    own.tiles = carver.take<RowTile>((size_t)tiles * sizeof(RowTile));
    __builtin_memset(own.raised, 0x80, amx::kTileBytes);
    __builtin_memset(own.raised + amx::kTileBytes, 0, amx::kTileBytes);
    __builtin_memset(own.raised + amx::kTileBytes, 0x80, (size_t)(loop.depth.last_lines * kLineBytes));
    amx::configure(loop.depth.shapes());
    int64_t filled = -1;
    for (int64_t task = begin; task < end; ++task) {
      const TaskPlace place = place_task(loop.plan, loop.args.n, task);
      if (place.row != filled) loop.fill(own, place);
      filled = place.row;
      loop.multiply(own, place);
    }
    amx::release();
  }

  /* Finds the tiles of a task's rows, copies those that have to be, and makes their first sums. */
  void fill(const Scratch &own, const TaskPlace &place) const {
    const int64_t first = place.row / amx::kRows, row_bytes = depth.copied_row();
    const int64_t copied = max64(rows.copied, first);
    for (int64_t t = 0; t * amx::kRows < place.rows; ++t) {
      RowTile &tile = own.tiles[t];
      int32_t *undone = own.undone + t * (amx::kTileBytes / 4);
      tile = {rows.a + (first + t) * amx::kRows * rows.step, rows.step, undone};
      if (first + t >= copied) {
        int8_t *to = own.copies + (first + t - copied) * amx::kRows * row_bytes;
        copy(to, place.row + t * amx::kRows, min64(amx::kRows, place.rows - t * amx::kRows));
        tile.rows = to, tile.step = row_bytes;
      }
      amx::zero<0>();
      amx::load<6>(own.raised, kLineBytes);
      for (int64_t s = 0; s < depth.steps; ++s) {
        amx::load<4>(tile.rows + s * depth.step_lines * 4, tile.step);
        amx::add_signed<0, 4, 6>();
      }
      if (depth.last_lines) {
        amx::load<4>(tile.rows + depth.steps * depth.step_lines * 4, tile.step);
        amx::load<6>(own.raised + amx::kTileBytes, kLineBytes);
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

  /* Groups of panels stay in the first cache while all rows pass over them, two tiles at a time. */
  void multiply(const Scratch &own, const TaskPlace &place) const {
    const int64_t panels = ceil_div(place.columns, kPanel), bytes = args.panel_bytes();
    const int64_t tiles = ceil_div(place.rows, amx::kRows);
    const int64_t most = min64(max64(kGroupBytes / max64(2 * bytes, 1), 1) * 2, kGroupPanels);
    for (int64_t p = 0, group; p < panels; p += group) {
      group = min64(most, panels - p);
      WeightTiles b = {args.b + (place.panel + p) * bytes, bytes, own.last, nullptr, 0};
      for (int64_t i = 0; depth.last_lines && i < group; ++i) {
        uint8_t *to = own.last + i * amx::kTileBytes;
        __builtin_memset(to, 0, amx::kTileBytes);
        __builtin_memcpy(to, b.lines + i * bytes + depth.steps * depth.step_lines * kLineBytes,
                         (size_t)(depth.last_lines * kLineBytes));
      }
      b.ahead = b.lines + group * bytes;
      b.ahead_lines = ceil_div(group * depth.lines, max64(ceil_div(tiles, 2) * ceil_div(group, 2) * depth.steps, 1));
      for (int64_t t = 0; t < tiles; t += 2) {
        const int64_t row = place.row + t * amx::kRows, rows = min64(2 * amx::kRows, place.row + place.rows - row);
        const int64_t column = (place.panel + p) * kPanel, valid = min64(group * kPanel, args.n - column);
        for (int64_t r = 0; r < rows; ++r) prefetch_operands(epilogue, (int64_t)0, row + r, column, valid, 0);
        sums(own.tiles + t, b, group, rows > amx::kRows, own.c);
        const Epilogue finish = epilogue; /* a copy that no store of bytes may change */
        for (int64_t r = 0; r < rows; ++r) finish((int64_t)0, row + r, column, own.c + r * kGroupPanels * kPanel, valid);
      }
    }
  }
  /* Those of one or two tiles of rows and a group of panels; what is fetched goes on behind what has been. */
  void sums(const RowTile *a, WeightTiles &b, int64_t group, bool two, int32_t *c) const {
    WeightTiles own = b;
    for (int64_t i = 0; i < group; i += 2, c += 2 * kPanel) {
      if (i + 1 < group)
        two ? multiply_tiles<2, 2>(depth, a, own, c) : multiply_tiles<1, 2>(depth, a, own, c);
      else
        two ? multiply_tiles<2, 1>(depth, a, own, c) : multiply_tiles<1, 1>(depth, a, own, c);
      own.lines += 2 * own.panel_bytes, own.last += 2 * amx::kTileBytes;
      own.ahead += depth.steps * own.ahead_lines * kLineBytes;
    }
    b.ahead = own.ahead;
  }
};

/* Tasks of whole pairs of tiles and panels. Rows that are copied are divided among workers before panels are, else panels:
 * each worker reads weights of its own. */
static inline TaskPlan plan_tiled_tasks(int64_t m, int64_t n, int64_t k, int64_t workers, const TileDepth &depth, bool copies) {
  const int64_t high = ceil_div(m, 2 * amx::kRows), wide = ceil_div(n, 2 * kPanel);
  const int64_t most_rows = max64(kCopiedBytes / max64(depth.copied_row(), 1), 2 * amx::kRows);
  int64_t row_blocks = ceil_div(m, most_rows), panel_blocks = 1;
  if (workers > 1) {
    const int64_t wanted = min64(4 * workers, max64(m * n * max64(k, 1) / kTiledTaskWork, 1));
    if (copies) {
      row_blocks = max64(row_blocks, min64(wanted, high));
      panel_blocks = min64(ceil_div(wanted, row_blocks), wide);
    } else {
      panel_blocks = min64(ceil_div(wanted, row_blocks), wide);
      row_blocks = max64(row_blocks, min64(ceil_div(wanted, panel_blocks), high));
    }
  }
  TaskPlan plan = {{m, 2 * amx::kRows, row_blocks}, {ceil_div(n, kPanel), 2, panel_blocks}, row_blocks * panel_blocks, 1};
  if (workers == 1) plan.grain = plan.count;
  return plan;
}

template <class Epilogue>
inline void gemm_integer_tiles(const mycc_host *host, const QuantisedArgs<int8_t, 8> &args, const Epilogue &epilogue) {
  const TileDepth depth(args.k);
  const TiledRows rows(args, depth);
  const TaskPlan plan = plan_tiled_tasks(args.m, args.n, args.k, host->max_workers, depth, rows.copied == 0);
  IntegerTilesLoop<Epilogue> loop = {host, args, epilogue, plan, depth, rows};
  host->parallel_for(host->ctx, plan.count, plan.grain, IntegerTilesLoop<Epilogue>::body, &loop);
}

} // namespace mycc
#endif
#endif /* MYCC_KERNELS_GEMM_INTEGER_TILES_H */
