// SPDX-License-Identifier: Apache-2.0
#include "devserver/answer.h"

#include <algorithm>
#include <utility>

namespace aerokv::devserver {

void Answer::append(const Slice& slice) {
  if (slice.size <= kCopyMax) {
    writer().bytes(slice.bytes());
    return;
  }
  large_.push_back({size(), small_.size(), slice});
  large_bytes_ += slice.size;
}

size_t Answer::begin_frame() {
  return writer().begin_frame();
}

uint64_t Answer::frame_bytes(size_t at) const {
  uint64_t large = 0;
  for (size_t i = large_.size(); i > 0 && large_[i - 1].small_at > at; --i) {
    large += large_[i - 1].slice.size;
  }
  return small_.size() - at - wire::kFrameHeaderBytes + large;
}

void Answer::end_frame(size_t at, wire::MessageType type) {
  wire::encode_frame_header({type, frame_bytes(at)}, small_.data() + at);
}

void Answer::rewind(size_t at) {
  while (!large_.empty() && large_.back().small_at > at) {
    large_bytes_ -= large_.back().slice.size;
    large_.pop_back();
  }
  small_.resize(at);
}

size_t Answer::begin_unit() {
  small_.resize(small_.size() + wire::kMessageHeaderBytes);
  return small_.size() - wire::kMessageHeaderBytes;
}

void Answer::end_unit(size_t at, const wire::MessageHeader& header) {
  wire::encode_message_header(header, small_.data() + at);
}

Answer Answer::cut(size_t at) {
  Answer tail;
  const auto first = std::find_if(large_.begin(), large_.end(),
                                  [at](const Large& large) { return large.small_at > at; });
  uint64_t large_before = 0;
  for (auto it = large_.begin(); it != first; ++it) large_before += it->slice.size;
  for (auto it = first; it != large_.end(); ++it) {
    tail.large_.push_back({it->at - at - large_before, it->small_at - at, std::move(it->slice)});
    tail.large_bytes_ += tail.large_.back().slice.size;
  }
  large_bytes_ -= tail.large_bytes_;
  large_.erase(first, large_.end());
  tail.small_.assign(small_.begin() + static_cast<std::ptrdiff_t>(at), small_.end());
  small_.resize(at);
  return tail;
}

void Answer::header_only(uint8_t result_code, uint32_t generation, uint32_t void_time) {
  const size_t at = begin_frame();
  wire::MessageHeader header;
  header.result_code = result_code;
  header.generation = generation;
  header.record_ttl = void_time;
  writer().header(header);
  end_frame(at, wire::MessageType::record);
}

void Answer::append(Answer&& other) {
  if (empty()) {
    *this = std::exchange(other, {});
    return;
  }
  const uint64_t base = size();
  const uint64_t small_base = small_.size();
  small_.insert(small_.end(), other.small_.begin(), other.small_.end());
  for (Large& large : other.large_) {
    large_.push_back({large.at + base, large.small_at + small_base, std::move(large.slice)});
  }
  large_bytes_ += other.large_bytes_;
  other.clear();
}

void Answer::clear() {
  small_.clear();
  large_.clear();
  large_bytes_ = 0;
  sent_ = 0;
  large_sent_ = 0;
}

std::vector<std::byte> Answer::flat() const {
  std::vector<std::byte> all;
  all.reserve(size());
  size_t from = 0;
  const auto add = [&all](const std::byte* data, size_t count) {
    all.insert(all.end(), data, data + count);
  };
  for (const Large& large : large_) {
    add(small_.data() + from, large.small_at - from);
    add(large.slice.data, large.slice.size);
    from = large.small_at;
  }
  add(small_.data() + from, small_.size() - from);
  return all;
}

size_t Answer::next_parts(iovec* parts, size_t count) const {
  size_t used = 0;
  uint64_t at = sent_;
  const auto add = [&](const std::byte* data, uint64_t bytes) {
    if (bytes == 0 || used == count) return;
    parts[used++] = {const_cast<std::byte*>(data), static_cast<size_t>(bytes)};
    at += bytes;
  };
  uint64_t large_before = 0;
  for (size_t i = 0; i < large_sent_; ++i) large_before += large_[i].slice.size;
  for (size_t i = large_sent_; i < large_.size() && used < count; ++i) {
    const Large& large = large_[i];
    if (at < large.at) add(small_.data() + (at - large_before), large.at - at);
    if (used == count) break;
    const uint64_t inside = at - large.at;
    add(large.slice.data + inside, large.slice.size - inside);
    large_before += large.slice.size;
  }
  if (used < count && at < size()) {
    add(small_.data() + (at - large_before), size() - at);
  }
  return used;
}

void Answer::mark_sent(uint64_t bytes) {
  sent_ += bytes;
  if (sent_ == size()) {
    clear();
    return;
  }
  while (large_sent_ < large_.size() &&
         large_[large_sent_].at + large_[large_sent_].slice.size <= sent_) {
    large_[large_sent_].slice.buffer = BufferRef();  // the record may be gone: free it early
    ++large_sent_;
  }
}

void Answer::compact() {
  if (sent_ == 0) return;
  uint64_t large_gone = 0;
  for (size_t i = 0; i < large_sent_; ++i) large_gone += large_[i].slice.size;
  large_.erase(large_.begin(), large_.begin() + static_cast<std::ptrdiff_t>(large_sent_));
  large_sent_ = 0;
  // A payload that is half sent stays, with all small bytes in front of it gone.
  const bool inside = !large_.empty() && large_.front().at < sent_;
  const uint64_t small_gone = inside ? large_.front().small_at : sent_ - large_gone;
  small_.erase(small_.begin(), small_.begin() + static_cast<std::ptrdiff_t>(small_gone));
  for (Large& large : large_) {
    large.at -= small_gone + large_gone;
    large.small_at -= small_gone;
  }
  large_bytes_ -= large_gone;
  sent_ -= small_gone + large_gone;
}

}  // namespace aerokv::devserver
