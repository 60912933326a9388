/* loops.h: what generated loop kernels share: the parallel loop, task sizes, row scratch, checks of divisors. */
#ifndef MYCC_KERNELS_LOOPS_LOOPS_H
#define MYCC_KERNELS_LOOPS_LOOPS_H

#include <type_traits>
#include <utility>

#include "machine.h"
#include "mycc/abi.h"
#include "kernels/loops/lookup.h"
#include "kernels/vec/vec.h"

namespace mycc {

/* body(begin, end, worker) over [0, n) in chunks of `grain`. A chunk has a copy of what the body captures by value: in
 * registers, as no store can change it. */
template <class Body> inline void parallel(const mycc_host *host, int64_t n, int64_t grain, const Body &body) {
  if (n <= 0) return;
  host->parallel_for(
      host->ctx, n, grain,
      [](void *arg, int64_t begin, int64_t end, int32_t worker) {
        const Body own = *(const Body *)arg;
        own(begin, end, worker);
      },
      (void *)&body);
}

/* Rows per task, so that a task has some `task` elements: by the shape alone. */
MYCC_INLINE int64_t rows_per_task(int64_t elements_of_row, int64_t task = kTaskElements) {
  const int64_t rows = task / (elements_of_row > 0 ? elements_of_row : 1);
  return rows > 1 ? rows : 1;
}

/* Rows per task of a kernel whose pipeline stages run a row apart, or whose rows are streams: more of them where there
 * are many, for the first and the last ones run alone, and streams shall lie far apart. By the shape alone; a choice of
 * the tuner may say how many elements. */
MYCC_INLINE int64_t rows_apart_per_task(int64_t rows, int64_t elements_of_row, int64_t task = 0) {
  if (task > 0) return rows_per_task(elements_of_row, task);
  const int64_t least = rows_per_task(elements_of_row), most = rows_per_task(elements_of_row, kMostPipelined * kTaskElements);
  return rows / kPipelinedTasks < least ? least : rows / kPipelinedTasks < most ? rows / kPipelinedTasks : most;
}

/* A pipeline stage that has its turn, where the compiler shall know. */
struct Always {
  constexpr operator bool() const { return true; }
};

/* A number that is known where it is used. */
template <int64_t V> struct Known {
  static constexpr int64_t value = V;
  constexpr operator int64_t() const { return V; }
};

/* Where the vector behind that of lane i begins: the last one ends with the n lanes. */
MYCC_INLINE int64_t next_vector(int64_t i, int64_t n) {
  return i + 2 * W <= n ? i + W : i + W < n ? n - W : n;
}

/* strip(first, N) for strips of N vectors, at most kLaneVectors, that make up `columns` columns; the last one may have fewer lanes. */
template <int64_t columns, int64_t first = 0, class F> MYCC_INLINE void each_strip_of_lanes(F strip) {
  constexpr int64_t left = (columns - first + W - 1) / W, vectors = left < kLaneVectors ? left : kLaneVectors;
  strip(first, Known<vectors>());
  if constexpr (left > vectors) each_strip_of_lanes<columns, first + vectors * W>(strip);
}

/* Vectors of a row of columns that are walked down together, some lines of memory: accumulators have registers. */
constexpr int vectors_together(int64_t columns, int lines) {
  const int line = 16 * lines / W > 2 ? 16 * lines / W : 2;
  const int64_t vectors = columns / W;
  return vectors % line == 0 ? line : vectors % 3 == 0 ? 3 : 1;
}

/* rows(first, apart, N) for all rows of [begin, end): four at a time that lie as far apart as they can, the last ones
 * alone. N is a constant. */
template <class F> MYCC_INLINE void each_stream_of_rows(int64_t begin, int64_t end, F rows) {
  const int64_t apart = (end - begin) / 4;
  for (int64_t first = begin; first < begin + apart; ++first) rows(first, apart, Known<4>());
  for (int64_t row = begin + 4 * apart; row < end; ++row) rows(row, (int64_t)0, Known<1>());
}

/* The same, one at a time in their order. */
template <class F> MYCC_INLINE void each_row_in_order(int64_t begin, int64_t end, F rows) {
  for (int64_t row = begin; row < end; ++row) rows(row, (int64_t)0, Known<1>());
}

/* The row, or that of [begin, end) which lies next to it. */
MYCC_INLINE int64_t nearest_row(int64_t row, int64_t begin, int64_t end) {
  return row < begin ? begin : row < end ? row : end - 1;
}

/* Whether vectors at multiples of W elements from p are aligned, as non-temporal stores need. */
MYCC_INLINE bool aligned(const void *p) { return (uintptr_t)p % kLineBytes == 0; }
/* The same where a vector is a whole line. */
MYCC_INLINE bool aligned_lines(const void *p) { return W * sizeof(float) >= kLineBytes && aligned(p); }

/* Elements from p on before vectors are aligned, of n at most: less than a vector. */
template <class T> MYCC_INLINE int peel(const T *p, int64_t n) {
  constexpr int VECTOR = W * (int)sizeof(T) < kLineBytes ? W * (int)sizeof(T) : (int)kLineBytes;
  const int64_t front = (int64_t)(-(uintptr_t)p & (uintptr_t)(VECTOR - 1)) / (int64_t)sizeof(T);
  return (int)(front < n ? front : n);
}

/* A block of accumulators: whole vectors, so that it may write up to W - 1 elements behind the n-th. */
template <class T> MYCC_INLINE void fill(T *block, int64_t n, typename element<T>::scalar value) {
  for (int64_t i = 0; i < n; i += W) store(block + i, splat(value));
}

/* Where lanes hold a value; NaN is held by NaN. */
template <class V, class S> MYCC_INLINE vbool holds(V v, S value) { return value == value ? eq(v, value) : isnan(v); }

/* The number of the first lane that is true; W when none is. */
MYCC_INLINE int64_t first_lane(vbool c) { return reduce_min(where(c, lane_numbers(), splat((int32_t)W))); }

/* f(i) for i in [0, n), n at most N; unrolled where it is N. */
template <int N, class F> MYCC_INLINE void each_iteration(int64_t n, F f) {
  if (__builtin_expect(n == N, 1)) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < N; ++i) f(i);
  } else {
    for (int64_t i = 0; i < n; ++i) f(i);
  }
}

