#include "tensor.h"

#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "../package/manifest.h"
#include "../base/os.h"

namespace mycc::runtime {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kPagesFrom = size_t(32) << 20;  // beyond this malloc takes fresh pages anyway: huge ones are faster
constexpr int64_t kTile = 16;

// A strided source seen as few dimensions as possible: sizes of 1 are gone, neighbours that lie together are one.
struct View {
  int32_t rank = 0;
  int64_t shape[MYCC_MAX_RANK], strides[MYCC_MAX_RANK];  // strides in bytes

  explicit View(const mycc_tensor &tensor) {
    int64_t element = int64_t(dtype_bytes(tensor.dtype));
    for (int32_t d = 0; d < tensor.ndim; ++d) {
      int64_t size = tensor.shape[d], stride = tensor.strides[d] * element;
      if (size == 1) continue;
      if (rank && strides[rank - 1] == size * stride) {
        shape[rank - 1] *= size, strides[rank - 1] = stride;
      } else {
        shape[rank] = size, strides[rank++] = stride;
      }
    }
  }
};

template <class T>
T read(const uint8_t *p) {  // the source need not be aligned
  T value;
  memcpy(&value, p, sizeof value);
  return value;
}

struct Wide {
  uint64_t low, high;
};

// The last dimension is dense in the target; `across` is the one that is dense in the source, when there is one.
template <class T>
class Copier {
 public:
  Copier(const View &view, const uint8_t *source, uint8_t *target) : view_(view), source_(source), target_(target) {
    int64_t step = sizeof(T);
    for (int32_t d = view.rank; d-- > 0;) {
      steps_[d] = step;
      step *= view.shape[d];
      if (view.strides[d] == int64_t(sizeof(T))) across_ = d;
    }
  }
  void copy() { copy(0, source_, target_); }

 private:
  void copy(int32_t d, const uint8_t *source, uint8_t *target) {
    int32_t last = view_.rank - 1;
    if (d > last) {
      memcpy(target, source, sizeof(T));
    } else if (d == last) {
      copy_row(source, target);
    } else if (d == across_) {  // the dimensions between are walked inside
      copy_between(d + 1, source, target);
    } else {
      for (int64_t i = 0; i < view_.shape[d]; ++i) copy(d + 1, source + i * view_.strides[d], target + i * steps_[d]);
    }
  }

  void copy_row(const uint8_t *source, uint8_t *target) {
    int64_t size = view_.shape[view_.rank - 1], stride = view_.strides[view_.rank - 1];
    if (stride == int64_t(sizeof(T))) {
      memcpy(target, source, size_t(size) * sizeof(T));
    } else {
      T *out = reinterpret_cast<T *>(target);
      for (int64_t i = 0; i < size; ++i) out[i] = read<T>(source + i * stride);
    }
  }

  void copy_between(int32_t d, const uint8_t *source, uint8_t *target) {
    if (d == view_.rank - 1) return transpose(source, target);
    for (int64_t i = 0; i < view_.shape[d]; ++i)
      copy_between(d + 1, source + i * view_.strides[d], target + i * steps_[d]);
  }

  // Tiles, so that the lines of both sides are used up while they are in the cache.
  void transpose(const uint8_t *source, uint8_t *target) {
    int32_t last = view_.rank - 1;
    int64_t rows = view_.shape[across_], columns = view_.shape[last];
    int64_t row_step = steps_[across_], stride = view_.strides[last];
    for (int64_t r = 0; r < rows; r += kTile) {
      for (int64_t c = 0; c < columns; c += kTile) {
        int64_t r_end = r + kTile < rows ? r + kTile : rows, c_end = c + kTile < columns ? c + kTile : columns;
        for (int64_t i = r; i < r_end; ++i) {
          T *out = reinterpret_cast<T *>(target + i * row_step);
          for (int64_t j = c; j < c_end; ++j) out[j] = read<T>(source + i * int64_t(sizeof(T)) + j * stride);
        }
      }
    }
  }

  const View &view_;
  const uint8_t *source_;
  uint8_t *target_;
  int64_t steps_[MYCC_MAX_RANK];
  int32_t across_ = -1;
};

template <class T>
void copy_as(const mycc_tensor &tensor, void *target) {
  View view(tensor);
  Copier<T>(view, static_cast<const uint8_t *>(tensor.data), static_cast<uint8_t *>(target)).copy();
}

}  // namespace

bool dense_bytes(const int64_t *shape, int32_t rank, size_t element, int64_t *bytes) {
  int64_t total = int64_t(element);
  bool empty = false;
  for (int32_t d = 0; d < rank; ++d) {
    if (shape[d] < 0) return false;
    empty = empty || shape[d] == 0;
    if (!empty && __builtin_mul_overflow(total, shape[d], &total)) return false;
  }
  *bytes = empty ? 0 : total;
  return true;
}

