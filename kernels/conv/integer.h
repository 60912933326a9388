/* Depthwise convolution of int8 maps, channels last: exact int32 sums of the taps of each channel.
 *
 * Taps are multiplied in pairs of words, one below the other: bytes of two rows side by side, which all windows that they
 * lie in share. Of an odd number of rows the last one has pairs of neighbours. The weights [pairs][channels] are two words
 * each: of the rows above one another all columns first, then those of the last row; its last column stands alone, as the
 * upper word of a pair with its neighbour.
 *
 * What lies outside of the map is `zero`: rows of it are one row of memory, and the windows at the left and the right
 * border are copied.
 */
#ifndef MYCC_KERNELS_CONV_INTEGER_H
#define MYCC_KERNELS_CONV_INTEGER_H

#include <utility>

#include "kernels/gemm/quads.h"
#include "kernels/loops/loops.h"

namespace mycc {

/* As ConvArgs. */
struct IntegerConvArgs {
  int64_t batch, in_h, in_w, in_c, out_h, out_w, out_c;
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups;
  const int8_t *x;
  int64_t x_batch, x_h, x_w; /* strides in elements */
  const int32_t *w;
  int8_t zero;
};

namespace taps {

#if defined(MYCC_X86)
/* W words of a and of b in turns. */
typedef vi32 Pair;
MYCC_INLINE Pair pair_of(const int8_t *a, const int8_t *b) {
  typedef int8_t bytes __attribute__((vector_size(16)));
#if defined(MYCC_AVX512)
  typedef int16_t wide __attribute__((vector_size(64)));
  bytes v, u;
  __builtin_memcpy(&v, a, 16), __builtin_memcpy(&u, b, 16);
  return (vi32)__builtin_convertvector(
      __builtin_shufflevector(v, u, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12,
                              28, 13, 29, 14, 30, 15, 31),
      wide);
#elif defined(MYCC_AVX2)
  typedef long long eights __attribute__((vector_size(16))); /* of the compilers' conversions some take four instructions */
  long long v, u;
  __builtin_memcpy(&v, a, 8), __builtin_memcpy(&u, b, 8);
  const bytes both = __builtin_shufflevector((bytes)(eights){v, 0}, (bytes)(eights){u, 0}, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5,
                                             21, 6, 22, 7, 23);
  return MYCC_PICK((vi32)__builtin_ia32_pmovsxbw256((quads::c16)both), (vi32)_mm256_cvtepi8_epi16((__m128i)both));
#else
  typedef int16_t wide __attribute__((vector_size(16)));
  int32_t v, u;
  __builtin_memcpy(&v, a, 4), __builtin_memcpy(&u, b, 4);
  const bytes both = __builtin_shufflevector((bytes)(vi32){v, 0, 0, 0}, (bytes)(vi32){u, 0, 0, 0}, 0, 0, 16, 16, 1, 1, 17, 17,
                                             2, 2, 18, 18, 3, 3, 19, 19);
  return (vi32)((wide)both >> 8);
#endif
}
MYCC_INLINE vi32 add(vi32 sum, Pair x, vi32 w) {
#if defined(MYCC_VNNI) && defined(MYCC_AVX512)
  return MYCC_PICK(__builtin_ia32_vpdpwssd_v16si(sum, x, w), (vi32)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)x, (__m512i)w));
#elif defined(MYCC_VNNI)
  return MYCC_PICK(__builtin_ia32_vpdpwssd_v8si(sum, x, w),
                   (vi32)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)x, (__m256i)w));
#else
  return sum + isa::add_pairs(x, w);
#endif
}
#else
struct Pair {
  vi32 a, b;
};
MYCC_INLINE Pair pair_of(const int8_t *a, const int8_t *b) { return {load(a), load(b)}; }
MYCC_INLINE vi32 add(vi32 sum, Pair x, vi32 w) { return sum + x.a * (w << 16 >> 16) + x.b * (w >> 16); }
#endif

