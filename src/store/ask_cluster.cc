// SPDX-License-Identifier: Apache-2.0
#include "aerokv/survey.h"
#include "client/info_channel.h"
#include "store/chunk_store.h"

namespace aerokv {

Result<std::vector<NodeReport>> ask_cluster(const StoreOptions& options,
                                            const std::vector<std::string>& commands) {
  for (const std::string& command : commands) AEROKV_TRY(store::check_info_command(command));
  Result<client::ClientOptions> client_opts = store::client_options(options);
  if (!client_opts) return client_opts.error();
  Result<std::unique_ptr<client::Client>> client = client::Client::connect(*client_opts);
  if (!client) return client.error();
  std::vector<NodeReport> reports;
  const std::shared_ptr<const client::ClusterMap> map = (*client)->map();
  for (const client::NodePtr& node : map->nodes) {
    NodeReport& report = reports.emplace_back();
    report.node = node->name();
    report.address = node->endpoint().to_string();
    for (const std::string& command : commands) {
      Result<std::string> text = client::ask_info(*node, (*client)->options(), command,
                                                  SteadyClock::now() + options.connect_timeout);
      NodeAnswer& answer = report.answers.emplace_back();
      answer.node = node->name();
      if (text) {
        answer.text = *std::move(text);
        continue;
      }
      answer.status = text.error();
      // A node that is away need not be waited for again; an error text of the server is an answer.
      const Code code = answer.status.code();
      if (code == Code::timeout || code == Code::unavailable) break;
    }
  }
  return reports;
}

}  // namespace aerokv
