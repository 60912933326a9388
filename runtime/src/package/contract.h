// contract.h: what a package's code was compiled for: names, dtypes, ranks and dimensions of inputs, outputs and state,
// size symbols, what calls change, and the size of the weights. Its hash stands in model.so, in the section
// .mycc.contract, and is compared with the manifest's before the code is loaded. docs/package-format.md has the form;
// compiler/package/contract.py writes it.
#pragma once

#include "manifest.h"

namespace mycc::runtime {

// MYCC_OK when the library was compiled for what the manifest says, or is older than contracts. `name` is the library's
// member, for the message.
int check_contract(const Manifest &manifest, const uint8_t *library, size_t size, const char *label, Span name);

}  // namespace mycc::runtime
