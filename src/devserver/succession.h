// SPDX-License-Identifier: Apache-2.0
// The order in which nodes own a partition: a function of the node ids alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace aerokv::devserver {

/// For each of the 4096 partitions the indexes of all nodes, first owner first. Taking nodes out
/// keeps the order of the others. Ids are hexadecimal, at most 16 digits.
std::vector<std::vector<uint8_t>> succession(const std::vector<std::string>& ids);

}  // namespace aerokv::devserver
