/* Matrix products by tiles of AMX: what products of bytes and of bfloat16 share.
 *
 * A tile of rows has 64 bytes of each of 16 rows, a tile of weights 16 lines of 64 bytes: of each of 16 columns the four
 * bytes that go with four bytes of a row. Two tiles of rows times two panels are four tiles of sums. Parts of k of both stay
 * in the first cache while rows pass over panels, or panels over rows; their sums go through a buffer there to the epilogue,
 * which runs between the products of the next ones: tiles are multiplied beside vectors.
 */
#ifndef MYCC_KERNELS_GEMM_TILES_H
#define MYCC_KERNELS_GEMM_TILES_H

#include "machine.h"
#include "kernels/gemm/amx.h"
#include "kernels/gemm/block.h"

#if defined(MYCC_AMX)
namespace mycc {

constexpr int64_t kTileLine = amx::kRowBytes; /* bytes of a line of weights */
constexpr int64_t kSumsOfBlock = 2 * amx::kRows * kSummedPanels * kPanel; /* of two tiles of rows */

/* How the lines of a panel are cut: into equal steps where that comes out even, else the last one has fewer. */
struct TileDepth {
  int64_t lines, steps, step_lines, last_lines; /* last_lines: of one more step; 0: there is none */

  explicit TileDepth(int64_t lines_of_panel) : lines(lines_of_panel) {
    const int64_t even = ceil_div(lines, max64(ceil_div(lines, amx::kRows), 1));
    step_lines = even && lines % even == 0 ? even : min64(amx::kRows, lines);
    steps = step_lines ? lines / step_lines : 0;
    last_lines = lines - steps * step_lines;
  }
  /* Bytes of a row that tiles read. */
  int64_t row_bytes() const { return (steps + (last_lines > 0)) * step_lines * 4; }
  /* Bytes from a copied row to the next: an odd number of lines, so that rows share no set of the cache. */
  int64_t copied_row() const { return (ceil_div(row_bytes(), kLineBytes) | 1) * kLineBytes; }

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
  const char *rows;
  int64_t step;
  const void *first; /* [16][16]; NULL: zeros */
};

/* Panels of weights: their lines, and copies of the last ones, followed by zeros. */
struct WeightTiles {
  const uint8_t *lines;
  int64_t panel_bytes;
  const uint8_t *last;             /* [panels][kTileBytes] */
  const uint8_t *ahead = nullptr;  /* lines that are fetched, so many a step */
  int64_t ahead_lines = 0;
  bool is_signed = false; /* of bytes */
};

/* Rows of signed bytes times weights of unsigned or of signed ones; rows and weights of bfloat16. */
struct ByteProducts {
  typedef int32_t Sum;
  template <bool Signed, int C, int A, int B> static MYCC_INLINE void add() {
    if constexpr (Signed)
      amx::add_signed<C, A, B>();
    else
      amx::add_signed_unsigned<C, A, B>();
  }
};
struct BfloatProducts {
  typedef float Sum;
  template <bool, int C, int A, int B> static MYCC_INLINE void add() { amx::add_bfloats<C, A, B>(); }
};

/* Panels of a group whose columns have partners, whose sums stand behind theirs. */
constexpr int64_t kPairedPanels = kSummedPanels / 2;

/* A block of the result: rows of two tiles times the columns of a group. */
struct TileBlock {
  int64_t z = 0, row = 0, rows = 0, column = 0, columns = 0;
};

/* Rows of sums that the epilogue has still to see, while those of the next block are made. Sides: 2 where columns have
 * partners. */
template <class Sum, int Sides, class Epilogue> struct Unfinished {
  const Epilogue &epilogue;
  const Sum *c = nullptr;
  TileBlock block = {}, next = {};
  int64_t done = 0, each = 0; /* rows that are finished, and rows at a time */

  /* Finishes rows, and fetches what the epilogue will read for as many of the next block. */
  __attribute__((noinline)) void finish(int64_t rows) {
    const Epilogue own = epilogue; /* a copy that no store of bytes may change */
    for (const int64_t last = done + rows; done < last; ++done) {
      const Sum *const sums = c + done * kSummedPanels * kPanel;
      if (done < next.rows) prefetch_operands(own, next.z, next.row + done, next.column, next.columns, 0);
      if constexpr (Sides == 2)
        own(block.z, block.row + done, block.column, sums, sums + kPairedPanels * kPanel, block.columns);
      else
        own(block.z, block.row + done, block.column, sums, block.columns);
    }
  }
  MYCC_INLINE void some() {
    if (done < block.rows) finish(min64(each, block.rows - done));
  }
  void all() {
    if (done < block.rows) finish(block.rows - done);
  }
};

/* A step: R tiles of rows from byte `at` on times P panels. */
template <class Products, bool Signed, int R, int P>
MYCC_INLINE void multiply_step(const RowTile *a, int64_t at, const uint8_t *b, int64_t panel_bytes) {
  amx::load<4>(a[0].rows + at, a[0].step);
  amx::load<6>(b, kTileLine);
  Products::template add<Signed, 0, 4, 6>();
  if constexpr (P > 1) {
    amx::load<7>(b + panel_bytes, kTileLine);
    Products::template add<Signed, 1, 4, 7>();
  }
  if constexpr (R > 1) {
    amx::load<5>(a[1].rows + at, a[1].step);
    Products::template add<Signed, 2, 5, 6>();
    if constexpr (P > 1) Products::template add<Signed, 3, 5, 7>();
  }
}
/* The steps of a part of k; of the last part the step of the last lines too. */
struct TilePart {
  int64_t first, end;
  bool last;
};

/* What sums start from: those of the parts before, or what the rows say. */
template <int T> MYCC_INLINE void begin_sums(const RowTile &a, const void *before, int64_t row_bytes) {
  if (before)
    amx::load<T>(before, row_bytes);
  else if (a.first)
    amx::load<T>(a.first, kTileLine);
  else
    amx::zero<T>();
}
template <class Products, int R, int P>
MYCC_INLINE void multiply_step(const RowTile *a, int64_t at, const uint8_t *b, int64_t panel_bytes, bool is_signed) {
  if (std::is_same<Products, ByteProducts>::value && is_signed)
    multiply_step<Products, true, R, P>(a, at, b, panel_bytes);
  else
    multiply_step<Products, false, R, P>(a, at, b, panel_bytes);
}
/* Sums of R tiles of rows and P panels, to c[R * 16][kSummedPanels * 16]; others are finished between the steps. */
template <class Products, int R, int P, class Others>
void multiply_tiles(const TileDepth &depth, const TilePart &part, const RowTile *a, const WeightTiles &b,
                    typename Products::Sum *c, Others &others) {
  constexpr int64_t row = kSummedPanels * kPanel, row_bytes = row * sizeof(*c);
  typename Products::Sum *const below = c + amx::kRows * row;
  const bool more = part.first > 0;
  begin_sums<0>(a[0], more ? c : nullptr, row_bytes);
  if constexpr (P > 1) begin_sums<1>(a[0], more ? c + kPanel : nullptr, row_bytes);
  if constexpr (R > 1) begin_sums<2>(a[1], more ? below : nullptr, row_bytes);
  if constexpr (R > 1 && P > 1) begin_sums<3>(a[1], more ? below + kPanel : nullptr, row_bytes);
  const uint8_t *ahead = b.ahead + part.first * b.ahead_lines * kTileLine;
  for (int64_t s = part.first; s < part.end; ++s) {
    multiply_step<Products, R, P>(a, s * depth.step_lines * 4, b.lines + s * depth.step_lines * kTileLine, b.panel_bytes,
                                  b.is_signed);
    for (int64_t i = 0; i < b.ahead_lines; ++i, ahead += kTileLine) __builtin_prefetch(ahead, 0, 2);
    others.some();
  }
  if (part.last && depth.last_lines)
    multiply_step<Products, R, P>(a, depth.steps * depth.step_lines * 4, b.last, amx::kTileBytes, b.is_signed);
  amx::store<0>(c, row_bytes);
  if constexpr (P > 1) amx::store<1>(c + kPanel, row_bytes);
  if constexpr (R > 1) amx::store<2>(below, row_bytes);
  if constexpr (R > 1 && P > 1) amx::store<3>(below + kPanel, row_bytes);
}

/* Those of one or two tiles of rows and a group of panels. */
template <class Products, int Sides, class Others>
inline void multiply_group(const TileDepth &depth, const TilePart &part, const RowTile *a, bool two, const WeightTiles &b,
                           int64_t group, typename Products::Sum *c, Others &others) {
  WeightTiles own = b;
  for (int side = 0; side < Sides; ++side)
    for (int64_t i = 0; i < group; i += 2) {
      const int64_t panel = side * kPairedPanels + i;
      own.lines = b.lines + panel * b.panel_bytes, own.last = b.last + panel * amx::kTileBytes;
      typename Products::Sum *const to = c + panel * kPanel;
      if (i + 1 < group)
        two ? multiply_tiles<Products, 2, 2>(depth, part, a, own, to, others)
            : multiply_tiles<Products, 1, 2>(depth, part, a, own, to, others);
      else
        two ? multiply_tiles<Products, 2, 1>(depth, part, a, own, to, others)
            : multiply_tiles<Products, 1, 1>(depth, part, a, own, to, others);
      own.ahead += depth.steps * own.ahead_lines * kTileLine;
    }
}

/* Panels of a group. */
static inline int64_t group_panels(int64_t panel_bytes) {
  return min64(max64(kTileGroupBytes / max64(2 * panel_bytes, 1), 1) * 2, kSummedPanels);
}

/* Parts of k of a task: the rows of two tiles and two panels of each stay in the first cache, if there are not too many. */
static inline int64_t depth_parts(const TileDepth &depth, int64_t blocks) {
  const int64_t bytes = 2 * 2 * amx::kRows * depth.row_bytes();
  return blocks > 1 && blocks <= kTilePartials ? min64(ceil_div(bytes, kTileDepthBytes), max64(depth.steps, 1)) : 1;
}
/* Elements of the sums of a task: of two blocks, or of all that wait for the next part of k. */
static inline int64_t sums_of_task(const TileDepth &depth) {
  return kSumsOfBlock * (depth_parts(depth, 2) > 1 ? kTilePartials : 2);
}

/* Whether rows of two tiles meet all panels of a task in turn. The last lines of a group are copied once. */
static inline bool is_near(const TileDepth &depth, int64_t panels, int64_t panel_bytes) {
  return (!depth.last_lines || panels <= group_panels(panel_bytes)) && panels * panel_bytes <= kTileWeights;
}

/* The rows of a task, two tiles at a time, times its panels, a group at a time. tiles(t): the two from number t on.
 * panels(p, group, pairs): the panels from number p on and, from number kPairedPanels of them on, their partners; so many pairs
 * of tiles meet them before the next group is wanted, 0: it is near already. Where all panels are near, the rows of two tiles
 * meet one group after the other, so that results are written along rows; else all rows meet a group. */
template <class Products, int Sides = 1, class Tiles, class Panels, class Epilogue>
inline void multiply_task(const TileDepth &depth, const TaskPlace &place, const Tiles &tiles, int64_t panel_bytes,
                          const Panels &panels, bool near, typename Products::Sum *sums, const Epilogue &epilogue) {
  const int64_t most = Sides == 2 ? kPairedPanels : group_panels(panel_bytes), high = 2 * amx::kRows;
  const int64_t groups = ceil_div(ceil_div(place.columns, kPanel), most), pairs = ceil_div(place.rows, high);
  Unfinished<typename Products::Sum, Sides, Epilogue> others = {epilogue};
  const int64_t outer = near ? pairs : groups, inner = near ? groups : pairs, parts = depth_parts(depth, inner);
  WeightTiles b = {};
  int64_t buffer = 0;
  const RowTile *rows = nullptr;
  for (int64_t i = 0; i < outer; ++i) {
    if (near) rows = tiles(2 * i);
    for (int64_t d = 0; d < parts; ++d) {
      const TilePart part = {d * depth.steps / parts, (d + 1) * depth.steps / parts, d + 1 == parts};
      for (int64_t j = 0; j < inner; ++j) {
        const int64_t t = near ? i : j, p = (near ? j : i) * most;
        const int64_t group = min64(most, ceil_div(place.columns, kPanel) - p);
        if (near ? i == 0 || groups > 1 : j == 0 && d == 0) b = panels(p, group, !near ? pairs : i ? 0 : 1);
        if (!near) rows = tiles(2 * t);
        buffer = parts > 1 ? j : 1 - buffer;
        typename Products::Sum *const c = sums + buffer * kSumsOfBlock;
        const TileBlock block = {place.z, place.row + t * high, min64(high, place.rows - t * high),
                                 (place.panel + p) * kPanel, min64(group * kPanel, place.columns - p * kPanel)};
        others.next = part.last ? block : TileBlock();
        others.each = ceil_div(others.block.rows, max64((part.end - part.first) * ceil_div(group, 2) * Sides, 1));
        WeightTiles own = b;
        if (near && i) own.ahead_lines = 0;
        if (!near) own.ahead += j * ceil_div(group, 2) * depth.steps * b.ahead_lines * kTileLine;
        multiply_group<Products, Sides>(depth, part, rows, block.rows > amx::kRows, own, group, c, others);
        others.all();
        if (part.last) others.c = c, others.block = block, others.done = 0, others.next = {};
      }
    }
  }
  others.all();
}

/* Tasks of whole pairs of tiles and panels. Workers share panels first, as each reads weights of its own then; or rows,
 * where these are made for each task, or were made by workers that shared rows and lie in their caches. */
static inline TaskPlan plan_tiled_tasks(int64_t batch, int64_t m, int64_t n, int64_t k, int64_t workers,
                                        const TileDepth &depth, bool by_rows) {
  const int64_t high = ceil_div(m, 2 * amx::kRows), wide = ceil_div(n, 2 * kPanel);
  const int64_t most_rows = max64(kTileRowsBytes / max64(depth.copied_row(), 1), 2 * amx::kRows);
  int64_t row_blocks = ceil_div(m, most_rows), panel_blocks = 1;
  if (workers > 1) {
    const int64_t worth = max64(batch * m * n * (k + kTileFinishing) / kTileTaskWork, 1);
    const bool even = batch * wide % workers == 0; /* one task each: what a task does for its rows is done less often */
    const int64_t wanted = ceil_div(min64(even ? workers : 2 * workers, worth), batch);
    if (by_rows) row_blocks = max64(row_blocks, min64(2 * wanted, high));
    panel_blocks = min64(ceil_div(wanted, row_blocks), wide);
    row_blocks = max64(row_blocks, min64(ceil_div(wanted, panel_blocks), high));
  }
  TaskPlan plan = {{m, 2 * amx::kRows, row_blocks}, {ceil_div(n, kPanel), 2, panel_blocks},
                   batch * row_blocks * panel_blocks, 1};
  if (workers == 1) plan.grain = plan.count;
  return plan;
}

} // namespace mycc
#endif
#endif /* MYCC_KERNELS_GEMM_TILES_H */
