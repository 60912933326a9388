/* Weights of tests of products with integer weights, in panels as kernels/gemm/quads.h has them. */
#ifndef MYCC_TEST_QUANTISED_WEIGHT_H
#define MYCC_TEST_QUANTISED_WEIGHT_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gemm/quantised.h"

namespace {

using namespace mycc;

int64_t right = 0, wrong = 0;
uint32_t state = 1;
int32_t draw(int32_t low, int32_t high) {
  state = state * 1664525u + 1013904223u;
  return low + (int32_t)((state >> 8) % (uint32_t)(high - low + 1));
}

template <class T> struct Memory {
  T *p;
  explicit Memory(int64_t n) : p((T *)aligned_alloc(64, (size_t)((n * (int64_t)sizeof(T) + 127) / 64 * 64))) {}
  ~Memory() { free(p); }
  T &operator[](int64_t i) const { return p[i]; }
};

/* A weight [n, k], its scales and zeros [n, groups], and all of them in panels. */
template <int Bits> struct Weight {
  int64_t n, k, group, groups, lines;
  Memory<int8_t> w;
  Memory<float> scales, zeros, scale_panels;
  Memory<int8_t> zero_panels;
  Memory<uint8_t> panels;

  Weight(int64_t n, int64_t k, int64_t group)
      : n(n), k(k), group(group), groups(group ? k / group : 1), lines(groups * ceil_div(group ? group : k, 32 / Bits)),
        w(n * k), scales(n * groups), zeros(n * groups), scale_panels(round_up(n, 16) * groups),
        zero_panels(round_up(n, 16) * groups), panels(ceil_div(n, 16) * lines * 64) {
    const int low = -(1 << (Bits - 1)), run = (int)(group ? group : k), values = 32 / Bits;
    memset(panels.p, Bits == 8 ? 0x80 : 0x88, (size_t)(ceil_div(n, 16) * lines * 64));
    for (int64_t i = 0; i < round_up(n, 16) * groups; ++i) scale_panels[i] = NAN, zero_panels[i] = 0;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < k; ++j) {
        const int v = draw(0, 9) ? draw(low, -low - 1) : low;
        const int64_t line = j / run * ceil_div(run, values) + j % run / values, own = j % run % values;
        uint8_t &byte = panels[((i / 16 * lines) + line) * 64 + i % 16 * 4 + own % 4];
        w[i * k + j] = (int8_t)v;
        if (Bits == 8) byte = (uint8_t)(v + 128);
        if (Bits == 4) byte = own < 4 ? (byte & 0xf0) | (v + 8) : (byte & 0x0f) | (v + 8) << 4;
      }
    for (int64_t i = 0; i < n; ++i)
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t at = (i / 16 * groups + g) * 16 + i % 16;
        scale_panels[at] = scales[i * groups + g] = (float)draw(1, 100) / 64;
        zero_panels[at] = (int8_t)draw(-8, 7);
        zeros[i * groups + g] = zero_panels[at];
      }
  }
};

} // namespace
#endif
