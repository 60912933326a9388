// request.h: a request while it is served.
#pragma once

#include "../base/memory.h"
#include "mycc/generate.h"
#include "sampler.h"

namespace mycc::runtime {

enum class Stage {
  waiting,  // for a place
  running,
  asking,   // for the token that its caller chooses
};

struct Request {
  int64_t id = 0;
  int32_t priority = 0;
  int64_t waited = 0;       // steps
  Stage stage = Stage::waiting;
  Array<int64_t> tokens;    // of the prompt, then those generated
  int64_t prompt = 0;       // how many of them are of the prompt
  int64_t read = 0;         // how many the cache holds
  int64_t most = 0;         // to be generated; 0: as many as fit
  int32_t reused = 0;       // of the prompt, that were found in the cache
  Array<int64_t> stops;
  bool by_caller = false;
  bool shows_logits = true;  // with each token
  bool planned = false;      // it is in the call that is being made up
  Sampler sampler;

  Array<int32_t> blocks;    // of the cache, in the order of the tokens
  int32_t known = 0;        // how many of them are known by their tokens,
  uint64_t chain = 0;       // and the serial of the last of these

  int64_t left() const { return int64_t(tokens.size()) - read; }  // tokens that have to be read before the next is chosen
  int64_t generated() const { return int64_t(tokens.size()) - prompt; }
  // Whether its tokens can be chosen without all logits on the host.
  bool on_device(int64_t vocabulary, int64_t candidates) const {
    if (by_caller || shows_logits) return false;
    const Need need = sampler.need(vocabulary, candidates);
    return need == Need::likeliest || (candidates > 0 && need != Need::all);
  }
  int64_t rank() const { return priority + waited / 256; }
  // Whether it is served before another one. Numbers grow in the order of coming.
  bool before(const Request &other) const { return rank() != other.rank() ? rank() > other.rank() : id < other.id; }
};

// What mycc_generator_submit() refuses; MYCC_OK where it takes a request. length, vocabulary: of the package.
int check_request(const mycc_request &request, int64_t length, int64_t vocabulary);
// A request of its own memory; NULL when memory is short.
Request *make_request(const mycc_request &request, int64_t id);

}  // namespace mycc::runtime
