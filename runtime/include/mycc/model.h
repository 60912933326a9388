/* model.h: load and run a mycc package from C. Plain C11, no dependency beyond libmycc.so.
 *
 *   mycc_model *m;
 *   if (mycc_load_file("bert.pkg", NULL, &m) != MYCC_OK) { puts(mycc_last_error()); return 1; }
 *   mycc_tensor in = {...}, out = {0};
 *   if (mycc_run(m, 0, &in, 1, &out, 1) != MYCC_OK) ...
 *   mycc_tensor_free(&out); mycc_unload(m);
 *
 * Every function is thread safe; one model may be run by many threads at once, and unloaded by any of them: calls that
 * are under way end as they would, later ones fail. A failing function returns a code of enum mycc_status and leaves its
 * text in mycc_last_error() of the calling thread; one that returns a number or an address returns 0, NULL or -1 for a
 * model that is NULL or unloaded. What is said of the last 256 models that were unloaded is said of no earlier one.
 */
#ifndef MYCC_MODEL_H
#define MYCC_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MYCC_API __attribute__((visibility("default")))
#else
#define MYCC_API
#endif

typedef struct mycc_model mycc_model;
typedef struct mycc_state mycc_state; /* tensors that live from call to call: buffers that the model changes */

typedef struct mycc_load_options {
  uint32_t struct_size;   /* sizeof(mycc_load_options) */
  int32_t threads;        /* threads of a call, the caller included; 0: one per available core */
  int32_t check_full;     /* 1: hash the weights too */
  const char *target;     /* NULL: the best that this machine runs; else one of the package's, e.g. "cpu:x86-64-v3" */
  const char *device;     /* NULL: a GPU that the package has code for, else the CPU; or "cpu", "cuda", "cuda:1" */
  const char *launch;     /* of a GPU's kernels. NULL, "auto": what is fastest; "direct": one by one; "graph": as CUDA
                             graphs; "debug": one by one, each waited for, so that a failure names its kernel */
  int32_t copy;           /* 1: the weights are read into memory of this process, where no change of the file, or of the
                             memory that the package is in, reaches them; 0: they are mapped from the file */
} mycc_load_options;

/* One input or output of an entry point. A dimension is fixed (symbol < 0, value its size) or named by a symbol. */
typedef struct mycc_port {
  const char *name;
  mycc_dtype dtype;
  int32_t ndim;
  const char *const *dims; /* each dimension as text: "768", "batch", "2*seq + 1" */
} mycc_port;

typedef struct mycc_symbol {
  const char *name;
  int64_t min, max;       /* both included */
} mycc_symbol;

MYCC_API int mycc_load_file(const char *path, const mycc_load_options *options, mycc_model **model);
/* The memory must stay unchanged until mycc_unload has returned, and calls that were under way then; with options->copy
 * until this returns. */
MYCC_API int mycc_load_memory(const void *data, size_t size, const mycc_load_options *options, mycc_model **model);
/* The model goes when no call and no state of mycc_state_new uses it any more. Addresses that functions of the model have
 * returned are not to be used from now on. */
MYCC_API void mycc_unload(mycc_model *model);

MYCC_API const char *mycc_last_error(void); /* of this thread; never NULL */
MYCC_API const char *mycc_version(void);

MYCC_API const char *mycc_model_manifest(const mycc_model *model); /* manifest.json as text */
MYCC_API const char *mycc_model_target(const mycc_model *model);   /* the target that was loaded */
/* Where it runs: DLPack's device type (1: CPU, 2: CUDA) and number. */
MYCC_API void mycc_model_device(const mycc_model *model, int32_t *device_type, int32_t *device_id);
MYCC_API int32_t mycc_model_threads(const mycc_model *model);
MYCC_API int32_t mycc_entry_count(const mycc_model *model);
MYCC_API const char *mycc_entry_name(const mycc_model *model, int32_t entry);
MYCC_API int32_t mycc_entry_find(const mycc_model *model, const char *name); /* -1: no such entry point */
MYCC_API int32_t mycc_input_count(const mycc_model *model, int32_t entry);
MYCC_API int32_t mycc_output_count(const mycc_model *model, int32_t entry);
MYCC_API const mycc_port *mycc_input(const mycc_model *model, int32_t entry, int32_t i);
MYCC_API const mycc_port *mycc_output(const mycc_model *model, int32_t entry, int32_t i);
MYCC_API int32_t mycc_symbol_count(const mycc_model *model, int32_t entry);
MYCC_API const mycc_symbol *mycc_symbol_at(const mycc_model *model, int32_t entry, int32_t i);
MYCC_API int32_t mycc_kernel_count(const mycc_model *model, int32_t entry);
MYCC_API const char *mycc_kernel_name(const mycc_model *model, int32_t entry, int32_t i);

/* Runs an entry point. Inputs may be strided. An output with data == NULL is allocated by the runtime (free it with
 * mycc_tensor_free); one with data is checked and written in place, and must be dense, row-major and aligned to its
 * element. Outputs never overlap inputs. A call that fails frees what it has allocated, and nothing else: outputs with
 * data stay the caller's, their values undefined. */
MYCC_API int mycc_run(mycc_model *model, int32_t entry, const mycc_tensor *inputs, int32_t n_inputs, mycc_tensor *outputs, int32_t n_outputs);
MYCC_API void mycc_tensor_free(mycc_tensor *tensor);

