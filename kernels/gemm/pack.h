/* Packs pieces of an unpacked B (K x N) into panels of 16 columns. */
#ifndef MYCC_KERNELS_GEMM_PACK_H
#define MYCC_KERNELS_GEMM_PACK_H

#include "kernels/gemm/block.h"
#include "kernels/loops/transpose.h"
#include "kernels/vec/vec.h"

namespace mycc {

/* The loops below hold an empty statement that the compiler cannot see through: else it calls memcpy and memset, and
 * model.so may not import them. */
#define MYCC_KEEP_LOOP __asm__ volatile("")

/* Copies `count` floats. */
static inline void copy_floats(float *to, const float *from, int64_t count) {
  int64_t i = 0;
  for (; i + W <= count; i += W) {
    store(to + i, load(from + i));
    MYCC_KEEP_LOOP;
  }
  if (i < count) store_tail(to + i, load_tail(from + i, (int)(count - i)), (int)(count - i));
}

static inline void zero_floats(float *to, int64_t count) {
  int64_t i = 0;
  for (; i + W <= count; i += W) {
    store(to + i, vf32{});
    MYCC_KEEP_LOOP;
  }
  if (i < count) store_tail(to + i, vf32{}, (int)(count - i));
}

/* Turns what it can of 16 rows of `depth` values, `row` apart, into a panel, and says how many values of each that is. */
static inline int64_t transpose_panel(const float *from, int64_t row, int64_t depth, float *to) {
  int64_t k = 0;
#if defined(MYCC_AVX512)
  for (; k + 8 <= depth; k += 8) turning::oblong(to + k * kPanel, kPanel, from + k, row);
#endif
  for (; k + 4 <= depth; k += 4)
    for (int64_t j = 0; j < kPanel; j += W) turning::square(to + k * kPanel + j, kPanel, from + k + j * row, row);
  return k;
}

/* One panel, [depth][16] at `to`, of `columns` <= 16 columns of b (strides b_k and b_n, one of them 1); zero padded. */
inline void pack_panel(const float *b, int64_t b_k, int64_t b_n, int64_t depth, int64_t columns, float *to) {
  if (b_n == 1 && columns == kPanel) {
    for (int64_t k = 0; k < depth; ++k, b += b_k, to += kPanel)
      for (int64_t j = 0; j < kPanel; j += W) store(to + j, load(b + j));
    return;
  }
  for (int64_t k = b_k == 1 && columns == kPanel ? transpose_panel(b, b_n, depth, to) : 0; k < depth; ++k)
    for (int64_t j = 0; j < kPanel; ++j) to[k * kPanel + j] = j < columns ? b[k * b_k + j * b_n] : 0.0f;
}

/* A source of panels for multiply_block that packs each group's depth block when it is asked for. */
struct PackingPanels {
  typedef float Element;
  static constexpr bool far = false; /* what was just packed is near */
  const float *b; /* first column of the block */
  int64_t b_k, b_n, columns;
  float *packed;  /* room for a group's longest depth block */
  int64_t panel_size;
  int64_t after; /* the panel where the next task of this worker is likely to begin */

  const float *get(const DepthPart &part, int64_t panel, int64_t width, int64_t) const {
    for (int64_t p = 0; p < width; ++p) {
      const int64_t column = (panel + p) * kPanel;
      pack_panel(b + part.first * b_k + column * b_n, b_k, b_n, part.depth, min64(kPanel, columns - column),
                 packed + p * panel_size);
    }
    return packed;
  }
  /* Where columns follow each other in memory, those of a panel take as much of it as a panel. */
  const float *ahead(const DepthPart &part, int64_t panel, int64_t) const {
    return b_k == 1 && b_n == part.depth ? b + panel * panel_size : nullptr;
  }
};

} // namespace mycc
#endif /* MYCC_KERNELS_GEMM_PACK_H */
