#include "state.h"

#include <stdio.h>

#include "../base/errors.h"
#include "../gpu/gpu_call.h"

namespace mycc::runtime {

namespace {

constexpr size_t kAlignment = 64;

size_t placed(int64_t bytes) { return (size_t(bytes) + kAlignment - 1) & ~(kAlignment - 1); }

// Waits until the last call on a GPU is done with the state.
int settle(mycc_state &state) {
  if (!state.in_flight) return MYCC_OK;
  const cuda::Result result = state.model->gpu->api->event_synchronize(state.done);
  state.in_flight = false;
  return result == cuda::kSuccess ? int(MYCC_OK) : gpu_fail(MYCC_ERROR_RUN, result, "the last call of the state");
}

int copy_first(mycc_state &state, int32_t i) {
  const mycc_model &model = *state.model;
  const StateInfo &info = model.manifest.state[i];
  if (info.bytes == 0) return MYCC_OK;
  const uint8_t *first = info.offset < 0 ? nullptr : model.weights + info.offset;
  if (!model.gpu) {
    if (first)
      memcpy(state.tensors[i], first, size_t(info.bytes));
    else
      memset(state.tensors[i], 0, size_t(info.bytes));
    return MYCC_OK;
  }
  const cuda::Api &api = *model.gpu->api;
  const cuda::Address target = reinterpret_cast<cuda::Address>(state.tensors[i]);
  cuda::Result result = first ? api.copy_in(target, first, size_t(info.bytes), nullptr)
                              : api.clear(target, 0, size_t(info.bytes), nullptr);
  if (result == cuda::kSuccess) result = api.stream_synchronize(nullptr);
  return result == cuda::kSuccess ? int(MYCC_OK) : gpu_fail(MYCC_ERROR_RUN, result, "the first value of %s", info.port.name);
}

int copy_all(mycc_state &state) {
  for (int32_t i = 0; i < state.model->manifest.n_state; ++i) {
    if (int status = copy_first(state, i)) return status;
    state.torn[i] = 0;
  }
  return MYCC_OK;
}

int torn(const StateInfo &info) {
  return fail(MYCC_ERROR_RUN,
              "%s: this process was forked while a call changed the state\n  Reset it or set it again, or give every "
              "process a state of its own.",
              info.port.name);
}

void link(mycc_state *state) {
  Locked locked(state->model->lock);
  state->next = state->model->states;
  if (state->next) state->next->previous = state;
  state->model->states = state;
}

void unlink(mycc_state *state) {
  Locked locked(state->model->lock);
  if (state->next) state->next->previous = state->previous;
  (state->previous ? state->previous->next : state->model->states) = state->next;
}

// Held by this thread for a change of its tensors by the caller.
class Changing {
 public:
  explicit Changing(mycc_state &state, bool changes = true) : state_(state) {
    state.busy.acquire();
    state.changing.store(changes);
  }
  ~Changing() { leave_state(state_); }
  Changing(const Changing &) = delete;
  Changing &operator=(const Changing &) = delete;

