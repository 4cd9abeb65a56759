// SPDX-License-Identifier: Apache-2.0
// A store over TLS: what it moves, whom it trusts, and that certificates are renewed under way.
#include "tests/security/tap.h"
#include "tests/security/tls_world.h"

namespace aerokv::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

TEST(TlsStore, MovesObjects) {
  const CertificateSet set;
  const auto server = start_server(tls_server(set, 3));
  StoreOptions options = tls_options(*server, set);
  options.num_io_threads = 2;
  options.request_timeout = options.write_request_timeout = seconds(2 * kSlowness);
  options.read_timeout = options.write_timeout = seconds(10 * kSlowness);
  const auto store = open_store(options);
  EXPECT_EQ(store->stats().nodes.size(), 3U);
  for (const size_t size : {size_t{1}, kSegment, 5 * kSegment + 17, size_t{8} << 20}) {
    EXPECT_TRUE(works(*store, "object" + std::to_string(size), size)) << size;
  }
  std::vector<Item> items;
  for (int i = 0; i < 500; ++i) items.push_back(key_item("absent" + std::to_string(i)));
  items.push_back(key_item("object1"));
  EXPECT_EQ(bits_of(run(*store, Operation::exists, items)), std::string(500, '0') + "1");
  const auto answers = store->info("namespaces");
  ASSERT_TRUE(answers);
  for (const NodeAnswer& answer : *answers) EXPECT_TRUE(answer.status) << answer.status.message();
  // Nobody has talked to the clear ports.
  for (const StoreStats::NodeStats& node : store->stats().nodes) {
    for (const devserver::Endpoint& clear : server->endpoints()) {
      EXPECT_NE(node.address, clear.host + ":" + std::to_string(clear.port));
    }
  }
}

TEST(TlsStore, NamesComeFromHostsAndPeers) {
  const CertificateSet set;
  const auto server = start_server(tls_server(set, 2));
  StoreOptions options = tls_options(*server, set);
  const devserver::Endpoint seed = server->tls_endpoints()[0];
  options.hosts = seed.host + ":" + kTlsName + ":" + std::to_string(seed.port);
  options.tls_name.clear();
  const auto store = open_store(options);
  EXPECT_EQ(store->stats().nodes.size(), 2U);
  EXPECT_TRUE(works(*store, "object"));
}

TEST(TlsStore, RefusesAtTheStartAndSaysWhy) {
  const CertificateSet set;
  const CertificateSet others;
  const auto server = start_server(tls_server(set));
  StoreOptions options = tls_options(*server, set);
  options.tls_name = "other.test";
  std::string text = refusal_of(options);
  EXPECT_TRUE(contains(text, "wrong name: made out to \"cluster.test\", expected \"other.test\""))
      << text;
  options = tls_options(*server, set);
  options.tls.ca_file = others.ca_file();
  EXPECT_TRUE(contains(refusal_of(options), "certificate refused"));
  options = tls_options(*server, set);
  options.tls_name.clear();
  EXPECT_TRUE(contains(refusal_of(options), "tls_name: not given"));
  options = tls_options(*server, set);
  options.tls = {};
  EXPECT_TRUE(contains(refusal_of(options), "tls_name: given without tls_enable"));
  options.tls_name.clear();
  options.auth_mode = AuthMode::external;
  EXPECT_TRUE(contains(refusal_of(options), "auth_mode: external without tls_enable"));
}

TEST(TlsStore, ShowsItsCertificate) {
  const CertificateSet set;
  const CertificateSet others;
  devserver::Options wanted = tls_server(set, 2);
  wanted.tls.client_certificates = TlsClientCertificate::required;
  const auto server = start_server(wanted);
  StoreOptions options = tls_options(*server, set);
  std::string text = refusal_of(options);
  EXPECT_TRUE(contains(text, "certificate required")) << text;
  show_certificate(options, others);
  text = refusal_of(options);
  EXPECT_TRUE(contains(text, "refused by the other side")) << text;
  show_certificate(options, set);
  EXPECT_TRUE(works(*open_store(options), "object"));
}

/// A node whose certificate is bad gets no requests, and a good one is not harmed by it.
TEST(TlsStore, ABadNodeIsLeftOut) {
  const CertificateSet set;
  const CertificateSet others;
  const auto good = start_server(tls_server(set));
  const auto bad = start_server(tls_server(others));
  StoreOptions options = tls_options(*good, set);
  const devserver::Endpoint second = bad->tls_endpoints()[0];
  options.hosts = second.host + ":" + std::to_string(second.port) + "," + options.hosts;
  const auto store = open_store(options);
  EXPECT_TRUE(works(*store, "object"));
  EXPECT_EQ(bad->stats(0)->records, 0U);
}