/* f(row) for the rows from first to last, `apart` rows from one to the next. */
template <class F> MYCC_INLINE void rows_one_by_one(int64_t first, int64_t last, F f, int64_t apart = 1) {
  for (int64_t row = first; row < last; row += apart) f(row);
}
/* The same; N of them come without a loop, so that their loads from memory start together. */
template <int N, class F> MYCC_INLINE void rows_without_loop(int64_t first, F f, int64_t apart = 1) {
  f(first);
  if constexpr (N > 1) rows_without_loop<N - 1>(first + apart, f, apart);
}
template <int N, class F> MYCC_INLINE void rows_together(int64_t first, int64_t last, F f, int64_t apart = 1) {
  if (__builtin_expect(last - first > (N - 1) * apart && last - first <= N * apart, 1))
    rows_without_loop<N>(first, f, apart);
  else
    rows_one_by_one(first, last, f, apart);
}

/* A block of accumulators of V vectors, in registers. */
template <class T, int V> struct Held {
  decltype(load((const T *)nullptr)) v[V];
};
template <int LINE, int I, class Accumulate, class Prefetch, class... Block>
MYCC_INLINE void accumulate_vector(int64_t row, const Accumulate &accumulate, const Prefetch &prefetch, Block &...block) {
  if constexpr (I % LINE == 0) prefetch(row, I * W);
  accumulate(row, I * W, block.v[I]...);
}
template <int LINE, int... I, class Accumulate, class Prefetch, class... T>
MYCC_INLINE void rows_in_registers(int64_t first, int64_t last, Accumulate accumulate, Prefetch prefetch, std::integer_sequence<int, I...>,
                                   T *...acc) {
  const auto all = [&](auto... block) MYCC_INLINED {
    for (int64_t row = first; row < last; ++row) (accumulate_vector<LINE, I>(row, accumulate, prefetch, block...), ...);
    const auto put = [](auto *to, auto &from) MYCC_INLINED { (store(to + I * W, from.v[I]), ...); };
    (put(acc, block), ...);
  };
  const auto held = [](auto *from) MYCC_INLINED {
    return Held<std::remove_pointer_t<decltype(from)>, sizeof...(I)>{{load(from + I * W)...}};
  };
  all(held(acc)...);
}

