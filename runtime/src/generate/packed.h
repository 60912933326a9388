// packed.h: the tokens of a call for texts that are not equally long, behind each other in one row.
//
// Attention sees them in tiles of a few queries, each of one text: see compiler/generation/packed.py.
#pragma once

#include "../base/memory.h"
#include "mycc/model.h"

namespace mycc::runtime {

class PackedTokens {
 public:
  // texts: of a call at most. count: their tokens at most. tile: queries of a tile. columns: blocks of a text at most.
  bool init(int64_t texts, int64_t count, int64_t tile, int64_t columns);
  void clear() { count_ = tiles_ = wanted_ = 0; }
  // Tokens of a text behind its first `start`. wanted: the logits behind the last of them.
  void add(const int64_t *tokens, int64_t count, int64_t start, const int32_t *blocks, size_t n_blocks, bool wanted);

  static constexpr int32_t kInputs = 6;
  // What the entry point takes, and how many rows of logits it gives: one, if none is wanted.
  int64_t inputs(mycc_tensor *made);

 private:
  Region region_;
  int64_t tile_ = 0, columns_ = 0;
  int64_t count_ = 0, tiles_ = 0, wanted_ = 0;  // of the call
  int64_t *tokens_ = nullptr, *places_ = nullptr;       // [count]
  int64_t *queries_ = nullptr, *positions_ = nullptr;   // [tiles][tile]
  int64_t *table_ = nullptr;                            // [tiles][columns]
  int64_t *asked_ = nullptr;                            // [wanted]
};

// An array of the host as a tensor of i64: of two dimensions, or of one (columns < 0).
mycc_tensor numbers(int64_t *data, int64_t rows, int64_t columns);

}  // namespace mycc::runtime
