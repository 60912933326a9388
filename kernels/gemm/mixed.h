/* Products of floats with integer weights: C[m, n] = sum over k of a[m, k] * (w[n, k] - zero) * scale, float32. The
 * weights are read as they are stored: of a few rows they become floats in registers, of more rows a group of panels does
 * in the first cache, where the register tiles of float products read it.
 */
#ifndef MYCC_KERNELS_GEMM_MIXED_H
#define MYCC_KERNELS_GEMM_MIXED_H

#include "machine.h"
#include "kernels/gemm/quantised.h"

namespace mycc {

/* Whether weights of so many bits stay raised and in their place within a line where they become floats, which saves a
 * shift and a subtraction of each. The rows are divided by what that multiplies them by, and their sums undo the rest. */
#if MYCC_LANES == 16
constexpr bool stays_in_place(int) { return false; } /* a table of 16 values makes floats of four bits at once */
#else
constexpr bool stays_in_place(int bits) { return bits == 4; }
#endif

/* Sums of groups of rows that stay in place, as a share of what they are where all values are equal: about 0.14 of
 * normal numbers by 32, 0.56 of their positive parts. Of rows of 24 groups it is 0.2 in one of 300; short rows, whose share
 * varies more, are computed the other way. */
constexpr float kMostOneSided = 0.2f;

/* A tile of few rows and a panel. */
template <class Scale, class Zero> struct MixedTile {
  const float *a; /* rows of whole lines, zeros behind k */
  int64_t a_row;
  const float *a_sums; /* [rows][groups], of weights that stay in place */
  const uint8_t *b;
  int64_t groups, lines; /* lines of a group */
  const Scale *scales;
  const Zero *zeros;
  float *c; /* [rows][16] */
};

/* W columns of a line as floats, less their zeros. */
template <int Bits, class Zero, int I> MYCC_INLINE vf32 centred(const FloatLine<Bits> &line, vf32 zeros) {
  if constexpr (std::is_same<Zero, none>::value)
    return line.template value<I>();
  else
    return line.template value<I>() - zeros;
}

template <int Bits, class Zero, bool InPlace, int V, int U, int I, int... R>
MYCC_INLINE void add_value(vf32 *c, const FloatLine<Bits> &line, vf32 zeros, const float *a, int64_t a_row,
                           std::integer_sequence<int, R...>) {
  vf32 w;
  if constexpr (InPlace)
    w = line.template raised_in_place<I>();
  else
    w = centred<Bits, Zero, I>(line, zeros);
  ((c[R * V * U + I % U] = fma(splat(a[R * a_row + I]), w, c[R * V * U + I % U])), ...);
}
template <int Bits, class Zero, bool InPlace, int V, int U, class Rows, int... I>
MYCC_INLINE void add_values(vf32 *c, vi32 raised, vf32 zeros, const float *a, int64_t a_row, Rows rows,
                            std::integer_sequence<int, I...>) {
  const FloatLine<Bits> line(raised);
  (add_value<Bits, Zero, InPlace, V, U, I>(c, line, zeros, a, a_row, rows), ...);
}
template <int U> MYCC_INLINE vf32 add_up(const vf32 *c) {
  if constexpr (U == 1) return c[0];
  if constexpr (U == 2) return c[0] + c[1];
  if constexpr (U == 4) return (c[0] + c[1]) + (c[2] + c[3]);
}

/* J: the vectors of the panel, E: those of all rows, S: sums, U of each. */
template <int Bits, class Scale, class Zero, bool InPlace, int... R, int... J, int... E, int... S>
MYCC_INLINE void mixed_tile_of(const MixedTile<Scale, Zero> &t, std::integer_sequence<int, R...> rows,
                               std::integer_sequence<int, J...>, std::integer_sequence<int, E...>,
                               std::integer_sequence<int, S...>) {
  constexpr int V = sizeof...(J), U = sizeof...(S) / sizeof...(E), values = line_values(Bits);
  constexpr bool scaled = !std::is_same<Scale, none>::value;
  const int64_t run = scaled ? t.lines : kMixedRun / values;
  const float *a = t.a;
  const uint8_t *b = t.b;
  vf32 found[] = {((void)E, vf32{})...};
  for (int64_t g = 0, left = t.groups * t.lines; left > 0; ++g, left -= run) {
    vf32 c[] = {((void)S, vf32{})...}, zeros[V] = {};
    if constexpr (!std::is_same<Zero, none>::value) ((zeros[J] = load_float(t.zeros + g * 16 + J * W)), ...);
    for (int64_t line = min64(left, run); line > 0; --line, b += kLineBytes, a += values) {
      __builtin_prefetch(b + kWeightPrefetch, 0, 3);
      (add_values<Bits, Zero, InPlace, V, U>(c + J * U, load((const int32_t *)b + J * W), zeros[J], a, t.a_row, rows,
                                    std::make_integer_sequence<int, values>()),
       ...);
    }
    if constexpr (scaled) {
      const vf32 scales[] = {load_float(t.scales + g * 16 + J * W)...};
      if constexpr (InPlace) {
        const vf32 low[] = {zeros[J] + (float)raised_by(Bits)...};
        ((c[E * U] = fma(splat(-t.a_sums[E / V * t.groups + g]), low[E % V], add_up<U>(c + E * U))), ...);
        ((found[E] = fma(c[E * U], scales[E % V], found[E])), ...);
      } else {
        ((found[E] = fma(add_up<U>(c + E * U), scales[E % V], found[E])), ...);
      }
    } else {
      ((found[E] += add_up<U>(c + E * U)), ...);
    }
  }
  (store(t.c + E * W, found[E]), ...);
}

/* Sums of each element: enough to hide the latency of multiply-adds, as many as the registers hold. */
constexpr int mixed_sums(int elements) {
  return kMixedAccumulators >= 4 * elements ? 4 : kMixedAccumulators >= 2 * elements ? 2 : 1;
}

template <int Bits, class Scale, class Zero, bool InPlace, int R> void mixed_tile(const MixedTile<Scale, Zero> &t) {
  constexpr int V = kLineVectors, U = mixed_sums(R * V);
  mixed_tile_of<Bits, Scale, Zero, InPlace>(t, std::make_integer_sequence<int, R>(), std::make_integer_sequence<int, V>(),
                                   std::make_integer_sequence<int, R * V>(),
                                   std::make_integer_sequence<int, R * V * U>());
}
template <int Bits, class Scale, class Zero, bool InPlace, int... R>
inline void run_mixed_tile(const MixedTile<Scale, Zero> &t, int64_t rows, std::integer_sequence<int, R...>) {
  static constexpr void (*tiles[])(const MixedTile<Scale, Zero> &) = {mixed_tile<Bits, Scale, Zero, InPlace, R + 1>...};
  tiles[rows - 1](t);
}

/* A product of at most kMixedRows rows. */
template <int Bits, class Scale, class Zero, class Epilogue> struct FewMixedLoop {
  typedef QuantisedArgs<float, Bits, Scale, Zero> Args;
  static constexpr bool in_place = stays_in_place(Bits);
  const mycc_host *host;
  const Args &args;
  const Epilogue &epilogue;
  TaskPlan plan;

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const FewMixedLoop &loop = *(const FewMixedLoop *)arg;
    const Args &args = loop.args;
    constexpr int64_t values = line_values(Bits);
    MixedTile<Scale, Zero> tile = {};
    tile.groups = args.groups();
    tile.lines = args.group_lines();
    const int64_t whole = tile.groups * tile.lines * values;
    const bool moves = whole != args.k || in_place; /* else rows are read where they lie */
    float *copy = nullptr, *sums = nullptr;
    if (moves) {
      const size_t bytes = (size_t)(args.m * whole) * sizeof(float);
      const size_t sums_bytes = (size_t)(args.m * tile.groups) * sizeof(float);
      void *scratch = loop.host->scratch(loop.host->ctx, worker, bytes + sums_bytes + 2 * kLineBytes);
      if (!scratch) return;
      Carver carver = {(uint8_t *)scratch};
      copy = carver.take<float>(bytes);
      sums = carver.take<float>(sums_bytes);
    }
    const bool stays = in_place && loop.copy_in_place(copy, sums, whole);
    for (int64_t m = 0; m < args.m && moves && !stays; ++m)
      for (int64_t k = 0; k < whole; ++k) copy[m * whole + k] = k < args.k ? args.a[m * args.a_row + k] : 0.0f;
    tile.a = moves ? copy : args.a;
    tile.a_row = moves ? whole : args.a_row;
    tile.a_sums = sums;
    alignas(kLineBytes) float c[kMixedRows * kPanel];
    tile.c = c;
    for (int64_t task = begin; task < end; ++task) {
      const TaskPlace place = place_task(loop.plan, args.n, task);
      for (int64_t column = 0; column < place.columns; column += kPanel) {
        const int64_t panel = place.panel + column / kPanel, n = panel * kPanel, valid = min64(kPanel, args.n - n);
        tile.b = args.b + panel * args.panel_bytes();
        if constexpr (!std::is_same<Scale, none>::value) tile.scales = args.scales + panel * tile.groups * kPanel;
        if constexpr (!std::is_same<Zero, none>::value) tile.zeros = args.zeros + panel * tile.groups * kPanel;
        const std::make_integer_sequence<int, kMixedRows> rows;
        if (stays)
          run_mixed_tile<Bits, Scale, Zero, in_place>(tile, args.m, rows);
        else
          run_mixed_tile<Bits, Scale, Zero, false>(tile, args.m, rows);
        for (int64_t m = 0; m < args.m; ++m) loop.epilogue((int64_t)0, m, n, c + m * kPanel, valid);
      }
    }
  }

