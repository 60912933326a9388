// computed.cpp: sizes that the run finds: checked, and memory for what depends on them.

#include "call.h"
#include "planner.h"

namespace mycc::runtime {

int32_t Call::known_buffer(const Entry &entry, int32_t i) { return entry.computed ? entry.computed->buffers[i] : 0; }

int32_t Call::known_output(const Entry &entry, int32_t i) { return entry.computed ? entry.computed->outputs[i] : 0; }

int Call::bind_known_outputs(const Entry &entry, int32_t known) {
  return each_known_output(entry, known, [&](int32_t i, const int64_t *dims) { return bind_output(entry, i, dims); });
}

// sizes_ of the buffers that are known now; the others take no memory.
int Call::find_known_sizes(const Entry &entry, int32_t known) {
  const mycc_entry &code = *entry.code;
  code.buffer_sizes(symbols_, sizes_);
  int64_t total = 0;
  for (int32_t i = 0; i < code.n_buffers; ++i) {
    if (known_buffer(entry, i) != known) sizes_[i] = 0;
    if (sizes_[i] < 0)
      return fail(MYCC_ERROR_RUN, "%s: the sizes at hand give an intermediate tensor of a negative size", code.name);
    if (__builtin_add_overflow(total, sizes_[i], &total) || total == INT64_MAX)
      return fail(MYCC_ERROR_RUN, "out of memory: the intermediate tensors of %s take %s", code.name, kTooManyBytes);
  }
  return MYCC_OK;
}

int Call::plan_known_buffers(const Entry &entry, int32_t known, int64_t *arena) {
  if (int status = find_known_sizes(entry, known)) return status;
  int64_t live;
  return plan_sizes(entry, known, known_offsets_, arena, &live);
}

void Call::place_known_buffers(const Entry &entry, int32_t known, uint8_t *memory) {
  for (int32_t i = 0; i < entry.code->n_buffers; ++i)
    if (entry.computed->buffers[i] == known) buffers_[i] = memory + known_offsets_[i];
}

int Call::enter_size(const Entry &entry, int32_t i, int64_t value) {
  const mycc_size &size = entry.computed->sizes[i];
  if (value < size.min || value > size.max) {
    Line range;
    if (size.max == size.min)
      range.add("%lld", static_cast<long long>(size.min));
    else if (size.max >= kUnbounded)
      range.add("%lld or more", static_cast<long long>(size.min));
    else
      range.add("%lld..%lld", static_cast<long long>(size.min), static_cast<long long>(size.max));
    return fail(MYCC_ERROR_RUN, "%s is %lld, but has to be %s", size.what, static_cast<long long>(value), range.text());
  }
  symbols_[entry.code->n_symbols + i] = value;
  return is_older() ? check_older_sizes(entry) : int(MYCC_OK);
}

int Call::define(const Entry &entry, int32_t i, int64_t value) {
  int64_t arena;
  if (int status = enter_size(entry, i, value)) return status;
  if (int status = plan_known_buffers(entry, i + 1, &arena)) return status;
  uint8_t *memory = known_arenas_[i].reserve(size_t(arena));
  if (!memory && arena) return out_of_memory(size_t(arena));
  place_known_buffers(entry, i + 1, memory);
  return bind_known_outputs(entry, i + 1);
}

int32_t Call::host_define(void *ctx, int32_t i, int64_t value) {
  Call *call = static_cast<Call *>(ctx);
  if (call->failed_.load(std::memory_order_acquire)) return 1;
  const int status = call->define(*call->running_, i, value);
  if (status != MYCC_OK) host_fail(ctx, status, last_error());
  return status;
}

}  // namespace mycc::runtime
