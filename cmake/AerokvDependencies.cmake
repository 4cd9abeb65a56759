# SPDX-License-Identifier: Apache-2.0
# Libraries of the system; each failure names the Debian package that brings the missing one.
find_package(Threads REQUIRED)

find_package(OpenSSL 3.0 QUIET COMPONENTS Crypto SSL)
if(NOT OpenSSL_FOUND)
  message(FATAL_ERROR "OpenSSL 3 headers are missing (Debian: apt-get install libssl-dev)")
endif()

function(aerokv_find_library target header library package)
  find_path(${target}_INCLUDE ${header})
  find_library(${target}_LIBRARY ${library})
  if(NOT ${target}_INCLUDE OR NOT ${target}_LIBRARY)
    message(FATAL_ERROR "${header} or lib${library} is missing (Debian: apt-get install ${package})")
  endif()
  add_library(aerokv::${target} INTERFACE IMPORTED)
  target_include_directories(aerokv::${target} SYSTEM INTERFACE ${${target}_INCLUDE})
  target_link_libraries(aerokv::${target} INTERFACE ${${target}_LIBRARY})
endfunction()

aerokv_find_library(isal isa-l.h isal libisal-dev)
aerokv_find_library(crypt crypt.h crypt libcrypt-dev)
aerokv_find_library(zstd zstd.h zstd libzstd-dev)

# xxHash is used as headers only (XXH_INLINE_ALL): its kernels are compiled into ours.
find_path(XXHASH_INCLUDE xxhash.h)
if(NOT XXHASH_INCLUDE)
  message(FATAL_ERROR "xxhash.h is missing (Debian: apt-get install libxxhash-dev)")
endif()
add_library(aerokv::xxhash INTERFACE IMPORTED)
target_include_directories(aerokv::xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE})

if(AEROKV_PYTHON)
  find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
  if(NOT Python_FOUND)
    message(FATAL_ERROR "Python 3.10 headers are missing (Debian: apt-get install python3-dev)")
  endif()
  # pip and scikit-build-core tell where nanobind is; a plain CMake build asks the interpreter.
  if(NOT nanobind_DIR AND NOT nanobind_ROOT)
    execute_process(
      COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
      OUTPUT_VARIABLE nanobind_ROOT
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  find_package(nanobind CONFIG QUIET)
  if(NOT nanobind_FOUND)
    message(FATAL_ERROR "nanobind is missing (pip install nanobind)")
  endif()
endif()

if(AEROKV_TESTS)
  find_package(GTest QUIET)
  if(NOT GTest_FOUND)
    message(FATAL_ERROR "GoogleTest is missing (Debian: apt-get install libgtest-dev)")
  endif()
  include(GoogleTest)
endif()

if(AEROKV_BENCH)
  find_package(benchmark QUIET)
  if(NOT benchmark_FOUND)
    message(FATAL_ERROR "Google Benchmark is missing (Debian: apt-get install libbenchmark-dev)")
  endif()
endif()

if(AEROKV_FUZZERS AND NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
  message(FATAL_ERROR "fuzzing needs clang and its runtime "
                      "(Debian: apt-get install clang libclang-rt-14-dev)")
endif()
