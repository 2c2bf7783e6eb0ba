// Forced inlining for kernels. Per-target.
//
// g++ does not inline a lambda that is used more than once, which costs a call per vector. Nothing
// is forced where a short build matters more than speed: for the baseline of x86, with vectors of
// one element and CPUs from before 2013, and under sanitizers, which check every copy.

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
