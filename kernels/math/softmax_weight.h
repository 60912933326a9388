/* softmax_weight.h: the exponential of a softmax. Included by math/math.h. */
#ifndef MYCC_KERNELS_MATH_SOFTMAX_WEIGHT_H
#define MYCC_KERNELS_MATH_SOFTMAX_WEIGHT_H

#include "kernels/math/powers.h"

namespace mycc {

/* exp(x) for x <= 0 or NaN, which is a weight beside one of 1: what would be no normal number may be zero, and the
 * relative error is 2e-7 + 2e-8 |x| (1e-7 |x| without FMA), as what lies far below the largest value of its row counts
 * for as little as its error. x > 88: undefined. */
MYCC_INLINE vf32 exp_weight(vf32 x) {
  using namespace kernel;
#if defined(MYCC_AVX512)
  constexpr float ROUND = 393216.0f; /* 1.5 * 2^18: adding it leaves round(32 x log2(e)) in the low bits */
  x = isa::max(splat(-88.03f), x); /* exp(-88.03) is zero here */
  const vf32 t = isa::fma(x, splat(LOG2E_F), splat(ROUND)), r = isa::fma(x, splat(LOG2E_F), ROUND - t);
  const vf32 near = from_bits(isa::permute(load(kPowers), load(kPowers + W), bits(t)) + (bits(t) << 18));
  const vf32 p = r * isa::fma(r, splat(0.24022676f), splat(0.6931573f)); /* 2^r - 1, minimax on |r| <= 1 / 64 */
  return isa::fma(near, p, near);
#else
  x = isa::max(splat(-88.0f), x); /* exp(-88) is zero here */
  vf32 t = isa::fma(x, splat(LOG2E_F), splat(TO_SCALE_F)), n = t - TO_SCALE_F;
  vf32 r = isa::fma(x, splat(LOG2E_F), -n);
  vf32 p = poly(r, 1, 0.693147004f, 0.240222469f, 0.0555071086f, 0.00967129413f, 0.00132695679f); /* exp2_short */
  return p * from_bits(bits(t) << 23);
#endif
}
MYCC_INLINE float exp_weight(float x) { return exp_weight(splat(x))[0]; }
MYCC_INLINE vf64 exp_weight(vf64 x) { return exp(x); }
MYCC_INLINE double exp_weight(double x) { return exp(x); }

} /* namespace mycc */
#endif /* MYCC_KERNELS_MATH_SOFTMAX_WEIGHT_H */
