# Run by the build: writes onepass_build.hpp, and leaves the file alone when nothing changed.
#
# "dirty" answers one question: may the code that was built differ from the commit's? So results and
# prose, which no binary is made of, do not count.

set(commit unknown)
set(dirty true)

find_program(git git)
if(git)
  # No optional locks: a look must not get in the way of somebody's commit.
  set(git_here ${git} --no-optional-locks -C ${source_dir})
  execute_process(COMMAND ${git_here} rev-parse --show-toplevel
    OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(REAL_PATH ${source_dir} real_source_dir)
  # An unpacked archive may lie inside somebody else's repository.
  if(top STREQUAL real_source_dir)
    execute_process(COMMAND ${git_here} rev-parse --verify --quiet HEAD
      OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE no_head)
    execute_process(COMMAND ${git_here} status --porcelain --
      . ":(exclude)results" ":(exclude)docs" ":(exclude)*.md"
      OUTPUT_VARIABLE changes ERROR_QUIET RESULT_VARIABLE no_status)
    if(NOT no_head)
      set(commit ${head})
      if(NOT no_status AND changes STREQUAL "")
        set(dirty false)
      endif()
    endif()
  endif()
endif()

if(cuda)
  set(cuda true)
else()
  set(cuda false)
endif()

configure_file(${CMAKE_CURRENT_LIST_DIR}/onepass_build.hpp.in ${output} @ONLY)
