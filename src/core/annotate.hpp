// The one macro of the core: a function that host and device both compile.
#pragma once

#ifdef __CUDACC__
#define ONEPASS_HD __host__ __device__
#else
#define ONEPASS_HD
#endif