 private:
  mycc_state &state_;
};

int allocate(mycc_state &state) {
  const Manifest &manifest = state.model->manifest;
  size_t bytes = kAlignment;
  for (int32_t i = 0; i < manifest.n_state; ++i) bytes += placed(manifest.state[i].bytes);
  state.tensors = static_cast<void **>(calloc(size_t(manifest.n_state) + 1, sizeof(void *)));
  state.torn = static_cast<uint8_t *>(calloc(size_t(manifest.n_state) + 1, 1));
  if (!state.tensors || !state.torn) return out_of_memory(size_t(manifest.n_state) * sizeof(void *));
  uint8_t *memory = nullptr;
  if (const GpuModel *gpu = state.model->gpu) {
    if (int status = state.device.reserve(*gpu->device, bytes)) return status;
    memory = reinterpret_cast<uint8_t *>(state.device.address());
    const cuda::Result result = gpu->api->event_create(&state.done, cuda::kEventNoTiming);
    if (result != cuda::kSuccess) return gpu_fail(MYCC_ERROR_RUN, result, "a state");
  } else if (!(memory = state.host.reserve(bytes))) {
    return out_of_memory(bytes);
  }
  for (int32_t i = 0; i < manifest.n_state; ++i) {
    state.tensors[i] = memory;
    memory += placed(manifest.state[i].bytes);
  }
  return MYCC_OK;
}

// Makes the model's device current, where it has one.
template <class Work>
int on_device(const mycc_model &model, Work work) {
  if (!model.gpu) return work();
  if (int status = gpu_usable()) return status;
  CurrentDevice current(*model.gpu->device);
  return current.status() ? current.status() : work();
}

int find(const mycc_state &state, int32_t i, const StateInfo **info) {
  const Manifest &manifest = state.model->manifest;
  if (i < 0 || i >= manifest.n_state)
    return fail(MYCC_ERROR_INPUT, "%s has no tensor %d in its state; it has %d", manifest.name, i, manifest.n_state);
  *info = &manifest.state[i];
  return MYCC_OK;
}

// What the owner of a view points to.
struct View {
  OutputHeader header;
  mycc_state *state;
};

void release_view(OutputHeader *header) {
  release_state(reinterpret_cast<View *>(header)->state);
  free(header);
}

int check_source(const StateInfo &info, const mycc_tensor &source) {
  const char *name = info.port.name;
  if (source.ndim < 0 || source.ndim > MYCC_MAX_RANK)
    return fail(MYCC_ERROR_INPUT, "%s: has %d dimensions, the state has %d", name, source.ndim, info.port.ndim);
  if (!same_dtype(source.dtype, info.port.dtype))
    return fail(MYCC_ERROR_INPUT, "%s: dtype is %s, the state has %s", name, dtype_name(source.dtype),
                dtype_name(info.port.dtype));
  bool same = source.ndim == info.port.ndim;
  for (int32_t d = 0; same && d < source.ndim; ++d) same = source.shape[d] == info.shape[d];
  if (same) return source.data || info.bytes == 0 ? MYCC_OK : fail(MYCC_ERROR_INPUT, "%s: has no data", name);
  Line has, wants;
  for (int32_t d = 0; d < source.ndim; ++d) has.add("%s%lld", d ? ", " : "", static_cast<long long>(source.shape[d]));
  for (int32_t d = 0; d < info.port.ndim; ++d)
    wants.add("%s%lld", d ? ", " : "", static_cast<long long>(info.shape[d]));
  return fail(MYCC_ERROR_INPUT, "%s: has the shape (%s), the state has (%s)", name, has.text(), wants.text());
}

int write_on_device(mycc_state &state, int32_t i, const mycc_tensor &source) {
  const StateInfo &info = state.model->manifest.state[i];
  const cuda::Api &api = *state.model->gpu->api;
  const cuda::Address target = reinterpret_cast<cuda::Address>(state.tensors[i]);
  const size_t bytes = size_t(info.bytes);
  Memory dense;
  const void *data = source.data;
  cuda::Result result;
  if (!is_host(source)) {
    if (!is_dense(source))
      return fail(MYCC_ERROR_INPUT, "%s: is not dense and row-major, as a tensor on a GPU has to be", info.port.name);
    result = api.stream_synchronize(nullptr);  // what wrote the source
    if (result == cuda::kSuccess)
      result = api.copy_within(target, reinterpret_cast<cuda::Address>(source.data), bytes, nullptr);
  } else {
    if (!is_dense(source)) {
      if (!(data = dense.reserve(bytes))) return out_of_memory(bytes);
      copy_dense(source, const_cast<void *>(data));
    }
    result = api.copy_in(target, data, bytes, nullptr);
  }
  if (result == cuda::kSuccess) result = api.stream_synchronize(nullptr);
  return result == cuda::kSuccess ? int(MYCC_OK) : gpu_fail(MYCC_ERROR_RUN, result, "%s of the state", info.port.name);
}

}  // namespace

int make_state(mycc_model &model, mycc_state **state) {
  void *memory = nullptr;
  if (posix_memalign(&memory, alignof(mycc_state) > 16 ? alignof(mycc_state) : 16, sizeof(mycc_state)) != 0)
    return out_of_memory(sizeof(mycc_state));
  mycc_state *made = new (memory) mycc_state{};
  made->model = &model;
  made->gpu = model.gpu ? model.gpu->device : nullptr;
  made->users.store(1);
  int status = on_device(model, [&] {
    if (int failed = allocate(*made)) return failed;
    return copy_all(*made);
  });
  if (status != MYCC_OK) {
    release_state(made);
    return status;
  }
  link(made);
  *state = made;
  return MYCC_OK;
}

void free_state(mycc_state *state) {
  if (!state) return;
  unlink(state);
  release_state(state);
}

int enter_state(mycc_state &state, bool changes) {
  state.users.fetch_add(1);
  state.busy.acquire();
  for (int32_t i = 0; i < state.model->manifest.n_state; ++i) {
    if (!state.torn[i]) continue;
    leave_state(state);
    release_state(&state);
    return torn(state.model->manifest.state[i]);
  }
  state.changing.store(changes);
  return MYCC_OK;
}

void leave_state(mycc_state &state) {
  state.changing.store(false);
  state.busy.release();
}

void states_after_fork(mycc_state *states) {
  for (mycc_state *state = states; state; state = state->next) {
    if (state->changing.exchange(false)) memset(state->torn, 1, size_t(state->model->manifest.n_state));
    new (&state->busy) Lock();
  }
}

void release_state(mycc_state *state) {
  if (!state || state->users.fetch_sub(1) != 1) return;
  if (state->gpu && !gpu_forked()) {
    CurrentDevice current(*state->gpu);
    if (state->done) {
      if (state->in_flight) gpu_driver()->event_synchronize(state->done);
      gpu_driver()->event_destroy(state->done);
    }
    state->device.release();
  }
  free(state->tensors);
  free(state->torn);
  state->~mycc_state();
  free(state);
}

mycc_state *state_for(mycc_model &model, mycc_state *given) {
  if (given) return given;
  Locked locked(model.state_lock);
  if (!model.state && make_state(model, &model.state) != MYCC_OK) return nullptr;
  return model.state;
}

int reset_state(mycc_state &state) {
  return on_device(*state.model, [&] {
    Changing locked(state);
    if (int status = settle(state)) return status;
    return copy_all(state);
  });
}

int read_state(mycc_state &state, int32_t i, mycc_tensor *copy) {
  const StateInfo *info = nullptr;
  if (int status = find(state, i, &info)) return status;
  return on_device(*state.model, [&] {
    Changing locked(state, false);
    if (state.torn[i]) return torn(*info);
    if (int status = settle(state)) return status;
    if (!allocate_output(info->port.dtype, info->shape, info->port.ndim, info->bytes, copy))
      return out_of_memory(size_t(info->bytes));
    if (!state.model->gpu) {
      if (info->bytes) memcpy(copy->data, state.tensors[i], size_t(info->bytes));
      return int(MYCC_OK);
    }
    const cuda::Api &api = *state.model->gpu->api;
    cuda::Result result =
        api.copy_out(copy->data, reinterpret_cast<cuda::Address>(state.tensors[i]), size_t(info->bytes), nullptr);
    if (result == cuda::kSuccess) result = api.stream_synchronize(nullptr);
    if (result == cuda::kSuccess) return int(MYCC_OK);
    free_output(copy);
    return gpu_fail(MYCC_ERROR_RUN, result, "%s of the state", info->port.name);
  });
}

int write_state(mycc_state &state, int32_t i, const mycc_tensor &source) {
  const StateInfo *info = nullptr;
  if (int status = find(state, i, &info)) return status;
  if (int status = check_source(*info, source)) return status;
  if (!state.model->gpu && !is_host(source))
    return fail(MYCC_ERROR_INPUT, "%s: is not on the CPU, where the package runs\n  Copy it to the CPU first.",
                info->port.name);
  return on_device(*state.model, [&] {
    Changing locked(state);
    if (int status = settle(state)) return status;
    state.torn[i] = 0;
    if (info->bytes == 0) return int(MYCC_OK);
    if (state.model->gpu) return write_on_device(state, i, source);
    copy_dense(source, state.tensors[i]);
    if (is_bool(info->port.dtype)) make_bools(state.tensors[i], size_t(info->bytes));
    return int(MYCC_OK);
  });
}

int view_state(mycc_state &state, int32_t i, mycc_tensor *view) {
  const StateInfo *info = nullptr;
  if (int status = find(state, i, &info)) return status;
  if (state.torn[i]) return torn(*info);
  void *memory = nullptr;
  if (posix_memalign(&memory, alignof(View), sizeof(View)) != 0) return out_of_memory(sizeof(View));
  if (int status = on_device(*state.model, [&] { return settle(state); })) {
    free(memory);
    return status;
  }
  state.users.fetch_add(1);
  describe_output(info->port.dtype, info->shape, info->port.ndim, view);
  view->owner = new (memory) View{{0, release_view}, &state};
  view->data = state.tensors[i];
  view->device_type = state.model->gpu ? kCuda : kCpu;
  view->device_id = state.model->gpu ? state.model->gpu->device->number : 0;
  return MYCC_OK;
}

int failed_in_place(int status, const EntryInfo &info) {
  if (!info.n_changes && !info.n_writes) return status;
  const char *text = last_error(), *hint = strchr(text, '\n');
  char line[400];
  snprintf(line, sizeof line, "%.*s", int(hint ? hint - text : long(strlen(text))), text);
  const char *what = info.n_changes ? "The state" : "The argument that it writes to";
  const char *then = info.n_changes ? ": reset it, or set it again" : "";
  return fail(status, "%s\n  %s may have changed in part%s.", line, what, then);
}

}  // namespace mycc::runtime
