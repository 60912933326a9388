// device_logits.h: memory of a GPU for the logits of a step's calls, and of the host for what the device chooses by them.
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
  // candidates: likeliest tokens that the device gives of a row.
  int init(const GpuModel &gpu, int64_t texts, int64_t vocabulary, bool keep, int64_t candidates);
  void release();  // while the model lives
  cuda::Stream stream() const { return stream_; }  // of all calls of a generator, so that they share one set of buffers
  int32_t device() const { return gpu_->device->number; }

  // Aligned as an output on a GPU has to be: the logits of a piece, or of all rows of a step.
  float *piece(int64_t i) const { return at(i * stride_); }
  float *step() const { return at(texts_ * stride_); }
  // Whether the pieces lie one behind the other.
  bool dense() const { return stride_ == vocabulary_; }
  // Pinned memory of the host, for `texts` rows each.
  int64_t *tokens() const { return tokens_; }
  int64_t *candidates() const { return tokens_ + rows(); }
  float *values() const { return reinterpret_cast<float *>(candidates() + rows() * candidates_); }
  // The logits of a row, which lie on the device, to the host. Waits for the calls that gave them.
  int fetch(const float *row, float *logits) const;

 private:
  int64_t rows() const { return (texts_ + 1) / 2 * 2; }  // so that all of these begin at 16 bytes
  float *at(int64_t element) const { return reinterpret_cast<float *>(memory_.address()) + element; }

  const GpuModel *gpu_ = nullptr;
  cuda::Stream stream_ = nullptr;
  DeviceMemory memory_;
  int64_t texts_ = 0, vocabulary_ = 0, stride_ = 0, candidates_ = 0;
  int64_t *tokens_ = nullptr;
};

}  // namespace mycc::runtime
