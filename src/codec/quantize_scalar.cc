// SPDX-License-Identifier: Apache-2.0
// Compiled for every processor of the architecture.
#include "codec/quantize_loops.h"
//
#include "codec/quantize_loops.inc"

namespace aerokv::codec {

const QuantizeTable& quantize_table_scalar() {
  return kTable;
}

}  // namespace aerokv::codec