bool is_dense(const mycc_tensor &tensor) {
  int64_t step = 1;
  for (int32_t d = tensor.ndim; d-- > 0;) {
    if (tensor.shape[d] == 0) return true;
    if (tensor.shape[d] != 1 && tensor.strides[d] != step) {
      for (int32_t rest = d; rest-- > 0;)
        if (tensor.shape[rest] == 0) return true;
      return false;
    }
    step *= tensor.shape[d];
  }
  return true;
}

bool is_aligned(const mycc_tensor &tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data) % dtype_bytes(tensor.dtype) == 0;
}

void copy_dense(const mycc_tensor &tensor, void *target) {
  for (int32_t d = 0; d < tensor.ndim; ++d)
    if (tensor.shape[d] == 0) return;
  switch (dtype_bytes(tensor.dtype)) {
    case 1:
      return copy_as<uint8_t>(tensor, target);
    case 2:
      return copy_as<uint16_t>(tensor, target);
    case 4:
      return copy_as<uint32_t>(tensor, target);
    case 8:
      return copy_as<uint64_t>(tensor, target);
    default:
      return copy_as<Wide>(tensor, target);
  }
}

bool has_other_bytes(const void *bools, size_t count) {
  const uint8_t *bytes = static_cast<const uint8_t *>(bools);
  uint8_t all = 0;
  for (size_t i = 0; i < count; ++i) all |= bytes[i];
  return all > 1;
}

void make_bools(void *bools, size_t count) {
  uint8_t *bytes = static_cast<uint8_t *>(bools);
  for (size_t i = 0; i < count; ++i) bytes[i] = bytes[i] != 0;
}

void copy_strided(const void *source, const mycc_tensor &tensor) {
  const size_t element = dtype_bytes(tensor.dtype);
  int64_t at[MYCC_MAX_RANK] = {0};
  for (int32_t d = 0; d < tensor.ndim; ++d)
    if (tensor.shape[d] == 0) return;
  const uint8_t *next = static_cast<const uint8_t *>(source);
  for (int32_t d = 0; d >= 0;) {
    int64_t offset = 0;
    for (int32_t i = 0; i < tensor.ndim; ++i) offset += at[i] * tensor.strides[i];
    memcpy(static_cast<uint8_t *>(tensor.data) + offset * int64_t(element), next, element);
    next += element;
    for (d = tensor.ndim - 1; d >= 0 && ++at[d] == tensor.shape[d]; --d) at[d] = 0;
  }
}

bool allocate_output(mycc_dtype dtype, const int64_t *shape, int32_t rank, int64_t bytes, mycc_tensor *tensor) {
  size_t mapped, room = (size_t(bytes) + kAlignment - 1) & ~(kAlignment - 1);  // kernels may write whole lines
  void *block = allocate_block(sizeof(OutputHeader) + room, &mapped);
  if (!block) return false;
  OutputHeader *header = static_cast<OutputHeader *>(block);
  header->mapped = mapped;
  header->release = nullptr;
  tensor->data = header + 1;
  tensor->device_type = kCpu;
  tensor->device_id = 0;
  tensor->owner = header;
  describe_output(dtype, shape, rank, tensor);
  return true;
}

void describe_output(mycc_dtype dtype, const int64_t *shape, int32_t rank, mycc_tensor *tensor) {
  tensor->ndim = rank;
  tensor->dtype = dtype;
  int64_t step = 1;
  for (int32_t d = rank; d-- > 0;) {
    tensor->shape[d] = shape[d], tensor->strides[d] = step;
    step *= shape[d] > 0 ? shape[d] : 1;
  }
}

void free_output(mycc_tensor *tensor) {
  if (!tensor->owner) return;
  OutputHeader *header = static_cast<OutputHeader *>(tensor->owner);
  if (header->release)
    header->release(header);
  else
    release_block(header, header->mapped);
  tensor->owner = nullptr;
  tensor->data = nullptr;
}

uint8_t *Memory::reserve(size_t bytes) {
  if (bytes <= capacity_ && data_) return data_;
  release();
  size_t room = bytes < kAlignment ? kAlignment : bytes;
  void *data = nullptr;
  if (room >= kPagesFrom)
    data = map_pages(room);
  else if (posix_memalign(&data, kAlignment, room) != 0)
    data = nullptr;
  data_ = static_cast<uint8_t *>(data);
  capacity_ = data_ ? room : 0;
  return data_;
}

void Memory::release() {
  if (capacity_ >= kPagesFrom)
    unmap_pages(data_, capacity_);
  else
    free(data_);
  data_ = nullptr;
  capacity_ = 0;
}

}  // namespace mycc::runtime
