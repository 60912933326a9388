#include "blocks.h"

#include <stdint.h>
#include <stdlib.h>

#include <atomic>

#include "../base/os.h"

namespace mycc::runtime {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kPagesFrom = size_t(1) << 20;   // smaller blocks are malloc's
constexpr size_t kMostKept = size_t(128) << 20;   // bytes of all blocks that are kept
constexpr uint32_t kSlots = 16;

struct Block {
  size_t size;  // bytes of its pages
};

// Whoever takes a block out of its slot owns it: no lock, which a fork could leave closed.
std::atomic<Block *> kept[kSlots];
std::atomic<size_t> kept_bytes{0};
std::atomic<uint32_t> next_slot{0};

Block *take(uint32_t slot) {
  Block *block = kept[slot].exchange(nullptr);
  if (block) kept_bytes -= block->size;
  return block;
}

// Puts it into an empty slot, from `slot` on; when there is none, in the place of another.
void keep(Block *block, uint32_t slot) {
  kept_bytes += block->size;
  for (uint32_t i = 0; i < kSlots; ++i) {
    Block *empty = nullptr;
    if (kept[(slot + i) % kSlots].compare_exchange_strong(empty, block)) return;
  }
  Block *before = kept[slot % kSlots].exchange(block);
  if (!before) return;
  kept_bytes -= before->size;
  unmap_pages(before, before->size);
}

// Large enough for `bytes`, and less than twice as large.
bool fits(const Block &block, size_t bytes) { return block.size >= bytes && block.size / 2 < bytes; }

}  // namespace

void *allocate_block(size_t bytes, size_t *pages) {
  *pages = 0;
  if (bytes < kPagesFrom) {
    void *data = nullptr;
    return posix_memalign(&data, kAlignment, bytes) == 0 ? data : nullptr;
  }
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    Block *block = take(slot);
    if (!block) continue;
    if (fits(*block, bytes)) {
      *pages = block->size;
      return block;
    }
    keep(block, slot);
  }
  *pages = bytes;
  return map_pages(bytes);
}

void release_block(void *data, size_t pages) {
  if (!pages) return free(data);
  if (pages > kMostKept) return unmap_pages(data, pages);
  const uint32_t slot = next_slot++ % kSlots;
  for (uint32_t i = 0; i < kSlots && kept_bytes + pages > kMostKept; ++i) {
    if (Block *old = take((slot + i) % kSlots)) unmap_pages(old, old->size);
  }
  Block *block = static_cast<Block *>(data);
  block->size = pages;
  keep(block, slot);
}

}  // namespace mycc::runtime
