/* loops.h: what generated loop kernels share: the parallel loop, task sizes, index checks, row scratch. */
#ifndef MYCC_LOOPS_H
#define MYCC_LOOPS_H

#include "abi.h"
#include "vec.h"

namespace mycc {

/* body(begin, end, worker) over [0, n) in chunks of `grain`. */
template <class Body> inline void parallel(const mycc_host *host, int64_t n, int64_t grain, const Body &body) {
  if (n <= 0) return;
  host->parallel_for(
      host->ctx, n, grain,
      [](void *arg, int64_t begin, int64_t end, int32_t worker) { (*(const Body *)arg)(begin, end, worker); },
      (void *)&body);
}

/* Rows per task, so that a task has some 16 thousand elements: by the shape alone. */
MYCC_INLINE int64_t rows_per_task(int64_t elements_of_row) {
  const int64_t rows = 16384 / (elements_of_row > 0 ? elements_of_row : 1);
  return rows > 1 ? rows : 1;
}

/* Memory of one row of intermediate results; NULL when there is none (the runtime has recorded the failure). */
template <class T> inline T *row_scratch(const mycc_host *host, int32_t worker, int64_t elements) {
  return (T *)host->scratch(host->ctx, worker, (size_t)elements * sizeof(T));
}

/* An index read from memory, 0 <= index < extent, or counted from the end when `wrap`. Out of range: the call fails with
 * `what` and the index is 0, so that no memory outside the buffer is touched. */
MYCC_INLINE int64_t checked_index(const mycc_host *host, int64_t index, int64_t extent, bool wrap, const char *what) {
  if (wrap && index < 0) index += extent;
  if (__builtin_expect((uint64_t)index >= (uint64_t)extent, 0)) {
    host->fail(host->ctx, MYCC_ERROR_RUN, what);
    return 0;
  }
  return index;
}

inline vi64 checked_index(const mycc_host *host, vi64 index, int64_t extent, bool wrap, const char *what, int lanes = W) {
  int64_t values[W];
  store(values, index);
  for (int i = 0; i < W; ++i) values[i] = i < lanes ? checked_index(host, values[i], extent, wrap, what) : 0;
  return load(values);
}

} /* namespace mycc */
#endif /* MYCC_LOOPS_H */
