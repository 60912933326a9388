// gpu_memory.cpp: outputs that the runtime allocates on a device, and copies to and from it.

#include "gpu_call.h"

namespace mycc::runtime {

namespace {

struct GpuOutput {
  OutputHeader header;
  GpuDevice *device;
  cuda::Address address;
  cuda::Event written;
  bool pooled;
};

void release_output(OutputHeader *header);

GpuOutput *output_of(const mycc_tensor &tensor) {
  OutputHeader *header = static_cast<OutputHeader *>(tensor.owner);
  return header && header->release == release_output ? reinterpret_cast<GpuOutput *>(header) : nullptr;
}

// Given back when the work that wrote it is done, and with it what the default stream and those that wait for it have
// been asked to do until now. Whoever reads it on another stream has to wait for that before it drops the tensor.
void release_output(OutputHeader *header) {
  GpuOutput *output = reinterpret_cast<GpuOutput *>(header);
  if (!gpu_forked()) {
    const cuda::Api &api = *gpu_driver();
    GpuDevice &device = *output->device;
    CurrentDevice current(device);
    bool pooled = output->pooled && api.stream_wait(device.reclaim, output->written, 0) == cuda::kSuccess &&
                  api.event_record(output->written, nullptr) == cuda::kSuccess &&
                  api.stream_wait(device.reclaim, output->written, 0) == cuda::kSuccess &&
                  api.pool_release(output->address, device.reclaim) == cuda::kSuccess;
    if (!pooled) api.release(output->address);
    api.event_destroy(output->written);
  }
  free(output);
}

}  // namespace

int gpu_allocate_output(GpuDevice &device, size_t bytes, cuda::Stream stream, mycc_tensor *tensor) {
  const cuda::Api &api = *gpu_driver();
  void *memory = nullptr;
  if (posix_memalign(&memory, alignof(GpuOutput), sizeof(GpuOutput)) != 0) return out_of_memory(sizeof(GpuOutput));
  GpuOutput *output = new (memory) GpuOutput{{0, release_output}, &device, 0, nullptr, device.pool != nullptr};
  cuda::Result result = api.event_create(&output->written, cuda::kEventNoTiming);
  if (result == cuda::kSuccess) {
    const size_t room = bytes ? bytes : 1;
    result = output->pooled ? api.pool_allocate(&output->address, room, device.pool, stream)
                            : api.allocate(&output->address, room);
    if (result != cuda::kSuccess) api.event_destroy(output->written);
  }
  if (result != cuda::kSuccess) {
    free(memory);
    if (result == cuda::kOutOfMemory) return gpu_out_of_memory(device, bytes);
    return gpu_fail(MYCC_ERROR_RUN, result, "no memory of cuda:%d for an output", device.number);
  }
  tensor->data = reinterpret_cast<void *>(output->address);
  tensor->device_type = kCuda;
  tensor->device_id = device.number;
  tensor->owner = output;
  return MYCC_OK;
}

int gpu_output_written(const mycc_tensor &tensor, cuda::Stream stream) {
  GpuOutput *output = output_of(tensor);
  if (!output) return MYCC_OK;
  cuda::Result result = gpu_driver()->event_record(output->written, stream);
  return result == cuda::kSuccess ? int(MYCC_OK) : gpu_fail(MYCC_ERROR_RUN, result, "an event of an output");
}

int gpu_tensor_wait(const mycc_tensor &tensor, cuda::Stream stream) {
  GpuOutput *output = output_of(tensor);
  if (!output) return MYCC_OK;
  if (int status = gpu_usable()) return status;
  CurrentDevice current(*output->device);
  if (current.status()) return current.status();
  cuda::Result result = gpu_driver()->stream_wait(stream, output->written, 0);
  return result == cuda::kSuccess ? int(MYCC_OK) : gpu_fail(MYCC_ERROR_RUN, result, "the stream cannot wait");
}

namespace {

// A tensor of the caller, before anything of it is read.
int check_given(const mycc_tensor &tensor, int64_t *bytes) {
  if (tensor.ndim < 0 || tensor.ndim > MYCC_MAX_RANK)
    return fail(MYCC_ERROR_INPUT, "the tensor has %d dimensions; there may be %d", tensor.ndim, MYCC_MAX_RANK);
  if ((tensor.dtype.bits & (tensor.dtype.bits - 1)) || tensor.dtype.bits < 8 ||
      tensor.dtype.bits > 128 || tensor.dtype.lanes > 1)
    return fail(MYCC_ERROR_INPUT, "the tensor has elements of %d bits", tensor.dtype.bits);
  if (!dense_bytes(tensor.shape, tensor.ndim, dtype_bytes(tensor.dtype), bytes))
    return fail(MYCC_ERROR_INPUT, "the tensor has a negative size, or takes %s", kTooManyBytes);
  if (*bytes && !tensor.data) return fail(MYCC_ERROR_INPUT, "the tensor has no data");
  return MYCC_OK;
}

}  // namespace

int gpu_tensor_to_device(mycc_model &model, const mycc_tensor &source, mycc_tensor *target) {
  int64_t bytes;
  if (int status = check_given(source, &bytes)) return status;
  if (!is_host(source) || !is_dense(source))
    return fail(MYCC_ERROR_INPUT, "only a dense tensor in host memory is copied to a device");
  if (!model.gpu) {
    if (!allocate_output(source.dtype, source.shape, source.ndim, bytes, target)) return out_of_memory(size_t(bytes));
    copy_dense(source, target->data);
    return MYCC_OK;
  }
  if (int status = gpu_usable()) return status;
  GpuDevice &device = *model.gpu->device;
  CurrentDevice current(device);
  if (current.status()) return current.status();
  if (int status = gpu_allocate_output(device, size_t(bytes), nullptr, target)) return status;
  describe_output(source.dtype, source.shape, source.ndim, target);
  const cuda::Api &api = *gpu_driver();
  cuda::Result result = cuda::kSuccess;
  if (bytes) result = api.copy_in(reinterpret_cast<cuda::Address>(target->data), source.data, size_t(bytes), nullptr);
  if (result == cuda::kSuccess) result = api.stream_synchronize(nullptr);
  if (result == cuda::kSuccess) return gpu_output_written(*target, nullptr);
  free_output(target);
  return gpu_fail(MYCC_ERROR_RUN, result, "a tensor does not get to cuda:%d", device.number);
}

int gpu_tensor_to_host(const mycc_tensor &source, void *target, size_t bytes) {
  int64_t needed;
  if (int status = check_given(source, &needed)) return status;
  if (!is_dense(source) || size_t(needed) != bytes)
    return fail(MYCC_ERROR_INPUT, "only a dense tensor is copied to the host, into memory of its size");
  if (is_host(source)) {
    copy_dense(source, target);
    return MYCC_OK;
  }
  if (source.device_type != kCuda || source.device_id < 0 || source.device_id >= gpu_count())
    return fail(MYCC_ERROR_INPUT, "the tensor is not on a device of this machine");
  if (int status = gpu_usable()) return status;
  GpuDevice &device = gpu_device(source.device_id);
  if (int status = gpu_open(device)) return status;
  CurrentDevice current(device);
  if (current.status()) return current.status();
  if (int status = gpu_tensor_wait(source, nullptr)) return status;
  const cuda::Api &api = *gpu_driver();
  cuda::Result result = cuda::kSuccess;
  if (bytes) result = api.copy_out(target, reinterpret_cast<cuda::Address>(source.data), bytes, nullptr);
  if (result == cuda::kSuccess) result = api.stream_synchronize(nullptr);
  if (result == cuda::kSuccess) return MYCC_OK;
  return gpu_fail(MYCC_ERROR_RUN, result, "a tensor does not get from cuda:%d", device.number);
}

int gpu_copy_speed(GpuDevice &device, size_t bytes, double *bytes_per_second) {
  constexpr int kCopies = 10;
  if (int status = gpu_usable()) return status;
  if (int status = gpu_open(device)) return status;
  CurrentDevice current(device);
  if (current.status()) return current.status();
  const cuda::Api &api = *gpu_driver();
  DeviceMemory memory;
  if (int status = memory.reserve(device, 2 * bytes)) return status;
  cuda::Event begin = nullptr, end = nullptr;
  float milliseconds = 0;
  cuda::Result result = api.event_create(&begin, cuda::kEventDefault);
  if (result == cuda::kSuccess) result = api.event_create(&end, cuda::kEventDefault);
  for (int i = 0; i <= kCopies && result == cuda::kSuccess; ++i) {  // the first one warms up
    result = api.copy_within(memory.address() + bytes, memory.address(), bytes, nullptr);
    if (result == cuda::kSuccess && i == 0) result = api.event_record(begin, nullptr);
  }
  if (result == cuda::kSuccess) result = api.event_record(end, nullptr);
  if (result == cuda::kSuccess) result = api.event_synchronize(end);
  if (result == cuda::kSuccess) result = api.event_elapsed(&milliseconds, begin, end);
  if (begin) api.event_destroy(begin);
  if (end) api.event_destroy(end);
  memory.release();
  if (result != cuda::kSuccess) return gpu_fail(MYCC_ERROR_RUN, result, "copies on cuda:%d", device.number);
  *bytes_per_second = 2.0 * double(bytes) * kCopies / (double(milliseconds) * 1e-3);
  return MYCC_OK;
}

}  // namespace mycc::runtime