/* Vectors of a strip of columns whose accumulators, N of each vector, are held: all strips are as wide. Of several
 * accumulators more are held, for a vector that is read serves all of them. */
template <int64_t vectors, int N> constexpr int64_t held_strip() {
  for (int64_t n = kStripVectors / N; n > 1; --n)
    if (vectors % n == 0) return n;
  return 1;
}
/* Rows from first to last, in the order of memory, are added into blocks of accumulators [columns]: accumulate(row,
 * column, accumulators) a vector. prefetch(row, column) fetches a line of it, of elements of `size` bytes. */
template <int64_t columns, int size, class Accumulate, class Prefetch, class... T>
MYCC_INLINE void rows_in_order(int64_t first, int64_t last, Accumulate accumulate, Prefetch prefetch, T *...acc) {
  constexpr int64_t vectors = columns / W;
  constexpr int line = W * size < kLineBytes ? kLineBytes / (W * size) : 1; /* vectors */
  if constexpr (vectors * sizeof...(T) <= kHeldVectors) {
    rows_in_registers<line>(first, last, accumulate, prefetch, std::make_integer_sequence<int, vectors>(), acc...);
  } else if constexpr (sizeof...(T) > 1 && columns * size <= kStripsRow) {
    constexpr int64_t strip = held_strip<vectors, (int)sizeof...(T)>(), strips = vectors / strip;
    for (int64_t s = 0; s < strips; ++s) {
      const int64_t at = s * strip * W;
      const auto accumulate_strip = [&](int64_t row, int64_t column, auto &...sum) MYCC_INLINED {
        accumulate(row, at + column, sum...);
      };
      /* what is fetched lies in the order of memory all the same */
      const auto prefetch_in_order = [&](int64_t row, int64_t column) MYCC_INLINED {
        const int64_t turn = s * (last - first) + row - first;
        prefetch(first + turn / strips, turn % strips * strip * W + column);
      };
      rows_in_registers<(line < strip ? line : strip)>(first, last, accumulate_strip, prefetch_in_order,
                                                       std::make_integer_sequence<int, strip>(), (acc + at)...);
    }
  } else {
    constexpr int64_t turn = vectors % line == 0 && line > 2 ? line : 2;
    const auto accumulate_next = [&](int64_t row, int64_t column) MYCC_INLINED {
      const auto each = [&](auto... sum) MYCC_INLINED {
        accumulate(row, column, sum...);
        (store(acc + column, sum), ...);
      };
      each(load(acc + column)...);
    };
    for (int64_t row = first; row < last; ++row) {
      int64_t column = 0;
      for (; column + turn * W <= columns; column += turn * W) {
#pragma GCC unroll 4
        for (int64_t i = 0; i < turn; ++i) {
          if (i % line == 0) prefetch(row, column + i * W);
          accumulate_next(row, column + i * W);
        }
      }
      for (; column < columns; column += W) accumulate_next(row, column);
    }
  }
}

/* Each lane's best value so far and its row: a better one takes their place, NaN for good. */
template <class V> MYCC_INLINE void take_better(V &best, vi32 &place, V value, vi32 row, bool larger) {
  const vbool better = ~(larger ? le(value, best) : le(best, value)) & ~isnan(best);
  best = where(better, value, best);
  place = where(better, row, place);
}
/* What STREAMS blocks of `columns` best values and their rows come to, in the first block: an earlier one's rows are
 * earlier. */
template <int STREAMS, int COLUMNS, class T>
MYCC_INLINE void best_of_streams(T *best, int32_t *place, int64_t width, bool larger) {
  for (int64_t c = 0; c < width; c += W) {
    auto first = load(best + c);
    vi32 row = load(place + c);
    for (int64_t at = c + COLUMNS; at < STREAMS * COLUMNS; at += COLUMNS)
      take_better(first, row, load(best + at), load(place + at), larger);
    store(best + c, first);
    store(place + c, row);
  }
}

