// pieces.cpp: which tokens of prompts a step reads, and by which calls.

#include "../base/errors.h"
#include "scheduler.h"

namespace mycc::runtime {
namespace {

constexpr int64_t kShared = 4;  // tokens that are alike, which are worth waiting for: they are read once then

// Whether two requests read the same tokens next.
bool alike(const Request &a, const Request &b) {
  const size_t from = size_t(a.read < b.read ? b.read : a.read), end = from + size_t(kShared);
  if (a.tokens.size() < end || b.tokens.size() < end) return false;
  return memcmp(a.tokens.begin(), b.tokens.begin(), end * sizeof(int64_t)) == 0;
}

}  // namespace

// What the next call reads of a request, `most` tokens of it: none where all the rest was found in the cache, or where it
// has to wait for blocks.
int Scheduler::plan(Request &request, int64_t most, int64_t *count) {
  Request *const self = &request;
  const int64_t before = request.read;
  *count = 0;
  if (int status = match(request, true)) return broken(status, &self, 1);
  note_reused(request, request.read - before);
  if (request.left() == 1) return MYCC_OK;  // the next step takes it with the others
  int64_t found = request.left() < most ? request.left() : most;
  if (program_.recurrent && found < program_.chunk) found = found < program_.short_chunk ? 1 : program_.short_chunk;
  if (grow(request, request.read + found)) *count = found;
  return MYCC_OK;
}

// Pieces of prompts one by one, each by a call of its own.
int Scheduler::read_pieces() {
  int32_t pieces = 0;
  for (int64_t room = program_.chunk; room > 0 && pieces < program_.texts; ++pieces) {
    Request *reading = best(Stage::running, true);
    if (!reading) break;
    Piece piece = {reading, 0};
    if (int status = plan(*reading, room, &piece.count)) return status;
    if (!piece.count) break;
    if (int status = read(piece, pieces)) return status;
    room -= piece.count;
  }
  return MYCC_OK;
}

// The logits behind a piece are those of piece `number` of the step.
int Scheduler::read(const Piece &piece, int32_t number) {
  Request *const self = piece.request;
  Request &request = *self;
  const bool last = piece.count == request.left(), kept = program_.chooses() && (!last || on_device(request));
  float *logits = nullptr;
  if (!kept) {
    logits = program_.logits_of(false);
    if (!logits) return out_of_memory(size_t(program_.texts * program_.vocabulary) * sizeof(float));
    logits += number * program_.vocabulary;
  }
  const int64_t *tokens = request.tokens.begin() + request.read;
  const int64_t place = int64_t(awaited_pieces_.size());  // logits that nobody needs are overwritten there
  if (int status = program_.read(tokens, piece.count, request.read, request.blocks.begin(), request.blocks.size(),
                                 logits, place))
    return broken(status, &self, 1);
  was_read(request, piece.count);
  read_ += piece.count;
  if (!last) return MYCC_OK;
  if (kept) return awaited_pieces_.push(self) ? int(MYCC_OK) : broken(out_of_memory(sizeof(self)), &self, 1);
  const int status = next_token(request, logits, kNotChosen);
  return status ? broken(status, &self, 1) : int(MYCC_OK);
}

// Pieces of prompts by one call, together with a token more of `rows`.
int Scheduler::read_packed(Array<Request *> &rows) {
  Array<Piece> pieces;
  const int status = plan_pieces(pieces);
  for (const Piece &piece : pieces) piece.request->planned = false;
  if (status) return status;
  size_t kept = 0;
  for (Request *request : rows)  // some may have had to give their blocks to prompts
    if (request->stage == Stage::running && request->blocks.size()) rows[kept++] = request;
  while (rows.size() > kept) rows.pop();
  if (!pieces.size()) return rows.size() ? decode_rows(rows) : int(MYCC_OK);
  if (pieces.size() == 1 && !rows.size()) return read(pieces[0], 0);
  return call_packed(rows, pieces);
}

// A prompt that begins as another one of the call waits for the next step, which finds what this one reads.
int Scheduler::plan_pieces(Array<Piece> &pieces) {
  for (int64_t room = program_.chunk; room > 0 && int64_t(pieces.size()) < program_.texts;) {
    Request *reading = best(Stage::running, true);
    if (!reading) break;
    for (const Piece &piece : pieces)
      if (!forget_ && alike(*piece.request, *reading)) return MYCC_OK;
    Piece piece = {reading, 0};
    if (int status = plan(*reading, room, &piece.count)) return status;
    if (!piece.count) break;
    if (!pieces.push(piece)) return out_of_memory(sizeof(Piece));
    reading->planned = true;
    room -= piece.count;
  }
  return MYCC_OK;
}

int Scheduler::call_packed(const Array<Request *> &rows, const Array<Piece> &pieces) {
  Array<Piece> all;
  Array<Request *> of_call, wanted;
  for (Request *request : rows)
    if (!all.push({request, 1})) return out_of_memory(sizeof(Piece));
  for (const Piece &piece : pieces)
    if (!all.push(piece)) return out_of_memory(sizeof(Piece));
  bool kept = program_.chooses();
  program_.clear_packed();
  for (const Piece &piece : all) {
    Request &request = *piece.request;
    const bool last = piece.count == request.left();
    kept = kept && (!last || on_device(request));
    if (!of_call.push(&request) || (last && !wanted.push(&request))) return out_of_memory(sizeof(Request *));
    program_.pack(request.tokens.begin() + request.read, piece.count, request.read, request.blocks.begin(),
                  request.blocks.size(), last);
  }
  float *logits = kept ? nullptr : program_.logits_of(false);
  if (!kept && !logits) return out_of_memory(size_t(program_.texts * program_.vocabulary) * sizeof(float));
  for (Request *request : wanted)
    if (kept && !awaited_rows_.push(request)) return out_of_memory(sizeof(request));
  if (int status = program_.read_packed(logits)) return broken(status, of_call.begin(), of_call.size());
  for (const Piece &piece : all) was_read(*piece.request, piece.count);
  for (const Piece &piece : pieces) read_ += piece.count;
  return kept ? int(MYCC_OK) : take_tokens(wanted, logits);
}

}  // namespace mycc::runtime
