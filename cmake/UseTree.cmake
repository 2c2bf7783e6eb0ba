# The library of another build tree, in place of one of our own (ONEPASS_USE_TREE). That tree is not
# built from here: who names it has built its target `onepass`.
set(tree ${ONEPASS_USE_TREE}/tree)
if(NOT EXISTS ${tree}/targets.cmake)
  message(FATAL_ERROR
    "ONEPASS_USE_TREE: ${ONEPASS_USE_TREE} is not a configured build tree of onepass")
endif()
include(${tree}/settings.cmake)
if(NOT tree_source_dir STREQUAL PROJECT_SOURCE_DIR)
  message(FATAL_ERROR "ONEPASS_USE_TREE: ${ONEPASS_USE_TREE} is built from ${tree_source_dir}")
endif()

# What the library itself links.
find_package(hwy REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
if(ONEPASS_CUDA_ENABLED)
  find_package(CUDAToolkit REQUIRED)
endif()
include(${tree}/targets.cmake)
get_target_property(kind onepass TYPE)
if(NOT kind STREQUAL "STATIC_LIBRARY")
  message(FATAL_ERROR
    "ONEPASS_USE_TREE: ${ONEPASS_USE_TREE} has a shared library, which would stay behind")
endif()
message(STATUS "onepass: the library of ${ONEPASS_USE_TREE}")
