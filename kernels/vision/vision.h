/* vision.h: detection operators: non-maximum suppression and pooling over regions of interest.
 *
 * Routines of lower/core/routines.py. The results follow torchvision's CPU operators (roi_align: He et al., "Mask R-CNN", 2017;
 * roi_pool: Girshick, "Fast R-CNN", 2015; position-sensitive forms: Dai et al., "R-FCN", 2016).
 */
#ifndef MYCC_KERNELS_VISION_VISION_H
#define MYCC_KERNELS_VISION_VISION_H

#include "kernels/loops/loops.h"
#include "kernels/math/math.h"

namespace mycc {

/* kept[i] = 1 where no kept box in front of it overlaps box i by more than *limit (intersection over union).
 *
 * boxes: four rows of n, x1, y1, x2, y2, in the order of falling scores. */
template <class Mask, class T>
inline void nms_block(
    const mycc_host *host, int32_t worker, Mask *kept, const T *boxes, const double *limit, int64_t n) {
  T *area = row_scratch<T>(host, worker, n);
  if (!area) return;
  const T *x1 = boxes, *y1 = x1 + n, *x2 = y1 + n, *y2 = x2 + n;
  const double most = *limit;
  uint8_t *alive = (uint8_t *)kept;
  for (int64_t i = 0; i < n; ++i) area[i] = (x2[i] - x1[i]) * (y2[i] - y1[i]), alive[i] = 1;
  for (int64_t i = 0; i < n; ++i) {
    if (!alive[i]) continue;
    const T left = x1[i], top = y1[i], right = x2[i], bottom = y2[i], own = area[i];
    for (int64_t j = i + 1; j < n; ++j) {
      const T xx1 = left < x1[j] ? x1[j] : left, yy1 = top < y1[j] ? y1[j] : top;
      const T xx2 = x2[j] < right ? x2[j] : right, yy2 = y2[j] < bottom ? y2[j] : bottom;
      const T width = xx2 - xx1, height = yy2 - yy1;
      const T common = (T(0) < width ? width : T(0)) * (T(0) < height ? height : T(0));
      alive[j] &= (uint8_t) !((double)(common / (own + area[j] - common)) > most);
    }
  }
}

namespace regions {

template <class T> constexpr T lowest = T(-__FLT_MAX__);
template <> constexpr double lowest<double> = -__DBL_MAX__;

/* A sample on a line of `size` pixels: the two pixels around it and their weights, which are 0 outside of [-1, size]. */
template <class T> struct Sample {
  int64_t low, high;
  T below, above;
};

template <class T> MYCC_INLINE Sample<T> sample_at(T at, int64_t size) {
  if (!(at >= T(-1) && at <= T(size))) return {0, 0, T(0), T(0)};
  at = at > T(0) ? at : T(0);
  int64_t low = (int64_t)at, high = low + 1;
  if (low >= size - 1) low = high = size - 1, at = (T)low;
  const T rest = at - (T)low;
  return {low, high, T(1) - rest, rest};
}

/* Samples of a bin of a region along one dimension; `fixed` of them, or one for each pixel. Regions that no image could
 * have get as many as an integer holds, for which there is no memory. */
template <class T> MYCC_INLINE int64_t samples_of(T length, int64_t bins, int64_t fixed) {
  if (fixed > 0) return fixed;
  const T each = ceil(length / (T)bins);
  return each >= T(0) ? (each < T(1 << 30) ? (int64_t)each : (int64_t)1 << 30) : 0;
}

template <class T> MYCC_INLINE void place_samples(Sample<T> *to, T start, T length, int64_t bins, int64_t each, int64_t size) {
  const T bin = length / (T)bins;
  for (int64_t b = 0; b < bins; ++b)
    for (int64_t i = 0; i < each; ++i)
      to[b * each + i] = sample_at<T>(start + (T)b * bin + ((T)i + T(.5)) * bin / (T)each, size);
}
} /* namespace regions */

/* One region: out[c, ph, pw] is the mean of bilinear samples in bin (ph, pw).
 *
 * x: images of `channels` x height x width, of which *image is read. region: x1, y1, x2, y2 in pixels. fixed: samples of a
 * bin along a dimension, 0 for one per pixel. least: 1 where a region is at least one pixel long. sensitive: channel
 * (c * bins_y + ph) * bins_x + pw is read for channel c of `results`. */
template <class T, class S>
inline void roi_align_block(
    const mycc_host *host, int32_t worker, T *out, const T *x, const S *region, const int64_t *image, int64_t results,
    int64_t channels, int64_t height, int64_t width, int64_t bins_y, int64_t bins_x, int64_t fixed, int64_t least,
    int64_t sensitive) {
  using regions::Sample;
  S length_x = region[2] - region[0], length_y = region[3] - region[1];
  if (least) length_x = length_x < S(1) ? S(1) : length_x, length_y = length_y < S(1) ? S(1) : length_y;
  const int64_t nx = regions::samples_of(length_x, bins_x, fixed), ny = regions::samples_of(length_y, bins_y, fixed);
  Sample<S> *along_y = row_scratch<Sample<S>>(host, worker, bins_y * ny + bins_x * nx + 1), *along_x = along_y + bins_y * ny;
  if (!along_y) return;
  regions::place_samples(along_y, region[1], length_y, bins_y, ny, height);
  regions::place_samples(along_x, region[0], length_x, bins_x, nx, width);
  const S samples = (S)(nx * ny), count = sensitive || samples > S(1) ? samples : S(1);
  const T *pixels = x + *image * channels * height * width;
  for (int64_t c = 0; c < results; ++c)
    for (int64_t ph = 0; ph < bins_y; ++ph)
      for (int64_t pw = 0; pw < bins_x; ++pw) {
        const T *plane = pixels + (sensitive ? (c * bins_y + ph) * bins_x + pw : c) * height * width;
        S sum = S(0);
        for (const Sample<S> *v = along_y + ph * ny; v < along_y + (ph + 1) * ny; ++v) {
          const T *low = plane + v->low * width, *high = plane + v->high * width;
          for (const Sample<S> *u = along_x + pw * nx; u < along_x + (pw + 1) * nx; ++u)
            if (v->below + v->above != S(0) && u->below + u->above != S(0))
              sum += v->below * u->below * load_scalar(low + u->low) + v->below * u->above * load_scalar(low + u->high) +
                     v->above * u->below * load_scalar(high + u->low) + v->above * u->above * load_scalar(high + u->high);
        }
        store_scalar(out++, sum / count);
      }
}

/* One region in whole pixels: the maximum of each bin and its place in the plane, -1 and 0 of an empty one; with
 * `sensitive` the mean, of the channel that belongs to the bin, and that channel. Bins of a region may overlap.
 *
 * region: x1, y1, x2, y2, rounded. */
template <class T, class S>
inline void roi_pool_block(
    const mycc_host *, int32_t, T *out, int32_t *place, const T *x, const S *region, const int64_t *image, int64_t results,
    int64_t channels, int64_t height, int64_t width, int64_t bins_y, int64_t bins_x, int64_t sensitive) {
  const S x1 = region[0], y1 = region[1];
  const S long_x = region[2] - x1 + (sensitive ? S(0) : S(1)), long_y = region[3] - y1 + (sensitive ? S(0) : S(1));
  const S bin_x = (long_x > S(1) ? long_x : S(1)) / (S)bins_x, bin_y = (long_y > S(1) ? long_y : S(1)) / (S)bins_y;
  /* torchvision's sensitive bins leave out the last row and column */
  const int64_t last_y = height - (sensitive ? 1 : 0), last_x = width - (sensitive ? 1 : 0);
  const auto inside = [](S at, int64_t size) { return at > S(0) ? (at < (S)size ? (int64_t)at : size) : (int64_t)0; };
  const T *pixels = x + *image * channels * height * width;
  for (int64_t c = 0; c < results; ++c)
    for (int64_t ph = 0; ph < bins_y; ++ph)
      for (int64_t pw = 0; pw < bins_x; ++pw) {
        const int64_t top = inside(floor((S)ph * bin_y) + y1, last_y), bottom = inside(ceil((S)(ph + 1) * bin_y) + y1, last_y);
        const int64_t left = inside(floor((S)pw * bin_x) + x1, last_x), right = inside(ceil((S)(pw + 1) * bin_x) + x1, last_x);
        const int64_t channel = sensitive ? (c * bins_y + ph) * bins_x + pw : c;
        const bool empty = bottom <= top || right <= left;
        const T *plane = pixels + channel * height * width;
        S most = empty ? S(0) : sensitive ? S(0) : regions::lowest<S>;
        int32_t at = -1;
        for (int64_t h = top; h < bottom; ++h)
          for (int64_t w = left; w < right; ++w) {
            const S value = load_scalar(plane + h * width + w);
            if (sensitive)
              most += value;
            else if (value > most)
              most = value, at = (int32_t)(h * width + w);
          }
        if (sensitive && !empty) most /= (S)((bottom - top) * (right - left));
        store_scalar(out++, most);
        *place++ = sensitive ? (int32_t)channel : at;
      }
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_VISION_VISION_H */
