// SPDX-License-Identifier: Apache-2.0
// Passwords and what stands for them, in memory that is not written into a core file.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace aerokv {

/// Overwrites the characters; the text is empty afterwards.
void wipe(std::string& text);

/// A short secret. Its bytes lie in pages of their own, which are kept out of core files and, where
/// the system allows it, out of the swap space, and are overwritten in the end. Copies share them.
/// A process that can map no more pages has them on the heap, overwritten in the end as well.
/// Thread-safe as far as it is not assigned to.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string_view text);

  /// Takes over `text`, which is wiped.
  static Secret take(std::string& text);

  [[nodiscard]] bool empty() const { return pages_ == nullptr; }
  /// Valid as long as this object or a copy of it.
  [[nodiscard]] std::string_view view() const;

 private:
  class Pages;
  std::shared_ptr<const Pages> pages_;
};

}  // namespace aerokv
