// SPDX-License-Identifier: Apache-2.0
// Development servers that speak TLS, and stores that talk to them.
#pragma once

#include <string>
#include <vector>

#include "base/certificates_testing.h"
#include "tests/fault/variants.h"
#include "tests/fault/world.h"

namespace aerokv::testing {

inline constexpr const char* kTlsName = "cluster.test";

inline devserver::Options tls_server(const CertificateSet& set, int nodes = 1) {
  devserver::Options options = small_record_server(nodes);
  options.tls.options.enable = true;
  options.tls.options.cert_file = set.server_cert();
  options.tls.options.key_file = set.server_key();
  options.tls.options.ca_file = set.ca_file();
  options.tls.name = kTlsName;
  return options;
}

/// For the TLS ports of `server`; the client shows no certificate.
inline StoreOptions tls_options(const devserver::DevServer& server, const CertificateSet& set) {
  StoreOptions options = impatient_options(server);
  options.hosts.clear();
  for (const devserver::Endpoint& endpoint : server.tls_endpoints()) {
    options.hosts +=
        (options.hosts.empty() ? "" : ",") + endpoint.host + ":" + std::to_string(endpoint.port);
  }
  options.tls.enable = true;
  options.tls.ca_file = set.ca_file();
  options.tls_name = kTlsName;
  options.tend_interval = std::chrono::milliseconds(100);
  return options;
}

inline void show_certificate(StoreOptions& options, const CertificateSet& set) {
  options.tls.cert_file = set.client_cert();
  options.tls.key_file = set.client_key();
}

/// The text of the error with which a store does not open; "opened" if it does.
inline std::string refusal_of(const StoreOptions& options) {
  const Result<std::unique_ptr<Store>> store = Store::open(options);
  return store ? "opened" : store.error().message();
}

/// Stores and loads an object of several segments; false if that fails.
inline bool works(Store& store, const std::string& key, size_t size = 5 * kSegment + 17) {
  const Buffer payload = random_bytes(size, size);
  if (bits_of(run(store, Operation::put, {put_item(key, payload)})) != "1") return false;
  Buffer target(size);
  return bits_of(run(store, Operation::get, {get_item(key, target)})) == "1" && target == payload;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace aerokv::testing
