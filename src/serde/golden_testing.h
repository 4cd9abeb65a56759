// SPDX-License-Identifier: Apache-2.0
// For tests: golden files of this tree, layouts in text, the examples of the format pages.
#pragma once

#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "aerokv/bytes.h"
#include "aerokv/tensor.h"

namespace aerokv::serde {

/// The content of a file; `path` starts at the root of the tree.
inline std::string golden_text(const std::string& path) {
  std::ifstream file(std::string(AEROKV_SOURCE_DIR) + "/" + path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<std::byte> golden_bytes(const std::string& path) {
  const std::string text = golden_text(path);
  const Bytes bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

/// The opposite of layout_text().
inline Layout parse_layout(const std::string& text) {
  Layout layout;
  for (size_t at = 0; text.find('[', at) != std::string::npos;) {
    const size_t open = text.find('[', at);
    const size_t close = text.find(']', open);
    TensorLayout tensor{*parse_dtype(text.substr(at, open - at)), {}};
    std::istringstream numbers(text.substr(open + 1, close - open - 1));
    for (std::string number; std::getline(numbers, number, ',');) {
      tensor.shape.push_back(std::stoll(number));
    }
    layout.push_back(tensor);
    at = close + 4;  // "] + "
  }
  return layout;
}

inline std::string hex(Bytes bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto value = std::to_integer<unsigned>(bytes[i]);
    text += kDigits[value >> 4];
    text += kDigits[value & 15];
    text += i % 16 == 15 ? "\n" : " ";
  }
  return text;
}

/// The bytes of the block "```hex <name>" of a page: two digits each; what follows two spaces on a
/// line says what they mean.
inline std::vector<std::byte> example_of(const std::string& page, const std::string& name) {
  std::istringstream lines(golden_text(page));
  std::vector<std::byte> bytes;
  bool is_inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "```hex " + name) {
      is_inside = true;
    } else if (line == "```") {
      is_inside = false;
    } else if (is_inside) {
      std::istringstream words(line.substr(0, line.find("  ")));
      for (std::string word; words >> word;) {
        bytes.push_back(static_cast<std::byte>(std::stoul(word, nullptr, 16)));
      }
    }
  }
  return bytes;
}

}  // namespace aerokv::serde