/* W channels of P neighbouring windows of H rows and V columns, S columns from one to the next. */
template <int H, int V, int S, int P> struct Tile {
  static constexpr int rows = H / 2;           /* pairs of rows */
  static constexpr int columns = (P - 1) * S + V;
  static constexpr bool odd = H % 2 == 1;      /* whether a row stands alone */

  /* The number among the last row's pairs of the one that begins in column k of a window; -1: none does. */
  static constexpr int last_pair(int k) {
    return k >= 0 && k + 1 < V && k % 2 == 0 ? k / 2 : V % 2 == 1 && k == V - 2 ? V / 2 : -1;
  }
  template <int J, int... I> static constexpr bool begins(std::integer_sequence<int, I...>) {
    return ((last_pair(J - I * S) >= 0) || ...);
  }

  template <int K, int R> static MYCC_INLINE void add_rows(vi32 &sum, Pair x, const int32_t *w, int64_t channels) {
    if constexpr (K >= 0 && K < V) sum = add(sum, x, load(w + (R * V + K) * channels));
  }
  template <int K> static MYCC_INLINE void add_last(vi32 &sum, Pair x, const int32_t *w, int64_t channels) {
    if constexpr (last_pair(K) >= 0) sum = add(sum, x, load(w + (rows * V + last_pair(K)) * channels));
  }
  template <int J, int R, int... I>
  static MYCC_INLINE void add_pair(vi32 *sums, const int8_t *const *x, int64_t at, const int32_t *w, int64_t channels,
                                   std::integer_sequence<int, I...>) {
    const Pair both = pair_of(x[2 * R] + at, x[2 * R + 1] + at);
    (add_rows<J - I * S, R>(sums[I], both, w, channels), ...);
  }
  template <int J, int... I, int... R>
  static MYCC_INLINE void add_column(vi32 *sums, const int8_t *const *x, int64_t at, int64_t step, const int32_t *w,
                                     int64_t channels, std::integer_sequence<int, I...> windows,
                                     std::integer_sequence<int, R...>) {
    (add_pair<J, R>(sums, x, at, w, channels, windows), ...);
    if constexpr (odd && begins<J>(windows)) {
      const Pair both = pair_of(x[H - 1] + at, x[H - 1] + at + step);
      (add_last<J - I * S>(sums[I], both, w, channels), ...);
    }
  }
  template <int... J, int... I>
  static MYCC_INLINE void run(const int8_t *const *x, int64_t step, const int32_t *w, int64_t channels, int64_t c,
                              int32_t *to, std::integer_sequence<int, J...>, std::integer_sequence<int, I...> windows) {
    vi32 sums[] = {((void)I, vi32{})...};
    (add_column<J>(sums, x, c + J * step, step, w + c, channels, windows, std::make_integer_sequence<int, rows>()), ...);
    (store(to + I * channels + c, sums[I]), ...);
  }

  /* All channels, W at least: the last vector overlaps the one before it. x: the rows of the first window. */
  static MYCC_INLINE void run(const int8_t *const *rows_of_x, int64_t step, const int32_t *w, int64_t channels, int32_t *to) {
    const int8_t *x[H];
    for (int r = 0; r < H; ++r) x[r] = rows_of_x[r];
    for (int64_t next = 0; next < channels; next += W)
      run(x, step, w, channels, next < channels - W ? next : channels - W, to, std::make_integer_sequence<int, columns>(),
          std::make_integer_sequence<int, P>());
  }
};

} // namespace taps

