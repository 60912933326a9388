/* Products of int8 values with integer weights: C[m, n] = sum over k of a[m, k] * w[n, k], exact in int32; of groups with
 * scales, the float32 sum over groups of scale * (the group's exact sum).
 *
 * A task packs its rows: tile by tile, four values of k of each of its rows side by side, and the sums of groups that
 * undo what weights are raised by. The panels of a tile stay in the second cache while all rows of a task pass over them.
 */
#ifndef MYCC_KERNELS_GEMM_INTEGER_H
#define MYCC_KERNELS_GEMM_INTEGER_H

#include "machine.h"
#include "kernels/gemm/integer_tiles.h"
#include "kernels/gemm/quantised.h"

namespace mycc {

/* Rows and panels of the tallest tile. Grouped ones hold sums of two kinds. */
template <int Bits, bool Grouped> struct IntegerTiles {
  static constexpr int rows = (int)kIntegerTileRows[Grouped];
  static constexpr int panels = (int)kIntegerTilePanels[Grouped || quads::Dot<Bits>::kLeft > 4];
};

/* A tile's operands. */
template <class Scale, class Zero> struct IntegerTile {
  const char *a;           /* [quads][rows][Left] */
  const int32_t *a_sums;   /* [rows][groups]; without scales already undone */
  const uint8_t *b;
  int64_t panel_bytes, groups, lines; /* lines of a group */
  const Scale *scales;     /* of the first panel; groups * 16 from one to the next */
  const Zero *zeros;
  void *c;                 /* [rows][c_row] int32 or float */
  int64_t c_row;
};

/* Adds a line: R rows, V vectors of columns, U sums of each element of which this is number u. Where there are many
 * registers, a row's values meet all vectors at once; else a vector's columns all rows, whose values come from memory
 * again for each (the compiler must not know that they are the same). */
template <class Dot, int V, int U, int... J>
MYCC_INLINE void add_row_to(typename Dot::Partial *c, const typename Dot::Weights *w, const char *a, int64_t quad,
                            std::integer_sequence<int, J...>) {
  (Dot::add(c[J * U], w[J], a, quad), ...);
}
template <class Dot, int V, int U, int... R>
MYCC_INLINE void add_vector_to(typename Dot::Partial *c, typename Dot::Weights w, const char *a,
                               std::integer_sequence<int, R...>) {
  __asm__ volatile("" : "+r"(a));
  (Dot::add(c[R * V * U], w, a + R * Dot::kLeft, sizeof...(R) * Dot::kLeft), ...);
}
template <class Dot, int U, int... R, int... J>
MYCC_INLINE void add_line(typename Dot::Partial *c, const uint8_t *b, int64_t panel_bytes, const char *a,
                          std::integer_sequence<int, R...> rows, std::integer_sequence<int, J...> vectors) {
  constexpr int V = sizeof...(J);
  const auto line = [&](int j) MYCC_INLINED {
    return load((const int32_t *)(b + j / kLineVectors * panel_bytes) + j % kLineVectors * W);
  };
  if constexpr (MYCC_LANES == 16 || (MYCC_LANES == 8 && Dot::kLines == 0 && sizeof...(R) <= 4)) {
    const typename Dot::Weights w[] = {Dot::take(line(J))...};
    (add_row_to<Dot, V, U>(c + R * V * U, w, a + R * Dot::kLeft, sizeof...(R) * Dot::kLeft, vectors), ...);
  } else {
    (add_vector_to<Dot, V, U>(c + J * U, Dot::take(line(J)), a, rows), ...);
  }
}

template <class Dot, int U> MYCC_INLINE vi32 total(const typename Dot::Partial *c) {
  vi32 sum = Dot::sums(c[0]);
  if constexpr (U > 1) sum += Dot::sums(c[1]);
  if constexpr (U > 2) sum += Dot::sums(c[2]) + Dot::sums(c[3]);
  return sum;
}

/* What a partial sum starts from. */
template <class Partial, bool Sum> MYCC_INLINE Partial first_partial(vi32 sum) {
  if constexpr (Sum)
    return sum;
  else
    return Partial{};
}

/* Adds a group to its sums: R rows, V vectors; I: R * V of them, S: R * V * U. */
template <int Bits, int U, bool Ahead, int... R, int... J, int... I, int... S>
MYCC_INLINE void add_group(vi32 *sums, const char *a, const uint8_t *b, int64_t panel_bytes, int64_t lines,
                           std::integer_sequence<int, R...> rows, std::integer_sequence<int, J...> vectors,
                           std::integer_sequence<int, I...>, std::integer_sequence<int, S...>) {
  typedef quads::Dot<Bits> Dot;
  typedef typename Dot::Partial Partial;
  constexpr int64_t step = sizeof...(R) * Dot::kLeft * Dot::kQuads; /* of the left operand, for a line */
  constexpr bool any = Dot::kLines == 0; /* partial sums are sums, of any number of lines */
  for (int64_t line = 0; line < lines;) {
    const int64_t left = lines - line, turn = !any && left > Dot::kLines ? Dot::kLines : left;
    Partial c[] = {first_partial<Partial, any && S % U == 0>(sums[S / U])...};
    int64_t i = 0;
    for (; i + U <= turn; i += U) {
      add_line<Dot, U>(c, b, panel_bytes, a, rows, vectors);
      if constexpr (U > 1) add_line<Dot, U>(c + 1, b + kLineBytes, panel_bytes, a + step, rows, vectors);
      if constexpr (U > 2) add_line<Dot, U>(c + 2, b + 2 * kLineBytes, panel_bytes, a + 2 * step, rows, vectors);
      if constexpr (U > 3) add_line<Dot, U>(c + 3, b + 3 * kLineBytes, panel_bytes, a + 3 * step, rows, vectors);
      for (int u = 0; Ahead && u < U; ++u) __builtin_prefetch(b + kWeightPrefetch + u * kLineBytes, 0, 3);
      b += U * kLineBytes, a += U * step;
    }
    for (; U > 1 && i < turn; ++i, b += kLineBytes, a += step) add_line<Dot, U>(c, b, panel_bytes, a, rows, vectors);
    ((sums[I] = any ? total<Dot, U>(c + I * U) : sums[I] + total<Dot, U>(c + I * U)), ...);
    line += turn;
  }
}

/* What takes off what the weights are raised by, of values with such a sum. */
template <class Dot> MYCC_INLINE int32_t undone(int32_t sum) { return (int32_t)(-(uint32_t)Dot::raised * (uint32_t)sum); }

template <int Bits, class Scale, class Zero, bool Ahead, int... R, int... J, int... I, class S>
MYCC_INLINE void integer_tile_of(const IntegerTile<Scale, Zero> &t, std::integer_sequence<int, R...> rows,
                                 std::integer_sequence<int, J...> vectors, std::integer_sequence<int, I...> elements,
                                 S partials) {
  typedef quads::Dot<Bits> Dot;
  constexpr int V = sizeof...(J), U = S::size() / sizeof...(I);
  const int64_t left = (int64_t)sizeof...(R) * Dot::kLeft * Dot::kQuads * t.lines;
  const char *a = t.a;
  const uint8_t *b = t.b;
  if constexpr (std::is_same<Scale, none>::value) {
    int32_t *c = (int32_t *)t.c;
    vi32 sums[] = {splat(t.a_sums[I / V])...};
    add_group<Bits, U, Ahead>(sums, a, b, t.panel_bytes, t.lines, rows, vectors, elements, partials);
    (store(c + I / V * t.c_row + I % V * W, sums[I]), ...);
  } else {
    vf32 found[] = {((void)I, vf32{})...};
    for (int64_t g = 0; g < t.groups; ++g, a += left, b += t.lines * kLineBytes) {
      vi32 sums[] = {splat(undone<Dot>(t.a_sums[I / V * t.groups + g]))...};
      add_group<Bits, U, Ahead>(sums, a, b, t.panel_bytes, t.lines, rows, vectors, elements, partials);
      const auto place = [&](int j) { return (j / kLineVectors * t.groups + g) * 16 + j % kLineVectors * W; };
      const vf32 scales[] = {load_float(t.scales + place(J))...};
      if constexpr (std::is_same<Zero, none>::value) {
        ((found[I] = fma(__builtin_convertvector(sums[I], vf32), scales[I % V], found[I])), ...);
      } else {
        const vf32 zeros[] = {load_float(t.zeros + place(J))...};
        const float wide[] = {-(float)t.a_sums[R * t.groups + g]...};
        ((found[I] = fma(fma(splat(wide[I / V]), zeros[I % V], __builtin_convertvector(sums[I], vf32)), scales[I % V],
                         found[I])),
         ...);
      }
    }
    (store((float *)t.c + I / V * t.c_row + I % V * W, found[I]), ...);
  }
}

/* A tile of R rows and P panels; where there are few sums, several of each element. */
template <int Bits, class Scale, class Zero, int R, int P> void integer_tile(const IntegerTile<Scale, Zero> &t) {
  constexpr int V = P * kLineVectors, U = R * V >= 4 ? 1 : R * V >= 2 ? 2 : 4;
  integer_tile_of<Bits, Scale, Zero, (R < 4)>(t, std::make_integer_sequence<int, R>(),
                                              std::make_integer_sequence<int, V>(),
                                              std::make_integer_sequence<int, R * V>(),
                                              std::make_integer_sequence<int, R * V * U>());
}

template <int Bits, class Scale, class Zero, int P, int... R>
inline void run_integer_tile(const IntegerTile<Scale, Zero> &t, int64_t rows, std::integer_sequence<int, R...>) {
  static constexpr void (*tiles[])(const IntegerTile<Scale, Zero> &) = {integer_tile<Bits, Scale, Zero, R + 1, P>...};
  tiles[rows - 1](t);
}

/* The sum of values of a row, while they are packed. */
struct RowSum {
  vi32 many = {};
  int32_t few = 0;