/* Where the best values of a row were not yet what they are now, the number of the piece that made them so. */
template <class V> MYCC_INLINE void take_piece(vi32 &piece, V before, V now, int32_t number) {
  piece = where(~eq(before, now) & ~isnan(before), splat(number), piece);
}
/* The first piece that holds the best value of all lanes. */
template <class V, class S> MYCC_INLINE int32_t first_piece(vi32 piece, V lanes, S best) {
  return reduce_min(where(holds(lanes, best), piece, splat(INT32_MAX)));
}

/* The smallest number of a lane that is true, lane 0 being `first`. */
MYCC_INLINE void take_place(vi32 &place, vbool found, int32_t first) {
  place = minimum(place, where(found, lane_numbers() + first, splat(INT32_MAX)));
}

MYCC_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* What is known of columns: means, less what the first row holds, so that they keep their digits, and squared deviations
 * from them. */
template <class T, int64_t columns> struct Moments {
  alignas(kLineBytes) T first[columns], mean[columns], squares[columns];

  /* Two rows, or the last one alone, join those before: `weight` is their part of all rows, `between` what the squared
   * distance of their mean counts. */
  template <int rows, class V>
  MYCC_INLINE void join(int64_t column, const V (&value)[rows], float weight, float between) {
    const V known = load(mean + column), apart = value[rows - 1] - value[0], half = apart * 0.5f;
    const V distance = value[0] - load(first + column) + half - known;
    store(mean + column, fma(distance, splat(weight), known));
    store(squares + column, fma(distance * between, distance, fma(half, apart, load(squares + column))));
  }
};

/* Squared deviations from the means of columns [columns]: value(row, column) is a vector of the rows, which lie in the
 * order of memory. prefetch(row, column) fetches a line of it, of elements of `size` bytes. Two rows at a time join
 * those before (Chan, Golub, LeVeque 1979); the squares of kWelfordRows are a sum of their own. */
template <int64_t columns, int size, class Value, class Prefetch, class T>
MYCC_INLINE void welford_in_order(int64_t rows, Value value, Prefetch prefetch, T *squares) {
  constexpr int64_t vectors = columns / W, strip = vectors % 4 == 0 ? 4 : vectors % 2 == 0 ? 2 : 1;
  constexpr int line = W * size < kLineBytes ? kLineBytes / (W * size) : 1; /* vectors */
  Moments<T, columns> known;
  const auto join = [&](auto together, int64_t row) MYCC_INLINED {
    constexpr int N = decltype(together)::value;
    const float all = (float)(row + N), weight = N / all, between = N * (float)row / all;
    for (int64_t column = 0; column < columns; column += strip * W) {
      decltype(value(row, column)) values[strip][N];
#pragma GCC unroll 8
      for (int i = 0; i < strip * N; ++i) {
        const int64_t place = column * N + i * W; /* of both rows, one behind the other */
        if (i % line == 0) prefetch(row + place / columns, place % columns);
        values[i % strip][i / strip] = value(row + i / strip, column + i % strip * W);
      }
#pragma GCC unroll 4
      for (int i = 0; i < strip; ++i) known.join(column + i * W, values[i], weight, between);
    }
  };
  for (int64_t column = 0; column < columns; column += W) store(known.first + column, value(0, column));
  fill(known.mean, columns, 0.0f);
  fill(squares, columns, 0.0f);
  for (int64_t begin = 0; begin < rows; begin += kWelfordRows) {
    const int64_t end = smaller(begin + kWelfordRows, rows);
    fill(known.squares, columns, 0.0f);
    int64_t row = begin;
    for (; row + 2 <= end; row += 2) join(std::integral_constant<int, 2>(), row);
    if (row < end) join(std::integral_constant<int, 1>(), row);
    for (int64_t c = 0; c < columns; c += W) store(squares + c, load(squares + c) + load(known.squares + c));
  }
}

