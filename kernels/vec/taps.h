/* taps.h: taps of windows that lie two or more elements apart. Included by vec/vec.h.
 *
 *     load_tap<2>(p, o):   p[o] p[o + 2] p[o + 4] ..
 *
 * Taps of one pair come out of the same whole vectors, which are loaded once, and a tap in front of the first pair is the
 * second one of it, moved up by a lane:
 *
 *     x0 x1 | x2 x3 | x4 x5 | ..     tap 0: x0 x2 x4 ..     tap 1: x1 x3 x5 ..     tap -1: p[-1] x1 x3 ..
 *
 * Every tap by itself would load vectors that lie across two lines of a cache, each line some six times.
 */
#ifndef MYCC_KERNELS_VEC_TAPS_H
#define MYCC_KERNELS_VEC_TAPS_H

#include "kernels/vec/bounds.h"
#include "kernels/vec/neighbours.h"

namespace mycc {
namespace taps {

/* The first lane of one vector, then those of another. */
struct behind {
  static constexpr int lane(int l) { return l == 0 ? 0 : W + l - 1; }
};
template <class Scalar> constexpr bool is_float = false;
template <> inline constexpr bool is_float<float> = true;

/* Whether tap o comes out of groups of E: the compiler knows it where a window's loop is unrolled. */
#define MYCC_IN_GROUPS(T, E, o) (is_float<typename element<T>::scalar> && __builtin_constant_p(o) && (o) >= ((E) == 2 ? -1 : 0))

/* Tap o of groups of E, all of which may be read. */
template <int E, int e, class T> MYCC_INLINE typename element<T>::vector of_groups(const T *p, int64_t o) {
  if constexpr (e + 1 < E)
    if (o % E != e) return of_groups<E, e + 1>(p, o);
  return load_strided<E, e>(p + o - e);
}
/* Tap -1 of pairs; `front` stands before the first of them. */
template <class T> MYCC_INLINE typename element<T>::vector before_pairs(const T *p, typename element<T>::scalar front) {
  if constexpr (is_float<typename element<T>::scalar>)
    return neighbours::pick<behind>(splat(front), load_strided<2, 1>(p));
  else
    return load_every<2>(p - 1);
}

} /* namespace taps */

/* p[o], p[o + E], .. of W windows; the groups of E at p from o on, and tap 0 where o is -1, may be read. */
template <int E, class T> MYCC_INLINE typename element<T>::vector load_tap(const T *p, int64_t o) {
  using namespace taps;
  if (!MYCC_IN_GROUPS(T, E, o)) return load_every<E>(p + o);
  return o < 0 ? before_pairs(p, load_scalar(p - 1)) : of_groups<E, 0>(p, o);
}
/* As load_inside<2>(p + o, at + o, n, other): p belongs to place `at` of a row of n. */
template <class T>
MYCC_INLINE typename element<T>::vector load_tap_inside(
    const T *p, int64_t at, int64_t o, int64_t n, typename element<T>::scalar other = {}) {
  using namespace taps;
  if (!MYCC_IN_GROUPS(T, 2, o) || !bounds::all_inside<2>(at + (o < 0 ? 0 : o), n))
    return load_inside<2>(p + o, at + o, n, other);
  return o < 0 ? before_pairs(p, at > 0 ? load_scalar(p - 1) : other) : of_groups<2, 0>(p, o);
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_VEC_TAPS_H */
