/* The GEMM and convolution kernels behind plain functions for ctypes. Each returns how many elements were misplaced. */
#include "gemm_host.h"
#include "kernels/conv/conv.h"
#include "kernels/conv/chain.h"
#include "kernels/conv/grouped.h"
#include "kernels/conv/nchw.h"
#include "kernels/conv/transposing.h"
#include "kernels/conv/winograd.h"
#include "kernels/gemm/gemm.h"

namespace {

template <class Run>
int64_t record(int threads, float *out, int32_t *seen, int64_t batch, int64_t m, int64_t n, Run run) {
  TestHost host(threads < 0 ? 1 : threads, threads < 0); /* fewer than 0: no scratch memory */
  std::atomic<int64_t> misplaced{0};
  run(&host.table, Record{out, seen, batch, m, n, &misplaced});
  return misplaced;
}

/* A product with a bias and a residual ([m][n]; either may be missing), the result `gap` elements wider than the product.
 * high: sums are bounded by 0 and it; below 0: they are not. */
struct Sums {
  mycc::GemmArgs args;
  const float *bias, *residual;
  int64_t gap;
  float high;
};

struct AddOutside {
  float *out;
  const float *bias, *residual;
  int64_t row;
  float high;

  void operator()(int64_t, int64_t m, int64_t n, const float *acc, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
      float y = acc[i];
      if (bias) y += bias[n + i];
      if (residual) y += residual[m * row + n + i];
      if (high >= 0) y = mycc::minimum(mycc::maximum(y, 0.0f), high);
      out[m * row + n + i] = y;
    }
  }
};

struct AddInTiles : AddOutside {
  mycc::Added added(int64_t, int64_t m, int64_t n) const {
    const float *b = bias ? bias + n : nullptr, *r = residual ? residual + m * row + n : nullptr;
    return {out + m * row + n, b, r, row, row, high >= 0, 0.0f, high};
  }
};

/* Records the sums of columns and, `partners` columns behind them, those of their partners. */
struct RecordGlu {
  Record to;
  int64_t partners;

  void operator()(int64_t z, int64_t m, int64_t n, const float *acc, const float *other, int64_t count) const {
    to(z, m, n, acc, count);
    to(z, m, n + partners, other, count);
  }
};

/* A convolution with a bias and a residual, bounded as Sums. */
struct ConvSums {
  mycc::ConvArgs args;
  const float *bias, *residual;
  float high;
};

/* The arguments of a chain; what is missing has no input channels. */
struct ChainArgs {
  mycc::ConvArgs expand, depthwise, project;
};

/* What a chain hands on is rectified, so that a wrong order of the two would show. */
struct Rectified {
  void operator()(int64_t, int64_t, int64_t n, const float *acc, int64_t count, float *to) const {
    for (int64_t i = 0; i < count; ++i) to[n + i] = acc[i] > 0 ? acc[i] : 0;
  }
};
struct RectifiedInTiles : Rectified {
  mycc::Added added(int64_t, int64_t, int64_t n, float *to) const {
    return {to + n, nullptr, nullptr, 0, 0, true, 0.0f, __builtin_inff()};
  }
};

template <class Inside>
int64_t chain(int threads, const ChainArgs &args, float *out, int32_t *seen) {
  const mycc::ConvArgs &a = args.expand, &b = args.depthwise, &c = args.project;
  const int64_t channels = c.in_c ? c.out_c : b.out_c;
  return record(threads, out, seen, 1, b.batch * b.out_h * b.out_w, channels,
                [&](const mycc_host *host, const Record &to) {
                  if (a.in_c && c.in_c) mycc::conv_chain(host, a, b, c, Inside{}, Inside{}, to);
                  else if (a.in_c) mycc::conv_chain(host, a, b, c, Inside{}, to, mycc::NoConv{});
                  else mycc::conv_chain(host, a, b, c, mycc::NoConv{}, Inside{}, to);
                });
}

} // namespace

