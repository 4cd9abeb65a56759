// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx2; called only where the processor has it.
#include "codec/quantize_loops.h"
//
#include "codec/quantize_loops.inc"

namespace aerokv::codec {

#if defined(__x86_64__)
const QuantizeTable& quantize_table_avx2() {
  return kTable;
}
#endif

}  // namespace aerokv::codec
