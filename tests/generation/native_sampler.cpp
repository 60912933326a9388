// What test_native_sampler.py calls.
#include "src/generate/sampler.h"

extern "C" {

void test_random(uint64_t seed, double *values, int64_t count) {
  mycc::runtime::RandomNumbers numbers;
  numbers.seed(seed);
  for (int64_t i = 0; i < count; ++i) values[i] = numbers.next();
}

// The tokens that are chosen of `rows` rows of logits, one after the other.
int test_choose(const mycc_sampling *sampling, const int64_t *prompt, int64_t length, const float *logits, int64_t rows,
                int64_t vocabulary, int64_t *tokens) {
  mycc::runtime::Sampler sampler;
  mycc::runtime::SamplingRoom room;
  if (!sampler.init(*sampling, sampling->seed, prompt, length)) return 1;
  for (int64_t i = 0; i < rows; ++i) {
    tokens[i] = sampler.choose(logits + i * vocabulary, vocabulary, room);
    if (tokens[i] < 0 || !sampler.note(tokens[i])) return 1;
  }
  return 0;
}

// The same by the likeliest tokens of each row, in their order. -2 stands for a token that needs something else. None of
// them is noted.
int test_choose_of(const mycc_sampling *sampling, const float *logits, const int64_t *tokens, int64_t rows,
                   int64_t candidates, int64_t vocabulary, int64_t *chosen) {
  mycc::runtime::Sampler sampler;
  mycc::runtime::SamplingRoom room;
  if (!sampler.init(*sampling, sampling->seed, nullptr, 0)) return 1;
  for (int64_t i = 0; i < rows; ++i) {
    chosen[i] = -2;
    if (sampler.need(vocabulary, candidates) != mycc::runtime::Need::candidates) continue;
    chosen[i] = sampler.choose_of(logits + i * candidates, tokens + i * candidates, room);
  }
  return 0;
}
}
