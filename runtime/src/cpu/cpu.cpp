#include "cpu.h"

#include <initializer_list>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace mycc::runtime {

#if defined(__x86_64__)

namespace {

struct Features {
  int level;  // the N of x86-64-vN
  bool sha;
};

constexpr uint32_t bits(std::initializer_list<int> positions) {
  uint32_t mask = 0;
  for (int position : positions) mask |= 1u << position;
  return mask;
}

// Bits of CPUID by level (x86-64 psABI, "Micro-Architecture Levels").
constexpr uint32_t kLeaf1EcxV2 = bits({0, 9, 13, 19, 20, 23});  // sse3 ssse3 cx16 sse4.1 sse4.2 popcnt
constexpr uint32_t kExtEcxV2 = bits({0});                       // lahf
constexpr uint32_t kLeaf1EcxV3 = bits({12, 22, 27, 28, 29});    // fma movbe osxsave avx f16c
constexpr uint32_t kLeaf7EbxV3 = bits({3, 5, 8});               // bmi1 avx2 bmi2
constexpr uint32_t kExtEcxV3 = bits({5});                       // lzcnt
constexpr uint32_t kLeaf7EbxV4 = bits({16, 17, 28, 30, 31});    // avx512 f dq cd bw vl
constexpr uint64_t kAvxState = 0x6, kAvx512State = 0xE6;        // registers that the system saves (XCR0)

uint64_t saved_state() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t(high) << 32 | low;
}

Features detect() {
  uint32_t a, b, c, d, ecx1 = 0, ebx7 = 0, ecx_ext = 0;
  if (__get_cpuid(1, &a, &b, &c, &d)) ecx1 = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) ebx7 = b;
  if (__get_cpuid(0x80000001u, &a, &b, &c, &d)) ecx_ext = c;
  auto all = [](uint32_t value, uint32_t mask) { return (value & mask) == mask; };
  Features found{1, all(ebx7, bits({29})) && all(ecx1, bits({9, 19}))};
  if (!all(ecx1, kLeaf1EcxV2) || !all(ecx_ext, kExtEcxV2)) return found;
  found.level = 2;
  if (!all(ecx1, kLeaf1EcxV3) || !all(ebx7, kLeaf7EbxV3) || !all(ecx_ext, kExtEcxV3)) return found;
  uint64_t saved = saved_state();
  if ((saved & kAvxState) != kAvxState) return found;
  found.level = 3;
  if (all(ebx7, kLeaf7EbxV4) && (saved & kAvx512State) == kAvx512State) found.level = 4;
  return found;
}

const Features features = detect();  // before any call: the library is still being loaded

}  // namespace

int cpu_rank(Span isa) {
  static const char *const names[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
  for (int level = 1; level <= features.level; ++level)
    if (isa == names[level - 1]) return level;
  return 0;
}

const char *cpu_best_isa() {
  static const char *const names[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
  return names[features.level - 1];
}

bool cpu_has_sha() { return features.sha; }

#elif defined(__aarch64__)

int cpu_rank(Span isa) { return isa == "aarch64" ? 1 : 0; }  // NEON is part of every AArch64 CPU
const char *cpu_best_isa() { return "aarch64"; }
bool cpu_has_sha() { return false; }

#else
#error "the runtime knows x86-64 and aarch64"
#endif

}  // namespace mycc::runtime
