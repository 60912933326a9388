// os.h: what the runtime asks of the operating system. One file implements it for each: os_linux.cpp.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

namespace mycc::runtime {

struct Mapping {
  const uint8_t *data = nullptr;
  size_t size = 0;
};

// Maps a file read-only; its pages are shared with every process that maps it. MYCC_OK or a code with its text.
int map_file(const char *path, Mapping *mapping);
void unmap_file(Mapping *mapping);
// Of a mapped file: these bytes are read as a whole, again and again. What is not in memory yet comes in huge pages then.
void expect_reading(const void *data, size_t size);

struct CodeImage {
  void *handle = nullptr;
  int descriptor = -1;
};

// Loads a shared library from memory, without a trace on the disk. `label` names it in messages.
int load_code(const uint8_t *image, size_t size, const char *label, CodeImage *code);
void *find_symbol(const CodeImage &code, const char *name);
void unload_code(CodeImage *code);
// A library of the system by its name ("libcuda.so.1"); it stays loaded. False: there is none.
bool open_system_library(const char *name, CodeImage *library);

// Cores that this process may use: its affinity, and the quota of its control group.
int32_t count_cores();

// Zeroed pages for large, short-lived memory; NULL when memory is short.
void *map_pages(size_t bytes);
void unmap_pages(void *data, size_t bytes);

// Sleeps while *word == expected, until woken; may return early.
void wait_on(std::atomic<uint32_t> *word, uint32_t expected);
void wake(std::atomic<uint32_t> *word, int count);

// A detached thread that takes no signals. False: the system gives no more.
bool start_thread(void *(*body)(void *), void *argument);
void yield_core();
void at_fork(void (*before)(), void (*in_parent)(), void (*in_child)());
int64_t now_nanoseconds();

}  // namespace mycc::runtime
