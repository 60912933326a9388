/* sequences.h: recurrences over time: recursive filters and connectionist temporal classification.
 *
 * Routines of lower/core/routines.py.
 */
#ifndef MYCC_KERNELS_LINALG_SEQUENCES_H
#define MYCC_KERNELS_LINALG_SEQUENCES_H

#include "kernels/loops/loops.h"
#include "kernels/math/math.h"

namespace mycc {

/* A recursive filter: out[t + order - 1] = x[t] - sum over k of a[k] * out[t + k], with what `before` has in out.
 *
 * x: n values. a: `order` coefficients, that of the oldest value first. before, out: n + order - 1 values. */
template <class T>
inline void recursive_filter(
    const mycc_host *, int32_t, T *out, const T *x, const T *a, const T *before, int64_t n, int64_t order) {
  for (int64_t i = 0; i < n + order - 1; ++i) out[i] = before[i];
  for (int64_t t = 0; t < n; ++t) {
    T sum = x[t];
    for (int64_t k = 0; k < order; ++k) sum -= out[t + k] * a[k];
    out[t + order - 1] = sum;
  }
}

/* The CTC loss of one sequence (Graves et al., 2006, in logarithms): minus the log probability of its labels.
 *
 * probs: log probabilities, [steps][classes]. labels: of all sequences; those of this one begin at *first. lengths: steps
 * of the sequence, and its labels. A state is a label or the blank in front of it or behind the last one. */
template <class T>
inline void ctc_block(
    const mycc_host *host, int32_t worker, T *loss, const T *probs, const int64_t *labels, const int64_t *first,
    const int64_t *lengths, int64_t steps, int64_t classes, int64_t all, int64_t blank) {
  typedef typename element<T>::vector V;
  const T none = -(T)__builtin_inff();
  const int64_t length = lengths[0], count = lengths[1];
  *loss = T(0);
  if (length < 0 || length > steps || count < 0 || *first < 0 || *first > all || count > all - *first) {
    host->fail(host->ctx, MYCC_ERROR_RUN, "a length given to ctc_loss is negative, or larger than its tensor");
    return;
  }
  const int64_t states = 2 * count + 1, room = states + 2 + W;
  T *row = row_scratch<T>(host, worker, 4 * room);
  if (!row) return;
  T *now = row + room, *skip = now + room, *emit = skip + room; /* rows have two states in front that cannot be */
  const auto label = [=](int64_t s) { return s & 1 ? labels[*first + s / 2] : blank; };
  for (int64_t s = 0; s < room; ++s) row[s] = now[s] = skip[s] = none, emit[s] = T(0);
  for (int64_t s = 0; s < states; ++s) {
    if (label(s) < 0 || label(s) >= classes) {
      host->fail(host->ctx, MYCC_ERROR_RUN, "a label given to ctc_loss is not a class");
      return;
    }
    if (s > 1 && label(s) != label(s - 2)) skip[s] = T(0);
  }
  for (int64_t t = 0; t < length; ++t) {
    const T *p = probs + t * classes;
    for (int64_t s = 0; s < states; ++s) emit[s] = p[label(s)];
    if (t == 0)
      for (int64_t s = 0; s < states && s < 2; ++s) now[2 + s] = emit[s];
    else
      for (int64_t s = 0; s < states; s += W) {
        const V same = load(row + 2 + s), next = load(row + 1 + s), past = load(row + s) + load(skip + s);
        const V top = maximum(same, maximum(next, past)), most = where(eq(top, splat(none)), splat(T(0)), top);
        const V sum = log(exp(same - most) + exp(next - most) + exp(past - most)) + most + load(emit + s);
        store_tail(now + 2 + s, sum, (int)(states - s < W ? states - s : W));
      }
    T *other = row;
    row = now, now = other;
  }
  if (length == 0) {
    *loss = count == 0 ? T(0) : -none;
    return;
  }
  const T a = row[states + 1], b = count ? row[states] : none, top = a < b ? b : a, most = top == none ? T(0) : top;
  *loss = -(log(exp(a - most) + exp(b - most)) + most);
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_LINALG_SEQUENCES_H */
