#include "contract.h"

#include <elf.h>
#include <stdio.h>

#include "../base/errors.h"
#include "sha256.h"

namespace mycc::runtime {

namespace {

constexpr const char *kSection = ".mycc.contract", *kVersion = "1:";  // the version stands before the hash
constexpr size_t kHashDigits = 64;

// Appends values so that no two lists of them give the same bytes: "<length>:<text>,".
class Writer {
 public:
  void add(const char *text) { add(Span{text, strlen(text)}); }
  void add(int64_t number) {
    char text[24];
    add(Span{text, size_t(snprintf(text, sizeof text, "%lld", static_cast<long long>(number)))});
  }
  void add(Span text) {
    char length[24];
    append({length, size_t(snprintf(length, sizeof length, "%zu:", text.size))});
    append(text);
    append({",", 1});
  }
  void add(const int32_t *numbers, int32_t count) {
    add(int64_t(count));
    for (int32_t i = 0; i < count; ++i) add(int64_t(numbers[i]));
  }
  void add(const mycc_port &port) {
    add(port.name), add(dtype_name(port.dtype)), add(int64_t(port.ndim));
    for (int32_t d = 0; d < port.ndim; ++d) add(port.dims[d]);
  }
  void add(const mycc_port *ports, int32_t count) {
    add(int64_t(count));
    for (int32_t i = 0; i < count; ++i) add(ports[i]);
  }

  bool whole() const { return whole_; }
  const Array<char> &bytes() const { return bytes_; }

 private:
  void append(Span text) {
    if (bytes_.size() + text.size > bytes_.capacity())
      whole_ = whole_ && bytes_.reserve(2 * bytes_.size() + text.size);
    for (size_t i = 0; whole_ && i < text.size; ++i) bytes_.push(text.data[i]);
  }

  Array<char> bytes_;
  bool whole_ = true;
};

void add_entry(Writer *to, const EntryInfo &entry) {
  to->add(entry.name);
  to->add(entry.inputs, entry.n_inputs), to->add(entry.outputs, entry.n_outputs);
  to->add(int64_t(entry.n_symbols));
  for (int32_t i = 0; i < entry.n_symbols; ++i) {
    const SizeSymbol &s = entry.symbols[i];
    to->add(s.named.name);
    const int64_t numbers[] = {s.named.min, s.named.max, s.input, s.dim, s.scale, s.offset};
    for (int64_t number : numbers) to->add(number);
  }
  to->add(entry.state, entry.n_state), to->add(entry.changes, entry.n_changes), to->add(entry.writes, entry.n_writes);
  to->add(int64_t(entry.n_variants));
  for (int32_t v = 0; v < entry.n_variants; ++v) {
    to->add(int64_t(entry.variants[v].entry));
    for (int32_t i = 0; i < entry.n_symbols; ++i) to->add(entry.variants[v].fixed[i]);
  }
}

// The hash in hexadecimal. False: no memory.
bool contract_of(const Manifest &manifest, char hex[kHashDigits + 1]) {
  Writer text;
  text.add(int64_t(manifest.n_entries));
  for (int32_t i = 0; i < manifest.n_entries; ++i) add_entry(&text, manifest.entries[i]);
  text.add(int64_t(manifest.n_state));
  for (int32_t i = 0; i < manifest.n_state; ++i) text.add(manifest.state[i].port), text.add(manifest.state[i].offset);
  text.add(manifest.weights_header), text.add(manifest.weights_bytes);
  if (!text.whole()) return false;
  uint8_t digest[32];
  sha256(reinterpret_cast<const uint8_t *>(text.bytes().begin()), text.bytes().size(), digest);
  for (int i = 0; i < 32; ++i) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
  return true;
}

// The text of the section in a 64-bit ELF file; empty when it has none.
Span section_text(const uint8_t *file, size_t size, const char *name) {
  Elf64_Ehdr header;
  if (size < sizeof header) return {};
  memcpy(&header, file, sizeof header);
  const uint64_t count = header.e_shnum, table = header.e_shoff;
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= count || table > size ||
      count > (size - table) / sizeof(Elf64_Shdr))
    return {};
  const auto section = [&](uint64_t i, Elf64_Shdr *row) {
    memcpy(row, file + table + i * sizeof *row, sizeof *row);
    return row->sh_type != SHT_NOBITS && row->sh_offset <= size && row->sh_size <= size - row->sh_offset;
  };
  Elf64_Shdr names, row;
  if (!section(header.e_shstrndx, &names)) return {};
  const size_t length = strlen(name) + 1;
  for (uint64_t i = 0; i < count; ++i) {
    if (!section(i, &row) || row.sh_name >= names.sh_size || names.sh_size - row.sh_name < length ||
        memcmp(file + names.sh_offset + row.sh_name, name, length) != 0)
      continue;
    const char *text = reinterpret_cast<const char *>(file + row.sh_offset);
    return {text, strnlen(text, row.sh_size)};
  }
  return {};
}

// Whether a contract is one of the version that this runtime compares; one of a later version says nothing here.
bool comparable(Span contract) { return contract.starts_with(kVersion); }

}  // namespace

int check_contract(const Manifest &manifest, const uint8_t *library, size_t size, const char *label, Span name) {
  const Span own = section_text(library, size, kSection);
  const Span said = manifest.contract ? Span{manifest.contract, strlen(manifest.contract)} : Span{};
  if (!comparable(own) && !comparable(said)) return MYCC_OK;
  char expected[2 + kHashDigits + 1] = "1:";
  if (!contract_of(manifest, expected + 2)) return out_of_memory(kHashDigits);
  if (own == expected && (said.size == 0 || said == expected)) return MYCC_OK;
  return fail(MYCC_ERROR_LOAD, "%s: %.*s was compiled for another manifest.json" MYCC_DAMAGED, label, MYCC_SPAN(name));
}

}  // namespace mycc::runtime
