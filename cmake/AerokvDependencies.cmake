# SPDX-License-Identifier: Apache-2.0
# Libraries of the system; each failure names the Debian package that brings the missing one.
find_package(Threads REQUIRED)

find_package(OpenSSL 3.0 QUIET COMPONENTS Crypto)
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

# xxHash is used as headers only (XXH_INLINE_ALL): its kernels are compiled into ours.
find_path(XXHASH_INCLUDE xxhash.h)
if(NOT XXHASH_INCLUDE)
  message(FATAL_ERROR "xxhash.h is missing (Debian: apt-get install libxxhash-dev)")
endif()
add_library(aerokv::xxhash INTERFACE IMPORTED)
target_include_directories(aerokv::xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE})
