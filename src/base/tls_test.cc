// SPDX-License-Identifier: Apache-2.0
#include "base/tls.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>

#include "base/certificates_testing.h"
#include "base/fd.h"

namespace aerokv {
namespace {

using testing::Certificate;
using testing::CertificateSet;

std::string pattern(size_t size) {
  std::string text(size, '\0');
  uint32_t value = 1;
  for (char& c : text) {
    value = value * 1664525 + 1013904223;
    c = static_cast<char>(value >> 24);
  }
  return text;
}

iovec part_of(std::string& text, size_t offset = 0) {
  return {text.data() + offset, text.size() - offset};
}

class Tls : public ::testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> fds{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
    client_fd_.reset(fds[0]);
    server_fd_.reset(fds[1]);
    client_options_.ca_file = set_.ca_file();
    server_options_.cert_file = set_.server_cert();
    server_options_.key_file = set_.server_key();
  }

  void open(TlsClientCertificate certificate = TlsClientCertificate::ignored) {
    auto client_context = TlsContext::client(client_options_);
    ASSERT_TRUE(client_context) << client_context.error().message();
    auto server_context = TlsContext::server(server_options_, certificate);
    ASSERT_TRUE(server_context) << server_context.error().message();
    open(**client_context, **server_context);
  }

  void open(TlsContext& client_context, TlsContext& server_context) {
    auto client = client_context.connect(client_fd_.get(), name_);
    ASSERT_TRUE(client) << client.error().message();
    client_ = *std::move(client);
    auto server = server_context.accept(server_fd_.get());
    ASSERT_TRUE(server) << server.error().message();
    server_ = *std::move(server);
  }

  /// Drives both sides until neither moves; the last results are kept.
  void shake_hands() {
    for (int i = 0; i < 20; ++i) {
      client_result_ = client_.handshake();
      if (client_result_.kind == IoResult::Kind::failed) {
        server_result_ = server_.handshake();
        return;
      }
      server_result_ = server_.handshake();
      if (client_result_.kind == IoResult::Kind::moved &&
          server_result_.kind != IoResult::Kind::would_block) {
        return;
      }
    }
  }

  void expect_refusal(const std::string& reason, Code code = Code::denied) {
    shake_hands();
    EXPECT_EQ(client_result_.kind, IoResult::Kind::failed);
    EXPECT_EQ(client_.error().code(), code) << client_.error().message();
    EXPECT_NE(client_.error().message().find(reason), std::string::npos)
        << client_.error().message();
    EXPECT_FALSE(client_.is_established());
  }

  /// Moves all of `text` from one side to the other; several reads for each write.
  void transfer(TlsStream& from, TlsStream& to, std::string text) {
    std::string received(text.size(), '\0');
    size_t sent = 0;
    size_t got = 0;
    for (int idle = 0; got < text.size() && idle < 100; ++idle) {
      if (sent < text.size() || from.wants_write()) {
        const iovec part = part_of(text, sent);
        const IoResult result = from.send({&part, part.iov_len > 0 ? size_t{1} : size_t{0}});
        ASSERT_NE(result.kind, IoResult::Kind::failed) << from.error().message();
        sent += result.bytes;
        if (result.bytes > 0) idle = 0;
      }
      const iovec part = part_of(received, got);
      const IoResult result = to.receive({&part, 1});
      ASSERT_TRUE(result.kind == IoResult::Kind::moved ||
                  result.kind == IoResult::Kind::would_block)
          << to.error().message();
      got += result.bytes;
      if (result.bytes > 0) idle = 0;
    }
    EXPECT_EQ(got, text.size());
    EXPECT_TRUE(received == text);
  }

