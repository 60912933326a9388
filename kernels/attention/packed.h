/* packed.h: attention of many query rows, through the register tiles of the GEMM. Included by attention/attention.h. */
#ifndef MYCC_KERNELS_ATTENTION_PACKED_H
#define MYCC_KERNELS_ATTENTION_PACKED_H

#include <stddef.h>
#include <stdint.h>

#include <type_traits>

#include "machine.h"
#include "kernels/attention/rows.h"
#include "kernels/attention/softmax.h"
#include "kernels/gemm/block.h"
#include "kernels/vec/vec.h"

namespace mycc {

/* What a choice of the tuner may change; the values here are the cost model's. */
struct AttentionTuning {
  int64_t key_block = kAttentionKeys;           /* most keys of a block */
  int64_t chunk_floats = kAttentionFloats; /* size of a task's Q, about: every task packs K and V again */
};

namespace attention_detail {

constexpr int64_t kWidestTile = kTilePanels[kTileRows - 1];
static_assert(kValueRows == 0 || kValueRows == kTileRows, "whole tiles");
constexpr int64_t kRowBlock = kScoreRows / kTileRows * kTileRows; /* query rows whose scores stay in L1 */

/* Four floats: a 4 x 4 transposition needs only shuffles within 128 bits, on every machine. */
typedef float Quad __attribute__((vector_size(16)));
typedef float UnalignedQuad __attribute__((vector_size(16), aligned(4), may_alias));

/* to[j * step + i] = row_i[j] for i, j in 0..3. */
inline void transpose_4x4(const float *row0, const float *row1, const float *row2, const float *row3, float *to,
                          int64_t step = kPanel) {
  const Quad a = *(const UnalignedQuad *)row0, b = *(const UnalignedQuad *)row1;
  const Quad c = *(const UnalignedQuad *)row2, d = *(const UnalignedQuad *)row3;
  const Quad ab_low = MYCC_SHUFFLE(Quad, a, b, 0, 4, 1, 5), ab_high = MYCC_SHUFFLE(Quad, a, b, 2, 6, 3, 7);
  const Quad cd_low = MYCC_SHUFFLE(Quad, c, d, 0, 4, 1, 5), cd_high = MYCC_SHUFFLE(Quad, c, d, 2, 6, 3, 7);
  *(UnalignedQuad *)to = MYCC_SHUFFLE(Quad, ab_low, cd_low, 0, 1, 4, 5);
  *(UnalignedQuad *)(to + step) = MYCC_SHUFFLE(Quad, ab_low, cd_low, 2, 3, 6, 7);
  *(UnalignedQuad *)(to + 2 * step) = MYCC_SHUFFLE(Quad, ab_high, cd_high, 0, 1, 4, 5);
  *(UnalignedQuad *)(to + 3 * step) = MYCC_SHUFFLE(Quad, ab_high, cd_high, 2, 3, 6, 7);
}

/* A row as floats, in `room` where it has another type. */
inline const float *floats_of(const float *row, int64_t, float *) { return row; }
template <class Element> inline const float *floats_of(const Element *row, int64_t size, float *room) {
  int64_t i = 0;
  for (; i + W <= size; i += W) store(room + i, load(row + i));
  if (i < size) store(room + i, load_tail(row + i, int(size - i)));
  return room;
}

/* Rows of `size` elements, transposed, in panels [row panel][size][16]; columns behind the last row repeat it. row(i):
 * where row i lies, `step` elements behind the one before it. room: for four rows in whole vectors. */
template <class Row>
inline void pack_transposed(const Row &row, int64_t step, int64_t count, int64_t size, float *room, float *panels) {
  const int64_t last = count - 1;
  for (int64_t n = 0; n < round_up(count, kPanel); n += 4) {
    float *to = panels + n / kPanel * size * kPanel + n % kPanel;
    const float *from[4];
    for (int64_t j = 0; j < 4; ++j) {
      const auto *at = row(min64(n + j, last));
      prefetch_row_l1(at + kRowPrefetch * step, size);
      from[j] = floats_of(at, size, room + j * round_up(size, W));
    }
    int64_t i = 0;
    for (; i + 4 <= size; i += 4) {
      transpose_4x4(from[0] + i, from[1] + i, from[2] + i, from[3] + i, to + i * kPanel);
    }
    for (; i < size; ++i)
      for (int64_t j = 0; j < 4; ++j) to[i * kPanel + j] = from[j][i];
  }
}

/* K^T of the keys n0 .. n0 + count - 1 in such panels. */
template <class Element>
inline void pack_keys(const RowsOf<Element> &rows, int64_t n0, int64_t count, float *room, float *panels) {
  const auto key = [&](int64_t i) MYCC_INLINED { return rows.k(n0 + i); };
  pack_transposed(key, rows.args->k_row, count, rows.args->head_size, room, panels);
}

/* The square of the length of the longest key in packed K^T; NaN if one of them is. */
inline float longest_key(const float *panels, int64_t size, int64_t count) {
  vf32 longest = {};
  for (int64_t n = 0; n < count; n += kPanel, panels += size * kPanel) {
    for (int64_t j = 0; j < kPanel; j += W) {
      vf32 even = {}, odd = {};
      int64_t i = 0;
      for (const float *k = panels + j; i + 2 <= size; i += 2, k += 2 * kPanel) {
        even = fma(load(k), load(k), even);
        odd = fma(load(k + kPanel), load(k + kPanel), odd);
      }
      if (i < size) even = fma(load(panels + i * kPanel + j), load(panels + i * kPanel + j), even);
      longest = maximum(longest, even + odd);
    }
  }
  return reduce_max(longest);
}

/* The same of rows of queries, which lie densely. */
inline float longest_query(const float *q, int64_t size, int64_t count) {
  float longest = 0;
  for (int64_t r = 0; r < count; ++r, q += size) {
    vf32 sum = {};
    int64_t i = 0;
    for (; i + W <= size; i += W) sum = fma(load(q + i), load(q + i), sum);
    if (i < size) sum = fma(load_tail(q + i, int(size - i)), load_tail(q + i, int(size - i)), sum);
    longest = maximum(longest, reduce_add(sum));
  }
  return longest;
}

/* Rows of `size` elements in panels [column panel][count][16]; columns behind `size` are zero. row, step: as above. */
template <class Row>
inline void pack_rows(const Row &row, int64_t step, int64_t count, int64_t size, float *panels) {
  const int64_t whole = size / kPanel * kPanel;
  for (int64_t n = 0; n < count; ++n) {
    const auto *from = row(n);
    prefetch_row_l1(from + kRowPrefetch * step, size);
    float *to = panels + n * kPanel;
    for (int64_t i = 0; i < whole; i += kPanel, to += count * kPanel)
      for (int64_t j = 0; j < kPanel; j += W) store(to + j, load(from + i + j));
    for (int64_t j = whole; j < round_up(size, kPanel); j += W)
      store(to + j - whole, load_tail(from + min64(j, size), int(max64(0, min64(W, size - j)))));
  }
}

/* V of the keys n0 .. n0 + count - 1 in such panels. */
template <class Element>
inline void pack_values(const RowsOf<Element> &rows, int64_t n0, int64_t count, float *panels) {
  const auto value = [&](int64_t i) MYCC_INLINED { return rows.v(n0 + i); };
  pack_rows(value, rows.args->v_row, count, rows.args->value_size, panels);
}

/* How a packed attention is cut, and the layout of a worker's scratch memory. */
struct PackedPlan {
  int64_t chunk, chunks; /* rows of a task, a multiple of kTileRows; tasks of a (batch, key head) */
  int64_t key_block;
  int64_t values;        /* value_size in whole panels */
  int64_t score_stride;

