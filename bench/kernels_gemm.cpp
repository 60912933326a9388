/* The kernels of bench/kernels_gemm.py: timed runs of the GEMM headers. */
#include "kernels_host.h"

extern "C" {

/* copies: B is followed by copies - 1 others, `stride` elements apart. */
double bench_gemm(void *host, const mycc::GemmArgs *args, float *out, const float *bias, int repeats, int64_t copies,
                  int64_t stride) {
  const Bias epilogue = {out, bias, args->m * args->n, args->n};
  return best(repeats, copies, [&](int64_t i) {
    mycc::GemmArgs now_args = *args;
    now_args.b += i * stride;
    mycc::gemm(&((Host *)host)->table, now_args, epilogue);
  });
}

double bench_gemm_unpacked(void *host, const mycc::GemmUnpackedArgs *args, float *out, const float *, int repeats,
                       int64_t copies, int64_t stride) {
  const Bias epilogue = {out, nullptr, args->m * args->n, args->n};
  return best(repeats, copies, [&](int64_t i) {
    mycc::GemmUnpackedArgs now_args = *args;
    now_args.b += i * stride;
    mycc::gemm_unpacked(&((Host *)host)->table, now_args, epilogue);
  });
}

} // extern "C"
