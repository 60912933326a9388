// scheduler.h: which requests a step serves, and which blocks of the cache they have.
#pragma once

#include "../base/memory.h"
#include "block_pool.h"
#include "mycc/generate.h"
#include "program.h"
#include "request.h"

namespace mycc::runtime {

// Tokens of a request that a call reads.
struct Piece {
  Request *request;
  int64_t count;
};

class Scheduler {
 public:
  Scheduler() = default;
  Scheduler(const Scheduler &) = delete;
  Scheduler &operator=(const Scheduler &) = delete;
  ~Scheduler();

  int init(mycc_model *model, bool forget);
  int check(const mycc_request &request) const { return check_request(request, program_.length, program_.vocabulary); }
  int submit(const mycc_request &request, int64_t *id);
  int cancel(int64_t id);
  int show_logits(int64_t id, bool shown);
  int choose(int64_t id, int64_t token, int32_t finish, int32_t *ended);
  int step();
  bool busy() const;
  void count(mycc_generator_counts *counts) const;

  const Array<mycc_token> &found() const { return found_; }  // by the last step

 private:
  Request *find(int64_t id) const;
  Request *best(Stage stage, bool reading) const;
  int32_t running() const;  // requests that have a place

  // places and blocks
  int admit();
  int match(Request &request, bool copying);
  int copy(Request &request, int32_t source, int64_t shared);
  bool grow(Request &request, int64_t tokens);
  void preempt(Request &request);
  void give_back(Request &request);
  void know_blocks(Request &request);
  int64_t blocks_for(int64_t tokens) const { return (tokens + pool_.tokens() - 1) / pool_.tokens(); }

  // calls
  int plan(Request &request, int64_t most, int64_t *count);
  int read_pieces();
  int read(const Piece &piece, int32_t number);
  int read_packed(Array<Request *> &rows);
  int plan_pieces(Array<Piece> &pieces);
  int call_packed(const Array<Request *> &rows, const Array<Piece> &pieces);
  int rows_of_step(Array<Request *> &rows);
  int decode_rows(const Array<Request *> &rows);
  int take_tokens();
  int take_tokens(const Array<Request *> &requests, bool decoding);
  int take_tokens(const Array<Request *> &rows, const float *logits);
  bool on_device(const Request &request) const {
    return request.on_device(program_.vocabulary, program_.candidates);
  }
  Need need_of(const Request &request) const {
    return request.sampler.need(program_.vocabulary, program_.candidates);
  }
  int choose_by_device(const Array<Request *> &requests, bool decoding);
  int choose_of_candidates(const Array<Request *> &requests, bool decoding);
  int choose_by_host(Request &request, bool decoding, int64_t row);
  void was_read(Request &request, int64_t count);
  void note_reused(Request &request, int64_t tokens);
  int choose_all(const Array<Request *> &rows, const float *logits);
  int next_token(Request &request, const float *logits, int64_t token);
  void drop(Request &request);
  int broken(int status, Request *const *of_call, size_t count);

  static constexpr int64_t kNotChosen = -2;  // in the place of a token

  TextProgram program_;
  BlockPool pool_;
  bool forget_ = false, broken_ = false;
  Array<Request *> requests_;  // all that have not ended
  int64_t ids_ = 0;
  Array<mycc_token> found_;
  // Whose next tokens the device chooses in this step: behind pieces of prompts, and behind a token more.
  Array<Request *> awaited_pieces_, awaited_rows_;
  SamplingRoom *rooms_ = nullptr;  // one for each thread that chooses tokens
  int32_t threads_ = 0;
  Array<int64_t> chosen_;          // by choose_all(), choose_by_device()
  Array<double> draws_;            // DrawRows of a call
  int64_t preempted_ = 0, read_ = 0, reused_ = 0, copied_ = 0;
};

}  // namespace mycc::runtime
