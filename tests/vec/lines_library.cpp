/* lines_library.cpp: rows of a result written by tasks, as kernels/loops/write_combining.h gathers them, for the tests. */
#include "kernels/loops/write_combining.h"

using namespace mycc;

/* Rows [begin, end) of `length` elements each, `part` of which are there at a time; element i of the result is i. */
#define TYPE(NAME, T)                                                                                           \
  extern "C" void rows_##NAME(T *to, int64_t begin, int64_t end, int64_t length, int64_t part, T *gathered) {   \
    WriteCombiner<T> lines(to + begin * length, gathered);                                                         \
    for (int64_t row = begin; row < end; ++row) {                                                               \
      T *at = lines.row();                                                                                      \
      for (int64_t i = 0; i < length; ++i) {                                                                    \
        at[i] = (T)(row * length + i);                                                                          \
        if ((i + 1) % part == 0) lines.have(i + 1);                                                             \
      }                                                                                                         \
      lines.next(length);                                                                                       \
    }                                                                                                           \
    lines.finish();                                                                                             \
  }                                                                                                             \
  extern "C" int64_t gathered_##NAME() { return kCombined<T>; }
TYPE(f64, double)
TYPE(f32, float)
TYPE(u16, uint16_t)
TYPE(u8, uint8_t)
