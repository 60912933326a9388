/* One block of a matrix product: rows times packed panels of B, finished tile by tile.
 *
 * B (K x N) lies in panels of 16 columns, [ceil(N / 16)][K][16], zero padded in N. K is walked in depth blocks of at
 * most GemmTuning::depth values; the sums of a depth block start from zero and are added to those of the blocks before
 * it, which keeps rounding errors small. That order depends on K (and the tuning) alone: an element's bits are the same
 * whatever the number of rows, columns, tasks or threads; but a product of a single row has several sums of an element
 * where there are registers for them (kRowSums).
 *
 * How a block of `count` rows and `panels` panels is walked, innermost first:
 *   tile     kTileRows x 16..64 sums in registers (micro_kernels.h), over one depth block or a few: a pass
 *   group    panels whose depth block stays in L1 while all rows of the block pass over it; of tiles that stream panels
 *            (kTilesStream) and of many rows, in L2
 *   block    rows whose values of a pass stay in L2 while all groups pass over it
 * While a group is at work, its tiles fetch the next group into L2.
 *
 * Columns may have partners, whose panels lie elsewhere in B: the second half of a gated layer. A group's partners are
 * its second side, which is multiplied when the sums of the first one are there; both are finished together.
 */
#ifndef MYCC_KERNELS_GEMM_BLOCK_H
#define MYCC_KERNELS_GEMM_BLOCK_H

#include "machine.h"
#include "kernels/vec/cpu.h"
#include <stddef.h>
#include <stdint.h>

#include "mycc/abi.h"
#include "micro_kernels.h"

namespace mycc {

/* Whether a single row takes panel after panel, one stream of memory, as its sums suffice; else several at a time. */
static inline bool row_is_one_stream() { return kRowSums > 1 && kPrefetchesL1; }

/* What a choice of the tuner may change; the values here are the cost model's. */
struct GemmTuning {
  int64_t depth = kGemmDepth;            /* longest depth block: a panel's is 16 KB */
  int64_t together = kGemmTogether;      /* depth blocks of a pass, where there are no more: else sums wait in L2 between them */
  int64_t group_bytes = kGemmGroupBytes; /* a group's depth block, in L1 */
  int64_t block_bytes = kGemmBlockBytes; /* a depth block of a block's rows, in L2 */
};

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/* Fetches what an epilogue reads for the elements (z, m, n .. n + count - 1), where it can tell: what is far away
 * otherwise stops the product behind it. */
template <class Epilogue>
MYCC_INLINE auto prefetch_operands(const Epilogue &epilogue, int64_t z, int64_t m, int64_t n, int64_t count, int)
    -> decltype(epilogue.prefetch(z, m, n, count)) {
  epilogue.prefetch(z, m, n, count);
}
template <class Epilogue> MYCC_INLINE void prefetch_operands(const Epilogue &, int64_t, int64_t, int64_t, int64_t, long) {}

/* Results in memory, from an element on along its row and the rows behind it, `row` elements apart. */
template <class T> MYCC_INLINE MemoryRows memory_rows(const T *first, int64_t row) {
  return {(const char *)first, row * (int64_t)sizeof(T), kPanel * (int64_t)sizeof(T)};
}
/* Has a tile fetch where its results go, where the epilogue can tell. */
template <class B, class Finish>
MYCC_INLINE auto prefetch_results(const Finish &finish, TileOf<B> &tile, int64_t row, int64_t column, int)
    -> decltype(finish.results(row, column), void()) {
  tile.results = finish.results(row, column);
}
template <class B, class Finish>
MYCC_INLINE void prefetch_results(const Finish &, TileOf<B> &, int64_t, int64_t, long) {}

/* What an epilogue does that only adds: out = (sums + bias) + residual, from an element on along its row and the rows
 * behind it. NULL: not added. Bounded: minimum(maximum(.., low), high) of that, NaN stays. */
struct Added {
  float *out;
  const float *bias, *residual;
  int64_t out_row, residual_row; /* elements from row to row */
  bool bounded = false;
  float low = 0, high = 0;
};

/* The bias and the bounds of a tile of any kind. */
template <class Tile> MYCC_INLINE void take_bias_and_bounds(Tile &tile, const Added &to) {
  tile.bias = to.bias;
  tile.bounded = to.bounded;
  tile.low = to.low;
  tile.high = to.high;
}

/* Has the tile finish its elements in registers when that is all there is to do, with the bits of the epilogue. */
template <class B, class Finish>
MYCC_INLINE auto adds(const Finish &finish, TileOf<B> &tile, int64_t row, int64_t column, int)
    -> decltype(finish.added(row, column), true) {
  const Added to = finish.added(row, column);
  tile.out = to.out;
  tile.residual = to.residual;
  tile.out_stride = to.out_row;
  tile.residual_stride = to.residual_row;
  tile.results = memory_rows(to.out, to.out_row);
  take_bias_and_bounds(tile, to);
  return true;
}
template <class B, class Finish> MYCC_INLINE bool adds(const Finish &, TileOf<B> &, int64_t, int64_t, long) {
  return false;
}

/* A part of K: one depth block or a few. */
struct DepthPart {
  int64_t first, depth;
};

/* K cut into depth blocks. A pass is what a tile multiplies at once: all of K where that is a few blocks, else one. */
struct DepthCut {
  int64_t depth;           /* K */
  int64_t step, count;     /* values of a block, of which the last one may have fewer; blocks */
  int64_t together;        /* blocks of a pass */
  GemmTuning tuning;

