// targets.h: which of a package's targets runs here, and where.
#pragma once

#include "../gpu/cuda_driver.h"
#include "../package/manifest.h"

namespace mycc::runtime {

struct Choice {
  const TargetInfo *target = nullptr;
  GpuDevice *device = nullptr;  // NULL: the CPU
};

// By the options' target and device; where they name none, a GPU that the package has code for comes before the CPU,
// and the code that fits best before the rest. The driver is opened only when the package has code for a GPU.
int choose_target(const Manifest &manifest, const char *label, const mycc_load_options &options, Choice *choice);

}  // namespace mycc::runtime
