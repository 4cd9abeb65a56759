// SPDX-License-Identifier: Apache-2.0
// Reference-counted memory for payloads. A message is received into one buffer; the record keeps
// slices of it and answers are sent from them, so a payload is never copied inside the server.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "aerokv/bytes.h"

namespace aerokv::devserver {

class BufferPool;

/// The head of an allocation; the bytes follow it.
struct BufferHead {
  std::atomic<uint32_t> references{1};
  uint32_t size_class = 0;  ///< of the pool, or kUnpooled
  size_t capacity = 0;
  BufferPool* pool = nullptr;
};

/// One reference to a buffer. Copies share it; the last one gives the memory back.
/// The bytes may be written only while nobody else reads them. Thread-compatible; different
/// references to one buffer may be used from different threads.
class BufferRef {
 public:
  BufferRef() = default;
  explicit BufferRef(BufferHead* head) : head_(head) {}
  BufferRef(const BufferRef& other) : head_(other.head_) {
    if (head_ != nullptr) head_->references.fetch_add(1, std::memory_order_relaxed);
  }
  BufferRef(BufferRef&& other) noexcept : head_(std::exchange(other.head_, nullptr)) {}
  BufferRef& operator=(BufferRef other) noexcept {
    std::swap(head_, other.head_);
    return *this;
  }
  ~BufferRef() { release(); }

  explicit operator bool() const { return head_ != nullptr; }
  [[nodiscard]] std::byte* data() const { return reinterpret_cast<std::byte*>(head_ + 1); }
  [[nodiscard]] size_t capacity() const { return head_ == nullptr ? 0 : head_->capacity; }
  [[nodiscard]] const BufferHead* head() const { return head_; }

 private:
  void release();
  BufferHead* head_ = nullptr;
};

/// Memory from the system in large chunks. A thread of its own touches their pages ahead of need: a
/// fresh page costs several times what receiving into a warm one does. Thread-safe.
class Arena {
 public:
  static constexpr size_t kChunkBytes = 32U << 20;

  /// Keeps about `ahead_bytes` of touched memory in reserve.
  explicit Arena(size_t ahead_bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// `bytes` bytes at a multiple of the page size, at most kChunkBytes; null if there is no memory.
  /// They belong to the arena until it ends.
  void* take(size_t bytes);

 private:
  static std::byte* map_chunk();
  std::byte* next_chunk();
  void touch_ahead();

  // Touched chunks, null where one is wanted. No lock: its thread may wait long for a CPU.
  std::vector<std::atomic<std::byte*>> ready_;
  std::atomic<uint32_t> wakes_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;

  std::mutex mutex_;
  std::vector<std::byte*> chunks_;  // guarded by mutex_; those that bytes were taken from
  std::byte* at_ = nullptr;         // guarded by mutex_; in the newest of them
  size_t left_ = 0;                 // guarded by mutex_
};

/// Gives out buffers and keeps returned large ones: a page that the process already has is several
/// times cheaper than a fresh one. Thread-safe. Must outlive all its buffers.
class BufferPool {
 public:
  /// Idle memory over `idle_bytes_max` is given back to the system. About `ahead_bytes` of memory
  /// are kept ready for new buffers.
  explicit BufferPool(size_t idle_bytes_max, size_t ahead_bytes = 0)
      : idle_bytes_max_(idle_bytes_max), arena_(ahead_bytes) {}
  ~BufferPool() = default;
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// A buffer of at least `bytes` bytes with undefined content. Empty if there is no memory.
  BufferRef allocate(size_t bytes);

  [[nodiscard]] size_t idle_bytes() const { return idle_bytes_.load(std::memory_order_relaxed); }

 private:
  friend class BufferRef;
  // Eight classes for each doubling from 4 KiB to 256 MiB: at most an eighth of a buffer is unused.
  static constexpr uint32_t kClassesPerDoubling = 8;
  static constexpr uint32_t kFirstShift = 12;
  static constexpr uint32_t kClasses = 16 * kClassesPerDoubling;

  struct Class {
    std::mutex mutex;
    std::vector<BufferHead*> idle;
    std::vector<void*> cold;  // their pages went back to the system
  };

  static uint32_t class_of(size_t bytes);
  static size_t class_bytes(uint32_t size_class);
  void give_back(BufferHead* head);
  void trim(uint32_t spared);

  const size_t idle_bytes_max_;
  std::atomic<size_t> idle_bytes_{0};
  std::array<Class, kClasses> classes_;
  Arena arena_;
};

/// Bytes inside a buffer that it keeps alive.
struct Slice {
  BufferRef buffer;
  const std::byte* data = nullptr;
  uint32_t size = 0;

  [[nodiscard]] Bytes bytes() const { return {data, size}; }
};

}  // namespace aerokv::devserver
