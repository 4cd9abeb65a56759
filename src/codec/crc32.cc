// SPDX-License-Identifier: Apache-2.0
#include "codec/crc32.h"

#include <isa-l.h>

namespace aerokv::codec {
namespace {

// Polynomials over GF(2) modulo that of the sum, the coefficient of x^0 in the highest bit.
constexpr uint32_t kPolynomial = 0xedb88320U;
constexpr uint32_t kOne = 0x80000000U;

constexpr uint32_t times_x(uint32_t value) {
  return (value >> 1) ^ ((value & 1U) != 0 ? kPolynomial : 0);
}

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = times_x(b);
  }
  return product;
}

}  // namespace

uint32_t crc32(Bytes bytes, uint32_t crc) {
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

// Appending n bytes multiplies what came before by x^(8n).
uint32_t crc32_join(uint32_t first, uint32_t second, uint64_t second_bytes) {
  uint32_t power = kOne >> 8;  // x^8, and its squares
  for (; second_bytes != 0; second_bytes >>= 1) {
    if ((second_bytes & 1U) != 0) first = multiply(first, power);
    power = multiply(power, power);
  }
  return first ^ second;
}

}  // namespace aerokv::codec
