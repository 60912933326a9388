#include "cpu.h"

#include <initializer_list>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace mycc::runtime {

#if defined(__x86_64__)

namespace {

struct Features {
  int level;  // the N of x86-64-vN
  bool vnni;  // products of bytes in registers of 256 bits, from level 3 on
  bool wide_vnni;  // in those of 512 bits, from level 4 on
  bool amx;        // in tiles, of bytes and of bfloat16, where the system saves them; and conversions to bfloat16
  bool sha;
};

// Levels from the least to the best; what a CPU runs of them is no chain: one may have the wide form of VNNI alone.
struct Level {
  const char *name;
  int level;
  bool vnni = false, wide_vnni = false, amx = false;
};
constexpr Level kLevels[] = {
    {"x86-64", 1},
    {"x86-64-v2", 2},
    {"x86-64-v3", 3},
    {"x86-64-v3+vnni", 3, true},
    {"x86-64-v4", 4},
    {"x86-64-v4+vnni", 4, false, true},
    {"x86-64-v4+amx", 4, false, true, true},
};
constexpr int kLevelCount = int(sizeof kLevels / sizeof kLevels[0]);

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
constexpr uint32_t kLeaf7EcxVnni = bits({11});                  // avx512_vnni
constexpr uint32_t kLeaf71EaxVnni = bits({4});                  // avx_vnni
constexpr uint32_t kLeaf71EaxBf16 = bits({5});                  // avx512_bf16
constexpr uint32_t kLeaf7EdxAmx = bits({22, 24, 25});           // amx_bf16, amx_tile, amx_int8
constexpr uint64_t kAvxState = 0x6, kAvx512State = 0xE6;        // registers that the system saves (XCR0)
constexpr uint64_t kTileState = 0x60000;

uint64_t saved_state() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t(high) << 32 | low;
}

Features detect() {
  uint32_t a, b, c, d, ecx1 = 0, ebx7 = 0, ecx7 = 0, edx7 = 0, eax7_1 = 0, ecx_ext = 0;
  if (__get_cpuid(1, &a, &b, &c, &d)) ecx1 = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    ebx7 = b, ecx7 = c, edx7 = d;
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) eax7_1 = a;
  }
  if (__get_cpuid(0x80000001u, &a, &b, &c, &d)) ecx_ext = c;
  auto all = [](uint32_t value, uint32_t mask) { return (value & mask) == mask; };
  Features found{1, all(eax7_1, kLeaf71EaxVnni), all(ecx7, kLeaf7EcxVnni), false,
                 all(ebx7, bits({29})) && all(ecx1, bits({9, 19}))};
  if (!all(ecx1, kLeaf1EcxV2) || !all(ecx_ext, kExtEcxV2)) return found;
  found.level = 2;
  if (!all(ecx1, kLeaf1EcxV3) || !all(ebx7, kLeaf7EbxV3) || !all(ecx_ext, kExtEcxV3)) return found;
  uint64_t saved = saved_state();
  if ((saved & kAvxState) != kAvxState) return found;
  found.level = 3;
  if (all(ebx7, kLeaf7EbxV4) && (saved & kAvx512State) == kAvx512State) found.level = 4;
  found.amx = all(edx7, kLeaf7EdxAmx) && all(eax7_1, kLeaf71EaxBf16) && (saved & kTileState) == kTileState;
  return found;
}

const Features features = detect();  // before any call: the library is still being loaded

}  // namespace

namespace {

// Linux gives tiles to processes that ask (Documentation/arch/x86/xstate.rst), all of whose threads have them then. So it is
// asked when a package is loaded that has code with tiles, and not where none has.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool runs(const Level &level) {
  return level.level <= features.level && (!level.vnni || features.vnni) && (!level.wide_vnni || features.wide_vnni) &&
         (!level.amx || (features.amx && may_use_tiles()));
}

}  // namespace

int cpu_rank(Span isa) {
  for (int i = 0; i < kLevelCount; ++i)
    if (isa == kLevels[i].name) return runs(kLevels[i]) ? i + 1 : 0;
  return 0;
}

const char *cpu_best_isa() {
  int best = kLevelCount - 1;
  while (!runs(kLevels[best])) --best;
  return kLevels[best].name;
}

bool cpu_has_sha() { return features.sha; }

#elif defined(__aarch64__)

namespace {

// Bits of AT_HWCAP (Linux, arch/arm64/include/uapi/asm/hwcap.h): atomics and asimddp, sums of products of bytes.
constexpr unsigned long kDotprod = 1ul << 8 | 1ul << 20;
const bool has_dotprod = (getauxval(AT_HWCAP) & kDotprod) == kDotprod;

}  // namespace

int cpu_rank(Span isa) {
  if (isa == "aarch64+dotprod") return has_dotprod ? 2 : 0;
  return isa == "aarch64" ? 1 : 0;  // NEON is part of every AArch64 CPU
}
const char *cpu_best_isa() { return has_dotprod ? "aarch64+dotprod" : "aarch64"; }
bool cpu_has_sha() { return false; }

#else
#error "the runtime knows x86-64 and aarch64"
#endif

}  // namespace mycc::runtime
