/* custom.h: what a C++ kernel of the user's is given: tensors with shapes and strides, numbers, and the host's threads.
 *
 *   #include "mycc/custom.h"
 *   extern "C" void twice(const mycc_host *host, const mycc_tensor *outputs, const mycc_tensor *inputs,
 *                         const mycc_number *numbers) {
 *     const float *x = mycc::data<const float>(inputs[0]);
 *     float *y = mycc::data<float>(outputs[0]);
 *     mycc::parallel_for(host, mycc::elements(inputs[0]), 1 << 14, [=](int64_t begin, int64_t end) {
 *       for (int64_t i = begin; i < end; ++i) y[i] = 2 * x[i];
 *     });
 *   }
 *
 * The code becomes part of the package: it may call libm and nothing else; memory comes from scratch().
 */
#ifndef MYCC_CUSTOM_H
#define MYCC_CUSTOM_H

#include "abi.h"
#include "tensor.h"

/* An argument that is no tensor: int and bool in `integer`, float in `real`. */
typedef union mycc_number {
  int64_t integer;
  double real;
} mycc_number;

#ifdef __cplusplus
namespace mycc {

template <class T> inline T *data(const mycc_tensor &tensor) { return static_cast<T *>(tensor.data); }

inline int64_t elements(const mycc_tensor &tensor) {
  int64_t count = 1;
  for (int32_t d = 0; d < tensor.ndim; ++d) count *= tensor.shape[d];
  return count;
}

/* body(begin, end) over [0, n) in pieces of `grain`, on the threads of the call. The pieces do not depend on the number
 * of threads: a body whose pieces do not share results gives the same bits on any. */
template <class Body> inline void parallel_for(const mycc_host *host, int64_t n, int64_t grain, const Body &body) {
  const auto run = [](void *argument, int64_t begin, int64_t end, int32_t) {
    (*static_cast<const Body *>(argument))(begin, end);
  };
  if (n > 0) host->parallel_for(host->ctx, n, grain, run, const_cast<void *>(static_cast<const void *>(&body)));
}

/* Ends the call with an error (mycc.RunError) once the kernel returns. */
inline void fail(const mycc_host *host, const char *text) { host->fail(host->ctx, MYCC_ERROR_RUN, text); }

/* Memory for `count` elements until the next call of scratch() outside of a parallel loop; NULL: return. */
template <class T> inline T *scratch(const mycc_host *host, int64_t count) {
  size_t bytes = 0;
  const bool wraps = count < 0 || __builtin_mul_overflow(static_cast<size_t>(count), sizeof(T), &bytes);
  return static_cast<T *>(host->scratch(host->ctx, 0, wraps ? SIZE_MAX : bytes));
}

} /* namespace mycc */
#endif
#endif /* MYCC_CUSTOM_H */
