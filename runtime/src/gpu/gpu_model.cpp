#include "gpu_model.h"

#include <stdio.h>

namespace mycc::runtime {

namespace {

constexpr const char *kPrefix = "cuda:";
constexpr int kFirstExact = 9;  // from sm_90 on cubins use what only their own chip has
constexpr size_t kStage = size_t(8) << 20;
constexpr int32_t kUsualShared = 48 << 10;  // bytes that a kernel gets without asking
constexpr uint32_t kValueAlignment = 64;

SharedWeights *all_weights = nullptr;
Lock weights_lock;

uint32_t aligned(uint32_t offset, uint32_t alignment) { return (offset + alignment - 1) / alignment * alignment; }

// ---- kernels

int damaged(const char *label, const char *library, const char *why) {
  return fail(MYCC_ERROR_LOAD, "%s: %s: %s" MYCC_DAMAGED, label, library, why);
}

bool good_size(uint8_t bytes) { return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 128; }

// Places of the values in the memory of one launch.
bool lay_out(GpuKernel *kernel, Region *region) {
  const mycc_gpu_kernel &row = *kernel->row;
  kernel->n_values = row.n_params + row.n_scratch_params;
  uint32_t *offsets = region->array<uint32_t>(size_t(kernel->n_values));
  if (!offsets) return false;
  uint32_t at = 0;
  for (int32_t i = 0; i < kernel->n_values; ++i) {
    uint32_t bytes = i < row.n_params ? row.param_bytes[i] : 8;
    at = aligned(at, bytes < kValueAlignment ? bytes : kValueAlignment);
    offsets[i] = at;
    at += bytes;
  }
  kernel->bytes = aligned(at, kValueAlignment);
  kernel->offsets = offsets;
  return true;
}

bool sane(const mycc_gpu_kernel &row, const Member &images) {
  bool sizes = row.n_params >= 0 && row.n_params < 256 && row.n_scratch_params >= 0 && row.n_scratch_params <= 2;
  for (int32_t i = 0; sizes && i < row.n_params; ++i) sizes = good_size(row.param_bytes[i]);
  return sizes && row.image >= 0 && row.image_bytes > 0 && uint64_t(row.image) <= images.size &&
         uint64_t(row.image_bytes) <= images.size - uint64_t(row.image) && row.threads > 0 && row.threads <= 1024 &&
         row.shared >= 0 && row.scratch_bytes >= 0 && row.scratch_alignment >= 0 && row.scratch_alignment <= 4096;
}

// Kernels of one image share its module.
int load_module(GpuModel *model, int32_t index, const uint8_t *images, const char *label) {
  GpuKernel &kernel = model->kernels[index];
  for (int32_t i = 0; i < index; ++i) {
    if (model->kernels[i].row->image != kernel.row->image) continue;
    kernel.module = model->kernels[i].module;
    return MYCC_OK;
  }
  cuda::Result result = model->api->module_load(&kernel.module, images + kernel.row->image);
  if (result != cuda::kSuccess)
    return gpu_fail(MYCC_ERROR_LOAD, result, "%s: kernel %s cannot be loaded on cuda:%d (%s, sm_%d%d)", label,
                    kernel.row->name, model->device->number, model->device->name, model->device->major,
                    model->device->minor);
  return model->modules.push(kernel.module) ? MYCC_OK : out_of_memory(sizeof kernel.module);
}

int prepare_function(GpuModel *model, const mycc_gpu_kernel &row, const char *label, cuda::Function function) {
  const cuda::Api &api = *model->api;
  if (row.shared <= kUsualShared) return MYCC_OK;
  if (row.shared > model->device->shared_bytes)
    return fail(MYCC_ERROR_LOAD, "%s: kernel %s needs %d bytes of shared memory, cuda:%d (%s) has %d", label, row.name,
                row.shared, model->device->number, model->device->name, model->device->shared_bytes);
  api.function_cache(function, cuda::kCachePreferShared);  // a wish
  cuda::Result result = api.function_set(function, cuda::kFunctionDynamicShared, row.shared);
  if (result != cuda::kSuccess)
    return gpu_fail(MYCC_ERROR_LOAD, result, "%s: kernel %s gets no %d bytes of shared memory", label, row.name,
                    row.shared);
  return MYCC_OK;
}

int load_kernels(GpuModel *model, const Archive &archive, const char *label, const TargetInfo &target, Region *region) {
  const mycc_gpu_program &program = *model->program;
  const Member *images = archive.find(target.images);
  if (!images || program.n_kernels < 0) return damaged(label, target.library.data, "the kernels are missing");
  model->kernels = region->array<GpuKernel>(size_t(program.n_kernels));
  if (!model->kernels) return out_of_memory(size_t(program.n_kernels) * sizeof(GpuKernel));
  for (int32_t i = 0; i < program.n_kernels; ++i) {
    const mycc_gpu_kernel &row = program.kernels[i];
    GpuKernel &kernel = model->kernels[i];
    kernel.row = &row;
    if (!sane(row, *images)) return damaged(label, target.library.data, "a kernel's row makes no sense");
    if (!lay_out(&kernel, region)) return out_of_memory(256);
    if (int status = load_module(model, i, archive.data + images->offset, label)) return status;
    cuda::Result result = model->api->module_function(&kernel.function, kernel.module, row.name);
    if (result != cuda::kSuccess)
      return gpu_fail(MYCC_ERROR_LOAD, result, "%s: kernel %s is not in its image", label, row.name);
    if (int status = prepare_function(model, row, label, kernel.function)) return status;
  }
  return MYCC_OK;
}

// ---- weights

// Copies through two pieces of pinned memory: while one is on its way, the other is filled from the file.
class Upload {
 public:
  explicit Upload(const cuda::Api &api) : api_(api) {}
  ~Upload() {
    if (stream_) api_.stream_synchronize(stream_), api_.stream_destroy(stream_);
    for (int i = 0; i < 2; ++i) {
      if (done_[i]) api_.event_destroy(done_[i]);
      if (stage_[i]) api_.host_release(stage_[i]);
    }
  }

