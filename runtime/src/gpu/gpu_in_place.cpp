// gpu_in_place.cpp: calls on a GPU that change a state, or inputs of the caller.
#include "gpu_call.h"
#include "../call/state.h"

namespace mycc::runtime {

// The stream of this call waits for the last call with the same state.
int GpuCall::wait_for_state(unsigned long long stream_id) {
  if (!state_ || !state_->in_flight || (stream_id && state_->stream == stream_id)) return MYCC_OK;
  const cuda::Result result = api_.stream_wait(stream_, state_->done, 0);
  return result == cuda::kSuccess ? int(MYCC_OK) : gpu_fail(MYCC_ERROR_RUN, result, "the last call of the state");
}

// What is on the stream now is what the next call with this state waits for.
int GpuCall::mark_state(unsigned long long stream_id) {
  if (!state_) return MYCC_OK;
  const cuda::Result result = api_.event_record(state_->done, stream_);
  state_->in_flight = result == cuda::kSuccess;
  state_->stream = stream_id;
  return result == cuda::kSuccess ? int(MYCC_OK) : gpu_fail(MYCC_ERROR_RUN, result, "a call that changes the state");
}

// Inputs that the kernels wrote to in a copy: those of the host, and unaligned ones.
int GpuCall::copy_back(const Entry &entry, const mycc_tensor *inputs) {
  if (spares_inputs_) return MYCC_OK;
  for (int32_t k = 0; k < entry.info->n_writes; ++k) {
    const int32_t i = entry.info->writes[k];
    const mycc_tensor &tensor = inputs[i];
    const size_t bytes = size_t(input_bytes_[i]);
    if (inputs_[i] == tensor.data || bytes == 0) continue;
    const cuda::Address source = reinterpret_cast<cuda::Address>(inputs_[i]);
    cuda::Result result;
    if (!is_host(tensor)) {
      result = api_.copy_within(reinterpret_cast<cuda::Address>(tensor.data), source, bytes, stream_);
    } else {
      void *dense = is_dense(tensor) ? tensor.data : dense_.reserve(bytes);
      if (!dense) return out_of_memory(bytes);
      result = api_.copy_out(dense, source, bytes, stream_);
      if (result == cuda::kSuccess) result = api_.stream_synchronize(stream_);
      if (result == cuda::kSuccess && dense != tensor.data) copy_strided(dense, tensor);
    }
    if (result != cuda::kSuccess)
      return gpu_fail(MYCC_ERROR_RUN, result, "%s: its new value", entry.info->inputs[i].name);
  }
  return MYCC_OK;
}

}  // namespace mycc::runtime
