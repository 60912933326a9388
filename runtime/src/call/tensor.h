// tensor.h: memory of tensors: dense or strided, copied, allocated.
#pragma once

#include <stddef.h>

#include "mycc/model.h"

namespace mycc::runtime {

// DLPack's devices: the CPU, CUDA, and those whose memory the CPU reads too.
constexpr int32_t kCpu = 1, kCuda = 2, kPinnedCuda = 3, kPinnedRocm = 11, kManagedCuda = 13;
inline bool is_host(const mycc_tensor &tensor) {
  return tensor.device_type == kCpu || tensor.device_type == kPinnedCuda || tensor.device_type == kPinnedRocm;
}

// Bytes of a dense tensor; false when they do not fit into 63 bits.
bool dense_bytes(const int64_t *shape, int32_t rank, size_t element, int64_t *bytes);

// Whether the elements lie row-major without holes, and every element at a multiple of its size.
bool is_dense(const mycc_tensor &tensor);
bool is_aligned(const mycc_tensor &tensor);

// Writes the elements row-major and dense to `target`.
void copy_dense(const mycc_tensor &tensor, void *target);

// Whether a dense tensor of bools has bytes other than 0 and 1; and makes such bytes 1.
bool has_other_bytes(const void *bools, size_t count);
void make_bools(void *bools, size_t count);

// Writes dense elements at `source` to the places of the tensor.
void copy_strided(const void *source, const mycc_tensor &tensor);

// A dense output of the runtime; data is aligned to 64. False: out of memory.
bool allocate_output(mycc_dtype dtype, const int64_t *shape, int32_t rank, int64_t bytes, mycc_tensor *tensor);
void free_output(mycc_tensor *tensor);

// What the owner of an output points to. release: of memory that lies elsewhere; NULL: it lies behind this.
struct alignas(64) OutputHeader {
  size_t mapped;  // bytes of pages; 0: memory of malloc
  void (*release)(OutputHeader *header);
};
void describe_output(mycc_dtype dtype, const int64_t *shape, int32_t rank, mycc_tensor *tensor);

// Memory that grows when more is asked for, aligned to 64; its contents do not survive growing.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  ~Memory() { release(); }

  // At least `bytes`; NULL: out of memory.
  uint8_t *reserve(size_t bytes);
  void release();
  size_t capacity() const { return capacity_; }

 private:
  uint8_t *data_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace mycc::runtime
