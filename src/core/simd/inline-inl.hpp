// What kernels force inline. Per-target.
//
// g++ leaves a lambda that is used more than once uninlined, which costs a call per vector. Nothing
// is forced where a short build matters more than speed: in the baseline of x86, whose vectors are
// one element and whose CPUs are from before 2013, and under sanitizers, which check every copy.

#if defined(ONEPASS_CORE_SIMD_INLINE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEPASS_CORE_SIMD_INLINE_INL
#undef ONEPASS_CORE_SIMD_INLINE_INL
#else
#define ONEPASS_CORE_SIMD_INLINE_INL
#endif

#include <hwy/highway.h>

#undef ONEPASS_INLINE  // after a lambda's parameters
#undef ONEPASS_FORCED  // before a function
#if HWY_TARGET == HWY_SCALAR || !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__)
#define ONEPASS_INLINE HWY_ATTR
#define ONEPASS_FORCED inline
#else
#define ONEPASS_INLINE HWY_ATTR __attribute__((always_inline))
#define ONEPASS_FORCED inline __attribute__((always_inline))
#endif

#endif
