/* vec.h: what kernels of the user's own may use of mycc's: see kernels/vec/vec.h. */
#ifndef MYCC_VEC_H
#define MYCC_VEC_H

#include "kernels/vec/vec.h"

#endif