MYCC_INLINE int64_t column_groups(int64_t columns) { return (columns + kColumnGroup - 1) / kColumnGroup; }

/* Groups of a task in which each row's columns go through `work` steps together: the columns of a row stay together
 * but where there are fewer rows than threads want. Columns are independent: how they are cut changes no result. */
MYCC_INLINE int64_t groups_per_task(const mycc_host *host, int64_t rows, int64_t groups, int64_t work) {
  const int64_t parts = rows >= 2 * host->max_workers ? 1 : host->max_workers;
  const int64_t least = rows_per_task(work * kColumnGroup), even = (groups + parts - 1) / parts;
  return least > even ? least : even;
}

/* Regions of a task of a kernel whose pipeline stages run a block apart, for the first blocks and the last ones run
 * alone: some where each thread has several tasks. Blocks are independent: how they are cut changes no result. A choice
 * of the tuner may say how many elements. */
MYCC_INLINE int64_t regions_per_task(const mycc_host *host, int64_t regions, int64_t elements, int64_t task = 0) {
  if (task > 0) return rows_per_task(elements, task);
  const int64_t least = rows_per_task(elements), several = rows_per_task(elements, kMostRegions * kTaskElements);
  const int64_t some = several > kMostRegions ? several : kMostRegions;
  const int64_t even = regions / (kWorkerTasks * host->max_workers);
  return even < least ? least : even < some ? even : some;
}

/* Samples of a task whose pipeline stages run a sample apart, for the first one and the last one run alone: as many as
 * leave each thread some tasks. Samples are independent: how they are cut changes no result. */
MYCC_INLINE int64_t samples_per_task(const mycc_host *host, int64_t samples, int64_t elements, int64_t task = 0) {
  if (task > 0) return rows_per_task(elements, task);
  const int64_t least = rows_per_task(elements), even = samples / (kWorkerTasks * host->max_workers);
  return even < least ? least : even;
}

/* The parts [first, last) of rows of columns that the groups [begin, end) of all rows make up, one after the other. */
struct ColumnRange {
  int64_t begin, end, groups, columns, row, first, last;
  ColumnRange(int64_t begin, int64_t end, int64_t groups, int64_t columns)
      : begin(begin), end(end), groups(groups), columns(columns) {
    place();
  }
  bool more() const { return begin < end; }
  void advance() {
    begin += column_groups(last - first);
    place();
  }

private:
  void place() {
    row = begin / groups, first = (begin - row * groups) * kColumnGroup;
    last = smaller(first + (end - begin) * kColumnGroup, columns);
  }
};

/* Memory of one row of intermediate results; NULL when there is none (the runtime has recorded the failure). */
template <class T> inline T *row_scratch(const mycc_host *host, int32_t worker, int64_t elements) {
  size_t bytes = 0;
  const bool wraps = elements < 0 || __builtin_mul_overflow((size_t)elements, sizeof(T), &bytes);
  return (T *)host->scratch(host->ctx, worker, wraps ? SIZE_MAX : bytes);
}

/* The call fails with `what` when a divisor is 0; the quotient is 0 then. */
template <class T> MYCC_INLINE void check_divisor(const mycc_host *host, T divisor, const char *what) {
  if (__builtin_expect(!all(to_bool(divisor)), 0)) host->fail(host->ctx, MYCC_ERROR_RUN, what);
}
template <class T> MYCC_INLINE void check_divisor(const mycc_host *host, T divisor, const char *what, int lanes) {
  if (__builtin_expect(any(~to_bool(divisor) & first_lanes(lanes)), 0)) host->fail(host->ctx, MYCC_ERROR_RUN, what);
}
MYCC_INLINE void check_divisor(const mycc_host *host, int32_t divisor, const char *what) {
  if (__builtin_expect(divisor == 0, 0)) host->fail(host->ctx, MYCC_ERROR_RUN, what);
}
MYCC_INLINE void check_divisor(const mycc_host *host, int64_t divisor, const char *what) {
  if (__builtin_expect(divisor == 0, 0)) host->fail(host->ctx, MYCC_ERROR_RUN, what);
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_LOOPS_LOOPS_H */
