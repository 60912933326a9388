#include "cuda_driver.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <new>

#include "../base/os.h"

namespace mycc::runtime {

namespace {

constexpr const char *kLibrary = "libcuda.so.1";
constexpr size_t kKeptInPool = size_t(256) << 20;
constexpr size_t kStep = size_t(2) << 20;  // device memory is taken in such pieces where it is much

Lock opening;
bool opened = false;
bool fork_prepared = false;
bool forked = false;
cuda::Api api;
char problem[512];
GpuDevice devices[kMaxDevices];
int32_t n_devices = 0;

__attribute__((format(printf, 1, 2))) void set_problem(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(problem, sizeof problem, format, arguments);
  va_end(arguments);
}

const char *name_of(cuda::Result result) {
  const char *name = nullptr;
  return api.error_name && api.error_name(result, &name) == cuda::kSuccess && name ? name : "an unknown error";
}

const char *text_of(cuda::Result result) {
  const char *text = nullptr;
  return api.error_text && api.error_text(result, &text) == cuda::kSuccess && text ? text : "no description";
}

const char *find_functions(const CodeImage &library) {
  const char *missing = nullptr;
#define MYCC_CUDA_FIND(name, symbol, parameters)                        \
  *reinterpret_cast<void **>(&api.name) = find_symbol(library, symbol); \
  if (!api.name && !missing) missing = symbol;
  MYCC_CUDA_FUNCTIONS(MYCC_CUDA_FIND)
#undef MYCC_CUDA_FIND
#define MYCC_CUDA_FIND(name, symbol, parameters) *reinterpret_cast<void **>(&api.name) = find_symbol(library, symbol);
  MYCC_CUDA_LATER_FUNCTIONS(MYCC_CUDA_FIND)
#undef MYCC_CUDA_FIND
  return missing;
}

void describe_device(GpuDevice *device) {
  auto attribute = [&](cuda::DeviceAttribute which) {
    int value = 0;
    return api.device_attribute(&value, which, device->handle) == cuda::kSuccess ? value : 0;
  };
  if (api.device_name(device->name, int(sizeof device->name), device->handle) != cuda::kSuccess)
    snprintf(device->name, sizeof device->name, "an unknown device");
  if (api.device_memory(&device->memory, device->handle) != cuda::kSuccess) device->memory = 0;
  device->major = attribute(cuda::kMajor), device->minor = attribute(cuda::kMinor);
  device->multiprocessors = attribute(cuda::kMultiprocessors);
  device->threads = attribute(cuda::kThreadsOfMultiprocessor);
  device->l2_bytes = attribute(cuda::kL2Bytes);
  device->shared_bytes = attribute(cuda::kSharedPerBlock);
  device->pools = attribute(cuda::kMemoryPools) != 0;
}

// The driver stays loaded: it starts threads of its own.
bool open_driver() {
  CodeImage library;
  if (!open_system_library(kLibrary, &library)) {
    set_problem("no NVIDIA driver (%s) is installed", kLibrary);
    return false;
  }
  const char *missing = find_functions(library);
  int version = 0;
  if (api.driver_version && api.driver_version(&version) == cuda::kSuccess && version < cuda::kVersionNeeded) {
    set_problem("the NVIDIA driver is too old: it has CUDA %d.%d, and 12.0 (driver 525) is the least", version / 1000,
                version % 1000 / 10);
    return false;
  }
  if (missing) {
    set_problem("the NVIDIA driver lacks %s", missing);
    return false;
  }
  cuda::Result result = api.init(0);
  int count = 0;
  if (result == cuda::kSuccess) result = api.device_count(&count);
  if (result == cuda::kNoDevice || (result == cuda::kSuccess && count == 0)) {
    set_problem("this machine has an NVIDIA driver but no device");
    return false;
  }
  if (result != cuda::kSuccess) {
    set_problem("the NVIDIA driver does not start: %s (%s)", name_of(result), text_of(result));
    return false;
  }
  for (int32_t i = 0; i < count && i < kMaxDevices; ++i) {
    GpuDevice &device = devices[n_devices];
    device.number = i;
    if (api.device_get(&device.handle, i) != cuda::kSuccess) continue;
    describe_device(&device);
    n_devices += 1;
  }
  return n_devices > 0;
}

// A pool of our own keeps what it has for the next outputs, and leaves the device's default pool to others.
void make_pool(GpuDevice *device) {
  cuda::PoolProperties wanted{};
  wanted.allocation_type = 1, wanted.location_type = 1, wanted.location = device->number;
  uint64_t kept = kKeptInPool;
  if (!device->pools || api.pool_create(&device->pool, &wanted) != cuda::kSuccess) {
    device->pool = nullptr;
    return;
  }
  api.pool_set(device->pool, cuda::kPoolReleaseThreshold, &kept);
}

void after_fork_in_child() {
  new (&opening) Lock();  // another thread may have held it
  forked = opened && n_devices > 0;
  opened = forked;  // what was not found may be asked for again
}

}  // namespace

const cuda::Api *gpu_driver() {
  Locked locked(opening);
  if (!fork_prepared) at_fork(nullptr, nullptr, after_fork_in_child);
  fork_prepared = true;
  if (!opened) {
    opened = true;
    open_driver();
  }
  return n_devices ? &api : nullptr;
}

const char *gpu_problem() { return gpu_driver() ? "" : problem; }

int32_t gpu_count() { return gpu_driver() ? n_devices : 0; }

GpuDevice &gpu_device(int32_t number) { return devices[number]; }

int gpu_open(GpuDevice &device) {
  Locked locked(opening);
  if (device.context) return MYCC_OK;
  cuda::Context context = nullptr;
  cuda::Result result = api.context_retain(&context, device.handle);
  if (result == cuda::kSuccess) result = api.context_push(context);
  if (result != cuda::kSuccess)
    return gpu_fail(MYCC_ERROR_LOAD, result, "cuda:%d (%s) cannot be opened", device.number, device.name);
  result = api.stream_create(&device.reclaim, cuda::kStreamNonBlocking);
  make_pool(&device);
  api.context_pop(&context);
  if (result != cuda::kSuccess)
    return gpu_fail(MYCC_ERROR_LOAD, result, "cuda:%d (%s) gives no stream", device.number, device.name);
  device.context = context;
  return MYCC_OK;
}

int gpu_usable() {
  if (!forked) return MYCC_OK;
  return fail(MYCC_ERROR_RUN,
              "this process was forked from one that had opened the GPU, which CUDA does not allow\n  Start processes "
              "with \"spawn\", or load the package after the fork.");
}

bool gpu_forked() { return forked; }

int gpu_fail(int code, cuda::Result result, const char *format, ...) {
  char doing[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(doing, sizeof doing, format, arguments);
  va_end(arguments);
  const char *hint = "";
  if (result >= cuda::kFirstSticky && result <= cuda::kLastSticky)
    hint =
        "\n  A kernel of this process has failed, and its context is lost: start the process again. Loaded with "
        "launch=\"debug\", the package says which kernel it was.";
  if (result == cuda::kUnsupportedPtx)
    hint = "\n  The driver is older than this PTX: update it, or compile the model for the device's own chip.";
  return fail(code, "%s: %s (%s)%s", doing, name_of(result), text_of(result), hint);
}

int gpu_out_of_memory(const GpuDevice &device, size_t bytes) {
  size_t left = 0, total = 0;
  if (api.memory_info(&left, &total) != cuda::kSuccess) total = device.memory;
  return fail(MYCC_ERROR_RUN, "out of memory on cuda:%d (%s): %zu bytes are needed, %zu of %zu are free", device.number,
              device.name, bytes, left, total);
}

CurrentDevice::CurrentDevice(const GpuDevice &device) {
  cuda::Context context = nullptr;
  if (api.context_current(&context) == cuda::kSuccess && context == device.context) return;
  cuda::Result result = api.context_push(device.context);
  pushed_ = result == cuda::kSuccess;
  if (!pushed_) status_ = gpu_fail(MYCC_ERROR_RUN, result, "cuda:%d cannot be used", device.number);
}

CurrentDevice::~CurrentDevice() {
  cuda::Context context;
  if (pushed_) api.context_pop(&context);
}

int DeviceMemory::reserve(const GpuDevice &device, size_t bytes) {
  if (bytes <= capacity_ && address_) return MYCC_OK;
  release();
  size_t room = bytes < kStep ? (bytes + 511) & ~size_t(511) : (bytes + kStep - 1) & ~(kStep - 1);
  if (room == 0) room = 512;
  cuda::Result result = room < bytes ? cuda::kOutOfMemory : api.allocate(&address_, room);
  if (result == cuda::kOutOfMemory && device.pool) {  // what the pool keeps for later outputs
    api.pool_trim(device.pool, 0);
    result = api.allocate(&address_, room);
  }
  if (result == cuda::kSuccess) {
    capacity_ = room;
    return MYCC_OK;
  }
  address_ = 0;
  if (result == cuda::kOutOfMemory) return gpu_out_of_memory(device, bytes);
  return gpu_fail(MYCC_ERROR_RUN, result, "no memory of cuda:%d", device.number);
}

void DeviceMemory::release() {
  if (address_) api.release(address_);
  address_ = 0;
  capacity_ = 0;
}

}  // namespace mycc::runtime