/// Certificates of both sides are replaced while loads and stores go on: none of them fails.
TEST(TlsStore, CertificatesAreRenewedUnderWay) {
  const CertificateSet set;
  devserver::Options wanted = tls_server(set, 2);
  wanted.tls.client_certificates = TlsClientCertificate::required;
  wanted.timing.detection = milliseconds(300);
  wanted.timing.join = milliseconds(300);
  wanted.timing.migration = std::chrono::microseconds(50);
  const auto server = start_server(wanted);
  StoreOptions options = tls_options(*server, set);
  show_certificate(options, set);
  const auto store = open_store(options);
  ASSERT_TRUE(works(*store, "before"));

  const Certificate next_ca = Certificate::make({.common_name = "next CA", .is_ca = true});
  const Certificate next_server =
      Certificate::make({.common_name = kTlsName, .dns_names = {kTlsName}}, &next_ca);
  const Certificate next_client = Certificate::make({.common_name = "reader"}, &next_ca);
  set.folder.write("ca.pem", set.ca.certificate_pem() + next_ca.certificate_pem());
  ASSERT_TRUE(works(*store, "both CAs"));
  set.folder.write("server.pem", next_server.certificate_pem());
  set.folder.write("server.key", next_server.key_pem());
  set.folder.write("client.pem", next_client.certificate_pem());
  set.folder.write("client.key", next_client.key_pem());
  set.folder.write("ca.pem", next_ca.certificate_pem());
  ASSERT_TRUE(works(*store, "only the next"));
  // Every connection is made anew.
  for (const int node : {0, 1}) {
    ASSERT_TRUE(server->stop_node(node));
    ASSERT_TRUE(server->start_node(node));
    ASSERT_TRUE(server->await_settled(seconds(30)));
  }
  const auto deadline = Clock::now() + seconds(20);
  bool worked = false;
  while (!worked && Clock::now() < deadline) worked = works(*store, "after");
  EXPECT_TRUE(worked);
  // Who still has the old CA alone is refused by now.
  StoreOptions old = options;
  old.tls.ca_file = set.folder.write("old.pem", set.ca.certificate_pem());
  EXPECT_TRUE(contains(refusal_of(old), "unknown CA"));
}

/// What the line does to connections in the middle of loads: no wrong byte, and no load that hangs.
TEST(TlsStore, LoadsSurviveCutsAndFlips) {
  const CertificateSet set;
  devserver::Options wanted = tls_server(set);
  const auto server = start_server(wanted);
  Tap tap(server->tls_endpoints()[0].port);
  StoreOptions options = tls_options(*server, set);
  const auto direct = open_store(options);
  const Buffer payload = random_bytes(10 * kSegment, 1);
  ASSERT_EQ(bits_of(run(*direct, Operation::put, {put_item("object", payload)})), "1");
  options.hosts = tap.host();
  const auto store = open_store(options);
  using Harm = Tap::Plan::Harm;
  std::string seen;
  for (const Harm harm : {Harm::cut, Harm::flip}) {
    for (const uint64_t at : {2000U, 70000U, 200000U}) {
      tap.set_plan({harm, at});
      for (int i = 0; i < 2; ++i) {
        Buffer target(payload.size(), std::byte{0xA5});
        const auto begun = Clock::now();
        const std::string bits = bits_of(run(*store, Operation::get, {get_item("object", target)}));
        EXPECT_LT(Clock::now() - begun, options.read_timeout + seconds(2 * kSlowness));
        if (bits == "1") {
          EXPECT_EQ(target, payload);
        }
        seen += bits;
      }
    }
  }
  tap.set_plan({});
  const auto deadline = Clock::now() + seconds(20);
  bool worked = false;
  while (!worked && Clock::now() < deadline) worked = works(*store, "after");
  EXPECT_TRUE(worked) << seen;
}

/// The faults that the development server can play, over TLS.
TEST(TlsStore, SurvivesTheFaultsOfClearText) {
  const CertificateSet set;
  const auto server = start_server(tls_server(set));
  const auto store = open_store(tls_options(*server, set));
  const Buffer payload = random_bytes(3 * kSegment, 1);
  ASSERT_EQ(bits_of(run(*store, Operation::put, {put_item("object", payload)})), "1");
  for (const Variant& variant : variants_for(Aim::record)) {
    if (variant.persistent || variant.freezes) continue;
    devserver::Fault fault = variant.fault;
    fault.kinds = devserver::mask_of(devserver::RequestKind::get);
    fault.skip = 1;
    fault.count = 1;
    server->add_fault(fault);
    Guarded buffer(payload.size());
    const std::string bits = bits_of(run(*store, Operation::get, {get_into("object", buffer)}));
    EXPECT_TRUE(buffer.is_intact()) << variant.name;
    if (bits == "1" && !variant.needs_hash) {
      EXPECT_TRUE(buffer.holds(payload)) << variant.name;
    }
    server->clear_faults();
  }
  const auto deadline = Clock::now() + seconds(20);
  bool worked = false;
  while (!worked && Clock::now() < deadline) worked = works(*store, "after");
  EXPECT_TRUE(worked);
}

}  // namespace
}  // namespace aerokv::testing
