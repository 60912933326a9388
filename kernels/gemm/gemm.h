/* Matrix products with a fused epilogue (and prologue): C[z, m, n] = sum over k of A[z, m, k] * B[z, k, n], float32.
 *
 * The epilogue gets the sums: epilogue(z, m, n, acc, count) finishes the elements (z, m, n .. n + count - 1), whose
 * sums are acc[0 .. count - 1]; every element exactly once, from any worker. An epilogue that only adds a bias and a
 * residual, and bounds the sum, may say so: added(z, m, n) gives where the elements from (z, m, n) on come from and go
 * to (Added), and most of them are finished in registers. Another may say where they go: results(z, m, n) (MemoryRows).
 *
 *   gemm        B packed at compile time
 *   gemm_rows   the same; rows of A come from a functor (fused prologue)
 *   gemm_glu  columns n and n + N / 2 of B packed at compile time, finished together: epilogue(z, m, n, acc, other,
 *               count) gets both sums
 *   gemm_unpacked   B as it lies in memory, packed on the fly
 *
 * When the host has no scratch memory a task ends without touching memory; the host knows (mycc_host.scratch).
 */
#ifndef MYCC_KERNELS_GEMM_GEMM_H
#define MYCC_KERNELS_GEMM_GEMM_H

#include <type_traits>

#include "machine.h"
#include "kernels/gemm/bfloat_tiles.h"
#include "kernels/gemm/block.h"
#include "kernels/gemm/few.h"
#include "kernels/gemm/pack.h"

namespace mycc {

/* B: type of the packed weights, which become float32 in registers. */
template <class B> struct GemmArgsOf {
  int64_t batch, m, n, k;
  const float *a;
  int64_t a_batch, a_row; /* strides in elements; that of k is 1 */
  const B *b;             /* panels [ceil(n / 16)][k][16], aligned to 64 bytes */
  int64_t b_batch;        /* elements from one batch's panels to the next; 0: shared */
  int64_t weight_bytes = 0; /* that the products of a run read in all; 0: not known */
  int64_t b_panel = 0;      /* elements from a panel to the next; 0: they follow one another */
  int64_t tile_rows = 0;    /* rows from which on tiles of AMX take values of a as bfloat16; 0: never */
};
using GemmArgs = GemmArgsOf<float>;
using GemmArgsBf16 = GemmArgsOf<bfloat>;
using GemmArgsF16 = GemmArgsOf<half>;

/* batch = batch0 * batch1; z = z0 * batch1 + z1. All strides in elements, 0 broadcasts; a's of k is 1, one of b_k and
 * b_n is 1. */
struct GemmUnpackedArgs {
  int64_t batch0, batch1, m, n, k;
  const float *a;
  int64_t a_batch0, a_batch1, a_row;
  const float *b;
  int64_t b_batch0, b_batch1, b_k, b_n;
};

/* Hands a tile's rows to the epilogue. */
template <class Epilogue> struct FinishRows {
  const Epilogue &epilogue;
  int64_t z, m, n; /* of the block */

  FinishRows(const Epilogue &own, const TaskPlace &place, const BlockPlan &)
      : epilogue(own), z(place.z), m(place.row), n(place.panel * kPanel) {}

  void operator()(int64_t row, int64_t column, const float *sums, int64_t stride, int64_t rows, int64_t columns) const {
    for (int64_t r = 0; r < rows; ++r) epilogue(z, m + row + r, n + column, sums + r * stride, columns);
  }
  template <class E = Epilogue>
  auto added(int64_t row, int64_t column) const -> decltype(((const E *)nullptr)->added(row, row, column)) {
    return epilogue.added(z, m + row, n + column);
  }
  template <class E = Epilogue>
  auto results(int64_t row, int64_t column) const -> decltype(((const E *)nullptr)->results(row, row, column)) {
    return epilogue.results(z, m + row, n + column);
  }
  void prefetch(int64_t row, int64_t column, int64_t rows, int64_t columns) const {
    for (int64_t r = 0; r < rows; ++r) prefetch_operands(epilogue, z, m + row + r, n + column, columns, 0);
  }
};

/* The same with the sums of columns and of their partners, which lie `apart` floats behind them. */
template <class Epilogue> struct FinishGlu : FinishRows<Epilogue> {
  int64_t apart;

  FinishGlu(const Epilogue &own, const TaskPlace &place, const BlockPlan &plan)
      : FinishRows<Epilogue>(own, place, plan), apart(plan.side_floats()) {}

  void operator()(int64_t row, int64_t column, const float *sums, int64_t stride, int64_t rows, int64_t columns) const {
    for (int64_t r = 0; r < rows; ++r, sums += stride)
      this->epilogue(this->z, this->m + row + r, this->n + column, sums - apart, sums, columns);
  }
};

/* Floats from a copied row of k values to the next: rows a multiple of 4096 bytes apart would share few cache sets. */
static inline int64_t copied_row(int64_t k) { return round_up(k, kPanel) + kPanel; }

/* Where rows of A come from: strided memory. They are used where they lie, also when all rows of a tile fall into one
 * set of the L1 cache (a row stride that is a multiple of 4096 bytes): copying them first was measured to cost more. */
struct StridedRows {
  const float *a;
  int64_t batch, row;

