// cuda_types.h: what the runtime uses of the CUDA driver API (cuda.h, CUDA 12.0), declared here so that building it
// needs no toolkit. Layouts and values are those of cuda.h; tests/gpu_runtime compares them.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace mycc::cuda {

enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kDeinitialized = 4,
  kNoDevice = 100,
  kNoBinary = 209,
  kUnsupportedPtx = 222,
  kNotReady = 600,
  kFirstSticky = 700,  // failures of kernels: the context is of no use afterwards
  kLastSticky = 721,
};

using Device = int;
using Address = unsigned long long;
using Context = struct ContextHandle *;
using Module = struct ModuleHandle *;
using Function = struct FunctionHandle *;
using Stream = struct StreamHandle *;
using Event = struct EventHandle *;
using Graph = struct GraphHandle *;
using GraphNode = struct GraphNodeHandle *;
using GraphExec = struct GraphExecHandle *;
using Pool = struct PoolHandle *;

constexpr int kVersionNeeded = 12000;

constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDefault = 0, kEventNoTiming = 2;
constexpr unsigned kHostMapped = 2;

enum DeviceAttribute : int {
  kMultiprocessors = 16,
  kL2Bytes = 38,
  kThreadsOfMultiprocessor = 39,
  kMajor = 75,
  kMinor = 76,
  kSharedPerBlock = 97,  // what a kernel may ask for
  kMemoryPools = 115,
};

constexpr int kFunctionDynamicShared = 8;
constexpr int kCachePreferShared = 1;
constexpr int kPoolReleaseThreshold = 4;

struct PoolProperties {
  int allocation_type, handle_types;  // 1: on a device; 0: not shared
  int location_type, location;        // 1: a device; its number
  void *security;
  size_t max_size;
  unsigned short usage;
  unsigned char reserved[54];
};

struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    char bytes[64];
    int number;
  } value;
};
constexpr int kAttributeDependent = 6;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION

struct LaunchConfig {
  unsigned grid[3], block[3];
  unsigned shared;
  Stream stream;
  LaunchAttribute *attributes;
  unsigned n_attributes;
};

struct KernelNode {  // CUDA_KERNEL_NODE_PARAMS_v2
  Function function;
  unsigned grid[3], block[3];
  unsigned shared;
  void **params, **extra;
  void *kernel;
  Context context;
};

struct GraphEdge {  // CUgraphEdgeData
  unsigned char from_port, to_port, type;
  unsigned char reserved[5];
};
constexpr unsigned char kEdgeDependent = 1, kPortDependent = 1;

