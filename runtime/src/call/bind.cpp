// bind.cpp: a call's tensors against the signature, with messages that name the input and what it has to be.

#include "call.h"
#include "extent.h"

namespace mycc::runtime {

namespace {

constexpr size_t kLine = 64;

size_t in_lines(int64_t bytes) { return (size_t(bytes) + kLine - 1) & ~(kLine - 1); }

const char *device_name(int32_t type) {
  switch (type) {
    case 2:
      return "a CUDA device";
    case 8:
      return "a Metal device";
    case 10:
      return "a ROCm device";
    default:
      return "another device";
  }
}

// "2 dimensions (4, 5)"
void describe_shape(const mycc_tensor &tensor, Line *line) {
  line->add("%d dimension%s (", tensor.ndim, tensor.ndim == 1 ? "" : "s");
  for (int32_t d = 0; d < tensor.ndim; ++d)
    line->add("%s%lld", d ? ", " : "", static_cast<long long>(tensor.shape[d]));
  line->add(")");
}

void describe_port(const mycc_port &port, Line *line) {
  line->add("%d (", port.ndim);
  for (int32_t d = 0; d < port.ndim; ++d) line->add("%s%s", d ? ", " : "", port.dims[d]);
  line->add(")");
}

bool is_number(const char *text) { return text[0] >= '0' && text[0] <= '9' && !text[strspn(text, "0123456789")]; }

bool name_character(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool mentions(const char *formula, const char *name) {
  size_t length = strlen(name);
  for (const char *at = strstr(formula, name); at; at = strstr(at + 1, name))
    if ((at == formula || !name_character(at[-1])) && !name_character(at[length])) return true;
  return false;
}

int check_count(const Entry &entry, int32_t given, const mycc_port *ports, int32_t count, const char *what) {
  if (given == count) return MYCC_OK;
  Line names;
  for (int32_t i = 0; i < count; ++i) names.add("%s%s", i ? ", " : "", ports[i].name);
  return fail(MYCC_ERROR_INPUT, "%s has %d %s%s (%s), but %d %s given", entry.info->name, count, what,
              count == 1 ? "" : "s", names.text(), given, given == 1 ? "was" : "were");
}

int check_device(const mycc_model &model, const mycc_port &port, const mycc_tensor &tensor) {
  if (is_host(tensor)) return MYCC_OK;
  if (!model.gpu)
    return fail(MYCC_ERROR_INPUT, "%s: is on %s, the package runs on the CPU\n  Copy it to the CPU first.", port.name,
                device_name(tensor.device_type));
  const int32_t device = model.gpu->device->number;
  if (tensor.device_type == kManagedCuda || (tensor.device_type == kCuda && tensor.device_id == device)) return MYCC_OK;
  if (tensor.device_type == kCuda)
    return fail(MYCC_ERROR_INPUT, "%s: is on cuda:%d, the package runs on cuda:%d\n  Copy it there first, or load the "
                "package with device=\"cuda:%d\".", port.name, tensor.device_id, device, tensor.device_id);
  return fail(MYCC_ERROR_INPUT, "%s: is on %s, the package runs on cuda:%d\n  Copy it there first.", port.name,
              device_name(tensor.device_type), device);
}

// All that can be said of a tensor without the sizes.
int check_tensor(const mycc_model &model, const mycc_port &port, const mycc_tensor &tensor) {
  if (int status = check_device(model, port, tensor)) return status;
  if (!same_dtype(tensor.dtype, port.dtype))
    return fail(MYCC_ERROR_INPUT, "%s: dtype is %s, the package was compiled for %s", port.name,
                dtype_name(tensor.dtype), dtype_name(port.dtype));
  if (tensor.ndim < 0 || tensor.ndim > MYCC_MAX_RANK)
    return fail(MYCC_ERROR_INPUT, "%s: has %d dimensions, the package was compiled for %d", port.name, tensor.ndim,
                port.ndim);
  if (tensor.ndim != port.ndim) {
    Line has, wants;
    describe_shape(tensor, &has);
    describe_port(port, &wants);
    return fail(MYCC_ERROR_INPUT, "%s: has %s, the package was compiled for %s", port.name, has.text(), wants.text());
  }
  return MYCC_OK;
}

int wrong_range(const mycc_port &port, const SizeSymbol &symbol, int64_t size) {
  const char *dim = port.dims[symbol.dim];
  const mycc_symbol &named = symbol.named;
  Line range;
  if (strcmp(dim, named.name) != 0) range.add("%s with %s in ", dim, named.name);
  if (named.max >= kUnbounded)
    range.add("%lld or more", static_cast<long long>(named.min));
  else if (named.max == named.min)
    range.add("%lld", static_cast<long long>(named.min));
  else
    range.add("%lld..%lld", static_cast<long long>(named.min), static_cast<long long>(named.max));
  return fail(MYCC_ERROR_INPUT, "%s: dimension %d (%s) is %lld, the package was compiled for %s", port.name,
              symbol.dim, dim, static_cast<long long>(size), range.text());
}

int wrong_size(const Entry &entry, const mycc_port &port, int32_t d, int64_t size, int64_t expected,
               const int64_t *symbols) {
  const char *dim = port.dims[d];
  if (is_number(dim))
    return fail(MYCC_ERROR_INPUT, "%s: dimension %d is %lld, the package was compiled for %s", port.name, d,
                static_cast<long long>(size), dim);
  Line why;
  for (int32_t i = 0; i < entry.info->n_symbols; ++i) {
    const SizeSymbol &symbol = entry.info->symbols[i];
    if (!mentions(dim, symbol.named.name)) continue;
    why.add("%s%s is %lld by dimension %d of %s", why.empty() ? "" : ", ", symbol.named.name,
            static_cast<long long>(symbols[i]), symbol.dim, entry.info->inputs[symbol.input].name);
  }
  return fail(MYCC_ERROR_INPUT, "%s: dimension %d (%s) is %lld, but has to be %lld here%s%s", port.name, d, dim,
              static_cast<long long>(size), static_cast<long long>(expected), why.empty() ? "" : ": ", why.text());
}

}  // namespace

int Call::bind(const Entry &entry, const mycc_tensor *inputs, int32_t n_inputs, bool data) {
  const EntryInfo &info = *entry.info;
  if (int status = check_count(entry, n_inputs, info.inputs, info.n_inputs, "input")) return status;
  for (int32_t i = 0; i < n_inputs; ++i)
    if (int status = check_tensor(model_, info.inputs[i], inputs[i])) return status;
  if (int status = read_symbols(entry, inputs)) return status;
  if (int status = check_dims(entry, inputs)) return status;
  if (int status = check_written(entry, inputs)) return status;
  return data ? make_dense(entry, inputs) : MYCC_OK;
}

Entry &Call::variant(Entry &entry) {
  const EntryInfo &info = *entry.info;
  for (int32_t v = 0; v < info.n_variants; ++v) {
    const int64_t *fixed = info.variants[v].fixed;
    bool fits = true;
    for (int32_t i = 0; fits && i < info.n_symbols; ++i) fits = fixed[i] == kFree || fixed[i] == symbols_[i];
    if (!fits) continue;
    int32_t kept = 0;
    for (int32_t i = 0; i < info.n_symbols; ++i)
      if (fixed[i] == kFree) symbols_[kept++] = symbols_[i];
    return model_.entries[info.variants[v].entry];
  }
  return entry;
}

int Call::read_symbols(const Entry &entry, const mycc_tensor *inputs) {
  for (int32_t i = 0; i < entry.info->n_symbols; ++i) {
    const SizeSymbol &symbol = entry.info->symbols[i];
    int64_t size = inputs[symbol.input].shape[symbol.dim], rest;
    const bool wraps = __builtin_sub_overflow(size, symbol.offset, &rest);
    int64_t value = rest / symbol.scale;
    if (size < 0 || wraps || rest % symbol.scale || value < symbol.named.min || value > symbol.named.max)
      return wrong_range(entry.info->inputs[symbol.input], symbol, size);
    symbols_[i] = value;
  }
  return MYCC_OK;
}

int Call::check_dims(const Entry &entry, const mycc_tensor *inputs) {
  entry.code->input_dims(symbols_, dims_);
  const int64_t *dim = dims_;
  for (int32_t i = 0; i < entry.info->n_inputs; ++i)
    for (int32_t d = 0; d < inputs[i].ndim; ++d, ++dim)
      if (inputs[i].shape[d] != *dim)
        return wrong_size(entry, entry.info->inputs[i], d, inputs[i].shape[d], *dim, symbols_);
  return MYCC_OK;
}

// An input that the run writes to must not lie over another one, nor its elements over each other.
int Call::check_written(const Entry &entry, const mycc_tensor *inputs) {
  const EntryInfo &info = *entry.info;
  for (int32_t k = 0; k < info.n_writes; ++k) {
    const int32_t written = info.writes[k];
    const Extent own = extent_of(inputs[written]);
    if (is_expanded(inputs[written]))
      return fail(MYCC_ERROR_INPUT, "%s: the model writes to it, so its elements must not share memory: pass a copy",
                  info.inputs[written].name);
    for (int32_t i = 0; i < info.n_inputs; ++i) {
      const Extent other = extent_of(inputs[i]);
      if (i != written && overlap(own, other))
        return fail(MYCC_ERROR_INPUT, "%s: the model writes to it, so it must not share memory with %s",
                    info.inputs[written].name, info.inputs[i].name);
    }
  }
  return MYCC_OK;
}

bool Call::is_written(const Entry &entry, int32_t input) const {
  for (int32_t k = 0; k < entry.info->n_writes; ++k)
    if (entry.info->writes[k] == input) return true;
  return false;
}

void Call::write_back(const Entry &entry, const mycc_tensor *inputs) {
  for (int32_t k = 0; k < entry.info->n_writes; ++k) {
    const int32_t i = entry.info->writes[k];
    if (input_bytes_[i] && inputs_[i] != inputs[i].data) copy_strided(inputs_[i], inputs[i]);
  }
}

int Call::measure_inputs(const Entry &entry, const mycc_tensor *inputs) {
  for (int32_t i = 0; i < entry.info->n_inputs; ++i) {
    const mycc_tensor &tensor = inputs[i];
    const char *name = entry.info->inputs[i].name;
    if (!dense_bytes(tensor.shape, tensor.ndim, dtype_bytes(tensor.dtype), &input_bytes_[i]))
      return fail(MYCC_ERROR_INPUT, "%s: takes %s", name, kTooManyBytes);
    if (!tensor.data && input_bytes_[i]) return fail(MYCC_ERROR_INPUT, "%s: has no data", name);
    inputs_[i] = tensor.data;
  }
  return MYCC_OK;
}

// Kernels read dense, aligned inputs; others are copied first.
int Call::make_dense(const Entry &entry, const mycc_tensor *inputs) {
  if (int status = measure_inputs(entry, inputs)) return status;
  size_t copied = 0;
  for (int32_t i = 0; i < entry.info->n_inputs; ++i) {
    const mycc_tensor &tensor = inputs[i];
    const bool bools = is_older() && is_bool(tensor.dtype);
    const bool other = bools && is_dense(tensor) && has_other_bytes(tensor.data, size_t(input_bytes_[i]));
    if (is_dense(tensor) && is_aligned(tensor) && !other && !(spares_inputs_ && is_written(entry, i))) continue;
    inputs_[i] = nullptr;
    if (__builtin_add_overflow(copied, in_lines(input_bytes_[i]), &copied))
      return fail(MYCC_ERROR_RUN, "out of memory: dense copies of the inputs take %s", kTooManyBytes);
  }
  if (copied == 0) return MYCC_OK;
  uint8_t *room = dense_.reserve(copied);
  if (!room) return out_of_memory(copied);
  for (int32_t i = 0; i < entry.info->n_inputs; ++i) {
    if (inputs_[i] || input_bytes_[i] == 0) continue;
    copy_dense(inputs[i], room);
    if (is_older() && is_bool(inputs[i].dtype)) make_bools(room, size_t(input_bytes_[i]));
    inputs_[i] = room;
    room += in_lines(input_bytes_[i]);
  }
  return MYCC_OK;
}

int Call::bind_outputs(const Entry &entry, mycc_tensor *outputs, int32_t n_outputs) {
  const EntryInfo &info = *entry.info;
  if (int status = check_count(entry, n_outputs, info.outputs, info.n_outputs, "output")) return status;
  bound_outputs_ = outputs;
  note_new_outputs(outputs, n_outputs);
  int status = bind_known_outputs(entry, 0);
  if (status != MYCC_OK) free_new_outputs(outputs, n_outputs);
  return status;
}

void Call::note_new_outputs(mycc_tensor *outputs, int32_t n_outputs) {
  for (int32_t i = 0; i < n_outputs; ++i) {
    is_new_[i] = !outputs[i].data;
    if (is_new_[i]) outputs[i].owner = nullptr;
  }
}

void Call::free_new_outputs(mycc_tensor *outputs, int32_t n_outputs) {
  for (int32_t i = 0; i < n_outputs; ++i) {
    if (!is_new_[i]) continue;
    free_output(&outputs[i]);
    outputs[i].data = nullptr;  // also what the caller's function allocated: it is the caller's
  }
}

int Call::too_large(const mycc_port &output, const int64_t *dims) {
  for (int32_t d = 0; d < output.ndim; ++d)
    if (dims[d] < 0)
      return fail(MYCC_ERROR_RUN, "%s: the sizes at hand give %lld for dimension %d (%s), which cannot be negative",
                  output.name, static_cast<long long>(dims[d]), d, output.dims[d]);
  return fail(MYCC_ERROR_RUN, "out of memory: the output %s takes %s", output.name, kTooManyBytes);
}

int Call::bind_output(const Entry &entry, int32_t output, const int64_t *dims) {
  const mycc_port &port = entry.info->outputs[output];
  mycc_tensor &tensor = bound_outputs_[output];
  int64_t bytes;
  if (!dense_bytes(dims, port.ndim, dtype_bytes(port.dtype), &bytes))
    return too_large(port, dims);
  if (tensor.data) {
    if (int status = check_output(port, tensor, dims)) return status;
    if (int status = check_overlap(entry, bound_outputs_, output)) return status;
  } else if (!allocate_output(port.dtype, dims, port.ndim, bytes, &tensor)) {
    return out_of_memory(size_t(bytes));
  }
  outputs_[output] = tensor.data;
  return MYCC_OK;
}

int Call::check_output(const mycc_port &port, const mycc_tensor &tensor, const int64_t *dims) {
  if (int status = check_tensor(model_, port, tensor)) return status;
  for (int32_t d = 0; d < port.ndim; ++d)
    if (tensor.shape[d] != dims[d])
      return fail(MYCC_ERROR_INPUT, "%s: dimension %d (%s) is %lld, but the output has %lld", port.name, d,
                  port.dims[d], static_cast<long long>(tensor.shape[d]), static_cast<long long>(dims[d]));
  if (!is_dense(tensor) || !is_aligned(tensor))
    return fail(MYCC_ERROR_INPUT, "%s: an output has to be dense, row-major and aligned to its element", port.name);
  return MYCC_OK;
}

// An output that the caller gave must not lie over an input or over another one.
int Call::check_overlap(const Entry &entry, const mycc_tensor *outputs, int32_t output) {
  const EntryInfo &info = *entry.info;
  auto begin_of = [](const void *data) { return reinterpret_cast<uintptr_t>(data); };
  auto bytes_of = [](const mycc_tensor &tensor) {
    int64_t bytes = 0;
    dense_bytes(tensor.shape, tensor.ndim, dtype_bytes(tensor.dtype), &bytes);
    return uintptr_t(bytes);
  };
  uintptr_t begin = begin_of(outputs[output].data), end = begin + bytes_of(outputs[output]);
  for (int32_t i = 0; i < info.n_inputs; ++i) {
    uintptr_t other = begin_of(inputs_[i]);
    if (begin < other + uintptr_t(input_bytes_[i]) && other < end)
      return fail(MYCC_ERROR_INPUT, "%s: the output overlaps the input %s", info.outputs[output].name,
                  info.inputs[i].name);
  }
  for (int32_t i = 0; i < output; ++i) {
    uintptr_t other = begin_of(outputs[i].data);
    if (begin < other + bytes_of(outputs[i]) && other < end)
      return fail(MYCC_ERROR_INPUT, "%s: the output overlaps the output %s", info.outputs[output].name,
                  info.outputs[i].name);
  }
  return MYCC_OK;
}

}  // namespace mycc::runtime
