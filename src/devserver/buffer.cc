// SPDX-License-Identifier: Apache-2.0
#include "devserver/buffer.h"

#include <bit>
#include <cstdlib>
#include <new>

namespace aerokv::devserver {
namespace {

constexpr uint32_t kUnpooled = ~0U;
constexpr size_t kPooledMin = 4096;
constexpr size_t kPageBytes = 4096;

BufferHead* make_head(void* memory, size_t capacity, uint32_t size_class, BufferPool* pool) {
  if (memory == nullptr) return nullptr;
  auto* head = new (memory) BufferHead;
  head->capacity = capacity;
  head->size_class = size_class;
  head->pool = pool;
  return head;
}

}  // namespace

void BufferRef::release() {
  if (head_ == nullptr) return;
  if (head_->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (head_->size_class == kUnpooled) {
    std::free(head_);
  } else {
    head_->pool->give_back(head_);
  }
}

BufferPool::~BufferPool() {
  for (Class& c : classes_) {
    for (BufferHead* head : c.idle) std::free(head);
  }
}

uint32_t BufferPool::class_of(size_t bytes) {
  if (bytes <= (size_t{1} << kFirstShift)) return 0;
  const auto shift = static_cast<uint32_t>(std::bit_width(bytes - 1)) - 1;
  const size_t step = (size_t{1} << shift) / kClassesPerDoubling;
  const size_t over = bytes - (size_t{1} << shift);
  return (shift - kFirstShift) * kClassesPerDoubling +
         static_cast<uint32_t>((over + step - 1) / step);
}

size_t BufferPool::class_bytes(uint32_t size_class) {
  const uint32_t shift = kFirstShift + size_class / kClassesPerDoubling;
  const size_t base = size_t{1} << shift;
  return base + base / kClassesPerDoubling * (size_class % kClassesPerDoubling);
}

BufferRef BufferPool::allocate(size_t bytes) {
  const size_t needed = bytes + sizeof(BufferHead);
  const uint32_t size_class = needed < kPooledMin ? kUnpooled : class_of(needed);
  if (size_class >= kClasses) {
    return BufferRef(make_head(std::malloc(needed), bytes, kUnpooled, this));
  }
  const size_t total = class_bytes(size_class);
  {
    Class& c = classes_[size_class];
    const std::scoped_lock lock(c.mutex);
    if (!c.idle.empty()) {
      BufferHead* head = c.idle.back();
      c.idle.pop_back();
      idle_bytes_.fetch_sub(total, std::memory_order_relaxed);
      head->references.store(1, std::memory_order_relaxed);
      return BufferRef(head);
    }
  }
  void* memory = std::aligned_alloc(kPageBytes, (total + kPageBytes - 1) / kPageBytes * kPageBytes);
  return BufferRef(make_head(memory, total - sizeof(BufferHead), size_class, this));
}

void BufferPool::give_back(BufferHead* head) {
  const uint32_t size_class = head->size_class;
  const size_t total = class_bytes(size_class);
  {
    Class& c = classes_[size_class];
    const std::scoped_lock lock(c.mutex);
    c.idle.push_back(head);
  }
  if (idle_bytes_.fetch_add(total, std::memory_order_relaxed) + total > idle_bytes_max_) {
    trim(size_class);
  }
}

// Other sizes go first: what was used last is likely to be asked for again.
void BufferPool::trim(uint32_t spared) {
  for (uint32_t pass = 0; pass < 2; ++pass) {
    for (uint32_t i = kClasses; i-- > 0;) {
      if ((i == spared) != (pass == 1)) continue;
      const std::scoped_lock lock(classes_[i].mutex);
      auto& idle = classes_[i].idle;
      while (!idle.empty()) {
        if (idle_bytes_.load(std::memory_order_relaxed) <= idle_bytes_max_) return;
        std::free(idle.back());
        idle.pop_back();
        idle_bytes_.fetch_sub(class_bytes(i), std::memory_order_relaxed);
      }
    }
  }
}

}  // namespace aerokv::devserver
