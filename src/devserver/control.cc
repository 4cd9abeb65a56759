// SPDX-License-Identifier: Apache-2.0
#include "devserver/control.h"

#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "devserver/info.h"
#include "devserver/setup.h"

namespace aerokv::devserver {
namespace {

using Words = std::vector<std::string_view>;

constexpr milliseconds kDefaultDown{200};
constexpr milliseconds kDefaultWait{120'000};
constexpr uint64_t kMillisecondsMax = 3'600'000;

Status expected(std::string_view what, std::string_view word) {
  return {Code::invalid, "expected " + std::string(what) + ", got '" + std::string(word) + "'"};
}

Result<int> node_of(std::string_view word, bool may_be_all = true) {
  if (may_be_all && word == "all") return kAllNodes;
  const auto number = parse_size(word);
  if (!number || *number > 1'000'000) {
    return expected(may_be_all ? "a node's index or 'all'" : "a node's index", word);
  }
  return static_cast<int>(*number);
}

Result<milliseconds> time_of(std::string_view word) {
  const auto number = parse_size(word);
  if (!number || *number > kMillisecondsMax) return expected("milliseconds", word);
  return milliseconds(*number);
}

Result<milliseconds> time_at(const Words& words, size_t index, milliseconds otherwise) {
  return words.size() > index ? time_of(words[index]) : Result<milliseconds>(otherwise);
}

/// Calls a method of DevServer for one node or for each.
Status each(DevServer& server, Status (DevServer::*method)(int), const Words& words) {
  const auto node = node_of(words[1]);
  if (!node) return node.error();
  if (*node != kAllNodes) return (server.*method)(*node);
  const int nodes = static_cast<int>(server.endpoints().size());
  for (int i = 0; i < nodes; ++i) {
    // One that runs already, or does not: nothing to do.
    if (method == &DevServer::start_node && server.stats(i)->running) continue;
    AEROKV_TRY((server.*method)(i));
  }
  return {};
}

Status stop(DevServer& server, const Words& words) {
  return each(server, &DevServer::stop_node, words);
}
Status start(DevServer& server, const Words& words) {
  return each(server, &DevServer::start_node, words);
}
Status pause(DevServer& server, const Words& words) {
  return each(server, &DevServer::pause_node, words);
}
Status resume(DevServer& server, const Words& words) {
  return each(server, &DevServer::resume_node, words);
}

Status restart(DevServer& server, const Words& words) {
  const auto node = node_of(words[1], false);
  if (!node) return node.error();
  const auto down = time_at(words, 2, kDefaultDown);
  if (!down) return down.error();
  return server.restart_node(*node, *down);
}

Status rolling_restart(DevServer& server, const Words& words) {
  const auto down = time_at(words, 1, kDefaultDown);
  if (!down) return down.error();
  return server.rolling_restart(*down, kDefaultWait);
}

Status remove(DevServer& server, const Words& words) {
  const auto node = node_of(words[1], false);
  if (!node) return node.error();
  return server.remove_node(*node, kDefaultWait);
}

Status settle(DevServer& server, const Words& words) {
  const auto timeout = time_at(words, 1, kDefaultWait);
  if (!timeout) return timeout.error();
  return server.await_settled(*timeout);
}

Status link(DevServer& server, const Words& words) {
  const auto node = node_of(words[1]);
  if (!node) return node.error();
  const auto speed = parse_size(words[2]);
  if (!speed) return expected("bytes a second", words[2]);
  return server.set_link(*node, *speed);
}

Status latency(DevServer& server, const Words& words) {
  const auto node = node_of(words[1]);
  if (!node) return node.error();
  double ms = 0;
  const std::string_view text = words[2];
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
  const bool legal = error == std::errc{} && end == text.data() + text.size() && ms >= 0 &&
                     ms <= static_cast<double>(kMillisecondsMax);
  if (!legal) return expected("milliseconds", text);
  return server.set_latency(*node, std::chrono::microseconds(std::llround(ms * 1000)));
}

Status stop_writes(DevServer& server, const Words& words) {
  const auto node = node_of(words[1]);
  if (!node) return node.error();
  if (words[2] != "on" && words[2] != "off") return expected("on or off", words[2]);
  return server.set_stop_writes(*node, words[2] == "on");
}

Status rack(DevServer& server, const Words& words) {
  const auto node = node_of(words[1], false);
  if (!node) return node.error();
  const auto id = parse_size(words[2]);
  if (!id || *id > 1'000'000) return expected("a rack id", words[2]);
  return server.set_rack(*node, static_cast<int>(*id));
}

Status user(DevServer& server, const Words& words) {
  auto parsed = parse_user(words[1]);
  return parsed ? server.set_user(std::move(parsed).value()) : parsed.error();
}

Status drop_user(DevServer& server, const Words& words) {
  return server.drop_user(std::string(words[1]));
}

Status expire_sessions(DevServer& server, const Words&) {
  server.expire_sessions();
  return {};
}

struct Command {
  std::string_view name;
  size_t words_min = 0;
  size_t words_max = 0;
  Status (*run)(DevServer&, const Words&) = nullptr;
};

constexpr Command kCommands[] = {
    {"stop", 2, 2, stop},
    {"start", 2, 2, start},
    {"pause", 2, 2, pause},
    {"resume", 2, 2, resume},
    {"restart", 2, 3, restart},
    {"rolling-restart", 1, 2, rolling_restart},
    {"remove", 2, 2, remove},
    {"settle", 1, 2, settle},
    {"link", 3, 3, link},
    {"latency", 3, 3, latency},
    {"stop-writes", 3, 3, stop_writes},
    {"rack", 3, 3, rack},
    {"user", 2, 2, user},
    {"drop-user", 2, 2, drop_user},
    {"expire-sessions", 1, 1, expire_sessions},
};

constexpr std::string_view kUsage =
    "  stop N, start N        kill a node, start it or a spare one; N may be 'all'\n"
    "  pause N, resume N      freeze a node and let it go on; N may be 'all'\n"
    "  restart N [MS]         kill a node and start it MS later\n"
    "  rolling-restart [MS]   one node after the other, each when all has settled\n"
    "  remove N               hand the node's data over, then stop it\n"
    "  settle [MS]            wait until no data move\n"
    "  link N BYTES           bytes a second of the node's link, 0 = no limit; N may be 'all'\n"
    "  latency N MS           the node's answers leave so much later; N may be 'all'\n"
    "  stop-writes N on|off   the node refuses writes; N may be 'all'\n"
    "  rack N ID              move a node to another rack\n"
    "  user NAME:PASSWORD...  add a user or change one, as --user does\n"
    "  drop-user NAME         the user and its sessions end\n"
    "  expire-sessions        all have to log in again\n";

}  // namespace

std::string_view control_usage() {
  return kUsage;
}

Status control(DevServer& server, std::string_view line) {
  Words words;
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    if (!word.empty()) words.push_back(word);
  }
  if (words.empty()) return {Code::invalid, "no command"};
  for (const Command& command : kCommands) {
    if (command.name != words[0]) continue;
    if (words.size() < command.words_min || words.size() > command.words_max) {
      return {Code::invalid, std::string(words[0]) + ": wrong number of arguments"};
    }
    return command.run(server, words);
  }
  return {Code::invalid, "unknown command " + std::string(words[0])};
}

}  // namespace aerokv::devserver
