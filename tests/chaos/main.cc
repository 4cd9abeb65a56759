// SPDX-License-Identifier: Apache-2.0
// chaos: plays schedules of events; on failure prints the seed and the shortest prefix that fails.
// Every run has a process of its own, so that a crash, a report of a sanitizer or a hang is a
// failure like any other.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "tests/chaos/run.h"
#include "tests/chaos/shrink.h"

namespace aerokv::chaos {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kUsage =
    "usage: chaos [--seed N] [--seeds N] [--seconds N] [--nodes N] [--events N] [--tries N]\n"
    "             [--print] [--one]\n"
    "  --seed     the first seed (1)        --seeds   how many (1)\n"
    "  --seconds  of each schedule (10)     --nodes   3 to 5 (3 and on, by seed)\n"
    "  --events   only so many of it (all)  --tries   of each prefix after a failure (3)\n"
    "  --print    only prints the schedule  --one     one run, in this process\n";

struct Arguments {
  uint64_t seed = 1, seeds = 1, seconds = 10, nodes = 0, events = UINT64_MAX, tries = 3;
  bool print = false, one = false;
};

std::optional<Arguments> parse(int argc, char** argv) {
  Arguments out;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--print" || name == "--one") {
      (name == "--print" ? out.print : out.one) = true;
      continue;
    }
    const std::vector<std::pair<std::string, uint64_t*>> numbers = {
        {"--seed", &out.seed},   {"--seeds", &out.seeds},   {"--seconds", &out.seconds},
        {"--nodes", &out.nodes}, {"--events", &out.events}, {"--tries", &out.tries}};
    const auto found = std::find_if(numbers.begin(), numbers.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    if (found == numbers.end() || ++i == argc) return std::nullopt;
    char* end = nullptr;
    *found->second = std::strtoull(argv[i], &end, 10);
    if (*argv[i] == '\0' || *end != '\0') return std::nullopt;
  }
  const bool known = out.nodes == 0 || (out.nodes >= 3 && out.nodes <= 5);
  if (!known || out.seconds == 0 || out.tries == 0) return std::nullopt;
  return out;
}

Plan plan_of(const Arguments& arguments) {
  Plan plan;
  plan.recipe.seed = arguments.seed;
  plan.recipe.seconds = arguments.seconds;
  plan.recipe.nodes = arguments.nodes == 0 ? 3 + arguments.seed % 3 : arguments.nodes;
  plan.events_max = static_cast<size_t>(arguments.events);
  return plan;
}

std::string command_of(const Plan& plan, size_t events) {
  return "chaos --seed " + std::to_string(plan.recipe.seed) + " --seconds " +
         std::to_string(plan.recipe.seconds) + " --nodes " + std::to_string(plan.recipe.nodes) +
         (events == SIZE_MAX ? "" : " --events " + std::to_string(events));
}

void print_schedule(const Plan& plan) {
  std::vector<Event> events = make_schedule(plan.recipe);
  if (events.size() > plan.events_max) events.resize(plan.events_max);
  for (const Event& event : events) std::cout << text_of(event) << '\n';
}

int run_here(const Plan& plan) {
  const Report report = run_and_count(plan);
  std::cout << text_of(report) << "applied " << report.events << '\n' << std::flush;
  return report.problems.empty() ? 0 : 1;
}

/// Reads until the end of the stream or of the time. Returns false at the end of the time.
bool read_all(int fd, milliseconds limit, std::string& text) {
  const auto end = steady_clock::now() + limit;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(left)) <= 0) continue;
    char buffer[4096];
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got <= 0) return true;
    text.append(buffer, static_cast<size_t>(got));
  }
}

Attempt attempt_of(const std::string& text, int status, bool in_time, size_t planned) {
  Attempt attempt;
  attempt.events = planned;
  const size_t applied = text.rfind("applied ");
  if (applied != std::string::npos) {
    attempt.events = std::strtoull(text.c_str() + applied + 8, nullptr, 10);
  }
  if (in_time && WIFEXITED(status) && WEXITSTATUS(status) == 0) return attempt;
  attempt.failed = true;
  const size_t problem = text.find("PROBLEM: ");
  if (!in_time) {
    attempt.why = "it did not end";
  } else if (problem != std::string::npos) {
    attempt.why = text.substr(problem + 9, text.find('\n', problem) - problem - 9);
  } else {
    attempt.why = WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                      : "exit code " + std::to_string(WEXITSTATUS(status));
  }
  return attempt;
}

/// One run in a process of its own; its report goes to `shown` as well.
Attempt run_apart(const char* program, const Plan& plan, size_t events, std::ostream* shown) {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  std::vector<std::string> words = {program,     "--one",
                                    "--seed",    std::to_string(plan.recipe.seed),
                                    "--seconds", std::to_string(plan.recipe.seconds),
                                    "--nodes",   std::to_string(plan.recipe.nodes),
                                    "--events",  std::to_string(events)};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    ::execv(program, argv.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string text;
  const milliseconds limit{plan.recipe.seconds * 2000 + 180'000};
  const bool in_time = read_all(ends[0], limit, text);
  ::close(ends[0]);
  if (!in_time) ::kill(child, SIGABRT);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (shown != nullptr) *shown << text << std::flush;
  const size_t planned = std::min(make_schedule(plan.recipe).size(), events);
  return attempt_of(text, status, in_time, planned);
}

/// False after a failure, which it has shrunk and told.
bool play(const char* program, const Plan& plan, int tries) {
  std::cout << "== " << command_of(plan, plan.events_max) << '\n' << std::flush;
  const Attempt first = run_apart(program, plan, plan.events_max, &std::cout);
  if (!first.failed) return true;
  std::cout << "FAILED with seed " << plan.recipe.seed << " after " << first.events
            << " events: " << first.why << "\nlooking for the shortest prefix that fails\n"
            << std::flush;
  const Shrunk shrunk = shrink(first, tries, [&](size_t events) {
    const Attempt attempt = run_apart(program, plan, events, nullptr);
    std::cout << "  " << events << " events: " << (attempt.failed ? attempt.why : "good") << '\n'
              << std::flush;
    return attempt;
  });
  Plan shortest = plan;
  shortest.events_max = shrunk.events;
  std::cout << "the shortest prefix has " << shrunk.events << " events and failed in "
            << shrunk.failures << " of " << shrunk.tries << " runs: " << shrunk.why << '\n';
  print_schedule(shortest);
  std::cout << "again: " << command_of(plan, shrunk.events) << '\n' << std::flush;
  return false;
}

int main_of(int argc, char** argv) {
  std::optional<Arguments> arguments = parse(argc, argv);
  if (!arguments) {
    std::cerr << kUsage;
    return 2;
  }
  if (arguments->print) {
    print_schedule(plan_of(*arguments));
    return 0;
  }
  if (arguments->one) return run_here(plan_of(*arguments));
  uint64_t failures = 0;
  for (uint64_t i = 0; i < arguments->seeds; ++i, ++arguments->seed) {
    const bool good =
        play("/proc/self/exe", plan_of(*arguments), static_cast<int>(arguments->tries));
    failures += good ? 0 : 1;
  }
  std::cout << "chaos: " << arguments->seeds << " seeds of " << arguments->seconds << " s, "
            << failures << " failed\n";
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace aerokv::chaos

int main(int argc, char** argv) {
  return aerokv::chaos::main_of(argc, argv);
}
