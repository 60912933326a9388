/* sort_library.cpp: rows sorted, for the tests. */
#include "kernels/sort/sort.h"

using namespace mycc;

/* A host whose scratch memory ends where the caller's does. */
static mycc_host host_of(void *end) {
  mycc_host host = {};
  host.ctx = end;
  host.scratch = [](void *ctx, int32_t, size_t bytes) { return (void *)((char *)ctx - (bytes + 7) / 8 * 8); };
  return host;
}

#define TYPE(NAME, T)                                                                                           \
  extern "C" void sort_##NAME(                                                                                  \
      void *end, T *values, int64_t *places, const T *x, int64_t n, int64_t k, int64_t descending) {         \
    const mycc_host host = host_of(end);                                                                        \
    sort_row(&host, 0, values, places, x, n, k, descending);                                                    \
  }
TYPE(f64, double)
TYPE(f32, float)
TYPE(f16, half)
TYPE(bf16, bfloat)
TYPE(i64, int64_t)
TYPE(i8, int8_t)
TYPE(bool, boolean)

#define MODE(NAME, T)                                                                                           \
  extern "C" void mode_##NAME(void *end, T *value, int64_t *place, const T *x, int64_t n) {                  \
    const mycc_host host = host_of(end);                                                                        \
    mode_row(&host, 0, value, place, x, n);                                                                     \
  }
MODE(f32, float)
MODE(i64, int64_t)
