#include "sampler.h"

#include <algorithm>

namespace mycc::runtime {
namespace {

// e^x for x <= 0, within an ulp: 2^k e^r with |r| <= ln(2) / 2, e^r by its series. Below 10^-26 it is 0: all weights of
// a vocabulary that are so small are less than the rounding of their sum.
double exponential(double x) {
  static const double series[] = {1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320,
                                  1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
  if (!(x >= -60.0)) return x != x ? x : 0.0;
  const double k = double(int64_t(x * 1.4426950408889634 - 0.5));
  const double r = (x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
  double p = series[13];
  for (int i = 12; i >= 0; --i) p = p * r + series[i];
  union {
    uint64_t bits;
    double value;
  } power;
  power.bits = uint64_t(int64_t(k) + 1023) << 52;
  return p * power.value;
}

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

// A register of every target.
typedef float Lanes __attribute__((vector_size(16)));
typedef int32_t Flags __attribute__((vector_size(16)));
constexpr int64_t kLanes = sizeof(Lanes) / sizeof(float), kChains = 4, kBlock = 64 * kChains * kLanes;

// The largest of a block of kBlock logits; NaN where one of them is. Several times faster than to look for a place.
float largest(const float *logits) {
  Lanes top[kChains];
  Flags odd[kChains] = {};
  memcpy(top, logits, sizeof top);
  for (int64_t i = 0; i < kBlock; i += kChains * kLanes) {
    for (int64_t chain = 0; chain < kChains; ++chain) {
      Lanes x;
      memcpy(&x, logits + i + chain * kLanes, sizeof x);
      top[chain] = x > top[chain] ? x : top[chain];
      odd[chain] |= x != x;
    }
  }
  float best = logits[0];
  for (const Lanes &chain : top)
    for (int64_t i = 0; i < kLanes; ++i) best = chain[i] > best ? chain[i] : best;
  const Flags any = odd[0] | odd[1] | odd[2] | odd[3];
  return any[0] | any[1] | any[2] | any[3] ? __builtin_nanf("") : best;
}

// The place of the largest logit, the first of several; one that is NaN is larger than all.
int64_t likeliest(const float *logits, int64_t count) {
  int64_t best = 0, begin = 0;
  const auto look = [&](int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (logits[i] != logits[i]) return true;
      if (logits[i] > logits[best]) best = i;
    }
    return false;
  };
  for (; begin < count; begin += kBlock) {
    const bool whole = begin + kBlock <= count;
    if (whole && largest(logits + begin) <= logits[best]) continue;
    if (!look(whole ? begin + kBlock : count)) continue;
    while (logits[begin] == logits[begin]) ++begin;
    return begin;
  }
  return best;
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

int64_t Sampler::draw(const float *logits, int64_t count, SamplingRoom &room) {
  double *weights = room.weights.begin();
  int32_t *tokens = room.kept.begin(), *order = room.order.begin();
  int64_t n = count;
  for (int64_t i = 0; i < count; ++i) tokens[i] = int32_t(i);
  if (sampling_.top_k > 0 && sampling_.top_k < count) {  // of equal ones the first; in the order of their numbers
    n = sampling_.top_k;
    std::nth_element(tokens, tokens + n - 1, tokens + count, [logits](int32_t a, int32_t b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    });
    std::sort(tokens, tokens + n, [](int32_t a, int32_t b) { return a < b; });  // libc++ keeps the plain one elsewhere
  }
  double highest = -__builtin_inf(), total = 0;
  for (int64_t i = 0; i < n; ++i) {
    weights[i] = double(logits[tokens[i]]) / sampling_.temperature;
    highest = weights[i] > highest ? weights[i] : highest;
  }
  for (int64_t i = 0; i < n; ++i) total += weights[i] = exponential(weights[i] - highest);
  for (int64_t i = 0; i < n; ++i) weights[i] /= total;
  if (sampling_.top_p < 1) {
    for (int64_t i = 0; i < n; ++i) order[i] = int32_t(i);
    const auto later = [weights](int32_t a, int32_t b) {
      return weights[a] != weights[b] ? weights[a] < weights[b] : a > b;
    };
    std::make_heap(order, order + n, later);
    double sum = 0;
    int64_t left = n;
    for (; left > 0; --left) {
      std::pop_heap(order, order + left, later);
      const double up_to = sum + weights[order[left - 1]];
      if (left < n && up_to - weights[order[left - 1]] >= sampling_.top_p) break;
      sum = up_to;
    }
    for (int64_t i = 0; i < left; ++i) weights[order[i]] = 0;
  }
  if (sampling_.min_p > 0) {
    double most = 0;
    for (int64_t i = 0; i < n; ++i) most = weights[i] > most ? weights[i] : most;
    for (int64_t i = 0; i < n; ++i) weights[i] = weights[i] >= sampling_.min_p * most ? weights[i] : 0;
  }
  total = 0;
  for (int64_t i = 0; i < n; ++i) total += weights[i];
  const double bound = random_.next() * total;
  double sum = 0;
  int64_t place = -1, last = 0;
  for (int64_t i = 0; i < n && place < 0; ++i) {
    sum += weights[i];
    if (weights[i] != 0) last = i;
    if (sum > bound) place = i;
  }
  return tokens[place < 0 ? last : place];
}

}  // namespace mycc::runtime
