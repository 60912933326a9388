/* gradient.h: the gradients of attention to Q, K and V on the CPU, in float32, without ever writing the score matrix.
 *
 * The forward pass has kept L, the logarithm of each row's sum of exponentials; `inner` is the sum over a row of its
 * gradient times its result. A block of query rows and keys makes its scores again (Dao et al., arXiv 2205.14135):
 *
 *   P = exp(S - L), S = scale * Q K^T + score     dV += P^T G         G: the gradient of the result
 *   D = P * (G V^T - inner)                       dK += scale * D^T Q        dQ += scale * D K
 *
 * dV and dK are summed transposed, as products of G^T and Q^T with P and D, which are written in panels for that; only
 * what is as small as Q and K is ever transposed. All five products run through the register tiles of the GEMM.
 *
 * Tasks are cut in one of two ways: all of a (batch, key head), or, where workers would have nothing to do, dQ by rows
 * and dK, dV by keys, which makes the scores twice. An element is summed over the same blocks in the same order in both,
 * so that the result does not depend on the number of threads.
 *
 * Special values: a row that sees no key gives zeros (its L is 0). What is not finite makes NaN of the gradients that
 * depend on it, those of keys and values with the weight 0 included (0 * inf), except where `causal` hides them.
 */
#ifndef MYCC_KERNELS_ATTENTION_GRADIENT_H
#define MYCC_KERNELS_ATTENTION_GRADIENT_H

#include <stddef.h>
#include <stdint.h>

#include "machine.h"
#include "mycc/abi.h"
#include "kernels/attention/packed.h"
#include "kernels/attention/rows.h"
#include "kernels/attention/softmax.h"

namespace mycc {

/* Where a tensor of rows lies: elements from one batch, head and row to the next. */
struct RowStrides {
  int64_t batch, head, row;

  int64_t at(int64_t b, int64_t h, int64_t r) const { return b * batch + h * head + r * row; }
};

/* Sizes of the attention, whose `out` strides are those of its gradient, and where the results lie. */
template <class Element> struct AttentionGradientArgsOf : AttentionSizes {
  const Element *q, *k, *v, *grad;
  const float *logsumexp, *inner; /* [batch, head, query] */
  Element *of_q, *of_k, *of_v;
  int64_t inner_batch, inner_head, inner_row;
  int64_t of_q_batch, of_q_head, of_q_row, of_k_batch, of_k_head, of_k_row, of_v_batch, of_v_head, of_v_row;
};
typedef AttentionGradientArgsOf<float> AttentionGradientArgs;
typedef AttentionGradientArgsOf<half> AttentionGradientArgsF16;
typedef AttentionGradientArgsOf<bfloat> AttentionGradientArgsBf16;

namespace attention_detail {

/* How a gradient is cut. */
struct GradientPlan {
  int64_t products, rows;  /* (batch, key head) pairs; query rows of each */
  int64_t row_blocks, key_block, key_blocks;
  int64_t q_columns, v_columns; /* head_size, value_size in whole panels */
  bool whole;              /* a task makes all of a product */

  GradientPlan(const AttentionSizes &args, int64_t workers) {
    products = args.batch * args.kv_heads;
    rows = args.heads / args.kv_heads * args.queries;
    row_blocks = ceil_div(rows, kGradientRows);
    q_columns = round_up(args.head_size, kPanel);
    v_columns = round_up(args.value_size, kPanel);
    key_block = kGradientKeyFloats / (2 * q_columns + v_columns) / kPanel * kPanel;
    key_block = min64(max64(min64(key_block, kGradientKeys), 2 * kPanel), round_up(args.keys, kPanel));
    key_blocks = ceil_div(args.keys, key_block);
    whole = products >= workers && row_blocks * row_floats(args) + rows * q_columns <= kGradientScratch;
  }