  cuda::Result run(cuda::Address target, const uint8_t *source, size_t size) {
    size_t stage = size < kStage ? size : kStage;
    cuda::Result result = api_.stream_create(&stream_, cuda::kStreamNonBlocking);
    for (int i = 0; i < 2 && result == cuda::kSuccess; ++i) {
      result = api_.host_allocate(&stage_[i], stage, 0);
      if (result == cuda::kSuccess) result = api_.event_create(&done_[i], cuda::kEventNoTiming);
    }
    int piece = 0;
    for (size_t at = 0; at < size && result == cuda::kSuccess; at += stage, piece ^= 1) {
      size_t bytes = size - at < stage ? size - at : stage;
      result = api_.event_synchronize(done_[piece]);
      if (result != cuda::kSuccess) break;
      memcpy(stage_[piece], source + at, bytes);
      result = api_.copy_in(target + at, stage_[piece], bytes, stream_);
      if (result == cuda::kSuccess) result = api_.event_record(done_[piece], stream_);
    }
    return result == cuda::kSuccess ? api_.stream_synchronize(stream_) : result;
  }

 private:
  const cuda::Api &api_;
  cuda::Stream stream_ = nullptr;
  void *stage_[2] = {nullptr, nullptr};
  cuda::Event done_[2] = {nullptr, nullptr};
};

int upload(GpuModel *model, SharedWeights *weights, const char *label, const uint8_t *data) {
  size_t bytes = size_t(weights->end - weights->begin);
  if (int status = weights->memory.reserve(*model->device, bytes)) return status;
  cuda::Result result = Upload(*model->api).run(weights->memory.address(), data + weights->begin, bytes);
  if (result == cuda::kSuccess) return MYCC_OK;
  return gpu_fail(MYCC_ERROR_LOAD, result, "%s: the weights do not get to cuda:%d", label, model->device->number);
}

int share_weights(GpuModel *model, const char *label, const Manifest &manifest, const uint8_t *data) {
  const mycc_gpu_program &program = *model->program;
  Locked locked(weights_lock);
  for (SharedWeights *known = all_weights; known; known = known->next) {
    if (strcmp(known->key, manifest.hash) != 0 || known->device != model->device ||
        known->begin != program.weights_begin || known->end != program.weights_end)
      continue;
    known->users += 1;
    model->weights = known;
    return MYCC_OK;
  }
  void *memory = calloc(1, sizeof(SharedWeights));
  if (!memory) return out_of_memory(sizeof(SharedWeights));
  SharedWeights *fresh = new (memory) SharedWeights();
  snprintf(fresh->key, sizeof fresh->key, "%s", manifest.hash);
  fresh->device = model->device;
  fresh->begin = program.weights_begin, fresh->end = program.weights_end;
  fresh->users = 1;
  if (int status = upload(model, fresh, label, data)) {
    fresh->memory.release();
    free(memory);
    return status;
  }
  fresh->next = all_weights;
  all_weights = model->weights = fresh;
  return MYCC_OK;
}

void drop_weights(SharedWeights *weights) {
  Locked locked(weights_lock);
  if (--weights->users > 0) return;
  for (SharedWeights **at = &all_weights; *at; at = &(*at)->next) {
    if (*at != weights) continue;
    *at = weights->next;
    break;
  }
  weights->memory.release();
  free(weights);
}

}  // namespace

bool is_gpu_target(const char *target) { return strncmp(target, kPrefix, strlen(kPrefix)) == 0; }

int gpu_rank(const char *target, const GpuDevice &device) {
  if (!is_gpu_target(target)) return 0;
  const char *code = target + strlen(kPrefix);
  const int chip = 10 * device.major + device.minor;
  if (strcmp(code, "ptx") == 0) return chip >= 80 ? 1 : 0;
  if (strncmp(code, "sm_", 3) != 0) return 0;
  const int built = atoi(code + 3);
  if (built == chip) return 1000;
  return built / 10 < kFirstExact && built / 10 == device.major && built < chip ? 100 + built : 0;
}

int gpu_open_model(GpuModel *model, const Archive &archive, const char *label, const Manifest &manifest,
                   const TargetInfo &target, const uint8_t *data, size_t size, Region *region) {
  const mycc_gpu_program &program = *model->program;
  if (program.weights_begin < 0 || program.weights_begin > program.weights_end ||
      uint64_t(program.weights_end) > size || program.weights_begin % 64)
    return damaged(label, target.library.data, "its part of the weights makes no sense");
  if (int status = gpu_open(*model->device)) return status;
  CurrentDevice current(*model->device);
  if (current.status()) return current.status();
  if (int status = load_kernels(model, archive, label, target, region)) return status;
  if (int status = share_weights(model, label, manifest, data)) return status;
  uintptr_t base = uintptr_t(model->weights->memory.address()) - uintptr_t(program.weights_begin);
  model->weights_base = reinterpret_cast<const uint8_t *>(base);
  return MYCC_OK;
}

void gpu_close_model(GpuModel *model) {
  if (!model->device || !model->device->context || gpu_forked()) return;
  CurrentDevice current(*model->device);
  for (cuda::Module module : model->modules) model->api->module_unload(module);
  if (model->weights) drop_weights(model->weights);
  model->weights = nullptr;
}

void *gpu_host_memory(const GpuModel &model, size_t bytes) {
  const CurrentDevice current(*model.device);
  void *memory = nullptr;
  return model.api->host_allocate(&memory, bytes, 0) == cuda::kSuccess ? memory : nullptr;
}

void gpu_release_host_memory(const GpuModel &model, void *memory) {
  if (!memory || gpu_forked()) return;
  const CurrentDevice current(*model.device);
  model.api->host_release(memory);
}

}  // namespace mycc::runtime
