// SPDX-License-Identifier: Apache-2.0
#include "base/secret.h"

#include <string.h>  // explicit_bzero
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>

namespace aerokv {

class Secret::Pages {
 public:
  explicit Pages(std::string_view text) : size_(text.size()) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    mapped_ = (size_ + page - 1) / page * page;
    data_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) {  // no mapping is left: the heap may still have room for some bytes
      heap_ = std::make_unique<char[]>(size_);
      data_ = heap_.get();
    } else {
      ::madvise(data_, mapped_, MADV_DONTDUMP);
      ::mlock(data_, mapped_);  // a limit of the system may forbid it, which is no reason to stop
    }
    std::memcpy(data_, text.data(), size_);
  }
  ~Pages() {
    explicit_bzero(data_, size_);
    if (heap_ == nullptr) ::munmap(data_, mapped_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  [[nodiscard]] std::string_view view() const { return {static_cast<const char*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;
  std::unique_ptr<char[]> heap_;  // instead of a mapping
};

void wipe(std::string& text) {
  explicit_bzero(text.data(), text.capacity());
  text.clear();
}

Secret::Secret(std::string_view text) {
  if (!text.empty()) pages_ = std::make_shared<const Pages>(text);
}

Secret Secret::take(std::string& text) {
  Secret secret(text);
  wipe(text);
  return secret;
}

std::string_view Secret::view() const {
  return pages_ == nullptr ? std::string_view() : pages_->view();
}

}  // namespace aerokv