  DepthPart part(int64_t first, int64_t size) const { return {first, min64(size, depth - first)}; }
  DepthPart block(int64_t i) const { return part(i * step, step); }
  DepthPart pass(int64_t i) const { return part(i * together * step, together * step); }
  int64_t passes() const { return ceil_div(count, together); }
};

static inline DepthCut cut_depth(int64_t depth, const GemmTuning &tuning = GemmTuning()) {
  const int64_t blocks = max64(ceil_div(depth, tuning.depth), 1);
  const int64_t step = max64(blocks > 1 ? round_up(ceil_div(depth, blocks), kPanel) : depth, 1); /* of whole lines */
  const int64_t count = max64(ceil_div(depth, step), 1);
  return {depth, step, count, count <= tuning.together ? count : 1, tuning};
}

/* `size` things, in whole units, spread evenly over blocks: no more blocks than units. */
struct Spread {
  int64_t size, unit, blocks, units;

  Spread() = default;
  Spread(int64_t things, int64_t in_units, int64_t over)
      : size(things), unit(in_units), blocks(over), units(ceil_div(things, in_units)) {}

  int64_t begin(int64_t block) const {
    if (blocks == 1) return block > 0 ? size : 0; /* small products feel a division */
    return min64(block * units / blocks * unit, size);
  }
  int64_t count(int64_t block) const { return begin(block + 1) - begin(block); }
  int64_t most() const { return min64(ceil_div(units, blocks) * unit, size); } /* of a block */
};

/* How the rows and panels of a block are walked. */
struct BlockPlan {
  int64_t tiles;       /* row tiles */
  int64_t group;       /* panels of a group, at most */
  Spread groups;       /* of panels; in units of the widest tile, unless one panel would be left over of many rows */
  bool depth_outer;    /* all groups for one pass, then the next; else all passes of a group in turn */
  int64_t sides;       /* 2: columns have partners */
  int64_t kept_tiles;  /* tiles of sums that are kept at a time */

