#include "../bench/kernels_host.h"
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>
#include "kernels/gemm/integer.h"
using namespace mycc;
struct Store { float *out; const float *s; int64_t row;
  void operator()(int64_t, int64_t m, int64_t n, const int32_t *acc, int64_t count) const {
    for (int64_t i = 0; i + W <= count; i += W) store(out + m * row + n + i, load_float(acc + i) * load(s + n + i)); } };
struct None { float *out;
  void operator()(int64_t, int64_t, int64_t, const int32_t *acc, int64_t count) const {
    for (int64_t i = 0; i + W <= count; i += W) { auto v = load(acc + i); __asm__ volatile("" ::"v"(v)); } } };
int main() {
  syscall(158, 0x1023, 18);
  Host host(1);
  const int64_t cases[][4] = {{128, 768, 768, 768}, {128, 768, 768, 832}, {128, 3072, 768, 768}, {128, 768, 3072, 3072}, {512, 768, 768, 768}, {512, 2048, 2048, 2112}, {3136, 64, 64, 64}, {3136, 256, 64, 64}, {784, 512, 128, 128}};
  std::vector<char> a(4 << 20, 1); char *b = (char *)aligned_alloc(4096, 256 << 20); memset(b, 1, 256 << 20);
  float *out = (float *)aligned_alloc(4096, 16 << 20); float *s = (float *)aligned_alloc(4096, 1 << 16); memset(s, 0, 1 << 16); memset(out, 0, 16 << 20);
  int8_t *pa = (int8_t *)(((uintptr_t)a.data() + 4095) & ~4095ul);
  for (auto &c : cases) {
    const int64_t m = c[0], n = c[1], k = c[2], bytes = n * k, copies = (256 << 20) / bytes;
    const double steps = (double)((m + 31) / 32) * ((n + 31) / 32) * ((k + 63) / 64);
    auto run = [&](int64_t count, auto e) {
      return best(60, count, [&](int64_t i) {
        QuantisedArgs<int8_t, 8> args = {m, n, k, pa, c[3], {}, (const uint8_t *)b + i * bytes};
        gemm_integer(&host.table, args, e); }) * 1e9 / steps; };
    printf("%ld x %ld x %ld row %ld: ns/step (22 is peak) store hot %.0f cold %.0f none hot %.0f cold %.0f\n", m, n, k, c[3],
           run(1, Store{out, s, n}), run(copies, Store{out, s, n}), run(1, None{out}), run(copies, None{out}));
  }
}
