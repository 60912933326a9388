/* memory.h: loads, stores and gathers of every storage type. Included by vec/vec.h.
 *
 * A load gives the compute type of what lies in memory: half, bfloat -> vf32; i8, u8, i16 -> vi32; boolean -> vbool.
 * A store takes the compute type and rounds (to nearest even) or wraps. `n` of the _part forms is in [0, W]; lanes from
 * n on load as 0 and nothing behind the n-th element is read or written.
 */
#ifndef MYCC_KERNELS_VEC_MEMORY_H
#define MYCC_KERNELS_VEC_MEMORY_H

#include "kernels/vec/isa.h"

namespace mycc {

/* Fetches the line at p: into L1 what continues a stream, which the hardware has in L2 by then; into L2 what it does not
 * find by itself, as a core can have twice as many lines on their way there (docs/decisions/0057). The empty statement
 * keeps it: calls of functions that only prefetch are deleted. */
MYCC_INLINE void prefetch_l1(const void *p) {
  __builtin_prefetch(p, 0, 3);
  __asm__ volatile("");
}
MYCC_INLINE void prefetch_l2(const void *p) {
  __builtin_prefetch(p, 0, 2);
  __asm__ volatile("");
}

/* From the lanes of a storage type to the compute type, and back. */
namespace storage {
MYCC_INLINE vi32 widen(vi8 v) { return isa::widen(v); }
MYCC_INLINE vi32 widen(vu8 v) { return isa::widen(v); }
MYCC_INLINE vi8 narrow8(vi32 v) { return isa::narrow8(v); }
MYCC_INLINE vi32 widen(vi16 v) { return isa::widen(v); }
MYCC_INLINE vi32 widen(vu16 v) { return isa::widen(v); }
MYCC_INLINE vf32 from_bfloat(vi16 v) { return from_bits(widen((vu16)v) << 16); }
MYCC_INLINE vi16 to_bfloat(vf32 x) { return isa::to_bfloat(x); }
} /* namespace storage */

/* The types that belong to a storage type T: `vector` and `scalar` to compute with, `stored` for W elements as they lie
 * in memory, `raw` for one of them. */
template <class T> struct element;
template <> struct element<float> {
  typedef vf32 vector; typedef float scalar; typedef vf32 stored; typedef float raw;
  static MYCC_INLINE vector widen(stored v) { return v; }
  static MYCC_INLINE stored narrow(vector v) { return v; }
  static MYCC_INLINE stored part(const void *p, int n) { return (stored)isa::load_tail32(p, n); }
  static MYCC_INLINE void put(void *p, stored v, int n) { isa::store_tail32(p, (vi32)v, n); }
};
template <> struct element<int32_t> {
  typedef vi32 vector; typedef int32_t scalar; typedef vi32 stored; typedef int32_t raw;
  static MYCC_INLINE vector widen(stored v) { return v; }
  static MYCC_INLINE stored narrow(vector v) { return v; }
  static MYCC_INLINE stored part(const void *p, int n) { return isa::load_tail32(p, n); }
  static MYCC_INLINE void put(void *p, stored v, int n) { isa::store_tail32(p, v, n); }
};
template <> struct element<double> {
  typedef vf64 vector; typedef double scalar; typedef vf64 stored; typedef double raw;
  static MYCC_INLINE vector widen(stored v) { return v; }
  static MYCC_INLINE stored narrow(vector v) { return v; }
  static MYCC_INLINE stored part(const void *p, int n) { return from_bits(isa::load_tail64(p, n)); }
  static MYCC_INLINE void put(void *p, stored v, int n) { isa::store_tail64(p, bits(v), n); }
};
template <> struct element<int64_t> {
  typedef vi64 vector; typedef int64_t scalar; typedef vi64 stored; typedef int64_t raw;
  static MYCC_INLINE vector widen(stored v) { return v; }
  static MYCC_INLINE stored narrow(vector v) { return v; }
  static MYCC_INLINE stored part(const void *p, int n) { return isa::load_tail64(p, n); }
  static MYCC_INLINE void put(void *p, stored v, int n) { isa::store_tail64(p, v, n); }
};
template <> struct element<int16_t> {
  typedef vi32 vector; typedef int32_t scalar; typedef vi16 stored; typedef int16_t raw;
  static MYCC_INLINE vector widen(stored v) { return storage::widen(v); }
  static MYCC_INLINE stored narrow(vector v) { return __builtin_convertvector(v, vi16); }
  static MYCC_INLINE stored part(const void *p, int n) { return isa::load_tail16(p, n); }
  static MYCC_INLINE void put(void *p, stored v, int n) { isa::store_tail16(p, v, n); }
};
template <> struct element<int8_t> {
  typedef vi32 vector; typedef int32_t scalar; typedef vi8 stored; typedef int8_t raw;
  static MYCC_INLINE vector widen(stored v) { return storage::widen(v); }
  static MYCC_INLINE stored narrow(vector v) { return storage::narrow8(v); }
  static MYCC_INLINE stored part(const void *p, int n) { return isa::load_tail8(p, n); }
  static MYCC_INLINE void put(void *p, stored v, int n) { isa::store_tail8(p, v, n); }
};
template <> struct element<uint8_t> {
  typedef vi32 vector; typedef int32_t scalar; typedef vu8 stored; typedef uint8_t raw;
  static MYCC_INLINE vector widen(stored v) { return storage::widen(v); }
  static MYCC_INLINE stored narrow(vector v) { return (vu8)storage::narrow8(v); }
  static MYCC_INLINE stored part(const void *p, int n) { return (vu8)isa::load_tail8(p, n); }
  static MYCC_INLINE void put(void *p, stored v, int n) { isa::store_tail8(p, (vi8)v, n); }
};
template <> struct element<boolean> {
  typedef vbool vector; typedef bool scalar; typedef vu8 stored; typedef uint8_t raw;
  static MYCC_INLINE vector widen(stored v) { return {storage::widen(v) != 0}; }
  static MYCC_INLINE stored narrow(vector v) { return (vu8)storage::narrow8(v.m & 1); }
  static MYCC_INLINE stored part(const void *p, int n) { return (vu8)isa::load_tail8(p, n); }
  static MYCC_INLINE void put(void *p, stored v, int n) { isa::store_tail8(p, (vi8)v, n); }
};
template <> struct element<half> {
  typedef vf32 vector; typedef float scalar; typedef vi16 stored; typedef int16_t raw;
  static MYCC_INLINE vector widen(stored v) { return isa::from_half(v); }
  static MYCC_INLINE stored narrow(vector v) { return isa::to_half(v); }
  static MYCC_INLINE stored part(const void *p, int n) { return isa::load_tail16(p, n); }
  static MYCC_INLINE void put(void *p, stored v, int n) { isa::store_tail16(p, v, n); }
};
template <> struct element<bfloat> {
  typedef vf32 vector; typedef float scalar; typedef vi16 stored; typedef int16_t raw;
  static MYCC_INLINE vector widen(stored v) { return storage::from_bfloat(v); }
  static MYCC_INLINE stored narrow(vector v) { return storage::to_bfloat(v); }
  static MYCC_INLINE stored part(const void *p, int n) { return isa::load_tail16(p, n); }
  static MYCC_INLINE void put(void *p, stored v, int n) { isa::store_tail16(p, v, n); }
};

/* Raw lanes from and to memory; pairs register by register, so that they never take the way over the stack. */
namespace storage {
template <class V> MYCC_INLINE void read(const void *p, V &v) { __builtin_memcpy(&v, p, sizeof v); }
template <class V> MYCC_INLINE void write(void *p, V v) { __builtin_memcpy(p, &v, sizeof v); }
template <class V> MYCC_INLINE void read_pair(const void *p, V &v) {
  read(p, v.lo);
  read((const char *)p + sizeof v.lo, v.hi);
}
template <class V> MYCC_INLINE void write_pair(void *p, V v) {
  write(p, v.lo);
  write((char *)p + sizeof v.lo, v.hi);
}
template <class V> MYCC_INLINE void stream(void *p, V v) { isa::stream(p, v); }
template <class V> MYCC_INLINE void stream_pair(void *p, V v) {
  isa::stream(p, v.lo);
  isa::stream((char *)p + sizeof v.lo, v.hi);
}
MYCC_INLINE void stream(void *p, vf64 v) { stream_pair(p, v); }
MYCC_INLINE void stream(void *p, vi64 v) { stream_pair(p, v); }
MYCC_INLINE void read(const void *p, vf64 &v) { read_pair(p, v); }
MYCC_INLINE void read(const void *p, vi64 &v) { read_pair(p, v); }
MYCC_INLINE void write(void *p, vf64 v) { write_pair(p, v); }
MYCC_INLINE void write(void *p, vi64 v) { write_pair(p, v); }
/* Has all lanes in a register, where there are masked loads. */
template <class V> MYCC_INLINE void have_whole(V &) {}
#if MYCC_LANES == 16
MYCC_INLINE void have_whole(vf32 &v) { __asm__("" : "+v"(v)); }
MYCC_INLINE void have_whole(vi32 &v) { __asm__("" : "+v"(v)); }
#endif
} /* namespace storage */

template <class T> MYCC_INLINE typename element<T>::vector load(const T *p) {
  typename element<T>::stored v;
  storage::read(p, v);
  return element<T>::widen(v);
}
template <class T> MYCC_INLINE typename element<T>::vector load_tail(const T *p, int n) {
  return element<T>::widen(element<T>::part(p, n));
}
/* Of all lanes, where some alone may be taken. Compilers mask such a load, and lines of which nothing is taken are not
 * read: a stream with gaps is not prefetched (docs/decisions/0067). */
template <class T> MYCC_INLINE typename element<T>::vector load_whole(const T *p) {
  auto v = load(p);
  storage::have_whole(v);
  return v;
}
template <class T> MYCC_INLINE void store(T *p, typename element<T>::vector v) {
  storage::write(p, element<T>::narrow(v));
}
/* The same by non-temporal stores, when `streams`: for results much larger than the caches, p aligned to W elements. */
template <class T> MYCC_INLINE void store(T *p, typename element<T>::vector v, bool streams) {
  if (streams)
    storage::stream(p, element<T>::narrow(v));
  else
    store(p, v);
}
template <class T> MYCC_INLINE void store_tail(T *p, typename element<T>::vector v, int n) {
  element<T>::put(p, element<T>::narrow(v), n);
}

/* One element, in its compute type. */
template <class T> MYCC_INLINE typename element<T>::scalar load_scalar(const T *p) { return *p; }
template <> MYCC_INLINE float load_scalar<half>(const half *p) {
  return isa::from_half(build<vi16>([=](int) MYCC_INLINED { return (int16_t)p->bits; }))[0];
}
template <> MYCC_INLINE float load_scalar<bfloat>(const bfloat *p) { return from_bits((int32_t)p->bits << 16); }
template <> MYCC_INLINE bool load_scalar<boolean>(const boolean *p) { return p->byte != 0; }
template <class T> MYCC_INLINE void store_scalar(T *p, typename element<T>::scalar v) { *p = (T)v; }
template <> MYCC_INLINE void store_scalar<boolean>(boolean *p, bool v) { p->byte = v ? 1 : 0; }
template <> MYCC_INLINE void store_scalar<half>(half *p, float v) {
  p->bits = (uint16_t)isa::to_half(splat(v))[0];
}
template <> MYCC_INLINE void store_scalar<bfloat>(bfloat *p, float v) {
  p->bits = (uint16_t)storage::to_bfloat(splat(v))[0];
}

namespace storage {
template <class T> MYCC_INLINE typename element<T>::raw raw(const T *p) {
  typename element<T>::raw r;
  __builtin_memcpy(&r, p, sizeof r);
  return r;
}
} /* namespace storage */

/* p[0], p[stride], .. p[(W - 1) * stride]. */
template <class T> MYCC_INLINE typename element<T>::vector gather(const T *p, int64_t stride) {
  return element<T>::widen(build<typename element<T>::stored>(
      [=](int i) MYCC_INLINED { return storage::raw(p + i * stride); }));
}
/* p[index[0]], .. p[index[W - 1]]. */
template <class T> MYCC_INLINE typename element<T>::vector gather_at(const T *p, vi64 index) {
  return element<T>::widen(build<typename element<T>::stored>(
      [=](int i) MYCC_INLINED { return storage::raw(p + index[i]); }));
}
/* The same with the places in memory: faster than to take them out of registers. */
template <class T> MYCC_INLINE typename element<T>::vector gather_at(const T *p, const int64_t *index) {
  return element<T>::widen(build<typename element<T>::stored>(
      [=](int i) MYCC_INLINED { return storage::raw(p + index[i]); }));
}
/* The first n lanes of a gather; the tail of a loop, so plain loads one by one do. */
template <class T> MYCC_INLINE typename element<T>::vector gather_tail(const T *p, int64_t stride, int n) {
  typename element<T>::raw lanes[W] = {};
  for (int i = 0; i < n; ++i) lanes[i] = storage::raw(p + i * stride);
  typename element<T>::stored v;
  storage::read(lanes, v);
  return element<T>::widen(v);
}
template <class T> MYCC_INLINE typename element<T>::vector gather_at_tail(const T *p, vi64 index, int n) {
  typename element<T>::raw lanes[W] = {};
  int64_t at[W];
  store(at, index);
  for (int i = 0; i < n; ++i) lanes[i] = storage::raw(p + at[i]);
  typename element<T>::stored v;
  storage::read(lanes, v);
  return element<T>::widen(v);
}
/* The reverse of gather and gather_tail: p[i * stride] = v[i]. */
template <class T> MYCC_INLINE void scatter_tail(T *p, int64_t stride, typename element<T>::vector v, int n) {
  typename element<T>::raw lanes[W];
  storage::write(lanes, element<T>::narrow(v));
  for (int i = 0; i < n; ++i) __builtin_memcpy((void *)(p + i * stride), &lanes[i], sizeof lanes[i]);
}
template <class T> MYCC_INLINE void scatter(T *p, int64_t stride, typename element<T>::vector v) {
  scatter_tail(p, stride, v, W);
}

} /* namespace mycc */
#endif /* MYCC_KERNELS_VEC_MEMORY_H */
