#include "weights.h"

#include <stddef.h>
#include <string.h>

#include <algorithm>

namespace mycc::runtime {
namespace {

// Registers of every target.
typedef float Floats __attribute__((vector_size(16)));
typedef int32_t Flags __attribute__((vector_size(16)));
typedef double Doubles __attribute__((vector_size(16)));
typedef int64_t Bits __attribute__((vector_size(16)));
constexpr int64_t kFloats = 4, kDoubles = 2, kChains = 4, kBlock = 64 * kChains * kFloats;

template <class Register, class T>
Register load(const T *at) {
  Register value;
  memcpy(&value, at, sizeof value);
  return value;
}

// The largest of a block of kBlock logits; NaN where one of them is. Several times faster than to look for a place.
float largest(const float *logits) {
  Floats top[kChains];
  Flags odd[kChains] = {};
  memcpy(top, logits, sizeof top);
  for (int64_t i = 0; i < kBlock; i += kChains * kFloats) {
    for (int64_t chain = 0; chain < kChains; ++chain) {
      const auto x = load<Floats>(logits + i + chain * kFloats);
      top[chain] = x > top[chain] ? x : top[chain];
      odd[chain] |= x != x;
    }
  }
  float best = logits[0];
  for (const Floats &chain : top)
    for (int64_t i = 0; i < kFloats; ++i) best = chain[i] > best ? chain[i] : best;
  const Flags any = odd[0] | odd[1] | odd[2] | odd[3];
  return any[0] | any[1] | any[2] | any[3] ? __builtin_nanf("") : best;
}

// An integer that grows with the float; the zeros are equal.
uint32_t key_of(float x) {
  const float plain = x + 0.0f;
  uint32_t bits;
  memcpy(&bits, &plain, sizeof bits);
  return bits ^ (uint32_t(-int32_t(bits >> 31)) | 0x80000000u);
}

// Four registers, so that the next multiplication need not wait for the one before it.
struct Four {
  Doubles a, b, c, d;
};
constexpr int64_t kFour = sizeof(Four) / sizeof(double);

inline Four polynomial(const Four &p, const Four &r, double next) {
  return {p.a * r.a + next, p.b * r.b + next, p.c * r.c + next, p.d * r.d + next};
}

// k and r of e^x = 2^k e^r, |r| <= ln(2) / 2; k in the last bits of `shifted`.
inline Doubles rest_of(Doubles x, Doubles *shifted) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: the last bits of a sum with it are a whole number
  *shifted = x * 1.4426950408889634 + kRound;
  const Doubles k = *shifted - kRound;
  return (x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
}

inline Doubles power_of(Doubles x, Doubles p, Doubles shifted) {
  const Doubles power = Doubles(Bits(p) + (Bits(shifted) << 52)), zero = {};
  return x >= -60.0 ? power : x != x ? x : zero;
}

// e^x for x <= 0, within an ulp, by the series of e^r. Below 10^-26 it is 0: all weights of a vocabulary that are so
// small are less than the rounding of their sum.
inline Four exponentials(const Four &x) {
  Four shifted;
  const Four r = {rest_of(x.a, &shifted.a), rest_of(x.b, &shifted.b), rest_of(x.c, &shifted.c),
                  rest_of(x.d, &shifted.d)};
  const Doubles first = Doubles{} + 1.0 / 6227020800;
  Four p = {first, first, first, first};
  p = polynomial(p, r, 1.0 / 479001600), p = polynomial(p, r, 1.0 / 39916800), p = polynomial(p, r, 1.0 / 3628800);
  p = polynomial(p, r, 1.0 / 362880), p = polynomial(p, r, 1.0 / 40320), p = polynomial(p, r, 1.0 / 5040);
  p = polynomial(p, r, 1.0 / 720), p = polynomial(p, r, 1.0 / 120), p = polynomial(p, r, 1.0 / 24);
  p = polynomial(p, r, 1.0 / 6), p = polynomial(p, r, 0.5), p = polynomial(p, r, 1.0), p = polynomial(p, r, 1.0);
  return {power_of(x.a, p.a, shifted.a), power_of(x.b, p.b, shifted.b), power_of(x.c, p.c, shifted.c),
          power_of(x.d, p.d, shifted.d)};
}

int32_t bin_of(double weight) {
  uint64_t bits;
  memcpy(&bits, &weight, sizeof bits);
  return int32_t(bits >> 49);
}

double sum_of(const double *weights, int64_t count) {
  Doubles chains[kChains] = {};
  int64_t i = 0;
  for (; i + kChains * kDoubles <= count; i += kChains * kDoubles)
    for (int64_t chain = 0; chain < kChains; ++chain) chains[chain] += load<Doubles>(weights + i + chain * kDoubles);
  const Doubles all = (chains[0] + chains[1]) + (chains[2] + chains[3]);
  double sum = all[0] + all[1];
  for (; i < count; ++i) sum += weights[i];
  return sum;
}

}  // namespace

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

// By radix: the digits of the smallest key that is kept, the highest first; behind the first digit, among those of the
// tokens that have as much.
void keep_likeliest(const float *logits, int64_t count, int64_t most, int32_t *tokens) {
  constexpr int kDigits[] = {11, 11, 10};
  uint32_t found = 0;
  int known = 0;
  int64_t left = most, n = 0;
  for (int digits : kDigits) {
    int32_t numbers[1 << 11] = {};
    const int below = 32 - known - digits;
    const uint32_t all = (1u << digits) - 1;
    if (known == 0) {
      for (int64_t i = 0; i < count; ++i) ++numbers[key_of(logits[i]) >> below];
    } else {
      for (int64_t i = 0; i < n; ++i) {
        const uint32_t key = key_of(logits[tokens[i]]);
        numbers[key >> below & all] += (key ^ found) >> (32 - known) == 0;
      }
    }
    uint32_t digit = all;
    for (; numbers[digit] < left; --digit) left -= numbers[digit];
    found |= digit << below;
    if (known == 0) {
      for (int64_t i = 0; i < count; ++i) {
        tokens[n] = int32_t(i);
        n += key_of(logits[i]) >= found;
      }
    }
    known += digits;
  }
  int64_t kept = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t key = key_of(logits[tokens[i]]);
    const bool equal = key == found && left > 0;
    left -= equal;
    tokens[kept] = tokens[i];
    kept += equal || key > found;
  }
}

