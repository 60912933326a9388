// gpu_model.h: what a loaded package holds on a GPU: its kernels, and weights that all models of the same package
// share.
#pragma once

#include "cuda_driver.h"
#include "../package/manifest.h"
#include "../base/memory.h"
#include "mycc/abi.h"
#include "../package/zip.h"

namespace mycc::runtime {

enum class LaunchMode { automatic, direct, graph, debug };

struct GpuKernel {
  const mycc_gpu_kernel *row;
  cuda::Module module;
  cuda::Function function;
  int32_t n_values;         // parameters, and the hidden pointers behind them
  uint32_t bytes;           // of all values together, each aligned to its size
  const uint32_t *offsets;  // of the values
};

// The part of a package's weights that its kernels read, in the memory of one device.
struct SharedWeights {
  char key[80];
  const GpuDevice *device;
  int64_t begin, end;
  int32_t users;
  DeviceMemory memory;
  SharedWeights *next;
};

struct GpuModel {
  const cuda::Api *api = nullptr;
  GpuDevice *device = nullptr;
  const mycc_gpu_program *program = nullptr;
  GpuKernel *kernels = nullptr;
  Array<cuda::Module> modules;
  SharedWeights *weights = nullptr;
  const uint8_t *weights_base = nullptr;  // such that an offset into the weights' data leads to the device's copy
  LaunchMode mode = LaunchMode::automatic;
};

// How well the code of a target ("cuda:sm_90", "cuda:ptx") fits a device; 0: not at all.
int gpu_rank(const char *target, const GpuDevice &device);
bool is_gpu_target(const char *target);

// Loads the kernels and the weights onto the device. `data`: the weights' tensor data, `size` bytes of it. On failure
// the model is to be closed all the same.
int gpu_open_model(GpuModel *model, const Archive &archive, const char *label, const Manifest &manifest,
                   const TargetInfo &target, const uint8_t *data, size_t size, Region *region);
void gpu_close_model(GpuModel *model);

// Pinned host memory: the results of a call get there without a stage. NULL: none is left.
void *gpu_host_memory(const GpuModel &model, size_t bytes);
void gpu_release_host_memory(const GpuModel &model, void *memory);

}  // namespace mycc::runtime
