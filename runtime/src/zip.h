// zip.h: the directory of a package, which is a zip file of stored members; only sources may be deflated (APPNOTE.TXT
// 4.3, 4.5.3).
#pragma once

#include "memory.h"

namespace mycc::runtime {

struct Member {
  Span name;
  uint64_t offset, size;  // of its bytes as the package has them, from its start
};

struct Archive {
  const uint8_t *data = nullptr;
  uint64_t size = 0;
  Array<Member> members;  // sorted by name
  Span comment;

  const Member *find(Span name) const;
};

// Reads and checks the directory: every local header repeats its entry, members lie one after the other with zeros
// between, no name comes twice, code and weights start at multiples of 65536. Touches only the headers.
// `label` names the package in messages.
int read_archive(const uint8_t *data, uint64_t size, const char *label, Archive *archive);

// The text that ends every message about a damaged file.
#define MYCC_DAMAGED "\n  The file is damaged or incomplete: copy or build it again."

}  // namespace mycc::runtime