  PackedPlan(const AttentionSizes &args, int64_t workers, const AttentionTuning &tuning = AttentionTuning()) {
    const int64_t rows = args.heads / args.kv_heads * args.queries, products = args.batch * args.kv_heads;
    chunk = max64(tuning.chunk_floats / max64(max64(args.head_size, args.value_size), 1) / kRowBlock, 1) * kRowBlock;
    /* Smaller ones only where workers would have nothing to do. */
    while (workers > 1 && chunk > kRowBlock && products * ceil_div(rows, chunk) < kAttentionTasks * workers) chunk -= kRowBlock;
    chunk = min64(chunk, round_up(rows, kTileRows));
    chunks = ceil_div(rows, chunk);
    key_block = kPanelFloats / max64(args.head_size + args.value_size, 1) / kPanel * kPanel;
    key_block = min64(max64(min64(key_block, tuning.key_block), 2 * kPanel), round_up(args.keys, kPanel));
    values = round_up(args.value_size, kPanel);
    score_stride = key_block + kPanel; /* rows a multiple of 1024 bytes apart would share few cache sets */
  }
};

struct PackedScratch {
  float *k_panels, *v_panels, *q, *o, *scores;
  float *key_rows; /* four, on their way into panels */
  float *lengths; /* of the longest query of kRowBlock rows, squared */
  RowStates state;

