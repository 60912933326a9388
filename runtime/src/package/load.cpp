// load.cpp: from a package's bytes to a model: check all, choose the target, map the weights, load the code.

#include "../call/call.h"
#include "contract.h"
#include "../base/errors.h"
#include "../gpu/gpu_call.h"
#include "loaded.h"
#include "package_file.h"
#include "../cpu/pool.h"
#include "../call/state.h"
#include "../cpu/targets.h"
#include "zip.h"

namespace mycc::runtime {

namespace {

constexpr size_t kWeightAlignment = 64;

// ---- all models, for forks

mycc_model *all_models = nullptr;
Lock all_models_lock;

void before_fork() {
  all_models_lock.acquire();
  for (mycc_model *model = all_models; model; model = model->next) {
    model->state_lock.acquire();
    model->lock.acquire();
  }
  pool_before_fork();
}
void after_fork(bool in_child) {
  pool_after_fork(in_child);
  for (mycc_model *model = all_models; model; model = model->next) {
    if (in_child) states_after_fork(model->states);
    model->lock.release();
    model->state_lock.release();
  }
  all_models_lock.release();
}
void after_fork_in_parent() { after_fork(false); }
void after_fork_in_child() { after_fork(true); }

void register_model(mycc_model *model) {
  static bool fork_prepared = false;
  Locked locked(all_models_lock);
  if (!fork_prepared) at_fork(before_fork, after_fork_in_parent, after_fork_in_child);
  fork_prepared = true;
  model->next = all_models;
  if (all_models) all_models->previous = model;
  all_models = model;
}

void forget_model(mycc_model *model) {
  Locked locked(all_models_lock);
  if (model->next) model->next->previous = model->previous;
  if (model->previous) model->previous->next = model->next;
  if (all_models == model) all_models = model->next;
}

// ---- models that were unloaded

constexpr size_t kRemembered = 256;
mycc_model *unloaded_models[kRemembered];  // guarded by all_models_lock
size_t n_unloaded = 0;

// Its memory becomes free when many more were unloaded after it.
void remember(mycc_model *model) {
  Locked locked(all_models_lock);
  mycc_model *&place = unloaded_models[n_unloaded++ % kRemembered];
  free(place);
  place = model;
}

// ---- weights and code

int place_weights(mycc_model *model, const Archive &archive) {
  const uint8_t *data = archive.data + model->manifest.weights_offset;
  model->weights = data;
  const Member *member = archive.find(model->manifest.weights_member);
  size_t bytes = size_t(member->offset + member->size - model->manifest.weights_offset);
  if (reinterpret_cast<uintptr_t>(data) % kWeightAlignment == 0) {
    if (model->file.data) expect_reading(data, bytes);
    return MYCC_OK;
  }
  uint8_t *copy = model->aligned_weights.reserve(bytes);
  if (!copy) return out_of_memory(bytes);
  memcpy(copy, data, bytes);
  model->weights = copy;
  return MYCC_OK;
}

// One for each number of computed sizes that are known, from none to all.
bool make_orders(Entry &entry, Region *region) {
  const int32_t count = 1 + (entry.computed ? entry.computed->n_sizes : 0);
  entry.orders = region->array<PlanOrder>(size_t(count));
  for (int32_t i = 0; entry.orders && i < count; ++i) {
    entry.orders[i].order = region->array<int32_t>(size_t(entry.code->n_buffers));
    if (!entry.orders[i].order) return false;
  }
  return entry.orders;
}

bool fits(const EntryInfo &info, const mycc_entry &code) {
  if (strcmp(info.name, code.name) != 0 || info.n_inputs != code.n_inputs || info.n_outputs != code.n_outputs ||
      info.n_symbols != code.n_symbols)
    return false;
  for (int32_t i = 0; i < code.n_buffers; ++i) {
    const mycc_buffer &buffer = code.buffers[i];
    if (buffer.first < 0 || buffer.last < buffer.first || buffer.last >= code.n_kernels) return false;
  }
  return true;
}

int open_program(mycc_model *model, const Archive &archive, const char *label) {
  Span name = model->target->library;
  const Member *member = archive.find(name);
  if (int status = check_contract(model->manifest, archive.data + member->offset, member->size, label, name))
    return status;
  if (int status = load_code(archive.data + member->offset, member->size, name.data, &model->code)) return status;
  auto get = reinterpret_cast<decltype(&mycc_program_get)>(find_symbol(model->code, "mycc_program_get"));
  model->program = get ? get() : nullptr;
  if (!model->program || model->program->abi_version < 1 || model->program->abi_version > MYCC_ABI_VERSION)
    return fail(MYCC_ERROR_LOAD, "%s: %s does not speak version %u of the code interface", label, name.data,
                MYCC_ABI_VERSION);
  const Manifest &manifest = model->manifest;
  bool same = model->program->n_entries == manifest.n_entries;
  for (int32_t i = 0; same && i < manifest.n_entries; ++i) same = fits(manifest.entries[i], model->program->entries[i]);
  same = same && manifest.n_state == (model->program->abi_version >= 3 ? model->program->n_state : 0);
  same = same && (model->target->gpu || !model->program->gpu);
  const char *target = model->program->target;
  if (manifest.contract) same = same && target && strcmp(target, model->target->name) == 0;
  if (!same) return fail(MYCC_ERROR_LOAD, "%s: %s does not fit manifest.json" MYCC_DAMAGED, label, name.data);

  model->entries = static_cast<Entry *>(calloc(uint32_t(manifest.n_entries), sizeof(Entry)));
  if (!model->entries) return out_of_memory(size_t(manifest.n_entries) * sizeof(Entry));
  for (int32_t i = 0; i < manifest.n_entries; ++i) {
    Entry *entry = new (&model->entries[i]) Entry();
    entry->info = &manifest.entries[i];
    entry->code = &model->program->entries[i];
    const uint8_t *random = model->program->abi_version >= 3 ? model->program->random : nullptr;
    entry->random = random && random[i];
    const uint8_t *fetches = model->program->abi_version >= 4 ? model->program->fetches : nullptr;
    entry->fetches = fetches && fetches[i];
    const bool computes = model->program->abi_version >= 3 && model->program->computed;
    if (computes && model->program->computed[i].n_sizes > 0) entry->computed = &model->program->computed[i];
    if (!make_orders(*entry, &model->region)) return out_of_memory(4096);
  }
  return MYCC_OK;
}

int read_launch_mode(const char *name, LaunchMode *mode) {
  constexpr struct {
    const char *name;
    LaunchMode mode;
  } kModes[] = {{"auto", LaunchMode::automatic}, {"direct", LaunchMode::direct}, {"graph", LaunchMode::graph},
                {"debug", LaunchMode::debug}};
  for (const auto &row : kModes) {
    if (strcmp(name, row.name) != 0) continue;
    *mode = row.mode;
    return MYCC_OK;
  }
  return fail(MYCC_ERROR_LOAD, "launch has to be auto, direct, graph or debug, not %s", name);
}

int open_on_gpu(mycc_model *model, const Archive &archive, const char *label, GpuDevice *device,
                const mycc_load_options &options) {
  if (!model->program->gpu)
    return fail(MYCC_ERROR_LOAD, "%s: %s has no kernels for a GPU" MYCC_DAMAGED, label, model->target->library.data);
  GpuModel *gpu = static_cast<GpuModel *>(calloc(1, sizeof(GpuModel)));
  if (!gpu) return out_of_memory(sizeof(GpuModel));
  model->gpu = new (gpu) GpuModel();
  gpu->api = gpu_driver();
  gpu->device = device;
  gpu->program = model->program->gpu;
  const char *launch = options.launch ? options.launch : model->manifest.launch;
  if (int status = read_launch_mode(launch ? launch : "auto", &gpu->mode)) return status;
  const Member *weights = archive.find(model->manifest.weights_member);
  const size_t bytes = size_t(weights->offset + weights->size - model->manifest.weights_offset);
  return gpu_open_model(gpu, archive, label, model->manifest, *model->target, model->weights, bytes, &model->region);
}

int read_options(const mycc_load_options *given, mycc_load_options *options) {
  *options = {sizeof *options, 0, 0, nullptr, nullptr, nullptr, 0};
  if (!given) return MYCC_OK;
  if (given->struct_size < offsetof(mycc_load_options, target))
    return fail(MYCC_ERROR_LOAD, "mycc_load_options.struct_size has to be sizeof(mycc_load_options), not %u",
                given->struct_size);
  memcpy(options, given, given->struct_size < sizeof *options ? given->struct_size : sizeof *options);
  if (options->threads < 0)
    return fail(MYCC_ERROR_LOAD, "threads has to be a number from 1, or 0 for one per core, not %d", options->threads);
  return MYCC_OK;
}

int build_model(mycc_model *model, const char *label, const void *data, size_t size, const mycc_load_options &options) {
  Archive archive;
  if (int status = read_archive(static_cast<const uint8_t *>(data), size, label, &archive)) return status;
  bool full = options.check_full != 0;
  int status = read_manifest(archive, label, full, &model->region, &model->json, &model->manifest);
  if (status) return status;
  int32_t wanted = options.threads ? options.threads : model->manifest.threads;
  model->threads = wanted == 0 ? available_threads() : wanted < kMaxThreads ? wanted : kMaxThreads;
  Choice choice;
  if ((status = choose_target(model->manifest, label, options, &choice))) return status;
  model->target = choice.target;
  if ((status = place_weights(model, archive))) return status;
  if ((status = open_program(model, archive, label))) return status;
  return choice.device ? open_on_gpu(model, archive, label, choice.device, options) : int(MYCC_OK);
}

void destroy(mycc_model *model) {
  free_state(model->state);
  while (model->free_calls) Call::destroy(Call::take_free(*model));
  if (model->gpu) {
    GpuCall::destroy_all(*model);
    gpu_close_model(model->gpu);
    model->gpu->~GpuModel();
    free(model->gpu);
  }
  for (int32_t i = 0; model->entries && i < model->manifest.n_entries; ++i) model->entries[i].~Entry();
  free(model->entries);
  unload_code(&model->code);
  Mapping file = model->file;
  static_cast<ModelParts *>(model)->~ModelParts();
  unmap_file(&file);
}

}  // namespace

int load_model(const char *path, const void *data, size_t size, const mycc_load_options *options, mycc_model **model) {
  mycc_load_options read;
  if (int status = read_options(options, &read)) return status;
  void *memory = calloc(1, sizeof(mycc_model));
  if (!memory) return out_of_memory(sizeof(mycc_model));
  mycc_model *made = new (memory) mycc_model();
  int status = MYCC_OK;
  if (!data) {
    status = read_package(path, read.copy, &made->file);
    data = made->file.data, size = made->file.size;
  } else if (read.copy) {
    status = copy_package(data, size, &made->file);
    data = made->file.data;
  }
  if (status == MYCC_OK) status = build_model(made, path, data, size, read);
  if (status == MYCC_OK) status = check_unchanged(path, made->file);
  if (!made->file.shared || made->gpu) close_file(&made->file);  // the calls of others look at it
  if (status != MYCC_OK) {
    destroy(made);
    free(made);
    return status;
  }
  register_model(made);
  *model = made;
  return MYCC_OK;
}

void unload_model(mycc_model *model) {
  if (model && !model->unloaded.exchange(true)) drop_model(model);
}

int use_model(mycc_model *model) {
  if (!model) return fail(MYCC_ERROR_INPUT, "the model is NULL");
  int64_t users = model->users.load(std::memory_order_relaxed);
  while (users > 0 && !model->unloaded.load(std::memory_order_relaxed))
    if (model->users.compare_exchange_weak(users, users + 1, std::memory_order_acquire)) return MYCC_OK;
  return fail(MYCC_ERROR_INPUT, "the model was unloaded");
}

void drop_model(mycc_model *model) {
  if (model->users.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  forget_model(model);
  destroy(model);
  remember(model);
}

ModelUse::ModelUse(const mycc_model *model) : model_(const_cast<mycc_model *>(model)), status_(use_model(model_)) {}

ModelUse::~ModelUse() {
  if (status_ == MYCC_OK) drop_model(model_);
}

}  // namespace mycc::runtime
