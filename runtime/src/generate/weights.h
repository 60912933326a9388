// weights.h: what a sampler does with all logits of a vocabulary, which may have hundreds of thousands.
#pragma once

#include <stdint.h>

namespace mycc::runtime {

// The token of the largest logit, the first of several; one that is NaN is larger than all.
int64_t likeliest(const float *logits, int64_t count);

// The tokens of the `most` largest logits, in the order of their numbers; of equal logits the first. 0 < most < count;
// tokens: room for `count`.
void keep_likeliest(const float *logits, int64_t count, int64_t most, int32_t *tokens);

// The weights of tokens (NULL: of the first `count`): e^(logit / temperature), divided by the sum of all. False: a logit
// is NaN or infinite, and all weights are NaN.
bool softmax(const float *logits, const int32_t *tokens, int64_t count, double temperature, double *weights);

// Memory for keep_nucleus().
struct NucleusRoom {
  static constexpr int kBins = 8192;  // of weights up to 1, eight for each power of two
  double sums[kBins];
  int32_t numbers[kBins];
};

// Weights become 0 but for those of the fewest tokens, the likeliest first, that add up to `most`; at least one stays.
// weights: of softmax(); order: room for `count`.
void keep_nucleus(double *weights, int64_t count, double most, int32_t *order, NucleusRoom &room);

// The place of a draw by weights: the first at which their sum is more than `part` of all; part: in [0, 1).
int64_t place_of(const double *weights, int64_t count, double part);

}  // namespace mycc::runtime
