# The CUDA switch. Sets ONEPASS_CUDA_ENABLED and says in one line what was decided. The language is
# enabled here, in the top directory, as CMake wants it.

set(ONEPASS_CUDA_ENABLED OFF)

if(NOT ONEPASS_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "ONEPASS_CUDA is '${ONEPASS_CUDA}': AUTO, ON or OFF")
endif()
if(ONEPASS_CUDA STREQUAL "OFF")
  message(STATUS "CUDA: switched off")
  return()
endif()

# The toolkit's own directory is often not on PATH.
find_program(ONEPASS_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_PATH ENV CUDA_HOME
  PATHS /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(ONEPASS_NVCC)
if(NOT ONEPASS_NVCC AND NOT CMAKE_CUDA_COMPILER)
  if(ONEPASS_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ONEPASS_CUDA is ON, but nvcc was not found: put it on PATH or set CUDACXX")
  endif()
  message(STATUS "CUDA: nvcc not found, the GPU parts are left out")
  return()
endif()

# Debian's own package is years behind, and first on PATH. Asked before CMake tries to compile with
# it, whose answer would be a page about C++20.
set(ONEPASS_NVCC_LEAST 12.8)
set(nvcc ${ONEPASS_NVCC})
if(CMAKE_CUDA_COMPILER)
  set(nvcc ${CMAKE_CUDA_COMPILER})
elseif(DEFINED ENV{CUDACXX})
  set(nvcc $ENV{CUDACXX})
endif()
execute_process(COMMAND ${nvcc} --version
  OUTPUT_VARIABLE nvcc_says ERROR_QUIET RESULT_VARIABLE failed)
if(NOT failed AND nvcc_says MATCHES "release ([0-9]+\\.[0-9]+)"
    AND CMAKE_MATCH_1 VERSION_LESS ONEPASS_NVCC_LEAST)
  string(CONCAT too_old "${nvcc} is ${CMAKE_MATCH_1}, ${ONEPASS_NVCC_LEAST} or later is needed: "
    "set CUDACXX to one and configure again")
  unset(ONEPASS_NVCC CACHE)  # looked for again then
  if(ONEPASS_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ONEPASS_CUDA is ON, but ${too_old}")
  endif()
  message(STATUS "CUDA: ${too_old}; the GPU parts are left out")
  return()
endif()

# The architecture of each GPU in this machine. Not CMake's `native`: that gives plain 90 on Hopper,
# and the tensor-core instructions exist only in 90a (and so on for the later ones).
function(onepass_gpus_here result)
  set(architectures "")
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE capabilities ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" capabilities "${capabilities}")
    foreach(capability IN LISTS capabilities)
      string(REPLACE "." "" architecture ${capability})
      if(architecture GREATER_EQUAL 90)
        string(APPEND architecture a)
      endif()
      list(APPEND architectures ${architecture}-real)
    endforeach()
    list(REMOVE_DUPLICATES architectures)
  endif()
  set(${result} "${architectures}" PARENT_SCOPE)
endfunction()

set(architectures ${ONEPASS_CUDA_ARCHITECTURES})
if(NOT architectures)
  onepass_gpus_here(architectures)
endif()
if(NOT architectures)
  set(architectures 80 90a-real)  # 80 brings its PTX along, for whatever comes after
endif()

if(NOT DEFINED ENV{CUDACXX})
  set(ENV{CUDACXX} ${ONEPASS_NVCC})
endif()
if(NOT DEFINED ENV{CUDAHOSTCXX})
  set(ENV{CUDAHOSTCXX} ${CMAKE_CXX_COMPILER})
endif()
if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(ONEPASS_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ONEPASS_CUDA is ON, but ${ONEPASS_NVCC} compiles nothing: "
      "see CMakeFiles/CMakeError.log in the build tree")
  endif()
  message(STATUS "CUDA: ${ONEPASS_NVCC} compiles nothing, the GPU parts are left out")
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES ${architectures})
enable_language(CUDA)
# nvcc has C++20 since 12.0; CMake 3.25 does not know yet.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
find_package(CUDAToolkit REQUIRED)
set(ONEPASS_CUDA_ENABLED ON)
message(STATUS
  "CUDA: ${CMAKE_CUDA_COMPILER_VERSION}, GPU parts for ${architectures}")

# Compressed code is a quarter as large, and loads as quickly. The mildest of nvcc's fast ways
# makes attention up to 30 times as slow (docs/facts/cpu.md), so the fastest is for code that
# only has to compile.
set(ONEPASS_CUDA_WAY --compress-mode=size)
if(ONEPASS_CUDA_QUICK AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13.0)
  set(ONEPASS_CUDA_WAY --Ofast-compile=max --compress-mode=none)
  message(STATUS "CUDA: compiled quickly, and not for speed")
elseif(ONEPASS_CUDA_QUICK)
  message(STATUS "CUDA: compiled for speed all the same, as nvcc before 13.0 has no quick way")
endif()

include(${CMAKE_CURRENT_LIST_DIR}/Memory.cmake)
