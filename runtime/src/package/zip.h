// zip.h: the directory of a package, which is a zip file of stored members; only sources may be deflated (APPNOTE.TXT
// 4.3, 4.5.3).
#pragma once

#include "../base/memory.h"

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
  Span listing;  // the directory's entries but the last one, whose member is `last`
  Span last;
  uint32_t last_crc = 0;

  const Member *find(Span name) const;
};

// Reads and checks the directory: all is as mycc writes it (dates and attributes too), every local header repeats its
// entry, members lie one after the other with zeros between, no name comes twice, code and weights start at multiples of
// 65536. Touches only the headers. runtime/directory.py takes and refuses the same files.
// `label` names the package in messages.
int read_archive(const uint8_t *data, uint64_t size, const char *label, Archive *archive);

// CRC-32 of zip files (APPNOTE.TXT 4.4.7).
uint32_t crc32(const uint8_t *data, uint64_t size);

// The text that ends every message about a damaged file.
#define MYCC_DAMAGED "\n  The file is damaged or incomplete: copy or build it again."

}  // namespace mycc::runtime
