/* The left operand of products of int8 values: how a task has its rows, and the sums of them that undo what the weights are
 * raised by.
 *
 * Where four bytes of a row are what a product takes, they are read where they lie, one instruction for all columns. Where
 * words are, rows are packed: a tile's rows side by side.
 */
#ifndef MYCC_KERNELS_GEMM_INTEGER_ROWS_H
#define MYCC_KERNELS_GEMM_INTEGER_ROWS_H

#include "machine.h"
#include "kernels/gemm/quantised.h"

namespace mycc {

/* Whether products read rows as they are. */
template <int Bits, bool Grouped> constexpr bool takes_plain_rows = Bits == 8 && !Grouped && quads::Dot<Bits>::kLeft == 4;

/* What takes off what the weights are raised by, of values with such a sum. */
template <class Dot> MYCC_INLINE int32_t undone(int32_t sum) { return (int32_t)(-(uint32_t)Dot::raised * (uint32_t)sum); }

/* The sum of values of a row, while they are packed. */
struct RowSum {
  vi32 many = {};
  int32_t few = 0;

  MYCC_INLINE void add(uint32_t quad) {
    few += (int8_t)quad + (int8_t)(quad >> 8) + (int8_t)(quad >> 16) + (int8_t)(quad >> 24);
  }
  MYCC_INLINE int32_t sum() const { return reduce_add(many) + few; }
};

/* The int8 rows of a task tile by tile, a quad of each row side by side. */
template <class Args, int Bits, bool Grouped> struct PackedRows {
  typedef quads::Dot<Bits> Dot;
  int64_t quads_of_row, groups, group; /* group: values of k */
  int64_t step = 0;
  size_t spare;   /* room for a row, where runs are no whole quads */
  char *memory;   /* it, then [tiles][quads][rows][Left] */
  int32_t *sums;  /* [rows][groups]; not Grouped: already undone */

  explicit PackedRows(const Args &args)
      : quads_of_row(args.groups() * args.group_lines() * Dot::kQuads), groups(args.groups()),
        group(args.group ? args.group : args.k),
        spare(args.patches.run % 4 && !args.patches.is_run() ? (size_t)round_up(args.k + 8, kLineBytes) : 0) {}

  int64_t row_bytes() const { return quads_of_row * Dot::kLeft; }
  size_t bytes(int64_t rows) const { return spare + (size_t)(rows * row_bytes()); }
  char *packed() const { return memory + spare; }
  /* The tile of the rows from number `first` of the task on. */
  const char *at(const Args &, int64_t, int64_t first) const { return packed() + first * row_bytes(); }

  void fill(const Args &args, const RowTiles &tiles, int64_t row) const {
    Patches::Place place(args.patches, row);
    const int64_t last = args.patches.run ? Patches::Place(args.patches, args.m - 1).at : 0;
    for (int64_t t = 0, first = 0; t < tiles.tiles; first += tiles.height(t++))
      for (int64_t r = 0; r < tiles.height(t); ++r) {
        const int64_t m = row + first + r, height = tiles.height(t);
        const int8_t *from = args.a + (args.patches.run ? place.at : m * args.a_row);
        if (args.patches.run && !args.patches.is_run())
          pack_patch(args.patches, from, args.k, first, r, height, place.at + 8 - args.patches.run <= last);
        else
          pack(from, args.k, first, r, height);
        if (args.patches.run) place.next(args.patches);
      }
  }

  /* Puts so many quads, `step` bytes from one to the next, and adds their values to `total`; returns where they end. */
  static MYCC_INLINE char *put(char *to, const int8_t *a, int64_t count, int64_t step, RowSum &total) {
    vi32 many = total.many;
    int64_t q = 0;
    for (; q + quads::kTogether <= count; q += quads::kTogether, to += quads::kTogether * step)
      quads::put_quads<Dot::kLeft>(to, a + 4 * q, step, many);
    if (q < count && q > 0) { /* the last ones, some of them again */
      const int64_t again = q + quads::kTogether - count;
      quads::put_quads<Dot::kLeft>(to - again * step, a + 4 * (q - again), step, many, again);
      to += (count - q) * step, q = count;
    }
    total.many = many;
    for (; q < count; ++q, to += step) {
      uint32_t x;
      __builtin_memcpy(&x, a + 4 * q, 4);
      total.add(x);
      quads::put_quad<Dot::kLeft>(to, x);
      MYCC_KEEP_LOOP;
    }
    return to;
  }

  /* The same row from the runs of a patch. beyond: as `spare` of copy_row. */
  void pack_patch(const Patches &p, const int8_t *a, int64_t k, int64_t first, int64_t row, int64_t height,
                  bool beyond) const {
    if (p.run % 4) { /* what is copied behind the row becomes zeros again */
      int8_t *const row_of_bytes = (int8_t *)memory;
      p.copy_row(row_of_bytes, a, beyond);
      __builtin_memset(row_of_bytes + k, 0, 4);
      return pack(row_of_bytes, round_up(k, 4), first, row, height);
    }
    char *to = packed() + first * row_bytes() + row * Dot::kLeft;
    RowSum total;
    for (int64_t z = 0; z < p.taps_z; ++z)
      for (int64_t y = 0; y < p.taps_y; ++y)
        for (int64_t x = 0; x < p.taps_x; ++x) {
          const int8_t *from = a + z * p.tap_z_step + y * p.tap_y_step + x * p.tap_x_step;
          to = put(to, from, p.run / 4, height * Dot::kLeft, total);
        }
    sums[first + row] = undone<Dot>(total.sum());
  }

  /* Row `row` of a tile of `height` rows, whose first one is number `first`. */
  void pack(const int8_t *a, int64_t k, int64_t first, int64_t row, int64_t height) const {
    const int64_t step = height * Dot::kLeft;
    char *to = packed() + first * row_bytes() + row * Dot::kLeft;
    int32_t *sum = sums + (first + row) * groups;
    if (groups > 1) { /* whole quads */
      for (int64_t g = 0; g < groups; ++g) to = put_group(to, a + g * group, group, step, sum[g]);
    } else {
      to = put_group(to, a, k, step, *sum);
    }
    for (const char *last = packed() + (first * row_bytes() + row * Dot::kLeft + quads_of_row * step); to < last; to += step)
      quads::put_quad<Dot::kLeft>(to, 0);
  }
  static char *put_group(char *to, const int8_t *a, int64_t count, int64_t step, int32_t &sum) {
    RowSum total;
    to = put(to, a, count / 4, step, total);
    if (count % 4) {
      uint32_t x = 0;
      for (int64_t i = count & ~(int64_t)3; i < count; ++i) x |= (uint32_t)(uint8_t)a[i] << 8 * (i & 3);
      total.add(x);
      quads::put_quad<Dot::kLeft>(to, x);
      to += step;
    }
    sum = Grouped ? total.sum() : undone<Dot>(total.sum());
    return to;
  }
};

/* The int8 rows of a task one after the other: where they lie, or copied where they are patches of several runs, do not lie
 * evenly, or end within a quad. */
template <class Args> struct PlainRows {
  typedef quads::Dot<8> Dot;
  int64_t step; /* bytes from a row to the next */
  bool copied;
  char *memory; /* of copies */
  int32_t *sums;

  explicit PlainRows(const Args &args) : step(-1) {
    if (args.k % 4 == 0) step = args.patches.run ? args.patches.row_step(args.m) : args.a_row;
    copied = step < 0;
    if (copied) step = (ceil_div(args.k, kLineBytes) | 1) * kLineBytes; /* so that rows share no set of the cache */
  }

  size_t bytes(int64_t rows) const { return copied ? (size_t)(rows * step) + 8 : 0; } /* copied by eights */
  const char *at(const Args &args, int64_t row, int64_t first) const {
    return copied ? memory + first * step : (const char *)args.a + (row + first) * step;
  }

  void fill(const Args &args, const RowTiles &tiles, int64_t row) const {
    if (copied) copy(args, row, tiles.rows);
    const int8_t *a = (const int8_t *)at(args, row, 0);
    for (int64_t r = 0; r < tiles.rows; ++r, a += step)
      sums[r] = Dot::raised ? undone<Dot>(quads::sum_of_bytes(a, args.k)) : 0;
  }
  void copy(const Args &args, int64_t row, int64_t rows) const {
    Patches::Place place(args.patches, row);
    const int64_t last = args.patches.run ? Patches::Place(args.patches, args.m - 1).at : 0;
    int8_t *to = (int8_t *)memory;
    for (int64_t r = 0; r < rows; ++r, to += step) {
      if (args.patches.run) {
        args.patches.copy_row(to, args.a + place.at, place.at + 8 - args.patches.run <= last);
        place.next(args.patches);
      } else {
        copy_run(to, args.a + (row + r) * args.a_row, args.k);
      }
      for (int64_t i = args.k; i % 4; ++i) to[i] = 0; /* lines stand for zeros there, raised as others are */
    }
  }
};

} // namespace mycc
#endif /* MYCC_KERNELS_GEMM_INTEGER_ROWS_H */
