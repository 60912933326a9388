#include "device_logits.h"

#include "../base/memory.h"

namespace mycc::runtime {
namespace {

constexpr int64_t kAlignment = 16 / sizeof(float);  // of an output on a GPU, in elements

}  // namespace

void DeviceLogits::release() {
  const GpuModel *gpu = gpu_;
  gpu_ = nullptr;
  if (!gpu || gpu_forked()) return;
  gpu_release_host_memory(*gpu, tokens_);
  const CurrentDevice current(*gpu->device);
  if (stream_) gpu->api->stream_destroy(stream_);
  memory_.release();
}

int DeviceLogits::init(const GpuModel &gpu, int64_t texts, int64_t vocabulary, bool keep, int64_t candidates) {
  gpu_ = &gpu, texts_ = texts, vocabulary_ = vocabulary;
  candidates_ = (candidates + 1) / 2 * 2;
  stride_ = (vocabulary + kAlignment - 1) / kAlignment * kAlignment;
  const CurrentDevice current(*gpu.device);
  if (current.status()) return current.status();
  const cuda::Result result = gpu.api->stream_create(&stream_, cuda::kStreamNonBlocking);
  if (result != cuda::kSuccess) return gpu_fail(MYCC_ERROR_RUN, result, "a stream for text generation");
  if (!keep) return MYCC_OK;
  if (int status = memory_.reserve(*gpu.device, size_t(2 * texts * stride_) * sizeof(float))) return status;
  const size_t row = sizeof(int64_t) + size_t(candidates_) * (sizeof(int64_t) + sizeof(float));
  tokens_ = static_cast<int64_t *>(gpu_host_memory(gpu, size_t(rows()) * row));
  return tokens_ ? int(MYCC_OK) : out_of_memory(size_t(rows()) * row);
}

int DeviceLogits::fetch(const float *row, float *logits) const {
  const CurrentDevice current(*gpu_->device);
  if (current.status()) return current.status();
  const cuda::Api &api = *gpu_->api;
  cuda::Result result = api.copy_out(logits, cuda::Address(row), size_t(vocabulary_) * sizeof(float), stream_);
  if (result == cuda::kSuccess) result = api.stream_synchronize(stream_);
  return result == cuda::kSuccess ? int(MYCC_OK) : gpu_fail(MYCC_ERROR_RUN, result, "logits of a text");
}

}  // namespace mycc::runtime
