// pool.h: the threads of this process that help calls with their parallel loops, shared by all models.
//
// A call opens a loop in its slot; idle workers join open slots and leave when no chunk is left. Each thread has a share
// of the chunks, the same part of every loop, and takes from the others' when its own is done. The caller takes chunks
// too, so a loop is done even when no worker comes: nothing here can deadlock, and a loop without help costs as much as
// a plain one. When more calls are in flight than there are cores, each runs alone.
// Chunks depend on n and grain only, so results do not depend on who ran them.
#pragma once

#include <stdint.h>

#include <atomic>

#include "mycc/abi.h"

namespace mycc::runtime {

constexpr int32_t kMaxThreads = 1023;

// Threads of a call where the user names no number: one per core that this process may use.
int32_t available_threads();

struct Slot;

// A call in flight; lives as long as the call. One thread at a time uses it.
class CallInFlight {
 public:
  explicit CallInFlight(int32_t threads);
  ~CallInFlight();
  CallInFlight(const CallInFlight &) = delete;
  CallInFlight &operator=(const CallInFlight &) = delete;

  // See mycc_host.parallel_for. The caller is worker 0.
  void parallel_for(int64_t n, int64_t grain, mycc_body body, void *argument);

 private:
  int32_t helpers_wanted() const;
  void run_shared(Slot &slot, int32_t helpers, int64_t chunks, int64_t n, int64_t grain, mycc_body body, void *argument);

  int32_t threads_;
  Slot *slot_ = nullptr;
};

// Around a fork: the child starts without workers and makes new ones when it needs them.
void pool_before_fork();
void pool_after_fork(bool in_child);

}  // namespace mycc::runtime
