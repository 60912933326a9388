#include "targets.h"

#include <stdio.h>

#include "cpu.h"
#include "../base/errors.h"
#include "../gpu/gpu_model.h"

namespace mycc::runtime {

namespace {

#if defined(__x86_64__)
constexpr const char *kArch = "x86_64";
#else
constexpr const char *kArch = "aarch64";
#endif

struct Wanted {
  const char *target;   // NULL: any
  bool cpu, gpu;        // which devices will do
  int32_t number = -1;  // of the GPU; -1: any
};

class Chooser {
 public:
  Chooser(const Manifest &manifest, const char *label, const Wanted &wanted)
      : manifest_(manifest), label_(label), wanted_(wanted) {}

  int choose(Choice *choice) {
    if (wanted_.target && !find_named()) {
      list_held();
      return fail(MYCC_ERROR_LOAD, "%s has no target %s; it holds %s", label_, wanted_.target, held_.text());
    }
    if (wanted_.number >= 0 && wanted_.number >= gpu_count()) {
      if (gpu_count() == 0) return fail(MYCC_ERROR_LOAD, "%s: cuda:%d: %s", label_, wanted_.number, gpu_problem());
      return fail(MYCC_ERROR_LOAD, "%s: there is no cuda:%d; this machine has %d device%s", label_, wanted_.number,
                  gpu_count(), gpu_count() == 1 ? "" : "s");
    }
    int best = 0;
    if (wanted_.gpu) best = best_gpu(choice);
    if (!best && wanted_.cpu) best = best_cpu(choice);
    return best ? int(MYCC_OK) : refuse();
  }

 private:
  bool allowed(const TargetInfo &target) const { return !wanted_.target || strcmp(target.name, wanted_.target) == 0; }

  const TargetInfo *find_named() const {
    for (int32_t i = 0; i < manifest_.n_targets; ++i)
      if (allowed(manifest_.targets[i])) return &manifest_.targets[i];
    return nullptr;
  }

  bool has_gpu_code() const {
    for (int32_t i = 0; i < manifest_.n_targets; ++i)
      if (manifest_.targets[i].gpu && allowed(manifest_.targets[i])) return true;
    return false;
  }

  // Of devices that fit alike, the first.
  int best_gpu(Choice *choice) const {
    int best = 0;
    if (!has_gpu_code()) return 0;
    const int32_t count = gpu_count();
    for (int32_t d = 0; d < count; ++d) {
      if (wanted_.number >= 0 && d != wanted_.number) continue;
      for (int32_t i = 0; i < manifest_.n_targets; ++i) {
        const TargetInfo &target = manifest_.targets[i];
        if (!allowed(target) || (target.arch.size && target.arch != kArch)) continue;
        int rank = gpu_rank(target.name, gpu_device(d));
        if (rank > best) best = rank, *choice = {&target, &gpu_device(d)};
      }
    }
    return best;
  }

  int best_cpu(Choice *choice) const {
    int best = 0;
    for (int32_t i = 0; i < manifest_.n_targets; ++i) {
      const TargetInfo &target = manifest_.targets[i];
      int rank = target.gpu || !allowed(target) ? 0 : cpu_rank(target.isa);
      if (rank > best) best = rank, *choice = {&target, nullptr};
    }
    return best;
  }

  void list_held() {
    for (int32_t i = 0; i < manifest_.n_targets; ++i) held_.add("%s%s", i ? ", " : "", manifest_.targets[i].name);
  }

  // "cuda:0 is a NVIDIA H200 (sm_90)"
  void list_devices(Line *line) const {
    for (int32_t d = 0; d < gpu_count(); ++d) {
      const GpuDevice &device = gpu_device(d);
      line->add("%scuda:%d is an %s (sm_%d%d)", d ? ", " : "", d, device.name, device.major, device.minor);
    }
  }

  int refuse() {
    list_held();
    const TargetInfo *named = wanted_.target ? find_named() : nullptr;
    if (named && !named->gpu && wanted_.cpu)
      return fail(MYCC_ERROR_LOAD, "%s: the target %s does not run here: this CPU runs code up to %s", label_,
                  wanted_.target, cpu_best_isa());
    if (named && named->gpu != wanted_.gpu)
      return fail(MYCC_ERROR_LOAD, "%s: the target %s does not run on the device that was asked for", label_,
                  wanted_.target);
    bool only_gpu = true, only_cpu = true;
    for (int32_t i = 0; i < manifest_.n_targets; ++i) (manifest_.targets[i].gpu ? only_cpu : only_gpu) = false;
    if (!wanted_.gpu || only_cpu) {
      if (!wanted_.cpu)
        return fail(MYCC_ERROR_LOAD, "%s has no code for a GPU; it holds %s\n  Compile the model with --target cuda.",
                    label_, held_.text());
      return fail(
          MYCC_ERROR_LOAD,
          "%s has no code for this CPU, which runs code up to %s; it holds %s\n  Compile the model with --target "
          "cpu:%s.",
          label_, cpu_best_isa(), held_.text(), cpu_best_isa());
    }
    Line there;
    if (gpu_count() == 0)
      there.add("%s", gpu_problem());
    else
      list_devices(&there);
    if (only_gpu || !wanted_.cpu)
      return fail(MYCC_ERROR_LOAD, "%s has no code for this machine's GPUs; it holds %s, and %s%s", label_,
                  held_.text(), there.text(), hint());
    return fail(MYCC_ERROR_LOAD, "%s has no code for this machine; it holds %s, this CPU runs code up to %s, and %s",
                label_, held_.text(), cpu_best_isa(), there.text());
  }

  const char *hint() {
    if (gpu_count() == 0) return "\n  Compile the model with --target cpu to run it here.";
    const GpuDevice &device = gpu_device(wanted_.number >= 0 ? wanted_.number : 0);
    snprintf(hint_, sizeof hint_, "\n  Compile the model with --target cuda:sm_%d%d.", device.major, device.minor);
    return hint_;
  }

  const Manifest &manifest_;
  const char *label_;
  const Wanted &wanted_;
  Line held_;
  char hint_[80];
};

int read_device(const char *label, const char *device, Wanted *wanted) {
  wanted->cpu = wanted->gpu = true;
  if (!device) return MYCC_OK;
  wanted->cpu = strcmp(device, "cpu") == 0;
  wanted->gpu = !wanted->cpu;
  if (wanted->cpu || strcmp(device, "cuda") == 0) return MYCC_OK;
  const char *digits = is_gpu_target(device) ? device + strlen("cuda:") : "";
  const size_t length = strlen(digits);
  if (length > 0 && length < 4 && strspn(digits, "0123456789") == length) {
    wanted->number = atoi(digits);
    return MYCC_OK;
  }
  return fail(MYCC_ERROR_LOAD, "%s: device has to be cpu, cuda or cuda:<number>, not %s", label, device);
}

}  // namespace

int choose_target(const Manifest &manifest, const char *label, const mycc_load_options &options, Choice *choice) {
  Wanted wanted{options.target, true, true};
  if (int status = read_device(label, options.device, &wanted)) return status;
  return Chooser(manifest, label, wanted).choose(choice);
}

}  // namespace mycc::runtime
