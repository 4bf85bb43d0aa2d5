# hyper_library(NAME SOURCES ... DEPS ...): a static library of one folder, target hyper_NAME.
add_library(hyper_flags INTERFACE)
target_include_directories(hyper_flags INTERFACE "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}")
target_compile_options(hyper_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers
  # Numerics are fixed: a fused multiply-add only where one is written.
  -ffp-contract=off)

function(hyper_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(hyper_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(hyper_${name} PUBLIC hyper_flags ${ARG_DEPS})
endfunction()

# hyper_test(NAME SOURCES ... DEPS ... [LABEL unit] [TIMEOUT 60]): one GoogleTest binary.
function(hyper_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE hyper_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE HYPER_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                             HYPER_BINARY_DIR="${PROJECT_BINARY_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT})
  # A test that skips itself proves nothing; only what needs a GPU or much time may.
  if(NOT ARG_LABEL MATCHES "slow|gpu")
    set_tests_properties(${name} PROPERTIES FAIL_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  endif()
endfunction()
