// manifest.h: what manifest.json says, as far as the runtime needs it. Schema: docs/package-format.md.
#pragma once

#include "json.h"
#include "../base/memory.h"
#include "mycc/model.h"
#include "zip.h"

namespace mycc::runtime {

struct DtypeRow {
  const char *name;
  mycc_dtype dtype;
};

const DtypeRow *dtype_by_name(Span name);   // NULL: unknown
const char *dtype_name(mycc_dtype dtype);   // "unknown" where it has no name
inline size_t dtype_bytes(mycc_dtype dtype) { return size_t(dtype.bits) / 8; }
inline bool is_bool(mycc_dtype dtype) { return dtype.code == 6; }
inline bool same_dtype(mycc_dtype a, mycc_dtype b) {
  return a.code == b.code && a.bits == b.bits && (a.lanes <= 1) == (b.lanes <= 1);
}

struct SizeSymbol {
  mycc_symbol named;
  int32_t input, dim;     // the dimension that defines it: size = scale * value + offset
  int64_t scale, offset;
};

// The entry point that runs in place of a general one when some of its symbols have these values.
struct VariantInfo {
  int32_t entry;
  const int64_t *fixed;  // a value for each symbol of the general entry point; kFree: any
};

constexpr int64_t kFree = -1;

// A tensor that lives from call to call.
struct StateInfo {
  mycc_port port;
  int64_t shape[MYCC_MAX_RANK];
  int64_t bytes;
  int64_t offset;  // of its first value in the data of the weights; -1: it is zero
};

struct EntryInfo {
  const char *name;
  mycc_port *inputs, *outputs;
  SizeSymbol *symbols;
  int32_t n_inputs, n_outputs, n_symbols, n_kernels;
  int32_t input_dims, output_dims;  // dimensions of all inputs (of all outputs)
  int32_t *state, n_state;          // tensors of the state that a call reads,
  int32_t *changes, n_changes;      // those of them that it changes,
  int32_t *writes, n_writes;        // and the inputs that it writes to, by number
  VariantInfo *variants;
  int32_t n_variants;
};

struct TargetInfo {
  const char *name;  // "cpu:x86-64-v3", "cuda:sm_90"
  Span isa, library;
  bool gpu;
  Span arch;    // of the host code, as `uname -m` says it; empty: that of the isa
  Span images;  // the member of a GPU's kernels
};

struct Manifest {
  const char *text;
  const char *hash;  // sha256 of the text, in hexadecimal
  const char *name;
  EntryInfo *entries;
  TargetInfo *targets;
  StateInfo *state;
  int32_t n_entries, n_targets, n_state;
  int32_t threads;  // of a call when the loader names none; 0: one per core
  const char *launch;  // how a GPU's kernels are launched when the loader does not say; NULL: "auto"
  Span weights_member;
  uint64_t weights_offset;  // of the tensor data in the package
  int64_t weights_header, weights_bytes;  // bytes before the tensor data in their member, and of the data
  const char *contract;     // what the code has to have been compiled for (contract.h); NULL in older packages
};

// Checks everything but the weights' bytes (those too with check_full): the manifest's hash and version, the hash of
// every member, and the manifest's own sense. All memory of `manifest` comes from `region`.
int read_manifest(const Archive &archive, const char *label, bool check_full, Region *region, Json *json,
                  Manifest *manifest);

}  // namespace mycc::runtime
