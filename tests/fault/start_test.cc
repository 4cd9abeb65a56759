// SPDX-License-Identifier: Apache-2.0
// Every request of a start fails in every way: names, maps, limits, logins. A start ends in time,
// in an error or in a store that works, and the next one is not harmed.
#include <algorithm>

#include "tests/fault/variants.h"
#include "tests/fault/world.h"

namespace aerokv::testing {
namespace {

using devserver::RequestKind;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct Case {
  const char* name;
  RequestKind kind;
  bool with_login;
};

class Start : public ::testing::TestWithParam<Case> {
 protected:
  static StoreOptions options_for_start(const devserver::DevServer& server) {
    StoreOptions options = impatient_options(server);
    options.connect_timeout = milliseconds(200 * kSlowness);
    options.tend_interval = milliseconds(100);
    if (GetParam().with_login) {
      options.connect_timeout = milliseconds(1000 * kSlowness);
      options.username = "tester";
      options.password = "secret";
    }
    return options;
  }

  /// Logins are slow by intention (bcrypt): there some variants of each kind must do.
  static std::vector<Variant> variants() {
    std::vector<Variant> all = variants_for(Aim::record);
    if (!GetParam().with_login) return all;
    const std::vector<std::string> kept = {"result_code_9",
                                           "result_code_22",
                                           "result_code_80",
                                           "result_after_execute_9",
                                           "drop",
                                           "close",
                                           "close_after_bytes_8",
                                           "close_after_bytes_30",
                                           "damage_garbage_body",
                                           "damage_garbage_frame",
                                           "damage_frame_size_over",
                                           "damage_frame_size_huge",
                                           "damage_wrong_type",
                                           "damage_empty_frame",
                                           "close_from_here_on",
                                           "result_code_9_from_here_on"};
    std::erase_if(all, [&](const Variant& variant) {
      return std::find(kept.begin(), kept.end(), variant.name) == kept.end();
    });
    return all;
  }

  static devserver::Options server_options() {
    devserver::Options options = small_record_server();
    if (GetParam().with_login) options.users.push_back({"tester", "secret"});
    return options;
  }

  /// One start whose n-th request fails. Returns false if the fault was not reached.
  static bool run_round(devserver::DevServer& server, const Variant& variant, uint64_t nth) {
    const std::string where =
        std::string(GetParam().name) + "/" + variant.name + "/" + std::to_string(nth);
    devserver::Fault fault = variant.fault;
    fault.kinds = devserver::mask_of(GetParam().kind);
    fault.skip = nth - 1;
    fault.count = variant.persistent ? 0 : 1;
    server.add_fault(fault);
    const auto begun = std::chrono::steady_clock::now();
    Result<std::unique_ptr<Store>> store = Store::open(options_for_start(server));
    EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(6 * kSlowness)) << where;
    if (!store) {
      EXPECT_NE(store.error().code(), Code::internal) << where;
      EXPECT_FALSE(store.error().message().empty()) << where;
    }
    const bool reached = server.fault_counters()[0].applied > 0;
    server.clear_faults();
    if (variant.freezes) static_cast<void>(server.resume_node(0));
    EXPECT_TRUE(store || reached || !LagMeter::instance().was_calm_since(begun))
        << where << ": " << store.error().message();
    StoreOptions patient = options_for_start(server);
    patient.connect_timeout = seconds(10);
    const std::unique_ptr<Store> used = store ? *std::move(store) : open_store(patient);
    const Buffer payload = random_bytes(2 * kSegment, nth);
    const auto deadline = std::chrono::steady_clock::now() + seconds(20);
    std::string bits;
    while (bits != "1" && std::chrono::steady_clock::now() < deadline) {
      bits = bits_of(run(*used, Operation::put, {put_item(where, payload)}));
    }
    EXPECT_EQ(bits, "1") << where;
    Guarded buffer(payload.size());
    bits = bits_of(run(*used, Operation::get, {get_into(where, buffer)}));
    EXPECT_TRUE(bits != "1" || buffer.holds(payload)) << where;
    return reached;
  }
};

TEST_P(Start, SurvivesEveryFailure) {
  const std::vector<Variant> all = variants();
  LagMeter::instance();
  std::atomic<size_t> next{0};
  std::atomic<uint64_t> reached{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 10; ++i) {
    threads.emplace_back([&] {
      const std::unique_ptr<devserver::DevServer> server = start_server(server_options());
      for (size_t at = next++; at < all.size(); at = next++) {
        uint64_t nth = 1;
        while (nth < 12 && run_round(*server, all[at], nth)) ++nth;
        reached += nth - 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(reached, all.size());
}

INSTANTIATE_TEST_SUITE_P(All, Start,
                         ::testing::Values(Case{"info", RequestKind::info, false},
                                           Case{"login", RequestKind::login, true},
                                           Case{"authenticate", RequestKind::authenticate, true}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace aerokv::testing
