// SPDX-License-Identifier: Apache-2.0
// Users: who may log in and how, what a refusal says, and that sessions are renewed unnoticed.
#include <atomic>
#include <initializer_list>
#include <thread>

#include "base/log.h"
#include "tests/security/tls_world.h"

namespace aerokv::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

devserver::UserOptions user(const std::string& name, devserver::Role role,
                            devserver::Login login = devserver::Login::internal) {
  devserver::UserOptions options;
  options.name = name;
  options.password = login == devserver::Login::pki ? "" : "the password of " + name;
  options.roles = devserver::mask_of(role);
  options.login = login;
  return options;
}

StoreOptions as(StoreOptions options, const std::string& name) {
  options.username = name;
  options.password = "the password of " + name;
  // A login costs the server a hash that is slow by intention.
  options.connect_timeout = seconds(2 * kSlowness);
  return options;
}

uint64_t logins(const devserver::DevServer& server) {
  return server.stats(0)->requests[static_cast<size_t>(devserver::RequestKind::login)];
}

TEST(Login, ByPassword) {
  devserver::Options wanted = small_record_server(2);
  wanted.users = {user("writer", devserver::Role::read_write),
                  user("reader", devserver::Role::read)};
  const auto server = start_server(wanted);
  const StoreOptions options = impatient_options(*server);
  EXPECT_TRUE(works(*open_store(as(options, "writer")), "object"));
  // Code 81 for what the role does not allow; what it allows goes on.
  const auto reader = open_store(as(options, "reader"));
  const Buffer payload = random_bytes(100, 1);
  const auto stored = run(*reader, Operation::put, {put_item("other", payload)});
  EXPECT_EQ(stored[0].status.server_result(), 81);
  EXPECT_EQ(stored[0].status.code(), Code::denied);
  Buffer target(5 * kSegment + 17);
  EXPECT_EQ(bits_of(run(*reader, Operation::get, {get_item("object", target)})), "1");

  EXPECT_TRUE(contains(refusal_of(as(options, "nobody")), "login: server answered code 6"));
  StoreOptions wrong = as(options, "reader");
  wrong.password = "a guess";
  const std::string text = refusal_of(wrong);
  EXPECT_TRUE(contains(text, "login: server answered code 6")) << text;
  EXPECT_FALSE(contains(text, "guess")) << text;
  EXPECT_TRUE(contains(refusal_of(options), "not authenticated")) << refusal_of(options);
}

TEST(Login, ByCertificate) {
  const CertificateSet set({kTlsName}, "reader");
  devserver::Options wanted = tls_server(set, 2);
  wanted.tls.client_certificates = TlsClientCertificate::optional;
  wanted.users = {user("reader", devserver::Role::read_write, devserver::Login::pki),
                  user("writer", devserver::Role::read_write)};
  const auto server = start_server(wanted);
  StoreOptions options = tls_options(*server, set);
  options.auth_mode = AuthMode::pki;
  EXPECT_TRUE(contains(refusal_of(options), "auth_mode: pki without tls_cert_file"));
  show_certificate(options, set);
  const auto store = open_store(options);
  EXPECT_EQ(store->stats().nodes.size(), 2U);
  EXPECT_TRUE(works(*store, "object"));
  server->expire_sessions();
  EXPECT_TRUE(works(*store, "object"));
  const auto answers = store->info("namespaces");
  ASSERT_TRUE(answers);
  for (const NodeAnswer& answer : *answers) EXPECT_TRUE(answer.status) << answer.status.message();
  options.username = "reader";
  EXPECT_TRUE(contains(refusal_of(options), "auth_mode: pki with a username"));
  // A certificate that names no user.
  const Certificate stranger = Certificate::make({.common_name = "stranger"}, &set.ca);
  options.username.clear();
  options.tls.cert_file = set.folder.write("stranger.pem", stranger.certificate_pem());
  options.tls.key_file = set.folder.write("stranger.key", stranger.key_pem());
  EXPECT_TRUE(contains(refusal_of(options), "login: server answered code")) << refusal_of(options);
}

