# Compiles one CUDA source for sm_90a and fails when ptxas has put registers into memory (a
# spill) or has anything to say about wgmma: that it made the products wait for each other, or
# added waits of its own. Both leave results as they were and cost most of the speed, so nothing
# else would notice.
#
#   cmake -D nvcc=... -D source=... -D include="a;b" -D output=... -P cmake/PtxasCheck.cmake
#
# With -D spills=1 spills are passed over: warps that only serve have few registers.
list(TRANSFORM include PREPEND -I)
execute_process(
  COMMAND ${nvcc} -std=c++20 ${include} --expt-relaxed-constexpr -lineinfo
    -gencode=arch=compute_90a,code=sm_90a -Xptxas -v -cubin -o ${output} ${source}
  OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "${source} does not compile:\n${said}")
endif()
if(NOT said MATCHES "bytes spill stores")
  message(FATAL_ERROR "${source}: ptxas reported no function, so nothing was checked:\n${said}")
endif()

# The notices about wgmma are C7509 to C7520; a spill is any number but 0.
set(unwanted "\\(C75[0-9][0-9]\\)|[1-9][0-9]* bytes spill")
if(spills)
  set(unwanted "\\(C75[0-9][0-9]\\)")
endif()
string(REGEX MATCHALL "[^\n]*(${unwanted})[^\n]*" notices "${said}")
if(notices)
  list(REMOVE_DUPLICATES notices)
  list(JOIN notices "\n" notices)
  message(FATAL_ERROR "${source}: ptxas reports\n${notices}")
endif()
message(STATUS "${source}: nothing unwanted")
