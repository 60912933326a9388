/* vec.h: vectors of W lanes for generated CPU kernels, on GCC/Clang vector extensions; W and the instructions follow
 * the -march flag. Namespace mycc, header only, no standard library.
 *
 *   vec/types.h   vf32 vf64 vi32 vi64 vbool, splat, iota, build
 *   vec/isa.h     what the extensions cannot say, by instruction set
 *   vec/memory.h  load, store, gather of all storage types
 *   vec/interleave.h   vectors that lie in memory in turn, backwards, or around an end
 *   vec/ops.h     comparisons, logic, selection, min/max, integers, casts
 *   vec/bounds.h  vectors of which some lanes lie outside of a row
 *   vec/reduce.h  reductions of a vector to a scalar
 *   vec/neighbours.h  reductions of neighbours, side by side
 *   vec/taps.h    taps of windows that lie two or more elements apart
 *
 * Vector maths (exp, erf, ...) is in math/math.h. Every function has scalar overloads that give the bits of one lane.
 */
#ifndef MYCC_KERNELS_VEC_VEC_H
#define MYCC_KERNELS_VEC_VEC_H

#include "kernels/vec/types.h"
#include "kernels/vec/isa.h"
#include "kernels/vec/memory.h"
#include "kernels/vec/interleave.h"
#include "kernels/vec/ops.h"
#include "kernels/vec/bounds.h"
#include "kernels/vec/reduce.h"
#include "kernels/vec/neighbours.h"
#include "kernels/vec/taps.h"

#endif /* MYCC_KERNELS_VEC_VEC_H */
