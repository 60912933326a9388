#include "sampler.h"

#include <string.h>

#include <algorithm>

#include "weights.h"

namespace mycc::runtime {
namespace {

constexpr uint32_t kMultiplierA = 0x931e8875u, kMultiplierB = 0x58f38dedu;

uint32_t hashed(uint32_t value, uint32_t *constant, uint32_t multiplier) {
  value ^= *constant;
  *constant *= multiplier;
  value *= *constant;
  return value ^ value >> 16;
}

uint32_t mixed(uint32_t x, uint32_t y) {
  const uint32_t result = 0xca01f9ddu * x - 0x4973f715u * y;
  return result ^ result >> 16;
}

}  // namespace

void RandomNumbers::seed(uint64_t seed) {
  uint32_t pool[4], words[8], constant = 0x43b0d7e5u;
  for (int i = 0; i < 4; ++i) pool[i] = hashed(i < 2 ? uint32_t(seed >> 32 * i) : 0, &constant, kMultiplierA);
  for (int from = 0; from < 4; ++from)
    for (int to = 0; to < 4; ++to)
      if (from != to) pool[to] = mixed(pool[to], hashed(pool[from], &constant, kMultiplierA));
  constant = 0x8b51f9ddu;
  for (int i = 0; i < 8; ++i) words[i] = hashed(pool[i % 4], &constant, kMultiplierB);
  Wide half[2];
  for (int i = 0; i < 2; ++i) {
    const uint64_t high = words[4 * i] | uint64_t(words[4 * i + 1]) << 32;
    const uint64_t low = words[4 * i + 2] | uint64_t(words[4 * i + 3]) << 32;
    half[i] = Wide(high) << 64 | low;
  }
  increment_ = half[1] << 1 | 1;
  state_ = 0;
  step();
  state_ += half[0];
  step();
}

void RandomNumbers::step() {
  const Wide multiplier = Wide(2549297995355413924u) << 64 | 4865540595714422341u;
  state_ = state_ * multiplier + increment_;
}

double RandomNumbers::next() {
  step();
  const uint64_t folded = uint64_t(state_ >> 64) ^ uint64_t(state_);
  const int turn = int(state_ >> 122);
  const uint64_t bits = folded >> turn | folded << (-turn & 63);
  return double(bits >> 11) * (1.0 / 9007199254740992.0);
}

bool Sampler::init(const mycc_sampling &sampling, uint64_t seed, const int64_t *prompt, int64_t length) {
  sampling_ = sampling;
  if (sampling_.repetition_penalty == 0) sampling_.repetition_penalty = 1;
  if (sampling_.top_p == 0) sampling_.top_p = 1;
  random_.seed(seed);
  for (int64_t i = 0; i < sampling.n_bias; ++i)
    if (!bias_tokens_.push(sampling.bias_tokens[i]) || !bias_.push(sampling.bias[i])) return false;
  sampling_.bias_tokens = nullptr, sampling_.bias = nullptr;
  for (int64_t i = 0; penalises() && i < length; ++i)
    if (!see(prompt[i], false)) return false;
  return true;
}

bool Sampler::penalises() const {
  return sampling_.repetition_penalty != 1 || sampling_.presence_penalty != 0 || sampling_.frequency_penalty != 0;
}

Need Sampler::need(int64_t vocabulary, int64_t candidates) const {
  if (penalises() || bias_.size()) return Need::all;
  if (sampling_.temperature == 0 || sampling_.top_k == 1) return Need::likeliest;
  if (keeps_few(vocabulary)) return sampling_.top_k <= candidates ? Need::candidates : Need::all;
  return sampling_.top_p < 1 || sampling_.min_p > 0 ? Need::nucleus : Need::draw;
}

double Sampler::part() const {
  RandomNumbers copy = random_;
  return copy.next();
}

bool Sampler::note(int64_t token) {
  generated_ = true;
  return !penalises() || see(token, true);
}

bool Sampler::see(int64_t token, bool generated) {
  SeenToken *at = std::lower_bound(seen_.begin(), seen_.end(), token,
                                   [](const SeenToken &seen, int64_t other) { return seen.token < other; });
  const size_t place = size_t(at - seen_.begin());
  if (place == seen_.size() || at->token != token) {
    if (!seen_.push({token, 0})) return false;
    memmove(seen_.begin() + place + 1, seen_.begin() + place, (seen_.size() - 1 - place) * sizeof(SeenToken));
    seen_[place] = {token, 0};
  }
  seen_[place].times += generated;
  return true;
}

void Sampler::penalise(float *logits) const {
  const float repetition = float(sampling_.repetition_penalty);
  for (const SeenToken &seen : seen_) {
    float &logit = logits[seen.token];
    if (sampling_.repetition_penalty != 1) logit = logit < 0 ? logit * repetition : logit / repetition;
    if (seen.times) logit -= float(sampling_.presence_penalty) + float(sampling_.frequency_penalty) * float(seen.times);
  }
  for (size_t i = 0; i < bias_.size(); ++i) logits[bias_tokens_[i]] += bias_[i];
}

int64_t Sampler::choose(const float *logits, int64_t count, SamplingRoom &room) {
  if (!room.reserve(size_t(count))) return -1;
  if (seen_.size() || bias_.size()) {
    memcpy(room.logits.begin(), logits, size_t(count) * sizeof(float));
    penalise(room.logits.begin());
    logits = room.logits.begin();
  }
  if (sampling_.temperature == 0 || sampling_.top_k == 1) return likeliest(logits, count);
  return draw(logits, count, room);
}

int64_t Sampler::choose_of(const float *logits, const int64_t *tokens, SamplingRoom &room) {
  const int64_t n = sampling_.top_k;
  if (!room.reserve(size_t(n))) return -1;
  int32_t *places = room.kept.begin();  // in the order of the tokens, in which weights are added up
  for (int64_t i = 0; i < n; ++i) places[i] = int32_t(i);
  std::sort(places, places + n, [tokens](int32_t a, int32_t b) { return tokens[a] < tokens[b]; });
  float *own = room.logits.begin();
  for (int64_t i = 0; i < n; ++i) own[i] = logits[places[i]];
  double *weights = room.weights.begin();
  if (!softmax(own, nullptr, n, sampling_.temperature, weights)) return -1;
  narrow(weights, n, room);
  return tokens[places[place_of(weights, n, random_.next())]];
}

// By top-p and min-p.
void Sampler::narrow(double *weights, int64_t n, SamplingRoom &room) const {
  if (sampling_.top_p < 1) keep_nucleus(weights, n, sampling_.top_p, room.order.begin(), *room.nucleus.begin());
  if (sampling_.min_p <= 0) return;
  double most = 0;
  for (int64_t i = 0; i < n; ++i) most = weights[i] > most ? weights[i] : most;
  for (int64_t i = 0; i < n; ++i) weights[i] = weights[i] >= sampling_.min_p * most ? weights[i] : 0;
}

int64_t Sampler::draw(const float *logits, int64_t count, SamplingRoom &room) {
  double *weights = room.weights.begin();
  int32_t *tokens = nullptr;
  int64_t n = count;
  if (sampling_.top_k > 0 && sampling_.top_k < count) {
    n = sampling_.top_k, tokens = room.kept.begin();
    keep_likeliest(logits, count, n, tokens);
  }
  if (softmax(logits, tokens, n, sampling_.temperature, weights)) narrow(weights, n, room);
  const int64_t place = place_of(weights, n, random_.next());
  return tokens ? tokens[place] : place;
}

}  // namespace mycc::runtime
