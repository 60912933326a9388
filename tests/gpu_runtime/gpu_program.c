/* gpu_program.c: a hand-written model.so whose entry points launch the kernels of fake_driver.cpp. */
#include "mycc/abi.h"

#include <string.h>

static int64_t round64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

enum { SCALE, SCALE_DEPENDENT, ADD, GATHER, COUNT, MAPPED, CRASH, SCALE_LARGE, KEEP, BELOW };
static const uint8_t ppii[] = {8, 8, 4, 4}, pppi[] = {8, 8, 8, 4}, ppplpi[] = {8, 8, 8, 8, 8, 4}, tp[] = {128, 8}, p[] = {8}, pp[] = {8, 8};
static const mycc_gpu_kernel kernels[] = {
    {"scale", 0, IMAGE_BYTES, 128, 0, 0, 4, ppii, 2, 0, 1},
    {"scale_dependent", 0, IMAGE_BYTES, 128, 0, MYCC_GPU_DEPENDENT, 4, ppii, 2, 0, 1},
    {"add", 0, IMAGE_BYTES, 128, 0, 0, 4, pppi, 2, 0, 1},
    {"gather", 0, IMAGE_BYTES, 128, 0, 0, 6, ppplpi, 2, 0, 1},
    {"count", 0, IMAGE_BYTES, 128, 0, 0, 4, pppi, 2, 0, 1},
    {"mapped", 0, IMAGE_BYTES, 128, 0, 0, 2, tp, 2, 64, 128},
    {"crash", 0, IMAGE_BYTES, 128, 0, 0, 1, p, 2, 0, 1},
    {"scale_large", 0, IMAGE_BYTES, 256, SHARED_BYTES, 0, 4, ppii, 2, 0, 1},
    {"keep", 0, IMAGE_BYTES, 128, 0, MYCC_GPU_DEPENDENT, 4, pppi, 2, 64, 128},
    {"below", 0, IMAGE_BYTES, 128, 0, 0, 2, pp, 2, 0, 1},
};

static void launch(const mycc_call *c, int number, int kernel, int64_t grid, const void *const *args) {
  if (c->host->trace) c->host->trace(c->host->ctx, number);
  c->host->launch(c->host->ctx, kernel, grid, 1, 1, args);
}
static void scale(const mycc_call *c, int number, int kernel, const void *x, void *y, int64_t n, float factor) {
  int32_t size = (int32_t)n;
  const void *args[] = {&x, &y, &size, &factor};
  launch(c, number, kernel, (n + 127) / 128, args);
}
static void add(const mycc_call *c, int number, const void *x, const void *z, void *y, int64_t n) {
  int32_t size = (int32_t)n;
  const void *args[] = {&x, &z, &y, &size};
  launch(c, number, ADD, (n + 127) / 128, args);
}

/* affine: x f32[batch, 4] -> y = 2 x; one launch */
static void affine_dims(const int64_t *s, int64_t *d) { d[0] = s[0], d[1] = 4; }
static void affine_run(const mycc_call *c) { scale(c, 0, SCALE, c->inputs[0], c->outputs[0], 4 * c->symbols[0], 2.0f); }

/* chain: x f32[n] -> y = 2 * 3 * 4 * 5 * x, through three buffers; four launches, the later ones dependent */
static const mycc_buffer chain_buffers[] = {{0, 1}, {1, 2}, {2, 3}};
static void n_dims(const int64_t *s, int64_t *d) { d[0] = s[0]; }
static void chain_sizes(const int64_t *s, int64_t *b) { b[0] = b[1] = b[2] = round64(4 * s[0]); }
static void chain_run(const mycc_call *c) {
  uint8_t *a = c->arena + c->offsets[0], *b = c->arena + c->offsets[1], *d = c->arena + c->offsets[2];
  int64_t n = c->symbols[0];
  scale(c, 0, SCALE, c->inputs[0], a, n, 2);
  scale(c, 1, SCALE_DEPENDENT, a, b, n, 3);
  scale(c, 2, SCALE_DEPENDENT, b, d, n, 4);
  scale(c, 3, SCALE_DEPENDENT, d, c->outputs[0], n, 5);
}

/* lookup: indices i64[n] -> table entry of the weights */
static void lookup_run(const mycc_call *c) {
  const uint8_t *table = c->weights;
  const void *index = c->inputs[0];
  void *y = c->outputs[0], *status = c->status;
  int64_t n = c->symbols[0];
  int32_t number = 1;
  const void *args[] = {&table, &index, &y, &n, &status, &number};
  launch(c, 0, GATHER, n, args);
}
static const char *const lookup_failures[] = {"index out of range in embedding (model.py:7)"};

