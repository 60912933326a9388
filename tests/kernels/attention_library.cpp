/* What test_attention.py calls: attention with and without a mask, on the test host. */
#include "gemm_host.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/gradient.h"

namespace {

/* Adds mask[b][h][m][n]; counts what lies outside the matrix of scores. */
struct Mask {
  const float *mask;
  int64_t batch_stride, head_stride, row_stride;
  const mycc::AttentionSizes *args;
  std::atomic<int64_t> *misplaced;

  void operator()(int64_t b, int64_t h, int64_t m, int64_t n0, float *s, int64_t count) const {
    if (b < 0 || b >= args->batch || h < 0 || h >= args->heads || m < 0 || m >= args->queries || n0 < 0 || count < 1 ||
        n0 + count > args->keys || (args->causal && n0 + count - 1 > m + args->causal_offset)) {
      ++*misplaced;
      return;
    }
    const float *row = mask + b * batch_stride + h * head_stride + m * row_stride + n0;
    for (int64_t i = 0; i < count; ++i) s[i] += row[i];
  }
};

} // namespace

template <class Args, class Call> int64_t with_score(const Args *args, const float *mask, const int64_t *mask_strides, const Call &call) {
  std::atomic<int64_t> misplaced{0};
  if (mask) {
    const Mask score = {mask, mask_strides[0], mask_strides[1], mask_strides[2], args, &misplaced};
    call(score);
  } else {
    call(mycc::NoScore());
  }
  return misplaced;
}

/* mask: NULL, or addressed by mask_strides (batch, head, row). threads < 0: a host without scratch memory. Returns the
 * number of calls of the score functor outside the scores. */
template <class Element>
int64_t attend(const mycc::AttentionArgsOf<Element> *args, const float *mask, const int64_t *mask_strides, int threads) {
  TestHost host(threads < 0 ? -threads : threads, threads < 0);
  return with_score(args, mask, mask_strides, [&](const auto &score) { mycc::attention(&host.table, *args, score); });
}
template <class Element>
int64_t differentiate(const mycc::AttentionGradientArgsOf<Element> *args, const float *mask, const int64_t *mask_strides,
                      int threads) {
  TestHost host(threads, false);
  const auto call = [&](const auto &score) { mycc::attention_gradient(&host.table, *args, score); };
  return with_score(args, mask, mask_strides, call);
}
#define MYCC_TEST_ATTENTION(name, Args, function)                                                                \
  extern "C" int64_t name(const mycc::Args *args, const float *mask, const int64_t *mask_strides, int threads) { \
    return function(args, mask, mask_strides, threads);                                                          \
  }
MYCC_TEST_ATTENTION(test_attention_f32, AttentionArgs, attend)
MYCC_TEST_ATTENTION(test_attention_f16, AttentionArgsF16, attend)
MYCC_TEST_ATTENTION(test_attention_bf16, AttentionArgsBf16, attend)
MYCC_TEST_ATTENTION(test_attention_gradient_f32, AttentionGradientArgs, differentiate)
MYCC_TEST_ATTENTION(test_attention_gradient_f16, AttentionGradientArgsF16, differentiate)
MYCC_TEST_ATTENTION(test_attention_gradient_bf16, AttentionGradientArgsBf16, differentiate)

/* exp2_negative of values x[0..n-1]; n is a multiple of the lanes. */
extern "C" void test_exp2_negative(const float *x, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i += mycc::W) mycc::store(y + i, mycc::attention_detail::exp2_negative(mycc::load(x + i)));
}
