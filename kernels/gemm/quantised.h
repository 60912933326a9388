/* What products of quantised weights take, and what their tasks share. quads.h has the layout of the weights. */
#ifndef MYCC_KERNELS_GEMM_QUANTISED_H
#define MYCC_KERNELS_GEMM_QUANTISED_H

#include <type_traits>
#include <utility>

#include "machine.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quads.h"

namespace mycc {

/* Copies a run of bytes; where it ends. Two copies overlap where a run is no whole number of them. */
MYCC_INLINE int8_t *copy_run(int8_t *to, const int8_t *from, int64_t run) {
  constexpr int64_t v = sizeof(vi32);
  if (run >= v) {
    for (int64_t i = 0; i + v <= run; i += v) __builtin_memcpy(to + i, from + i, v);
    if (run % v) __builtin_memcpy(to + run - v, from + run - v, v);
  } else if (run >= 8) {
    for (int64_t i = 0; i + 8 <= run; i += 8) __builtin_memcpy(to + i, from + i, 8);
    __builtin_memcpy(to + run - 8, from + run - 8, 8);
  } else if (run >= 4) {
    __builtin_memcpy(to, from, 4), __builtin_memcpy(to + run - 4, from + run - 4, 4);
  } else if (run >= 2) {
    __builtin_memcpy(to, from, 2), __builtin_memcpy(to + run - 2, from + run - 2, 2);
  } else {
    *to = *from;
  }
  return to + run;
}

/* Stands for the type of scales or zeros that there are none of. */
struct none {};

/* A left operand that is no matrix, but patches of a map of int8 values: row m is a pixel of an image, of `planes` planes
 * of `lines` lines of `width` pixels, and its k go over taps_z planes of taps_y lines of taps_x runs of `run` values.
 * Steps in elements. run 0: a matrix. */
struct Patches {
  int64_t lines = 1, width = 1, image_step = 0, line_step = 0, pixel_step = 0;
  int64_t taps_y = 1, taps_x = 1, tap_y_step = 0, tap_x_step = 0, run = 0;
  int64_t planes = 1, plane_step = 0, taps_z = 1, tap_z_step = 0;

  /* Whether a row is one run, as those of a single tap are. */
  bool is_run() const { return taps_y == 1 && taps_x == 1 && taps_z == 1; }

  /* Elements from a row to the next of m rows where each is a run and all are as far apart; else -1. */
  int64_t row_step(int64_t m) const {
    const bool even = (lines == 1 || line_step == width * pixel_step) && (planes == 1 || plane_step == lines * width * pixel_step);
    const int64_t image = planes * lines * width;
    return is_run() && even && (m <= image || image_step == image * pixel_step) ? pixel_step : -1;
  }

  /* The row that begins at `from`, as one run. spare: there are eight bytes where each run begins, and room for them. */
  void copy_row(int8_t *to, const int8_t *from, bool spare) const {
    const Patches p = *this; /* a copy that no store of bytes may change */
    for (int64_t z = 0; z < p.taps_z; ++z, from += p.tap_z_step) {
      const int8_t *line = from;
      for (int64_t y = 0; y < p.taps_y; ++y, line += p.tap_y_step) {
        const int8_t *tap = line;
        if (spare && p.run < 8)
          for (int64_t x = 0; x < p.taps_x; ++x, to += p.run, tap += p.tap_x_step) __builtin_memcpy(to, tap, 8);
        else
          for (int64_t x = 0; x < p.taps_x; ++x, tap += p.tap_x_step) to = copy_run(to, tap, p.run);
      }
    }
  }

  /* A row m, and where it begins; rows follow one another without divisions. */
  struct Place {
    int64_t pixel, line, plane, image, at;

    Place(const Patches &p, int64_t m)
        : pixel(m % p.width), line(m / p.width % p.lines), plane(m / p.width / p.lines % p.planes),
          image(m / p.width / p.lines / p.planes), at(0) {
      find(p);
    }
    void find(const Patches &p) {
      at = image * p.image_step + plane * p.plane_step + line * p.line_step + pixel * p.pixel_step;
    }
    void next(const Patches &p) {
      at += p.pixel_step;
      if (++pixel < p.width) return;
      pixel = 0;
      if (++line == p.lines) {
        line = 0;
        if (++plane == p.planes) plane = 0, ++image;
      }
      find(p);
    }
  };
};

/* [m, k] times the weights. A: float or int8_t. Scale, Zero: types of the scales of groups and of what is taken off
 * their values; none: 1 and 0. */
template <class A, int Bits, class Scale = none, class Zero = none> struct QuantisedArgs {
  int64_t m, n, k;
  const A *a;
  int64_t a_row = 0;         /* elements */
  Patches patches = {};      /* instead of rows */
  const uint8_t *b;          /* panels of lines, aligned to 64 bytes */
  int64_t group = 0;         /* values of k that share a scale; 0: all */
  const Scale *scales = nullptr; /* [ceil(n / 16)][k / group][16] */
  const Zero *zeros = nullptr;   /* the same */
  int64_t tile_rows = 1;         /* rows from which on levels with tiles of AMX take them; 0: never */

  int64_t groups() const { return group ? k / group : 1; }
  int64_t group_lines() const { return ceil_div(group ? group : k, line_values(Bits)); }
  int64_t panel_bytes() const { return groups() * group_lines() * kLineBytes; }
};

/* Scales or zeros of W columns; those of columns behind the last one are whatever is stored there. */
template <class T> MYCC_INLINE vf32 load_float(const T *p) {
  if constexpr (std::is_same<typename element<T>::vector, vi32>::value)
    return __builtin_convertvector(load(p), vf32);
  else
    return load(p);
}

/* Whether so many bytes of weights are prefetched of their use, by products of few rows. */

/* The tiles that rows are multiplied in: as even as can be, `tall` rows at most. */
struct RowTiles {
  int64_t rows, tiles, low, high; /* the first `high` ones have low + 1 rows, the others low */

  RowTiles(int64_t count, int64_t tall)
      : rows(count), tiles(ceil_div(count, tall)), low(count / tiles), high(count % tiles) {}
  int64_t height(int64_t tile) const { return low + (tile < high); }
  int64_t first(int64_t tile) const { return tile * low + (tile < high ? tile : high); }
};

} // namespace mycc
#endif /* MYCC_KERNELS_GEMM_QUANTISED_H */
