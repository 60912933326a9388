/* abi.h: the contract between a package's compiled code (model.so) and the runtime that hosts it (libmycc.so).
 *
 * model.so exports one symbol, mycc_program_get(), and imports nothing but libm: all that it needs of the host it
 * receives as a table of functions. A program for a GPU is host code too: it says which kernels to launch. Plain C, no
 * C++ type crosses this line. Sizes are in bytes unless they say otherwise; all integers are two's complement in host
 * order.
 */
#ifndef MYCC_ABI_H
#define MYCC_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MYCC_ABI_VERSION 5u /* the runtime runs programs of earlier versions as they are: 1 knew CPU programs alone, 2 no
                               state, no random numbers of a seed and no sizes that the run finds, 3 no fetch; 4 reads
                               bools as they are and has size formulas that wrap: the runtime checks both */

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

/* What a tensor map (CUtensorMap) says of a tensor in device memory; dimensions outermost first. */
typedef struct mycc_tensor_map {
  const void *address;    /* in device memory, aligned to 16 */
  int32_t element;        /* CUtensorMapDataType */
  int32_t swizzle;        /* CUtensorMapSwizzle */
  int32_t rank;           /* 1..5 */
  int32_t box[5];         /* elements that one load brings, along each dimension */
  int64_t sizes[5];       /* elements */
  int64_t strides[5];     /* bytes, multiples of 16; the last dimension is dense, its stride is not read */
} mycc_tensor_map;

/* What the runtime gives to a call. One table per call in flight; ctx belongs to the runtime. A program for the CPU uses
 * parallel_for and scratch, one for a GPU uses launch and tensor_map; what is not of its kind is NULL. */
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
  /* NULL, or called before kernel i of the entry point (i = n_kernels: after the last). One kernel of the entry point may
   * be several launches on a GPU. */
  void (*trace)(void *ctx, int32_t kernel);
  /* Threads that take part in parallel_for, the caller included; at least 1. */
  int32_t max_workers;
  /* Version 2. Appends a launch of kernel `kernel` (of mycc_gpu_program) to the call. args[i] points to the value of
   * parameter i, of the size that the kernel's table row says; the values are copied. A grid with a zero is no launch. */
  void (*launch)(void *ctx, int32_t kernel, int64_t grid_x, int64_t grid_y, int64_t grid_z, const void *const *args);
  /* Writes the CUtensorMap (128 bytes at `map`, aligned to 64) of `tensor`: a value for a parameter of 128 bytes. */
  void (*tensor_map)(void *ctx, void *map, const mycc_tensor_map *tensor);
  /* Version 3. The run has found computed size `i` (of mycc_computed): it becomes symbols[n_symbols + i], and the arena
   * buffers and outputs whose sizes are known from now on get their memory (mycc_call.buffers and .outputs). 0: go on;
   * else the call has failed, this time or before, and run() returns. */
  int32_t (*define)(void *ctx, int32_t i, int64_t value);
  /* Version 4, for a GPU. Issues what was launched so far, waits for it, and copies `bytes` (8 at most) from device memory
   * to `value`. 0: go on; else the call has failed, this time or before, and run() returns. */
  int32_t (*fetch)(void *ctx, const void *address, void *value, int32_t bytes);
} mycc_host;

/* Addresses are of the memory that the program runs on: for a GPU they are device addresses, which run() adds to and
 * passes on but never reads. There weights, arena, inputs, outputs and zeros are aligned to 16 at least. */
typedef struct mycc_call {
  const mycc_host *host;
  const uint8_t *weights;       /* first byte of the tensor data of weights.safetensors */
  uint8_t *arena;               /* aligned to 64 */
  const int64_t *offsets;       /* where each arena buffer of the entry point lies, in bytes */
  const void *const *inputs;    /* dense, row-major; bytes of a bool may be any, those that are not 0 are true */
  void *const *outputs;         /* dense, row-major */
  const int64_t *symbols;       /* values of the entry point's size symbols */
  /* Version 2, for a GPU; else NULL. */
  uint8_t *zeros;               /* memory of this call alone: zeros when it is new; every kernel leaves it zero behind */
  int32_t *status;              /* a word in the host's memory, zero; kernel i of the entry point raises it to
                                   INT32_MAX - 1 - i when an index is out of range (it reads and writes nothing there),
                                   so that the first failure of a call stays; kernels of older packages store i + 1 */
  /* Version 3. */
  uint8_t *const *buffers;      /* the arena buffers that mycc_host.define places, by number; the others are not in it */
  uint64_t seed;                /* of the call's random numbers */
  void *const *state;           /* tensors that live from call to call, dense, in the order of the manifest's states */
  /* Version 4. */
  int64_t blocks;               /* of 256 threads that the GPU holds at a time: torch's random numbers depend on it */
} mycc_call;

