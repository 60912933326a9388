// planner.h: where the buffers of one run lie in the arena.
#pragma once

#include <stdint.h>

#include "mycc/abi.h"

namespace mycc::runtime {

// Places n buffers so that those alive at the same time do not overlap. sizes: bytes, multiples of 64. Fills offsets
// (multiples of 64), the arena's size, and the largest sum of live bytes over the kernels, which no plan can beat.
//
// Greedy: one buffer after the other goes into the smallest gap between those of overlapping lifetime that holds it, or
// behind them. Tried in three orders, the best plan wins: by size (Pisarchyk and Lee, "Efficient Memory Management for
// Deep Neural Net Inference", 2020), by first use, and by the live bytes of the fullest kernel that uses the buffer.
// While a plan is larger than the live bytes, the buffers at its top go first and it is made again, a few times.
// False: out of memory.
bool plan_memory(const mycc_buffer *buffers, const int64_t *sizes, int32_t n, int32_t n_kernels, int64_t *offsets,
                 int64_t *arena, int64_t *live);

}  // namespace mycc::runtime