/* counted: x f32[n] -> y = x, twice through counters that have to be zero */
static const mycc_buffer counted_buffers[] = {{0, 1}};
static void counted_sizes(const int64_t *s, int64_t *b) { b[0] = round64(4 * s[0]); }
static int64_t counted_zeros(const int64_t *s) { return 4 * s[0]; }
static void counted_run(const mycc_call *c) {
  const void *x = c->inputs[0];
  void *t = c->arena + c->offsets[0], *y = c->outputs[0], *zeros = c->zeros;
  int32_t n = (int32_t)c->symbols[0];
  const void *first[] = {&x, &t, &zeros, &n}, *second[] = {&t, &y, &zeros, &n};
  launch(c, 0, COUNT, n, first);
  launch(c, 1, COUNT, n, second);
}

/* mapped: x f32[4, 8] -> y = x; by a tensor map and scratch */
static void mapped_dims(const int64_t *s, int64_t *d) { (void)s, d[0] = 4, d[1] = 8; }
static void mapped_run(const mycc_call *c) {
  _Alignas(64) uint8_t map[128];
  void *y = c->outputs[0];
  mycc_tensor_map tensor = {c->inputs[0], 7, 0, 2, {4, 8}, {4, 8}, {32, 4}};
  memset(map, 0, sizeof map);
  c->host->tensor_map(c->host->ctx, map, &tensor);
  const void *args[] = {map, &y};
  launch(c, 0, MAPPED, 4, args);
}

/* pair: a f32[n], b f32[n] -> a + b, 7 a; weights too: (a + b) has 3 launches */
static void pair_in(const int64_t *s, int64_t *d) { d[0] = s[0], d[1] = s[0]; }
static void pair_run(const mycc_call *c) {
  int64_t n = c->symbols[0];
  add(c, 0, c->inputs[0], c->inputs[1], c->outputs[0], n);
  scale(c, 1, SCALE, c->inputs[0], c->outputs[1], n, 7);
  scale(c, 2, SCALE_LARGE, c->inputs[0], c->outputs[1], n, 7);
}

/* crash: a kernel that reads where nothing is */
static void crash_run(const mycc_call *c) {
  const void *x = c->inputs[0], *args[] = {&x};
  scale(c, 0, SCALE, c->inputs[0], c->outputs[0], c->symbols[0], 1);
  launch(c, 1, CRASH, 1, args);
}

/* odd: launches differ from call to call */
static void odd_run(const mycc_call *c) {
  static int calls = 0;
  scale(c, 0, calls++ % 2 ? SCALE : SCALE_DEPENDENT, c->inputs[0], c->outputs[0], c->symbols[0], 1);
}

/* wide: needs a grid of 2 x 70000 */
static void wide_run(const mycc_call *c) {
  const void *x = c->inputs[0];
  void *y = c->outputs[0];
  int32_t n = 1;
  float factor = 1;
  const void *args[] = {&x, &y, &n, &factor};
  c->host->launch(c->host->ctx, SCALE, 2, 70000 * c->symbols[0], 1, args);
}

/* total: x f32[4] -> y = total + x, which becomes the state's new total */
static void four_dims(const int64_t *s, int64_t *d) { (void)s, d[0] = 4; }
static void total_run(const mycc_call *c) {
  add(c, 0, c->state[0], c->inputs[0], c->state[0], 4);
  scale(c, 1, SCALE, c->state[0], c->outputs[0], 4, 1);
}

/* bump: x f32[n], b f32[n] -> y = x; x += b */
static void bump_run(const mycc_call *c) {
  void *x = (void *)c->inputs[0];
  scale(c, 0, SCALE, x, c->outputs[0], c->symbols[0], 1);
  add(c, 1, x, c->inputs[1], x, c->symbols[0]);
}

/* kept: x f32[n] -> y = 6 x where x > 0, f32[u0], z = x; u0 is in 0..16, and the model says that it is not 13 */
static const mycc_buffer kept_buffers[] = {{0, 1}, {0, 0}, {1, 2}};
static void kept_dims(const int64_t *s, int64_t *d) { d[0] = s[1], d[1] = s[0]; }
static void kept_sizes(const int64_t *s, int64_t *b) { b[0] = round64(4 * s[0]), b[1] = 64, b[2] = round64(4 * s[1]); }
static int64_t kept_zeros(const int64_t *s) { return 4 * s[1]; }
static void kept_run(const mycc_call *c) {
  uint8_t *places = c->arena + c->offsets[0], *count = c->arena + c->offsets[1];
  const void *x = c->inputs[0], *zeros;
  int32_t n = (int32_t)c->symbols[0], known;
  int64_t u0 = 0;
  const void *first[] = {&x, &places, &count, &n};
  launch(c, 0, KEEP, 1, first);
  if (c->host->fetch(c->host->ctx, count, &u0, 8)) u0 = 0;
  if (c->host->define(c->host->ctx, 0, u0)) return;
  if (u0 == 13) {
    c->host->fail(c->host->ctx, MYCC_ERROR_RUN, "model.py:5: u0 != 13 does not hold");
    return;
  }
  uint8_t *late = c->buffers[2];
  scale(c, 1, SCALE_DEPENDENT, places, late, u0, 2);
  zeros = c->zeros, known = (int32_t)u0;
  const void *y = c->outputs[0], *last[] = {&late, &y, &zeros, &known};
  launch(c, 2, COUNT, u0, last);
  scale(c, 3, SCALE, c->outputs[0], c->outputs[0], u0, 3);
  scale(c, 4, SCALE, x, c->outputs[1], n, 1);
}
static const mycc_size kept_found[] = {{"u0", 0, 16, "nonzero (model.py:4)"}};
static const int32_t kept_known_buffers[] = {0, 0, 1}, kept_known_outputs[] = {1, 0};

