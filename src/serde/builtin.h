// SPDX-License-Identifier: Apache-2.0
// The built-in formats, each made from its parameters (without `max_workers`, which belongs to the
// processor). docs/reference/serde.md lists them; docs/formats/ has the bytes.
#pragma once

#include "aerokv/serde.h"

namespace aerokv::serde {

/// fp8_dtype ("float8_e4m3fn", "float8_e5m2"), overflow ("saturate", "nan"), size_margin (1.0).
Result<Serde> make_fp8(const SerdeParams& params);

/// No parameters but fp8_dtype ("float8_e4m3fn" only). [2, ...] tensors are split into K and V.
Result<Serde> make_k16v8(const SerdeParams& params);

/// head_dim (0 = the whole row has one scale).
Result<Serde> make_int8(const SerdeParams& params);
Result<Serde> make_int4(const SerdeParams& params);

/// level (1).
Result<Serde> make_lossless(const SerdeParams& params);

Result<Serde> make_checksum(const SerdeParams& params);

/// master_key_path (required), aes_bits (128, 256), key_provider ("hkdf").
Result<Serde> make_aesgcm(const SerdeParams& params);

/// stages: a list of the above.
Result<Serde> make_chain(const SerdeParams& params);

}  // namespace aerokv::serde