  int64_t tile_floats() const { return kTileRows * group * kPanel; }
  int64_t side_floats() const { return tiles * tile_floats(); } /* from a tile's sums to those of its partners */
  /* Enough for a block of fewer rows too, whose groups may be wider. */
  size_t bytes() const { return (size_t)(kept_tiles * kTileRows * kMaxGroup * kPanel) * sizeof(float); }
};

/* What is multiplied at once: a pass of a side of a group. A side's passes come in turn, or all sides of all groups for one
 * pass; behind the last step is the first one. Small products are a few steps: to divide for each was 2 % of their time. */
struct BlockStep {
  int64_t pass, group, side;
  int64_t panel, end; /* of the group: the first one, and the one behind the last */

  BlockStep after(const BlockPlan &plan, int64_t passes) const {
    BlockStep next = *this;
    if (!plan.depth_outer) {
      if (++next.pass < passes) return next;
      next.pass = 0;
    }
    if (++next.side < plan.sides) return next;
    next.side = 0;
    next.panel = end;
    if (++next.group == plan.groups.blocks) {
      next.group = next.panel = 0;
      if (plan.depth_outer && ++next.pass == passes) next.pass = 0;
    }
    next.end = plan.groups.begin(next.group + 1);
    return next;
  }
};

static inline BlockPlan plan_block(const DepthCut &cut, int64_t rows, int64_t panels, int64_t sides = 1) {
  BlockPlan plan;
  plan.sides = sides;
  plan.tiles = ceil_div(rows, kTileRows);
  const int64_t height = ceil_div(rows, max64(plan.tiles, 1));
  const int64_t widest = kTilePanels[height - 1];
  const int64_t wider = kTilesStream && plan.tiles >= kManyTiles ? kStreamedGroup : 1;
  const int64_t fitting = wider * cut.tuning.group_bytes / (cut.step * kPanel * (int64_t)sizeof(float));
  plan.group = min64(max64(min64(fitting, kMaxGroup) / widest * widest, widest), max64(panels, 1));
  const int64_t unit = rows == 1 || panels % widest != 1 ? min64(widest, plan.group) : 1;
  plan.groups = {panels, unit, ceil_div(panels, plan.group)};
  plan.depth_outer = cut.passes() > 1 && rows * cut.depth * (int64_t)sizeof(float) > cut.tuning.block_bytes;
  const bool kept = cut.passes() > 1 || sides > 1; /* till the next pass, or for the second side */
  plan.kept_tiles = !kept ? 1 : plan.tiles * sides * (plan.depth_outer ? plan.groups.blocks : 1);
  return plan;
}

/* The rows of a block, `stride` floats apart. */
struct BlockRows {
  const float *first;
  int64_t stride, count;
};

/* Panels packed at compile time. A source of panels gives the first value of a part of K of a side of a group of panels,
 * and says what to fetch ahead of its use (NULL: nothing). */
template <class B> struct PackedPanels {
  typedef B Element;
  const B *b;
  int64_t panel_size;
  int64_t after;    /* the panel where the next block of this worker is likely to begin */
  int64_t partners; /* panels from a column to its partner */
  bool far;         /* they come from memory, and no other block reads them */

  const B *get(const DepthPart &part, int64_t panel, int64_t, int64_t side) const {
    return b + (panel + side * partners) * panel_size + part.first * kPanel;
  }
  const B *ahead(const DepthPart &part, int64_t panel, int64_t side) const { return get(part, panel, 0, side); }
};

/* The tile of the same rows, so many panels on. */
template <class B> MYCC_INLINE void advance(TileOf<B> &tile, int64_t panels) {
  tile.b += panels * tile.panel_size;
  tile.next += panels * tile.panel_size * (int64_t)sizeof(B);
  tile.after += panels * tile.panel_size * (int64_t)sizeof(B);
  tile.c += panels * kPanel;
  tile.results.first += panels * tile.results.panel;
  if (tile.out) tile.out += panels * kPanel;
  if (tile.bias) tile.bias += panels * kPanel;
  if (tile.residual) tile.residual += panels * kPanel;
}

/* A row tile times the panels of a group, in tiles as wide as there are. Four panels are 2 + 2 rather than 3 + 1, as
 * a single one has too few sums to keep the multiply-adds busy. `tile` is changed on the way: a copy would wait until all
 * that was just stored has reached the cache. */
template <class B> static inline void multiply_tile(TileOf<B> &tile, int64_t rows, int64_t panels) {
  const TileKernel<B> *kernels = tile_kernels<B>(rows);
  const int64_t widest = rows == 1 && row_is_one_stream() ? 1 : kTilePanels[rows - 1];
  for (int64_t done = 0, width;; done += width) {
    const int64_t left = panels - done;
    const bool whole = left >= widest && !(widest == 3 && left == 4);
    width = whole ? widest : min64(left, 2);
    kernels[min64(width, 3) - 1](tile);
    if (width == left) {
      if (done > 0) advance(tile, -done);
      return;
    }
    advance(tile, width);
  }
}

/* Multiplies a block. finish(row, column, sums, stride, rows, columns) gets every tile of finished sums once: its first
 * row and column within the block, the sums [rows][stride] of which `columns` are valid; where there are two sides, the
 * sums of the second, side_floats() behind those of the first. `columns` in all are valid.
 * finish.prefetch(row, column, rows, columns) is told which tile comes next, and finish.results(row, column), where
 * there is one, says where its results go. finish.added(row, column), where there is one, says what of whole panels the
 * tiles may do themselves. */
template <class Panels, class Finish>
inline void multiply_block(const DepthCut &cut, const BlockPlan &plan, const BlockRows &rows, Panels &panels,
                           int64_t columns, float *sums, const Finish &finish) {
  const int64_t stride = plan.group * kPanel, passes = cut.passes(), steps = plan.groups.blocks * plan.sides * passes;
  typedef typename Panels::Element B;
  TileOf<B> tile;
  tile.a_row = rows.stride;
  tile.c_stride = stride;
  tile.panel_size = panels.panel_size;
  if (rows.count == 1) prefetch_row_l1(rows.first, cut.depth); /* others wrote it: its lines come one by one else */
  const int64_t low = rows.count / plan.tiles, high = rows.count % plan.tiles; /* `high` tiles have one row more */
  const int64_t next_line = ceil_div(kPanel * (int64_t)sizeof(B), plan.tiles); /* bytes of it that a tile fetches */
  BlockStep step = {0, 0, 0, 0, plan.groups.begin(1)}, next;
  for (int64_t i = 0; i < steps; ++i, step = next) {
    next = step.after(plan, passes);
    const DepthPart part = cut.pass(step.pass);
    const int64_t panel = step.panel, width = step.end - panel;
    tile.a = rows.first + part.first;
    tile.block = cut.step;
    tile.blocks = cut.together > 1 ? max64(part.depth - 1, 0) / cut.step : 0;
    tile.depth = part.depth - tile.blocks * cut.step;
    tile.b = panels.get(part, panel, width, step.side);
    tile.accumulate = step.pass > 0;
    tile.next = (const char *)tile.b;
    tile.next_step = 0;
    const int64_t next_panel = i + 1 < steps ? next.panel : panels.after;
    const B *ahead = panels.ahead(cut.pass(next.pass), next_panel, next.side);
    tile.after = (const char *)(ahead ? ahead : tile.b);
    if (rows.count == 1) { /* as fast as memory gives: 16-bit values are fetched a little ahead */
      tile.next_step = kPanel * (int64_t)sizeof(B);
      tile.near = kPrefetchesL1;
      tile.far = panels.far;
      tile.prefetch_steps = (tile.near ? kRowPrefetchL1 : kRowPrefetchL2) / (min64(plan.group, kTilePanels[0]) * tile.next_step);
      tile.next = part.depth > tile.prefetch_steps ? (const char *)(tile.b + tile.prefetch_steps * kPanel) : tile.after;
    } else if (ahead) {
      tile.next = (const char *)ahead;
      tile.next_step = next_line;
    }
    const int64_t fetched = tile.next_step * part.depth;
    const bool last = step.pass == passes - 1 && step.side == plan.sides - 1;
    const int64_t kept = (plan.depth_outer ? step.group * plan.sides : 0) + step.side;
    int64_t row = 0;
    tile.results = {(const char *)tile.b, 0, 0};
    tile.out = nullptr;
    tile.c = sums;
    for (int64_t t = 0; t < plan.tiles; ++t) {
      const int64_t tile_rows = low + (t < high);
      if (plan.kept_tiles > 1) tile.c = sums + (kept * plan.tiles + t) * plan.tile_floats();
      const int64_t column = panel * kPanel, valid = min64(columns - column, width * kPanel);
      if (last) finish.prefetch(row, column, tile_rows, valid);
      if (last) prefetch_results(finish, tile, row, column, 0);
      const bool added = last && valid == width * kPanel && adds(finish, tile, row, column, 0);
      multiply_tile(tile, tile_rows, width);
      if (last && !added) finish(row, column, tile.c, stride, tile_rows, valid);
      tile.a += tile_rows * rows.stride;
      tile.next += fetched;
      row += tile_rows;
    }
  }
}

/* The tasks of a product: blocks of rows x blocks of panels. */
struct TaskPlan {
  Spread rows, panels;
  int64_t count, grain; /* tasks in all; tasks of a chunk of the parallel loop */

