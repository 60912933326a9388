// state.h: tensors that live from call to call: buffers that the model changes. One state serves one call at a time.
#pragma once

#include <atomic>

#include "loaded.h"

// mycc_state of the C API.
struct mycc_state {
  mycc_model *model;            // alive as long as calls use the state
  mycc::runtime::GpuDevice *gpu;
  std::atomic<int32_t> users;   // its owner, and views of its tensors
  mycc::runtime::Lock busy;     // held during a call
  void **tensors;               // dense, each aligned to 64, in the memory that the model runs on
  mycc::runtime::Memory host;
  mycc::runtime::DeviceMemory device;
  // Of a GPU: the work of the last call.
  mycc::cuda::Event done;
  unsigned long long stream;
  bool in_flight;
};

namespace mycc::runtime {

// A state with the first values.
int make_state(mycc_model &model, mycc_state **state);
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
