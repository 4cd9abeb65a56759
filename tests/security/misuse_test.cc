// SPDX-License-Identifier: Apache-2.0
// Servers, and those between, that do with TLS what they must not: each is refused in time, with
// the reason, and nothing that it says is believed.
#include "client/info_channel.h"
#include "tests/security/openssl_server.h"
#include "tests/security/tap.h"
#include "tests/security/tls_world.h"

namespace aerokv::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

class Misuse : public ::testing::Test {
 protected:
  /// Asks whoever listens at `port` for its name, as the client would, for at most `patience`.
  Result<std::string> ask(uint16_t port, milliseconds patience = milliseconds(5000)) {
    if (!options_.tls_context) options_.tls_context = *TlsContext::client(options_.tls);
    const wire::Endpoint endpoint{"127.0.0.1", port};
    const client::Node node("any", endpoint, client::resolve(endpoint)->front());
    return client::ask_info(node, options_, "node", SteadyClock::now() + patience);
  }

  void expect_refusal(uint16_t port, const std::string& reason, Code code = Code::denied) {
    const Result<std::string> answer = ask(port);
    ASSERT_FALSE(answer) << reason;
    EXPECT_TRUE(contains(answer.error().message(), reason)) << answer.error().message();
    EXPECT_EQ(answer.error().code(), code) << answer.error().message();
  }

  Misuse() {
    options_.tls.enable = true;
    options_.tls.ca_file = set_.ca_file();
    options_.tls_name = kTlsName;
  }

  CertificateSet set_;
  client::ClientOptions options_;
};

Certificate certificate_for(const std::string& name, const Certificate* ca,
                            seconds from = seconds(-3600), seconds until = seconds(3600)) {
  return Certificate::make({name, {name}, from, until}, ca);
}

TEST_F(Misuse, TheServersCertificate) {
  const Certificate stranger = Certificate::make({.common_name = "stranger", .is_ca = true});
  const std::tuple<Certificate, const char*> rows[] = {
      {certificate_for(kTlsName, &set_.ca, seconds(-7200), seconds(-3600)), "expired since"},
      {certificate_for(kTlsName, &set_.ca, seconds(3600), seconds(7200)), "not valid before"},
      {certificate_for(kTlsName, nullptr), "self-signed"},
      {certificate_for(kTlsName, &stranger), "unknown CA"},
      {certificate_for("other.test", &set_.ca), "wrong name: made out to \"other.test\""},
      {certificate_for("*.test", &set_.ca), "wrong name"},
      {certificate_for("clust*.test", &set_.ca), "wrong name"},
      {certificate_for("*", &set_.ca), "wrong name"},
      // Signed by a certificate that may not sign.
      {certificate_for(kTlsName, &set_.client), "certificate refused"},
  };
  for (const auto& [certificate, reason] : rows) {
    const OpenSslServer server(certificate, nullptr);
    expect_refusal(server.port(), reason);
  }
}

TEST_F(Misuse, AProtocolThatIsTooOld) {
  for (const int version : {TLS1_VERSION, TLS1_1_VERSION}) {
    const OpenSslServer server(set_.server, [&](SSL_CTX* context) {
      SSL_CTX_set_security_level(context, 0);
      SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
      SSL_CTX_set_max_proto_version(context, version);
    });
    expect_refusal(server.port(), "protocol");
  }
  options_.tls.min_version = TlsVersion::v1_3;
  const OpenSslServer server(set_.server, [](SSL_CTX* context) {
    SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
  });
  options_.tls_context = nullptr;
  expect_refusal(server.port(), "protocol");
}

TEST_F(Misuse, NoCipherInCommon) {
  const OpenSslServer cbc(set_.server, [](SSL_CTX* context) {
    SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_cipher_list(context, "ECDHE-ECDSA-AES128-SHA256");
  });
  expect_refusal(cbc.port(), "refused by the other side: ");
  const OpenSslServer ccm(set_.server, [](SSL_CTX* context) {
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(context, "TLS_AES_128_CCM_SHA256");
  });
  expect_refusal(ccm.port(), "refused by the other side: ");
}

