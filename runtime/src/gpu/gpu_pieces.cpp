// gpu_pieces.cpp: calls of programs that decide by what the device has computed: sizes that the run finds, branches and
// loops. Launches go out piece by piece; at the end of each the host waits for a value.
#include "gpu_call.h"

namespace mycc::runtime {

int GpuCall::run_in_pieces(const Entry &entry) {
  failed_.store(0, std::memory_order_relaxed);
  number_ = 0;
  running_ = &entry;
  launches_ = &piece_;
  piece_.clear();
  piece_.begin();
  set_program_call(entry);
  entry.code->run(&program_);
  if (failed_.load(std::memory_order_acquire)) return fail(failure_code_, "%s", failure_);
  return issue_piece();
}

// The first launch of a piece waits for all before it, so pieces share their scratch memory.
int GpuCall::issue_piece() {
  if (piece_.size() == 0) return MYCC_OK;
  if (piece_.scratch_bytes() > scratch_memory_.capacity()) {
    cuda::Result result = api_.stream_synchronize(stream_);
    if (result != cuda::kSuccess) return gpu_fail(MYCC_ERROR_RUN, result, "%s: a kernel", running_->info->name);
    if (int status = settle()) return status;
    if (int status = scratch_memory_.reserve(*gpu_.device, piece_.scratch_bytes())) return status;
  }
  int status = piece_.finish(scratch_memory_.address());
  const mycc_entry &code = *running_->code;
  if (status == MYCC_OK)
    status = piece_times_ ? piece_.issue_timed(stream_, code, piece_times_)
                          : piece_.issue(stream_, code, gpu_.mode == LaunchMode::debug);
  piece_.clear();
  piece_.begin();
  return status;
}

int GpuCall::fetch(const void *address, void *value, int32_t bytes) {
  if (int status = issue_piece()) return status;
  cuda::Result result = api_.copy_out(fetched_, reinterpret_cast<cuda::Address>(address), size_t(bytes), stream_);
  if (result == cuda::kSuccess) result = api_.stream_synchronize(stream_);
  if (result != cuda::kSuccess)
    return gpu_fail(MYCC_ERROR_RUN, result, "%s: a kernel, or the copy of a value that decides", running_->info->name);
  memcpy(value, fetched_, size_t(bytes));
  return failure_of(*running_, false);
}

int32_t GpuCall::host_fetch(void *ctx, const void *address, void *value, int32_t bytes) {
  GpuCall *call = static_cast<GpuCall *>(static_cast<Call *>(ctx));
  if (call->failed_.load(std::memory_order_acquire)) return 1;
  const int status = call->fetch(address, value, bytes);
  if (status != MYCC_OK) host_fail(ctx, status, last_error());
  return status;
}

// Nothing of this call is under way when the host knows a size, so its memory may move.
int GpuCall::define(const Entry &entry, int32_t i, int64_t value) {
  const int32_t known = i + 1;
  int64_t arena = 0;
  int status = enter_size(entry, i, value);
  if (status == MYCC_OK) status = plan_known_buffers(entry, known, &arena);
  if (status != MYCC_OK) return status;
  dense_bytes_ = (size_t(arena) + 255) / 256 * 256;  // behind the buffers: outputs for the host
  status = place_known_outputs(entry, known);
  DeviceMemory &memory = known_memory_[i];
  if (status == MYCC_OK) status = memory.reserve(*gpu_.device, dense_bytes_);
  if (status != MYCC_OK) return status;
  place_known_buffers(entry, known, reinterpret_cast<uint8_t *>(memory.address()));
  place_in(entry, known, memory);
  status = take_zeros(entry);
  program_.zeros = reinterpret_cast<uint8_t *>(zeros_.address());
  return status;
}

int32_t GpuCall::host_define(void *ctx, int32_t i, int64_t value) {
  GpuCall *call = static_cast<GpuCall *>(static_cast<Call *>(ctx));
  if (call->failed_.load(std::memory_order_acquire)) return 1;
  const int status = call->define(*call->running_, i, value);
  if (status != MYCC_OK) host_fail(ctx, status, last_error());
  return status;
}

int GpuCall::profile_pieces(const Entry &entry, int32_t runs, int64_t *nanoseconds) {
  for (int32_t i = 0; i < entry.code->n_kernels; ++i) nanoseconds[i] = 0;
  int status = run_in_pieces(entry);  // warms up, and its time does not count
  piece_times_ = nanoseconds;
  for (int32_t run = 0; run < runs && status == MYCC_OK; ++run) status = run_in_pieces(entry);
  piece_times_ = nullptr;
  for (int32_t i = 0; i < entry.code->n_kernels; ++i) nanoseconds[i] /= runs;
  return status;
}

}  // namespace mycc::runtime
