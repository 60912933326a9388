// package_file.h: the bytes of a package's file in memory: all that is checked or run lies in memory of this process,
// so that nobody can change it in between; the weights are pages of the file, shared by all who map it.
#pragma once

#include "../base/os.h"

namespace mycc::runtime {

// `private_weights`: the weights are read too. mapping->data is aligned to 64 at least. MYCC_OK or a code with its text.
int read_package(const char *path, bool private_weights, Mapping *mapping);
// A failure when the file has changed since it was read.
int check_unchanged(const char *path, const Mapping &mapping);
// A failure when the file whose pages are a model's weights was written to, or cut off, after it was loaded. Other models
// pass: nothing of the file is left in them.
int check_pages(const Mapping &mapping);
// A copy of a package in memory.
int copy_package(const void *data, size_t size, Mapping *mapping);

}  // namespace mycc::runtime
