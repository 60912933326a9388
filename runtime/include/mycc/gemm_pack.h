/* Packs pieces of an unpacked B (K x N) into panels of 16 columns. */
#ifndef MYCC_GEMM_PACK_H
#define MYCC_GEMM_PACK_H

#include "gemm_block.h"
#include "vec.h"

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
  if (i < count) store_part(to + i, load_part(from + i, (int)(count - i)), (int)(count - i));
}

static inline void zero_floats(float *to, int64_t count) {
  int64_t i = 0;
  for (; i + W <= count; i += W) {
    store(to + i, vf32{});
    MYCC_KEEP_LOOP;
  }
  if (i < count) store_part(to + i, vf32{}, (int)(count - i));
}

typedef float Quad __attribute__((vector_size(16), may_alias));
typedef float LooseQuad __attribute__((vector_size(16), may_alias, aligned(4)));

/* Transposes 4 rows of 4, `stride` apart: to[j * 16 + i] = from[i * stride + j]. */
static inline void pack_transpose_4x4(const float *from, int64_t stride, float *to) {
  const Quad r0 = *(const LooseQuad *)from, r1 = *(const LooseQuad *)(from + stride),
             r2 = *(const LooseQuad *)(from + 2 * stride), r3 = *(const LooseQuad *)(from + 3 * stride);
  const Quad low01 = MYCC_SHUFFLE(Quad, r0, r1, 0, 4, 1, 5), high01 = MYCC_SHUFFLE(Quad, r0, r1, 2, 6, 3, 7);
  const Quad low23 = MYCC_SHUFFLE(Quad, r2, r3, 0, 4, 1, 5), high23 = MYCC_SHUFFLE(Quad, r2, r3, 2, 6, 3, 7);
  *(LooseQuad *)to = MYCC_SHUFFLE(Quad, low01, low23, 0, 1, 4, 5);
  *(LooseQuad *)(to + kPanel) = MYCC_SHUFFLE(Quad, low01, low23, 2, 3, 6, 7);
  *(LooseQuad *)(to + 2 * kPanel) = MYCC_SHUFFLE(Quad, high01, high23, 0, 1, 4, 5);
  *(LooseQuad *)(to + 3 * kPanel) = MYCC_SHUFFLE(Quad, high01, high23, 2, 3, 6, 7);
}

/* One panel, [depth][16] at `to`, of `columns` <= 16 columns of b (strides b_k and b_n, one of them 1); zero padded. */
inline void pack_panel(const float *b, int64_t b_k, int64_t b_n, int64_t depth, int64_t columns, float *to) {
  if (b_n == 1 && columns == kPanel) {
    for (int64_t k = 0; k < depth; ++k, b += b_k, to += kPanel)
      for (int64_t j = 0; j < kPanel; j += W) store(to + j, load(b + j));
    return;
  }
  int64_t k = 0;
  if (b_k == 1 && columns == kPanel) {
    for (; k + 4 <= depth; k += 4)
      for (int64_t j = 0; j < kPanel; j += 4) pack_transpose_4x4(b + k + j * b_n, b_n, to + k * kPanel + j);
  }
  for (; k < depth; ++k)
    for (int64_t j = 0; j < kPanel; ++j) to[k * kPanel + j] = j < columns ? b[k * b_k + j * b_n] : 0.0f;
}

/* A source of panels for multiply_block that packs each group's depth block when it is asked for. */
struct PackingPanels {
  typedef float Element;
  const float *b; /* first column of the block */
  int64_t b_k, b_n, columns;
  float *packed;  /* room for a group's longest depth block */
  int64_t panel_size;
  static constexpr int64_t after = 0;

  const float *get(const DepthPart &part, int64_t panel, int64_t width, int64_t) const {
    for (int64_t p = 0; p < width; ++p) {
      const int64_t column = (panel + p) * kPanel;
      pack_panel(b + part.first * b_k + column * b_n, b_k, b_n, part.depth, min64(kPanel, columns - column),
                 packed + p * panel_size);
    }
    return packed;
  }
  const float *ahead(const DepthPart &, int64_t, int64_t) const { return nullptr; }
};

} // namespace mycc
#endif /* MYCC_GEMM_PACK_H */
