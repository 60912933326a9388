/* The kernels of bench/kernels_quantized.py: timed runs of products with integer weights, beside float32's. */
#include "kernels_host.h"

#include "kernels/gemm/integer.h"
#include "kernels/gemm/mixed.h"

namespace {

using namespace mycc;

/* out = sums times a scale of the columns, as generated kernels say it. */
struct Scaled {
  float *out;
  const float *scales;
  int64_t row;

  template <class Sum> void operator()(int64_t, int64_t m, int64_t n, const Sum *acc, int64_t count) const {
    float *to = out + m * row + n;
    int64_t i = 0;
    for (; i + W <= count; i += W) store(to + i, load_float(acc + i) * load(scales + n + i));
    if (i < count) store_tail(to + i, wide(load_tail(acc + i, (int)(count - i))), (int)(count - i));
  }
  static vf32 wide(vf32 x) { return x; }
  static vf32 wide(vi32 x) { return __builtin_convertvector(x, vf32); }
};

struct Product {
  int64_t m, n, k, group;
  const void *a;
  const char *b; /* copies, `bytes` apart */
  int64_t bytes, copies;
  const half *scales;
  float *out;
  const float *column_scales;
};

template <int Bits, class Scale, class A> QuantisedArgs<A, Bits, Scale> operands(const Product &p, int64_t copy) {
  QuantisedArgs<A, Bits, Scale> args = {p.m, p.n, p.k, (const A *)p.a, p.k, {}, (const uint8_t *)p.b + copy * p.bytes};
  if constexpr (!std::is_same<Scale, none>::value) args.group = p.group, args.scales = p.scales;
  return args;
}

} // namespace

extern "C" {

/* Seconds to read `bytes`, on every thread its share: the best of `repeats`, each with the next of `copies`. */
double bench_read(void *host, const char *memory, int64_t bytes, int64_t copies, int repeats) {
  struct Read {
    const char *memory;
    std::atomic<int32_t> sum{0};
  } own = {memory};
  const int64_t piece = 1 << 16;
  const mycc_body body = [](void *arg, int64_t begin, int64_t end, int32_t) {
    Read &read = *(Read *)arg;
    vi32 sums[4] = {};
    for (const char *p = read.memory + begin * piece, *last = read.memory + end * piece; p < last; p += 4 * sizeof(vi32))
    {
      for (int i = 0; i < 4; ++i) sums[i] += *(const vi32 *)(p + i * sizeof(vi32));
      for (int64_t line = 0; line < (int64_t)(4 * sizeof(vi32)); line += 64) __builtin_prefetch(p + 4096 + line);
    }
    read.sum += (sums[0] + sums[1] + sums[2] + sums[3])[0];
  };
  const mycc_host &table = ((Host *)host)->table;
  return best(repeats, copies, [&](int64_t copy) {
    own.memory = memory + copy * bytes;
    table.parallel_for(table.ctx, bytes / piece, 16, body, &own);
  });
}

/* form 0: float32, 1: floats x int8, 2: floats x groups of int4, 3: int8 x int8, 4: int8 x groups of int4, 5: bfloat16. */
double bench_product(void *host, const Product *p, int form, int repeats) {
  const mycc_host *table = &((Host *)host)->table;
  const Scaled epilogue = {p->out, p->column_scales, p->n};
  return best(repeats, p->copies, [&](int64_t copy) {
    if (form == 0) {
      const GemmArgs args = {1, p->m, p->n, p->k, (const float *)p->a, 0, p->k, (const float *)(p->b + copy * p->bytes),
                             0, p->bytes};
      gemm(table, args, epilogue);
    }
    if (form == 1) gemm_mixed(table, operands<8, none, float>(*p, copy), epilogue);
    if (form == 2) gemm_mixed(table, operands<4, half, float>(*p, copy), epilogue);
    if (form == 3) gemm_integer(table, operands<8, none, int8_t>(*p, copy), epilogue);
    if (form == 5) {
      GemmArgsBf16 args = {1, p->m, p->n, p->k, (const float *)p->a, 0, p->k,
                           (const bfloat *)(p->b + copy * p->bytes), 0, p->bytes};
      args.tile_rows = 1;
      gemm(table, args, epilogue);
    }
    if (form == 4) gemm_integer(table, operands<4, half, int8_t>(*p, copy), epilogue);
  });
}

} // extern "C"