/* growing: x f32[1] -> y = x, doubled while it is below 100; index i64[1] is looked up before */
static const mycc_buffer growing_buffers[] = {{0, 4}, {0, 4}};
static const int64_t growing_offsets[] = {0, 64};
static void growing_in(const int64_t *s, int64_t *d) { (void)s, d[0] = 1, d[1] = 1; }
static void growing_dims(const int64_t *s, int64_t *d) { (void)s, d[0] = 1; }
static const char *const growing_failures[] = {"index out of range in embedding (model.py:8)", 0, 0, 0, 0};
static void growing_run(const mycc_call *c) {
  uint8_t *x = c->arena + c->offsets[0], *flag = c->arena + c->offsets[1];
  const uint8_t *table = c->weights;
  const void *index = c->inputs[1], *status = c->status;
  int64_t n = 1;
  int32_t number = 1;
  const void *found[] = {&table, &index, &x, &n, &status, &number}, *test[] = {&x, &flag};
  launch(c, 0, GATHER, n, found);
  scale(c, 1, SCALE, c->inputs[0], x, 1, 1);
  for (;;) {
    uint8_t holds = 0;
    launch(c, 2, BELOW, 1, test);
    if (c->host->fetch(c->host->ctx, flag, &holds, 1) || !holds) break;
    scale(c, 3, SCALE, x, x, 1, 2);
  }
  scale(c, 4, SCALE, x, c->outputs[0], 1, 1);
}

static const char *const names[] = {"scale_a", "scale_b", "scale_c", "scale_d"}, *const crash_names[] = {"fine", "crash"};
static const char *const five_names[] = {"a", "b", "c", "d", "e"};
static const mycc_entry entries[] = {
    {"affine", 1, 1, 1, 0, 1, 0, affine_dims, affine_dims, 0, 0, 0, affine_run, names},
    {"chain", 1, 1, 1, 3, 4, chain_buffers, n_dims, n_dims, chain_sizes, 0, 0, chain_run, names},
    {"lookup", 1, 1, 1, 0, 1, 0, n_dims, n_dims, 0, 0, 0, lookup_run, names},
    {"counted", 1, 1, 1, 1, 2, counted_buffers, n_dims, n_dims, counted_sizes, 0, 0, counted_run, names},
    {"mapped", 1, 1, 0, 0, 1, 0, mapped_dims, mapped_dims, 0, 0, 0, mapped_run, names},
    {"pair", 2, 2, 1, 0, 3, 0, pair_in, pair_in, 0, 0, 0, pair_run, names},
    {"crash", 1, 1, 1, 0, 2, 0, n_dims, n_dims, 0, 0, 0, crash_run, crash_names},
    {"odd", 1, 1, 1, 0, 1, 0, n_dims, n_dims, 0, 0, 0, odd_run, names},
    {"wide", 1, 1, 1, 0, 1, 0, n_dims, n_dims, 0, 0, 0, wide_run, names},
    {"total", 1, 1, 0, 0, 2, 0, four_dims, four_dims, 0, 0, 0, total_run, names},
    {"bump", 2, 1, 1, 0, 2, 0, pair_in, n_dims, 0, 0, 0, bump_run, names},
    {"kept", 1, 2, 1, 3, 5, kept_buffers, n_dims, kept_dims, kept_sizes, 0, 0, kept_run, five_names},
    {"growing", 2, 1, 0, 2, 5, growing_buffers, growing_in, growing_dims, 0, growing_offsets, 128, growing_run, five_names},
};
static const mycc_gpu_entry gpu_entries[] = {
    {0, 0}, {0, 0}, {0, lookup_failures}, {counted_zeros, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0},
    {kept_zeros, 0}, {0, growing_failures},
};
static const uint8_t fetches[sizeof entries / sizeof *entries] = {[11] = 1, [12] = 1};
static const mycc_computed computed[sizeof entries / sizeof *entries] = {
    [11] = {1, kept_found, kept_known_buffers, kept_known_outputs},
};
static const mycc_gpu_program gpu = {sizeof kernels / sizeof *kernels, kernels, gpu_entries, 0, 64};
#ifdef CPU_ALONE /* what a package holds for a CPU: the same entry points, none of them for a GPU */
#define PARTS 0
#else
#define PARTS &gpu
#endif
static const mycc_program program = {MYCC_ABI_VERSION, sizeof entries / sizeof *entries, entries, "cuda:test", PARTS, computed, 1, 0, fetches};

const mycc_program *mycc_program_get(void) { return &program; }
