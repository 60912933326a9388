// errors.h: how a function of the runtime reports a failure: a code of enum mycc_status, and a text for the user.
#pragma once

#include <stdarg.h>
#include <stddef.h>

#include "mycc/abi.h"

namespace mycc::runtime {

// Stores the text for this thread and returns `code`, so that `return fail(...)` is all that a caller writes.
// A text is one line that says what is wrong and where, and may be followed by "\n  what to do".
__attribute__((format(printf, 2, 3))) int fail(int code, const char *format, ...);
int out_of_memory(size_t bytes);
constexpr const char *kTooManyBytes = "9223372036854775807 bytes or more";  // what is said of sizes beyond 63 bits
const char *last_error();

// A line of text built piece by piece; what does not fit is cut off.
class Line {
 public:
  __attribute__((format(printf, 2, 3))) void add(const char *format, ...);
  const char *text() const { return text_; }
  bool empty() const { return used_ == 0; }

 private:
  char text_[512] = {0};
  size_t used_ = 0;
};

}  // namespace mycc::runtime
