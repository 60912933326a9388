// extent.h: the memory that a tensor covers, for what must not lie over something else.
#pragma once
#include <stdint.h>

#include "mycc/tensor.h"

namespace mycc::runtime {

struct Extent {
  uintptr_t begin, end;
};

// The memory from a tensor's first byte to the one behind its last.
inline Extent extent_of(const mycc_tensor &tensor) {
  const int64_t element = tensor.dtype.bits / 8;
  const uintptr_t at = reinterpret_cast<uintptr_t>(tensor.data);
  int64_t low = 0, high = element;
  for (int32_t d = 0; d < tensor.ndim; ++d) {
    if (tensor.shape[d] == 0) return {at, at};
    int64_t reach, &end = tensor.strides[d] < 0 ? low : high;
    if (__builtin_mul_overflow(tensor.shape[d] - 1, tensor.strides[d], &reach) ||
        __builtin_mul_overflow(reach, element, &reach) || __builtin_add_overflow(end, reach, &end))
      return {0, UINTPTR_MAX};  // no memory is that large: whatever the caller means, it lies over the others
  }
  return {at + uintptr_t(low), at + uintptr_t(high)};
}

// Whether many elements are one in memory, as torch.expand makes it.
inline bool is_expanded(const mycc_tensor &tensor) {
  bool found = false;
  for (int32_t d = 0; d < tensor.ndim; ++d) {
    if (tensor.shape[d] == 0) return false;
    found |= tensor.shape[d] > 1 && tensor.strides[d] == 0;
  }
  return found;
}

inline bool overlap(const Extent &a, const Extent &b) { return a.begin < b.end && b.begin < a.end; }

}  // namespace mycc::runtime
