// api.cpp: the functions of mycc/model.h.

#include "call.h"
#include "../base/errors.h"
#include "../gpu/gpu_call.h"
#include "../package/loaded.h"
#include "state.h"

using namespace mycc::runtime;

namespace {

const EntryInfo *info_of(const mycc_model *model, int32_t entry) {
  return entry >= 0 && entry < model->manifest.n_entries ? &model->manifest.entries[entry] : nullptr;
}

// get(*model), or `none` of a model that cannot be used.
template <class Value, class Get>
Value of_model(const mycc_model *model, Value none, Get get) {
  const ModelUse use(model);
  return use ? get(*model) : none;
}

// get(info) of an entry point, or `none`.
template <class Value, class Get>
Value of_entry(const mycc_model *model, int32_t entry, Value none, Get get) {
  const ModelUse use(model);
  const EntryInfo *info = use ? info_of(model, entry) : nullptr;
  return info ? get(*info) : none;
}

int find_entry(const ModelUse &use, mycc_model *model, int32_t index, Entry **entry) {
  if (!use) return use.status();
  if (!info_of(model, index))
    return fail(MYCC_ERROR_INPUT, "%s has no entry point %d; it has %d", model->manifest.name, index,
                model->manifest.n_entries);
  *entry = &model->entries[index];
  return MYCC_OK;
}

bool missing(const void *tensors, int32_t count) { return !tensors && count > 0; }

// Memory for a run of `entry` in a call whose inputs are bound.
int prepare(Call &call, Entry &entry, mycc_tensor *outputs, int32_t n_outputs) {
  if (int status = call.place(entry)) return status;
  if (int status = call.reserve_arena()) return status;
  return call.bind_outputs(entry, outputs, n_outputs);
}

void free_outputs(mycc_tensor *outputs, int32_t count) {
  for (int32_t i = 0; i < count; ++i) free_output(&outputs[i]);
}

template <class Work>
int with_state(mycc_model *model, mycc_state *given, Work work) {
  const ModelUse use(model);
  if (!use) return use.status();
  if (given && given->model != model) return fail(MYCC_ERROR_INPUT, "the state belongs to another model");
  mycc_state *state = state_for(*model, given);
  return state ? work(*state) : int(MYCC_ERROR_RUN);
}

// Runs `work(call)` with outputs of the runtime, which are thrown away.
template <class Work>
int with_outputs(Call &call, Entry &entry, const mycc_tensor *inputs, int32_t n_inputs, Work work) {
  int32_t count = entry.info->n_outputs;
  mycc_tensor *outputs = static_cast<mycc_tensor *>(calloc(size_t(count) + 1, sizeof(mycc_tensor)));
  if (!outputs) return out_of_memory(size_t(count) * sizeof(mycc_tensor));
  mycc_state *state = nullptr;  // the caller's own is left as it is
  int status = entry.info->n_state ? make_state(*call.model(), &state) : int(MYCC_OK);
  if (status == MYCC_OK) status = call.use_state(entry, state);
  call.spare_inputs(true);
  if (status == MYCC_OK) status = call.bind(entry, inputs, n_inputs, true);
  if (status == MYCC_OK) status = prepare(call, entry, outputs, count);
  if (status == MYCC_OK) {
    status = work();
    free_outputs(outputs, count);
  }
  call.spare_inputs(false);
  call.drop_state();
  free_state(state);
  free(outputs);
  return status;
}

}  // namespace

