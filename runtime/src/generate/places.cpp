// places.cpp: which requests have a place, and the blocks of the cache that they take, share, copy and give back.

#include "../base/errors.h"
#include "scheduler.h"

namespace mycc::runtime {
namespace {

constexpr int64_t kCopied = 4;  // tokens of a block that are worth a copy of it

}  // namespace

int32_t Scheduler::running() const {
  int32_t found = 0;
  for (const Request *request : requests_) found += request->stage == Stage::running || request->blocks.size() > 0;
  return found;
}

// The request of a stage that is served first. reading: of those that have more than one token to read, and are not in
// the next call already.
Request *Scheduler::best(Stage stage, bool reading) const {
  Request *found = nullptr;
  for (Request *request : requests_)
    if (request->stage == stage && (!reading || (request->left() > 1 && !request->planned)) && (!found || request->before(*found)))
      found = request;
  return found;
}

// Gives places to those that wait, in their order: a request that does not fit holds up those behind it, or else it
// might wait for ever.
int Scheduler::admit() {
  for (int32_t places = running(); places < program_.texts; ++places) {
    Request *request = best(Stage::waiting, false);
    if (!request) break;
    if (int status = match(*request, false)) return status;
    const int64_t most = int64_t(request->tokens.size()) + 1;
    const int64_t needed = blocks_for(most < program_.length ? most : program_.length) - int64_t(request->blocks.size());
    if (program_.blocks && places > 0 && pool_.free_count() < needed + (needed > 0 ? places : 0)) {
      give_back(*request);
      break;
    }
    note_reused(*request, request->read);
    request->stage = Stage::running;
  }
  return MYCC_OK;
}

// Takes over what the cache holds of a request's tokens behind those that it has, but never the last one, whose logits
// are wanted. copying: also a part of a block.
int Scheduler::match(Request &request, bool copying) {
  const int64_t whole = pool_.tokens();
  while (!forget_ && request.read == request.known * whole && size_t(request.known) == request.blocks.size()) {
    const int64_t most = request.left() - 1;
    int64_t shared;
    const int64_t *tokens = request.tokens.begin() + request.read;
    const int32_t block = most > 0 ? pool_.find(request.chain, tokens, most < whole ? most : whole, &shared) : -1;
    if (block < 0) return MYCC_OK;
    if (shared < whole) return copying ? copy(request, block, shared) : int(MYCC_OK);
    if (!request.blocks.push(block)) return out_of_memory(sizeof(int32_t));
    pool_.hold(block);
    ++request.known;
    request.chain = pool_.serial(block);
    request.read += whole;
  }
  return MYCC_OK;
}

// The first `shared` tokens of a block for a request that goes on otherwise.
int Scheduler::copy(Request &request, int32_t source, int64_t shared) {
  if (!program_.blocks) {  // the only one: nobody else has a use for it
    if (pool_.held(source)) return MYCC_OK;
    if (!request.blocks.push(source)) return out_of_memory(sizeof(int32_t));
    pool_.take_over(source);
    request.read += shared;
    return MYCC_OK;
  }
  if (shared < kCopied) return MYCC_OK;
  pool_.hold(source);
  const int32_t target = pool_.take();
  pool_.release(source);
  if (target < 0) return MYCC_OK;
  if (!request.blocks.push(target)) {
    pool_.release(target);
    return out_of_memory(sizeof(int32_t));
  }
  if (int status = program_.copy(source, target)) return status;
  request.read += shared;
  ++copied_;
  return MYCC_OK;
}

// Has a request hold blocks for its first `tokens`, if need be by taking them from those that are served after it. False:
// it had to give back its own.
bool Scheduler::grow(Request &request, int64_t tokens) {
  while (int64_t(request.blocks.size()) < blocks_for(tokens)) {
    int32_t block = pool_.take();
    while (block < 0) {
      Request *last = nullptr;
      for (Request *other : requests_)
        if (other->blocks.size() && (!last || last->before(*other))) last = other;
      if (!last || last == &request || last->before(request)) {
        preempt(request);
        return false;
      }
      preempt(*last);
      block = pool_.take();
    }
    if (!request.blocks.push(block)) {
      pool_.release(block);
      preempt(request);
      return false;
    }
  }
  return true;
}

// Its blocks go, its tokens stay: they are read again when it has a place.
void Scheduler::preempt(Request &request) {
  give_back(request);
  if (request.stage == Stage::running) request.stage = Stage::waiting;
  ++preempted_;
}

void Scheduler::give_back(Request &request) {
  const int64_t rest = request.read - request.known * pool_.tokens();
  if (!forget_ && !broken_ && rest > 0)
    pool_.know(request.blocks[size_t(request.known)], request.chain, request.tokens.begin() + request.read - rest, rest);
  for (size_t i = request.blocks.size(); i > 0; --i) pool_.release(request.blocks[i - 1]);  // the last goes first
  request.blocks.clear();
  request.known = 0, request.chain = 0, request.read = 0, request.reused = 0;
}

// Makes the blocks known that have become full.
void Scheduler::know_blocks(Request &request) {
  const int64_t whole = pool_.tokens();
  for (; !forget_ && program_.blocks && (request.known + 1) * whole <= request.read; ++request.known)
    request.chain = pool_.know(request.blocks[size_t(request.known)], request.chain,
                               request.tokens.begin() + request.known * whole, whole);
}

}  // namespace mycc::runtime
