/* A model.so written by hand: entry point "forward": y[batch, 4] = x[batch, 4] * scale[4] + table[ids[batch], 4],
 * s = sum of x per row; entry point "double": a fixed i64[3] times 2. */
#include "mycc/abi.h"

enum { WIDTH = 4, ROWS = 8 };

static void forward_inputs(const int64_t *symbols, int64_t *dims) {
  dims[0] = symbols[0];
  dims[1] = WIDTH;
  dims[2] = symbols[0];
}

static void forward_outputs(const int64_t *symbols, int64_t *dims) {
  dims[0] = symbols[0];
  dims[1] = WIDTH;
  dims[2] = symbols[0];
}

static void forward_sizes(const int64_t *symbols, int64_t *sizes) { sizes[0] = (symbols[0] * 16 + 63) / 64 * 64; }

typedef struct job {
  const mycc_call *call;
  const float *x;
  const int64_t *ids;
  float *scaled, *y, *s;
} job;

static void scale_rows(void *arg, int64_t begin, int64_t end, int32_t worker) {
  const job *j = arg;
  const float *scale = (const float *)(j->call->weights + ROWS * WIDTH * 4);
  (void)worker;
  for (int64_t i = begin; i < end; ++i)
    for (int64_t k = 0; k < WIDTH; ++k) j->scaled[i * WIDTH + k] = j->x[i * WIDTH + k] * scale[k];
}

static void forward(const mycc_call *call) {
  const mycc_host *host = call->host;
  const float *table = (const float *)call->weights;
  job j = {call, call->inputs[0], call->inputs[1], (float *)(call->arena + call->offsets[0]), call->outputs[0], call->outputs[1]};
  if (host->trace) host->trace(host->ctx, 0);
  host->parallel_for(host->ctx, call->symbols[0], 16, scale_rows, &j);
  if (host->trace) host->trace(host->ctx, 1);
  for (int64_t i = 0; i < call->symbols[0]; ++i) {
    int64_t id = j.ids[i];
    if (id < 0 || id >= ROWS) {
      host->fail(host->ctx, MYCC_ERROR_RUN, "an id is beyond the table of 8 rows");
      id = 0;
    }
    j.s[i] = 0;
    for (int64_t k = 0; k < WIDTH; ++k) {
      j.y[i * WIDTH + k] = j.scaled[i * WIDTH + k] + table[id * WIDTH + k];
      j.s[i] += j.x[i * WIDTH + k];
    }
  }
  if (host->trace) host->trace(host->ctx, 2);
}

static void double_dims(const int64_t *symbols, int64_t *dims) {
  (void)symbols;
  dims[0] = 3;
}

static void double_sizes(const int64_t *symbols, int64_t *sizes) { (void)symbols, (void)sizes; }

static void double_run(const mycc_call *call) {
  const int64_t *x = call->inputs[0];
  int64_t *y = call->outputs[0];
  if (call->host->trace) call->host->trace(call->host->ctx, 0);
  for (int i = 0; i < 3; ++i) y[i] = 2 * x[i];
  if (call->host->trace) call->host->trace(call->host->ctx, 1);
}

static const mycc_buffer buffers[] = {{0, 1}};
static const char *const forward_kernels[] = {"map_mul_f32", "gather_add_f32"};
static const char *const double_kernels[] = {"map_mul_i64"};
static const mycc_entry entries[] = {
    {"forward", 2, 2, 1, 1, 2, buffers, forward_inputs, forward_outputs, forward_sizes, 0, 0, forward, forward_kernels},
    {"double", 1, 1, 0, 0, 1, 0, double_dims, double_dims, double_sizes, 0, 0, double_run, double_kernels},
};
static const mycc_program program = {MYCC_ABI_VERSION, 2, entries, "cpu:x86-64-v2"};

#ifdef CONTRACT
__attribute__((section(".mycc.contract"), used)) static const char contract[] = CONTRACT;
#endif

const mycc_program *mycc_program_get(void) { return &program; }