  /* The rows divided by the places of weights within a line, and the sums of their groups; false where one of them is not
   * finite, which what is taken off would make NaN, and where most values are of one sign (behind a relu): sums with
   * raised weights then cancel against what is taken off, and lose digits. */
  bool copy_in_place(float *copy, float *sums, int64_t whole) const {
    if constexpr (in_place) {
      constexpr int64_t values = line_values(Bits);
      float places[values], bound = 0, one_sided = 0, spread = 0;
      for (int i = 0; i < values; ++i) places[i] = 1.0f / (float)((int64_t)1 << FloatLine<Bits>::place(i));
      const int64_t groups = args.groups(), run = whole / groups;
      for (int64_t m = 0; m < args.m; ++m) {
        const float *a = args.a + m * args.a_row;
        for (int64_t g = 0, k = 0; g < groups; ++g) {
          double sum = 0; /* what is taken off is many times the sum: it would be many times its rounding, too */
          float squares = 0;
          for (const int64_t end = k + run; k < end; k += values, copy += values)
            for (int64_t i = 0; i < values; ++i) {
              const float x = k + i < args.k ? a[k + i] : 0.0f;
              sum += x;
              squares += x * x;
              copy[i] = x * places[i];
            }
          const float rounded = (float)sum;
          *sums++ = rounded;
          bound += 0.0f * rounded;
          one_sided += __builtin_fabsf(rounded);
          spread += __builtin_sqrtf((float)run * squares);
        }
      }
      return bound == 0.0f && !(one_sided > kMostOneSided * spread);
    }
    return false;
  }
};

