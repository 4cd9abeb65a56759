// SPDX-License-Identifier: Apache-2.0
// Key files for tests.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "aerokv/bytes.h"

namespace aerokv::serde {

/// A file of its own with mode 0600, removed at the end.
class KeyFile {
 public:
  explicit KeyFile(Bytes contents) {
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder != nullptr ? folder : "/tmp") + "/aerokv_key_XXXXXX";
    const int file = ::mkstemp(path_.data());
    EXPECT_GE(file, 0) << path_;
    EXPECT_EQ(::write(file, contents.data(), contents.size()),
              static_cast<ssize_t>(contents.size()));
    ::close(file);
  }
  explicit KeyFile(std::string_view contents) : KeyFile(as_bytes(contents)) {}
  KeyFile(const KeyFile&) = delete;
  KeyFile& operator=(const KeyFile&) = delete;
  ~KeyFile() { ::unlink(path_.c_str()); }

  [[nodiscard]] const std::string& path() const { return path_; }
  void set_mode(mode_t mode) const { EXPECT_EQ(::chmod(path_.c_str(), mode), 0); }

 private:
  std::string path_;
};

}  // namespace aerokv::serde
