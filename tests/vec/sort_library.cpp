/* sort_library.cpp: rows sorted, for the tests. */
#include "mycc/sort.h"

using namespace mycc;

/* A host whose scratch memory is what the caller gave. */
static mycc_host host_of(void *memory) {
  mycc_host host = {};
  host.ctx = memory;
  host.scratch = [](void *ctx, int32_t, size_t) { return ctx; };
  return host;
}

#define TYPE(NAME, T)                                                                                           \
  extern "C" void sort_##NAME(                                                                                  \
      void *memory, T *values, int64_t *places, const T *x, int64_t n, int64_t k, int64_t descending) {         \
    const mycc_host host = host_of(memory);                                                                     \
    sort_row(&host, 0, values, places, x, n, k, descending);                                                    \
  }
TYPE(f64, double)
TYPE(f32, float)
TYPE(f16, half)
TYPE(bf16, bfloat)
TYPE(i64, int64_t)
TYPE(i8, int8_t)
TYPE(bool, bool)

#define MODE(NAME, T)                                                                                           \
  extern "C" void mode_##NAME(void *memory, T *value, int64_t *place, const T *x, int64_t n) {                  \
    const mycc_host host = host_of(memory);                                                                     \
    mode_row(&host, 0, value, place, x, n);                                                                     \
  }
MODE(f32, float)
MODE(i64, int64_t)
