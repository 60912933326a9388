// gpu_call.cpp: the steps of a call on a GPU, from the caller's tensors to its result or failure.
#include "gpu_call.h"

#include "../call/state.h"

namespace mycc::runtime {

namespace {

constexpr size_t kPiece = 64;  // launches that wait to be issued, at most

bool any_on_device(const mycc_tensor *tensors, int32_t count) {
  for (int32_t i = 0; i < count; ++i)
    if (tensors[i].data && !is_host(tensors[i])) return true;
  return false;
}

uintptr_t number(const void *address) { return reinterpret_cast<uintptr_t>(address); }

}  // namespace

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
                  "outside of the capture.",
                  entry.info->name);
  }
  GpuCall *call = acquire(model, stream_id);
  if (!call) return MYCC_ERROR_RUN;
  call->stream_ = stream_id ? static_cast<cuda::Stream>(options.stream) : call->own_stream_;
  cuda::Result waited = cuda::kSuccess;
  if (call->in_flight_ && call->last_stream_ != stream_id) waited = api.stream_wait(call->stream_, call->done_, 0);
  call->last_stream_ = stream_id;
  call->outputs_on_host_ = !on_device;
  int status = waited == cuda::kSuccess ? call->earlier_failure() : gpu_fail(MYCC_ERROR_RUN, waited, "an earlier call");
  if (status == MYCC_OK) status = call->use_state(entry, options.state);
  if (status == MYCC_OK) status = call->wait_for_state(stream_id);
  if (status == MYCC_OK) status = call->bind(entry, inputs, n_inputs, false);
  Entry &chosen = status == MYCC_OK ? call->variant(entry) : entry;
  call->set_seed(options.has_seed ? options.seed : chosen.random ? model.next_seed.fetch_add(1) : 0);
  if (status == MYCC_OK) status = call->prepare(chosen, inputs, outputs, n_outputs, options);
  if (status == MYCC_OK) {
    status = call->issue(chosen);
    if (status == MYCC_OK) status = call->copy_back(chosen, inputs);
    if (status == MYCC_OK) status = call->mark_state(stream_id);
    if (status == MYCC_OK)
      status = call->finish(chosen, outputs);
    else
      call->mark_done();
    if (status != MYCC_OK) {
      failed_in_place(status, *chosen.info);
      call->free_new_outputs(outputs, n_outputs);
    }
  }
  release(call);
  return status;
}

int GpuCall::prepare(Entry &entry, const mycc_tensor *inputs, mycc_tensor *outputs, int32_t n_outputs,
                     const mycc_run_options &options) {
  if (int status = place(entry)) return status;
  if (int status = place_inputs(entry, inputs)) return status;
  if (int status = place_outputs(entry, outputs, n_outputs, options)) return status;
  int status = take_memory(entry);
  if (status == MYCC_OK) status = copy_inputs(entry, inputs);
  if (status == MYCC_OK && !entry.fetches) status = list_launches(entry);
  if (status == MYCC_OK) return status;
  if (copies_) mark_done();
  free_new_outputs(outputs, n_outputs);
  return status;
}

// ---- launches

void GpuCall::host_launch(void *ctx, int32_t kernel, int64_t x, int64_t y, int64_t z, const void *const *args) {
  GpuCall *call = static_cast<GpuCall *>(static_cast<Call *>(ctx));
  if (call->failed_.load(std::memory_order_relaxed)) return;
  int status = call->launches_->add(kernel, call->number_, x, y, z, args);
  if (status == MYCC_OK && call->launches_ == &call->piece_ && call->piece_.size() >= kPiece)
    status = call->issue_piece();
  if (status != MYCC_OK) host_fail(ctx, status, last_error());
}

void GpuCall::host_tensor_map(void *ctx, void *map, const mycc_tensor_map *tensor) {
  GpuCall *call = static_cast<GpuCall *>(static_cast<Call *>(ctx));
  if (call->failed_.load(std::memory_order_relaxed)) return;
  if (int status = call->launches_->tensor_map(map, *tensor)) host_fail(ctx, status, last_error());
}

void GpuCall::host_number(void *ctx, int32_t kernel) {
  static_cast<GpuCall *>(static_cast<Call *>(ctx))->number_ = kernel;
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
  note(state_ ? number(state_->tensors[0]) : 0);
  note(entry.random ? uintptr_t(seed_) : 0);
  return changed;
}

