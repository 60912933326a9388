// schema.h: the form of manifest.json (docs/package-format.md): which fields there are, of which types, and the structures
// of arguments and results. runtime/manifest.py holds the same tables for Python.
#pragma once

#include "../base/errors.h"
#include "json.h"

namespace mycc::runtime {

// Whether the manifest has that form; else `problem` says where it has not, in words that follow "manifest.json: ".
// Fields that are not in the tables are ignored. What the fields mean together is checked by their reader.
bool check_form(const Json &json, Line *problem);

}  // namespace mycc::runtime
