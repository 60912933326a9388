/* Products of bfloat16 by AMX: C[z, m, n] = sum over k of A[z, m, k] * B[z, k, n] in float32, of rows of floats, which are
 * rounded to bfloat16, and panels of bfloat16 (gemm.h).
 *
 * A task rounds its rows once. A panel's values of k come in pairs for tiles: two lines of 16 columns are shuffled into one
 * of pairs, by each task once for all of its rows. So the panels stay those of the other levels.
 */
#ifndef MYCC_KERNELS_GEMM_BFLOAT_TILES_H
#define MYCC_KERNELS_GEMM_BFLOAT_TILES_H

#include "machine.h"
#include "kernels/gemm/tiles.h"

#if defined(MYCC_AMX)
namespace mycc {

typedef uint16_t bfloat_line __attribute__((vector_size(64)));

/* Floats as bfloat16. Subnormal numbers may become zeros, as they do in products of tiles. */
MYCC_INLINE void store_bfloats(bfloat *to, vf32 x) {
#if defined(__AVX512BF16__)
  typedef uint16_t halves __attribute__((vector_size(32)));
  halves rounded;
  __asm__("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(x));
  __builtin_memcpy(to, &rounded, sizeof rounded);
#else
  store(to, x);
#endif
}

/* Whole tiles of lines, but for products of a few values of k: what lacks is zeros in both operands. */
static inline TileDepth bfloat_depth(int64_t k) {
  const int64_t lines = ceil_div(k, 2);
  return TileDepth(lines < amx::kRows ? lines : round_up(lines, amx::kRows));
}

/* A panel of k values as lines of pairs. */
static inline void pair_lines(const bfloat *from, int64_t k, const TileDepth &depth, uint8_t *to) {
  int64_t l = 0;
  for (; l < k / 2; ++l) {
    bfloat_line two;
    __builtin_memcpy(&two, from + l * 2 * kPanel, sizeof two);
    two = __builtin_shufflevector(two, two, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11,
                                  27, 12, 28, 13, 29, 14, 30, 15, 31);
    __builtin_memcpy(to + l * kTileLine, &two, sizeof two);
  }
  if (l < depth.lines) __builtin_memset(to + l * kTileLine, 0, (size_t)((depth.lines - l) * kTileLine));
  for (int64_t n = 0; k % 2 && n < kPanel; ++n) __builtin_memcpy(to + l * kTileLine + 4 * n, from + (k - 1) * kPanel + n, 2);
}

/* Sides: 2 where columns have partners, which are as many panels behind them. */
template <int Sides, class Args, class Epilogue> struct BfloatTilesLoop {
  const mycc_host *host;
  const Args &args;
  const Epilogue &epilogue;
  TaskPlan plan;
  TileDepth depth;

  int64_t panel_bytes() const { return depth.lines * kTileLine; }

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const BfloatTilesLoop &loop = *(const BfloatTilesLoop *)arg;
    const Args &args = loop.args;
    const int64_t tiles = ceil_div(loop.plan.rows.most(), amx::kRows), bytes = loop.panel_bytes();
    const int64_t group = Sides == 2 ? kSummedPanels : group_panels(bytes), row = loop.depth.copied_row();
    const size_t copies = (size_t)(tiles * amx::kRows * row), sums = (size_t)sums_of_task(loop.depth) * sizeof(float);
    void *memory = loop.host->scratch(loop.host->ctx, worker,
                                      copies + (size_t)(group * bytes + tiles * (int64_t)sizeof(RowTile)) + sums + 5 * kLineBytes);
    if (!memory) return;
    Carver carver = {(uint8_t *)memory};
    char *const rows = carver.take<char>(copies);
    uint8_t *const lines = carver.take<uint8_t>((size_t)(group * bytes));
    float *const c = carver.take<float>(sums);
    RowTile *const own = carver.take<RowTile>((size_t)tiles * sizeof(RowTile));
    for (int64_t t = 0; t < tiles; ++t) own[t] = {rows + t * amx::kRows * row, row, nullptr};
    const amx::Configured configured(loop.depth.shapes());
    int64_t filled_z = -1, filled_row = -1;
    for (int64_t task = begin; task < end; ++task) {
      const TaskPlace place = place_task(loop.plan, args.n, task);
      if (place.z != filled_z || place.row != filled_row) loop.fill(rows, place);
      filled_z = place.z, filled_row = place.row;
      const int64_t panel_size = args.b_panel ? args.b_panel : args.k * kPanel;
      const auto *b = args.b + place.z * args.b_batch + place.panel * panel_size;
      const auto panels = [&](int64_t p, int64_t count, int64_t) {
        for (int64_t side = 0; side < Sides; ++side)
          for (int64_t i = 0; i < count; ++i)
            pair_lines(b + (side * (args.n / kPanel) + p + i) * panel_size, args.k, loop.depth,
                       lines + (side * kPairedPanels + i) * bytes);
        return WeightTiles{lines, bytes, nullptr};
      };
      const auto pair = [&](int64_t t) { return own + t; };
      multiply_task<BfloatProducts, Sides>(loop.depth, place, pair, bytes, panels, false, c, loop.epilogue);
    }
  }

  /* Rounds the rows of a task. */
  void fill(char *to, const TaskPlace &place) const {
    const int64_t values = depth.row_bytes() / 2;
    for (int64_t r = 0; r < place.rows; ++r, to += depth.copied_row()) {
      const float *from = args.a + place.z * args.a_batch + (place.row + r) * args.a_row;
      bfloat *row = (bfloat *)to;
      int64_t k = 0;
      for (; k + W <= args.k; k += W) store_bfloats(row + k, load(from + k));
      for (; k < args.k; ++k) store_scalar(row + k, from[k]);
      if (k < values) __builtin_memset(row + k, 0, (size_t)(values - k) * sizeof *row);
    }
  }
};

/* args.a: floats, whose values are taken as bfloat16. */
template <int Sides, class Args, class Epilogue>
inline void gemm_bfloat_tiles(const mycc_host *host, const Args &args, const Epilogue &epilogue) {
  typedef BfloatTilesLoop<Sides, Args, Epilogue> Loop;
  const TileDepth depth = bfloat_depth(args.k);
  const TaskPlan plan = plan_tiled_tasks(args.batch, args.m, args.n, Sides * args.k, host->max_workers, depth, false);
  Loop loop = {host, args, epilogue, plan, depth};
  host->parallel_for(host->ctx, plan.count, plan.grain, Loop::body, &loop);
}

} // namespace mycc
#endif
#endif /* MYCC_KERNELS_GEMM_BFLOAT_TILES_H */