  MYCC_INLINE void add(uint32_t quad) {
    few += (int8_t)quad + (int8_t)(quad >> 8) + (int8_t)(quad >> 16) + (int8_t)(quad >> 24);
  }
  MYCC_INLINE int32_t sum() const { return reduce_add(many) + few; }
};

/* The int8 rows of a task as tiles take them. */
template <int Bits, bool Grouped> struct PackedRows {
  typedef quads::Dot<Bits> Dot;
  int64_t quads_of_row, groups, group; /* group: values of k */
  char *packed;                        /* [tiles][quads][rows][Left] */
  int32_t *sums;                       /* [rows][groups]; not Grouped: already undone */

  int64_t row_bytes() const { return quads_of_row * Dot::kLeft; }

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

  /* The same row from the runs of a patch. spare: as copy_row. row_of_bytes: room for it, where runs are no whole quads. */
  void pack_patch(const Patches &p, const int8_t *a, int64_t k, int64_t first, int64_t row, int64_t height,
                  int8_t *row_of_bytes, bool spare) const {
    if (p.run % 4) { /* what is copied behind the row becomes zeros again */
      p.copy_row(row_of_bytes, a, spare);
      __builtin_memset(row_of_bytes + k, 0, 4);
      return pack(row_of_bytes, round_up(k, 4), first, row, height);
    }
    char *to = packed + first * row_bytes() + row * Dot::kLeft;
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
    char *to = packed + first * row_bytes() + row * Dot::kLeft;
    int32_t *sum = sums + (first + row) * groups;
    if (groups > 1) { /* whole quads */
      for (int64_t g = 0; g < groups; ++g) to = put_group(to, a + g * group, group, step, sum[g]);
    } else {
      to = put_group(to, a, k, step, *sum);
    }
    for (const char *last = packed + (first * row_bytes() + row * Dot::kLeft + quads_of_row * step); to < last; to += step)
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

template <int Bits, class Scale, class Zero, class Epilogue> struct IntegerLoop {
  typedef QuantisedArgs<int8_t, Bits, Scale, Zero> Args;
  static constexpr bool grouped = !std::is_same<Scale, none>::value;
  typedef IntegerTiles<Bits, grouped> Tiles;
  typedef std::conditional_t<grouped, float, int32_t> Sum;
  const mycc_host *host;
  const Args &args;
  const Epilogue &epilogue;
  TaskPlan plan;

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const IntegerLoop &loop = *(const IntegerLoop *)arg;
    const Args &args = loop.args;
    PackedRows<Bits, grouped> rows = {args.groups() * args.group_lines() * quads::Dot<Bits>::kQuads, args.groups(),
                             args.group ? args.group : args.k, nullptr, nullptr};
    const int64_t most = loop.plan.rows.most();
    const size_t packed = (size_t)(most * rows.row_bytes()), sums = (size_t)(most * rows.groups) * sizeof(int32_t);
    const size_t out = Tiles::rows * kFinishedPanels * kPanel * sizeof(Sum);
    const size_t bytes = args.patches.run % 4 && !args.patches.is_run() ? (size_t)args.k + 8 : 0;
    void *scratch = loop.host->scratch(loop.host->ctx, worker, packed + sums + out + bytes + 4 * kLineBytes);
    if (!scratch) return;
    Carver carver = {(uint8_t *)scratch};
    rows.packed = carver.take<char>(packed);
    rows.sums = carver.take<int32_t>(sums);
    Sum *c = carver.take<Sum>(out);
    int8_t *row_of_bytes = carver.take<int8_t>(bytes);
    int64_t filled = -1;
    for (int64_t task = begin; task < end; ++task) {
      const TaskPlace place = place_task(loop.plan, args.n, task);
      const RowTiles tiles(place.rows, Tiles::rows);
      if (place.row != filled) loop.fill(rows, tiles, place.row, row_of_bytes);
      filled = place.row;
      const int64_t panels = ceil_div(place.columns, kPanel);
      /* Results of few rows are written side by side, unless their panels would come from far for each of them; where
       * panels are short, many of a row are finished at once, as to begin with a row takes time. */
      const int64_t turn = ceil_div(panels * args.panel_bytes(), kNearPanels);
      for (int64_t t = 0; t < tiles.tiles; t += turn)
        for (int64_t p = 0, count; p < panels; p += count) {
          count = turn > 1 ? width_at(panels - p) : min64(panels - p, kFinishedPanels);
          loop.multiply(rows, tiles, t, min64(t + turn, tiles.tiles), place, p, count, c);
        }
    }
  }

  void fill(const PackedRows<Bits, grouped> &to, const RowTiles &tiles, int64_t row, int8_t *row_of_bytes) const {
    Patches::Place place(args.patches, row);
    const int64_t last = args.patches.run ? Patches::Place(args.patches, args.m - 1).at : 0;
    for (int64_t t = 0, first = 0; t < tiles.tiles; first += tiles.height(t++))
      for (int64_t r = 0; r < tiles.height(t); ++r) {
        const int64_t m = row + first + r, height = tiles.height(t);
        const int8_t *from = args.a + (args.patches.run ? place.at : m * args.a_row);
        if (args.patches.run && !args.patches.is_run())
          to.pack_patch(args.patches, from, args.k, first, r, height, row_of_bytes, place.at + 8 - args.patches.run <= last);
        else
          to.pack(from, args.k, first, r, height);
        if (args.patches.run) place.next(args.patches);
      }
  }

  /* Tiles from `begin` to `end` of a task times `count` panels from its panel p on. */
  void multiply(const PackedRows<Bits, grouped> &rows, const RowTiles &tiles, int64_t begin, int64_t end,
                const TaskPlace &place, int64_t p, int64_t count, Sum *c) const {
    const int64_t column = p * kPanel, n = place.panel * kPanel + column;
    const int64_t stride = count * kPanel, valid = min64(stride, place.columns - column);
    IntegerTile<Scale, Zero> tile = {};
    tile.panel_bytes = args.panel_bytes();
    tile.groups = args.groups();
    tile.lines = args.group_lines();
    tile.c_row = stride;
    const Epilogue finish = epilogue; /* a copy that no store of bytes may change */
    for (int64_t t = begin, first = tiles.first(begin); t < end; first += tiles.height(t++)) {
      const int64_t height = tiles.height(t), m = place.row + first;
      tile.a = rows.packed + first * rows.row_bytes();
      tile.a_sums = rows.sums + first * rows.groups;
      for (int64_t r = 0; r < height; ++r) prefetch_operands(epilogue, (int64_t)0, m + r, n, valid, 0);
      for (int64_t q = 0, width; q < count; q += width) {
        const int64_t panel = place.panel + p + q, at = panel * tile.groups * kPanel;
        tile.b = args.b + panel * tile.panel_bytes;
        if constexpr (grouped) tile.scales = args.scales + at;
        if constexpr (!std::is_same<Zero, none>::value) tile.zeros = args.zeros + at;
        tile.c = c + q * kPanel;
        width = width_at(count - q);
        const std::make_integer_sequence<int, Tiles::rows> heights;
        if (width > 1)
          run_integer_tile<Bits, Scale, Zero, Tiles::panels>(tile, height, heights);
        else
          run_integer_tile<Bits, Scale, Zero, 1>(tile, height, heights);
      }
      for (int64_t r = 0; r < height; ++r) finish((int64_t)0, m + r, n, c + r * stride, valid);
    }
  }

  /* Panels of the next tile, of so many that are left. */
  static int64_t width_at(int64_t left) { return left >= Tiles::panels ? Tiles::panels : 1; }
};

/* epilogue(0, m, n, sums, count): the sums are int32, or floats where there are scales. */
template <int Bits, class Scale, class Zero, class Epilogue>
inline void gemm_integer(const mycc_host *host, const QuantisedArgs<int8_t, Bits, Scale, Zero> &args,
                         const Epilogue &epilogue) {
  if (args.m <= 0 || args.n <= 0) return;
#if defined(MYCC_AMX)
  if constexpr (Bits == 8 && std::is_same<Scale, none>::value)
    if (args.tile_rows && args.m >= args.tile_rows) return gemm_integer_tiles(host, args, epilogue);
#endif
  typedef IntegerLoop<Bits, Scale, Zero, Epilogue> Loop;
  const DepthCut cut = cut_depth(max64(args.k / 4, 1)); /* as many steps as of floats */
  TaskLimits limits;
  limits.min_panels = kIntegerPanels;
  limits.min_rows = kIntegerTiles * kTileRows;
  limits.max_rows = max64(cut.tuning.block_bytes / max64(args.k * quads::Dot<Bits>::kLeft / 4, 1), kFewIntegerTiles * kTileRows);
  if (args.m < kFewIntegerTiles * kTileRows) limits.min_panels = kTaskPanels, limits.min_rows = 0;
  const TaskPlan plan = plan_tasks(cut, 1, args.m, args.n, host->max_workers, limits);
  Loop loop = {host, args, epilogue, plan};
  host->parallel_for(host->ctx, plan.count, plan.grain, Loop::body, &loop);
}

} // namespace mycc
#endif /* MYCC_KERNELS_GEMM_INTEGER_H */
