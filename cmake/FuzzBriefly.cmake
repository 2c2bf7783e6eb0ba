# One test of the other trees: builds the fuzzers with sanitizers, in the tree of sanitize_subset, and runs them for so many
# seconds in all. What they find stays in that tree's findings/.

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

if(NOT EXISTS ${build_dir}/build.ninja)
  run(${CMAKE_COMMAND} -S ${source_dir} -B ${build_dir} --preset sanitize)
endif()
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
run(${CMAKE_COMMAND} --build ${build_dir} --parallel ${cores} --target onepass_fuzz)
set(ENV{OMP_WAIT_POLICY} passive)
# The same inputs each time: a test that fails has to fail again.
set(seed 20261119)
run(${build_dir}/fuzz/onepass_fuzz run --seconds ${seconds} --seed ${seed} --findings ${build_dir}/findings)
