// planner.h: where the buffers of one run lie in the arena.
#pragma once

#include <stdint.h>

#include "mycc/abi.h"

namespace mycc::runtime {

// The order of buffers that gave the plan of the latest search, for these buffers with other sizes.
struct PlanOrder {
  int32_t *order;       // room for n numbers of buffers
  int64_t arena, live;  // of that plan
  int32_t searches;     // until now, 0 at first; after many, each takes a single round
};

// Places n buffers so that those alive at the same time do not overlap. sizes: bytes, multiples of 64. Fills offsets
// (multiples of 64), the arena's size, and the largest sum of live bytes over the kernels, which no plan can beat.
//
// Greedy: one buffer after the other goes into the smallest gap between those of overlapping lifetime that holds it, or
// behind them. Tried in three orders, the best plan wins: by size (Pisarchyk and Lee, "Efficient Memory Management for
// Deep Neural Net Inference", 2020), by first use, and by the live bytes of the fullest kernel that uses the buffer.
// While a plan is larger than the live bytes, the buffers at its top go first and it is made again, a few times.
// False: out of memory.
//
// The search takes milliseconds for hundreds of buffers. `known` shortens it for an entry point whose sizes change from
// call to call: the buffers are placed in the order of an earlier plan first. That plan is taken when the ratio of its
// arena to its live bytes is at most 1/64 above the earlier ratio. An earlier ratio above 9/8 does not count for sizes
// that take more than twice the memory.
bool plan_memory(const mycc_buffer *buffers, const int64_t *sizes, int32_t n, int32_t n_kernels, int64_t *offsets,
                 int64_t *arena, int64_t *live, PlanOrder &known);

}  // namespace mycc::runtime
