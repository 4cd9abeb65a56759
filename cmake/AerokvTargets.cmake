# SPDX-License-Identifier: Apache-2.0
# How a layer, a test and a fuzz target are declared. Links declare the order of the layers.

add_library(aerokv_options INTERFACE)
target_include_directories(aerokv_options INTERFACE ${PROJECT_SOURCE_DIR}/include
                                                    ${PROJECT_SOURCE_DIR}/src)
target_compile_options(
  aerokv_options
  INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wold-style-cast -fvisibility=hidden
            -fno-math-errno $<$<BOOL:${AEROKV_WERROR}>:-Werror>)
# g++ 12 sees overflows in code that it has made up itself when it inlines containers; clang and
# the sanitizers look for the real ones.
target_compile_options(
  aerokv_options
  INTERFACE
    "$<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow;-Wno-stringop-overread>"
)
target_link_libraries(aerokv_options INTERFACE Threads::Threads)
# Bytes of strangers are parsed here: what the compiler can check for free in an optimised build,
# it does; every other build also checks the indices of the standard containers.
target_compile_options(
  aerokv_options
  INTERFACE "$<$<CONFIG:Release>:-fstack-protector-strong;-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>"
            $<$<NOT:$<CONFIG:Release>>:-D_GLIBCXX_ASSERTIONS>)
if(AEROKV_SANITIZE)
  target_compile_options(aerokv_options INTERFACE -fsanitize=${AEROKV_SANITIZE}
                                                  -fno-sanitize-recover=all
                                                  -fno-omit-frame-pointer -g1 -O1)
  target_link_options(aerokv_options INTERFACE -fsanitize=${AEROKV_SANITIZE})
endif()
if(AEROKV_FUZZERS)
  target_compile_options(aerokv_options INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(aerokv_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# aerokv_layer(name SOURCES ... LINKS ...): a static library aerokv_<name>.
function(aerokv_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINKS")
  add_library(aerokv_${name} STATIC ${arg_SOURCES})
  target_link_libraries(aerokv_${name} PUBLIC aerokv_options ${arg_LINKS})
  if(AEROKV_CLANG_TIDY)
    set_target_properties(aerokv_${name} PROPERTIES CXX_CLANG_TIDY "${AEROKV_CLANG_TIDY};--quiet")
  endif()
endfunction()

# aerokv_test(name [ALONE] LABELS ... SOURCES ... LINKS ...): one gtest program, one ctest entry for
# each of its test cases; with ALONE nothing else runs beside them.
function(aerokv_test name)
  if(NOT AEROKV_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "ALONE" "" "LABELS;SOURCES;LINKS")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINKS} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE AEROKV_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 120
                                          RUN_SERIAL "${arg_ALONE}" DISCOVERY_MODE PRE_TEST)
endfunction()

# aerokv_fuzz(name SOURCES ... LINKS ... CORPUS dir): a libFuzzer program; ctest replays its corpus
# and then runs it for a few seconds.
function(aerokv_fuzz name)
  if(NOT AEROKV_FUZZERS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "CORPUS" "SOURCES;LINKS")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINKS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_test(NAME ${name} COMMAND ${name} -max_total_time=10 -timeout=10 -rss_limit_mb=2048
                                -print_final_stats=0 ${CMAKE_CURRENT_BINARY_DIR}/${name}_corpus
                                ${arg_CORPUS})
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${name}_corpus)
  set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT 120)
endfunction()