TEST_F(Misuse, BothProtocolsWork) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const OpenSslServer server(
        set_.server,
        [&](SSL_CTX* context) {
          SSL_CTX_set_min_proto_version(context, version);
          SSL_CTX_set_max_proto_version(context, version);
        },
        [](SSL* ssl) { answer_info(ssl, {{"node", "A1"}}); });
    const Result<std::string> answer = ask(server.port());
    ASSERT_TRUE(answer) << answer.error().message();
    EXPECT_EQ(*answer, "A1");
  }
}

TEST_F(Misuse, ChainsAreFollowed) {
  const Certificate middle = Certificate::make({.common_name = "middle", .is_ca = true}, &set_.ca);
  const Certificate leaf = certificate_for(kTlsName, &middle);
  {
    const OpenSslServer server(leaf, nullptr);
    expect_refusal(server.port(), "unknown CA");
  }
  const OpenSslServer server(
      leaf, [&](SSL_CTX* context) { SSL_CTX_add1_chain_cert(context, middle.x509()); },
      [](SSL* ssl) { answer_info(ssl, {{"node", "A1"}}); });
  EXPECT_TRUE(ask(server.port()));
}

TEST_F(Misuse, NoServerNameIsTold) {
  std::atomic<bool> was_told{false};
  const OpenSslServer server(set_.server, nullptr, [&](SSL* ssl) {
    was_told = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name) != nullptr;
    answer_info(ssl, {{"node", "A1"}});
  });
  ASSERT_TRUE(ask(server.port()));
  EXPECT_FALSE(was_told);
}

TEST_F(Misuse, AnEndWithinAMessage) {
  const OpenSslServer orderly(set_.server, nullptr, [](SSL* ssl) {
    const std::string half("\2\1\0\0\0\0\0\x20node\tA", 14);
    SSL_write(ssl, half.data(), static_cast<int>(half.size()));
    SSL_shutdown(ssl);
  });
  expect_refusal(orderly.port(), "closed by the other side", Code::unavailable);
  const OpenSslServer cut(set_.server, nullptr, [](SSL* ssl) {
    const std::string half("\2\1\0\0\0\0\0\x20node\tA", 14);
    SSL_write(ssl, half.data(), static_cast<int>(half.size()));
    ::shutdown(SSL_get_fd(ssl), SHUT_WR);
    std::array<char, 1> nothing{};
    while (SSL_read(ssl, nothing.data(), 1) > 0) {
    }
  });
  expect_refusal(cut.port(), "TLS receive: ", Code::unavailable);
}

TEST_F(Misuse, RenegotiationIsNotTakenPartIn) {
  const OpenSslServer server(
      set_.server, [](SSL_CTX* context) { SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION); },
      [](SSL* ssl) {
        SSL_renegotiate(ssl);
        SSL_do_handshake(ssl);
        answer_info(ssl, {{"node", "A1"}});
      });
  // The client says no; whether the server goes on is its own affair. Nothing hangs.
  static_cast<void>(ask(server.port()));
}

/// What is no TLS at all.
TEST_F(Misuse, OtherThingsThanTls) {
  const std::string clear("\2\1\0\0\0\0\0\x08node\tA1\n", 16);
  const std::string alert("\x15\3\3\0\2\2\x28", 7);
  const std::tuple<std::string, const char*, Code> rows[] = {
      {clear, "not TLS", Code::protocol},
      {"HTTP/1.1 400 Bad Request\r\n\r\n", "not TLS", Code::protocol},
      {std::string(100, '\xff'), "not TLS", Code::protocol},
      {std::string("\x16\3\3\xff\xff", 5) + std::string(70000, 'x'), "TLS handshake",
       Code::protocol},
      {alert, "refused by the other side", Code::denied},
      {std::string("\x16\3\3\0\4\2\0\0\0", 9), "TLS handshake", Code::protocol},
      {std::string("\x17\3\3\0\4abcd", 9), "TLS handshake", Code::protocol},
  };
  for (const auto& [text, reason, code] : rows) {
    Listener listener;
    std::thread server([&, &bytes = text] {
      const UniqueFd socket = listener.accept();
      std::array<std::byte, 64> hello{};
      receive_all(socket.get(), hello);
      send_all(socket.get(), as_bytes(bytes));
      // Whatever the client still sends is taken, so that the end is no reset.
      ::shutdown(socket.get(), SHUT_WR);
      while (::recv(socket.get(), hello.data(), hello.size(), 0) > 0) {
      }
    });
    expect_refusal(listener.port(), reason, code);
    server.join();
  }
}

