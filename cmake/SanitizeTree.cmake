# The sanitizer tree from within a test of another tree: `source_dir` and `build_dir` say where.

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)

function(build_with_sanitizers target)
  if(NOT EXISTS ${build_dir}/build.ninja)
    run(${CMAKE_COMMAND} -S ${source_dir} -B ${build_dir} --preset sanitize)
  endif()
  run(${CMAKE_COMMAND} --build ${build_dir} --parallel ${cores} --target ${target})
endfunction()