/* A row of windows. H, V: rows and columns of one; S: columns from one to the next; P: windows of a tile. */
template <int H, int V, int S, int P, class Epilogue> struct IntegerConvRow {
  const IntegerConvArgs &args;
  const Epilogue &epilogue;
  const int8_t *zeros; /* a row of the map */
  int8_t *border;      /* [H][V][channels] */
  int32_t *sums;       /* [P][channels] */

  void run(int64_t line) const {
    const int64_t top = line % args.out_h * args.stride_h - args.pad_h, m = line * args.out_w;
    const int8_t *map = args.x + line / args.out_h * args.x_batch, *rows[H];
    for (int r = 0; r < H; ++r) rows[r] = top + r >= 0 && top + r < args.in_h ? map + (top + r) * args.x_h : zeros;
    const int64_t reach = args.in_w + args.pad_w - V; /* where the last whole window begins, from the border on */
    const int64_t inside = args.pad_w > 0 ? smaller((args.pad_w + S - 1) / S, args.out_w) : 0;
    const int64_t outside = reach < 0 ? inside : larger(smaller(reach / S + 1, args.out_w), inside);
    for (int64_t i = 0; i < inside; ++i) at_border(rows, m, i);
    int64_t i = inside;
    for (; i + P <= outside; i += P) tile<P>(rows, m, i);
    if constexpr (P > 2)
      for (; i + 2 <= outside; i += 2) tile<2>(rows, m, i);
    for (; i < outside; ++i) tile<1>(rows, m, i);
    for (; i < args.out_w; ++i) at_border(rows, m, i);
  }

private:
  static MYCC_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

  template <int N> void tile(const int8_t *const *rows, int64_t m, int64_t i) const {
    const int8_t *x[H];
    for (int r = 0; r < H; ++r) x[r] = rows[r] + (i * S - args.pad_w) * args.x_w;
    taps::Tile<H, V, S, N>::run(x, args.x_w, args.w, args.out_c, sums);
    finish(m + i, N);
  }
  void at_border(const int8_t *const *rows, int64_t m, int64_t i) const {
    const int8_t *x[H];
    int8_t *to = border;
    for (int r = 0; r < H; ++r) {
      x[r] = to;
      for (int64_t k = 0; k < V; ++k, to += args.out_c) {
        const int64_t at = i * S - args.pad_w + k;
        if (at >= 0 && at < args.in_w)
          __builtin_memcpy(to, rows[r] + at * args.x_w, (size_t)args.out_c);
        else
          __builtin_memset(to, args.zero, (size_t)args.out_c);
      }
    }
    taps::Tile<H, V, S, 1>::run(x, args.out_c, args.w, args.out_c, sums);
    finish(m + i, 1);
  }
  void finish(int64_t m, int64_t count) const {
    const Epilogue own = epilogue; /* a copy that no store of bytes may change */
    for (int64_t i = 0; i < count; ++i) own((int64_t)0, m + i, (int64_t)0, sums + i * args.out_c, args.out_c);
  }
};

/* epilogue(0, m, 0, sums, channels) of each pixel m. */
template <int H, int V, int S, int P, class Epilogue>
inline void conv_integer(const mycc_host *host, const IntegerConvArgs &args, const Epilogue &epilogue) {
  if (args.out_w <= 0 || args.out_c <= 0) return;
  const int64_t grain = rows_per_task(args.out_w * args.out_c);
  parallel(host, args.batch * args.out_h, grain, [=](int64_t begin, int64_t end, int32_t worker) {
    const auto whole = [](int64_t bytes) { return (bytes + 63) & ~(int64_t)63; };
    const int64_t row = whole((args.in_w > 0 ? args.in_w - 1 : 0) * args.x_w + args.out_c);
    const int64_t border = whole(H * V * args.out_c), sums = P * args.out_c * (int64_t)sizeof(int32_t);
    int8_t *scratch = (int8_t *)host->scratch(host->ctx, worker, (size_t)(row + border + sums));
    if (!scratch) return;
    __builtin_memset(scratch, args.zero, (size_t)row);
    const IntegerConvRow<H, V, S, P, Epilogue> lines = {args, epilogue, scratch, scratch + row,
                                                        (int32_t *)(scratch + row + border)};
    for (int64_t line = begin; line < end; ++line) lines.run(line);
  });
}

} // namespace mycc
#endif /* MYCC_KERNELS_CONV_INTEGER_H */
