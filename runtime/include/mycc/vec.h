/* vec.h: vectors of W lanes for generated CPU kernels, on GCC/Clang vector extensions; W and the instructions follow
 * the -march flag. Namespace mycc, header only, no standard library.
 *
 *   vec_types.h   vf32 vf64 vi32 vi64 vbool, splat, iota, build
 *   vec_isa.h     what the extensions cannot say, by instruction set
 *   vec_memory.h  load, store, gather of all storage types
 *   vec_weave.h   vectors that lie in memory in turn, backwards, or around an end
 *   vec_ops.h     comparisons, logic, selection, min/max, integers, casts
 *   vec_bounds.h  vectors of which some lanes lie outside of a row
 *   vec_reduce.h  reductions of a vector to a scalar
 *   vec_neighbours.h  folds of neighbours, side by side
 *   vec_taps.h    taps of windows that lie two or more elements apart
 *
 * Vector maths (exp, erf, ...) is in math.h. Every function has scalar overloads that give the bits of one lane.
 */
#ifndef MYCC_VEC_H
#define MYCC_VEC_H

#include "vec_types.h"
#include "vec_isa.h"
#include "vec_memory.h"
#include "vec_weave.h"
#include "vec_ops.h"
#include "vec_bounds.h"
#include "vec_reduce.h"
#include "vec_neighbours.h"
#include "vec_taps.h"

#endif /* MYCC_VEC_H */
