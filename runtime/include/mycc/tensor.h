/* tensor.h: how tensors are handed over: to and from packages (model.h), and to C++ kernels in them (custom.h). */
#ifndef MYCC_TENSOR_H
#define MYCC_TENSOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MYCC_MAX_RANK 16

/* Element types; code and bits are those of DLPack (dlpack.h: kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4, kDLComplex 5, kDLBool 6). */
typedef struct mycc_dtype {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes; /* always 1 */
} mycc_dtype;

/* A tensor as DLPack lays it out: a strided view of memory that somebody owns. */
typedef struct mycc_tensor {
  void *data;             /* address of the first element (DLPack's data + byte_offset) */
  int32_t device_type;    /* DLPack's kDLCPU is 1 */
  int32_t device_id;
  int32_t ndim;
  mycc_dtype dtype;
  int64_t shape[MYCC_MAX_RANK];
  int64_t strides[MYCC_MAX_RANK]; /* in elements */
  void *owner;            /* NULL: memory of the caller; else memory of the runtime, freed by mycc_tensor_free */
} mycc_tensor;

#ifdef __cplusplus
}
#endif
#endif /* MYCC_TENSOR_H */
