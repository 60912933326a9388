#include "gpu_call.h"

#include <initializer_list>

namespace mycc::runtime {

namespace {

constexpr size_t kNowhere = SIZE_MAX;
constexpr size_t kAlignment = 16, kPlace = 256;
constexpr int32_t kMaxCalls = 8;                     // that a model keeps
constexpr int32_t kMaxShapes = 16;                   // whose launches a call keeps
constexpr size_t kMaxPinned = size_t(8) << 20;       // larger copies go straight from the caller's memory
constexpr size_t kLargeArena = size_t(256) << 20;    // given back when calls stop needing it
constexpr int32_t kOversizedCalls = 16;              // after so many

size_t placed(size_t bytes) { return (bytes + kPlace - 1) & ~(kPlace - 1); }
uintptr_t number(const void *address) { return reinterpret_cast<uintptr_t>(address); }

bool any_on_device(const mycc_tensor *tensors, int32_t count) {
  for (int32_t i = 0; i < count; ++i)
    if (tensors[i].data && !is_host(tensors[i])) return true;
  return false;
}

}  // namespace

// ---- life

GpuCall::GpuCall(mycc_model &model) : Call(model), gpu_(*model.gpu), api_(*model.gpu->api) {
  host_ = {this, nullptr, nullptr, host_fail, host_number, 1, host_launch, host_tensor_map};
}

bool GpuCall::prepare_state() {
  int32_t inputs = 1, outputs = 1;
  for (int32_t i = 0; i < model_.manifest.n_entries; ++i) {
    const EntryInfo &info = *model_.entries[i].info;
    inputs = info.n_inputs > inputs ? info.n_inputs : inputs;
    outputs = info.n_outputs > outputs ? info.n_outputs : outputs;
  }
  input_places_ = region_.array<size_t>(size_t(inputs));
  output_places_ = region_.array<size_t>(size_t(outputs));
  output_bytes_ = region_.array<int64_t>(size_t(outputs));
  return allocate() && input_places_ && output_places_ && output_bytes_;
}

GpuCall *GpuCall::create(mycc_model &model) {
  void *memory = nullptr;
  if (posix_memalign(&memory, 64, sizeof(GpuCall)) != 0) {
    out_of_memory(sizeof(GpuCall));
    return nullptr;
  }
  GpuCall *call = new (memory) GpuCall(model);
  if (!call->prepare_state()) {
    destroy(call);
    out_of_memory(4096);
    return nullptr;
  }
  const size_t words = sizeof(int32_t) * size_t(model.manifest.n_entries);
  void *status = nullptr;
  cuda::Result result = call->api_.event_create(&call->done_, cuda::kEventNoTiming);
  if (result == cuda::kSuccess) result = call->api_.stream_create(&call->own_stream_, cuda::kStreamNonBlocking);
  if (result == cuda::kSuccess) result = call->api_.host_allocate(&status, words, cuda::kHostMapped);
  if (result == cuda::kSuccess) {
    call->status_ = static_cast<int32_t *>(status);
    memset(status, 0, words);
    result = call->api_.host_address(&call->status_address_, status, 0);
  }
  if (result == cuda::kSuccess) return call;
  gpu_fail(MYCC_ERROR_RUN, result, "%s: no state for a call on cuda:%d", model.manifest.name, call->gpu_.device->number);
  destroy(call);
  return nullptr;
}

void GpuCall::destroy(GpuCall *call) {
  if (!gpu_forked()) {
    call->settle();
    for (DeviceMemory *memory : {&call->arena_memory_, &call->zeros_, &call->scratch_memory_, &call->dense_memory_})
      memory->release();
    if (call->pinned_) call->api_.host_release(call->pinned_);
    if (call->status_) call->api_.host_release(call->status_);
    if (call->own_stream_) call->api_.stream_destroy(call->own_stream_);
    if (call->done_) call->api_.event_destroy(call->done_);
  }
  while (call->shapes_) call->drop_shape();
  for (int32_t i = 0; call->scratch_ && i < call->model_.threads; ++i) call->scratch_[i].~Memory();
  free(call->scratch_);
  call->~GpuCall();
  free(call);
}

void GpuCall::destroy_all(mycc_model &model) {
  if (!model.gpu_calls) return;
  CurrentDevice current(*model.gpu->device);
  while (GpuCall *call = model.gpu_calls) {
    model.gpu_calls = call->next_free_;
    destroy(call);
  }
}

// Whether the state's last work is done.
bool GpuCall::idle() const { return !in_flight_ || api_.event_query(done_) == cuda::kSuccess; }

// A free state, the best first: of the same stream, idle, any. NULL: a new one is to be made. Locked.
GpuCall *GpuCall::take(mycc_model &model, unsigned long long stream_id) {
  GpuCall **best = nullptr;
  for (GpuCall **at = &model.gpu_calls; *at; at = &(*at)->next_free_) {
    if ((*at)->last_stream_ != stream_id) continue;
    best = at;
    break;
  }
  for (GpuCall **at = &model.gpu_calls; !best && *at; at = &(*at)->next_free_)
    if ((*at)->idle()) best = at;
  if (!best && model.n_gpu_calls >= kMaxCalls && model.gpu_calls) best = &model.gpu_calls;
  if (!best) {
    model.n_gpu_calls += 1;
    return nullptr;
  }
  GpuCall *call = *best;
  *best = call->next_free_;
  return call;
}

GpuCall *GpuCall::acquire(mycc_model &model, unsigned long long stream_id) {
  {
    Locked locked(model.lock);
    if (GpuCall *call = take(model, stream_id)) return call;
  }
  GpuCall *call = create(model);
  if (call) return call;
  Locked locked(model.lock);
  model.n_gpu_calls -= 1;
  return nullptr;
}

void GpuCall::release(GpuCall *call) {
  mycc_model &model = call->model_;
  const bool oversized = call->arena_memory_.capacity() > kLargeArena &&
                         size_t(call->arena_bytes_) < call->arena_memory_.capacity() / 4;
  call->oversized_calls_ = oversized ? call->oversized_calls_ + 1 : 0;
  if (call->oversized_calls_ >= kOversizedCalls && call->settle() == MYCC_OK) call->arena_memory_.release();
  {
    Locked locked(model.lock);
    if (model.n_gpu_calls <= kMaxCalls) {
      call->next_free_ = model.gpu_calls;
      model.gpu_calls = call;
      return;
    }
    model.n_gpu_calls -= 1;
  }
  destroy(call);
}

// Waits on the host for the state's last work.
int GpuCall::settle() {
  if (!in_flight_) return MYCC_OK;
  cuda::Result result = api_.event_synchronize(done_);
  if (result != cuda::kSuccess) return gpu_fail(MYCC_ERROR_RUN, result, "%s: an earlier call", model_.manifest.name);
  in_flight_ = false;
  return MYCC_OK;
}

cuda::Result GpuCall::mark_done() {
  in_flight_ = true;
  return api_.event_record(done_, stream_);
}

// ---- one call

int GpuCall::run(mycc_model &model, Entry &entry, const mycc_tensor *inputs, int32_t n_inputs, mycc_tensor *outputs,
                 int32_t n_outputs, const mycc_run_options &options) {
  if (int status = gpu_usable()) return status;
  CurrentDevice current(*model.gpu->device);
  if (current.status()) return current.status();
  const cuda::Api &api = *model.gpu->api;
  const bool on_device = any_on_device(inputs, n_inputs) || any_on_device(outputs, n_outputs);
  unsigned long long stream_id = 0;  // no stream has it
  if (on_device || options.has_stream) {
    const cuda::Stream stream = static_cast<cuda::Stream>(options.stream);
    int capturing = 0;
    cuda::Result result = api.stream_capturing(stream, &capturing);
    if (result == cuda::kSuccess && !capturing) result = api.stream_id(stream, &stream_id);
    if (result != cuda::kSuccess) return gpu_fail(MYCC_ERROR_RUN, result, "%s: its stream", entry.info->name);
    if (capturing)
      return fail(MYCC_ERROR_RUN,
                  "%s: its stream is being captured into a CUDA graph\n  A package makes graphs of its own: call it "
                  "outside of the capture.", entry.info->name);
  }
  GpuCall *call = acquire(model, stream_id);
  if (!call) return MYCC_ERROR_RUN;
  call->stream_ = stream_id ? static_cast<cuda::Stream>(options.stream) : call->own_stream_;
  cuda::Result waited = cuda::kSuccess;
  if (call->in_flight_ && call->last_stream_ != stream_id) waited = api.stream_wait(call->stream_, call->done_, 0);
  call->last_stream_ = stream_id;
  call->outputs_on_host_ = !on_device;
  int status = waited == cuda::kSuccess ? call->earlier_failure() : gpu_fail(MYCC_ERROR_RUN, waited, "an earlier call");
  if (status == MYCC_OK) status = call->prepare(entry, inputs, n_inputs, outputs, n_outputs, options);
  if (status == MYCC_OK) {
    status = call->issue(entry);
    if (status == MYCC_OK)
      status = call->finish(entry, outputs);
    else
      call->mark_done();
    if (status != MYCC_OK)
      for (int32_t i = 0; i < n_outputs; ++i) free_output(&outputs[i]);
  }
  release(call);
  return status;
}

int GpuCall::prepare(Entry &entry, const mycc_tensor *inputs, int32_t n_inputs, mycc_tensor *outputs, int32_t n_outputs,
                     const mycc_run_options &options) {
  if (int status = bind(entry, inputs, n_inputs, false)) return status;
  if (int status = place(entry)) return status;
  if (int status = place_inputs(entry, inputs)) return status;
  if (int status = place_outputs(entry, outputs, n_outputs, options)) return status;
  int status = take_memory(entry);
  if (status == MYCC_OK) status = copy_inputs(entry, inputs);
  if (status == MYCC_OK) status = list_launches(entry);
  if (status == MYCC_OK) return status;
  if (copies_) mark_done();
  for (int32_t i = 0; i < n_outputs; ++i) free_output(&outputs[i]);
  return status;
}

// Inputs on the device are read where they are; those of the host, and unaligned ones, are copied to dense_memory_.
int GpuCall::place_inputs(const Entry &entry, const mycc_tensor *inputs) {
  if (int status = measure_inputs(entry, inputs)) return status;
  dense_bytes_ = staged_bytes_ = 0;
  for (int32_t i = 0; i < entry.info->n_inputs; ++i) {
    const mycc_tensor &tensor = inputs[i];
    const bool host = is_host(tensor);
    input_places_[i] = kNowhere;
    if (!host && !is_dense(tensor))
      return fail(MYCC_ERROR_INPUT,
                  "%s: is not dense and row-major, as a tensor on a GPU has to be\n  Make it so first: x.contiguous() in "
                  "torch, cupy.ascontiguousarray(x).", entry.info->inputs[i].name);
    if (!host && number(tensor.data) % kAlignment == 0) continue;
    input_places_[i] = dense_bytes_;
    dense_bytes_ += placed(size_t(input_bytes_[i]));
    if (host) staged_bytes_ += placed(size_t(input_bytes_[i]));
  }
  return MYCC_OK;
}

int GpuCall::place_outputs(const Entry &entry, mycc_tensor *outputs, int32_t n_outputs, const mycc_run_options &options) {
  const EntryInfo &info = *entry.info;
  if (n_outputs != info.n_outputs)
    return fail(MYCC_ERROR_INPUT, "%s has %d outputs, but %d were given", info.name, info.n_outputs, n_outputs);
  entry.code->output_dims(symbols_, output_dims_);
  const int64_t *dims = output_dims_;
  for (int32_t i = 0; i < n_outputs; ++i) {
    if (int status = place_output(entry, i, dims, outputs, options)) {
      for (int32_t k = 0; k < i; ++k) free_output(&outputs[k]);
      return status;
    }
    dims += info.outputs[i].ndim;
  }
  return MYCC_OK;
}

int GpuCall::place_output(const Entry &entry, int32_t i, const int64_t *dims, mycc_tensor *outputs,
                          const mycc_run_options &options) {
  const mycc_port &port = entry.info->outputs[i];
  mycc_tensor &tensor = outputs[i];
  if (!dense_bytes(dims, port.ndim, dtype_bytes(port.dtype), &output_bytes_[i]))
    return fail(MYCC_ERROR_RUN, "out of memory: the output %s is too large", port.name);
  const size_t bytes = size_t(output_bytes_[i]);
  output_places_[i] = kNowhere;
  if (tensor.data) {
    if (int status = check_output(port, tensor, dims)) return status;
    if (int status = check_overlap(entry, outputs, i)) return status;
    if (!is_host(tensor) && number(tensor.data) % kAlignment)
      return fail(MYCC_ERROR_INPUT, "%s: an output on a GPU has to be aligned to 16 bytes", port.name);
    outputs_on_host_ = outputs_on_host_ || is_host(tensor);
  } else if (outputs_on_host_) {
    if (!allocate_output(port.dtype, dims, port.ndim, int64_t(bytes), &tensor)) return out_of_memory(bytes);
  } else {
    tensor.owner = nullptr;
    tensor.device_type = kCuda, tensor.device_id = gpu_.device->number;
    describe_output(port.dtype, dims, port.ndim, &tensor);
    if (!options.allocate) {
      if (int status = gpu_allocate_output(*gpu_.device, bytes, stream_, &tensor)) return status;
    } else if (options.allocate(options.ctx, i, &tensor) != 0 || (!tensor.data && bytes) || number(tensor.data) % kAlignment) {
      return gpu_out_of_memory(*gpu_.device, bytes);
    }
  }
  if (is_host(tensor)) {
    output_places_[i] = dense_bytes_;
    dense_bytes_ += placed(bytes);
  }
  outputs_[i] = tensor.data;
  return MYCC_OK;
}

int GpuCall::take_memory(const Entry &entry) {
  const size_t arena = size_t(arena_bytes_);
  const mycc_gpu_entry &gpu = gpu_.program->entries[&entry - model_.entries];
  const size_t zeros = gpu.zero_bytes ? size_t(gpu.zero_bytes(symbols_)) : 0;
  const bool grows = arena > arena_memory_.capacity() || dense_bytes_ > dense_memory_.capacity() || zeros > zeros_.capacity();
  if (grows)
    if (int status = settle()) return status;
  if (int status = arena_memory_.reserve(*gpu_.device, arena)) return status;
  if (int status = dense_memory_.reserve(*gpu_.device, dense_bytes_)) return status;
  if (zeros > zeros_.capacity()) {
    zeros_clean_ = 0;
    if (int status = zeros_.reserve(*gpu_.device, zeros)) return status;
  }
  if (zeros > zeros_clean_) {
    cuda::Result result = api_.clear(zeros_.address(), 0, zeros_.capacity(), stream_);
    if (result != cuda::kSuccess) return gpu_fail(MYCC_ERROR_RUN, result, "%s: its zeros", entry.info->name);
    zeros_clean_ = zeros_.capacity();
  }
  for (int32_t i = 0; i < entry.info->n_inputs; ++i)
    if (input_places_[i] != kNowhere) inputs_[i] = reinterpret_cast<void *>(dense_memory_.address() + input_places_[i]);
  for (int32_t i = 0; i < entry.info->n_outputs; ++i)
    if (output_places_[i] != kNowhere) outputs_[i] = reinterpret_cast<void *>(dense_memory_.address() + output_places_[i]);
  return MYCC_OK;
}

// Pinned host memory; NULL: too much for it, or none is left.
uint8_t *GpuCall::staging(size_t bytes) {
  if (bytes > kMaxPinned) return nullptr;
  if (bytes > pinned_bytes_) {
    if (pinned_) api_.host_release(pinned_);
    size_t room = bytes < 65536 ? 65536 : bytes;
    if (api_.host_allocate(&pinned_, room, 0) != cuda::kSuccess) pinned_ = nullptr;
    pinned_bytes_ = pinned_ ? room : 0;
  }
  return static_cast<uint8_t *>(pinned_);
}

// A call that does not wait for its end must leave the staging memory alone: then the driver copies from the caller's.
int GpuCall::copy_inputs(const Entry &entry, const mycc_tensor *inputs) {
  copies_ = false;
  if (outputs_on_host_)
    if (int status = settle()) return status;
  uint8_t *stage = outputs_on_host_ && staged_bytes_ ? staging(dense_bytes_) : nullptr;
  for (int32_t i = 0; i < entry.info->n_inputs; ++i) {
    const size_t bytes = size_t(input_bytes_[i]);
    if (input_places_[i] == kNowhere || bytes == 0) continue;
    const mycc_tensor &tensor = inputs[i];
    const cuda::Address target = dense_memory_.address() + input_places_[i];
    cuda::Result result;
    copies_ = true;
    if (!is_host(tensor)) {
      result = api_.copy_within(target, reinterpret_cast<cuda::Address>(tensor.data), bytes, stream_);
    } else if (is_dense(tensor) && !stage) {
      result = api_.copy_in(target, tensor.data, bytes, stream_);
      // from pinned memory the copy may still be to come
      if (result == cuda::kSuccess && tensor.device_type != kCpu) result = api_.stream_synchronize(stream_);
    } else if (stage) {
      copy_dense(tensor, stage);
      result = api_.copy_in(target, stage, bytes, stream_);
      stage += placed(bytes);
    } else {
      uint8_t *dense = dense_.reserve(bytes);
      if (!dense) return out_of_memory(bytes);
      copy_dense(tensor, dense);
      result = api_.copy_in(target, dense, bytes, stream_);
      if (result == cuda::kSuccess) result = api_.stream_synchronize(stream_);
    }
    if (result != cuda::kSuccess)
      return gpu_fail(MYCC_ERROR_RUN, result, "%s: does not get to cuda:%d", entry.info->inputs[i].name, gpu_.device->number);
  }
  return MYCC_OK;
}

// ---- launches

void GpuCall::host_launch(void *ctx, int32_t kernel, int64_t x, int64_t y, int64_t z, const void *const *args) {
  GpuCall *call = static_cast<GpuCall *>(static_cast<Call *>(ctx));
  if (call->failed_.load(std::memory_order_relaxed)) return;
  if (int status = call->shapes_->launches.add(kernel, call->number_, x, y, z, args)) host_fail(ctx, status, last_error());
}

void GpuCall::host_tensor_map(void *ctx, void *map, const mycc_tensor_map *tensor) {
  GpuCall *call = static_cast<GpuCall *>(static_cast<Call *>(ctx));
  if (call->failed_.load(std::memory_order_relaxed)) return;
  if (int status = call->shapes_->launches.tensor_map(map, *tensor)) host_fail(ctx, status, last_error());
}

void GpuCall::host_number(void *ctx, int32_t kernel) { static_cast<GpuCall *>(static_cast<Call *>(ctx))->number_ = kernel; }

// The launches for these sizes come to the front of the list; when the list is full, the one that was not used for the
// longest time goes. NULL: out of memory.
GpuShape *GpuCall::find_shape(const Entry &entry) {
  int32_t count = 0;
  const size_t symbols = size_t(entry.info->n_symbols);
  for (GpuShape **at = &shapes_; *at; at = &(*at)->next) {
    GpuShape *shape = *at;
    if (shape->entry == &entry && memcmp(shape->symbols, symbols_, symbols * sizeof(int64_t)) == 0) {
      *at = shape->next;
      shape->next = shapes_;
      return shapes_ = shape;
    }
    if (++count < kMaxShapes || shape->next) continue;
    settle();  // its graph may still run
    *at = nullptr;
    shape->~GpuShape();
    free(shape);
    break;
  }
  void *memory = nullptr;
  if (posix_memalign(&memory, 64, sizeof(GpuShape)) != 0) return nullptr;
  GpuShape *shape = new (memory) GpuShape(gpu_);
  shape->entry = &entry;
  shape->symbols = shape->region.array<int64_t>(symbols);
  shape->addresses = shape->region.array<uintptr_t>(size_t(entry.info->n_inputs + entry.info->n_outputs + 3));
  shape->next = shapes_;
  shapes_ = shape;
  if (!shape->symbols || !shape->addresses) {
    drop_shape();
    return nullptr;
  }
  memcpy(shape->symbols, symbols_, symbols * sizeof(int64_t));
  return shape;
}

// The one at the front.
void GpuCall::drop_shape() {
  GpuShape *shape = shapes_;
  shapes_ = shape->next;
  shape->~GpuShape();
  free(shape);
}

bool GpuCall::addresses_changed(const Entry &entry, uintptr_t *kept) {
  bool changed = false;
  auto note = [&](uintptr_t address) {
    changed = changed || *kept != address;
    *kept++ = address;
  };
  for (int32_t i = 0; i < entry.info->n_inputs; ++i) note(number(inputs_[i]));
  for (int32_t i = 0; i < entry.info->n_outputs; ++i) note(number(outputs_[i]));
  note(uintptr_t(arena_memory_.address()));
  note(uintptr_t(zeros_.address()));
  note(uintptr_t(scratch_memory_.address()));
  return changed;
}

// The program runs again only when an address has changed since its launches were listed.
int GpuCall::list_launches(const Entry &entry) {
  GpuShape *shape = find_shape(entry);
  if (!shape) return out_of_memory(sizeof(GpuShape));
  const bool changed = addresses_changed(entry, shape->addresses);
  if (shape->calls++ > 0 && !changed) return MYCC_OK;
  failed_.store(0, std::memory_order_relaxed);
  number_ = 0;
  shape->launches.begin();
  const size_t index = size_t(&entry - model_.entries);
  mycc_call call{&host_, gpu_.weights_base, reinterpret_cast<uint8_t *>(arena_memory_.address()), placed_, inputs_, outputs_,
                 symbols_, reinterpret_cast<uint8_t *>(zeros_.address()),
                 reinterpret_cast<int32_t *>(status_address_) + index};
  entry.code->run(&call);
  int status = failed_.load(std::memory_order_acquire) ? fail(failure_code_, "%s", failure_) : int(MYCC_OK);
  const size_t scratch = shape->launches.scratch_bytes();
  if (status == MYCC_OK && scratch > scratch_memory_.capacity()) {
    status = settle();
    if (status == MYCC_OK) status = scratch_memory_.reserve(*gpu_.device, scratch);
    addresses_changed(entry, shape->addresses);
  }
  if (status == MYCC_OK) status = shape->launches.finish(scratch_memory_.address());
  if (status != MYCC_OK) drop_shape();
  return status;
}

// A graph from the second call with the same sizes on, so that sizes which come once cost no graph. Even one launch is
// cheaper for the host as a graph (docs/decisions/0010-launches-as-graphs.md).
int GpuCall::issue(const Entry &entry) {
  GpuLaunches &launches = shapes_->launches;
  if (launches.size() == 0) return MYCC_OK;
  const mycc_entry &code = *entry.code;
  bool graph = gpu_.mode == LaunchMode::graph;
  if (gpu_.mode == LaunchMode::automatic) graph = shapes_->calls > 1;
  if (!graph) return launches.issue(stream_, code, gpu_.mode == LaunchMode::debug);
  if (!launches.has_graph())
    if (int status = launches.build_graph(code)) return status;
  return launches.issue_graph(stream_, code);
}

// ---- the end

int GpuCall::finish(const Entry &entry, mycc_tensor *outputs) {
  if (!outputs_on_host_ && gpu_.mode != LaunchMode::debug) {
    cuda::Result result = mark_done();
    int status = result == cuda::kSuccess ? int(MYCC_OK) : gpu_fail(MYCC_ERROR_RUN, result, "%s: its end", entry.info->name);
    for (int32_t i = 0; i < entry.info->n_outputs && status == MYCC_OK; ++i)
      if (outputs[i].owner) status = gpu_output_written(outputs[i], stream_);
    return status;
  }
  if (int status = copy_outputs(entry, outputs)) {
    mark_done();
    return status;
  }
  in_flight_ = false;
  for (int32_t i = 0; i < entry.info->n_outputs; ++i)
    if (outputs[i].owner && !is_host(outputs[i])) gpu_output_written(outputs[i], stream_);
  return failure_of(entry, false);
}

// Waits for the call, and brings what belongs to the host.
int GpuCall::copy_outputs(const Entry &entry, mycc_tensor *outputs) {
  size_t total = 0;
  for (int32_t i = 0; i < entry.info->n_outputs; ++i)
    if (output_places_[i] != kNowhere) total += placed(size_t(output_bytes_[i]));
  uint8_t *stage = total ? staging(total) : nullptr, *at = stage;
  cuda::Result result = cuda::kSuccess;
  for (int32_t i = 0; i < entry.info->n_outputs && result == cuda::kSuccess; ++i) {
    const size_t bytes = size_t(output_bytes_[i]);
    if (output_places_[i] == kNowhere || bytes == 0) continue;
    result = api_.copy_out(stage ? at : outputs[i].data, dense_memory_.address() + output_places_[i], bytes, stream_);
    at += stage ? placed(bytes) : 0;
  }
  if (result == cuda::kSuccess) result = api_.stream_synchronize(stream_);
  if (result != cuda::kSuccess) return gpu_fail(MYCC_ERROR_RUN, result, "%s: a kernel, or the copy of its outputs", entry.info->name);
  at = stage;
  for (int32_t i = 0; i < entry.info->n_outputs && stage; ++i) {
    if (output_places_[i] == kNowhere) continue;
    if (output_bytes_[i]) memcpy(outputs[i].data, at, size_t(output_bytes_[i]));
    at += placed(size_t(output_bytes_[i]));
  }
  return MYCC_OK;
}

// What kernels of this entry point wrote into their status word.
int GpuCall::failure_of(const Entry &entry, bool earlier) {
  const size_t index = size_t(&entry - model_.entries);
  const int32_t word = __atomic_exchange_n(&status_[index], 0, __ATOMIC_ACQ_REL);
  if (word == 0) return MYCC_OK;
  const mycc_entry &code = *entry.code;
  const char *const *failures = gpu_.program->entries[index].failures;
  const bool known = word > 0 && word <= code.n_kernels;
  const char *before = earlier ? "an earlier call failed: " : "";
  if (known && failures && failures[word - 1]) return fail(MYCC_ERROR_RUN, "%s%s", before, failures[word - 1]);
  return fail(MYCC_ERROR_RUN, "%sindex out of range in kernel %s of %s", before,
              known ? code.kernel_names[word - 1] : "(unknown)", code.name);
}

int GpuCall::earlier_failure() {
  for (int32_t i = 0; i < model_.manifest.n_entries; ++i)
    if (__atomic_load_n(&status_[i], __ATOMIC_ACQUIRE))
      if (int status = failure_of(model_.entries[i], true)) return status;
  return MYCC_OK;
}

int GpuCall::synchronize(mycc_model &model) {
  if (int status = gpu_usable()) return status;
  CurrentDevice current(*model.gpu->device);
  int status = current.status();
  Locked locked(model.lock);
  for (GpuCall *call = model.gpu_calls; call && status == MYCC_OK; call = call->next_free_) {
    status = call->settle();
    if (status == MYCC_OK) status = call->earlier_failure();
  }
  return status;
}

int GpuCall::profile(mycc_model &model, Entry &entry, const mycc_tensor *inputs, int32_t n_inputs, int32_t runs,
                     int64_t *nanoseconds) {
  if (int status = gpu_usable()) return status;
  CurrentDevice current(*model.gpu->device);
  if (current.status()) return current.status();
  const int32_t count = entry.info->n_outputs;
  mycc_tensor *outputs = static_cast<mycc_tensor *>(calloc(size_t(count) + 1, sizeof(mycc_tensor)));
  if (!outputs) return out_of_memory(size_t(count) * sizeof(mycc_tensor));
  GpuCall *call = acquire(model, 0);
  int status = call ? call->settle() : int(MYCC_ERROR_RUN);
  if (status == MYCC_OK) {
    call->stream_ = call->own_stream_;
    call->last_stream_ = 0;
    call->outputs_on_host_ = true;
    // inputs on the device may still be on their way
    cuda::Result result = any_on_device(inputs, n_inputs) ? model.gpu->api->stream_synchronize(nullptr) : cuda::kSuccess;
    if (result != cuda::kSuccess) status = gpu_fail(MYCC_ERROR_RUN, result, "%s: profiling", entry.info->name);
    if (status == MYCC_OK) status = call->prepare(entry, inputs, n_inputs, outputs, count, mycc_run_options{});
  }
  if (status == MYCC_OK) {
    status = call->shapes_->launches.profile(call->stream_, *entry.code, runs, nanoseconds);
    if (status == MYCC_OK)
      status = call->finish(entry, outputs);
    else
      call->mark_done();
    for (int32_t i = 0; i < count; ++i) free_output(&outputs[i]);
  }
  if (call) release(call);
  free(outputs);
  return status;
}

}  // namespace mycc::runtime
