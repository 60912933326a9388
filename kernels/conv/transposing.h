/* Convolutions by panels whose operand and results lie in NCHW: both are transposed block by block, while they are
 * near.
 *
 * What conv/conv.h does, but for where its operand comes from and its sums go to: a block's strip is made of tiles of
 * planes, and the sums of its pixels are transposed a panel at a time.
 *
 * epilogue(0, m, n, acc, count): m = (image * out_c + output) * out_d + depth, n = row * out_w + column
 */
#ifndef MYCC_KERNELS_CONV_TRANSPOSING_H
#define MYCC_KERNELS_CONV_TRANSPOSING_H

#include "kernels/conv/conv.h"

namespace mycc {

/* Keeps a pixel's sums. */
struct KeepPixel {
  float *to;      /* [pixels][stride] */
  int64_t stride, first; /* first: pixel of the block */

  void operator()(int64_t m, int64_t column, const float *sums, int64_t count) const {
    copy_floats(to + (m - first) * stride + column, sums, count);
  }
  Added added(int64_t m, int64_t column) const {
    return {to + (m - first) * stride + column, nullptr, nullptr, stride, 0};
  }
  static constexpr bool far() { return false; }
  void prefetch(int64_t, int64_t, int64_t) const {}
};

/* Results in NCHW: a block's pixels are neighbours in each, for its rows are whole or parts of one row. */
template <class Epilogue> struct NchwResults {
  const Epilogue &epilogue;

  static int64_t pixels(const ConvPlan &plan) { return plan.frames * plan.rows * plan.columns; }
  static int64_t stride(const ConvPlan &plan) { return (plan.group + 1) * kPanel; }
  static int64_t transposed_row(const ConvPlan &plan) { return round_up(pixels(plan), kPanel) + kPanel; }
  int64_t floats(const ConvPlan &plan) const {
    return pixels(plan) * stride(plan) + kPanel * transposed_row(plan);
  }

  template <class Multiply>
  void make(const ConvPlan &plan, const ConvBlock &block, int64_t column, int64_t panels, int64_t columns, float *own,
            const Multiply &multiply) const {
    const ConvArgs &a = plan.args;
    const int64_t first = (block.frame * a.out_h + block.row) * a.out_w + block.column;
    for (int64_t panel = 0; panel < panels; panel += plan.group) {
      const int64_t count = min64(plan.group, panels - panel);
      multiply(KeepPixel{own, stride(plan), first}, panel, count);
      for (int64_t p = panel; p < panel + count; ++p)
        hand_over(plan, block, column + p * kPanel, min64(columns - p * kPanel, kPanel), own + (p - panel) * kPanel,
                  own + pixels(plan) * stride(plan));
    }
  }

private:
  /* The sums of a panel, from `sums` on. */
  void hand_over(const ConvPlan &plan, const ConvBlock &block, int64_t output, int64_t outputs, const float *sums,
                 float *transposed) const {
    const ConvArgs &a = plan.args;
    const int64_t each = block.rows * block.columns, all = block.frames * each, row = transposed_row(plan);
    for (int64_t p = 0; p < all; p += kTransposedRows)
      transpose_tile(transposed + p, row, sums + p * stride(plan), stride(plan), min64(all - p, kTransposedRows), kPanel);
    for (int64_t o = 0; o < outputs; ++o)
      for (int64_t f = 0; f < block.frames; ++f) {
        const int64_t image = (block.frame + f) / a.out_d, depth = (block.frame + f) % a.out_d;
        epilogue((int64_t)0, (image * a.out_c + output + o) * a.out_d + depth, block.row * a.out_w + block.column,
                 transposed + o * row + f * each, each);
      }
  }
};

/* args: as conv's, their x in NCHW or channels last. */
template <class Epilogue>
inline void conv_transposing(const mycc_host *host, const ConvArgs &args, const Epilogue &epilogue,
                        const ConvTuning &tuning = ConvTuning()) {
  if (args.frames() * args.out_h * args.out_w <= 0 || args.out_c <= 0) return;
  run_panels(host, args, NchwResults<Epilogue>{epilogue}, tuning);
}

} // namespace mycc
#endif /* MYCC_KERNELS_CONV_TRANSPOSING_H */