/* A source of panels for multiply_block that makes floats of each group's depth block when it is asked for. */
template <int Bits, class Scale, class Zero> struct FloatPanels {
  typedef float Element;
  static constexpr bool far = false;    /* what was just made is near */
  static constexpr int64_t after = 0;
  const QuantisedArgs<float, Bits, Scale, Zero> &args;
  int64_t first;      /* panel of the block */
  float *made;        /* room for a group's longest depth block */
  int64_t panel_size;

  const float *get(const DepthPart &part, int64_t panel, int64_t width, int64_t) const {
    for (int64_t p = 0; p < width; ++p) fill(part, first + panel + p, made + p * panel_size);
    return made;
  }
  const float *ahead(const DepthPart &, int64_t, int64_t) const { return nullptr; }

  /* [depth][16], and what the last line holds behind it: there is room. */
  void fill(const DepthPart &part, int64_t panel, float *to) const {
    constexpr int64_t values = line_values(Bits);
    const int64_t run = args.group ? args.group : args.k, at = panel * args.groups();
    const uint8_t *b = args.b + panel * args.panel_bytes() + part.first / values * kLineBytes;
    for (int64_t k = part.first, end = part.first + part.depth; k < end;) {
      const int64_t g = k / run, stop = min64((g + 1) * run, end);
      vf32 scales[kLineVectors] = {}, zeros[kLineVectors] = {};
      for (int j = 0; j < kLineVectors; ++j) {
        if constexpr (!std::is_same<Scale, none>::value) scales[j] = load_float(args.scales + (at + g) * 16 + j * W);
        if constexpr (!std::is_same<Zero, none>::value) zeros[j] = load_float(args.zeros + (at + g) * 16 + j * W);
      }
      for (; k < stop; k += values, b += kLineBytes, to += values * kPanel)
        fill_line(b, to, scales, zeros, std::make_integer_sequence<int, values>());
      k = stop;
    }
  }
  template <int... I>
  static MYCC_INLINE void fill_line(const uint8_t *b, float *to, const vf32 *scales, const vf32 *zeros,
                                    std::integer_sequence<int, I...>) {
    for (int j = 0; j < kLineVectors; ++j) {
      const FloatLine<Bits> line(load((const int32_t *)b + j * W));
      (store(to + I * kPanel + j * W, scaled(centred<Bits, Zero, I>(line, zeros[j]), scales[j])), ...);
    }
  }
  static MYCC_INLINE vf32 scaled(vf32 w, vf32 scales) {
    if constexpr (std::is_same<Scale, none>::value)
      return w;
    else
      return w * scales;
  }
};

