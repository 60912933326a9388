// device_logits.h: memory of a GPU for the logits of a step's calls, and for the tokens that the device chooses from them.
#pragma once

#include "../gpu/gpu_model.h"

namespace mycc::runtime {

// Calls write their logits here and return while the device works. The tokens get to the host; the logits stay.
class DeviceLogits {
 public:
  DeviceLogits() = default;
  DeviceLogits(const DeviceLogits &) = delete;
  DeviceLogits &operator=(const DeviceLogits &) = delete;
  ~DeviceLogits() { release(); }

  // texts: rows of a step, and pieces of prompts in one. keep: logits stay on the device; else it has a stream alone.
  int init(const GpuModel &gpu, int64_t texts, int64_t vocabulary, bool keep);
  void release();  // while the model lives
  cuda::Stream stream() const { return stream_; }  // of all calls of a generator, so that they share one set of buffers
  int32_t device() const { return gpu_->device->number; }

  // Aligned as an output on a GPU has to be: the logits of a piece, or of all rows of a step.
  float *piece(int64_t i) const { return at(i * stride_); }
  float *step() const { return at(texts_ * stride_); }
  // Whether the pieces lie one behind the other.
  bool dense() const { return stride_ == vocabulary_; }
  int64_t *tokens() const { return tokens_; }  // pinned; room for `texts`

 private:
  float *at(int64_t element) const { return reinterpret_cast<float *>(memory_.address()) + element; }

  const GpuModel *gpu_ = nullptr;
  cuda::Stream stream_ = nullptr;
  DeviceMemory memory_;
  int64_t texts_ = 0, vocabulary_ = 0, stride_ = 0;
  int64_t *tokens_ = nullptr;
};

}  // namespace mycc::runtime
