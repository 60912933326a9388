/* math.h: what kernels of the user's own may use of mycc's: see kernels/math/math.h. */
#ifndef MYCC_MATH_H
#define MYCC_MATH_H

#include "kernels/math/math.h"

#endif
