# One test of the other trees: builds, with sanitizers in a tree of their own, the tests of all
# files that do not say otherwise, and runs the quick ones, so that one ctest run tells everything.
# `make sanitize` runs all tests there are.

include(${CMAKE_CURRENT_LIST_DIR}/SanitizeTree.cmake)

build_with_sanitizers(onepass_hardened_tests)

set(ENV{GTEST_FILTER} -*Slow*)
set(ENV{ONEPASS_TEST_SUBSET} 1)       # of a workload's lines a part (tests/ops/verify_test.cpp)
set(ENV{RC_PARAMS} max_success=20)  # of RapidCheck's 100 cases a property
run(${CMAKE_CTEST_COMMAND} --test-dir ${build_dir} -R onepass_hardened_tests --parallel ${cores}
  --output-on-failure
  --no-tests=error)