  int64_t score_stride() const { return key_block + kPanel; } /* rows 1024 bytes apart would share few cache sets */
  /* Of a block of rows: Q and G, and both transposed. */
  int64_t row_floats(const AttentionSizes &args) const {
    return 2 * kGradientRows * (round_up(args.head_size, W) + round_up(args.value_size, W));
  }
  int64_t row_tasks() const { return whole ? 0 : ceil_div(row_blocks, kGradientChunk); }
  int64_t tasks() const { return products * (whole ? 1 : row_tasks() + key_blocks); }
};

/* A block of query rows as the products read them. */
struct GradientRows {
  float *q, *grad;              /* [rows][size]; q is scaled */
  float *q_columns, *g_columns; /* [size][kGradientRows] */
};

/* Blocks of rows and keys that a task goes through, and what it makes of them. */
struct GradientTask {
  int64_t first_row, row_blocks, first_key, key_blocks; /* blocks */
  bool of_queries, of_keys;

  bool keeps_rows() const { return key_blocks > 1; } /* packed once for all blocks of keys */
};

struct GradientScratch {
  float *k_panels, *v_panels; /* K^T and V^T: [key panel][size][16] */
  float *k_rows;              /* K: [column panel][keys][16] */
  float *scores, *products;   /* [kGradientRows][score_stride]; products become D */
  float *p_panels, *d_panels; /* P and D: [key panel][kGradientRows][16] */
  float *of_k, *of_v;         /* [size][score_stride] */
  float *of_q;                /* [rows of the task][q_columns] */
  float *room;                /* four rows in whole vectors */
  float *blocks;              /* of rows */

  size_t place(const AttentionSizes &args, const GradientPlan &plan, void *memory) {
    Carver carver = {(uint8_t *)memory};
    const auto floats = [&](int64_t count) { return carver.take<float>(size_t(count) * sizeof(float)); };
    const int64_t blocks_kept = plan.whole ? plan.row_blocks : kGradientChunk;
    k_panels = floats(plan.key_block * args.head_size);
    v_panels = floats(plan.key_block * args.value_size);
    k_rows = floats(plan.key_block * plan.q_columns);
    scores = floats(kGradientRows * plan.score_stride());
    products = floats(kGradientRows * plan.score_stride());
    p_panels = floats(kGradientRows * plan.key_block);
    d_panels = floats(kGradientRows * plan.key_block);
    of_k = floats(plan.score_stride() * args.head_size);
    of_v = floats(plan.score_stride() * args.value_size);
    room = floats(4 * max64(round_up(args.head_size, W), round_up(args.value_size, W)));
    of_q = floats(blocks_kept * kGradientRows * plan.q_columns);
    blocks = floats(blocks_kept * plan.row_floats(args));
    return size_t(carver.next - (uint8_t *)memory);
  }

