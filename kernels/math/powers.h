/* powers.h: powers of 2 between 1 and 2, for the exponentials of a softmax. Included by math/softmax_weight.h and attention. */
#ifndef MYCC_KERNELS_MATH_POWERS_H
#define MYCC_KERNELS_MATH_POWERS_H

#include "kernels/vec/vec.h"

#if defined(MYCC_AVX512)
namespace mycc {
namespace kernel {
/* 2^(j / 32) as bits, less those of j / 32 in the exponent. A table needs fewer multiplications than a polynomial
 * alone, and these compete with the products around them. */
alignas(64) static constexpr int32_t kPowers[32] = {
    0x3f800000, 0x3f7ecd87, 0x3f7daac3, 0x3f7c980f, 0x3f7b95c2, 0x3f7aa43a, 0x3f79c3d3, 0x3f78f4f0,
    0x3f7837f0, 0x3f778d3a, 0x3f76f532, 0x3f767043, 0x3f75fed7, 0x3f75a15b, 0x3f75583f, 0x3f7523f6,
    0x3f7504f3, 0x3f74fbaf, 0x3f7508a4, 0x3f752c4d, 0x3f75672a, 0x3f75b9be, 0x3f76248c, 0x3f76a81e,
    0x3f7744fd, 0x3f77fbb8, 0x3f78ccdf, 0x3f79b907, 0x3f7ac0c7, 0x3f7be4ba, 0x3f7d257d, 0x3f7e83b3};
} /* namespace kernel */
} /* namespace mycc */
#endif
#endif /* MYCC_KERNELS_MATH_POWERS_H */
