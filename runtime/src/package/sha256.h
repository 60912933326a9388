// sha256.h: SHA-256 (FIPS 180-4), with the CPU's own instructions where it has them.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "../base/memory.h"

namespace mycc::runtime {

void sha256(const uint8_t *data, size_t size, uint8_t digest[32]);

// Whether the data has this digest, given as 64 lower-case hexadecimal digits.
bool sha256_matches(const uint8_t *data, size_t size, Span hex);

}  // namespace mycc::runtime
