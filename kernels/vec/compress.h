/* compress.h: the lanes of a vector that are set, side by side. */
#ifndef MYCC_KERNELS_VEC_COMPRESS_H
#define MYCC_KERNELS_VEC_COMPRESS_H

#include "kernels/vec/vec.h"

namespace mycc {

/* Bit i is lane i. */
MYCC_INLINE unsigned lane_mask(vbool set) {
#if defined(MYCC_X86)
  return isa::sign_mask(set.m);
#else
  const vi32 bits = set.m & vi32{1, 2, 4, 8};
  return (unsigned)(bits[0] | bits[1] | bits[2] | bits[3]);
#endif
}

namespace isa {
#if defined(MYCC_AVX512)
MYCC_INLINE vi32 compress(vi32 v, unsigned mask) {
  return MYCC_PICK((vi32)__builtin_ia32_compresssi512_mask(v, v, (uint16_t)mask),
                   (vi32)_mm512_maskz_compress_epi32((__mmask16)mask, (__m512i)v));
}
#elif defined(MYCC_AVX2)
/* Row m: the numbers of the set bits of m, one byte each. */
struct CompressTable {
  uint64_t row[256];
  constexpr CompressTable() : row() {
    for (int mask = 0; mask < 256; ++mask) {
      int found = 0;
      for (int lane = 0; lane < 8; ++lane)
        if (mask >> lane & 1) row[mask] |= (uint64_t)lane << (8 * found++);
    }
  }
};
inline constexpr CompressTable kCompress;
MYCC_INLINE vi32 compress(vi32 v, unsigned mask) {
  vu8 lanes;
  __builtin_memcpy(&lanes, &kCompress.row[mask], sizeof lanes);
  return permute(v, widen(lanes));
}
#else
MYCC_INLINE vi32 compress(vi32 v, unsigned mask) {
  int32_t lanes[W] = {};
  for (int i = 0, found = 0; i < W; ++i) {
    lanes[found] = v[i]; /* found <= i: overwritten when the next one is the first that is set */
    found += (int)(mask >> i & 1);
  }
  vi32 packed;
  __builtin_memcpy(&packed, lanes, sizeof packed);
  return packed;
}
#endif
} /* namespace isa */

/* Stores the set lanes of v side by side and returns their number. What lies behind them, W elements in all, is
 * overwritten too. */
MYCC_INLINE int64_t store_set(int32_t *to, vi32 v, unsigned mask) {
  store(to, isa::compress(v, mask));
  return __builtin_popcount(mask);
}
MYCC_INLINE int64_t store_set(int64_t *to, vi64 v, unsigned mask) {
#if defined(MYCC_AVX512) || defined(MYCC_AVX2)
  constexpr unsigned half = (1u << (W / 2)) - 1;
#if defined(MYCC_AVX512)
  const auto packed = [](hi64 part, unsigned set) MYCC_INLINED {
    return MYCC_PICK((hi64)__builtin_ia32_compressdi512_mask((isa::hll)part, (isa::hll)part, (uint8_t)set),
                     (hi64)_mm512_maskz_compress_epi64((__mmask8)set, (__m512i)part));
  };
#else
  const auto packed = [](hi64 part, unsigned set) MYCC_INLINED {
    const unsigned twice = (set & 1) * 3 | (set & 2) * 6 | (set & 4) * 12 | (set & 8) * 24;
    return (hi64)isa::compress((vi32)part, twice);
  };
#endif
  const int64_t first = __builtin_popcount(mask & half);
  storage::write(to, packed(v.lo, mask & half));
  storage::write(to + first, packed(v.hi, mask >> (W / 2)));
  return first + __builtin_popcount(mask >> (W / 2));
#else
  int64_t found = 0;
  for (int i = 0; i < W; ++i) {
    to[found] = v[i];
    found += mask >> i & 1;
  }
  return found;
#endif
}

/* The same of W elements in memory, moved as they are. */
template <class T> MYCC_INLINE int64_t store_set_of(T *to, const T *from, unsigned mask) {
  if constexpr (sizeof(T) == 8) {
    return store_set((int64_t *)to, load((const int64_t *)from), mask);
  } else if constexpr (sizeof(T) == 4) {
    return store_set((int32_t *)to, load((const int32_t *)from), mask);
  } else if constexpr (sizeof(T) == 2) {
    store((int16_t *)to, isa::compress(load((const int16_t *)from), mask));
  } else {
    store((uint8_t *)to, isa::compress(load((const uint8_t *)from), mask));
  }
  return __builtin_popcount(mask);
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_VEC_COMPRESS_H */
