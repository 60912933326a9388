// state.h: tensors that live from call to call: buffers that the model changes. One state serves one call at a time.
#pragma once

#include <atomic>

#include "../package/loaded.h"

// mycc_state of the C API.
struct mycc_state {
  mycc_model *model;            // that of a caller is a user of it until the caller frees it
  mycc_state *next, *previous;  // all states of the model; guarded by its lock
  mycc::runtime::GpuDevice *gpu;
  std::atomic<int32_t> users;   // its owner, calls, and views of its tensors
  mycc::runtime::Lock busy;     // held during a call
  std::atomic<bool> changing;   // the call that holds it changes tensors
  uint8_t *torn;                // for each tensor: this process was forked while a call changed it
  void **tensors;               // dense, each aligned to 64, in the memory that the model runs on
  mycc::runtime::Memory host;
  mycc::runtime::DeviceMemory device;
  // Of a GPU: the work of the last call.
  mycc::cuda::Event done;
  unsigned long long stream;
  bool in_flight;
};

namespace mycc::runtime {

// A state with the first values. Made for a caller of the library, it ends with free_state().
int make_state(mycc_model &model, mycc_state **state);
void free_state(mycc_state *state);
// Holds a state during a call. `changes`: of its tensors. A failure when a fork has left a tensor half changed.
int enter_state(mycc_state &state, bool changes);
void leave_state(mycc_state &state);
// In the child of a fork, for a list of states: the calls that held them are gone.
void states_after_fork(mycc_state *states);
// Drops a user; the last one frees the memory.
void release_state(mycc_state *state);
// The given state, one of this model, or else the model's own, made when it is asked for first. NULL: out of memory.
mycc_state *state_for(mycc_model &model, mycc_state *given);

int reset_state(mycc_state &state);
// A copy of tensor i in memory of the runtime; free it with free_output.
int read_state(mycc_state &state, int32_t i, mycc_tensor *copy);
int write_state(mycc_state &state, int32_t i, const mycc_tensor &source);
// Tensor i itself; a user of the state until it is freed with free_output.
int view_state(mycc_state &state, int32_t i, mycc_tensor *view);

// Of an entry point whose call failed while it ran: says what may have changed all the same. Returns `status`.
int failed_in_place(int status, const EntryInfo &info);

}  // namespace mycc::runtime