TEST(Login, ByAnotherSystem) {
  const CertificateSet set;
  devserver::Options wanted = tls_server(set);
  wanted.users = {user("ldap-user", devserver::Role::read_write, devserver::Login::external)};
  const auto server = start_server(wanted);
  StoreOptions options = as(tls_options(*server, set), "ldap-user");
  const std::string text = refusal_of(options);  // in the mode internal
  EXPECT_TRUE(contains(text, "login: server answered code")) << text;
  options.auth_mode = AuthMode::external;
  const auto store = open_store(options);
  EXPECT_TRUE(works(*store, "object"));
  server->expire_sessions();  // the password is needed once more
  EXPECT_TRUE(works(*store, "object"));
  options.password = "a guess";
  EXPECT_FALSE(contains(refusal_of(options), "opened"));
}

/// Each code says in words what is wrong.
TEST(Login, EveryRefusalIsNamed) {
  devserver::Options wanted = small_record_server();
  wanted.users = {user("reader", devserver::Role::read_write)};
  const auto server = start_server(wanted);
  StoreOptions options = as(impatient_options(*server), "reader");
  const std::pair<uint8_t, const char*> rows[] = {{51, "security not supported by this edition"},
                                                  {60, "unknown user"},
                                                  {61, "user exists"},
                                                  {62, "invalid password"},
                                                  {63, "expired password"},
                                                  {64, "forbidden password"},
                                                  {65, "invalid credential"},
                                                  {81, "role violation"},
                                                  {82, "not whitelisted"},
                                                  {83, "quota exceeded"}};
  for (const auto& [code, words] : rows) {
    devserver::Fault fault;
    fault.kinds = devserver::mask_of(devserver::RequestKind::login);
    fault.action = devserver::FaultAction::result_code;
    fault.code = code;
    server->add_fault(fault);
    const auto begun = Clock::now();
    const std::string text = refusal_of(options);
    server->clear_faults();
    EXPECT_TRUE(contains(text, "code " + std::to_string(code) + " (" + words + ")")) << text;
    EXPECT_LT(Clock::now() - begun, seconds(5 * kSlowness)) << int{code};
    EXPECT_FALSE(contains(text, "the password of")) << text;
  }
}

/// Requests that meet the end of a session wait for the next login; none fails.
TEST(Login, CodesThatAskForALoginFailNothing) {
  devserver::Options wanted = small_record_server();
  wanted.users = {user("writer", devserver::Role::read_write)};
  const auto server = start_server(wanted);
  StoreOptions options = as(impatient_options(*server), "writer");
  options.read_timeout = options.write_timeout = seconds(5 * kSlowness);
  const auto store = open_store(options);
  ASSERT_TRUE(works(*store, "object"));
  for (const uint8_t code : std::initializer_list<uint8_t>{65, 66, 80}) {
    for (const auto kind : {devserver::RequestKind::get, devserver::RequestKind::put}) {
      devserver::Fault fault;
      fault.kinds = devserver::mask_of(kind);
      fault.action = devserver::FaultAction::result_code;
      fault.code = code;
      fault.count = 1;
      const uint64_t before = logins(*server);
      server->add_fault(fault);
      EXPECT_TRUE(works(*store, "object")) << int{code};
      EXPECT_EQ(server->fault_counters()[0].applied, 1U) << int{code};
      // The lane for stores had the session before: a connection with the newest is enough.
      if (kind == devserver::RequestKind::get) {
        EXPECT_GT(logins(*server), before) << int{code};
      }
      server->clear_faults();
    }
    // The same for the authentication of a new connection.
    devserver::Fault fault;
    fault.kinds = devserver::mask_of(devserver::RequestKind::authenticate);
    fault.action = devserver::FaultAction::result_code;
    fault.code = code;
    fault.count = 2;
    server->add_fault(fault);
    server->expire_sessions();
    EXPECT_TRUE(works(*store, "object")) << int{code};
    server->clear_faults();
  }
}

