// SPDX-License-Identifier: Apache-2.0
#include "client/client.h"

#include <openssl/sha.h>
#include <unistd.h>

#include <map>
#include <string>

namespace aerokv::client {
namespace {

std::string digest_of(std::string_view secret) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(secret.data()), secret.size(), digest);
  return {reinterpret_cast<const char*>(digest), sizeof digest};
}

/// All options as one text; equal texts, equal options. Passwords only as their digests.
std::string identity_of(const ClientOptions& options) {
  std::string text;
  const auto add = [&text](const std::string& field) {
    text += std::to_string(field.size()) + ":" + field;
  };
  const auto add_number = [&add](auto number) { add(std::to_string(number)); };
  add_number(options.seeds.size());
  for (const wire::Endpoint& seed : options.seeds) add(seed.to_string());
  add(options.ns);
  add(options.cluster_name);
  add(options.user);
  add(digest_of(options.password.view()));
  add_number(static_cast<int>(options.auth_mode));
  for (const wire::Endpoint& seed : options.seeds) add(seed.tls_name);
  add(options.tls_name);
  add_number(options.tls.enable);
  for (const std::string* field :
       {&options.tls.ca_file, &options.tls.ca_path, &options.tls.crl_file, &options.tls.cert_file,
        &options.tls.key_file, &options.tls.key_password_file, &options.tls.ciphers,
        &options.tls.cipher_suites}) {
    add(*field);
  }
  add(digest_of(options.tls.key_password));
  add_number(static_cast<int>(options.tls.min_version));
  add_number(options.use_alternate_addresses);
  add_number(static_cast<int>(options.replica));
  add_number(options.rack_id);
  add_number(options.io_threads);
  add_number(options.connections_per_node_max);
  add_number(options.idle_connection_ttl.count());
  add_number(options.bytes_in_flight_max);
  add_number(options.connect_timeout.count());
  add_number(options.read_attempt_timeout.count());
  add_number(options.write_attempt_timeout.count());
  add_number(options.read_attempts_max);
  add_number(static_cast<int>(options.hedge_reads));
  add_number(options.tend_interval.count());
  return text;
}

}  // namespace

/// One entry of the registry: an engine and how many clients use it.
struct Client::Shared {
  std::mutex
      mutex;  // held while the engine starts: the second asks no cluster that the first found
  std::unique_ptr<Engine> engine;  // guarded by mutex; set once
  size_t users = 0;                // guarded by mutex
  bool ended = false;              // guarded by mutex: nobody may join any more
};

/// The engines of this process.
class Client::Registry {
 public:
  /// That of this process: after a fork the threads of the parent's engines are not here, and its
  /// locks may be held for ever. Never destroyed: clients in static objects may end later.
  static Registry& instance() {
    static std::atomic<Registry*> current = nullptr;
    Registry* found = current.load();
    while (found == nullptr || found->process_ != ::getpid()) {
      auto* fresh = new Registry;
      if (current.compare_exchange_strong(found, fresh)) return *fresh;
      delete fresh;
    }
    return *found;
  }

  /// The entry for `identity`, new if there is none that could be joined.
  std::shared_ptr<Shared> find(const std::string& identity) {
    const std::scoped_lock lock(mutex_);
    std::erase_if(entries_, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<Shared>& entry = entries_[identity];
    std::shared_ptr<Shared> shared = entry.lock();
    if (shared == nullptr) {
      shared = std::make_shared<Shared>();
      entry = shared;
    }
    return shared;
  }

  void forget(const std::string& identity, const std::shared_ptr<Shared>& shared) {
    const std::scoped_lock lock(mutex_);
    const auto entry = entries_.find(identity);
    if (entry != entries_.end() && entry->second.lock() == shared) entries_.erase(entry);
  }

 private:
  const pid_t process_ = ::getpid();
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<Shared>> entries_;  // guarded by mutex_
};

Client::Client(std::shared_ptr<Shared> shared)
    : shared_(std::move(shared)), engine_(shared_->engine.get()) {}

Result<std::unique_ptr<Client>> Client::connect(const ClientOptions& options) {
  const std::string identity = identity_of(options);
  while (true) {
    std::shared_ptr<Shared> shared = Registry::instance().find(identity);
    const std::scoped_lock lock(shared->mutex);
    if (shared->ended) {  // its last user left between find() and here
      Registry::instance().forget(identity, shared);
      continue;
    }
    if (shared->engine == nullptr) {
      Result<std::unique_ptr<Engine>> engine = Engine::start(options);
      if (!engine) {
        shared->ended = true;
        Registry::instance().forget(identity, shared);
        return engine.error();
      }
      shared->engine = *std::move(engine);
    }
    ++shared->users;
    return std::unique_ptr<Client>(new Client(shared));
  }
}

Client::~Client() {
  close();
}

void Client::submit(std::span<Command* const> commands) {
  for (Command* command : commands) command->owner_ = this;
  {
    const std::shared_lock lock(gate_);
    if (!closed_) return engine_->submit(commands);
  }
  for (Command* command : commands) command->done({Code::closed, "the client is closed"});
}

void Client::post(std::function<void()> task, TimePoint due) {
  {
    const std::shared_lock lock(gate_);
    if (!closed_) return engine_->post(this, std::move(task), due);
  }
  task();
}

void Client::close() {
  const std::scoped_lock closing(close_mutex_);
  if (left_) return;
  left_ = true;
  {
    const std::scoped_lock lock(gate_);
    closed_ = true;
  }
  // Held to the end: the last client to leave must not stop threads that another is waiting for.
  const std::scoped_lock lock(shared_->mutex);
  shared_->ended = shared_->users == 1;
  if (shared_->ended) {
    engine_->close();
  } else {
    engine_->release(this);
  }
  --shared_->users;
}

}  // namespace aerokv::client
