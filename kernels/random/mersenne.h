/* mersenne.h: the random numbers that torch draws on a CPU: the Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998)
 * and what torch makes of its words, in torch's order. A generator is kMersenneState words of memory that each draw
 * takes and leaves changed, so that the draws of a call follow one another on any number of threads.
 *
 * Routines of lower/core/routines.py.
 */
#ifndef MYCC_KERNELS_RANDOM_MERSENNE_H
#define MYCC_KERNELS_RANDOM_MERSENNE_H

#include "kernels/loops/loops.h"

namespace mycc {

constexpr int64_t kMersenneWords = 624, kMersenneState = 632;

/* The layout of a generator's memory. */
struct Mersenne {
  uint32_t word[kMersenneWords];
  int32_t next;   /* of the words, kMersenneWords: none is left */
  int32_t cached; /* 1: `normal` is the second of a pair of normal numbers that was not drawn yet */
  double normal;
  int32_t unused[4];
};
static_assert(sizeof(Mersenne) == kMersenneState * sizeof(int32_t), "the size that lower/random/mersenne.py asks for");

inline Mersenne &mersenne(int32_t *state, const int32_t *before) {
  __builtin_memcpy(state, before, sizeof(Mersenne));
  return *(Mersenne *)state;
}

inline void mersenne_refill(Mersenne &m) {
  constexpr int64_t kShift = 397;
  for (int64_t i = 0; i < kMersenneWords; ++i) {
    const int64_t next = i + 1 < kMersenneWords ? i + 1 : 0;
    const int64_t far = i + kShift < kMersenneWords ? i + kShift : i + kShift - kMersenneWords;
    const uint32_t mixed = (m.word[i] & 0x80000000u) | (m.word[next] & 0x7fffffffu);
    m.word[i] = m.word[far] ^ (mixed >> 1) ^ (mixed & 1 ? 0x9908b0dfu : 0u);
  }
  m.next = 0;
}

inline uint32_t mersenne_word(Mersenne &m) {
  if (m.next >= kMersenneWords) mersenne_refill(m);
  uint32_t y = m.word[m.next++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

inline uint64_t mersenne_wide(Mersenne &m) {
  const uint64_t high = mersenne_word(m);
  return high << 32 | mersenne_word(m);
}

/* In [0, 1), of 53 bits. */
inline double mersenne_uniform(Mersenne &m) { return (double)(mersenne_wide(m) & ((1ull << 53) - 1)) * 0x1p-53; }

inline void mersenne_seed(const mycc_host *, int32_t, int32_t *state, int64_t seed) {
  Mersenne &m = *(Mersenne *)state;
  m.word[0] = (uint32_t)(uint64_t)seed;
  for (uint32_t i = 1; i < kMersenneWords; ++i)
    m.word[i] = 1812433253u * (m.word[i - 1] ^ (m.word[i - 1] >> 30)) + i;
  m.next = (int32_t)kMersenneWords;
  m.cached = 0;
  m.normal = 0;
}

/* n words: of 32 bits, or of 64 when `wide`. */
inline void mersenne_words(
    const mycc_host *, int32_t, int64_t *words, int32_t *state, const int32_t *before, int64_t n, int64_t wide) {
  Mersenne &m = mersenne(state, before);
  for (int64_t i = 0; i < n; ++i) words[i] = wide ? (int64_t)mersenne_wide(m) : (int64_t)mersenne_word(m);
}

/* n normal numbers one after the other, in pairs (Box and Muller); half a pair is left for the next draw. */
inline void mersenne_normals(
    const mycc_host *, int32_t, double *values, int32_t *state, const int32_t *before, int64_t n) {
  Mersenne &m = mersenne(state, before);
  for (int64_t i = 0; i < n; ++i) {
    if (m.cached) {
      m.cached = 0;
      values[i] = m.normal;
      continue;
    }
    const double angle = 6.283185307179586 * mersenne_uniform(m);
    const double radius = __builtin_sqrt(-2 * __builtin_log1p(-mersenne_uniform(m)));
    m.normal = radius * __builtin_sin(angle);
    m.cached = 1;
    values[i] = radius * __builtin_cos(angle);
  }
}

/* n normal numbers as torch fills a dense tensor with them: from 16 numbers on in blocks of 16, eight pairs each, the
 * last block over the last 16 numbers again. Words of 64 bits when `wide`. */
inline void mersenne_fill(
    const mycc_host *host, int32_t worker, double *values, int32_t *state, const int32_t *before, int64_t n,
    int64_t wide) {
  if (n < 16) return mersenne_normals(host, worker, values, state, before, n);
  Mersenne &m = mersenne(state, before);
  const auto draw = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      values[i] = wide ? mersenne_uniform(m) : (double)(mersenne_word(m) & 0xffffffu) * 0x1p-24;
  };
  const auto turn = [&](int64_t begin) {
    for (int64_t i = begin; i < begin + 8; ++i) {
      const double radius = __builtin_sqrt(-2 * __builtin_log(1 - values[i])), angle = 6.283185307179586 * values[i + 8];
      values[i] = radius * __builtin_cos(angle);
      values[i + 8] = radius * __builtin_sin(angle);
    }
  };
  draw(0, n);
  for (int64_t i = 0; i + 16 <= n; i += 16) turn(i);
  if (n % 16 == 0) return;
  draw(n - 16, n);
  turn(n - 16);
}

/* The numbers 0..n-1 in another order. */
inline void mersenne_permutation(
    const mycc_host *, int32_t, int64_t *values, int32_t *state, const int32_t *before, int64_t n) {
  Mersenne &m = mersenne(state, before);
  const bool wide = n >= (int64_t)(0xffffffffu / 20);
  for (int64_t i = 0; i < n; ++i) values[i] = i;
  for (int64_t i = 0; i + 1 < n; ++i) {
    const uint64_t word = wide ? mersenne_wide(m) : mersenne_word(m);
    const int64_t other = i + (int64_t)(word % (uint64_t)(n - i)), moved = values[i];
    values[i] = values[other];
    values[other] = moved;
  }
}

/* For each of `count` words of 64 bits a place in the k weights of a row, by their running sums (with replacement). */
template <class T>
inline void weighted_places(
    const mycc_host *host, int32_t worker, int64_t *places, const T *weights, const int64_t *words, int64_t k,
    int64_t count) {
  typedef decltype(load_scalar(weights)) Sum;
  Sum *sums = row_scratch<Sum>(host, worker, k);
  if (!sums) return;
  Sum total = 0;
  for (int64_t i = 0; i < k; ++i) {
    const Sum weight = load_scalar(weights + i);
    if (!(weight >= 0) || weight - weight != 0) {
      host->fail(host->ctx, MYCC_ERROR_RUN, "weights of multinomial must be numbers of at least 0");
      return;
    }
    sums[i] = total += weight;
  }
  if (!(total > 0)) {
    host->fail(host->ctx, MYCC_ERROR_RUN, "weights of multinomial must not all be 0");
    return;
  }
  for (int64_t i = 0; i < k; ++i) sums[i] /= total;
  sums[k - 1] = 1;
  for (int64_t j = 0; j < count; ++j) {
    const double u = (double)((uint64_t)words[j] & ((1ull << 53) - 1)) * 0x1p-53;
    int64_t low = 0, high = k;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if ((double)sums[middle] < u) low = middle + 1;
      else high = middle;
    }
    places[j] = low < k ? low : k - 1;
  }
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_RANDOM_MERSENNE_H */
