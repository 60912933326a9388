#include "packed.h"

namespace mycc::runtime {

mycc_tensor numbers(int64_t *data, int64_t rows, int64_t columns) {
  mycc_tensor made = {};
  made.data = data, made.device_type = 1, made.ndim = columns < 0 ? 1 : 2, made.dtype = {0, 64, 1};
  made.shape[0] = rows, made.shape[1] = columns, made.strides[0] = columns < 0 ? 1 : columns, made.strides[1] = 1;
  return made;
}

bool PackedTokens::init(int64_t texts, int64_t count, int64_t tile, int64_t columns) {
  tile_ = tile, columns_ = columns;
  const size_t tiles = size_t(count / tile + texts);
  tokens_ = region_.array<int64_t>(size_t(count)), places_ = region_.array<int64_t>(size_t(count));
  queries_ = region_.array<int64_t>(tiles * size_t(tile)), positions_ = region_.array<int64_t>(tiles * size_t(tile));
  table_ = region_.array<int64_t>(tiles * size_t(columns)), asked_ = region_.array<int64_t>(size_t(texts));
  return tokens_ && places_ && queries_ && positions_ && table_ && asked_;
}

void PackedTokens::add(const int64_t *tokens, int64_t count, int64_t start, const int32_t *blocks, size_t n_blocks,
                       bool wanted) {
  for (int64_t first = 0; first < count; first += tile_, ++tiles_) {
    int64_t *queries = queries_ + tiles_ * tile_, *positions = positions_ + tiles_ * tile_;
    for (int64_t i = 0; i < tile_; ++i) {
      const bool there = first + i < count;
      queries[i] = there ? count_ : 0, positions[i] = there ? start + first + i : -1;
      if (!there) continue;
      tokens_[count_] = tokens[first + i], places_[count_] = tiles_ * tile_ + i;
      ++count_;
    }
    for (int64_t i = 0; i < columns_; ++i) table_[tiles_ * columns_ + i] = size_t(i) < n_blocks ? blocks[i] : 0;
  }
  if (wanted) asked_[wanted_++] = count_ - 1;
}

int64_t PackedTokens::inputs(mycc_tensor *made) {
  const int64_t rows = wanted_ ? wanted_ : 1;
  if (!wanted_) asked_[0] = 0;
  made[0] = numbers(tokens_, 1, count_), made[1] = numbers(places_, count_, -1);
  made[2] = numbers(queries_, tiles_, tile_), made[3] = numbers(positions_, tiles_, tile_);
  made[4] = numbers(table_, tiles_, columns_), made[5] = numbers(asked_, rows, -1);
  return rows;
}

}  // namespace mycc::runtime