template <int Bits, class Scale, class Zero, class Epilogue> struct MixedLoop {
  typedef QuantisedArgs<float, Bits, Scale, Zero> Args;
  const mycc_host *host;
  const Args &args;
  const Epilogue &epilogue;
  DepthCut cut;
  TaskPlan plan;

  static void body(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const MixedLoop &loop = *(const MixedLoop *)arg;
    const Args &args = loop.args;
    const BlockPlan largest = plan_block(loop.cut, loop.plan.rows.most(), loop.plan.panels.most());
    const int64_t panel_size = round_up(loop.cut.step * loop.cut.together, kPanel) * kPanel;
    const size_t panel_bytes = (size_t)(kMaxGroup * panel_size) * sizeof(float);
    void *scratch = loop.host->scratch(loop.host->ctx, worker, panel_bytes + largest.bytes() + 2 * kLineBytes);
    if (!scratch) return;
    Carver carver = {(uint8_t *)scratch};
    float *made = carver.take<float>(panel_bytes), *sums = carver.take<float>(largest.bytes());
    for (int64_t task = begin; task < end; ++task) {
      const TaskPlace place = place_task(loop.plan, args.n, task);
      const BlockRows rows = {args.a + place.row * args.a_row, args.a_row, place.rows};
      const BlockPlan plan = plan_block(loop.cut, place.rows, ceil_div(place.columns, kPanel));
      FloatPanels<Bits, Scale, Zero> panels = {args, place.panel, made, panel_size};
      const FinishRows<Epilogue> finish(loop.epilogue, place, plan);
      multiply_block(loop.cut, plan, rows, panels, place.columns, sums, finish);
    }
  }
};

template <int Bits, class Scale, class Zero, class Epilogue>
inline void gemm_mixed(const mycc_host *host, const QuantisedArgs<float, Bits, Scale, Zero> &args,
                       const Epilogue &epilogue) {
  if (args.m <= 0 || args.n <= 0) return;
  GemmTuning own;
  own.block_bytes *= 2; /* every block of rows makes floats of B again */
  own.together = 1;
  own.group_bytes = own.group_bytes * 2 / 3; /* beside what it is made from */
  const DepthCut cut = cut_depth(args.k, own);
  const TaskPlan plan = plan_tasks(cut, 1, args.m, args.n, host->max_workers, TaskLimits());
  if (args.m <= kMixedRows) {
    FewMixedLoop<Bits, Scale, Zero, Epilogue> loop = {host, args, epilogue, plan};
    host->parallel_for(host->ctx, plan.count, plan.grain, loop.body, &loop);
    return;
  }
  MixedLoop<Bits, Scale, Zero, Epilogue> loop = {host, args, epilogue, cut, plan};
  host->parallel_for(host->ctx, plan.count, plan.grain, loop.body, &loop);
}

} // namespace mycc
#endif /* MYCC_KERNELS_GEMM_MIXED_H */