extern "C" {

int mycc_load_file(const char *path, const mycc_load_options *options, mycc_model **model) {
  if (!path || !model) return fail(MYCC_ERROR_LOAD, "the path or the place for the model is NULL");
  *model = nullptr;
  return load_model(path, nullptr, 0, options, model);
}

int mycc_load_memory(const void *data, size_t size, const mycc_load_options *options, mycc_model **model) {
  if (!data || !model) return fail(MYCC_ERROR_LOAD, "the memory or the place for the model is NULL");
  *model = nullptr;
  return load_model("the package in memory", data, size, options, model);
}

void mycc_unload(mycc_model *model) { unload_model(model); }

const char *mycc_last_error(void) { return last_error(); }
const char *mycc_version(void) { return MYCC_VERSION; }

const char *mycc_model_manifest(const mycc_model *model) {
  return of_model<const char *>(model, nullptr, [](const mycc_model &own) { return own.manifest.text; });
}

const char *mycc_model_target(const mycc_model *model) {
  return of_model<const char *>(model, nullptr, [](const mycc_model &own) { return own.target->name; });
}

void mycc_model_device(const mycc_model *model, int32_t *device_type, int32_t *device_id) {
  const ModelUse use(model);
  const bool gpu = use && model->gpu;
  if (device_type) *device_type = gpu ? kCuda : use ? kCpu : 0;
  if (device_id) *device_id = gpu ? model->gpu->device->number : 0;
}

int32_t mycc_model_threads(const mycc_model *model) {
  return of_model(model, 0, [](const mycc_model &own) { return own.threads; });
}

int32_t mycc_entry_count(const mycc_model *model) {
  return of_model(model, 0, [](const mycc_model &own) { return own.manifest.n_entries; });
}

const char *mycc_entry_name(const mycc_model *model, int32_t entry) {
  return of_entry<const char *>(model, entry, nullptr, [](const EntryInfo &info) { return info.name; });
}

int32_t mycc_entry_find(const mycc_model *model, const char *name) {
  return of_model(model, -1, [name](const mycc_model &own) {
    for (int32_t i = 0; name && i < own.manifest.n_entries; ++i)
      if (strcmp(own.manifest.entries[i].name, name) == 0) return i;
    return -1;
  });
}

int32_t mycc_input_count(const mycc_model *model, int32_t entry) {
  return of_entry(model, entry, 0, [](const EntryInfo &info) { return info.n_inputs; });
}

int32_t mycc_output_count(const mycc_model *model, int32_t entry) {
  return of_entry(model, entry, 0, [](const EntryInfo &info) { return info.n_outputs; });
}

const mycc_port *mycc_input(const mycc_model *model, int32_t entry, int32_t i) {
  return of_entry<const mycc_port *>(model, entry, nullptr, [i](const EntryInfo &info) {
    return i >= 0 && i < info.n_inputs ? &info.inputs[i] : nullptr;
  });
}

const mycc_port *mycc_output(const mycc_model *model, int32_t entry, int32_t i) {
  return of_entry<const mycc_port *>(model, entry, nullptr, [i](const EntryInfo &info) {
    return i >= 0 && i < info.n_outputs ? &info.outputs[i] : nullptr;
  });
}

int32_t mycc_symbol_count(const mycc_model *model, int32_t entry) {
  return of_entry(model, entry, 0, [](const EntryInfo &info) { return info.n_symbols; });
}

const mycc_symbol *mycc_symbol_at(const mycc_model *model, int32_t entry, int32_t i) {
  return of_entry<const mycc_symbol *>(model, entry, nullptr, [i](const EntryInfo &info) {
    return i >= 0 && i < info.n_symbols ? &info.symbols[i].named : nullptr;
  });
}

int32_t mycc_kernel_count(const mycc_model *model, int32_t entry) {
  return of_model(model, 0, [entry](const mycc_model &own) {
    return info_of(&own, entry) ? own.entries[entry].code->n_kernels : 0;
  });
}

const char *mycc_kernel_name(const mycc_model *model, int32_t entry, int32_t i) {
  return of_model<const char *>(model, nullptr, [entry, i](const mycc_model &own) {
    const bool known = info_of(&own, entry) && i >= 0 && i < own.entries[entry].code->n_kernels;
    return known ? own.entries[entry].code->kernel_names[i] : nullptr;
  });
}

int mycc_run(mycc_model *model, int32_t index, const mycc_tensor *inputs, int32_t n_inputs, mycc_tensor *outputs,
             int32_t n_outputs) {
  return mycc_run_with(model, index, inputs, n_inputs, outputs, n_outputs, nullptr);
}

int mycc_run_with(mycc_model *model, int32_t index, const mycc_tensor *inputs, int32_t n_inputs, mycc_tensor *outputs,
                  int32_t n_outputs, const mycc_run_options *given) {
  const ModelUse use(model);
  Entry *entry;
  if (int status = find_entry(use, model, index, &entry)) return status;
  if (missing(inputs, n_inputs) || missing(outputs, n_outputs))
    return fail(MYCC_ERROR_INPUT, "the inputs or outputs are NULL");
  mycc_run_options options{};
  if (given) memcpy(&options, given, given->struct_size < sizeof options ? given->struct_size : sizeof options);
  if (model->gpu) return GpuCall::run(*model, *entry, inputs, n_inputs, outputs, n_outputs, options);
  Call *call = Call::acquire(*model);
  if (!call) return MYCC_ERROR_RUN;
  call->set_seed(options.has_seed ? options.seed : model->next_seed.fetch_add(1));
  call->watch(options.interrupted, options.ctx);
  int status = call->use_state(*entry, options.state);
  if (status == MYCC_OK) status = call->bind(*entry, inputs, n_inputs, true);
  if (status == MYCC_OK) {
    entry = &call->variant(*entry);
    status = prepare(*call, *entry, outputs, n_outputs);
  }
  if (status == MYCC_OK) {
    status = call->execute(*entry);
    call->write_back(*entry, inputs);
    if (status != MYCC_OK) {
      failed_in_place(status, *entry->info);
      call->free_new_outputs(outputs, n_outputs);
    }
  }
  Call::release(call);
  return status;
}

void mycc_tensor_free(mycc_tensor *tensor) {
  if (tensor) free_output(tensor);
}

void mycc_seed(mycc_model *model, uint64_t seed) {
  const ModelUse use(model);
  if (use) model->next_seed.store(seed);
}

int32_t mycc_state_count(const mycc_model *model) {
  return of_model(model, 0, [](const mycc_model &own) { return own.manifest.n_state; });
}

const mycc_port *mycc_state_port(const mycc_model *model, int32_t i) {
  return of_model<const mycc_port *>(model, nullptr, [i](const mycc_model &own) {
    return i >= 0 && i < own.manifest.n_state ? &own.manifest.state[i].port : nullptr;
  });
}

int mycc_state_new(mycc_model *model, mycc_state **state) {
  if (!state) return fail(MYCC_ERROR_INPUT, "the place for the state is NULL");
  *state = nullptr;
  if (int status = use_model(model)) return status;  // until the state is freed
  const int status = make_state(*model, state);
  if (status != MYCC_OK) drop_model(model);
  return status;
}

void mycc_state_free(mycc_state *state) {
  if (!state) return;
  mycc_model *model = state->model;
  free_state(state);
  drop_model(model);
}

int mycc_state_reset(mycc_model *model, mycc_state *state) {
  return with_state(model, state, [](mycc_state &found) { return reset_state(found); });
}

int mycc_state_read(mycc_model *model, mycc_state *state, int32_t i, mycc_tensor *copy) {
  if (!copy) return fail(MYCC_ERROR_INPUT, "the tensor is NULL");
  return with_state(model, state, [&](mycc_state &found) { return read_state(found, i, copy); });
}

int mycc_state_write(mycc_model *model, mycc_state *state, int32_t i, const mycc_tensor *source) {
  if (!source) return fail(MYCC_ERROR_INPUT, "the tensor is NULL");
  return with_state(model, state, [&](mycc_state &found) { return write_state(found, i, *source); });
}

int mycc_state_view(mycc_model *model, mycc_state *state, int32_t i, mycc_tensor *view) {
  if (!view) return fail(MYCC_ERROR_INPUT, "the tensor is NULL");
  return with_state(model, state, [&](mycc_state &found) { return view_state(found, i, view); });
}

int32_t mycc_input_written(const mycc_model *model, int32_t entry, int32_t i) {
  return of_entry(model, entry, 0, [i](const EntryInfo &info) {
    for (int32_t k = 0; k < info.n_writes; ++k)
      if (info.writes[k] == i) return 1;
    return 0;
  });
}

int mycc_synchronize(mycc_model *model) {
  const ModelUse use(model);
  if (!use) return use.status();
  return model->gpu ? GpuCall::synchronize(*model) : int(MYCC_OK);
}

int mycc_tensor_wait(const mycc_tensor *tensor, void *stream) {
  if (!tensor) return fail(MYCC_ERROR_INPUT, "the tensor is NULL");
  return gpu_tensor_wait(*tensor, static_cast<mycc::cuda::Stream>(stream));
}

int mycc_tensor_to_device(mycc_model *model, const mycc_tensor *source, mycc_tensor *target) {
  if (!source || !target) return fail(MYCC_ERROR_INPUT, "a tensor is NULL");
  const ModelUse use(model);
  return use ? gpu_tensor_to_device(*model, *source, target) : use.status();
}

int mycc_tensor_to_host(const mycc_tensor *source, void *target, size_t bytes) {
  if (!source || (!target && bytes)) return fail(MYCC_ERROR_INPUT, "the tensor or its target is NULL");
  return gpu_tensor_to_host(*source, target, bytes);
}

int32_t mycc_cuda_count(void) { return gpu_count(); }
const char *mycc_cuda_problem(void) { return gpu_problem(); }

int mycc_cuda_copy_speed(int32_t i, size_t bytes, double *bytes_per_second) {
  if (!bytes_per_second || bytes == 0 || i < 0 || i >= gpu_count())
    return fail(MYCC_ERROR_INPUT, "there is no device cuda:%d, or nothing to copy", i);
  return gpu_copy_speed(gpu_device(i), bytes, bytes_per_second);
}

int mycc_cuda_device_at(int32_t i, mycc_cuda_device *device) {
  if (!device || i < 0 || i >= gpu_count()) return fail(MYCC_ERROR_INPUT, "there is no device cuda:%d", i);
  const GpuDevice &found = gpu_device(i);
  *device = {found.name, found.major, found.minor, found.multiprocessors, found.l2_bytes, found.shared_bytes, found.memory};
  return MYCC_OK;
}

int mycc_profile(mycc_model *model, int32_t index, const mycc_tensor *inputs, int32_t n_inputs, int32_t runs,
                 int64_t *nanoseconds, int32_t n) {
  const ModelUse use(model);
  Entry *entry;
  if (int status = find_entry(use, model, index, &entry)) return status;
  if (missing(inputs, n_inputs) || missing(nanoseconds, n) || runs < 1)
    return fail(MYCC_ERROR_INPUT, "profiling needs inputs, room for the times and at least one run");
  if (n != entry->code->n_kernels)
    return fail(MYCC_ERROR_INPUT, "%s has %d kernels, but there is room for %d times", entry->info->name,
                entry->code->n_kernels, n);
  if (model->gpu) return GpuCall::profile(*model, *entry, inputs, n_inputs, runs, nanoseconds);
  Call *call = Call::acquire(*model);
  if (!call) return MYCC_ERROR_RUN;
  call->watch(nullptr, nullptr);
  int status = with_outputs(*call, *entry, inputs, n_inputs, [&] { return call->profile(*entry, runs, nanoseconds); });
  Call::release(call);
  return status;
}

int mycc_memory(mycc_model *model, int32_t index, const mycc_tensor *inputs, int32_t n_inputs, int64_t *arena,
                int64_t *live) {
  const ModelUse use(model);
  Entry *entry;
  if (int status = find_entry(use, model, index, &entry)) return status;
  if (missing(inputs, n_inputs) || !arena || !live)
    return fail(MYCC_ERROR_INPUT, "the inputs or the places for the sizes are NULL");
  Call *call = Call::acquire(*model);
  if (!call) return MYCC_ERROR_RUN;
  int status = call->bind(*entry, inputs, n_inputs, false);
  if (status == MYCC_OK) status = call->place(*entry);
  if (status == MYCC_OK) status = call->sum_live(*entry);
  if (status == MYCC_OK) *arena = call->arena_bytes(), *live = call->live_bytes();
  Call::release(call);
  return status;
}

}  // extern "C"
