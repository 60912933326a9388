/* program.c: a hand-written model.so with small entry points that exercise the runtime. */
#include "mycc/abi.h"

#include <string.h>

static int64_t round64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* affine: x f32[batch, 4] -> y = 2 x + w */
typedef struct {
  const float *x, *w;
  float *y;
} Affine;

static void affine_rows(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const Affine *a = arg;
  (void)worker;
  for (int64_t i = begin; i < end; ++i)
    for (int j = 0; j < 4; ++j) a->y[4 * i + j] = 2 * a->x[4 * i + j] + a->w[j];
}
static void affine_dims(const int64_t *s, int64_t *d) { d[0] = s[0], d[1] = 4; }
static void affine_run(const mycc_call *c) {
  Affine a = {c->inputs[0], (const float *)c->weights, c->outputs[0]};
  if (c->host->trace) c->host->trace(c->host->ctx, 0);
  c->host->parallel_for(c->host->ctx, c->symbols[0], 16, affine_rows, &a);
  if (c->host->trace) c->host->trace(c->host->ctx, 1);
}

/* cover: n i64[n] -> visits i32[n] and the worker of each index; scratch is written by all workers */
typedef struct {
  const mycc_call *call;
  int32_t *visits, *workers;
} Cover;

static void cover_indices(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const Cover *c = arg;
  const mycc_host *host = c->call->host;
  int64_t *own = host->scratch(host->ctx, worker, 4096);
  for (int i = 0; i < 512; ++i) own[i] = begin;
  for (int64_t i = begin; i < end; ++i) c->visits[i] += 1, c->workers[i] = worker;
  for (int i = 0; i < 512; ++i)
    if (own[i] != begin) host->fail(host->ctx, MYCC_ERROR_RUN, "another worker wrote into this scratch memory");
}
static void cover_in(const int64_t *s, int64_t *d) { d[0] = s[0]; }
static void cover_out(const int64_t *s, int64_t *d) { d[0] = s[0], d[1] = s[0]; }
static void cover_run(const mycc_call *c) {
  Cover cover = {c, c->outputs[0], c->outputs[1]};
  int64_t grain = ((const int64_t *)c->inputs[0])[0];
  memset(cover.visits, 0, 4 * c->symbols[0]);
  c->host->parallel_for(c->host->ctx, c->symbols[0], grain, cover_indices, &cover);
}

/* chain: x f32[8 * blocks + 1] -> y, through three arena buffers whose sizes follow `blocks` */
static const mycc_buffer chain_buffers[] = {{0, 1}, {1, 2}, {2, 3}};
static void chain_dims(const int64_t *s, int64_t *d) { d[0] = 8 * s[0] + 1; }
static void chain_sizes(const int64_t *s, int64_t *b) { b[0] = b[1] = b[2] = round64(4 * (8 * s[0] + 1)); }
static void chain_run(const mycc_call *c) {
  int64_t n = 8 * c->symbols[0] + 1;
  float *buffers[3];
  for (int i = 0; i < 3; ++i) buffers[i] = (float *)(c->arena + c->offsets[i]);
  for (int64_t i = 0; i < n; ++i) buffers[0][i] = ((const float *)c->inputs[0])[i] + 1;
  for (int64_t i = 0; i < n; ++i) buffers[1][i] = buffers[0][i] * 3;
  for (int64_t i = 0; i < n; ++i) buffers[2][i] = buffers[1][i] - 2;
  memcpy(c->outputs[0], buffers[2], 4 * n);
}

/* lookup: indices i64[n] -> table entry; an index beyond the table is a failure */
static void lookup_run(const mycc_call *c) {
  const int64_t *index = c->inputs[0];
  float *y = c->outputs[0];
  for (int64_t i = 0; i < c->symbols[0]; ++i) {
    int ok = index[i] >= 0 && index[i] < 4;
    if (!ok) c->host->fail(c->host->ctx, MYCC_ERROR_INPUT, "indices: 0..3 are valid, not what was given");
    y[i] = ok ? ((const float *)c->weights)[index[i]] : 0;
  }
}

/* pair: a f32[batch, seq], b f32[seq, 2*batch + 1] -> y f32[batch] = sum of a's row + sum of b */
static void pair_in(const int64_t *s, int64_t *d) { d[0] = s[0], d[1] = s[1], d[2] = s[1], d[3] = 2 * s[0] + 1; }
static void pair_run(const mycc_call *c) {
  const float *a = c->inputs[0], *b = c->inputs[1];
  float total = 0;
  for (int64_t i = 0; i < c->symbols[1] * (2 * c->symbols[0] + 1); ++i) total += b[i];
  for (int64_t i = 0; i < c->symbols[0]; ++i) {
    float sum = total;
    for (int64_t j = 0; j < c->symbols[1]; ++j) sum += a[i * c->symbols[1] + j];
    ((float *)c->outputs[0])[i] = sum;
  }
}

/* halves: x bf16[2, 3] -> y = x, bit for bit; buffers placed by the compiler */
static const mycc_buffer halves_buffers[] = {{0, 0}, {0, 0}};
static const int64_t halves_offsets[] = {64, 0};
static void halves_dims(const int64_t *s, int64_t *d) { (void)s, d[0] = 2, d[1] = 3; }
static void halves_sizes(const int64_t *s, int64_t *b) { (void)s, b[0] = 64, b[1] = 64; }
static void halves_run(const mycc_call *c) {
  memcpy(c->arena + c->offsets[0], c->inputs[0], 12);
  memcpy(c->outputs[0], c->arena + c->offsets[0], 12);
}

