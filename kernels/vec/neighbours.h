/* neighbours.h: reductions of neighbours, W of them side by side. Included by vec/vec.h.
 *
 *     reduce_neighbours<2>(v, f):   f(v[0][0], v[0][1]) f(v[0][2], v[0][3]) .. f(v[1][0], v[1][1]) ..
 *
 * Within pieces of four lanes, where shuffles are cheapest, the even and the odd lanes of two vectors are combined to
 * one, twice for four neighbours; then the lanes are put in order:
 *
 *     a0 a1 a2 a3 | a4 a5 a6 a7     even and odd     a01 a23 b01 b23 | a45 a67 b45 b67     in order     a01 a23 a45 a67 ..
 *     b0 b1 b2 b3 | b4 b5 b6 b7          ->                                                    ->
 */
#ifndef MYCC_KERNELS_VEC_NEIGHBOURS_H
#define MYCC_KERNELS_VEC_NEIGHBOURS_H

#include "kernels/vec/interleave.h"

namespace mycc {
namespace neighbours {

/* Lane l of the even lanes (ODD: the odd ones) of each piece of two vectors of N lanes. */
template <int N, int ODD> struct alternate {
  static constexpr int lane(int l) { return l / 4 * 4 + l % 4 / 2 * N + l % 2 * 2 + ODD; }
};
/* Where what comes to lane l lies after one round (E is 2) or two of them (E is 4). */
template <int N, int E> struct in_order {
  static constexpr int lane(int l) {
    const int each = N / E, of = l / each, at = l % each; /* the vector, and which of its reductions */
    return E == 2 ? at / 2 * 4 + of * 2 + at % 2 : at * 4 + of;
  }
};
/* The even lanes (ODD: the odd ones) of two vectors, in order. */
template <int N, int ODD> struct every_second {
  static constexpr int lane(int l) { return 2 * l + ODD; }
};

/* As interleave::pick, of floats: one shuffle takes lanes of both. */
template <class At, int... I> MYCC_INLINE vf32 pick(vf32 a, vf32 b, lane_list<I...>) {
#if defined(MYCC_SHUFFLEVECTOR)
  return __builtin_shufflevector(a, b, At::lane(I)...);
#else
  return __builtin_shuffle(a, b, vi32{At::lane(I)...});
#endif
}
template <class At> MYCC_INLINE vf32 pick(vf32 a, vf32 b) { return pick<At>(a, b, typename interleave::counted<W>::list()); }

} /* namespace neighbours */

/* Lane i of E vectors' W results is the reduction of the E lanes from i * E on, counted through all vectors. E: 2, 4 or
 * 8. */
template <int E, class F> MYCC_INLINE vf32 reduce_neighbours(const vf32 *v, F f) {
  using namespace neighbours;
  if constexpr (E == 8) {
    const vf32 a = reduce_neighbours<4>(v, f), b = reduce_neighbours<4>(v + 4, f);
    return f(pick<every_second<W, 0>>(a, b), pick<every_second<W, 1>>(a, b));
  } else {
    vf32 a[E];
#pragma GCC unroll 4
    for (int i = 0; i < E; ++i) a[i] = v[i];
#pragma GCC unroll 2
    for (int n = E / 2; n >= 1; n /= 2)
#pragma GCC unroll 2
      for (int i = 0; i < n; ++i)
        a[i] = f(pick<alternate<W, 0>>(a[2 * i], a[2 * i + 1]), pick<alternate<W, 1>>(a[2 * i], a[2 * i + 1]));
    return pick<in_order<W, E>>(a[0], a[0]);
  }
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_VEC_NEIGHBOURS_H */
