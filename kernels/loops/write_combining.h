/* write_combining.h: rows of a result that are combined in a cache and written by non-temporal stores, in whole lines.
 *
 * Memory is read before a line is written in part, and a row whose ends are no ends of lines has parts of lines at both.
 * Rows that lie one behind the other are put together here, and leave as lines that memory need not be read for.
 */
#ifndef MYCC_KERNELS_LOOPS_WRITE_COMBINING_H
#define MYCC_KERNELS_LOOPS_WRITE_COMBINING_H

#include "machine.h"
#include "kernels/vec/vec.h"

namespace mycc {

/* Elements of the memory that they are combined in, beside those of a row. */
template <class T> constexpr int64_t kCombined = (kCombinedBytes + kCombinedBeside) / (int64_t)sizeof(T);

#if defined(MYCC_X86)
/* Rows of a task from `first` on; combined: memory of kCombined elements and a row, aligned to a line. */
template <class T> struct WriteCombiner {
  char *memory, *line; /* what lies in `memory` goes to `line`, the start of one */
  int64_t end, begin;  /* bytes in memory; those in front are of another task */
  int64_t gone = 0;    /* of them, those that have been written as lines */

  MYCC_INLINE WriteCombiner(T *first, T *combined) : memory((char *)combined) {
    begin = end = (int64_t)((uintptr_t)first % kLineBytes);
    line = (char *)first - begin;
  }
  /* Where the next row is to be written. */
  MYCC_INLINE T *row() const { return (T *)(void *)(memory + end); }
  /* Its first `elements` are; lines of them may leave while others are computed. */
  MYCC_INLINE void have(int64_t elements) {
    const int64_t bytes = end + elements * (int64_t)sizeof(T);
    if (bytes - gone >= kCombinedBytes) leave(bytes & -kLineBytes);
  }
  /* All of it is, with `elements`. */
  MYCC_INLINE void next(int64_t elements) {
    end += elements * (int64_t)sizeof(T);
    if (end >= kCombinedBytes) put();
  }
  /* So were all rows of the task. */
  MYCC_INLINE void finish() {
    put();
    __builtin_memcpy(line + begin, memory + begin, (size_t)(end - begin));
    isa::stream_fence();
  }

private:
  MYCC_INLINE void put() {
    const int64_t whole = end & -kLineBytes;
    if (!whole) return;
    leave(whole);
    __builtin_memcpy(memory, memory + whole, kLineBytes);
    line += whole;
    end -= whole;
    gone = 0;
  }
  MYCC_INLINE void leave(int64_t whole) {
    if (begin) __builtin_memcpy(line + begin, memory + begin, (size_t)(kLineBytes - begin));
    for (int64_t i = begin ? kLineBytes : gone; i < whole; i += kLineBytes) {
#pragma GCC unroll 4
      for (int part = 0; part < kLineBytes; part += (int)sizeof(vi32)) {
        vi32 v;
        __builtin_memcpy(&v, memory + i + part, sizeof v);
        isa::stream(line + i + part, v);
      }
    }
    begin = 0;
    gone = whole;
  }
};
#else
/* Without non-temporal stores rows are written where they belong. */
template <class T> struct WriteCombiner {
  T *at;

  MYCC_INLINE WriteCombiner(T *first, T *) : at(first) {}
  MYCC_INLINE T *row() const { return at; }
  MYCC_INLINE void have(int64_t) {}
  MYCC_INLINE void next(int64_t elements) { at += elements; }
  MYCC_INLINE void finish() {}
};
#endif

} /* namespace mycc */
#endif /* MYCC_KERNELS_LOOPS_WRITE_COMBINING_H */