extern "C" {

int64_t test_gemm(int threads, const mycc::GemmArgs *args, float *out, int32_t *seen) {
  return record(threads, out, seen, args->batch, args->m, args->n,
                [&](const mycc_host *host, const Record &to) { mycc::gemm(host, *args, to); });
}

int64_t test_gemm_adds(int threads, const Sums *sums, float *out, int in_tiles) {
  TestHost host(threads);
  const AddOutside outside = {out, sums->bias, sums->residual, sums->args.n + sums->gap, sums->high};
  if (in_tiles) mycc::gemm(&host.table, sums->args, AddInTiles{outside});
  else mycc::gemm(&host.table, sums->args, outside);
  return 0;
}

int64_t test_conv_adds(int threads, const ConvSums *sums, float *out, int in_tiles) {
  TestHost host(threads);
  const mycc::ConvArgs &args = sums->args;
  const AddOutside outside = {out, sums->bias, sums->residual, args.out_c, sums->high};
  const bool depthwise = args.groups > 1 && args.groups == args.out_c;
  if (depthwise && in_tiles) mycc::conv_depthwise(&host.table, args, AddInTiles{outside});
  else if (depthwise) mycc::conv_depthwise(&host.table, args, outside);
  else if (in_tiles) mycc::conv(&host.table, args, AddInTiles{outside});
  else mycc::conv(&host.table, args, outside);
  return 0;
}

int64_t test_gemm_bf16(int threads, const mycc::GemmArgsBf16 *args, float *out, int32_t *seen) {
  return record(threads, out, seen, args->batch, args->m, args->n,
                [&](const mycc_host *host, const Record &to) { mycc::gemm(host, *args, to); });
}

int64_t test_gemm_f16(int threads, const mycc::GemmArgsF16 *args, float *out, int32_t *seen) {
  return record(threads, out, seen, args->batch, args->m, args->n,
                [&](const mycc_host *host, const Record &to) { mycc::gemm(host, *args, to); });
}

int64_t test_gemm_rows(int threads, const mycc::GemmArgs *args, float *out, int32_t *seen) {
  auto rows = [&](int64_t z, int64_t m, int64_t k0, int64_t count, float *to) {
    for (int64_t i = 0; i < count; ++i) to[i] = args->a[z * args->a_batch + m * args->a_row + k0 + i];
  };
  return record(threads, out, seen, args->batch, args->m, args->n,
                [&](const mycc_host *host, const Record &to) { mycc::gemm_rows(host, *args, rows, to); });
}

/* args->n: columns of both sides. */
int64_t test_gemm_glu(int threads, const mycc::GemmArgs *args, float *out, int32_t *seen) {
  return record(threads, out, seen, args->batch, args->m, args->n, [&](const mycc_host *host, const Record &to) {
    mycc::GemmArgs halves = *args;
    halves.n /= 2;
    mycc::gemm_glu(host, halves, RecordGlu{to, halves.n});
  });
}

int64_t test_gemm_unpacked(int threads, const mycc::GemmUnpackedArgs *args, float *out, int32_t *seen) {
  return record(threads, out, seen, args->batch0 * args->batch1, args->m, args->n,
                [&](const mycc_host *host, const Record &to) { mycc::gemm_unpacked(host, *args, to); });
}

int64_t test_conv(int threads, const mycc::ConvArgs *args, float *out, int32_t *seen) {
  return record(threads, out, seen, 1, args->frames() * args->out_h * args->out_w, args->out_c,
                [&](const mycc_host *host, const Record &to) { mycc::conv(host, *args, to); });
}

int64_t test_conv_grouped(int threads, const mycc::ConvArgs *args, float *out, int32_t *seen) {
  return record(threads, out, seen, 1, args->frames() * args->out_h * args->out_w, args->out_c,
                [&](const mycc_host *host, const Record &to) { mycc::conv_grouped(host, *args, to); });
}

int64_t test_conv_nchw(int threads, const mycc::ConvArgs *args, float *out, int32_t *seen) {
  return record(threads, out, seen, 1, args->frames() * args->out_c * args->out_h, args->out_w,
                [&](const mycc_host *host, const Record &to) { mycc::conv_nchw(host, *args, to); });
}

int64_t test_conv_transposing(int threads, const mycc::ConvArgs *args, float *out, int32_t *seen) {
  return record(threads, out, seen, 1, args->frames() * args->out_c, args->out_h * args->out_w,
                [&](const mycc_host *host, const Record &to) { mycc::conv_transposing(host, *args, to); });
}

#define MYCC_TEST_WINOGRAD(name, ...)                                                                              \
  int64_t test_conv_##name(int threads, const mycc::ConvArgs *args, float *out, int32_t *seen) {                   \
    const auto run = [&](const mycc_host *host, const Record &to) {                                                \
      mycc::conv_winograd<__VA_ARGS__>(host, *args, to);                                                           \
    };                                                                                                             \
    return record(threads, out, seen, 1, args->frames() * args->out_h * args->out_w, args->out_c, run);            \
  }
MYCC_TEST_WINOGRAD(winograd2, 2, 1)
MYCC_TEST_WINOGRAD(winograd3, 3, 1)
MYCC_TEST_WINOGRAD(winograd3taps, 3, 1, true)
MYCC_TEST_WINOGRAD(winograd4, 4, 1)
MYCC_TEST_WINOGRAD(winograd2s2, 2, 2)

int64_t test_conv_depthwise(int threads, const mycc::ConvArgs *args, float *out, int32_t *seen) {
  return record(threads, out, seen, 1, args->batch * args->out_h * args->out_w, args->out_c,
                [&](const mycc_host *host, const Record &to) { mycc::conv_depthwise(host, *args, to); });
}

int64_t test_conv_chain(int threads, const ChainArgs *args, float *out, int32_t *seen) {
  return chain<Rectified>(threads, *args, out, seen);
}

int64_t test_conv_chain_adds(int threads, const ChainArgs *args, float *out, int32_t *seen) {
  return chain<RectifiedInTiles>(threads, *args, out, seen);
}

/* What the busiest of several workers gets of a product, in percent of an equal part. */
int64_t test_busiest_share(int64_t m, int64_t n, int64_t k, int64_t workers) {
  const mycc::TaskPlan plan = mycc::plan_tasks(mycc::cut_depth(k), 1, m, n, workers, mycc::TaskLimits());
  return 100 * workers * plan.busiest(workers) / (plan.rows.size * plan.panels.size);
}

} // extern "C"
