// sampler.h: from logits to a token: penalties, bias, temperature, and what is left out of the draw.
//
// The same steps in the same order as runtime/generation/sampling.py, and the same random numbers: those of numpy's
// default_rng (PCG64, O'Neill 2014, seeded by SeedSequence), so that a seed gives the same tokens.
#pragma once

#include "../base/memory.h"
#include "mycc/generate.h"
#include "weights.h"

namespace mycc::runtime {

__extension__ typedef unsigned __int128 Wide;

// numpy.random.default_rng(seed).random().
class RandomNumbers {
 public:
  void seed(uint64_t seed);
  double next();  // in [0, 1)

 private:
  void step();
  Wide state_ = 0, increment_ = 0;
};

// What a choice of the next token needs of the logits.
enum class Need {
  likeliest,   // the place of the largest
  draw,        // a draw from all tokens by their weights
  nucleus,     // a draw from those that top-p and min-p leave
  candidates,  // the likeliest tokens
  all,
};

// A token and how often it was generated; -1: it is one of the prompt alone.
struct SeenToken {
  int64_t token;
  int32_t times;
};

class Sampler {
 public:
  // False: no memory. What `sampling` points to is copied.
  bool init(const mycc_sampling &sampling, uint64_t seed, const int64_t *prompt, int64_t length);
  // What it needs of `vocabulary` logits as the model gave them, where `candidates` of the likeliest can be had.
  Need need(int64_t vocabulary, int64_t candidates) const;
  double temperature() const { return sampling_.temperature; }
  double top_p() const { return sampling_.top_p; }
  double min_p() const { return sampling_.min_p; }
  // The random number of the next draw, in [0, 1); drawn(): it has been used.
  double part() const;
  void drawn() { random_.next(); }
  // Notes a token that was chosen. False: no memory.
  bool note(int64_t token);
  // The next token after logits[0..count-1]. `room` is used for the work. -1: no memory.
  int64_t choose(const float *logits, int64_t count, struct SamplingRoom &room);
  // The same by top-k of the likeliest tokens alone, the likeliest first. -1: no memory, or a logit is no number.
  int64_t choose_of(const float *logits, const int64_t *tokens, struct SamplingRoom &room);

 private:
  bool keeps_few(int64_t vocabulary) const { return sampling_.top_k > 0 && sampling_.top_k < vocabulary; }
  bool penalises() const;
  bool see(int64_t token, bool generated);
  void penalise(float *logits) const;
  int64_t draw(const float *logits, int64_t count, struct SamplingRoom &room);
  void narrow(double *weights, int64_t n, struct SamplingRoom &room) const;

  mycc_sampling sampling_ = {};
  RandomNumbers random_;
  Array<SeenToken> seen_;     // sorted by token
  Array<int64_t> bias_tokens_;
  Array<float> bias_;
  bool generated_ = false;
};

// Memory for one choice at a time, kept from one to the next.
struct SamplingRoom {
  Array<float> logits;
  Array<double> weights;
  Array<int32_t> order, kept;
  Array<NucleusRoom> nucleus;
  bool reserve(size_t count) {
    // one more: a list of tokens writes the next before it knows whether that is one
    return logits.reserve(count) && weights.reserve(count) && order.reserve(count + 1) && kept.reserve(count + 1) &&
           nucleus.reserve(1);
  }
};

}  // namespace mycc::runtime
