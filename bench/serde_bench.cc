// SPDX-License-Identifier: Apache-2.0
// aerokv_serde_bench: what the transforms of the serde layer reach, beside a memcpy that moves as
// many bytes (read + written).
//
// Every round runs every case once, each right after its memcpy, and ratios are taken within the
// round, so that a machine that changes its speed changes both. A new case is one line in
// make_cases().
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "aerokv/serde.h"
#include "codec/fp8.h"
#include "codec/fp8_scalar.h"
#include "serde/builtin.h"
#include "serde_rivals.h"

namespace {

using aerokv::Bytes;
using aerokv::DType;
using aerokv::Layout;
using aerokv::MutableBytes;
using aerokv::Serde;
namespace codec = aerokv::codec;
namespace serde = aerokv::serde;

constexpr size_t kSlice = size_t{1} << 20;

struct Options {
  size_t bytes = size_t{64} << 20;  ///< of the tensor
  size_t rounds = 11;
  size_t threads = 1;
  std::string filter;
  std::string data;  ///< a file whose bytes, again and again, are the bfloat16 tensor
  bool is_json = false;
};

/// `read` and `written` are the bytes of one run.
struct Case {
  std::string name;
  size_t read = 0;
  size_t written = 0;
  std::function<void()> run;
  std::vector<double> seconds = {};
  std::vector<double> ratios = {};
  std::vector<aerokv::bench::Rival> rivals = {};
};

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "aerokv_serde_bench: %s\n", message.c_str());
  std::exit(1);
}

class Threads final : public aerokv::Parallel {
 public:
  explicit Threads(size_t count) : count_(count) {}

  [[nodiscard]] size_t count() const { return count_; }

  void run(size_t count, const std::function<void(size_t)>& part) override {
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      for (size_t i = next++; i < count; i = next++) part(i);
    };
    std::vector<std::thread> helpers;
    for (size_t i = 1; i < std::min(count_, count); ++i) helpers.emplace_back(work);
    work();
    for (std::thread& helper : helpers) helper.join();
  }

 private:
  size_t count_;
};

/// Begins on a page, as the buffers of LMCache's allocator do.
class Buffer {
 public:
  explicit Buffer(size_t bytes, std::byte fill = std::byte{0})
      : bytes_(static_cast<std::byte*>(std::aligned_alloc(kPage, (bytes + kPage) / kPage * kPage))),
        size_(bytes) {
    if (bytes_ == nullptr) fail("out of memory");
    std::fill_n(bytes_.get(), bytes, fill);
  }
  std::byte* data() { return bytes_.get(); }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] MutableBytes first(size_t count) const { return {bytes_.get(), count}; }

 private:
  static constexpr size_t kPage = 4096;
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte[], Free> bytes_;
  size_t size_;
};

/// Buffers that all cases share, every page touched.
struct Workload {
  explicit Workload(const Options& options) : bytes(options.bytes), parallel(options.threads) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> distribution(0.0F, 1.0F);
    // Longer than the window of zstd's fast levels, which would find them again.
    std::vector<uint32_t> floats(1 << 20);
    for (uint32_t& value : floats) value = std::bit_cast<uint32_t>(distribution(random));
    for (size_t i = 0; i < bytes / 2; ++i) {
      const uint32_t value = floats[i % floats.size()];
      aerokv::store_le<uint16_t>(bf16.data() + 2 * i, codec::f32_to_bf16_bits(value));
      aerokv::store_le<uint16_t>(f16.data() + 2 * i, codec::f32_to_f16_bits(value));
      codes.data()[i] = static_cast<std::byte>(
          codec::f32_to_fp8(value, codec::Fp8Format::e4m3fn, codec::Overflow::saturate));
    }
    if (!options.data.empty()) fill_from(options.data);
    for (size_t i = 0; i < bytes / 4; ++i) {
      aerokv::store_le<uint32_t>(f32.data() + 4 * i, floats[i % floats.size()]);
    }
  }

  void fill_from(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text.size() < 2) fail("cannot read " + path);
    const size_t whole = text.size() / 2 * 2;
    for (size_t i = 0; i < bytes; ++i) {
      bf16.data()[i] = static_cast<std::byte>(text[i % whole]);
    }
  }

  [[nodiscard]] Bytes source(DType type) const {
    const Buffer& buffer = type == DType::bfloat16 ? bf16 : type == DType::float16 ? f16 : f32;
    return buffer.first(bytes);
  }

  void copy(size_t count) {
    const size_t slice = parallel.count() == 1 ? count : kSlice;
    parallel.run((count + slice - 1) / slice, [&](size_t i) {
      std::memcpy(target.data() + i * slice, plain.data() + i * slice,
                  std::min(slice, count - i * slice));
    });
  }

  size_t bytes;
  Threads parallel;
  Buffer bf16 = Buffer(bytes);
  Buffer f16 = Buffer(bytes);
  Buffer f32 = Buffer(bytes);
  Buffer codes = Buffer(bytes / 2);
  Buffer plain = Buffer(2 * bytes, std::byte{2});
  Buffer target = Buffer(2 * bytes + 65536, std::byte{1});
};

