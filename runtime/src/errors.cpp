#include "errors.h"

#include <stdio.h>

namespace mycc::runtime {

namespace {
thread_local char error_text[2048];
}

int fail(int code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error_text, sizeof error_text, format, arguments);
  va_end(arguments);
  return code;
}

int out_of_memory(size_t bytes) { return fail(MYCC_ERROR_RUN, "out of memory: %zu more bytes are needed", bytes); }

const char *last_error() { return error_text; }

void Line::add(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text_ + used_, sizeof text_ - used_, format, arguments);
  va_end(arguments);
  if (length > 0) used_ = used_ + size_t(length) < sizeof text_ ? used_ + size_t(length) : sizeof text_ - 1;
}

}  // namespace mycc::runtime
