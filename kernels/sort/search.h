/* search.h: places of values in sorted rows. Routines of lower/core/routines.py. */
#ifndef MYCC_KERNELS_SORT_SEARCH_H
#define MYCC_KERNELS_SORT_SEARCH_H

#include "machine.h"
#include "kernels/loops/loops.h"

namespace mycc {
namespace searching {

/* Halves the ranges of N values until they are empty. The steps are torch's, so that rows that are not sorted or hold NaN
 * give its results too. */
template <int N, bool RIGHT, class Place, class T>
MYCC_INLINE void search(Place *places, const T *edges, const T *values, int64_t m) {
  typename element<T>::scalar value[N];
  int64_t start[N], length[N];
  each_iteration<N>(N, [&](int64_t i) MYCC_INLINED { value[i] = load_scalar(values + i), start[i] = 0, length[i] = m; });
  for (int64_t most = m; most > 0; most >>= 1)
    each_iteration<N>(N, [&](int64_t i) MYCC_INLINED {
      const int64_t half = length[i] >> 1, middle = start[i] + half;
      const auto edge = load_scalar(edges + (middle - (middle == m)));
      const bool below = RIGHT ? !(edge > value[i]) : !(edge >= value[i]);
      const int64_t up = -(int64_t)(below & (length[i] > 0)); /* a branch would be guessed wrong half of the time */
      start[i] += (half + 1) & up;
      length[i] = half + ((length[i] - 2 * half - 1) & up);
    });
  each_iteration<N>(N, [&](int64_t i) MYCC_INLINED { places[i] = (Place)start[i]; });
}

template <bool RIGHT, class Place, class T>
inline void search_row(Place *places, const T *edges, const T *values, int64_t m, int64_t n) {
  int64_t i = 0;
  for (; i + kSearches <= n; i += kSearches) search<kSearches, RIGHT>(places + i, edges, values + i, m);
  for (; i < n; ++i) search<1, RIGHT>(places + i, edges, values + i, m);
}
} /* namespace searching */

/* places[i]: how many of the m sorted edges lie below values[i], or at it when `right`; n values. */
template <class Place, class T>
inline void search_block(const mycc_host *, int32_t, Place *places, const T *edges, const T *values, int64_t m, int64_t n,
                         int64_t right) {
  if (right)
    searching::search_row<true>(places, edges, values, m, n);
  else
    searching::search_row<false>(places, edges, values, m, n);
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_SORT_SEARCH_H */