/* On a GPU inputs may lie on the device or in host memory. Outputs that the runtime allocates are on the device when an
 * input is, else on the host. A call with outputs on the device returns when its work is on the stream; a failure of a
 * kernel is reported by the next call or by mycc_synchronize. One with outputs on the host returns when they are there.
 * mycc_run() works on the device's default stream when a tensor of the call is on the device, else on one of its own. */
typedef struct mycc_run_options {
  uint32_t struct_size;   /* sizeof(mycc_run_options) */
  int32_t has_stream;     /* 1: work in the order of `stream` (a CUstream), also when it is NULL, the default stream */
  void *stream;
  /* NULL, or allocates output `output` on the device: shape, strides, dtype and device are set; sets data and returns 0,
   * or returns another value. The memory may be used in the order of the stream. */
  int (*allocate)(void *ctx, int32_t output, mycc_tensor *tensor);
  void *ctx;              /* of the functions here */
  /* 1: random operators of this call draw the numbers of `seed`; else those of the model's next seed. */
  int32_t has_seed;
  uint64_t seed;
  mycc_state *state;      /* NULL: the model's own */
  /* NULL, or asked every few hundredths of a second while a call runs on the CPU, by the thread that has called: a value
   * other than 0 ends the call between two pieces of its loops, with MYCC_ERROR_RUN. */
  int (*interrupted)(void *ctx);
} mycc_run_options;

MYCC_API int mycc_run_with(mycc_model *model, int32_t entry, const mycc_tensor *inputs, int32_t n_inputs, mycc_tensor *outputs,
                           int32_t n_outputs, const mycc_run_options *options);
/* The seed of the model's next call that names none; every such call takes it and leaves the next number. 0 at first. */
MYCC_API void mycc_seed(mycc_model *model, uint64_t seed);
/* Waits until all calls have ended on the device; reports the first failure of a kernel. */
MYCC_API int mycc_synchronize(mycc_model *model);
/* Makes `stream` wait until an output that the runtime allocated on a device is written. */
MYCC_API int mycc_tensor_wait(const mycc_tensor *tensor, void *stream);
/* Copies a dense tensor to a new dense one on the device of the model (a CPU model: in host memory), and back to the
 * memory of a dense tensor. Both return when it is done. */
MYCC_API int mycc_tensor_to_device(mycc_model *model, const mycc_tensor *source, mycc_tensor *target);
MYCC_API int mycc_tensor_to_host(const mycc_tensor *source, void *target, size_t bytes);

/* The state of a model with buffers that calls change. A model has one of its own, with the buffers' first values; more of
 * them serve several callers. A state serves one call at a time: calls with the same one wait for each other. A call that
 * fails while it runs may leave a part of its changes; its error says so. In the child of a fork() during a call that
 * changes a state, that state can be reset and written, but not used as it is. `state` NULL: the model's own. */
MYCC_API int32_t mycc_state_count(const mycc_model *model);              /* tensors of a state */
MYCC_API const mycc_port *mycc_state_port(const mycc_model *model, int32_t i);
MYCC_API int mycc_state_new(mycc_model *model, mycc_state **state);
MYCC_API void mycc_state_free(mycc_state *state);
MYCC_API int mycc_state_reset(mycc_model *model, mycc_state *state);      /* to the first values */
/* A copy of a tensor in host memory (free it with mycc_tensor_free), and the values of another one written to it. */
MYCC_API int mycc_state_read(mycc_model *model, mycc_state *state, int32_t i, mycc_tensor *copy);
MYCC_API int mycc_state_write(mycc_model *model, mycc_state *state, int32_t i, const mycc_tensor *source);
/* The tensor itself, on the device that the model runs on: calls write to it. Free it with mycc_tensor_free; until then
 * its memory stays, also when the state is freed. */
MYCC_API int mycc_state_view(mycc_model *model, mycc_state *state, int32_t i, mycc_tensor *view);
/* Whether calls write to an input: it has to be memory that may be written. */
MYCC_API int32_t mycc_input_written(const mycc_model *model, int32_t entry, int32_t i);

/* Time of each kernel of one run in nanoseconds (n of them, n as in the manifest's kernel list), after `runs` runs. */
MYCC_API int mycc_profile(mycc_model *model, int32_t entry, const mycc_tensor *inputs, int32_t n_inputs, int32_t runs, int64_t *nanoseconds, int32_t n);
/* Bytes of the arena that these inputs need, and the largest sum of live bytes over the kernels. */
MYCC_API int mycc_memory(mycc_model *model, int32_t entry, const mycc_tensor *inputs, int32_t n_inputs, int64_t *arena, int64_t *live);

/* The NVIDIA devices of this machine. mycc_cuda_count is 0 where there is none; mycc_cuda_problem says why, or is empty. */
typedef struct mycc_cuda_device {
  const char *name;
  int32_t major, minor;     /* compute capability */
  int32_t multiprocessors;
  int32_t l2_bytes, shared_bytes; /* shared memory that a block may have */
  uint64_t memory;
} mycc_cuda_device;

MYCC_API int32_t mycc_cuda_count(void);
MYCC_API const char *mycc_cuda_problem(void);
MYCC_API int mycc_cuda_device_at(int32_t i, mycc_cuda_device *device);
/* Bytes a second that device i copies within its memory, each counted twice: it is read and written. Takes two pieces of
 * `bytes` there for the time of the measurement. */
MYCC_API int mycc_cuda_copy_speed(int32_t i, size_t bytes, double *bytes_per_second);

#ifdef __cplusplus
}
#endif
#endif /* MYCC_MODEL_H */
