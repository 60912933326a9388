// older_programs.cpp: what programs of older packages take on trust, checked for them before they run.

#include "call.h"

namespace mycc::runtime {

namespace {

constexpr uint32_t kReadsBytes = 5;           // from this version on programs read bools as bytes, and sizes do not wrap
constexpr int64_t kCounted = int64_t(1) << 48;  // bytes, or a dimension; more is out of memory
constexpr int64_t kSmall = 4096;              // sizes up to it give no formula that wraps

bool beyond(int64_t number) { return number > kCounted || number < -kCounted; }

}  // namespace

bool Call::is_older() const { return model_.program->abi_version < kReadsBytes; }

// Its formulas wrap: of sizes that are too large they give small numbers. They are polynomials, so those of half the
// sizes are smaller by a factor that is known, up to a rest: sizes grow from small ones to those at hand, and the first
// that give too large a number, before any wraps, end it.
int Call::check_older_sizes(const Entry &entry) {
  const int32_t count = entry.code->n_symbols + (entry.computed ? entry.computed->n_sizes : 0);
  int64_t largest = 0;
  for (int32_t i = 0; i < count; ++i) largest = symbols_[i] > largest ? symbols_[i] : largest;
  int halvings = 0;
  while (largest >> halvings > kSmall) ++halvings;
  if (halvings == 0) return MYCC_OK;
  Array<int64_t> given;
  for (int32_t i = 0; i < count; ++i)
    if (!given.push(symbols_[i])) return out_of_memory(size_t(count) * sizeof(int64_t));
  bool fits = true;
  for (int shift = halvings; fits && shift >= 0; --shift) {
    for (int32_t i = 0; i < count; ++i) symbols_[i] = given[size_t(i)] >> shift;
    for (int32_t i = 0; shift && i < entry.info->n_symbols && i < entry.code->n_symbols; ++i) {
      const int64_t least = entry.info->symbols[i].named.min;
      symbols_[i] = symbols_[i] < least ? least : symbols_[i];
    }
    fits = older_sizes_fit(entry);
  }
  for (int32_t i = 0; i < count; ++i) symbols_[i] = given[size_t(i)];
  if (fits) return MYCC_OK;
  return fail(MYCC_ERROR_RUN, "out of memory: the tensors of %s take %lld bytes or more", entry.code->name,
              static_cast<long long>(kCounted));
}

bool Call::older_sizes_fit(const Entry &entry) {
  const EntryInfo &info = *entry.info;
  if (entry.code->n_buffers) entry.code->buffer_sizes(symbols_, sizes_);
  for (int32_t i = 0; i < entry.code->n_buffers; ++i)
    if (beyond(sizes_[i])) return false;
  entry.code->output_dims(symbols_, output_dims_);
  const int64_t *dims = output_dims_;
  for (int32_t i = 0; i < info.n_outputs; dims += info.outputs[i++].ndim) {
    int64_t bytes = 0;
    for (int32_t d = 0; d < info.outputs[i].ndim; ++d)
      if (beyond(dims[d])) return false;
    if (dense_bytes(dims, info.outputs[i].ndim, dtype_bytes(info.outputs[i].dtype), &bytes) && beyond(bytes)) return false;
  }
  return true;
}

}  // namespace mycc::runtime
