// SPDX-License-Identifier: Apache-2.0
#include "serde/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/fd.h"

namespace aerokv::serde {
namespace {

Status refused(Code code, const std::string& path, const std::string& why) {
  return {code, "key file " + path + ": " + why};
}

Status refused(const std::string& path, int error) {
  return {Code::invalid, status_from_errno(error, "key file " + path).message()};
}

Status check(const std::string& path, const struct stat& facts) {
  if (!S_ISREG(facts.st_mode)) return refused(Code::invalid, path, "not a regular file");
  if (facts.st_uid != 0 && facts.st_uid != ::geteuid()) {
    return refused(Code::denied, path,
                   "owned by user " + std::to_string(facts.st_uid) + ", expected this user (" +
                       std::to_string(::geteuid()) + ") or root");
  }
  if ((facts.st_mode & 0077) != 0) {
    char mode[8] = {};
    static_cast<void>(std::snprintf(mode, sizeof(mode), "%04o", facts.st_mode & 07777));
    return refused(Code::denied, path,
                   "mode " + std::string(mode) +
                       " lets group or others at it, expected 0600 or 0400 (chmod 600)");
  }
  if (facts.st_size <= 0 || facts.st_size > static_cast<off_t>(kKeyFileBytesMax)) {
    return refused(Code::invalid, path,
                   std::to_string(facts.st_size) + " bytes, expected 1 to " +
                       std::to_string(kKeyFileBytesMax));
  }
  return {};
}

}  // namespace

Result<codec::SecretBytes> read_key_file(const std::string& path) {
  // O_NONBLOCK: opening a named pipe must not wait for its writer.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open()) return refused(path, errno);
  struct stat facts = {};
  if (::fstat(file.get(), &facts) != 0) return refused(path, errno);
  AEROKV_TRY(check(path, facts));
  // One byte more than it had: a file that grows meanwhile is noticed.
  codec::SecretBytes key(static_cast<size_t>(facts.st_size) + 1);
  size_t size = 0;
  while (size < key.size()) {
    const ssize_t count = ::read(file.get(), key.bytes().data() + size, key.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return refused(path, errno);
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  if (size != static_cast<size_t>(facts.st_size)) {
    return refused(Code::invalid, path, "changed while it was read");
  }
  key.truncate(size);
  return key;
}

}  // namespace aerokv::serde