typedef struct mycc_buffer {    /* an arena buffer: alive from kernel `first` to kernel `last`, both included */
  int32_t first, last;
} mycc_buffer;

typedef struct mycc_entry {
  const char *name;
  int32_t n_inputs, n_outputs, n_symbols, n_buffers, n_kernels;
  const mycc_buffer *buffers;
  /* Expected dimensions of all inputs (of all outputs), one after another in order, from the symbols. Version 5: what
   * leaves 63 bits is INT64_MAX (INT64_MIN), here and in what follows. */
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

enum mycc_gpu_flags {
  MYCC_GPU_DEPENDENT = 1 /* waits for its predecessor by itself (griddepcontrol.wait): may be launched before that ends */
};

/* A kernel for a GPU, in the order of mycc_host.launch's numbers. */
typedef struct mycc_gpu_kernel {
  const char *name;             /* the symbol in its image */
  int64_t image, image_bytes;   /* where its image lies in the member of all images: a cubin, or PTX that ends with NUL */
  int32_t threads;              /* of a block */
  int32_t shared;               /* bytes of dynamic shared memory of a block */
  int32_t flags;                /* of mycc_gpu_flags */
  int32_t n_params;
  const uint8_t *param_bytes;   /* 1, 2, 4, 8 or (a tensor map) 128 each */
  /* Pointers that Triton adds behind the parameters, which the runtime fills: global scratch, profile scratch. */
  int32_t n_scratch_params;
  int32_t scratch_bytes;        /* global scratch of a block; 0: none */
  int32_t scratch_alignment;
} mycc_gpu_kernel;

typedef struct mycc_gpu_entry {
  int64_t (*zero_bytes)(const int64_t *symbols); /* bytes of mycc_call.zeros; NULL: none */
  const char *const *failures;  /* n_kernels of the entry point: what a failure of kernel i is called; NULL: none fails */
} mycc_gpu_entry;

typedef struct mycc_gpu_program {
  int32_t n_kernels;
  const mycc_gpu_kernel *kernels;
  const mycc_gpu_entry *entries;  /* one for each of mycc_program.entries */
  int64_t weights_begin, weights_end; /* the part of the tensor data that the kernels read; begin is a multiple of 64 */
} mycc_gpu_program;

typedef struct mycc_size {      /* a size that the run finds */
  const char *name;
  int64_t min, max;             /* both included: another value fails the call */
  const char *what;             /* whose value it is, for that message: "nonzero (model.py:12)" */
} mycc_size;

/* What the run of an entry point finds out about sizes. A buffer or output is placed when the first `known` of its sizes
 * are defined; 0: before the run. The formulas for the others are asked with the sizes not yet defined as 0. */
typedef struct mycc_computed {
  int32_t n_sizes;
  const mycc_size *sizes;       /* in the order in which the run defines them */
  const int32_t *buffers;       /* known, of every arena buffer */
  const int32_t *outputs;       /* known, of every output */
} mycc_computed;

typedef struct mycc_program {
  uint32_t abi_version;         /* MYCC_ABI_VERSION of the build */
  int32_t n_entries;
  const mycc_entry *entries;
  const char *target;           /* "cpu:x86-64-v3", "cuda:sm_90" */
  const mycc_gpu_program *gpu;  /* version 2: NULL for a CPU */
  const mycc_computed *computed; /* version 3: one for each of entries; NULL: no entry point has computed sizes */
  int32_t n_state;              /* version 3: tensors of mycc_call.state */
  const uint8_t *random;        /* version 3: for each of entries, 1 when it draws random numbers; NULL: none does */
  const uint8_t *fetches;       /* version 4: for each of entries, 1 when its run calls fetch; NULL: none does */
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
