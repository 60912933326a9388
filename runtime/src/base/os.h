// os.h: what the runtime asks of the operating system. One file implements it for each: os_linux.cpp.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

namespace mycc::runtime {

// Memory for the bytes of a file, and the file while it is read.
struct Mapping {
  const uint8_t *data = nullptr;
  size_t size = 0;
  int descriptor = -1;
  int64_t modified[2] = {0, 0};  // seconds and nanoseconds, when it was opened
  bool shared = false;           // pages of the file lie in the memory
};

// Opens a file and takes memory of its size, aligned as huge pages are. MYCC_OK or a code with its text.
int open_file(const char *path, Mapping *mapping);
bool reserve_mapping(size_t size, Mapping *mapping);
// Gives memory to a part of it.
bool allow_writing(uint8_t *target, uint64_t size);
// Fills a part of the memory with the bytes of the file from `offset` on. False: it has not so many.
bool read_file(const Mapping &mapping, uint8_t *target, uint64_t offset, uint64_t size);
// Puts pages of the file there, which all processes that map it share. False: the system does not; there is nothing then.
bool map_over(const Mapping &mapping, uint8_t *target, uint64_t offset, uint64_t size);
// From now on the memory is only read.
void finish_writing(const Mapping &mapping);
bool file_changed(const Mapping &mapping);
void close_file(Mapping *mapping);
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