void GpuCall::set_program_call(const Entry &entry) {
  const size_t index = size_t(&entry - model_.entries);
  program_ = {&host_,
              gpu_.weights_base,
              reinterpret_cast<uint8_t *>(arena_memory_.address()),
              placed_,
              inputs_,
              outputs_,
              symbols_,
              reinterpret_cast<uint8_t *>(zeros_.address()),
              reinterpret_cast<int32_t *>(status_address_) + index,
              buffers_,
              seed_,
              state_ ? state_->tensors : nullptr,
              int64_t(gpu_.device->multiprocessors) * (gpu_.device->threads / 256)};
}

// The program runs again only when an address, or the seed of random numbers, has changed since its launches were listed.
int GpuCall::list_launches(const Entry &entry) {
  GpuShape *shape = find_shape(entry);
  if (!shape) return out_of_memory(sizeof(GpuShape));
  const bool changed = addresses_changed(entry, shape->addresses);
  if (shape->calls++ > 0 && !changed) return MYCC_OK;
  failed_.store(0, std::memory_order_relaxed);
  number_ = 0;
  launches_ = &shape->launches;
  launches_->begin();
  set_program_call(entry);
  entry.code->run(&program_);
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
  if (entry.fetches) return run_in_pieces(entry);
  GpuLaunches &launches = shapes_->launches;
  if (launches.size() == 0) return MYCC_OK;
  const mycc_entry &code = *entry.code;
  bool graph = gpu_.mode == LaunchMode::graph;
  if (gpu_.mode == LaunchMode::automatic) graph = shapes_->calls > 1;
  if (!graph) return launches.issue(stream_, code, gpu_.mode == LaunchMode::debug);
  if (!launches.has_graph()) {
    make_room(true);
    if (int status = launches.build_graph(code)) return status;
  }
  return launches.issue_graph(stream_, code);
}

// ---- the end

int GpuCall::finish(const Entry &entry, mycc_tensor *outputs) {
  if (!outputs_on_host_ && gpu_.mode != LaunchMode::debug) {
    cuda::Result result = mark_done();
    int status =
        result == cuda::kSuccess ? int(MYCC_OK) : gpu_fail(MYCC_ERROR_RUN, result, "%s: its end", entry.info->name);
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

// What kernels of this entry point wrote into their status word.
int GpuCall::failure_of(const Entry &entry, bool earlier) {
  const size_t index = size_t(&entry - model_.entries);
  const int32_t raised = __atomic_exchange_n(&status_[index], 0, __ATOMIC_ACQ_REL);
  if (raised == 0) return MYCC_OK;
  const mycc_entry &code = *entry.code;
  const char *const *failures = gpu_.program->entries[index].failures;
  const int32_t word = raised > INT32_MAX / 2 ? INT32_MAX - raised : raised;
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
  const mycc_run_options options{};
  mycc_state *state = nullptr;  // the caller's own is left as it is
  GpuCall *call = acquire(model, 0);
  int status = call ? call->settle() : int(MYCC_ERROR_RUN);
  if (status == MYCC_OK) {
    call->stream_ = call->own_stream_;
    call->last_stream_ = 0;
    call->outputs_on_host_ = true;
    // inputs on the device may still be on their way
    cuda::Result result =
        any_on_device(inputs, n_inputs) ? model.gpu->api->stream_synchronize(nullptr) : cuda::kSuccess;
    if (result != cuda::kSuccess) status = gpu_fail(MYCC_ERROR_RUN, result, "%s: profiling", entry.info->name);
    if (status == MYCC_OK) status = call->bind(entry, inputs, n_inputs, false);
    if (status == MYCC_OK && entry.info->n_state) status = make_state(model, &state);
    if (status == MYCC_OK) status = call->use_state(entry, state);
    call->spare_inputs(true);
    if (status == MYCC_OK) status = call->prepare(entry, inputs, outputs, count, options);
  }
  if (status == MYCC_OK) {
    if (!entry.fetches && !call->shapes_->launches.has_graph()) call->make_room(true);  // a profile builds one
    status = entry.fetches ? call->profile_pieces(entry, runs, nanoseconds)
                           : call->shapes_->launches.profile(call->stream_, *entry.code, runs, nanoseconds);
    if (status == MYCC_OK)
      status = call->finish(entry, outputs);
    else
      call->mark_done();
    for (int32_t i = 0; i < count; ++i) free_output(&outputs[i]);
  }
  if (call) {
    call->settle();
    call->spare_inputs(false);
    release(call);
  }
  free_state(state);
  free(outputs);
  return status;
}

}  // namespace mycc::runtime
