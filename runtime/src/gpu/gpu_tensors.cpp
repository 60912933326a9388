// gpu_tensors.cpp: where the tensors of a call on a GPU lie, and the copies between host and device.
#include "gpu_call.h"

namespace mycc::runtime {

namespace {

constexpr size_t kNowhere = SIZE_MAX;  // the tensor is where it belongs
constexpr size_t kAlignment = 16, kPlace = 256;
constexpr size_t kMaxPinned = size_t(8) << 20;  // larger copies go straight from the caller's memory

size_t placed(size_t bytes) { return (bytes + kPlace - 1) & ~(kPlace - 1); }
bool misaligned(const void *address) { return reinterpret_cast<uintptr_t>(address) % kAlignment != 0; }

}  // namespace

// Inputs on the device are read where they are; those of the host, and unaligned ones, are copied to dense_memory_.
int GpuCall::place_inputs(const Entry &entry, const mycc_tensor *inputs) {
  if (int status = measure_inputs(entry, inputs)) return status;
  dense_bytes_ = staged_bytes_ = 0;
  for (int32_t i = 0; i < entry.info->n_inputs; ++i) {
    const mycc_tensor &tensor = inputs[i];
    const bool host = is_host(tensor);
    input_places_[i] = kNowhere;
    if (!host && !is_dense(tensor))
      return fail(
          MYCC_ERROR_INPUT,
          "%s: is not dense and row-major, as a tensor on a GPU has to be\n  Make it so first: x.contiguous() in "
          "torch, cupy.ascontiguousarray(x).",
          entry.info->inputs[i].name);
    if (!host && !misaligned(tensor.data) && !(spares_inputs_ && is_written(entry, i))) continue;
    input_places_[i] = dense_bytes_;
    if (__builtin_add_overflow(dense_bytes_, placed(size_t(input_bytes_[i])), &dense_bytes_))
      return fail(MYCC_ERROR_RUN, "out of memory: copies of the inputs take %s", kTooManyBytes);
    if (host) staged_bytes_ += placed(size_t(input_bytes_[i]));
  }
  return MYCC_OK;
}

int GpuCall::place_outputs(const Entry &entry, mycc_tensor *outputs, int32_t n_outputs,
                           const mycc_run_options &options) {
  const EntryInfo &info = *entry.info;
  if (n_outputs != info.n_outputs)
    return fail(MYCC_ERROR_INPUT, "%s has %d outputs, but %d were given", info.name, info.n_outputs, n_outputs);
  bound_outputs_ = outputs, options_ = &options;
  note_new_outputs(outputs, n_outputs);
  for (int32_t i = 0; i < n_outputs; ++i) {
    outputs_on_host_ = outputs_on_host_ || (outputs[i].data && is_host(outputs[i]));
    output_places_[i] = kNowhere;
  }
  int status = place_known_outputs(entry, 0);
  if (status != MYCC_OK) free_new_outputs(outputs, n_outputs);
  return status;
}

// Those whose sizes are known when the first `known` of the computed ones are.
int GpuCall::place_known_outputs(const Entry &entry, int32_t known) {
  return each_known_output(entry, known, [&](int32_t i, const int64_t *dims) { return place_output(entry, i, dims); });
}

// The tensors that have a place in this memory.
void GpuCall::place_in(const Entry &entry, int32_t known, const DeviceMemory &memory) {
  for (int32_t i = 0; i < entry.info->n_outputs; ++i)
    if (output_places_[i] != kNowhere && known_output(entry, i) == known)
      outputs_[i] = reinterpret_cast<void *>(memory.address() + output_places_[i]);
}

int GpuCall::place_output(const Entry &entry, int32_t i, const int64_t *dims) {
  const mycc_port &port = entry.info->outputs[i];
  mycc_tensor *const outputs = bound_outputs_;
  const mycc_run_options &options = *options_;
  mycc_tensor &tensor = outputs[i];
  if (!dense_bytes(dims, port.ndim, dtype_bytes(port.dtype), &output_bytes_[i]))
    return too_large(port, dims);
  const size_t bytes = size_t(output_bytes_[i]);
  output_places_[i] = kNowhere;
  if (tensor.data) {
    if (int status = check_output(port, tensor, dims)) return status;
    if (int status = check_overlap(entry, outputs, i)) return status;
    if (!is_host(tensor) && misaligned(tensor.data))
      return fail(MYCC_ERROR_INPUT, "%s: an output on a GPU has to be aligned to 16 bytes", port.name);
  } else if (outputs_on_host_) {
    if (!allocate_output(port.dtype, dims, port.ndim, int64_t(bytes), &tensor)) return out_of_memory(bytes);
  } else {
    tensor.owner = nullptr;
    tensor.device_type = kCuda, tensor.device_id = gpu_.device->number;
    describe_output(port.dtype, dims, port.ndim, &tensor);
    if (!options.allocate) {
      if (int status = gpu_allocate_output(*gpu_.device, bytes, stream_, &tensor)) return status;
    } else if (options.allocate(options.ctx, i, &tensor) != 0 || (!tensor.data && bytes) || misaligned(tensor.data)) {
      return gpu_out_of_memory(*gpu_.device, bytes);
    }
  }
  if (is_host(tensor)) {
    output_places_[i] = dense_bytes_;
    if (__builtin_add_overflow(dense_bytes_, placed(bytes), &dense_bytes_))
      return fail(MYCC_ERROR_RUN, "out of memory: the outputs take %s", kTooManyBytes);
  }
  outputs_[i] = tensor.data;
  return MYCC_OK;
}

int GpuCall::take_memory(const Entry &entry) {
  const size_t arena = size_t(arena_bytes_);
  if (entry.computed) memset(symbols_ + entry.code->n_symbols, 0, size_t(entry.computed->n_sizes) * sizeof(int64_t));
  if (arena > arena_memory_.capacity() || dense_bytes_ > dense_memory_.capacity())
    if (int status = settle()) return status;
  if (int status = arena_memory_.reserve(*gpu_.device, arena)) return status;
  if (int status = dense_memory_.reserve(*gpu_.device, dense_bytes_)) return status;
  if (int status = take_zeros(entry)) return status;
  for (int32_t i = 0; i < entry.info->n_inputs; ++i)
    if (input_places_[i] != kNowhere) inputs_[i] = reinterpret_cast<void *>(dense_memory_.address() + input_places_[i]);
  place_in(entry, 0, dense_memory_);
  return MYCC_OK;
}

// Zeros for the sizes that are known.
int GpuCall::take_zeros(const Entry &entry) {
  const mycc_gpu_entry &gpu = gpu_.program->entries[&entry - model_.entries];
  const size_t zeros = gpu.zero_bytes ? size_t(gpu.zero_bytes(symbols_)) : 0;
  if (zeros > zeros_.capacity())
    if (int status = settle()) return status;
  if (zeros > zeros_.capacity()) {
    zeros_clean_ = 0;
    if (int status = zeros_.reserve(*gpu_.device, zeros)) return status;
  }
  if (zeros > zeros_clean_) {
    cuda::Result result = api_.clear(zeros_.address(), 0, zeros_.capacity(), stream_);
    if (result != cuda::kSuccess) return gpu_fail(MYCC_ERROR_RUN, result, "%s: its zeros", entry.info->name);
    zeros_clean_ = zeros_.capacity();
  }
  return MYCC_OK;
}

// Pinned host memory; NULL: too much for it, or none is left.
uint8_t *GpuCall::staging(size_t bytes) {
  if (bytes > kMaxPinned) return nullptr;
  if (bytes > pinned_bytes_) {
    if (pinned_) api_.host_release(pinned_);
    size_t room = bytes < 65536 ? 65536 : bytes;
    if (api_.host_allocate(&pinned_, room, 0) != cuda::kSuccess) pinned_ = nullptr;
    pinned_bytes_ = pinned_ ? room : 0;
  }
  return static_cast<uint8_t *>(pinned_);
}

// A call that does not wait for its end must leave the staging memory alone: then the driver copies from the caller's.
int GpuCall::copy_inputs(const Entry &entry, const mycc_tensor *inputs) {
  copies_ = false;
  const bool stages = outputs_on_host_ && staged_bytes_;
  if (stages)
    if (int status = settle()) return status;
  uint8_t *stage = stages ? staging(dense_bytes_) : nullptr;
  for (int32_t i = 0; i < entry.info->n_inputs; ++i) {
    const size_t bytes = size_t(input_bytes_[i]);
    if (input_places_[i] == kNowhere || bytes == 0) continue;
    const mycc_tensor &tensor = inputs[i];
    const cuda::Address target = dense_memory_.address() + input_places_[i];
    cuda::Result result;
    copies_ = true;
    if (!is_host(tensor)) {
      result = api_.copy_within(target, reinterpret_cast<cuda::Address>(tensor.data), bytes, stream_);
    } else if (is_dense(tensor) && !stage) {
      result = api_.copy_in(target, tensor.data, bytes, stream_);
      // from pinned memory the copy may still be to come
      if (result == cuda::kSuccess && tensor.device_type != kCpu) result = api_.stream_synchronize(stream_);
    } else if (stage) {
      copy_dense(tensor, stage);
      result = api_.copy_in(target, stage, bytes, stream_);
      stage += placed(bytes);
    } else {
      uint8_t *dense = dense_.reserve(bytes);
      if (!dense) return out_of_memory(bytes);
      copy_dense(tensor, dense);
      result = api_.copy_in(target, dense, bytes, stream_);
      if (result == cuda::kSuccess) result = api_.stream_synchronize(stream_);
    }
    if (result != cuda::kSuccess)
      return gpu_fail(MYCC_ERROR_RUN, result, "%s: does not get to cuda:%d", entry.info->inputs[i].name,
                      gpu_.device->number);
  }
  return MYCC_OK;
}

// Waits for the call, and brings what belongs to the host: to pinned memory at once, else through a stage.
int GpuCall::copy_outputs(const Entry &entry, mycc_tensor *outputs) {
  const auto staged = [&](int32_t i) {
    return output_places_[i] != kNowhere && output_bytes_[i] != 0 && outputs[i].device_type == kCpu;
  };
  size_t total = 0;
  for (int32_t i = 0; i < entry.info->n_outputs; ++i)
    if (staged(i)) total += placed(size_t(output_bytes_[i]));
  uint8_t *stage = total ? staging(total) : nullptr, *at = stage;
  cuda::Result result = cuda::kSuccess;
  for (int32_t i = 0; i < entry.info->n_outputs && result == cuda::kSuccess; ++i) {
    const size_t bytes = size_t(output_bytes_[i]);
    if (output_places_[i] == kNowhere || bytes == 0) continue;
    const bool through = stage && staged(i);
    const auto source = reinterpret_cast<cuda::Address>(outputs_[i]);
    result = api_.copy_out(through ? at : outputs[i].data, source, bytes, stream_);
    at += through ? placed(bytes) : 0;
  }
  if (result == cuda::kSuccess) result = api_.stream_synchronize(stream_);
  if (result != cuda::kSuccess)
    return gpu_fail(MYCC_ERROR_RUN, result, "%s: a kernel, or the copy of its outputs", entry.info->name);
  at = stage;
  for (int32_t i = 0; i < entry.info->n_outputs && stage; ++i) {
    if (!staged(i)) continue;
    memcpy(outputs[i].data, at, size_t(output_bytes_[i]));
    at += placed(size_t(output_bytes_[i]));
  }
  return MYCC_OK;
}

}  // namespace mycc::runtime