// Functions that every driver from CUDA 12.0 on has: name here, symbol, parameters.
#define MYCC_CUDA_FUNCTIONS(X)                                                                                        \
  X(init, "cuInit", (unsigned))                                                                                       \
  X(driver_version, "cuDriverGetVersion", (int *))                                                                    \
  X(error_name, "cuGetErrorName", (Result, const char **))                                                            \
  X(error_text, "cuGetErrorString", (Result, const char **))                                                          \
  X(device_count, "cuDeviceGetCount", (int *))                                                                        \
  X(device_get, "cuDeviceGet", (Device *, int))                                                                       \
  X(device_name, "cuDeviceGetName", (char *, int, Device))                                                            \
  X(device_memory, "cuDeviceTotalMem_v2", (size_t *, Device))                                                         \
  X(device_attribute, "cuDeviceGetAttribute", (int *, DeviceAttribute, Device))                                       \
  X(context_retain, "cuDevicePrimaryCtxRetain", (Context *, Device))                                                  \
  X(context_current, "cuCtxGetCurrent", (Context *))                                                                  \
  X(context_push, "cuCtxPushCurrent_v2", (Context))                                                                   \
  X(context_pop, "cuCtxPopCurrent_v2", (Context *))                                                                   \
  X(memory_info, "cuMemGetInfo_v2", (size_t *, size_t *))                                                             \
  X(allocate, "cuMemAlloc_v2", (Address *, size_t))                                                                   \
  X(release, "cuMemFree_v2", (Address))                                                                               \
  X(host_allocate, "cuMemHostAlloc", (void **, size_t, unsigned))                                                     \
  X(host_release, "cuMemFreeHost", (void *))                                                                          \
  X(host_address, "cuMemHostGetDevicePointer_v2", (Address *, void *, unsigned))                                      \
  X(pool_create, "cuMemPoolCreate", (Pool *, const PoolProperties *))                                                 \
  X(pool_set, "cuMemPoolSetAttribute", (Pool, int, void *))                                                           \
  X(pool_trim, "cuMemPoolTrimTo", (Pool, size_t))                                                                     \
  X(pool_allocate, "cuMemAllocFromPoolAsync", (Address *, size_t, Pool, Stream))                                      \
  X(pool_release, "cuMemFreeAsync", (Address, Stream))                                                                \
  X(copy_in, "cuMemcpyHtoDAsync_v2", (Address, const void *, size_t, Stream))                                         \
  X(copy_out, "cuMemcpyDtoHAsync_v2", (void *, Address, size_t, Stream))                                              \
  X(copy_within, "cuMemcpyDtoDAsync_v2", (Address, Address, size_t, Stream))                                          \
  X(clear, "cuMemsetD8Async", (Address, unsigned char, size_t, Stream))                                               \
  X(stream_create, "cuStreamCreate", (Stream *, unsigned))                                                            \
  X(stream_destroy, "cuStreamDestroy_v2", (Stream))                                                                   \
  X(stream_wait, "cuStreamWaitEvent", (Stream, Event, unsigned))                                                      \
  X(stream_synchronize, "cuStreamSynchronize", (Stream))                                                              \
  X(stream_capturing, "cuStreamIsCapturing", (Stream, int *))                                                         \
  X(stream_id, "cuStreamGetId", (Stream, unsigned long long *))                                                       \
  X(event_create, "cuEventCreate", (Event *, unsigned))                                                               \
  X(event_destroy, "cuEventDestroy_v2", (Event))                                                                      \
  X(event_record, "cuEventRecord", (Event, Stream))                                                                   \
  X(event_query, "cuEventQuery", (Event))                                                                             \
  X(event_synchronize, "cuEventSynchronize", (Event))                                                                 \
  X(event_elapsed, "cuEventElapsedTime", (float *, Event, Event))                                                     \
  X(module_load, "cuModuleLoadData", (Module *, const void *))                                                        \
  X(module_unload, "cuModuleUnload", (Module))                                                                        \
  X(module_function, "cuModuleGetFunction", (Function *, Module, const char *))                                       \
  X(function_set, "cuFuncSetAttribute", (Function, int, int))                                                         \
  X(function_cache, "cuFuncSetCacheConfig", (Function, int))                                                          \
  X(launch, "cuLaunchKernelEx", (const LaunchConfig *, Function, void **, void **))                                   \
  X(graph_create, "cuGraphCreate", (Graph *, unsigned))                                                               \
  X(graph_destroy, "cuGraphDestroy", (Graph))                                                                         \
  X(graph_kernel, "cuGraphAddKernelNode_v2", (GraphNode *, Graph, const GraphNode *, size_t, const KernelNode *))     \
  X(graph_event, "cuGraphAddEventRecordNode", (GraphNode *, Graph, const GraphNode *, size_t, Event))                 \
  X(graph_edges, "cuGraphAddDependencies", (Graph, const GraphNode *, const GraphNode *, size_t))                     \
  X(graph_instantiate, "cuGraphInstantiateWithFlags", (GraphExec *, Graph, unsigned long long))                       \
  X(exec_set_kernel, "cuGraphExecKernelNodeSetParams_v2", (GraphExec, GraphNode, const KernelNode *))                 \
  X(exec_launch, "cuGraphLaunch", (GraphExec, Stream))                                                                \
  X(exec_destroy, "cuGraphExecDestroy", (GraphExec))                                                                  \
  X(encode_tiled, "cuTensorMapEncodeTiled",                                                                           \
    (void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *, int, int, \
     int, int))

// Functions of later drivers; NULL where the driver has none.
#define MYCC_CUDA_LATER_FUNCTIONS(X)                                  \
  X(graph_typed_edges, "cuGraphAddDependencies_v2",                  \
    (Graph, const GraphNode *, const GraphNode *, const GraphEdge *, size_t))

struct Api {
#define MYCC_CUDA_MEMBER(name, symbol, parameters) Result(*name) parameters;
  MYCC_CUDA_FUNCTIONS(MYCC_CUDA_MEMBER)
  MYCC_CUDA_LATER_FUNCTIONS(MYCC_CUDA_MEMBER)
#undef MYCC_CUDA_MEMBER
};

}  // namespace mycc::cuda