  /* Places the arrays from `memory` on; returns the bytes that they take. */
  size_t place(const AttentionSizes &args, const PackedPlan &plan, void *memory) {
    Carver carver = {(uint8_t *)memory};
    const size_t size = sizeof(float);
    k_panels = carver.take<float>(size_t(plan.key_block * args.head_size) * size);
    v_panels = carver.take<float>(size_t(plan.key_block * plan.values) * size);
    q = carver.take<float>(size_t(plan.chunk * args.head_size) * size);
    o = carver.take<float>(size_t(plan.chunk * plan.values) * size);
    scores = carver.take<float>(size_t(kRowBlock * plan.score_stride) * size);
    key_rows = carver.take<float>(size_t(4 * round_up(args.head_size, W)) * size);
    lengths = carver.take<float>(size_t(ceil_div(plan.chunk, kRowBlock)) * size);
    state.maximum = carver.take<float>(size_t(plan.chunk + W) * size);
    state.sums = carver.take<float>(size_t(plan.chunk * W) * size);
    return size_t(carver.next - (uint8_t *)memory);
  }
};

inline Tile product(const float *a, int64_t a_row, int64_t depth, const float *b, float *c, int64_t c_stride,
                    bool accumulate) {
  Tile tile;
  tile.a = a;
  tile.a_row = a_row;
  tile.blocks = tile.block = 0;
  tile.depth = depth;
  tile.b = b;
  tile.panel_size = 0;
  tile.c = c;
  tile.c_stride = c_stride;
  tile.accumulate = accumulate;
  tile.next = (const char *)b;
  tile.next_step = 0;
  tile.results = {(const char *)b, 0, 0};
  return tile;
}

/* scores[row][key] = q . k; tiles that see none of a group's keys are skipped. */
inline void score_tiles(const Rows &rows, const Block &block, const PackedPlan &plan, const PackedScratch &scratch) {
  const int64_t size = rows.args->head_size; /* panels of a group stay in L1 while the rows pass over them */
  const int64_t group = max64(kKeyGroupFloats / max64(kPanel * size, 1) / kWidestTile * kWidestTile, kWidestTile);
  const float *q = scratch.q + block.r0 * size;
  const int64_t panels = ceil_div(block.keys, kPanel);
  for (int64_t p = 0, most; p < panels; p += most) {
    most = group > 2 && panels - p == group + 1 ? group - 1 : group; /* one panel alone has too few sums */
    for (int64_t r = 0; r < block.count; r += kTileRows) {
      const int64_t tile_rows = min64(kTileRows, block.count - r);
      const int64_t seen = ceil_div(rows.visible(block.r0 + r, tile_rows) - block.n0 - p * kPanel, kPanel);
      const int64_t width = min64(min64(most, panels - p), seen);
      if (width <= 0) continue;
      float *s = scratch.scores + r * plan.score_stride + p * kPanel;
      Tile tile = product(q + r * size, size, size, scratch.k_panels + p * kPanel * size, s, plan.score_stride, false);
      tile.panel_size = kPanel * size;
      multiply_tile(tile, tile_rows, width);
    }
  }
}

/* Rows in whole tiles of values. */
inline int64_t whole_rows(const Block &block) { return kValueRows > 0 ? block.count / kTileRows * kTileRows : 0; }

/* scores[row] become weights: of a whole tile of values the first 16 alone, as it makes the others. Keys that one row
 * of a tile sees and another does not have the weight zero there. Rows of no such tile have o[row] scaled to the new
 * maximum. */
template <class Made, class Score>
void softmax_rows(const Rows &rows, const Block &block, const Score &score, const PackedPlan &plan,
                  const PackedScratch &scratch, const RowFactors &found) {
  int64_t seen[kRowBlock];
  for (int64_t i = 0; i < block.count; ++i) {
    const int64_t r = block.r0 + i;
    seen[i] = seen_keys(rows, block, i, 1);
    if (seen[i] > 0)
      score(rows.batch, rows.head(r), rows.query(r), block.n0, scratch.scores + i * plan.score_stride, seen[i]);
  }
  const ScoreRows scores = {scratch.scores, plan.score_stride, block.count, seen};
  const RowStates state = scratch.state.from(block.r0);
  Made::maxima(scores, state, found);
  for (int64_t r = 0, n; r < block.count; r += n) {
    n = min64(kTileRows, block.count - r);
    const int64_t keys = seen_keys(rows, block, r, n);
    for (int64_t i = r; i < r + n; ++i) {
      hide(scratch.scores + i * plan.score_stride, seen[i], keys);
      seen[i] = n == kValueRows ? min64(keys, kPanel) : keys;
    }
  }
  weigh<Made>(scores, state, found);
  for (int64_t r = block.n0 > 0 ? whole_rows(block) : block.count; r < block.count; ++r)
    scale_row(scratch.o + (block.r0 + r) * plan.values, found.factor[r], plan.values);
}

/* o[row] = o[row] * factor + p[row] V of a whole tile of rows; the first block of keys sets o. Its first tile of values
 * makes the weights for the others. */
template <class Made>
void value_rows(const Rows &rows, const Block &block, int64_t r, const PackedPlan &plan, const PackedScratch &scratch,
                const RowFactors &found) {
  const int64_t panels = plan.values / kPanel, row = block.r0 + r;
  ValueTile tile;
  tile.weights = scratch.scores + r * plan.score_stride;
  tile.row = plan.score_stride;
  tile.keys = seen_keys(rows, block, r, kValueRows);
  tile.values = scratch.v_panels;
  tile.panel_size = kPanel * block.keys;
  tile.out = scratch.o + row * plan.values;
  tile.out_row = plan.values;
  tile.factors = block.n0 > 0 ? found.factor + r : nullptr;
  tile.maxima = found.maximum + r;
  tile.sums = scratch.state.sums + row * W;
  if (tile.keys == 0) return;
  multiply_weights(tile, min64(kValueGroup, panels), Weight<Made>());
  for (int64_t first = kValueGroup; first < panels; first += kValueGroup) {
    tile.values += kValueGroup * tile.panel_size;
    tile.out += kValueGroup * kPanel;
    multiply_values(tile, min64(kValueGroup, panels - first));
  }
}

/* The same of all rows; those that are no whole tile of values have their weights and have been scaled. */
template <class Made>
void value_tiles(const Rows &rows, const Block &block, const PackedPlan &plan, const PackedScratch &scratch,
                 const RowFactors &found) {
  const int64_t panels = plan.values / kPanel, whole = whole_rows(block);
  for (int64_t r = 0; r < whole; r += kTileRows) value_rows<Made>(rows, block, r, plan, scratch, found);
  for (int64_t first = 0; first < panels; first += kValueGroup) {
    for (int64_t r = whole, n; r < block.count; r += n) {
      n = min64(kTileRows, block.count - r);
      const int64_t keys = seen_keys(rows, block, r, n);
      if (keys == 0) continue;
      float *o = scratch.o + (block.r0 + r) * plan.values + first * kPanel;
      const float *p = scratch.scores + r * plan.score_stride, *v = scratch.v_panels + first * kPanel * block.keys;
      Tile tile = product(p, plan.score_stride, keys, v, o, plan.values, block.n0 > 0);
      tile.panel_size = kPanel * block.keys;
      multiply_tile(tile, n, min64(kValueGroup, panels - first));
    }
  }
}

template <class Made, class Score>
void attend_block(const Rows &rows, const Block &block, const Score &score, const PackedPlan &plan,
                  const PackedScratch &scratch, const RowFactors &found) {
  score_tiles(rows, block, plan, scratch);
  softmax_rows<Made>(rows, block, score, plan, scratch, found);
  value_tiles<Made>(rows, block, plan, scratch, found);
}

/* All rows of a task against all keys that they see. Scores are no larger than the product of the lengths of query and
 * key (Cauchy and Schwarz): where that is small, no maximum is looked for. */
template <class Element, class Score>
void attend_packed(const RowsOf<Element> &rows, const Score &score, const PackedPlan &plan,
                   const PackedScratch &scratch) {
  const int64_t size = rows.args->head_size, end = rows.visible(0, rows.count);
  /* Which keys a task of a causal attention packs depends on the number of threads. */
  const bool measured = std::is_same<Score, NoScore>::value && !rows.args->causal;
  copy_queries(rows, rows.args->scale * Powers<Score>::kScale, scratch.q);
  for (int64_t r0 = 0; measured && r0 < rows.count; r0 += kRowBlock)
    scratch.lengths[r0 / kRowBlock] = longest_query(scratch.q + r0 * size, size, min64(kRowBlock, rows.count - r0));
  scratch.state.start(rows.count);
  float highest[kRowBlock + W], factor[kRowBlock + W];
  const RowFactors found = {highest, factor};
  float longest = 0; /* of the keys so far */
  for (int64_t n0 = 0; n0 < end; n0 += plan.key_block) {
    const int64_t keys = min64(plan.key_block, end - n0);
    bool packed = false; /* which they are where a row sees one of them */
    for (int64_t r0 = 0; r0 < rows.count; r0 += kRowBlock) {
      const Block block = {r0, min64(kRowBlock, rows.count - r0), n0, keys};
      if (rows.visible(r0, block.count) <= n0) continue;
      if (HidesKeys<Score>::value && all_hidden(rows, block, score, scratch.scores)) {
        const size_t floats = size_t(block.count * plan.values);
        if (n0 == 0) __builtin_memset(scratch.o + r0 * plan.values, 0, floats * sizeof(float));
        continue;
      }
      if (!packed) {
        pack_keys(rows, n0, keys, scratch.key_rows, scratch.k_panels);
        pack_values(rows, n0, keys, scratch.v_panels);
        if (measured) longest = maximum(longest, longest_key(scratch.k_panels, size, keys));
        packed = true;
      }
      if (measured && scratch.lengths[r0 / kRowBlock] * longest <= kBound * kBound)
        attend_block<BoundedWeights>(rows, block, score, plan, scratch, found);
      else
        attend_block<Weights<Score>>(rows, block, score, plan, scratch, found);
    }
  }
  for (int64_t r = 0; r < rows.count; ++r) {
    float *o = scratch.o + r * plan.values;
    if (rows.visible(r) == 0) __builtin_memset(o, 0, size_t(plan.values) * sizeof(float));
    const float sum = scratch.state.sum(r), maximum = scratch.state.maximum[r];
    write_row(o, sum + sink_weight<Score>(rows.sink(r), maximum), rows.out(r), rows.args->value_size);
    if (float *log = rows.logsumexp(r)) *log = log_of_sum<Score>(maximum, sum, rows.at->empty);
  }
}

} // namespace attention_detail
} // namespace mycc
#endif /* MYCC_KERNELS_ATTENTION_PACKED_H */
