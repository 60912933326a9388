// gpu_state.cpp: the states of calls on a GPU: made, chosen for a call, kept for the next, and the launches they keep.
#include <initializer_list>

#include "gpu_call.h"

namespace mycc::runtime {

namespace {

constexpr int32_t kMaxCalls = 8;                   // that a model keeps
constexpr int32_t kMaxShapes = 16;                 // whose graphs a call keeps, and as many without a graph
constexpr size_t kLargeArena = size_t(256) << 20;  // given back when calls stop needing it
constexpr int32_t kOversizedCalls = 16;            // after so many
constexpr size_t kFetched = 8;                     // bytes of a value that a program fetches, at most

}  // namespace

// ---- life

GpuCall::GpuCall(mycc_model &model) : Call(model), gpu_(*model.gpu), api_(*model.gpu->api), piece_(gpu_) {
  host_ = {this, nullptr, nullptr, host_fail, host_number, 1, host_launch, host_tensor_map, host_define, host_fetch};
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
  if (!allocate()) return false;
  known_memory_ = static_cast<DeviceMemory *>(calloc(size_t(n_known_arenas_) + 1, sizeof(DeviceMemory)));
  while (known_memory_ && n_known_memory_ < n_known_arenas_) new (&known_memory_[n_known_memory_++]) DeviceMemory();
  return known_memory_ && input_places_ && output_places_ && output_bytes_;
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
  const size_t words = (sizeof(int32_t) * size_t(model.manifest.n_entries) + 7) / 8 * 8;
  void *status = nullptr;
  cuda::Result result = call->api_.event_create(&call->done_, cuda::kEventNoTiming);
  if (result == cuda::kSuccess) result = call->api_.stream_create(&call->own_stream_, cuda::kStreamNonBlocking);
  if (result == cuda::kSuccess) result = call->api_.host_allocate(&status, words + kFetched, cuda::kHostMapped);
  if (result == cuda::kSuccess) {
    call->status_ = static_cast<int32_t *>(status);
    call->fetched_ = static_cast<uint8_t *>(status) + words;
    memset(status, 0, words);
    result = call->api_.host_address(&call->status_address_, status, 0);
  }
  if (result == cuda::kSuccess) return call;
  gpu_fail(MYCC_ERROR_RUN, result, "%s: no state for a call on cuda:%d", model.manifest.name,
           call->gpu_.device->number);
  destroy(call);
  return nullptr;
}

void GpuCall::destroy(GpuCall *call) {
  if (!gpu_forked()) {
    call->settle();
    for (DeviceMemory *memory : {&call->arena_memory_, &call->zeros_, &call->scratch_memory_, &call->dense_memory_})
      memory->release();
    for (int32_t i = 0; i < call->n_known_memory_; ++i) call->known_memory_[i].release();
    if (call->pinned_) call->api_.host_release(call->pinned_);
    if (call->status_) call->api_.host_release(call->status_);
    if (call->own_stream_) call->api_.stream_destroy(call->own_stream_);
    if (call->done_) call->api_.event_destroy(call->done_);
  }
  while (call->shapes_) call->drop_shape();
  for (int32_t i = 0; call->scratch_ && i < call->model_.threads; ++i) call->scratch_[i].~Memory();
  free(call->scratch_);
  for (int32_t i = 0; i < call->n_known_arenas_; ++i) call->known_arenas_[i].~Memory();
  free(call->known_arenas_);
  free(call->known_memory_);
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
  call->drop_state();
  const bool oversized =
      call->arena_memory_.capacity() > kLargeArena && size_t(call->arena_bytes_) < call->arena_memory_.capacity() / 4;
  call->oversized_calls_ = oversized ? call->oversized_calls_ + 1 : 0;
  if (call->oversized_calls_ >= kOversizedCalls && call->settle() == MYCC_OK) call->arena_memory_.release();
  for (int32_t i = 0; i < call->n_known_memory_; ++i)
    if (call->known_memory_[i].capacity() > kLargeArena && call->settle() == MYCC_OK) call->known_memory_[i].release();
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

// ---- launches by sizes

// Of the launches that have a graph, or of those that have none, the one that was not used for the longest time goes when
// there are as many as a call keeps. Sizes that come once, as the lengths of prompts, leave the graphs of others alone.
void GpuCall::make_room(bool graph) {
  int32_t count = 0;
  GpuShape **last = nullptr;
  for (GpuShape **at = &shapes_; *at; at = &(*at)->next) {
    if ((*at)->launches.has_graph() != graph) continue;
    last = at;
    ++count;
  }
  if (count < kMaxShapes) return;
  if (graph) settle();  // it may still run
  drop(last);
}

// The launches for these sizes come to the front of the list. NULL: out of memory.
GpuShape *GpuCall::find_shape(const Entry &entry) {
  const size_t symbols = size_t(entry.info->n_symbols);
  for (GpuShape **at = &shapes_; *at; at = &(*at)->next) {
    GpuShape *shape = *at;
    if (shape->entry == &entry && memcmp(shape->symbols, symbols_, symbols * sizeof(int64_t)) == 0) {
      *at = shape->next;
      shape->next = shapes_;
      return shapes_ = shape;
    }
  }
  make_room(false);
  void *memory = nullptr;
  if (posix_memalign(&memory, 64, sizeof(GpuShape)) != 0) return nullptr;
  GpuShape *shape = new (memory) GpuShape(gpu_);
  shape->entry = &entry;
  shape->symbols = shape->region.array<int64_t>(symbols);
  shape->addresses = shape->region.array<uintptr_t>(size_t(entry.info->n_inputs + entry.info->n_outputs + 5));
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
void GpuCall::drop_shape() { drop(&shapes_); }

void GpuCall::drop(GpuShape **at) {
  GpuShape *shape = *at;
  *at = shape->next;
  shape->~GpuShape();
  free(shape);
}

}  // namespace mycc::runtime