TEST_F(Misuse, ClearTextAndTlsOnEachOthersPorts) {
  const auto server = start_server(tls_server(set_));
  EXPECT_TRUE(ask(server->tls_endpoints()[0].port));
  const Result<std::string> answer = ask(server->endpoints()[0].port);
  ASSERT_FALSE(answer);
  EXPECT_TRUE(contains(answer.error().message(), "does the port speak TLS?"))
      << answer.error().message();
  StoreOptions clear = tls_options(*server, set_);
  clear.tls = {};
  clear.tls_name.clear();
  const auto begun = Clock::now();
  const std::string refusal = refusal_of(clear);
  EXPECT_TRUE(contains(refusal, "no node of the cluster could be used")) << refusal;
  EXPECT_LT(Clock::now() - begun, 3 * clear.connect_timeout + seconds(1));
}

/// Every length at which the server's side of a handshake and of the answer can be cut off.
TEST_F(Misuse, CutsAnywhere) {
  const auto server = start_server(tls_server(set_));
  Tap tap(server->tls_endpoints()[0].port);
  ASSERT_TRUE(ask(tap.port()));
  // Through a first connection that ends we learn how many bytes there are.
  tap.set_plan({Tap::Plan::Harm::cut, 1 << 20});
  ASSERT_TRUE(ask(tap.port()));
  const uint64_t whole = tap.last_bytes() != 0 ? tap.last_bytes() : 900;
  size_t refused = 0;
  for (uint64_t at = 0; at < whole; at += at < 150 ? 1 : 7) {
    tap.set_plan({Tap::Plan::Harm::cut, at});
    const Result<std::string> answer = ask(tap.port());
    if (answer) continue;  // enough had come
    ++refused;
    EXPECT_TRUE(answer.error().code() == Code::unavailable) << answer.error().message();
    EXPECT_TRUE(contains(answer.error().message(), "TLS ")) << answer.error().message();
  }
  EXPECT_GT(refused, 200U);
}

TEST_F(Misuse, SilenceInTheHandshake) {
  const auto server = start_server(tls_server(set_));
  Tap tap(server->tls_endpoints()[0].port);
  for (const uint64_t at : {0U, 5U, 140U, 500U}) {
    tap.set_plan({Tap::Plan::Harm::silent, at});
    const auto begun = Clock::now();
    const Result<std::string> answer = ask(tap.port(), milliseconds(100));
    EXPECT_EQ(answer.error().code(), Code::timeout);
    EXPECT_TRUE(contains(answer.error().message(), "no end of the TLS handshake"))
        << answer.error().message();
    EXPECT_LT(Clock::now() - begun, milliseconds(100) + seconds(1));
  }
}

/// One bit of one byte changed: never an answer that the server has not given.
TEST_F(Misuse, FlipsAnywhere) {
  const auto server = start_server(tls_server(set_));
  Tap tap(server->tls_endpoints()[0].port);
  const std::string expected = *ask(server->tls_endpoints()[0].port);
  size_t refused = 0;
  for (uint64_t at = 0; at < 1000; at += 3) {
    tap.set_plan({Tap::Plan::Harm::flip, at});
    const Result<std::string> answer = ask(tap.port(), milliseconds(150 * kSlowness));
    if (answer) {
      EXPECT_EQ(*answer, expected);
    } else {
      ++refused;
      EXPECT_NE(answer.error().code(), Code::internal) << answer.error().message();
    }
  }
  EXPECT_GT(refused, 150U);
}

}  // namespace
}  // namespace aerokv::testing