  GradientRows rows(const AttentionSizes &args, const GradientPlan &plan, int64_t slot) const {
    const int64_t q = kGradientRows * round_up(args.head_size, W), v = kGradientRows * round_up(args.value_size, W);
    float *at = blocks + slot * plan.row_floats(args);
    return {at, at + q, at + q + v, at + 2 * q + v};
  }
};

/* c[rows][c_stride] += a[rows][depth] times panels of [depth][16] that lie panel_size apart. */
inline void add_products(const float *a, int64_t a_row, int64_t rows, int64_t depth, const float *b, int64_t panel_size,
                         int64_t panels, float *c, int64_t c_stride, bool accumulate) {
  for (int64_t p = 0, width; p < panels; p += width) {
    width = min64(kWidestTile, panels - p);
    if (panels - p == kWidestTile + 1 && kWidestTile > 2) width = kWidestTile - 1; /* one panel alone has few sums */
    for (int64_t r = 0; r < rows; r += kTileRows) {
      float *to = c + r * c_stride + p * kPanel;
      Tile tile = product(a + r * a_row, a_row, depth, b + p * panel_size, to, c_stride, accumulate);
      tile.panel_size = panel_size;
      multiply_tile(tile, min64(kTileRows, rows - r), width);
    }
  }
}

/* to[i * stride + r] = rows[r][i]. */
inline void transpose_rows(const float *rows, int64_t count, int64_t size, float *to, int64_t stride) {
  int64_t r = 0;
  for (; r + 4 <= count; r += 4) {
    const float *from = rows + r * size;
    int64_t i = 0;
    for (; i + 4 <= size; i += 4)
      transpose_4x4(from + i, from + size + i, from + 2 * size + i, from + 3 * size + i, to + i * stride + r, stride);
    for (; i < size; ++i)
      for (int64_t j = 0; j < 4; ++j) to[i * stride + r + j] = from[j * size + i];
  }
  for (; r < count; ++r)
    for (int64_t i = 0; i < size; ++i) to[i * stride + r] = rows[r * size + i];
}

/* One task of a gradient, at a (batch, key head). */
template <class Element, class Score> struct GradientWork : Rows {
  const AttentionGradientArgsOf<Element> &at;
  const Score &score;
  const GradientPlan &plan;
  const GradientScratch &scratch;
  GradientTask task;

  GradientWork(const AttentionGradientArgsOf<Element> &args, const Score &score_, const GradientPlan &plan_,
               const GradientScratch &scratch_, int64_t product, const GradientTask &task_)
      : Rows{&args, product / args.kv_heads, product % args.kv_heads, 0, plan_.rows}, at(args), score(score_),
        plan(plan_), scratch(scratch_), task(task_) {}

  const Element *q(int64_t r) const { return at.q + batch * at.q_batch + head(r) * at.q_head + query(r) * at.q_row; }
  const Element *grad(int64_t r) const {
    return at.grad + batch * at.out_batch + head(r) * at.out_head + query(r) * at.out_row;
  }
  const Element *k(int64_t n) const { return at.k + batch * at.k_batch + kv_head * at.k_head + n * at.k_row; }
  const Element *v(int64_t n) const { return at.v + batch * at.v_batch + kv_head * at.v_head + n * at.v_row; }
  float logsumexp(int64_t r) const {
    return at.logsumexp[batch * at.logsumexp_batch + head(r) * at.logsumexp_head + query(r) * at.logsumexp_row];
  }
  float inner(int64_t r) const {
    return at.inner[batch * at.inner_batch + head(r) * at.inner_head + query(r) * at.inner_row];
  }
  int64_t rows_of(int64_t block) const { return min64(kGradientRows, plan.rows - block * kGradientRows); }
  int64_t slot(int64_t block) const { return task.keeps_rows() ? block - task.first_row : 0; }

  void run() const {
    const int64_t last_row = task.first_row + task.row_blocks, last_key = task.first_key + task.key_blocks;
    if (task.of_queries) {
      const size_t floats = size_t(task.row_blocks * kGradientRows * plan.q_columns);
      __builtin_memset(scratch.of_q, 0, floats * sizeof(float));
    }
    for (int64_t i = task.first_row; task.keeps_rows() && i < last_row; ++i) pack_block(i);
    for (int64_t j = task.first_key; j < last_key; ++j) {
      const int64_t n0 = j * plan.key_block, keys = min64(plan.key_block, at.keys - n0);
      pack_key_block(n0, keys);
      for (int64_t i = task.first_row; i < last_row; ++i) {
        const Block block = {i * kGradientRows, rows_of(i), n0, keys};
        if (visible(block.r0, block.count) <= n0) continue;
        if (!task.keeps_rows()) pack_block(i);
        add_block(i, block);
      }
      if (task.of_keys) write_keys(n0, keys);
    }
    for (int64_t i = task.first_row; task.of_queries && i < last_row; ++i) write_queries(i);
  }

  void pack_block(int64_t i) const {
    const GradientRows to = scratch.rows(at, plan, slot(i));
    const int64_t first = i * kGradientRows, count = rows_of(i);
    for (int64_t r = 0; r < count; ++r) {
      copy_row(q(first + r), at.q_row, at.head_size, at.scale, to.q + r * at.head_size);
      copy_row(grad(first + r), at.out_row, at.value_size, 1.0f, to.grad + r * at.value_size);
    }
    if (!task.of_keys) return;
    transpose_rows(to.q, count, at.head_size, to.q_columns, kGradientRows);
    transpose_rows(to.grad, count, at.value_size, to.g_columns, kGradientRows);
  }

  static void copy_row(const Element *from, int64_t step, int64_t size, float factor, float *to) {
    prefetch_row_l1(from + kRowPrefetch * step, size);
    int64_t i = 0;
    for (; i + W <= size; i += W) store(to + i, load(from + i) * factor);
    if (i < size) store_tail(to + i, load_tail(from + i, int(size - i)) * factor, int(size - i));
  }

  void pack_key_block(int64_t n0, int64_t keys) const {
    const auto key = [&](int64_t i) MYCC_INLINED { return k(n0 + i); };
    const auto value = [&](int64_t i) MYCC_INLINED { return v(n0 + i); };
    pack_transposed(key, at.k_row, keys, at.head_size, scratch.room, scratch.k_panels);
    pack_transposed(value, at.v_row, keys, at.value_size, scratch.room, scratch.v_panels);
    if (task.of_queries) pack_rows(key, at.k_row, keys, at.head_size, scratch.k_rows);
    if (!task.of_keys) return;
    __builtin_memset(scratch.of_k, 0, size_t(plan.score_stride() * at.head_size) * sizeof(float));
    __builtin_memset(scratch.of_v, 0, size_t(plan.score_stride() * at.value_size) * sizeof(float));
  }

  /* What one block of rows and keys adds to the gradients. */
  void add_block(int64_t i, const Block &block) const {
    const GradientRows rows = scratch.rows(at, plan, slot(i));
    const int64_t panels = ceil_div(block.keys, kPanel), stride = plan.score_stride(), count = block.count;
    const int64_t size = at.head_size, width = at.value_size, run = kGradientRows * kPanel;
    add_products(rows.q, size, count, size, scratch.k_panels, size * kPanel, panels, scratch.scores, stride, false);
    add_products(rows.grad, width, count, width, scratch.v_panels, width * kPanel, panels, scratch.products, stride,
                 false);
    for (int64_t r = 0; r < count; ++r) weigh_row(block, r, panels);
    if (task.of_keys) {
      add_products(rows.g_columns, kGradientRows, width, count, scratch.p_panels, run, panels, scratch.of_v, stride,
                   true);
      add_products(rows.q_columns, kGradientRows, size, count, scratch.d_panels, run, panels, scratch.of_k, stride,
                   true);
    }
    if (task.of_queries) {
      float *to = scratch.of_q + (i - task.first_row) * kGradientRows * plan.q_columns;
      add_products(scratch.products, stride, count, block.keys, scratch.k_rows, block.keys * kPanel,
                   plan.q_columns / kPanel, to, plan.q_columns, true);
    }
  }

  /* P and D of a row: in panels both, and D in place of the products. Keys that the row does not see have zeros. */
  void weigh_row(const Block &block, int64_t r, int64_t panels) const {
    const int64_t row = block.r0 + r, seen = max64(0, min64(block.keys, visible(row) - block.n0));
    float *s = scratch.scores + r * plan.score_stride(), *d = scratch.products + r * plan.score_stride();
    if (seen > 0) score(batch, head(row), query(row), block.n0, s, seen);
    const vf32 less = splat(logsumexp(row)), mean = splat(inner(row));
    for (int64_t i = 0; i < panels * kPanel; i += W) {
      vf32 x = load(s + i) - less, g = load(d + i) - mean;
      x = exp2_negative(x * kLog2E);
      g = g * x;
      if (i + W > seen) {
        const auto shown = lane_numbers() < splat(int32_t(seen - i));
        x = shown ? x : vf32{};
        g = shown ? g : vf32{};
      }
      const int64_t place = (i / kPanel * kGradientRows + r) * kPanel + i % kPanel;
      store(scratch.p_panels + place, x);
      store(scratch.d_panels + place, g);
      store(d + i, g);
    }
  }

  void write_keys(int64_t n0, int64_t keys) const {
    Element *of_k = at.of_k + batch * at.of_k_batch + kv_head * at.of_k_head + n0 * at.of_k_row;
    Element *of_v = at.of_v + batch * at.of_v_batch + kv_head * at.of_v_head + n0 * at.of_v_row;
    write_columns(scratch.of_k, keys, at.head_size, of_k, at.of_k_row);
    write_columns(scratch.of_v, keys, at.value_size, of_v, at.of_v_row);
  }

  /* Columns of sums [size][column] as rows, four at a time; those behind the last one are there too, up to a panel. */
  void write_columns(const float *sums, int64_t count, int64_t size, Element *to, int64_t to_row) const {
    const int64_t stride = plan.score_stride(), row = round_up(size, W);
    for (int64_t n = 0; n < count; n += 4) {
      int64_t i = 0;
      for (const float *s = sums + n; i + 4 <= size; i += 4)
        transpose_4x4(s + i * stride, s + (i + 1) * stride, s + (i + 2) * stride, s + (i + 3) * stride,
                      scratch.room + i, row);
      for (; i < size; ++i)
        for (int64_t j = 0; j < 4; ++j) scratch.room[j * row + i] = sums[i * stride + n + j];
      for (int64_t j = 0; j < min64(4, count - n); ++j)
        write_row(scratch.room + j * row, 1.0f, to + (n + j) * to_row, size);
    }
  }

  void write_queries(int64_t i) const {
    for (int64_t r = 0; r < rows_of(i); ++r) {
      const int64_t row = i * kGradientRows + r;
      float *from = scratch.of_q + ((i - task.first_row) * kGradientRows + r) * plan.q_columns;
      scale_row(from, at.scale, plan.q_columns);
      write_row(from, 1.0f, at.of_q + batch * at.of_q_batch + head(row) * at.of_q_head + query(row) * at.of_q_row,
                at.head_size);
    }
  }
};

template <class Element, class Score> struct GradientJob {
  const mycc_host *host;
  const AttentionGradientArgsOf<Element> *args;
  const Score *score;
  GradientPlan plan;

  GradientTask task(int64_t i) const {
    if (plan.whole) return {0, plan.row_blocks, 0, plan.key_blocks, true, true};
    if (i >= plan.row_tasks()) return {0, plan.row_blocks, i - plan.row_tasks(), 1, false, true};
    const int64_t first = i * kGradientChunk;
    return {first, min64(kGradientChunk, plan.row_blocks - first), 0, plan.key_blocks, true, false};
  }

  static void run(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const GradientJob &job = *(const GradientJob *)arg;
    GradientScratch scratch;
    void *memory = job.host->scratch(job.host->ctx, worker, scratch.place(*job.args, job.plan, nullptr));
    if (!memory) return;
    scratch.place(*job.args, job.plan, memory);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t product = i % job.plan.products, part = i / job.plan.products;
      GradientWork<Element, Score>(*job.args, *job.score, job.plan, scratch, product, job.task(part)).run();
    }
  }
};

/* Rows become zeros: there is nothing to sum over. */
template <class Element>
inline void clear_rows(Element *to, const RowStrides &strides, int64_t batch, int64_t heads, int64_t rows, int64_t size) {
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t r = 0; r < rows; ++r) __builtin_memset(to + strides.at(b, h, r), 0, size_t(size) * sizeof(Element));
}

} // namespace attention_detail

