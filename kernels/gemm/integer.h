/* Products of int8 values with integer weights: C[m, n] = sum over k of a[m, k] * w[n, k], exact in int32; of groups with
 * scales, the float32 sum over groups of scale * (the group's exact sum).
 *
 * integer_rows.h says how a task has its rows. The panels of a tile stay in the second cache while all rows of a task pass
 * over them.
 */
#ifndef MYCC_KERNELS_GEMM_INTEGER_H
#define MYCC_KERNELS_GEMM_INTEGER_H

#include "machine.h"
#include "kernels/gemm/integer_rows.h"
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
  const char *a;           /* [quads][rows][Left]; of rows as they are the first one */
  int64_t a_row;           /* bytes from a row to the next, of rows as they are */
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
MYCC_INLINE void add_vector_to(typename Dot::Partial *c, typename Dot::Weights w, const char *a, int64_t a_row,
                               std::integer_sequence<int, R...>) {
  __asm__ volatile("" : "+r"(a));
  (Dot::add(c[R * V * U], w, a + R * a_row, sizeof...(R) * Dot::kLeft), ...);
}
template <class Dot, int U, int... R, int... J>
MYCC_INLINE void add_line(typename Dot::Partial *c, const uint8_t *b, int64_t panel_bytes, const char *a, int64_t a_row,
                          std::integer_sequence<int, R...> rows, std::integer_sequence<int, J...> vectors) {
  constexpr int V = sizeof...(J);
  const auto line = [&](int j) MYCC_INLINED {
    return load((const int32_t *)(b + j / kLineVectors * panel_bytes) + j % kLineVectors * W);
  };
  if constexpr (MYCC_LANES == 16 || (MYCC_LANES == 8 && Dot::kLines == 0 && sizeof...(R) <= 4)) {
    const typename Dot::Weights w[] = {Dot::take(line(J))...};
    (add_row_to<Dot, V, U>(c + R * V * U, w, a + R * a_row, sizeof...(R) * Dot::kLeft, vectors), ...);
  } else {
    (add_vector_to<Dot, V, U>(c + J * U, Dot::take(line(J)), a, a_row, rows), ...);
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

/* Adds a group to its sums: R rows, V vectors; I: R * V of them, S: R * V * U. a_row, step: bytes from a row of the left
 * operand to the next, and from a line to the next. */
template <int Bits, int U, bool Ahead, int... R, int... J, int... I, int... S>
MYCC_INLINE void add_group(vi32 *sums, const char *a, int64_t a_row, int64_t step, const uint8_t *b, int64_t panel_bytes, int64_t lines,
                           std::integer_sequence<int, R...> rows, std::integer_sequence<int, J...> vectors,
                           std::integer_sequence<int, I...>, std::integer_sequence<int, S...>) {
  typedef quads::Dot<Bits> Dot;
  typedef typename Dot::Partial Partial;
  constexpr bool any = Dot::kLines == 0; /* partial sums are sums, of any number of lines */
  for (int64_t line = 0; line < lines;) {
    const int64_t left = lines - line, turn = !any && left > Dot::kLines ? Dot::kLines : left;
    Partial c[] = {first_partial<Partial, any && S % U == 0>(sums[S / U])...};
    int64_t i = 0;
    for (; i + U <= turn; i += U) {
      add_line<Dot, U>(c, b, panel_bytes, a, a_row, rows, vectors);
      if constexpr (U > 1) add_line<Dot, U>(c + 1, b + kLineBytes, panel_bytes, a + step, a_row, rows, vectors);
      if constexpr (U > 2) add_line<Dot, U>(c + 2, b + 2 * kLineBytes, panel_bytes, a + 2 * step, a_row, rows, vectors);
      if constexpr (U > 3) add_line<Dot, U>(c + 3, b + 3 * kLineBytes, panel_bytes, a + 3 * step, a_row, rows, vectors);
      for (int u = 0; Ahead && u < U; ++u) __builtin_prefetch(b + kWeightPrefetch + u * kLineBytes, 0, 3);
      b += U * kLineBytes, a += U * step;
    }
    for (; U > 1 && i < turn; ++i, b += kLineBytes, a += step) add_line<Dot, U>(c, b, panel_bytes, a, a_row, rows, vectors);
    ((sums[I] = any ? total<Dot, U>(c + I * U) : sums[I] + total<Dot, U>(c + I * U)), ...);
    line += turn;
  }
}

template <int Bits, class Scale, class Zero, bool Ahead, int... R, int... J, int... I, class S>
MYCC_INLINE void integer_tile_of(const IntegerTile<Scale, Zero> &t, std::integer_sequence<int, R...> rows,
                                 std::integer_sequence<int, J...> vectors, std::integer_sequence<int, I...> elements,
                                 S partials) {
  typedef quads::Dot<Bits> Dot;
  constexpr int V = sizeof...(J), U = S::size() / sizeof...(I);
  constexpr bool grouped = !std::is_same<Scale, none>::value, plain = takes_plain_rows<Bits, grouped>;
  const int64_t a_row = plain ? t.a_row : Dot::kLeft;
  constexpr int64_t step = (plain ? 1 : (int64_t)sizeof...(R)) * Dot::kLeft * Dot::kQuads;
  const char *a = t.a;
  const uint8_t *b = t.b;
  if constexpr (!grouped) {
    int32_t *c = (int32_t *)t.c;
    vi32 sums[] = {splat(t.a_sums[I / V])...};
    add_group<Bits, U, Ahead>(sums, a, a_row, step, b, t.panel_bytes, t.lines, rows, vectors, elements, partials);
    (store(c + I / V * t.c_row + I % V * W, sums[I]), ...);
  } else {
    vf32 found[] = {((void)I, vf32{})...};
    for (int64_t g = 0; g < t.groups; ++g, a += step * t.lines, b += t.lines * kLineBytes) {
      vi32 sums[] = {splat(undone<Dot>(t.a_sums[I / V * t.groups + g]))...};
      add_group<Bits, U, Ahead>(sums, a, a_row, step, b, t.panel_bytes, t.lines, rows, vectors, elements, partials);
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

template <int Bits, class Scale, class Zero, class Epilogue> struct IntegerLoop {
  typedef QuantisedArgs<int8_t, Bits, Scale, Zero> Args;
  static constexpr bool grouped = !std::is_same<Scale, none>::value;
  typedef IntegerTiles<Bits, grouped> Tiles;
  typedef std::conditional_t<takes_plain_rows<Bits, grouped>, PlainRows<Args>, PackedRows<Args, Bits, grouped>> Rows;
  typedef std::conditional_t<grouped, float, int32_t> Sum;
  const mycc_host *host;
  const Args &args;
  const Epilogue &epilogue;
  TaskPlan plan;

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const IntegerLoop &loop = *(const IntegerLoop *)arg;
    const Args &args = loop.args;
    Rows rows(args);
    const int64_t most = loop.plan.rows.most();
    const size_t own = rows.bytes(most), sums = (size_t)(most * args.groups()) * sizeof(int32_t);
    const size_t out = Tiles::rows * kFinishedPanels * kPanel * sizeof(Sum);
    void *scratch = loop.host->scratch(loop.host->ctx, worker, own + sums + out + 3 * kLineBytes);
    if (!scratch) return;
    Carver carver = {(uint8_t *)scratch};
    rows.memory = carver.take<char>(own);
    rows.sums = carver.take<int32_t>(sums);
    Sum *c = carver.take<Sum>(out);
    int64_t filled = -1;
    for (int64_t task = begin; task < end; ++task) {
      const TaskPlace place = place_task(loop.plan, args.n, task);
      const RowTiles tiles(place.rows, Tiles::rows);
      if (place.row != filled) rows.fill(args, tiles, place.row);
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

  /* Tiles from `begin` to `end` of a task times `count` panels from its panel p on. */
  void multiply(const Rows &rows, const RowTiles &tiles, int64_t begin, int64_t end,
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
      tile.a = rows.at(args, place.row, first);
      tile.a_row = rows.step;
      tile.a_sums = rows.sums + first * tile.groups;
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
  limits.min_panels = takes_plain_rows<Bits, Loop::grouped> ? kPlainPanels : kIntegerPanels;
  limits.min_rows = kIntegerTiles * kTileRows;
  limits.max_rows = max64(cut.tuning.block_bytes / max64(args.k * quads::Dot<Bits>::kLeft / 4, 1), kFewIntegerTiles * kTileRows);
  if (args.m < kFewIntegerTiles * kTileRows) limits.min_panels = kTaskPanels, limits.min_rows = 0;
  const TaskPlan plan = plan_tasks(cut, 1, args.m, args.n, host->max_workers, limits);
  Loop loop = {host, args, epilogue, plan};
  host->parallel_for(host->ctx, plan.count, plan.grain, Loop::body, &loop);
}

} // namespace mycc
#endif /* MYCC_KERNELS_GEMM_INTEGER_H */