// ---------------------------------------------------------------------------------------------
// Cases

/// Kernels of the codec alone, on one thread.
void add_kernels(Workload& work, std::vector<Case>& cases) {
  for (const codec::Kernel kernel : codec::available_kernels()) {
    const std::string by = "/" + std::string(codec::kernel_name(kernel));
    for (const codec::Fp8Format format : {codec::Fp8Format::e4m3fn, codec::Fp8Format::e5m2}) {
      const std::string code = format == codec::Fp8Format::e4m3fn ? "e4m3fn/" : "e5m2/";
      for (const DType type : {DType::bfloat16, DType::float16, DType::float32}) {
        const size_t count = work.bytes / aerokv::dtype_bytes(type);
        const std::string name = code + std::string(aerokv::dtype_name(type)) + by;
        cases.push_back({"encode/" + name, work.bytes, count, [&work, format, type, count, kernel] {
                           codec::fp8_encode(type, format, codec::Overflow::saturate,
                                             work.source(type), work.target.first(count),
                                             codec::stores_for(count), kernel);
                         }});
        cases.push_back({"decode/" + name, count, work.bytes, [&work, format, type, count, kernel] {
                           codec::fp8_decode(format, type, work.codes.first(count),
                                             work.target.first(work.bytes),
                                             codec::stores_for(work.bytes), kernel);
                         }});
      }
    }
  }
}

/// A pair over a bfloat16 tensor [2, 16, n, 1024], through the interface that processors use.
void add_serde(Workload& work, std::vector<Case>& cases, const std::string& name,
               aerokv::Result<Serde> made) {
  if (!made) fail(name + ": " + made.error().message());
  const auto pair = std::make_shared<Serde>(*std::move(made));
  const auto rows = static_cast<int64_t>(work.bytes / (2 * 2 * 16 * 1024));
  const auto layout = std::make_shared<Layout>(
      Layout{{DType::bfloat16, {2, 16, std::max<int64_t>(rows, 1), 1024}}});
  const size_t object = *aerokv::layout_bytes(*layout);
  const aerokv::Result<size_t> estimate = pair->serializer->estimate_serialized_size(*layout);
  if (!estimate) fail(name + ": " + estimate.error().message());
  const auto stored = std::make_shared<Buffer>(*estimate);
  const auto serialize = [&work, pair, layout, object, name](MutableBytes to) {
    const auto written =
        pair->serializer->serialize({*layout, work.bf16.first(object)}, to, {}, work.parallel);
    if (!written) fail(name + ": " + written.error().message());
    return *written;
  };
  const size_t written = serialize(stored->first(*estimate));
  cases.push_back({"serialize/" + name, object, written,
                   [&work, serialize, size = *estimate] { serialize(work.target.first(size)); }});
  cases.push_back({"deserialize/" + name, written, object,
                   [&work, pair, layout, object, stored, written, name] {
                     const aerokv::Status status = pair->deserializer->deserialize(
                         stored->first(written), {*layout, work.target.first(object)}, {},
                         work.parallel);
                     if (!status) fail(name + ": " + status.message());
                   }});
}

/// A format that is measured beside what others need for its work.
void add_contest(Workload& work, std::vector<Case>& cases, const std::string& name,
                 aerokv::Result<Serde> made, aerokv::bench::Rivals rivals) {
  add_serde(work, cases, name, std::move(made));
  if (work.parallel.count() != 1) return;  // they have one thread
  cases[cases.size() - 2].rivals = std::move(rivals.writing);
  cases[cases.size() - 1].rivals = std::move(rivals.reading);
}

void add_frames(Workload& work, std::vector<Case>& cases) {
  namespace bench = aerokv::bench;
  const bench::BenchKey key;
  const Bytes source = work.source(DType::bfloat16);
  const MutableBytes target = work.target.first(work.target.size());
  add_contest(work, cases, "checksum", serde::make_checksum({}),
              bench::checksum_rivals(source, target));
  add_contest(work, cases, "aesgcm", serde::make_aesgcm({{"master_key_path", key.path()}}),
              bench::aesgcm_rivals(source, target));
  add_contest(work, cases, "lossless", serde::make_lossless({}),
              bench::lossless_rivals(source, target));
}

