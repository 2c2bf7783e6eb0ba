# A pool of jobs for the sources of the library, where memory allows fewer at once than there are
# cores. Without it the kernel ends a compiler in the middle of a build, and all that is said is
# `Killed`. Sets ONEPASS_JOB_POOL: the pool's name, or nothing where all cores may compile.

# The largest CUDA sources take up to 0.9 GiB (what /usr/bin/time -v says of nvcc and its parts).
set(ONEPASS_MIB_PER_JOB 1024 CACHE STRING
  "MiB of memory for each source of the library that is compiled at once")
mark_as_advanced(ONEPASS_MIB_PER_JOB)

set(ONEPASS_JOB_POOL "")
cmake_host_system_information(RESULT memory_mib QUERY TOTAL_PHYSICAL_MEMORY)
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
# A container may have less than its machine: `max`, or bytes.
if(EXISTS /sys/fs/cgroup/memory.max)
  file(STRINGS /sys/fs/cgroup/memory.max limit LIMIT_COUNT 1)
  if(limit MATCHES "^[0-9]+$")
    math(EXPR limit_mib "${limit} / 1048576")
    if(limit_mib LESS memory_mib)
      set(memory_mib ${limit_mib})
    endif()
  endif()
endif()

math(EXPR jobs "${memory_mib} / ${ONEPASS_MIB_PER_JOB}")
if(jobs LESS 1)
  set(jobs 1)
endif()
if(jobs LESS cores)
  set(ONEPASS_JOB_POOL onepass_memory)
  set_property(GLOBAL APPEND PROPERTY JOB_POOLS ${ONEPASS_JOB_POOL}=${jobs})
  message(STATUS "CUDA: ${memory_mib} MiB of memory, so at most ${jobs} of the library's sources "
    "are compiled at once")
endif()