  bool fills() const { return false; }
  int64_t stride() const { return row; }
  const float *at(int64_t z, int64_t m) const { return a + z * batch + m * row; }
  void fill(int64_t, int64_t, float *) const {}
};

/* Rows of A from a functor rows(z, m, k0, count, to) that writes values k0 .. k0 + count - 1 of row m. */
template <class RowSource> struct ComputedRows {
  const RowSource &rows;
  int64_t k;

  bool fills() const { return true; }
  int64_t stride() const { return copied_row(k); }
  const float *at(int64_t, int64_t) const { return nullptr; }
  void fill(int64_t z, int64_t m, float *to) const { rows(z, m, (int64_t)0, k, to); }
};

/* Pairs: std::true_type where columns have partners; args.n is the number of pairs then. */
template <class B, class Rows, class Epilogue, class Pairs> struct GemmLoop {
  typedef std::conditional_t<Pairs::value, FinishGlu<Epilogue>, FinishRows<Epilogue>> Finish;
  static constexpr int64_t sides = Pairs::value ? 2 : 1;
  const mycc_host *host;
  const GemmArgsOf<B> &args;
  const Rows &rows;
  const Epilogue &epilogue;
  DepthCut cut;
  TaskPlan plan;
  bool far; /* B comes from memory, to be read once */

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const GemmLoop &loop = *(const GemmLoop *)arg;
    const GemmArgsOf<B> &args = loop.args;
    const bool fills = loop.rows.fills();
    const int64_t stride = loop.rows.stride();
    const BlockPlan largest = plan_block(loop.cut, loop.plan.rows.most(), loop.plan.panels.most(), sides);
    const size_t copy_bytes = fills ? (size_t)(loop.plan.rows.most() * stride) * sizeof(float) : 0;
    void *scratch = loop.host->scratch(loop.host->ctx, worker, copy_bytes + largest.bytes() + 2 * kLineBytes);
    if (!scratch) return;
    Carver carver = {(uint8_t *)scratch};
    float *copies = carver.take<float>(copy_bytes), *sums = carver.take<float>(largest.bytes());
    int64_t filled_z = -1, filled_row = -1;
    for (int64_t task = begin; task < end; ++task) {
      const TaskPlace place = place_task(loop.plan, args.n, task);
      const bool refill = fills && (place.z != filled_z || place.row != filled_row);
      for (int64_t r = 0; r < place.rows && refill; ++r)
        loop.rows.fill(place.z, place.row + r, copies + r * stride);
      const BlockRows rows = {fills ? copies : loop.rows.at(place.z, place.row), stride, place.rows};
      filled_z = place.z;
      filled_row = place.row;
      const int64_t panel_size = args.b_panel ? args.b_panel : args.k * kPanel, width = ceil_div(place.columns, kPanel);
      const BlockPlan plan = plan_block(loop.cut, place.rows, width, sides);
      const int64_t partners = Pairs::value ? args.n / kPanel : 0;
      /* The next task has the next rows and the same panels, or else the next panels. Past the end of B nothing is
       * read: what lies there is fetched, often the weights of the next product. */
      const bool ends = place.panel + width == ceil_div(args.n, kPanel);
      const int64_t after = place.row + place.rows < args.m ? 0 : width + (ends ? partners : 0);
      const B *b = args.b + place.z * args.b_batch + place.panel * panel_size;
      PackedPanels<B> panels = {b, panel_size, after, partners, loop.far};
      const Finish finish(loop.epilogue, place, plan);
      multiply_block(loop.cut, plan, rows, panels, place.columns, sums, finish);
    }
  }
};

