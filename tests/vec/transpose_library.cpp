/* transpose_library.cpp: tiles that are turned and rows that are moved, on elements as they lie in memory, for the
 * tests. */
#include "kernels/math/math.h"
#include "kernels/loops/transpose.h"

using namespace mycc;

#define TYPE(NAME, T)                                                                                             \
  extern "C" void turn_##NAME(T *to, int64_t to_row, const T *from, int64_t from_row, int64_t rows, int64_t columns) { \
    transpose_tile(to, to_row, from, from_row, rows, columns);                                                         \
  }                                                                                                               \
  extern "C" void rows_##NAME(T *to, const T *from, int64_t pitch, int64_t length, int64_t valid, bool followed) {  \
    transpose_in<64>(to, from, pitch, length, valid, followed);                                                      \
  }                                                                                                               \
  extern "C" void back_##NAME(T *to, const T *from, int64_t length) { transpose_out<64>(to, from, length); }          \
  extern "C" void row_##NAME(T *to, const T *from, int64_t n, bool streams) {                                     \
    put_row(to, from, n, streams);                                                                                \
    isa::stream_fence();                                                                                          \
  }                                                                                                               \
  extern "C" void reversed_##NAME(T *to, const T *from, int64_t n, bool streams) {                                \
    put_reversed(to, from, n, streams);                                                                           \
    isa::stream_fence();                                                                                          \
  }
TYPE(f64, double)
TYPE(f32, float)
TYPE(u16, uint16_t)
TYPE(u8, uint8_t)

extern "C" void place(int64_t number, int64_t rows, int64_t columns, int64_t *at) {
  const BlockPlace found = block_place(number, rows, columns);
  at[0] = found.row;
  at[1] = found.column;
}
