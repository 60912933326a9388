#include "errors.h"

#include <stdio.h>

namespace mycc::runtime {

namespace {
thread_local char error_text[2048];

// Names in a package may be anything, and the text goes to a terminal: no control characters (C0, DEL, C1 in UTF-8).
void make_printable(char *text) {
  for (auto *p = reinterpret_cast<unsigned char *>(text); *p; ++p) {
    if ((*p < 0x20 && *p != '\n') || *p == 0x7F) *p = '?';
    if (p[0] == 0xC2 && p[1] >= 0x80 && p[1] < 0xA0) p[0] = p[1] = '?';
  }
}
}  // namespace

int fail(int code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error_text, sizeof error_text, format, arguments);
  va_end(arguments);
  make_printable(error_text);
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
