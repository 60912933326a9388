/* What products of quantised weights take, and what their tasks share. quads.h has the layout of the weights. */
#ifndef MYCC_KERNELS_GEMM_QUANTISED_H
#define MYCC_KERNELS_GEMM_QUANTISED_H

#include <type_traits>
#include <utility>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/quads.h"

namespace mycc {

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
constexpr int64_t kWeightPrefetch = 4096;

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
