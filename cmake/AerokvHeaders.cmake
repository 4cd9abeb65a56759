# SPDX-License-Identifier: Apache-2.0
# Target check_headers: each header compiles alone, so that no file depends on what another one
# happens to include.
file(
  GLOB_RECURSE headers
  RELATIVE ${PROJECT_SOURCE_DIR}
  CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.h ${PROJECT_SOURCE_DIR}/src/*.h)
list(FILTER headers EXCLUDE REGEX "^src/bindings/") # these need Python's headers

set(includers)
foreach(header IN LISTS headers)
  set(includer ${PROJECT_BINARY_DIR}/headers/${header}.cc)
  file(CONFIGURE OUTPUT ${includer} CONTENT "#include \"${PROJECT_SOURCE_DIR}/${header}\"\n")
  list(APPEND includers ${includer})
endforeach()
add_library(check_headers OBJECT EXCLUDE_FROM_ALL ${includers})
target_link_libraries(check_headers PRIVATE aerokv_options aerokv::xxhash aerokv::isal
                                            aerokv::crypt OpenSSL::Crypto)
target_compile_definitions(check_headers PRIVATE AEROKV_SOURCE_DIR="${PROJECT_SOURCE_DIR}") # tests
set_target_properties(check_headers PROPERTIES EXPORT_COMPILE_COMMANDS OFF)