  CertificateSet set_{{"cluster.test", "*.wild.test"}};
  TlsOptions client_options_;
  TlsOptions server_options_;
  std::string name_ = "cluster.test";
  UniqueFd client_fd_;
  UniqueFd server_fd_;
  TlsStream client_;
  TlsStream server_;
  IoResult client_result_;
  IoResult server_result_;
};

TEST_F(Tls, MovesBytesBothWays) {
  open();
  shake_hands();
  ASSERT_TRUE(client_.is_established()) << client_.error().message();
  ASSERT_TRUE(server_.is_established()) << server_.error().message();
  EXPECT_TRUE(client_.description().starts_with("TLSv1.3 TLS_AES_128_GCM"))
      << client_.description();
  for (const size_t size : {1UL, 100UL, 16384UL, 16385UL, 1000000UL, 5000000UL}) {
    transfer(client_, server_, pattern(size));
    transfer(server_, client_, pattern(size));
  }
  EXPECT_EQ(server_.peer_common_name(), "");
}

TEST_F(Tls, UsesTheGivenCiphers) {
  client_options_.cipher_suites = "TLS_CHACHA20_POLY1305_SHA256";
  open();
  shake_hands();
  EXPECT_EQ(client_.description(), "TLSv1.3 TLS_CHACHA20_POLY1305_SHA256");
}

TEST_F(Tls, GathersManySmallParts) {
  open();
  shake_hands();
  std::vector<std::string> texts;
  std::string whole;
  for (size_t i = 0; i < 64; ++i) {
    texts.push_back(pattern(i % 7 == 0 ? 0 : i * 331));
    whole += texts.back();
  }
  std::vector<iovec> parts;
  for (std::string& text : texts) parts.push_back(part_of(text));
  size_t sent = 0;
  std::string received(whole.size(), '\0');
  size_t got = 0;
  for (int i = 0; i < 1000 && got < whole.size(); ++i) {
    const IoResult result = client_.send(parts);
    ASSERT_NE(result.kind, IoResult::Kind::failed);
    sent += result.bytes;
    for (size_t left = result.bytes; left > 0 || (!parts.empty() && parts[0].iov_len == 0);) {
      const size_t taken = std::min(left, parts[0].iov_len);
      parts[0].iov_base = static_cast<char*>(parts[0].iov_base) + taken;
      parts[0].iov_len -= taken;
      left -= taken;
      if (parts[0].iov_len == 0) parts.erase(parts.begin());
    }
    const std::array<iovec, 2> places{iovec{received.data() + got, (whole.size() - got) / 2},
                                      iovec{received.data() + got + (whole.size() - got) / 2,
                                            whole.size() - got - (whole.size() - got) / 2}};
    got += server_.receive(places).bytes;
  }
  EXPECT_EQ(sent, whole.size());
  EXPECT_TRUE(received == whole);
}

TEST_F(Tls, KeepsWhatWasNotAskedFor) {
  open();
  shake_hands();
  std::string text = pattern(40000);
  const iovec part = part_of(text);
  ASSERT_EQ(client_.send({&part, 1}).bytes, text.size());
  std::string front(10, '\0');
  iovec place = part_of(front);
  EXPECT_EQ(server_.receive({&place, 1}).bytes, 10U);
  std::string rest(39990, '\0');
  place = part_of(rest);
  // Everything was received with the first record: the socket need not be asked.
  EXPECT_EQ(server_.receive({&place, 1}, true).bytes, 39990U);
  EXPECT_TRUE(front + rest == text);
  EXPECT_EQ(server_.receive({&place, 1}, true).kind, IoResult::Kind::would_block);
}

TEST_F(Tls, HoldsBackWhenTheSocketIsFull) {
  open();
  shake_hands();
  std::string text = pattern(1 << 20);
  const iovec part = part_of(text);
  size_t taken = 0;
  IoResult result;
  do {
    result = client_.send({&part, 1});
    taken += result.bytes;
    ASSERT_LT(taken, size_t{64} << 20);
  } while (result.kind == IoResult::Kind::moved);
  EXPECT_EQ(result.kind, IoResult::Kind::would_block);
  EXPECT_TRUE(client_.wants_write());
  EXPECT_EQ(client_.send({}).kind, IoResult::Kind::would_block);
  std::string received(taken, '\0');
  size_t got = 0;
  for (int i = 0; i < 100000 && got < taken; ++i) {
    const iovec place = part_of(received, got);
    got += server_.receive({&place, 1}).bytes;
    client_.send({});
  }
  EXPECT_EQ(got, taken);
  EXPECT_FALSE(client_.wants_write());
  EXPECT_EQ(client_.send({}).kind, IoResult::Kind::moved);
}

TEST_F(Tls, TellsAnOrderlyEndFromACut) {
  open();
  shake_hands();
  std::string text = pattern(100);
  iovec part = part_of(text);
  client_.send({&part, 1});
  client_.say_goodbye();
  std::string received(200, '\0');
  part = part_of(received);
  IoResult result = server_.receive({&part, 1});
  EXPECT_EQ(result.bytes, 100U);
  result = server_.receive({&part, 1});
  EXPECT_EQ(result.kind, IoResult::Kind::closed);
  EXPECT_NE(server_.error().message().find("closed by the other side"), std::string::npos);

  server_fd_.reset();
  result = client_.receive({&part, 1});
  EXPECT_EQ(result.kind, IoResult::Kind::closed);
  EXPECT_NE(client_.error().message().find("cut off"), std::string::npos)
      << client_.error().message();
}

TEST_F(Tls, WritingToAClosedSocketRaisesNoSignal) {
  open();
  shake_hands();
  server_fd_.reset();
  std::string text = pattern(100);
  const iovec part = part_of(text);
  EXPECT_EQ(client_.send({&part, 1}).kind, IoResult::Kind::failed);
}

TEST_F(Tls, ChecksTheName) {
  struct Case {
    const char* name;
    bool fits;
  };
  for (const Case& c :
       {Case{"cluster.test", true}, Case{"CLUSTER.Test", true}, Case{"cluster.tes", false},
        Case{"a.wild.test", true}, Case{"A.WILD.TEST", true}, Case{"a.b.wild.test", false},
        Case{"wild.test", false}, Case{"other", false}}) {
    SetUp();
    name_ = c.name;
    open();
    shake_hands();
    EXPECT_EQ(client_.is_established(), c.fits) << c.name << ": " << client_.error().message();
    if (!c.fits) {
      EXPECT_NE(client_.error().message().find("wrong name: made out to \"cluster.test\", "
                                               "\"*.wild.test\", expected \"" +
                                               name_ + "\""),
                std::string::npos)
          << client_.error().message();
    }
  }
  auto context = TlsContext::client(client_options_);
  ASSERT_TRUE(context);
  for (const std::string& bad : {std::string(), std::string(".test"), std::string(300, 'a')}) {
    EXPECT_EQ((*context)->connect(client_fd_.get(), bad).error().code(), Code::invalid);
  }
}

TEST_F(Tls, RefusesCertificates) {
  using std::chrono::seconds;
  const Certificate stranger = Certificate::make({.common_name = "stranger CA", .is_ca = true});
  const std::vector<std::string> names{"cluster.test"};
  const auto refuse = [&](const Certificate& certificate, const std::string& reason) {
    SetUp();
    set_.folder.write("server.pem", certificate.certificate_pem());
    set_.folder.write("server.key", certificate.key_pem());
    open();
    expect_refusal(reason);
    EXPECT_NE(server_.error().message().find("refused by the other side"), std::string::npos)
        << server_.error().message();
  };
  refuse(Certificate::make({"cluster.test", names, seconds(-7200), seconds(-3600)}, &set_.ca),
         "certificate refused: expired since ");
  refuse(Certificate::make({"cluster.test", names, seconds(3600), seconds(7200)}, &set_.ca),
         "certificate refused: not valid before ");
  refuse(Certificate::make({"cluster.test", names}), "self-signed");
  refuse(Certificate::make({"cluster.test", names}, &stranger),
         "signed by an unknown CA (\"/CN=stranger CA\")");
}

TEST_F(Tls, RefusesARevokedCertificate) {
  client_options_.crl_file = set_.folder.write("crl.pem", set_.ca.crl_pem({&set_.client}));
  open();
  shake_hands();
  EXPECT_TRUE(client_.is_established()) << client_.error().message();
  SetUp();
  client_options_.crl_file = set_.folder.write("crl.pem", set_.ca.crl_pem({&set_.server}));
  open();
  expect_refusal("revoked");
}

TEST_F(Tls, AsksForTheClientsCertificate) {
  server_options_.ca_file = set_.ca_file();
  open(TlsClientCertificate::required);
  shake_hands();
  EXPECT_EQ(server_result_.kind, IoResult::Kind::failed);
  EXPECT_NE(server_.error().message().find("the client has shown no certificate"),
            std::string::npos)
      << server_.error().message();
  std::string received(10, '\0');
  const iovec place = part_of(received);
  EXPECT_EQ(client_.receive({&place, 1}).kind, IoResult::Kind::failed);
  EXPECT_EQ(client_.error().code(), Code::denied);
  EXPECT_NE(client_.error().message().find("certificate required"), std::string::npos)
      << client_.error().message();

  SetUp();
  client_options_.cert_file = set_.client_cert();
  client_options_.key_file = set_.client_key();
  open(TlsClientCertificate::required);
  shake_hands();
  EXPECT_TRUE(server_.is_established()) << server_.error().message();
  EXPECT_EQ(server_.peer_common_name(), "reader");
  transfer(client_, server_, pattern(1000));
}

TEST_F(Tls, ReadsEncryptedKeys) {
  client_options_.cert_file = set_.client_cert();
  client_options_.key_file = set_.folder.write("locked.key", set_.client.key_pem("open sesame"));
  auto context = TlsContext::client(client_options_);
  EXPECT_EQ(context.error().code(), Code::invalid);
  EXPECT_NE(context.error().message().find("tls_key_file: " + client_options_.key_file),
            std::string::npos)
      << context.error().message();
  EXPECT_NE(context.error().message().find("password"), std::string::npos);

  client_options_.key_password = "open barley";
  EXPECT_FALSE(TlsContext::client(client_options_));
  client_options_.key_password = "open sesame";
  EXPECT_TRUE(TlsContext::client(client_options_));
  client_options_.key_password_file = set_.folder.write("password", "open sesame\n");
  EXPECT_EQ(TlsContext::client(client_options_).error().code(), Code::invalid);
  client_options_.key_password.clear();
  EXPECT_TRUE(TlsContext::client(client_options_));
  set_.folder.write("password", std::string(5000, 'x'));
  EXPECT_EQ(TlsContext::client(client_options_).error().code(), Code::invalid);
}

TEST_F(Tls, NamesTheOptionThatIsWrong) {
  struct Case {
    std::function<void(TlsOptions&)> spoil;
    const char* reason;
  };
  const std::string absent = set_.folder.path("absent");
  const std::string text = set_.folder.write("text", "no certificate at all");
  for (const Case& c : {
           Case{[](TlsOptions& o) { o.ca_file.clear(); }, "tls_ca_file: not given"},
           Case{[&](TlsOptions& o) { o.ca_file = absent; }, "tls_ca_file: "},
           Case{[&](TlsOptions& o) { o.ca_file = text; }, "tls_ca_file: "},
           Case{[&](TlsOptions& o) { o.ca_path = absent; }, "tls_ca_path: "},
           Case{[&](TlsOptions& o) { o.cert_file = set_.client_cert(); }, "expected both"},
           Case{[&](TlsOptions& o) {
                  o.cert_file = set_.client_cert();
                  o.key_file = set_.server_key();
                },
                "tls_key_file: "},
           Case{[&](TlsOptions& o) {
                  o.cert_file = text;
                  o.key_file = set_.client_key();
                },
                "tls_cert_file: "},
           Case{[&](TlsOptions& o) {
                  o.cert_file = set_.client_cert();
                  o.key_file = set_.client_key();
                  o.key_password_file = absent;
                },
                "tls_key_password_file: "},
           Case{[&](TlsOptions& o) { o.crl_file = text; }, "tls_crl_file: "},
           Case{[](TlsOptions& o) { o.ciphers = "NO-SUCH"; }, "tls_ciphers: "},
           Case{[](TlsOptions& o) { o.cipher_suites = "NO_SUCH"; }, "tls_cipher_suites: "},
       }) {
    TlsOptions options = client_options_;
    c.spoil(options);
    const auto context = TlsContext::client(options);
    ASSERT_FALSE(context) << c.reason;
    EXPECT_EQ(context.error().code(), Code::invalid);
    EXPECT_NE(context.error().message().find(c.reason), std::string::npos)
        << context.error().message();
  }
  EXPECT_FALSE(TlsContext::server(client_options_));
}

TEST_F(Tls, TakesOverRenewedFiles) {
  auto client_context = TlsContext::client(client_options_);
  auto server_context = TlsContext::server(server_options_);
  ASSERT_TRUE(client_context && server_context);
  open(**client_context, **server_context);
  shake_hands();
  ASSERT_TRUE(client_.is_established());
  EXPECT_EQ((*server_context)->reloads(), 0U);

  // The server moves to a certificate of another CA, of which the client does not know yet.
  const Certificate next_ca = Certificate::make({.common_name = "next CA", .is_ca = true});
  const Certificate next =
      Certificate::make({.common_name = "", .dns_names = {"cluster.test"}}, &next_ca);
  TlsStream old_client = std::move(client_);
  TlsStream old_server = std::move(server_);
  UniqueFd old_client_fd = std::move(client_fd_);
  UniqueFd old_server_fd = std::move(server_fd_);
  set_.folder.write("server.pem", next.certificate_pem());
  SetUp();
  open(**client_context, **server_context);  // half of the change: what was there stays in use
  shake_hands();
  EXPECT_TRUE(client_.is_established()) << client_.error().message();
  EXPECT_EQ((*server_context)->reloads(), 0U);
  set_.folder.write("server.key", next.key_pem());
  SetUp();
  open(**client_context, **server_context);
  expect_refusal("unknown CA");
  EXPECT_EQ((*server_context)->reloads(), 1U);

  set_.folder.write("ca.pem", set_.ca.certificate_pem() + next_ca.certificate_pem());
  SetUp();
  open(**client_context, **server_context);
  shake_hands();
  EXPECT_TRUE(client_.is_established()) << client_.error().message();
  EXPECT_EQ((*client_context)->reloads(), 1U);
  transfer(old_client, old_server, pattern(100000));  // which nobody has disturbed
}

TEST_F(Tls, TakesAFolderOfCas) {
  std::filesystem::create_directory(set_.folder.path("cas"));
  char name[32];
  std::snprintf(name, sizeof name, "cas/%08lx.0", X509_subject_name_hash(set_.ca.x509()));
  client_options_.ca_file.clear();
  client_options_.ca_path = set_.folder.path("cas");
  auto client_context = TlsContext::client(client_options_);
  auto server_context = TlsContext::server(server_options_);
  ASSERT_TRUE(client_context && server_context);
  open(**client_context, **server_context);
  expect_refusal("unknown CA");
  set_.folder.write(name, set_.ca.certificate_pem());
  SetUp();
  client_options_.ca_file.clear();
  open(**client_context, **server_context);
  shake_hands();
  EXPECT_TRUE(client_.is_established()) << client_.error().message();
}

TEST_F(Tls, RefusesWhatIsNotTls) {
  open();
  client_.handshake();
  const std::string garbage = std::string("\x02\x01\0\0\0\0\0\x20", 8) + "an answer in clear text";
  ASSERT_GT(::send(server_fd_.get(), garbage.data(), garbage.size(), 0), 0);
  client_result_ = client_.handshake();
  EXPECT_EQ(client_result_.kind, IoResult::Kind::failed);
  EXPECT_EQ(client_.error().code(), Code::protocol);
  EXPECT_NE(client_.error().message().find("not TLS"), std::string::npos)
      << client_.error().message();
}

TEST_F(Tls, NoticesAnEndInTheHandshake) {
  open();
  EXPECT_EQ(client_.handshake().kind, IoResult::Kind::would_block);
  EXPECT_FALSE(client_.wants_write());
  server_fd_.reset();
  EXPECT_EQ(client_.handshake().kind, IoResult::Kind::failed);
  EXPECT_EQ(client_.error().code(), Code::unavailable);
  EXPECT_NE(client_.error().message().find("does the port speak TLS"), std::string::npos)
      << client_.error().message();
}

}  // namespace
}  // namespace aerokv