template <class Pairs = std::false_type, class B, class Rows, class Epilogue>
inline void run_gemm(const mycc_host *host, const GemmArgsOf<B> &args, const Rows &rows, const Epilogue &epilogue,
                     const GemmTuning &tuning) {
  typedef GemmLoop<B, Rows, Epilogue, Pairs> Loop;
  const int64_t columns = args.n * Loop::sides;
  if (args.batch <= 0 || args.m <= 0 || args.n <= 0) return;
  GemmTuning own = tuning;
  /* A row of floats streams on through all of its depth; 16-bit values are prefetched pass by pass. Each of its sums is
   * as long as those of other products. */
  if (args.m == 1) {
    own.together = sizeof(B) == sizeof(float) || row_is_one_stream() ? args.k : 1;
    own.depth *= kRowSums;
  }
  const DepthCut cut = cut_depth(args.k, own);
  TaskLimits limits;
  limits.sides = Loop::sides;
  if (rows.fills()) {
    limits.min_panels = 16;
    limits.min_rows = 8 * kTileRows;
  } else if (args.k * columns * (int64_t)sizeof(B) <= 2 * tuning.block_bytes) /* B stays in L2: the results do, too */
    limits.max_rows = max64(tuning.block_bytes / (2 * args.n * (int64_t)sizeof(float)), 8 * kTileRows);
  const TaskPlan plan = plan_tasks(cut, args.batch, args.m, args.n, host->max_workers, limits);
  const bool far = args.batch * args.m == 1 && args.weight_bytes > kLastCacheBytes;
  Loop loop = {host, args, rows, epilogue, cut, plan, far};
  host->parallel_for(host->ctx, plan.count, plan.grain, Loop::body, &loop);
}

/* Multiplies by tiles of AMX where the plan and the level have them. */
template <int Sides, class B, class Epilogue>
MYCC_INLINE bool by_bfloat_tiles(const mycc_host *host, const GemmArgsOf<B> &args, const Epilogue &epilogue) {
#if defined(MYCC_AMX)
  if constexpr (std::is_same<B, bfloat>::value)
    if (args.tile_rows && args.m >= args.tile_rows && args.batch > 0 && args.n > 0) {
      gemm_bfloat_tiles<Sides>(host, args, epilogue);
      return true;
    }
#endif
  (void)host, (void)args, (void)epilogue;
  return false;
}

template <class B, class Epilogue>
inline void gemm(const mycc_host *host, const GemmArgsOf<B> &args, const Epilogue &epilogue,
                 const GemmTuning &tuning = GemmTuning()) {
  if (by_bfloat_tiles<1>(host, args, epilogue)) return;
  run_gemm(host, args, StridedRows{args.a, args.a_batch, args.a_row}, epilogue, tuning);
}

/* args.n: pairs of columns, whole panels of them; B has the first ones and then, as many panels, their partners. */
template <class B, class Epilogue>
inline void gemm_glu(const mycc_host *host, const GemmArgsOf<B> &args, const Epilogue &epilogue,
                       const GemmTuning &tuning = GemmTuning()) {
  if (by_bfloat_tiles<2>(host, args, epilogue)) return;
  run_gemm<std::true_type>(host, args, StridedRows{args.a, args.a_batch, args.a_row}, epilogue, tuning);
}

/* args.a, a_batch and a_row are not used. rows(z, m, 0, k, to) may be called more than once for a row. */
template <class RowSource, class Epilogue>
inline void gemm_rows(const mycc_host *host, const GemmArgs &args, const RowSource &rows, const Epilogue &epilogue,
                      const GemmTuning &tuning = GemmTuning()) {
  run_gemm(host, args, ComputedRows<RowSource>{rows, args.k}, epilogue, tuning);
}

