// cuda_driver.h: the NVIDIA driver (libcuda.so.1), opened when a package first asks for it, and its devices.
#pragma once

#include "cuda_types.h"
#include "../base/errors.h"
#include "../base/lock.h"

namespace mycc::runtime {

constexpr int32_t kMaxDevices = 64;

// A device of the driver. The context is the primary one, which torch and others of this process use too.
struct GpuDevice {
  int32_t number = 0;
  char name[128] = {0};
  int32_t major = 0, minor = 0;
  int32_t multiprocessors = 0, l2_bytes = 0, shared_bytes = 0;
  int32_t threads = 0;  // that a multiprocessor holds at a time
  size_t memory = 0;
  bool pools = false;

  // Filled by open_device().
  cuda::Device handle = 0;
  cuda::Context context = nullptr;
  cuda::Pool pool = nullptr;       // of outputs; NULL: the device has none
  cuda::Stream reclaim = nullptr;  // on which outputs are given back
};

// The functions of the driver; opens it at the first call. NULL: gpu_problem() says why.
const cuda::Api *gpu_driver();
// "no NVIDIA driver (libcuda.so.1) is installed", "the NVIDIA driver is too old: ..."; empty: there are devices.
const char *gpu_problem();
int32_t gpu_count();
// By number, 0 <= number < gpu_count().
GpuDevice &gpu_device(int32_t number);
// Takes hold of the device's context, once for the process.
int gpu_open(GpuDevice &device);
// MYCC_OK, or the error of a process that was forked after it opened the driver.
int gpu_usable();
bool gpu_forked();

// Stores the text of a failed driver call: what was tried, the error's name and meaning.
int gpu_fail(int code, cuda::Result result, const char *format, ...) __attribute__((format(printf, 3, 4)));
// The same for memory: the bytes needed and free.
int gpu_out_of_memory(const GpuDevice &device, size_t bytes);

// Makes the device's context current for this thread, for as long as this lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(const GpuDevice &device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice &) = delete;
  CurrentDevice &operator=(const CurrentDevice &) = delete;
  int status() const { return status_; }

 private:
  bool pushed_ = false;
  int status_ = MYCC_OK;
};

// Memory of a device that grows when more is asked for; its contents do not survive growing.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory &) = delete;
  DeviceMemory &operator=(const DeviceMemory &) = delete;

  // At least `bytes`; growing waits until the device has finished its work.
  int reserve(const GpuDevice &device, size_t bytes);
  void release();
  cuda::Address address() const { return address_; }
  size_t capacity() const { return capacity_; }

 private:
  cuda::Address address_ = 0;
  size_t capacity_ = 0;
};

}  // namespace mycc::runtime
