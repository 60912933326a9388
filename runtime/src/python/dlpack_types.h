// dlpack_types.h: the layouts of DLPack (github.com/dmlc/dlpack, dlpack.h 1.3) that the Python wrapper speaks.
#pragma once

#include <stdint.h>

#include "mycc/model.h"

namespace mycc::dlpack {

constexpr int32_t kCpu = 1, kCuda = 2, kCudaManaged = 13;
constexpr uint32_t kMajor = 1;

struct Tensor {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  mycc_dtype dtype;
  int64_t *shape, *strides;  // strides may be NULL before version 1.2: dense
  uint64_t byte_offset;
};

struct Managed {  // capsules named "dltensor"
  Tensor tensor;
  void *context;
  void (*deleter)(Managed *self);
};

struct Version {
  uint32_t major, minor;
};

struct ManagedVersioned {  // capsules named "dltensor_versioned"
  Version version;
  void *context;
  void (*deleter)(ManagedVersioned *self);
  uint64_t flags;
  Tensor tensor;
};

// Functions of a framework, in the capsule `__dlpack_c_exchange_api__` of its tensor type.
struct ExchangeApi {
  Version version;
  ExchangeApi *previous;
  int (*allocate)(Tensor *, ManagedVersioned **, void *, void (*)(void *, const char *, const char *));
  int (*managed_from_object)(void *object, ManagedVersioned **out);
  int (*object_from_managed)(ManagedVersioned *tensor, void **object);
  int (*tensor_from_object)(void *object, Tensor *out);  // borrowed; may be NULL
  int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
};

}  // namespace mycc::dlpack
