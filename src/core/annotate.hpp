// The macros of the core.
//
// ONEPASS_HD      host and device both compile the function.
// ONEPASS_HD_ONCE the same, but never inlined on the device, so that a kernel has the instructions
//                 once. For functions that a kernel needs in many places and runs rarely, never
//                 per element.
#pragma once

#ifdef __CUDACC__
#define ONEPASS_HD __host__ __device__
#define ONEPASS_HD_ONCE __host__ __device__ __noinline__
#else
#define ONEPASS_HD
#define ONEPASS_HD_ONCE
#endif
