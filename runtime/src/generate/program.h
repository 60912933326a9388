// program.h: the calls of a package for text generation, on a state of its own.
#pragma once

#include "../base/memory.h"
#include "device_logits.h"
#include "mycc/generate.h"
#include "packed.h"

namespace mycc::runtime {

// The likeliest tokens of rows, with their logits, `stride` in a row.
struct CandidateRows {
  const float *logits;
  const int64_t *tokens;
  int64_t stride;
};

// What draws of rows need: temperatures, random numbers, and bounds of the nucleus.
struct DrawRows {
  double *temperatures, *parts, *top_p, *min_p;
};

class TextProgram {
 public:
  TextProgram() = default;
  TextProgram(const TextProgram &) = delete;
  TextProgram &operator=(const TextProgram &) = delete;
  ~TextProgram();

  // Reads what the package says of itself. MYCC_ERROR_INPUT: it does not generate text.
  int init(mycc_model *model);

  // Reads `count` tokens of a text behind its first `start`; `logits` of what follows them. Of a model with recurrences a
  // call has `chunk` tokens, `short_chunk` or one. blocks: of the text, n_blocks of them; where texts have rows, the one
  // block is the row.
  // logits: on the host; the call returns when they are there. NULL: they stay on the device as those of piece `piece`.
  int read(const int64_t *tokens, int64_t count, int64_t start, const int32_t *blocks, size_t n_blocks, float *logits,
           int64_t piece);
  // A token more of several texts, which have been set by set(). logits: on the host; NULL: they stay on the device.
  int decode(int32_t texts, float *logits);
  // Whether one call reads texts of any lengths, each as pack() says; and whether that is for the texts of a step too.
  bool packs() const { return read_ >= 0; }
  bool joins() const { return packs() && on_device_; }
  void clear_packed() { packed_.clear(); }
  // Tokens of a text behind its first `start`. wanted: there shall be a row of logits for what follows them.
  void pack(const int64_t *tokens, int64_t count, int64_t start, const int32_t *blocks, size_t n_blocks, bool wanted) {
    packed_.add(tokens, count, start, blocks, n_blocks, wanted);
  }
  // logits: on the host; NULL: they stay on the device as those of a step.
  int read_packed(float *logits);
  // Memory of the host for the logits of `texts` rows: of what decode() gives, or of what read() does. NULL: none is left.
  float *logits_of(bool decoding);

  // Whether logits may stay on the device, which chooses the likeliest tokens itself.
  bool chooses() const { return argmax_ >= 0; }
  // What follows is of the logits that stayed on the device, behind the first `count` pieces or rows of the step. Results
  // are of the host, until the next call; they are there when the call returns.
  // The likeliest tokens.
  int likeliest(bool decoding, int64_t count, const int64_t **tokens);
  // Draws from all tokens, or from a nucleus. A token is -1 where the host has to draw.
  int draw(bool decoding, int64_t count, bool nucleus, const DrawRows &rows, const int64_t **tokens);
  // The `candidates` likeliest tokens of each row.
  int find_candidates(bool decoding, int64_t count, CandidateRows *found);
  int fetch(bool decoding, int64_t row, float *logits) {
    return device_.fetch(decoding ? device_.step() + row * vocabulary : device_.piece(row), logits);
  }
  void set(int32_t text, int64_t token, int64_t start, const int32_t *blocks, size_t n_blocks);
  int copy(int32_t source, int32_t target);
  int reset() { return mycc_state_reset(model_, state_); }

  int64_t length = 0, texts = 0, chunk = 0, vocabulary = 0;  // as the manifest has them
  int64_t short_chunk = 1;        // tokens of a piece that is not whole, where pieces have fixed lengths
  int64_t block = 0, blocks = 0;  // tokens of a block; blocks: 0: each text has a row of the cache
  int64_t candidates = 0;         // that the device gives of a row; 0: it finds the likeliest token alone
  int32_t threads = 1;            // of a call
  bool recurrent = false;         // of several texts, a call names their rows
  int64_t calls = 0;              // that read tokens
  bool ring = false;  // layers with a window keep no more than it: a row cannot go back to any token

 private:
  bool names_rows() const { return !blocks && texts > 1; }
  int64_t columns() const { return blocks ? (length + block - 1) / block : names_rows(); }
  int call(int32_t entry, const int64_t *tokens, int64_t rows, int64_t count, float *logits, float *kept);
  int run(int32_t entry, const mycc_tensor *inputs, int32_t n_inputs, mycc_tensor *outputs, int32_t n_outputs = 1);
  // Calls `choose(logits, first, rows)` for rows that lie one behind the other on the device.
  template <class Choose>
  int for_rows(bool decoding, int64_t count, const Choose &choose);
  mycc_tensor logits_tensor(float *logits, int64_t rows, int32_t device_type) const;

  mycc_model *model_ = nullptr;
  mycc_state *state_ = nullptr;
  int32_t prefill_ = -1, decode_ = -1, copy_ = -1, argmax_ = -1, read_ = -1, draw_ = -1, nucleus_ = -1, candidates_ = -1, short_ = -1;
  bool on_device_ = false;
  float *logits_[2] = {nullptr, nullptr};  // pinned where the package runs on a GPU
  DeviceLogits device_;
  PackedTokens packed_;
  Region region_;
  int64_t *tokens_ = nullptr, *start_ = nullptr, *table_ = nullptr;  // of a call's texts; table_: blocks or rows
};

}  // namespace mycc::runtime
