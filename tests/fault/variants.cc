// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/variants.h"

#include <algorithm>

#include "client/faults.h"
#include "tests/fault/world.h"
#include "wire/result.h"

namespace aerokv::testing {
namespace {

using devserver::Damage;
using devserver::Fault;
using devserver::FaultAction;

constexpr uint8_t kCodes[] = {1, 2, 4, 7, 8, 9, 11, 13, 14, 18, 22, 80, 152, 200};
constexpr uint8_t kCodesAfter[] = {2, 8, 9, 11, 22};
constexpr uint64_t kCuts[] = {0, 5, 8, 29, 30, 75, 40000};

bool is_retried(uint8_t code) {
  return !client::is_final(code);
}

Variant make(FaultAction action) {
  Variant variant;
  variant.name = devserver::fault_action_name(action);
  variant.fault.action = action;
  variant.fault.delay = std::chrono::microseconds(2 * kRequestTimeout);
  return variant;
}

Variant cured(FaultAction action) {
  Variant variant = make(action);
  variant.cured = variant.cured_with_bins = true;
  return variant;
}

Variant with_code(FaultAction action, uint8_t code, Aim aim) {
  Variant variant = make(action);
  variant.name += "_" + std::to_string(code);
  variant.fault.code = code;
  // A batch message as a whole is asked again unless the server finds it wrong; a row that got a
  // final answer is not.
  const bool is_wrong_request = wire::status_from_result(code, "").code() == Code::invalid;
  variant.cured = (aim == Aim::message && !is_wrong_request) || is_retried(code);
  variant.cured_with_bins = variant.cured;
  return variant;
}

Variant with_damage(Damage damage, uint64_t bytes = 1) {
  Variant variant = make(FaultAction::damage);
  variant.name += "_" + std::string(devserver::damage_name(damage));
  if (bytes != 1) variant.name += "_" + std::to_string(bytes);
  variant.fault.damage = damage;
  variant.fault.bytes = bytes;
  const bool is_consistent = damage == Damage::flip_value_bit || damage == Damage::shorter_value ||
                             damage == Damage::longer_value || damage == Damage::wrong_bin_name ||
                             damage == Damage::wrong_particle;
  // Random bytes may happen to be some answer.
  variant.cured = damage != Damage::garbage_body;
  variant.cured_with_bins = variant.cured && !is_consistent;
  variant.needs_hash = damage == Damage::flip_value_bit;
  return variant;
}

void add_damages(std::vector<Variant>& all) {
  for (size_t i = 0; i < devserver::kDamages; ++i) {
    all.push_back(with_damage(static_cast<Damage>(i)));
  }
  all.push_back(with_damage(Damage::shorter_value, 1 << 20));
  all.push_back(with_damage(Damage::longer_value, 1 << 20));
  all.push_back(with_damage(Damage::frame_size_over, 1 << 20));
  for (uint64_t seed = 2; seed < 6; ++seed) {
    Variant variant = with_damage(Damage::garbage_body);
    variant.fault.seed = seed;
    variant.name += "_seed" + std::to_string(seed);
    all.push_back(variant);
  }
}

void add_persistent(std::vector<Variant>& all) {
  const std::vector<std::string> chosen = {"drop",
                                           "drop_answer",
                                           "close",
                                           "close_after_bytes_8",
                                           "result_code_8",
                                           "result_code_9",
                                           "result_code_22",
                                           "result_after_execute_9",
                                           "result_after_execute_22",
                                           "damage_garbage_frame",
                                           "damage_frame_size_huge"};
  const size_t count = all.size();
  for (size_t i = 0; i < count; ++i) {
    if (std::find(chosen.begin(), chosen.end(), all[i].name) == chosen.end()) continue;
    Variant variant = all[i];
    variant.name += "_from_here_on";
    variant.persistent = true;
    variant.cured = variant.cured_with_bins = false;
    all.push_back(variant);
  }
}

}  // namespace

const char* aim_name(Aim aim) {
  return aim == Aim::record ? "record" : aim == Aim::row ? "row" : "message";
}

std::vector<Variant> variants_for(Aim aim) {
  std::vector<Variant> all;
  for (const uint8_t code : kCodes) all.push_back(with_code(FaultAction::result_code, code, aim));
  for (const uint8_t code : kCodesAfter) {
    all.push_back(with_code(FaultAction::result_after_execute, code, aim));
  }
  all.push_back(cured(FaultAction::drop));
  if (aim != Aim::row) {
    all.push_back(cured(FaultAction::latency));
    all.push_back(cured(FaultAction::drop_answer));
    all.push_back(cured(FaultAction::close));
    for (const uint64_t bytes : kCuts) {
      Variant variant = cured(FaultAction::close_after_bytes);
      variant.name += "_" + std::to_string(bytes);
      variant.fault.bytes = bytes;
      all.push_back(variant);
    }
    add_damages(all);
  }
  add_persistent(all);
  if (aim != Aim::row) {
    Variant delay = cured(FaultAction::delay);
    delay.executes_late = true;
    all.push_back(delay);
    Variant freeze = make(FaultAction::freeze_node);
    freeze.executes_late = freeze.freezes = true;
    all.push_back(freeze);
  }
  return all;
}

}  // namespace aerokv::testing
