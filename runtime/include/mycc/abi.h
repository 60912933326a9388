/* abi.h: the contract between a package's compiled code (model.so) and the runtime that hosts it (libmycc.so).
 *
 * model.so exports one symbol, mycc_program_get(), and imports nothing but libm: all that it needs of the host it
 * receives as a table of functions. Plain C, no C++ type crosses this line. Sizes are in bytes unless they say
 * otherwise; all integers are two's complement in host order.
 */
#ifndef MYCC_ABI_H
#define MYCC_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MYCC_ABI_VERSION 1u

/* Codes of mycc_host.fail and of the C API (model.h). */
enum mycc_status {
  MYCC_OK = 0,
  MYCC_ERROR_LOAD = 1,   /* the package cannot be loaded */
  MYCC_ERROR_INPUT = 2,  /* the caller's arguments do not fit the signature */
  MYCC_ERROR_RUN = 3     /* the run itself failed: an index out of range, out of memory */
};

/* Body of a parallel loop: handles [begin, end). `worker` is unique among the bodies that run at the same time
 * in this call, in [0, max_workers). */
typedef void (*mycc_body)(void *arg, int64_t begin, int64_t end, int32_t worker);

/* What the runtime gives to a call. One table per call in flight; ctx belongs to the runtime. */
typedef struct mycc_host {
  void *ctx;
  /* Runs body over [0, n) in chunks of `grain` (chunk i is [i*grain, min(n, (i+1)*grain)), whatever the number of
   * threads), the caller taking part; returns when all is done. Never called from inside a body. */
  void (*parallel_for)(void *ctx, int64_t n, int64_t grain, mycc_body body, void *arg);
  /* Scratch memory of this worker: at least `bytes`, aligned to 64, contents undefined, valid until the worker's next
   * call of scratch() or the end of the parallel loop. NULL when memory is short (fail() has been called). */
  void *(*scratch)(void *ctx, int32_t worker, size_t bytes);
  /* Records the first failure of this call; the kernel goes on without touching memory out of bounds. */
  void (*fail)(void *ctx, int32_t code, const char *text);
  /* NULL, or called before kernel i of the entry point (i = n_kernels: after the last). */
  void (*trace)(void *ctx, int32_t kernel);
  /* Threads that take part in parallel_for, the caller included; at least 1. */
  int32_t max_workers;
} mycc_host;

typedef struct mycc_call {
  const mycc_host *host;
  const uint8_t *weights;       /* first byte of the tensor data of weights.safetensors */
  uint8_t *arena;               /* aligned to 64 */
  const int64_t *offsets;       /* where each arena buffer of the entry point lies, in bytes */
  const void *const *inputs;    /* dense, row-major */
  void *const *outputs;         /* dense, row-major */
  const int64_t *symbols;       /* values of the entry point's size symbols */
} mycc_call;

typedef struct mycc_buffer {    /* an arena buffer: alive from kernel `first` to kernel `last`, both included */
  int32_t first, last;
} mycc_buffer;

typedef struct mycc_entry {
  const char *name;
  int32_t n_inputs, n_outputs, n_symbols, n_buffers, n_kernels;
  const mycc_buffer *buffers;
  /* Expected dimensions of all inputs (of all outputs), one after another in order, from the symbols. */
  void (*input_dims)(const int64_t *symbols, int64_t *dims);
  void (*output_dims)(const int64_t *symbols, int64_t *dims);
  /* Bytes of every arena buffer, each a multiple of 64. */
  void (*buffer_sizes)(const int64_t *symbols, int64_t *sizes);
  /* Offsets placed by the compiler, when every size is fixed: n_buffers of them, arena_size > 0 or n_buffers == 0.
   * NULL when the runtime has to place the buffers for the sizes at hand. */
  const int64_t *static_offsets;
  int64_t static_arena_size;
  void (*run)(const mycc_call *call);
  const char *const *kernel_names; /* n_kernels of them, in order of execution */
} mycc_entry;

typedef struct mycc_program {
  uint32_t abi_version;         /* MYCC_ABI_VERSION of the build */
  int32_t n_entries;
  const mycc_entry *entries;
  const char *target;           /* "cpu:x86-64-v3" */
} mycc_program;

/* The one exported symbol of model.so. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const mycc_program *mycc_program_get(void);

#ifdef __cplusplus
}
#endif
#endif /* MYCC_ABI_H */
