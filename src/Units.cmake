# The CUDA sources of the library, cuda_sources: every .cu below this folder. Headers cost each of
# them three to five seconds before its first kernel, so those that take little more are compiled
# together. No unit takes longer than the slowest source alone, some 45 seconds: cores share them.
file(GLOB_RECURSE cuda_sources RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS
  ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)

# Has the build compile sources as one, src/units/<name>.cu below the build tree.
function(onepass_unit name)
  set(unit ${CMAKE_CURRENT_BINARY_DIR}/units/${name}.cu)
  list(TRANSFORM ARGN REPLACE "(.+)" "#include \"\\1\"\n" OUTPUT_VARIABLE includes)
  string(CONCAT text ${includes})
  file(CONFIGURE OUTPUT ${unit} CONTENT "${text}" @ONLY)
  list(REMOVE_ITEM cuda_sources ${ARGN})
  set(cuda_sources ${cuda_sources} ${unit} PARENT_SCOPE)
endfunction()

# Launchers whose kernels are compiled elsewhere, and what compiles in a second or two.
onepass_unit(small
  ops/attention/gpu/backward/flash.cu
  ops/attention/gpu/flash/combine.cu
  ops/attention/gpu/flash/decode.cu
  ops/attention/gpu/flash/flash.cu
  ops/attention/gpu/hopper/hopper.cu
  ops/attention/gpu/hopper/tensor_map.cu
  ops/attention/gpu/merge.cu
  ops/attention/gpu/simt.cu
  ops/loss/gpu/reduce.cu
  ops/select/gpu/sample_block.cu
  ops/select/gpu/wide.cu
  runtime/probe.cu)
onepass_unit(flash_64_96 ops/attention/gpu/flash/dim_64.cu ops/attention/gpu/flash/dim_96.cu)
onepass_unit(flash_128_192 ops/attention/gpu/flash/dim_128.cu ops/attention/gpu/flash/dim_192.cu)
onepass_unit(backward_64_128
  ops/attention/gpu/backward/flash_64.cu ops/attention/gpu/backward/flash_128.cu)
onepass_unit(backward_any_64_128
  ops/attention/gpu/backward/flash_any_64.cu ops/attention/gpu/backward/flash_any_128.cu)
onepass_unit(backward_any_256_512
  ops/attention/gpu/backward/flash_any_256.cu ops/attention/gpu/backward/flash_any_512.cu)
onepass_unit(hopper_backward
  ops/attention/gpu/backward/hopper/hopper.cu ops/attention/gpu/backward/hopper/dim_64.cu
  ops/attention/gpu/backward/hopper/dim_128.cu)
onepass_unit(hopper_64_96 ops/attention/gpu/hopper/dim_64.cu ops/attention/gpu/hopper/dim_96.cu)
onepass_unit(hopper_128_192 ops/attention/gpu/hopper/dim_128.cu ops/attention/gpu/hopper/dim_192.cu)
onepass_unit(loss_group_weighted ops/loss/gpu/group.cu ops/loss/gpu/weighted.cu)
onepass_unit(select_sort_warp ops/select/gpu/sort.cu ops/select/gpu/warp.cu)
onepass_unit(softmax_groups ops/softmax/gpu/group.cu ops/softmax/gpu/backward_group.cu)

# All steps of an op's walk.
foreach(op attention select softmax)
  set(steps ${cuda_sources})
  list(FILTER steps INCLUDE REGEX "^ops/${op}/walk/")
  if(ONEPASS_WALK)
    onepass_unit(${op}_walk ${steps})
  else()
    list(REMOVE_ITEM cuda_sources ${steps})
  endif()
endforeach()
