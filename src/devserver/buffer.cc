// SPDX-License-Identifier: Apache-2.0
#include "devserver/buffer.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

namespace aerokv::devserver {
namespace {

constexpr uint32_t kUnpooled = ~0U;
constexpr size_t kPooledMin = 4096;
constexpr size_t kPooledMax = Arena::kChunkBytes / 2;
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

Arena::Arena(size_t ahead_bytes) : ready_(ahead_bytes / kChunkBytes) {
  if (!ready_.empty()) thread_ = std::thread([this] { touch_ahead(); });
}

Arena::~Arena() {
  stopping_.store(true, std::memory_order_relaxed);
  wakes_.fetch_add(1, std::memory_order_release);
  wakes_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (std::byte* chunk : chunks_) ::munmap(chunk, kChunkBytes);
  for (const auto& chunk : ready_) {
    if (chunk != nullptr) ::munmap(chunk, kChunkBytes);
  }
}

std::byte* Arena::map_chunk() {
  void* at =
      ::mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

std::byte* Arena::next_chunk() {
  for (auto& slot : ready_) {
    std::byte* chunk = slot.exchange(nullptr, std::memory_order_acquire);
    if (chunk == nullptr) continue;
    wakes_.fetch_add(1, std::memory_order_release);
    wakes_.notify_all();
    return chunk;
  }
  return map_chunk();
}

void* Arena::take(size_t bytes) {
  bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  const std::scoped_lock lock(mutex_);
  if (left_ < bytes) {  // what is left of the chunk is lost, less than one buffer
    std::byte* chunk = next_chunk();
    if (chunk == nullptr) return nullptr;
    chunks_.push_back(chunk);
    at_ = chunk;
    left_ = kChunkBytes;
  }
  void* taken = at_;
  at_ += bytes;
  left_ -= bytes;
  return taken;
}

void Arena::touch_ahead() {
  size_t touched = 0;
  while (true) {
    const uint32_t seen = wakes_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    const auto slot = std::find(ready_.begin(), ready_.end(), nullptr);
    if (slot == ready_.end()) {
      wakes_.wait(seen, std::memory_order_acquire);
      continue;
    }
    std::byte* chunk = map_chunk();
    if (chunk == nullptr) return;  // no memory: from now on it is taken untouched, if at all
    for (size_t i = 0; i < kChunkBytes; i += kPageBytes) {
      *static_cast<volatile std::byte*>(chunk + i) = std::byte{0};
    }
    slot->store(chunk, std::memory_order_release);
    if (++touched == ready_.size()) {
      // The first reserve is made at once; later it is topped up when nothing else wants the CPU.
      const sched_param priority{};
      ::pthread_setschedparam(::pthread_self(), SCHED_IDLE, &priority);
    }
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
  if (size_class >= kClasses || class_bytes(size_class) > kPooledMax) {
    return BufferRef(make_head(std::malloc(needed), bytes, kUnpooled, this));
  }
  const size_t total = class_bytes(size_class);
  void* memory = nullptr;
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
    if (!c.cold.empty()) {
      memory = c.cold.back();
      c.cold.pop_back();
    }
  }
  if (memory == nullptr) memory = arena_.take(total);
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
        ::madvise(idle.back(), class_bytes(i), MADV_DONTNEED);
        classes_[i].cold.push_back(idle.back());
        idle.pop_back();
        idle_bytes_.fetch_sub(class_bytes(i), std::memory_order_relaxed);
      }
    }
  }
}

}  // namespace aerokv::devserver