/// Sessions of two seconds: a new login comes before the end of each, and nothing notices.
TEST(Login, SessionsAreRenewedInTime) {
  devserver::Options wanted = small_record_server();
  wanted.users = {user("writer", devserver::Role::read_write)};
  wanted.session_ttl = seconds(2);
  const auto server = start_server(wanted);
  StoreOptions options = as(impatient_options(*server), "writer");
  options.tend_interval = milliseconds(100);
  options.read_timeout = options.write_timeout = seconds(5 * kSlowness);
  const auto store = open_store(options);
  const auto end = Clock::now() + seconds(5);
  uint64_t rounds = 0;
  while (Clock::now() < end) {
    ASSERT_TRUE(works(*store, "object", kSegment)) << rounds;
    ++rounds;
  }
  EXPECT_GE(logins(*server), 4U);
  EXPECT_GT(rounds, 5U);
}

/// A new password on the server: open sessions go on, and a login with the old one is refused.
TEST(Login, AChangedPasswordEndsTheStoreWithTheReason) {
  devserver::Options wanted = small_record_server();
  wanted.users = {user("writer", devserver::Role::read_write)};
  const auto server = start_server(wanted);
  StoreOptions options = as(impatient_options(*server), "writer");
  options.tend_interval = milliseconds(100);
  const auto store = open_store(options);
  ASSERT_TRUE(works(*store, "object"));
  devserver::UserOptions changed = user("writer", devserver::Role::read_write);
  changed.password = "another one";
  ASSERT_TRUE(server->set_user(changed));
  server->expire_sessions();
  std::vector<ItemResult> results;
  const auto begun = Clock::now();
  Buffer target(5 * kSegment + 17);
  results = run(*store, Operation::get, {get_item("object", target)});
  EXPECT_NE(results[0].outcome, Outcome::hit);
  EXPECT_LT(Clock::now() - begun, options.read_timeout + seconds(2 * kSlowness));
  changed.password = options.password;
  ASSERT_TRUE(server->set_user(changed));
  const auto deadline = Clock::now() + seconds(20);
  bool worked = false;
  while (!worked && Clock::now() < deadline) worked = works(*store, "object");
  EXPECT_TRUE(worked);
}

/// Nothing that is said aloud holds a secret.
TEST(Login, SecretsAreNotInLogsErrorsOrStatistics) {
  std::mutex mutex;
  std::string lines;
  set_log_sink([&](LogLevel, std::string_view line) {
    const std::scoped_lock lock(mutex);
    lines += line;
  });
  const CertificateSet set;
  const std::string password = "a very secret password of some length";
  devserver::Options wanted = tls_server(set);
  wanted.users = {user("writer", devserver::Role::read_write, devserver::Login::external)};
  wanted.users[0].password = password;
  const auto server = start_server(wanted);
  StoreOptions options = as(tls_options(*server, set), "writer");
  options.auth_mode = AuthMode::external;
  options.password = password;
  const auto store = open_store(options);
  EXPECT_TRUE(works(*store, "object"));
  EXPECT_TRUE(store->options().password.empty());
  EXPECT_TRUE(store->options().tls.key_password.empty());
  StoreOptions wrong = options;
  wrong.password += "!";
  std::string said = refusal_of(wrong);
  server->expire_sessions();
  EXPECT_TRUE(works(*store, "object"));
  ASSERT_TRUE(server->stop_node(0));
  Buffer target(kSegment);
  said += run(*store, Operation::get, {get_item("object", target)})[0].status.message();
  set_log_sink(nullptr);
  EXPECT_FALSE(lines.empty());
  EXPECT_FALSE(contains(lines + said, "secret")) << lines << said;
  EXPECT_FALSE(contains(lines + said, "$2a$")) << lines << said;
}

}  // namespace
}  // namespace aerokv::testing
