// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/shrink.h"

#include <algorithm>

namespace aerokv::chaos {

Shrunk shrink(const Attempt& first, int tries, const std::function<Attempt(size_t)>& attempt) {
  Shrunk best;
  best.tries = tries;
  best.why = first.why;
  size_t passes = 0;            // a shorter prefix than this was not seen to fail
  size_t fails = first.events;  // this one was
  while (passes < fails) {
    const size_t middle = passes + (fails - passes) / 2;
    Attempt tried;
    for (int i = 0; i < tries && !tried.failed; ++i) tried = attempt(middle);
    if (tried.failed) {
      best.why = tried.why;
      fails = std::min(middle, tried.events);
    } else {
      passes = middle + 1;
    }
  }
  best.events = fails;
  for (int i = 0; i < tries; ++i) {
    const Attempt again = attempt(fails);
    if (!again.failed) continue;
    ++best.failures;
    best.why = again.why;
  }
  return best;
}

}  // namespace aerokv::chaos
