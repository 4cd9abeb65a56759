// SPDX-License-Identifier: Apache-2.0
#include "process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

extern char** environ;

namespace aerokv::bench {

double process_cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double process_cpu_seconds(pid_t pid) {
  // Nanoseconds on a CPU, of each thread; the clock ticks of /proc/PID/stat are too coarse.
  const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
  double seconds = 0;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
    std::ifstream file(task.path() / "schedstat");
    double nanoseconds = 0;
    if (file >> nanoseconds) seconds += nanoseconds * 1e-9;
  }
  return seconds;
}

uint64_t resident_bytes(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  uint64_t size = 0;
  uint64_t resident = 0;
  if (!(file >> size >> resident)) return 0;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

uint64_t resident_bytes() {
  return resident_bytes(::getpid());
}

ResidentPeak::ResidentPeak() : first_(resident_bytes()), peak_(first_) {
  thread_ = std::thread([this] {
    while (!stopping_.load(std::memory_order_acquire)) {
      peak_.store(std::max(peak_.load(std::memory_order_relaxed), resident_bytes()),
                  std::memory_order_relaxed);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
}

uint64_t ResidentPeak::stop() {
  stopping_.store(true, std::memory_order_release);
  if (thread_.joinable()) thread_.join();
  return std::max(peak_.load(), resident_bytes()) - first_;
}

Result<std::unique_ptr<Child>> Child::spawn(std::vector<std::string> arguments) {
  if (arguments[0].empty()) arguments[0] = "/proc/self/exe";
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  if (::pipe2(in.data(), O_CLOEXEC) < 0) return status_from_errno(errno, "pipe");
  UniqueFd in_read(in[0]);
  UniqueFd in_write(in[1]);
  if (::pipe2(out.data(), O_CLOEXEC) < 0) return status_from_errno(errno, "pipe");
  UniqueFd out_read(out[0]);
  UniqueFd out_write(out[1]);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in_read.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out_write.get(), STDOUT_FILENO);
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, pointers[0], &actions, nullptr, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return status_from_errno(error, "start " + arguments[0]);
  return std::unique_ptr<Child>(new Child(pid, std::move(in_write), std::move(out_read)));
}

Child::Child(pid_t pid, UniqueFd in, UniqueFd out)
    : pid_(pid), in_(std::move(in)), out_(std::move(out)) {}

Child::~Child() {
  in_.reset();
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

Result<std::string> Child::read_line() {
  while (true) {
    const size_t end = buffered_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return line;
    }
    std::array<char, 512> text{};
    const ssize_t count = ::read(out_.get(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Status(Code::closed, "a child process ended");
    buffered_.append(text.data(), static_cast<size_t>(count));
  }
}

Status Child::command(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(in_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return status_from_errno(errno, "tell a child process");
  }
  const Result<std::string> answer = read_line();
  if (!answer) return answer.error();
  if (*answer != "ok") return {Code::invalid, line + ": " + *answer};
  return {};
}

Result<ReadyChild> spawn_ready(std::vector<std::string> arguments) {
  Result<std::unique_ptr<Child>> child = Child::spawn(std::move(arguments));
  if (!child) return child.error();
  const Result<std::string> line = (*child)->read_line();
  if (!line) return line.error();
  constexpr std::string_view kReady = "ready ";
  if (!line->starts_with(kReady)) return Status(Code::protocol, "a child process says " + *line);
  return ReadyChild{*std::move(child), line->substr(kReady.size())};
}

}  // namespace aerokv::bench
