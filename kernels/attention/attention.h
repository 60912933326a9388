/* attention.h: softmax(scale * Q K^T + score) V on the CPU, worked out in float32, without ever writing the score matrix.
 *
 * Two ways, chosen by the shape alone:
 *   packed   for many query rows. A task owns a run of query rows of a (batch, key head) and walks over blocks of keys.
 *            It packs K^T and V of a block into panels of 16 columns, once; S = Q K^T and O += P V run through the
 *            register tiles of the GEMM, or O through tiles that make P out of S on the way. The softmax is online over
 *            the blocks (Milakov & Gimelshein, arXiv 1805.02867; Dao et al., arXiv 2205.14135); with a single block it
 *            is the plain one. Short queries and keys bound their scores, so that no maximum is needed.
 *   direct   for a few rows (decoding), where no logsumexp is wanted. K and V are read once, where they lie, at the speed
 *            of memory.
 *
 * A query row is computed by the same operations in the same order wherever the tasks are cut, so that the result does
 * not depend on the number of threads.
 *
 * Special values: a row that sees no key, or whose scores are all -inf, gives zeros. A score that is NaN or +inf makes
 * NaN of its row. A value row that is not finite makes NaN of the queries that mask it (0 * inf), except where `causal`
 * skips a tile as a whole, or a score with `kHides` a block of keys.
 */
#ifndef MYCC_KERNELS_ATTENTION_ATTENTION_H
#define MYCC_KERNELS_ATTENTION_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#include "mycc/abi.h"
#include "kernels/attention/direct.h"
#include "kernels/attention/packed.h"
#include "kernels/attention/rows.h"
#include "kernels/attention/softmax.h"

namespace mycc {
namespace attention_detail {

template <class Element, class Score> struct Job {
  const mycc_host *host;
  const AttentionArgsOf<Element> *args;
  const Score *score;
  int64_t chunk, chunks; /* rows of a task; tasks of a (batch, key head) */

  /* Task i: all products of the last chunk, then of the one before: causal gives late rows more work. */
  RowsOf<Element> rows(int64_t i) const {
    const int64_t products = args->batch * args->kv_heads, product = i % products;
    const int64_t first = (chunks - 1 - i / products) * chunk, all = args->heads / args->kv_heads * args->queries;
    return {*args, product / args->kv_heads, product % args->kv_heads, first, min64(chunk, all - first)};
  }
  void start(mycc_body body) { host->parallel_for(host->ctx, args->batch * args->kv_heads * chunks, 1, body, this); }
};

template <class Element, class Score> struct PackedJob : Job<Element, Score> {
  PackedPlan plan;

  static void run(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const PackedJob &job = *(const PackedJob *)arg;
    PackedScratch scratch;
    const size_t bytes = scratch.place(*job.args, job.plan, nullptr);
    void *memory = job.host->scratch(job.host->ctx, worker, bytes);
    if (!memory) return;
    scratch.place(*job.args, job.plan, memory);
    for (int64_t i = begin; i < end; ++i) attend_packed(job.rows(i), *job.score, job.plan, scratch);
  }
};

template <class Element, class Score> struct DirectJob : Job<Element, Score> {
  static void run(void *arg, int64_t begin, int64_t end, int32_t worker) {
    const DirectJob &job = *(const DirectJob *)arg;
    DirectScratch scratch;
    void *memory = job.host->scratch(job.host->ctx, worker, scratch.place(*job.args, nullptr));
    if (!memory) return;
    scratch.place(*job.args, memory);
    for (int64_t i = begin; i < end; ++i) attend_direct(job.rows(i), *job.score, scratch);
  }
};

} // namespace attention_detail

/* Computes args.out, which must not overlap the inputs. Where the host has no scratch memory it has recorded the
 * failure, and what `out` holds is undefined. */
template <class Element, class Score>
void attention(const mycc_host *host, const AttentionArgsOf<Element> &args, const Score &score,
               const AttentionTuning &tuning = AttentionTuning()) {
  using namespace attention_detail;
  const int64_t products = args.batch * args.kv_heads;
  if (products <= 0 || args.queries <= 0) return;
  const int64_t rows = args.heads / args.kv_heads * args.queries;
  if (rows > kDirectRows || args.logsumexp) {
    const PackedPlan plan(args, host->max_workers, tuning);
    PackedJob<Element, Score> job = {{host, &args, &score, plan.chunk, plan.chunks}, plan};
    job.start(&PackedJob<Element, Score>::run);
    return;
  }
  /* Rows of a task share the reading of K and V, unless workers would have nothing to do. */
  const int64_t parts = min64(rows, ceil_div(host->max_workers, products));
  DirectJob<Element, Score> job = {{host, &args, &score, ceil_div(rows, parts), 0}};
  job.chunks = ceil_div(rows, job.chunk);
  job.start(&DirectJob<Element, Score>::run);
}

} // namespace mycc
#endif /* MYCC_KERNELS_ATTENTION_ATTENTION_H */
