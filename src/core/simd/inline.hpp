// For lambdas in per-target code: g++ leaves a lambda that is used more than once uninlined, which
// costs a call a vector.
#pragma once

#include <hwy/base.h>

#define ONEPASS_INLINE HWY_ATTR __attribute__((always_inline))
