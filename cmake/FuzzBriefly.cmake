# One test of the other trees: builds the fuzzers with sanitizers, in the tree of sanitize_subset,
# and runs them for so many seconds in all. What they find stays in that tree's findings/.

include(${CMAKE_CURRENT_LIST_DIR}/SanitizeTree.cmake)

build_with_sanitizers(onepass_fuzz)
set(ENV{OMP_WAIT_POLICY} passive)
# The same inputs each time: a test that fails has to fail again.
set(seed 20261119)
run(${build_dir}/fuzz/onepass_fuzz run --seconds ${seconds} --seed ${seed}
  --findings ${build_dir}/findings)
