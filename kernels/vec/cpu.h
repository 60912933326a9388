/* cpu.h: what kernels ask of the CPU that they run on, beyond its instruction set. */
#ifndef MYCC_KERNELS_VEC_CPU_H
#define MYCC_KERNELS_VEC_CPU_H

#include <stdint.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace mycc {

#if defined(__x86_64__)
/* AMD's family 26 (Zen 5) and later ones. */
inline bool is_zen5_or_later() {
  unsigned a, b, c, d;
  if (!__get_cpuid(0, &a, &b, &c, &d) || b != 0x68747541u) return false; /* "Auth" of AuthenticAMD */
  return __get_cpuid(1, &a, &b, &c, &d) && (a >> 8 & 15) + (a >> 20 & 255) >= 26;
}

/* Whether the first cache has room for as many lines on their way from memory as the second one: Zen 4 has not, and single
 * rows of 16-bit weights fetch into its second cache (docs/decisions/0014). */
inline const bool kPrefetchesL1 = is_zen5_or_later();
#else
constexpr bool kPrefetchesL1 = false;
#endif

/* The third cache of eight Zen 5 cores. Of more than that, what the last run has read is gone when the next one begins. */

} // namespace mycc
#endif /* MYCC_KERNELS_VEC_CPU_H */