/* copy: x f32[2, 3, 4, 5] -> y = x */
static void copy_dims(const int64_t *s, int64_t *d) { (void)s, d[0] = 2, d[1] = 3, d[2] = 4, d[3] = 5; }
static void copy_run(const mycc_call *c) { memcpy(c->outputs[0], c->inputs[0], 4 * 120); }

/* interleave: n i64[n] -> 200 parallel loops, one after the other, each of which reads what the last wrote */
typedef struct {
  int64_t *to;
  const int64_t *from;
  int64_t n;
} Weave;
static void interleave_body(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const Weave *w = arg;
  (void)worker;
  for (int64_t i = begin; i < end; ++i) w->to[i] = w->from[(i + 1) % w->n] + 1;
}
static const mycc_buffer interleave_buffers[] = {{0, 0}};
static void interleave_sizes(const int64_t *s, int64_t *b) { b[0] = round64(8 * s[0]); }
static void interleave_run(const mycc_call *c) {
  int64_t *y = c->outputs[0], *t = (int64_t *)(c->arena + c->offsets[0]), n = c->symbols[0];
  memcpy(y, c->inputs[0], 8 * n);
  for (int i = 0; i < 100; ++i) {
    Weave there = {t, y, n}, back = {y, t, n};
    c->host->parallel_for(c->host->ctx, n, 7, interleave_body, &there);
    c->host->parallel_for(c->host->ctx, n, 7, interleave_body, &back);
  }
}

/* copies: x f32[n, 3] -> y = x; n may be 0 */
static void copies_dims(const int64_t *s, int64_t *d) { d[0] = s[0], d[1] = 3; }
static void copies_run(const mycc_call *c) {
  if (c->symbols[0]) memcpy(c->outputs[0], c->inputs[0], 12 * c->symbols[0]);
}

/* flags: x bool[n] -> the bytes that the program gets */
static void flags_run(const mycc_call *c) { memcpy(c->outputs[0], c->inputs[0], c->symbols[0]); }

/* cube: x f32[n] -> y f32[n], through a buffer of n * n * n floats; the product wraps, as it did in older programs */
static const mycc_buffer cube_buffers[] = {{0, 0}};
static void cube_sizes(const int64_t *s, int64_t *b) {
  const uint64_t n = (uint64_t)s[0];
  b[0] = (int64_t)((4 * n * n * n + 63) / 64 * 64);
}
static void cube_run(const mycc_call *c) { memcpy(c->outputs[0], c->inputs[0], 4 * c->symbols[0]); }

/* power: x f32[n] -> y u8[n * n * n * n] */
static void power_out(const int64_t *s, int64_t *d) {
  const uint64_t n = (uint64_t)s[0];
  d[0] = (int64_t)(n * n * n * n);
}
static void power_run(const mycc_call *c) { memset(c->outputs[0], 7, c->symbols[0]); }

static const char *const one_kernel[] = {"map_f32"}, *const chain_kernels[] = {"a", "b", "c", "d"};
static const mycc_entry entries[] = {
    {"affine", 1, 1, 1, 0, 1, 0, affine_dims, affine_dims, 0, 0, 0, affine_run, one_kernel},
    {"cover", 1, 2, 1, 0, 1, 0, cover_in, cover_out, 0, 0, 0, cover_run, one_kernel},
    {"chain", 1, 1, 1, 3, 4, chain_buffers, chain_dims, chain_dims, chain_sizes, 0, 0, chain_run, chain_kernels},
    {"lookup", 1, 1, 1, 0, 1, 0, cover_in, cover_in, 0, 0, 0, lookup_run, one_kernel},
    {"pair", 2, 1, 2, 0, 1, 0, pair_in, cover_in, 0, 0, 0, pair_run, one_kernel},
    {"halves", 1, 1, 0, 2, 1, halves_buffers, halves_dims, halves_dims, halves_sizes, halves_offsets, 128, halves_run,
     one_kernel},
    {"copy", 1, 1, 0, 0, 1, 0, copy_dims, copy_dims, 0, 0, 0, copy_run, one_kernel},
    {"interleave", 1, 1, 1, 1, 1, interleave_buffers, cover_in, cover_in, interleave_sizes, 0, 0, interleave_run, one_kernel},
    {"copies", 1, 1, 1, 0, 1, 0, copies_dims, copies_dims, 0, 0, 0, copies_run, one_kernel},
    {"flags", 1, 1, 1, 0, 1, 0, cover_in, cover_in, 0, 0, 0, flags_run, one_kernel},
    {"cube", 1, 1, 1, 1, 1, cube_buffers, cover_in, cover_in, cube_sizes, 0, 0, cube_run, one_kernel},
    {"power", 1, 1, 1, 0, 1, 0, cover_in, power_out, 0, 0, 0, power_run, one_kernel},
};
#ifndef PROGRAM_VERSION
#define PROGRAM_VERSION MYCC_ABI_VERSION
#endif
#ifndef TARGET
#define TARGET "cpu:test"
#endif
static const mycc_program program = {PROGRAM_VERSION, sizeof entries / sizeof *entries, entries, TARGET};

#ifdef CONTRACT
__attribute__((section(".mycc.contract"), used)) static const char contract[] = CONTRACT;
#endif

#ifdef LOADED_MARK /* a file that shows that code of the package ran */
extern int creat(const char *, unsigned);
__attribute__((constructor)) static void mark(void) { creat(LOADED_MARK, 0600); }
#endif

const mycc_program *mycc_program_get(void) { return &program; }
