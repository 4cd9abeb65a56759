// SPDX-License-Identifier: Apache-2.0
// Certificates to try TLS with: an authority of the moment and what it has signed.
#pragma once

#include <string>
#include <vector>

#include "aerokv/status.h"

namespace aerokv::devserver {

/// Files of a folder, PEM.
struct Certificates {
  std::string ca_file;
  std::string server_cert, server_key;
  struct Client {
    std::string name;
    std::string cert, key;
  };
  std::vector<Client> clients;
};

/// Makes an authority and lets it sign a certificate for servers, made out to `server_name`, and
/// one for each of `clients`. They hold for 30 days; the key of the authority is not kept. The
/// folder is made if it is not there, for its owner alone; files of these names are replaced.
/// Names are letters, digits, dots, hyphens and underscores. Errors: invalid, unavailable.
Result<Certificates> make_certificates(const std::string& folder, const std::string& server_name,
                                       const std::vector<std::string>& clients);

}  // namespace aerokv::devserver
