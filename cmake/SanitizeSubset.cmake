# One test of the other trees: builds, with sanitizers in a tree of their own, the tests of all files that do not say
# otherwise, and runs the quick ones, so that one ctest run tells everything. `make sanitize` runs all tests there are.

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

if(NOT EXISTS ${build_dir}/build.ninja)
  run(${CMAKE_COMMAND} -S ${source_dir} -B ${build_dir} --preset sanitize)
endif()
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
run(${CMAKE_COMMAND} --build ${build_dir} --parallel ${cores} --target onepass_hardened_tests)

set(ENV{GTEST_FILTER} -*Slow*)
set(ENV{ONEPASS_TEST_SUBSET} 1)       # of a workload's lines a part (tests/ops/verify_test.cpp)
set(ENV{RC_PARAMS} max_success=20)  # of RapidCheck's 100 cases a property
run(${CMAKE_CTEST_COMMAND} --test-dir ${build_dir} -R onepass_hardened_tests --parallel ${cores} --output-on-failure
  --no-tests=error)