  /* Rows times panels of all tasks before one. */
  int64_t before(int64_t task) const {
    const int64_t panel = task / rows.blocks, product = panel / panels.blocks, here = panel % panels.blocks;
    return (product * panels.size + panels.begin(here)) * rows.size +
           panels.count(here) * rows.begin(task % rows.blocks);
  }
  /* Those of the worker that gets most. */
  int64_t busiest(int64_t workers) const {
    int64_t most = 0;
    for (int64_t i = 0, at = 0; i < workers; ++i) {
      const int64_t next = before(count * (i + 1) / workers);
      most = max64(most, next - at);
      at = next;
    }
    return most;
  }
};

/* What a kind of product asks of its tasks. */
struct TaskLimits {
  int64_t sides = 1; /* 2: columns have partners */
  int64_t max_rows = kTaskRows;
  int64_t min_panels = kTaskPanels;
  int64_t min_rows = 0; /* > 0: filling a row costs, so row blocks of at least so many rows come before panel blocks */
};

/* Tasks of whole tiles where they are large: of `tiles` tiles across, at least. */
static inline TaskPlan spread_tasks(int64_t batch, int64_t m, int64_t panels, int64_t row_blocks, int64_t panel_blocks,
                                    int64_t tiles) {
  const int64_t tall = m >= kWideTiles * kTileRows * row_blocks ? kTileRows : 1;
  const int64_t widest = kTilePanels[min64(ceil_div(m, row_blocks), kTileRows) - 1];
  const int64_t wide = panels >= tiles * widest * panel_blocks ? widest : 1;
  return {{m, tall, row_blocks}, {panels, wide, panel_blocks}, batch * row_blocks * panel_blocks, 1};
}

/* So many blocks, or a few more where the workers' shares are more even then: of the longer side first. */
static inline TaskPlan share_tasks(int64_t batch, int64_t m, int64_t panels, int64_t row_blocks, int64_t panel_blocks,
                                   int64_t most_panel_blocks, int64_t workers) {
  const int64_t fair = batch * m * panels / workers, steps = kMoreBlocks + 1;
  TaskPlan best = spread_tasks(batch, m, panels, row_blocks, panel_blocks, kWideTiles);
  int64_t least = best.busiest(workers);
  for (int64_t i = 1; i < steps * steps && least > fair + fair / kUnevenShare; ++i) {
    const bool high = m >= panels * kPanel;
    const int64_t r = row_blocks + (high ? i % steps : i / steps), p = panel_blocks + (high ? i / steps : i % steps);
    if ((r > row_blocks && r > m / (kWideTiles * kTileRows)) || (p > panel_blocks && p > most_panel_blocks)) continue;
    const TaskPlan plan = spread_tasks(batch, m, panels, r, p, kWideTiles);
    const int64_t busiest = plan.busiest(workers);
    if (busiest < least) best = plan, least = busiest;
  }
  return best;
}

/* Cuts `batch` products of m x k x n into tasks. First so that a block's rows stay in L2 and so do the sums that it
 * keeps; then, for several workers, finer: panel blocks, then row blocks, until there are enough, and narrow panel blocks
 * where a worker had none. No task gets a part of K: long products come as a batch of parts. */
static inline TaskPlan plan_tasks(const DepthCut &cut, int64_t batch, int64_t m, int64_t n, int64_t workers,
                                  const TaskLimits &limits) {
  const int64_t k = cut.depth, panels = ceil_div(n, kPanel);
  const int64_t work = max64(max64(m, kReadRows) * n * k * limits.sides, 1);
  const int64_t fitting = cut.tuning.block_bytes / (cut.step * (int64_t)sizeof(float));
  const int64_t max_rows = min64(max64(fitting, kBlockTiles * kTileRows), limits.max_rows);
  int64_t row_blocks = max64(ceil_div(m, max_rows), 1), panel_blocks = 1;
  if (cut.passes() > 1) {
    const int64_t kept = kSumsBytes / (ceil_div(m, row_blocks) * limits.sides * kPanel * (int64_t)sizeof(float));
    panel_blocks = ceil_div(panels, max64(kept, kTaskPanels));
  }
  if (workers == 1) {
    TaskPlan plan = spread_tasks(batch, m, panels, row_blocks, panel_blocks, 1);
    plan.grain = plan.count;
    return plan;
  }
  const int64_t wanted = min64((limits.min_rows > 0 ? kEvenTasks : kProductTasks) * workers, max64(batch * work / kTaskWork, 1));
  int64_t most = max64(panels / limits.min_panels, panel_blocks);
  if (limits.min_rows > 0) row_blocks = max64(row_blocks, min64(ceil_div(wanted, batch), m / limits.min_rows));
  panel_blocks = max64(panel_blocks, min64(ceil_div(wanted, batch * row_blocks), most));
  if (batch * row_blocks * panel_blocks < wanted)
    row_blocks = max64(row_blocks, min64(ceil_div(wanted, batch * panel_blocks), m / (2 * kTileRows)));
  const int64_t least = min64(workers, wanted);
  if (batch * row_blocks * panel_blocks < least && limits.min_rows == 0)
    most = panel_blocks = min64(ceil_div(least, batch * row_blocks), panels);
  TaskPlan plan = wanted < workers ? spread_tasks(batch, m, panels, row_blocks, panel_blocks, 4)
                                   : share_tasks(batch, m, panels, row_blocks, panel_blocks, most, workers);
  const int64_t worth = kTaskWork / max64(batch * work / plan.count, 1);
  plan.grain = max64(min64(worth, plan.count / workers), 1);
  return plan;
}

/* A task's place in the product. */
struct TaskPlace {
  int64_t z, row, rows, panel, columns;
};

static inline TaskPlace place_task(const TaskPlan &plan, int64_t n, int64_t task) {
  const int64_t row = task % plan.rows.blocks, rest = task / plan.rows.blocks, panel = rest % plan.panels.blocks;
  const int64_t first = plan.panels.begin(panel), columns = plan.panels.count(panel) * kPanel;
  return {rest / plan.panels.blocks, plan.rows.begin(row), plan.rows.count(row), first,
          min64(columns, n - first * kPanel)};
}

/* Cuts a worker's scratch memory into arrays aligned to lines. */
struct Carver {
  uint8_t *next;

  template <class T> T *take(size_t bytes) {
    T *taken = (T *)next;
    next += (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
    return taken;
  }
};

} // namespace mycc
#endif /* MYCC_KERNELS_GEMM_BLOCK_H */
