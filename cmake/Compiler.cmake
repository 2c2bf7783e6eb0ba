# What every target of this build is compiled with.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  endif()
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)  # for clang-tidy and editors

  find_program(CCACHE ccache)
  mark_as_advanced(CCACHE)
  if(CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  endif()
endif()

set(sanitizers ${ONEPASS_SANITIZE})
if(ONEPASS_LIBFUZZER)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "ONEPASS_LIBFUZZER needs clang, this is ${CMAKE_CXX_COMPILER_ID}")
  endif()
  list(APPEND sanitizers fuzzer-no-link)
endif()
if(sanitizers)
  list(JOIN sanitizers "," sanitizers)
  # The first finding ends the program: a test cannot pass with a report in its log.
  set(sanitize_flags -fsanitize=${sanitizers} -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${sanitize_flags}>")
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
  add_link_options(${sanitize_flags})
endif()

function(onepass_warnings target)
  set(flags -Wall -Wextra
    -Wno-psabi                       # vectors wider than the baseline never cross our boundary
    -Wno-ignored-attributes          # vector types as template arguments
    -Wno-missing-field-initializers  # {.scale = 2}: leaving fields out is what options are for
    )
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND flags -Wshadow=local)
    if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
      list(APPEND flags -Wno-restrict)  # g++ 12 sees an overlap in "text" + std::string
    endif()
  else()
    list(APPEND flags -Wshadow)
  endif()
  if(ONEPASS_WERROR)
    list(APPEND flags -Werror)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # What the optimiser believes to see changes with the machine that is compiled for (g++ 12
      # takes the undefined registers of its own AVX-512 intrinsics for uninitialised variables). It
      # is shown, and stops no build.
      foreach(guess array-bounds maybe-uninitialized stringop-overflow stringop-overread
          uninitialized)
        list(APPEND flags -Wno-error=${guess})
      endforeach()
    endif()
    # nvcc's own front end, cicc and ptxas.
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:--Werror all-warnings>")
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
  # The host half of a CUDA source goes to the same compiler.
  list(JOIN flags "," host_flags)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${host_flags}>")
endfunction()
