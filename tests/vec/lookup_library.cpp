/* lookup_library.cpp: a row looked up by a table, as generated kernels do it, for the tests. */
#include "kernels/loops/loops.h"

using namespace mycc;

/* What the table is known to be: how many vectors its indices are near in; -1 where some lie outside. */
#define TYPE(NAME, T)                                                                                                 \
  extern "C" int look_up_##NAME(int32_t *memory, const T *row, const int64_t *at, int64_t n, int64_t extent, T *out) { \
    const Lookup table = lookup_table(memory, at, n, extent);                                                         \
    if (!table.inside) return -1;                                                                                     \
    int64_t i = 0;                                                                                                    \
    for (; i + W <= n; i += W) store(out + i, gather_table(table, i, nullptr, row, at, extent, false, ""));           \
    const int rest = (int)(n - i);                                                                                    \
    if (rest) store_tail(out + i, gather_table_tail(table, i, nullptr, row, at, extent, false, "", rest), rest);      \
    return table.near;                                                                                                \
  }
TYPE(f64, double)
TYPE(f32, float)
TYPE(i16, int16_t)
TYPE(u8, uint8_t)

extern "C" int lanes() { return W; }
extern "C" int64_t memory(int64_t n) { return lookup_size(n); }
