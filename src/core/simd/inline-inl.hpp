// What kernels force inline. Per-target.
//
// g++ leaves a lambda that is used more than once uninlined, which costs a call per vector. In
// the baseline of x86, where a vector is one element, nothing is forced: it runs on CPUs from before
// 2013, so a short build matters more than speed.

#if defined(ONEPASS_CORE_SIMD_INLINE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_CORE_SIMD_INLINE_INL
#undef ONEPASS_CORE_SIMD_INLINE_INL
#else
#define ONEPASS_CORE_SIMD_INLINE_INL
#endif

#include <hwy/highway.h>

#undef ONEPASS_INLINE  // after a lambda's parameters
#undef ONEPASS_FORCED  // before a function
#if HWY_TARGET == HWY_SCALAR
#define ONEPASS_INLINE HWY_ATTR
#define ONEPASS_FORCED inline
#elif defined(__OPTIMIZE__)
#define ONEPASS_INLINE HWY_ATTR __attribute__((always_inline))
#define ONEPASS_FORCED inline __attribute__((always_inline))
#else
#define ONEPASS_INLINE HWY_ATTR
#define ONEPASS_FORCED inline
#endif

#endif
