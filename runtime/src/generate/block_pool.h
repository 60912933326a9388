// block_pool.h: the blocks of a cache of keys and values: who holds them, and which tokens they are of.
//
// A block that is full of tokens, or that its request has left, is known by them and by the block before it: a later
// prompt that begins alike finds it. Nobody writes to a block that several requests hold, or that is known: who goes on
// otherwise copies it. Blocks that nobody holds stay known until they are needed, the longest unused one first.
#pragma once

#include "../base/memory.h"

namespace mycc::runtime {

struct CacheBlock {
  int32_t holders;     // requests
  int32_t filled;      // tokens that it is known by; 0: it is not known
  uint64_t serial;     // of what it holds, while it is known; no two of a pool are alike
  uint64_t before;     // serial of the block before it; 0: it is a first one
  int32_t next, previous;  // known blocks of the same bucket; -1: none
  uint64_t last_use;
};

class BlockPool {
 public:
  // first: the first block that may be given out.
  bool init(int32_t first, int32_t count, int64_t tokens);

  int64_t tokens() const { return tokens_; }
  int32_t count() const { return count_ - first_; }
  int32_t free_count() const { return free_; }  // blocks that nobody holds

  int32_t take();            // a block that nobody holds, which is no longer known; -1: there is none
  bool held(int32_t block) const { return blocks_[block].holders > 0; }
  uint64_t serial(int32_t block) const { return blocks_[block].serial; }
  void hold(int32_t block);
  void release(int32_t block);

  // The known block behind `before` that shares most tokens with `tokens`; -1: none shares any. shared: how many.
  int32_t find(uint64_t before, const int64_t *tokens, int64_t most, int64_t *shared) const;
  // Makes a block known by its tokens, unless another one is known by the same; the serial of that which is.
  uint64_t know(int32_t block, uint64_t before, const int64_t *tokens, int64_t filled);
  // Takes over a block that nobody holds, for a text that has its first tokens alone.
  void take_over(int32_t block);
  void forget_all();  // what the blocks hold is worth nothing

 private:
  int32_t bucket(uint64_t before) const { return int32_t(before * 0x9e3779b97f4a7c15u >> 32) & (buckets_count_ - 1); }
  void forget(int32_t block);

  int32_t first_ = 0, count_ = 0, free_ = 0, buckets_count_ = 0;
  int64_t tokens_ = 0;
  uint64_t serials_ = 0, uses_ = 0;
  Region region_;
  CacheBlock *blocks_ = nullptr;
  int64_t *known_ = nullptr;  // tokens of each block
  int32_t *buckets_ = nullptr;
};

}  // namespace mycc::runtime