bool softmax(const float *logits, const int32_t *tokens, int64_t count, double temperature, double *weights) {
  double highest = logits[tokens ? tokens[0] : likeliest(logits, count)];
  for (int64_t i = 1; tokens && i < count; ++i) highest = logits[tokens[i]] > highest ? logits[tokens[i]] : highest;
  highest /= temperature;
  for (int64_t i = 0; i < count; i += kFour) {
    const int64_t n = count - i < kFour ? count - i : kFour;
    const auto score = [&](int64_t at) {
      const int64_t place = i + (at < n ? at : 0);
      return double(logits[tokens ? tokens[place] : place]);
    };
    const auto pair = [&](int64_t at) { return Doubles{score(at), score(at + 1)} / temperature - highest; };
    const Four made = exponentials({pair(0), pair(2), pair(4), pair(6)});
    memcpy(weights + i, &made, size_t(n) * sizeof(double));
  }
  const double total = sum_of(weights, count);
  int64_t i = 0;
  for (; i + kDoubles <= count; i += kDoubles) {
    const Doubles part = load<Doubles>(weights + i) / total;
    memcpy(weights + i, &part, sizeof part);
  }
  for (; i < count; ++i) weights[i] /= total;
  return total == total;
}

// Bins of weights that are alike are kept or left whole, the largest first; one is sorted.
void keep_nucleus(double *weights, int64_t count, double most, int32_t *order, NucleusRoom &room) {
  memset(&room, 0, sizeof room);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t bin = bin_of(weights[i]);
    room.sums[bin] += weights[i];
    ++room.numbers[bin];
  }
  const auto later = [weights](int32_t a, int32_t b) {
    return weights[a] != weights[b] ? weights[a] < weights[b] : a > b;
  };
  double sum = 0;
  bool any = false;
  for (int32_t bin = NucleusRoom::kBins - 1; bin >= 0; --bin) {
    if (!room.numbers[bin]) continue;
    if (sum + room.sums[bin] < most) {
      sum += room.sums[bin], any = true;
      continue;
    }
    int64_t n = 0;
    for (int64_t i = 0; i < count; ++i) {
      order[n] = int32_t(i);
      n += bin_of(weights[i]) == bin;
    }
    std::make_heap(order, order + n, later);
    for (; n > 0; --n) {
      std::pop_heap(order, order + n, later);
      if (any && sum >= most) break;
      sum += weights[order[n - 1]], any = true;
    }
    if (n == 0 && sum < most) continue;  // the sum of the bin was rounded up
    for (int64_t i = 0; i < n; ++i) weights[order[i]] = 0;
    for (int64_t i = 0; i < count; ++i) weights[i] = bin_of(weights[i]) < bin ? 0 : weights[i];
    return;
  }
}

int64_t place_of(const double *weights, int64_t count, double part) {
  double total = 0, sum = 0;
  for (int64_t i = 0; i < count; i += kBlock) total += sum_of(weights + i, count - i < kBlock ? count - i : kBlock);
  const double bound = part * total;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = count - begin < kBlock ? count - begin : kBlock;
    const double behind = sum + sum_of(weights + begin, n);
    for (int64_t i = begin; behind > bound && i < begin + n; ++i) {
      sum += weights[i];
      if (sum > bound) return i;
    }
    sum = behind;
  }
  int64_t last = count - 1;  // the sum was rounded
  while (last > 0 && weights[last] == 0) --last;
  return last;
}

}  // namespace mycc::runtime
