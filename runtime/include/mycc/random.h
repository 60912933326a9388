/* random.h: random numbers by counting: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * 2011). A number is a function of the call, of the operator (`stream`) and of the element, so that it is the same on
 * any number of threads. For kernels that use it; not in math.h.
 */
#ifndef MYCC_RANDOM_H
#define MYCC_RANDOM_H

#include "math.h"

namespace mycc {

struct RandomBlock {
  uint32_t word[4];
};

/* Four random words of block `counter`. */
inline RandomBlock philox(uint64_t key, uint64_t counter, uint64_t stream) {
  uint32_t a = (uint32_t)counter, b = (uint32_t)(counter >> 32), c = (uint32_t)stream, d = (uint32_t)(stream >> 32);
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = 0xD2511F53ull * a, right = 0xCD9E8D57ull * c;
    a = (uint32_t)(right >> 32) ^ b ^ k0;
    c = (uint32_t)(left >> 32) ^ d ^ k1;
    b = (uint32_t)right;
    d = (uint32_t)left;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{a, b, c, d}};
}

/* 63 random bits. */
inline int64_t random_bits(int64_t call, int64_t stream, int64_t element) {
  const RandomBlock r = philox((uint64_t)call, (uint64_t)element, (uint64_t)stream);
  return (int64_t)((((uint64_t)r.word[0] << 32) | r.word[1]) >> 1);
}
/* In [0, 1), a multiple of 2^-bits. */
inline double random_uniform(int64_t call, int64_t stream, int64_t element, int64_t bits) {
  return __builtin_ldexp((double)(random_bits(call, stream, element) >> (63 - bits)), (int)-bits);
}
/* Of mean 0 and deviation 1, by Box and Muller. */
inline double random_normal(int64_t call, int64_t stream, int64_t element) {
  const RandomBlock r = philox((uint64_t)call, (uint64_t)element, (uint64_t)stream);
  const double u = (((uint64_t)r.word[0] << 21) + (r.word[1] >> 11) + 1) * 0x1p-53; /* in (0, 1] */
  const double angle = (((uint64_t)r.word[2] << 21) + (r.word[3] >> 11)) * 0x1p-53;
  return __builtin_sqrt(-2 * __builtin_log(u)) * __builtin_cos(6.283185307179586 * angle);
}
inline vi64 random_bits(vi64 call, vi64 stream, vi64 element) {
  return build<vi64>([=](int i) MYCC_INLINED { return random_bits(call[i], stream[i], element[i]); });
}
inline vf64 random_uniform(vi64 call, vi64 stream, vi64 element, vi64 bits) {
  return build<vf64>([=](int i) MYCC_INLINED { return random_uniform(call[i], stream[i], element[i], bits[i]); });
}
inline vf64 random_normal(vi64 call, vi64 stream, vi64 element) {
  return build<vf64>([=](int i) MYCC_INLINED { return random_normal(call[i], stream[i], element[i]); });
}

} /* namespace mycc */
#endif /* MYCC_RANDOM_H */
