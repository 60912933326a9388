// cpu.h: which instruction sets this CPU runs, in the words of the targets.
#pragma once

#include "../base/memory.h"

namespace mycc::runtime {

// How good an ISA level ("x86-64-v3", "aarch64") is on this CPU; 0: it does not run here.
int cpu_rank(Span isa);

// The best level that this CPU runs: "x86-64-v3".
const char *cpu_best_isa();

bool cpu_has_sha();

}  // namespace mycc::runtime
