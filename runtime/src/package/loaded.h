// loaded.h: a loaded package (mycc_model of the C API).
#pragma once

#include <atomic>

#include "../gpu/gpu_model.h"
#include "json.h"
#include "../base/lock.h"
#include "manifest.h"
#include "../base/memory.h"
#include "mycc/abi.h"
#include "mycc/model.h"
#include "../base/os.h"
#include "../call/planner.h"
#include "../call/tensor.h"

namespace mycc::runtime {

class Call;
class GpuCall;

// Where the buffers of an entry point lie for some sizes.
struct Plan {
  int64_t *symbols, *offsets;
  int64_t arena, live;
  uint64_t last_use;
};

struct Entry {
  const EntryInfo *info;
  const mycc_entry *code;
  const mycc_computed *computed;  // NULL: all sizes are known before the run
  bool random;                    // calls differ by their seeds
  bool fetches;                   // the run decides by what the device has computed
  Array<Plan> plans;  // the latest ones; guarded by the model's lock
  // Of the buffers whose sizes are known when the first 0, 1, .. computed sizes are; guarded by the model's lock.
  PlanOrder *orders;
  uint64_t plan_uses;
};

}  // namespace mycc::runtime

namespace mycc::runtime {

// What a model holds until nobody uses it.
struct ModelParts {
  Mapping file;           // empty: the package lies in memory of the caller
  Memory aligned_weights; // only where that memory is not aligned
  Region region;
  Json json;              // its text holds the manifest's strings
  Manifest manifest;
  const TargetInfo *target = nullptr;
  CodeImage code;
  const mycc_program *program = nullptr;
  const uint8_t *weights = nullptr;
  GpuModel *gpu = nullptr;  // NULL: it runs on the CPU
  Entry *entries = nullptr;
  int32_t threads = 1;

  Lock state_lock;        // guards `state` until it is made
  mycc_state *state = nullptr;           // of the calls that name none
  std::atomic<uint64_t> next_seed{0};    // of the calls that name none
  Lock lock;              // guards what follows, and the plans
  Call *free_calls = nullptr;
  int32_t n_free_calls = 0;
  size_t free_bytes = 0;                 // that the free calls hold
  mycc_state *states = nullptr;          // all of them, for forks
  GpuCall *gpu_calls = nullptr;  // the free ones of a GPU
  int32_t n_gpu_calls = 0;                      // all, the busy ones too

  mycc_model *next = nullptr, *previous = nullptr;  // all models of the process
};

}  // namespace mycc::runtime

// Its memory stays for a while when the parts are gone, so that a call with an unloaded model is an error.
struct mycc_model : mycc::runtime::ModelParts {
  std::atomic<int64_t> users{1};         // its owner, calls, and states of callers
  std::atomic<bool> unloaded{false};     // by its owner: no call may begin
};

namespace mycc::runtime {

// A user of a model: it is not unloaded meanwhile. A failure when it is NULL or its owner has unloaded it.
class ModelUse {
 public:
  explicit ModelUse(const mycc_model *model);
  ~ModelUse();
  ModelUse(const ModelUse &) = delete;
  ModelUse &operator=(const ModelUse &) = delete;
  int status() const { return status_; }
  explicit operator bool() const { return status_ == 0; }

 private:
  mycc_model *model_;
  int status_;
};
// The same for a user that stays; drop_model() ends it.
int use_model(mycc_model *model);
void drop_model(mycc_model *model);

// Loads from `data` if it is not NULL, else from the file at `path`.
int load_model(const char *path, const void *data, size_t size, const mycc_load_options *options, mycc_model **model);
void unload_model(mycc_model *model);

}  // namespace mycc::runtime
