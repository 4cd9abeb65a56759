// SPDX-License-Identifier: Apache-2.0
// What others need for the same bytes: the transforms of the serde layer are measured beside them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "aerokv/bytes.h"

namespace aerokv::bench {

/// One run over the same object; its time is compared with that of the case it belongs to.
struct Rival {
  std::string name;
  std::function<void()> run;
  std::vector<double> ratios = {};  ///< its time / that of the case: over 1 = the case is faster
};

/// Rivals of writing and of reading one format. `source` and `target` must outlive them; `target`
/// holds 64 KiB more than `source`.
struct Rivals {
  std::vector<Rival> writing;
  std::vector<Rival> reading;
};

/// xxHash's XXH3-64 as it is compiled for AVX2, alone and behind a memcpy.
Rivals checksum_rivals(Bytes source, MutableBytes target);

/// One call of OpenSSL's EVP interface for the whole object, with a context that is kept.
Rivals aesgcm_rivals(Bytes source, MutableBytes target);

/// zstd at level 1 over the bytes as they are.
Rivals lossless_rivals(Bytes source, MutableBytes target);

/// A key file for the time of the program; its path.
class BenchKey {
 public:
  BenchKey();
  BenchKey(const BenchKey&) = delete;
  BenchKey& operator=(const BenchKey&) = delete;
  ~BenchKey();
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace aerokv::bench