template <class Epilogue> struct GemmUnpackedLoop {
  const mycc_host *host;
  const GemmUnpackedArgs &args;
  const Epilogue &epilogue;
  DepthCut cut;
  TaskPlan plan;

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const GemmUnpackedLoop &loop = *(const GemmUnpackedLoop *)arg;
    const GemmUnpackedArgs &args = loop.args;
    const BlockPlan largest = plan_block(loop.cut, loop.plan.rows.most(), loop.plan.panels.most());
    const size_t panel_bytes = (size_t)(kMaxGroup * loop.cut.step * kPanel) * sizeof(float);
    void *scratch = loop.host->scratch(loop.host->ctx, worker, panel_bytes + largest.bytes() + 2 * kLineBytes);
    if (!scratch) return;
    Carver carver = {(uint8_t *)scratch};
    float *packed = carver.take<float>(panel_bytes), *sums = carver.take<float>(largest.bytes());
    BlockPlan plan = largest; /* of the task before, often the next one's, too */
    int64_t planned_rows = loop.plan.rows.most();
    for (int64_t task = begin; task < end; ++task) {
      const TaskPlace place = place_task(loop.plan, args.n, task);
      const int64_t z0 = place.z / args.batch1, z1 = place.z % args.batch1;
      const float *a = args.a + z0 * args.a_batch0 + z1 * args.a_batch1 + place.row * args.a_row;
      const BlockRows rows = {a, args.a_row, place.rows};
      const int64_t width = ceil_div(place.columns, kPanel), after = place.row + place.rows < args.m ? 0 : width;
      if (place.rows != planned_rows || width != plan.groups.size) {
        planned_rows = place.rows;
        plan = plan_block(loop.cut, place.rows, width);
      }
      const float *b = args.b + z0 * args.b_batch0 + z1 * args.b_batch1 + place.panel * kPanel * args.b_n;
      PackingPanels panels = {b, args.b_k, args.b_n, place.columns, packed, loop.cut.step * kPanel, after};
      const FinishRows<Epilogue> finish(loop.epilogue, place, plan);
      multiply_block(loop.cut, plan, rows, panels, place.columns, sums, finish);
    }
  }
};

/* The same for at most kFewRows rows; a task is a block of columns of one product. */
template <class Epilogue> struct GemmFewLoop {
  const mycc_host *host;
  const GemmUnpackedArgs &args;
  const Epilogue &epilogue;
  DepthCut cut;
  int64_t blocks; /* of kFewColumns columns */

  static void body(void *arg, int64_t begin, int64_t end, int32_t) {
    const GemmFewLoop &loop = *(const GemmFewLoop *)arg;
    const GemmUnpackedArgs &args = loop.args;
    alignas(kLineBytes) float sums[kFewRows * kFewColumns];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t z = task / loop.blocks, n = task % loop.blocks * kFewColumns;
      const int64_t z0 = z / args.batch1, z1 = z % args.batch1, columns = min64(kFewColumns, args.n - n);
      const float *a = args.a + z0 * args.a_batch0 + z1 * args.a_batch1;
      const float *b = args.b + z0 * args.b_batch0 + z1 * args.b_batch1 + n * args.b_n;
      few_columns(loop.cut, a, args.a_row, args.m, b, args.b_k, args.b_n, columns, sums);
      for (int64_t m = 0; m < args.m; ++m) loop.epilogue(z, m, n, sums + m * kFewColumns, columns);
    }
  }
};

template <class Epilogue>
inline void gemm_unpacked(const mycc_host *host, const GemmUnpackedArgs &args, const Epilogue &epilogue,
                      const GemmTuning &tuning = GemmTuning()) {
  const int64_t batch = args.batch0 * args.batch1;
  if (batch <= 0 || args.m <= 0 || args.n <= 0) return;
  GemmTuning own = tuning;
  own.block_bytes *= 2; /* every block of rows packs B again */
  own.together = 1;     /* a group's depth block stays in L1, */
  own.group_bytes = own.group_bytes * 2 / 3; /* beside what it was packed from */
  const DepthCut cut = cut_depth(args.k, own);
  if ((args.m <= kFewRows && args.b_n == 1) || (args.m <= kFewDots && args.b_k == 1)) {
    GemmFewLoop<Epilogue> loop = {host, args, epilogue, cut, ceil_div(args.n, kFewColumns)};
    const int64_t tasks = batch * loop.blocks, work = args.m * min64(args.n, kFewColumns) * args.k;
    const int64_t grain = min64(max64(kTaskWork / 4 / max64(work, 1), 1), tasks);
    host->parallel_for(host->ctx, tasks, grain, GemmFewLoop<Epilogue>::body, &loop);
    return;
  }
  const TaskPlan plan = plan_tasks(cut, batch, args.m, args.n, host->max_workers, TaskLimits());
  GemmUnpackedLoop<Epilogue> loop = {host, args, epilogue, cut, plan};
  host->parallel_for(host->ctx, plan.count, plan.grain, GemmUnpackedLoop<Epilogue>::body, &loop);
}

} // namespace mycc
#endif /* MYCC_KERNELS_GEMM_GEMM_H */
