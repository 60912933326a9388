#include "package_file.h"

#include <string.h>

#include "../base/errors.h"
#include "zip.h"

namespace mycc::runtime {

namespace {

constexpr uint64_t kLongestEnd = 22 + 128 + 20 + 56;  // the end record, its comment, and those of zip64
constexpr uint64_t kPage = 65536;                     // a multiple of every machine's
constexpr uint64_t kWorthMapping = uint64_t(1) << 20;
constexpr uint64_t kLongestExtra = 65536;             // of a local header

struct Range {
  uint64_t begin, end;
};

uint64_t field(const uint8_t *p, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= uint64_t(p[i]) << (8 * i);
  return value;
}

// Where the directory begins by the end of the file; its length: there is none. The archive is checked later.
uint64_t directory_of(const uint8_t *data, uint64_t size) {
  const uint64_t first = size > kLongestEnd ? size - kLongestEnd : 0;
  for (uint64_t at = size < 22 ? 0 : size - 21; at-- > first;) {
    const uint8_t *p = data + at;
    if (field(p, 4) != 0x06054b50 || at + 22 + field(p + 20, 2) != size) continue;
    uint64_t begin = field(p + 16, 4);
    if (begin == 0xFFFFFFFFu && at - first >= 76 && field(p - 76, 4) == 0x06064b50) begin = field(p - 76 + 48, 8);
    return begin < size ? begin : size;
  }
  return size;
}

// The 64-bit values of an entry of the directory that its 32 bits do not hold.
void read_wide(const uint8_t *extra, uint64_t size, uint64_t *const *values, int count) {
  while (size >= 4) {
    const uint64_t kind = field(extra, 2), length = field(extra + 2, 2);
    if (length > size - 4) return;
    uint64_t at = 0;
    for (int i = 0; kind == 1 && i < count; ++i) {
      if (*values[i] != 0xFFFFFFFFu || at + 8 > length) continue;
      *values[i] = field(extra + 4 + at, 8);
      at += 8;
    }
    extra += 4 + length, size -= 4 + length;
  }
}

// The pages of the file that hold weights and nothing else; empty where they are not worth it.
Range weights_of(const uint8_t *data, uint64_t directory, uint64_t size) {
  for (uint64_t at = directory; at + 46 <= size && field(data + at, 4) == 0x02014b50;) {
    const uint8_t *p = data + at;
    const uint64_t name_size = field(p + 28, 2), extra_size = field(p + 30, 2);
    uint64_t length = field(p + 24, 4), packed = field(p + 20, 4), start = field(p + 42, 4);
    at += 46 + name_size + extra_size;
    if (at > size) break;
    const Span name{reinterpret_cast<const char *>(p + 46), size_t(name_size)};
    if (!name.ends_with(".safetensors")) continue;
    uint64_t *const wide[] = {&length, &packed, &start};
    read_wide(p + 46 + name_size, extra_size, wide, 3);
    if (start > directory || packed > directory - start) break;
    const uint64_t header = start + 30 + name_size;
    const Range pages{(header + kLongestExtra + kPage - 1) / kPage * kPage, (header + packed) / kPage * kPage};
    return pages.end > pages.begin + kWorthMapping && pages.end <= directory ? pages : Range{0, 0};
  }
  return {0, 0};
}

int damaged(const char *path) {
  return fail(MYCC_ERROR_LOAD, "%s became shorter while it was read" MYCC_DAMAGED, path);
}

// All of an open file.
int read_all(const char *path, bool private_weights, Mapping *mapping) {
  uint8_t *data = const_cast<uint8_t *>(mapping->data);
  const uint64_t size = mapping->size, tail = size > kLongestEnd ? size - kLongestEnd : 0;
  if (!read_file(*mapping, data + tail, tail, size - tail)) return damaged(path);
  const uint64_t directory = directory_of(data, size);
  if (directory < tail && !read_file(*mapping, data + directory, directory, tail - directory)) return damaged(path);
  const Range mapped = private_weights ? Range{0, 0} : weights_of(data, directory, size);
  if (!read_file(*mapping, data, 0, mapped.begin)) return damaged(path);
  if (directory > mapped.end && !read_file(*mapping, data + mapped.end, mapped.end, directory - mapped.end))
    return damaged(path);
  if (mapped.end == 0) return MYCC_OK;
  mapping->shared = map_over(*mapping, data + mapped.begin, mapped.begin, mapped.end - mapped.begin);
  if (mapping->shared) return MYCC_OK;
  return fail(MYCC_ERROR_LOAD, "cannot map %s", path);
}

}  // namespace

int read_package(const char *path, bool private_weights, Mapping *mapping) {
  if (int status = open_file(path, mapping)) return status;
  if (int status = read_all(path, private_weights, mapping)) return status;
  finish_writing(*mapping);
  return MYCC_OK;
}

int check_unchanged(const char *path, const Mapping &mapping) {
  if (mapping.descriptor < 0 || !file_changed(mapping)) return MYCC_OK;
  return fail(MYCC_ERROR_LOAD,
              "%s changed while it was loaded\n  Replace a package by another file with its name, not by writing into it.",
              path);
}

int check_pages(const Mapping &mapping) {
  if (mapping.descriptor < 0 || !file_changed(mapping)) return MYCC_OK;
  return fail(MYCC_ERROR_RUN,
              "the package's file was written to, or cut off, after it was loaded: its weights are not those that were "
              "checked\n  Load the package again. Replace a package by renaming a new file over it, or load it as a copy.");
}

int copy_package(const void *data, size_t size, Mapping *mapping) {
  uint8_t *target = reserve_mapping(size, mapping) ? const_cast<uint8_t *>(mapping->data) : nullptr;
  if (!target || !allow_writing(target, size)) return out_of_memory(size);
  memcpy(target, data, size);
  finish_writing(*mapping);
  return MYCC_OK;
}

}  // namespace mycc::runtime
