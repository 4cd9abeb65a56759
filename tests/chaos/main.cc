// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/run.h"
#include <iostream>
int main(int argc, char** argv) {
  aerokv::chaos::Plan plan;
  plan.recipe.seed = argc > 1 ? std::stoull(argv[1]) : 1;
  plan.recipe.seconds = argc > 2 ? std::stoull(argv[2]) : 8;
  plan.recipe.nodes = argc > 3 ? std::stoull(argv[3]) : 3;
  auto report = aerokv::chaos::run_and_count(plan);
  std::cout << text_of(report);
  return report.problems.empty() ? 0 : 1;
}