std::vector<Case> make_cases(Workload& work) {
  std::vector<Case> cases;
  cases.push_back({"memcpy", work.bytes, work.bytes, [&work] { work.copy(work.bytes); }});
  add_kernels(work, cases);
  add_serde(work, cases, "fp8", serde::make_fp8({}));
  add_serde(work, cases, "k16v8", serde::make_k16v8({}));
  add_frames(work, cases);
  return cases;
}

// ---------------------------------------------------------------------------------------------
// Measurement

template <typename Run>
double seconds_of(const Run& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(Workload& work, std::vector<Case>& cases, size_t rounds) {
  // Short runs are repeated, so that the clock and the first touch of a cold line do not count.
  const size_t repeats = std::max<size_t>(1, (size_t{16} << 20) / work.bytes);
  for (size_t round = 0; round <= rounds; ++round) {
    for (Case& one : cases) {
      const double copy = seconds_of([&] {
        for (size_t i = 0; i < repeats; ++i) work.copy((one.read + one.written) / 2);
      });
      const double run = seconds_of([&] {
        for (size_t i = 0; i < repeats; ++i) one.run();
      });
      for (aerokv::bench::Rival& rival : one.rivals) {
        const double other = seconds_of([&] {
          for (size_t i = 0; i < repeats; ++i) rival.run();
        });
        if (round != 0) rival.ratios.push_back(other / run);
      }
      if (round == 0) continue;
      one.seconds.push_back(run / static_cast<double>(repeats));
      one.ratios.push_back(copy / run);
    }
  }
}

void print(const Options& options, const std::vector<Case>& cases) {
  if (options.is_json) {
    std::printf("{\"bytes\": %zu, \"rounds\": %zu, \"threads\": %zu, \"cases\": [", options.bytes,
                options.rounds, options.threads);
  } else {
    std::printf("%-40s %10s %10s %10s\n", "case", "ms", "GB/s", "of memcpy");
  }
  const char* separator = "";
  for (const Case& one : cases) {
    const double seconds = median(one.seconds);
    const double rate = static_cast<double>(std::max(one.read, one.written)) / seconds / 1e9;
    if (options.is_json) {
      std::printf(
          "%s\n  {\"name\": \"%s\", \"read\": %zu, \"written\": %zu, \"seconds\": %.9f, "
          "\"gb_per_s\": %.3f, \"memcpy_ratio\": %.4f",
          separator, one.name.c_str(), one.read, one.written, seconds, rate, median(one.ratios));
      for (const aerokv::bench::Rival& rival : one.rivals) {
        std::printf(", \"of %s\": %.4f", rival.name.c_str(), median(rival.ratios));
      }
      std::printf("}");
      separator = ",";
    } else {
      std::printf("%-40s %10.3f %10.2f %10.2f\n", one.name.c_str(), 1e3 * seconds, rate,
                  median(one.ratios));
      for (const aerokv::bench::Rival& rival : one.rivals) {
        std::printf("    %.2f of %s\n", median(rival.ratios), rival.name.c_str());
      }
    }
  }
  if (options.is_json) std::printf("\n]}\n");
}

size_t number(std::string_view flag, const char* text, size_t low, size_t high) {
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (end == text || *end != '\0' || value < low || value > high) {
    fail(std::string(flag) + ": " + text + ", expected " + std::to_string(low) + " to " +
         std::to_string(high));
  }
  return static_cast<size_t>(value);
}

constexpr char kUsage[] =
    "usage: [--kib N] [--rounds N] [--threads N] [--filter TEXT] [--data FILE] [--json]";

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--json") {
      options.is_json = true;
      continue;
    }
    if (i + 1 == argc) fail(kUsage);
    const char* value = argv[++i];
    if (flag == "--kib") {
      options.bytes = number(flag, value, 64, size_t{4} << 20) << 10;
    } else if (flag == "--rounds") {
      options.rounds = number(flag, value, 1, 1000);
    } else if (flag == "--threads") {
      options.threads = number(flag, value, 1, 256);
    } else if (flag == "--data") {
      options.data = value;
    } else if (flag == "--filter") {
      options.filter = value;
    } else {
      fail("unknown option " + std::string(flag));
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  Workload work(options);
  std::vector<Case> cases = make_cases(work);
  std::erase_if(
      cases, [&](const Case& one) { return one.name.find(options.filter) == std::string::npos; });
  measure(work, cases, options.rounds);
  print(options, cases);
  return 0;
}
