#include "block_pool.h"

namespace mycc::runtime {

bool BlockPool::init(int32_t first, int32_t count, int64_t tokens) {
  first_ = first, count_ = count, free_ = count - first, tokens_ = tokens;
  for (buckets_count_ = 16; buckets_count_ < count; buckets_count_ *= 2) {
  }
  blocks_ = region_.array<CacheBlock>(size_t(count));
  known_ = region_.array<int64_t>(size_t(count) * size_t(tokens));
  buckets_ = region_.array<int32_t>(size_t(buckets_count_));
  if (!blocks_ || !known_ || !buckets_) return false;
  for (int32_t i = 0; i < buckets_count_; ++i) buckets_[i] = -1;
  return true;
}

int32_t BlockPool::take() {
  int32_t best = -1;
  for (int32_t i = first_; i < count_; ++i) {
    const CacheBlock &block = blocks_[i];
    if (block.holders) continue;
    if (!block.filled) {
      best = i;
      break;
    }
    if (best < 0 || block.last_use < blocks_[best].last_use) best = i;
  }
  if (best < 0) return -1;
  forget(best);
  hold(best);
  return best;
}

void BlockPool::hold(int32_t block) {
  if (blocks_[block].holders++ == 0) --free_;
}

void BlockPool::release(int32_t block) {
  blocks_[block].last_use = ++uses_;
  if (--blocks_[block].holders == 0) ++free_;
}

int32_t BlockPool::find(uint64_t before, const int64_t *tokens, int64_t most, int64_t *shared) const {
  int32_t best = -1;
  *shared = 0;
  for (int32_t i = buckets_[bucket(before)]; i >= 0; i = blocks_[i].next) {
    if (blocks_[i].before != before) continue;
    const int64_t *own = known_ + i * tokens_, end = blocks_[i].filled < most ? blocks_[i].filled : most;
    int64_t alike = 0;
    while (alike < end && own[alike] == tokens[alike]) ++alike;
    if (alike > *shared) *shared = alike, best = i;
  }
  return best;
}

uint64_t BlockPool::know(int32_t block, uint64_t before, const int64_t *tokens, int64_t filled) {
  int64_t shared;
  const int32_t twin = find(before, tokens, filled, &shared);
  if (twin >= 0 && twin != block && shared == filled && blocks_[twin].filled >= filled) return blocks_[twin].serial;
  forget(block);
  CacheBlock &own = blocks_[block];
  memcpy(known_ + block * tokens_, tokens, size_t(filled) * sizeof(int64_t));
  own.filled = int32_t(filled), own.before = before, own.serial = ++serials_;
  int32_t *head = &buckets_[bucket(before)];
  own.previous = -1, own.next = *head;
  if (*head >= 0) blocks_[*head].previous = block;
  *head = block;
  return own.serial;
}

void BlockPool::take_over(int32_t block) {
  forget(block);
  hold(block);
}

void BlockPool::forget_all() {
  for (int32_t i = first_; i < count_; ++i) forget(i);
}

void BlockPool::forget(int32_t block) {
  CacheBlock &own = blocks_[block];
  if (!own.filled) return;
  if (own.previous >= 0)
    blocks_[own.previous].next = own.next;
  else
    buckets_[bucket(own.before)] = own.next;
  if (own.next >= 0) blocks_[own.next].previous = own.previous;
  own.filled = 0;
}

}  // namespace mycc::runtime