/* Computes args.of_q, of_k and of_v, which must not overlap the inputs. Where the host has no scratch memory it has
 * recorded the failure, and what they hold is undefined. */
template <class Element, class Score>
void attention_gradient(const mycc_host *host, const AttentionGradientArgsOf<Element> &args, const Score &score) {
  using namespace attention_detail;
  if (args.batch <= 0 || args.kv_heads <= 0) return;
  if (args.queries <= 0 || args.keys <= 0) {
    clear_rows(args.of_q, {args.of_q_batch, args.of_q_head, args.of_q_row}, args.batch, args.heads, args.queries,
               args.head_size);
    clear_rows(args.of_k, {args.of_k_batch, args.of_k_head, args.of_k_row}, args.batch, args.kv_heads, args.keys,
               args.head_size);
    clear_rows(args.of_v, {args.of_v_batch, args.of_v_head, args.of_v_row}, args.batch, args.kv_heads, args.keys,
               args.value_size);
    return;
  }
  GradientJob<Element, Score> job = {host, &args, &score, GradientPlan(args, host->max_workers)};
  host->parallel_for(host->ctx, job.plan.tasks(), 1, &GradientJob<Element, Score>::run, &job);
}

} // namespace mycc
#endif /* MYCC_KERNELS_ATTENTION_GRADIENT_H */
