// os_linux.cpp: all that is Linux's own.

#include "os.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "errors.h"
#include "memory.h"

// These moved between glibc's libraries in 2.34; by their older names the library runs on the older ones too (there
// the program itself has to be linked with -pthread and -ldl, as every Python is).
#if defined(__GLIBC__)
#if defined(__x86_64__)
#define MYCC_OLD_SYMBOL(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
#elif defined(__aarch64__)
#define MYCC_OLD_SYMBOL(name) __asm__(".symver " #name "," #name "@GLIBC_2.17")
#endif
MYCC_OLD_SYMBOL(dlopen);
MYCC_OLD_SYMBOL(dlsym);
MYCC_OLD_SYMBOL(dlclose);
MYCC_OLD_SYMBOL(dlerror);
MYCC_OLD_SYMBOL(pthread_create);
#endif

namespace mycc::runtime {

namespace {

constexpr size_t kHugePage = size_t(2) << 20;
constexpr unsigned kMfdCloexec = 0x1, kMfdSealed = 0x2, kMfdExec = 0x10;  // linux/memfd.h; MFD_EXEC: since Linux 6.3
constexpr int kAddSeals = 1033, kAllSeals = 0xf;  // linux/fcntl.h: its size and bytes stay as they are

// ---- code from memory

int memory_file(const char *) {
#ifdef SYS_memfd_create
  constexpr unsigned kFlags = kMfdCloexec | kMfdSealed;
  int descriptor = int(syscall(SYS_memfd_create, "mycc", kFlags | kMfdExec));
  return descriptor >= 0 ? descriptor : int(syscall(SYS_memfd_create, "mycc", kFlags));
#else
  return -1;
#endif
}

// A file in `folder` that nobody else can open and that is gone when it is closed.
int unnamed_file(const char *folder) {
#ifdef O_TMPFILE
  int descriptor = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0700);
  if (descriptor >= 0) return descriptor;
#endif
  char path[4096];
  int length = snprintf(path, sizeof path, "%s/mycc-XXXXXX", folder);
  if (length <= 0 || size_t(length) >= sizeof path) return -1;
  int named = mkstemp(path);
  if (named >= 0) {
    unlink(path);
    fcntl(named, F_SETFD, FD_CLOEXEC);
  }
  return named;
}

bool write_all(int descriptor, const uint8_t *data, size_t size) {
  while (size) {
    ssize_t written = write(descriptor, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data += written, size -= size_t(written);
  }
  return true;
}

// dlopen knows libraries by their path, and a descriptor's path comes again when its number does: a path under which
// some other library is still loaded must not be taken for ours.
bool free_path(int *descriptor, char *path, size_t size) {
  for (int attempt = 0; attempt < 64; ++attempt) {
    snprintf(path, size, "/proc/self/fd/%d", *descriptor);
    void *other = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (!other) return true;
    dlclose(other);
    int moved = fcntl(*descriptor, F_DUPFD_CLOEXEC, *descriptor + 1);
    if (moved < 0) return false;
    close(*descriptor);
    *descriptor = moved;
  }
  return false;
}

bool open_code(int descriptor, const uint8_t *image, size_t size, CodeImage *code, Line *why) {
  char path[64];
  if (!write_all(descriptor, image, size)) {
    why->add("%s", strerror(errno));
  } else if (fcntl(descriptor, kAddSeals, kAllSeals), !free_path(&descriptor, path, sizeof path)) {
    why->add("no free descriptor");
  } else if (void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    code->handle = handle;
    code->descriptor = descriptor;
    return true;
  } else {
    const char *error = dlerror();
    why->add("%s", error ? error : "unknown");
  }
  close(descriptor);
  return false;
}

// ---- pages

// Huge pages need aligned addresses, so more is mapped and the ends are given back.
void *trim_to_huge_pages(void *mapped, size_t room, size_t bytes) {
  uintptr_t begin = reinterpret_cast<uintptr_t>(mapped), data = (begin + kHugePage - 1) & ~(kHugePage - 1);
  size_t page = size_t(sysconf(_SC_PAGESIZE)), used = (bytes + page - 1) & ~(page - 1);
  if (data > begin) munmap(mapped, data - begin);
  if (data + used < begin + room) munmap(reinterpret_cast<void *>(data + used), begin + room - data - used);
  return reinterpret_cast<void *>(data);
}

// ---- cores

// Reads a small file; false when it is not there.
bool read_text(const char *path, char *text, size_t size) {
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  ssize_t length = read(descriptor, text, size - 1);
  close(descriptor);
  text[length > 0 ? length : 0] = 0;
  return length > 0;
}

int64_t parse_number(const char **text) {
  int64_t value = 0;
  const char *p = *text;
  while (*p == ' ') ++p;
  if (*p < '0' || *p > '9') return -1;
  while (*p >= '0' && *p <= '9' && value < (int64_t(1) << 50)) value = 10 * value + (*p++ - '0');
  *text = p;
  return value;
}

int32_t cores_of(int64_t quota, int64_t period) {
  return quota > 0 && period > 0 ? int32_t((quota + period - 1) / period) : INT32_MAX;
}

// "max 100000" or "quota period" in cpu.max of the group and of all groups above it (cgroup v2).
int32_t group_limit(const char *group) {
  char path[4096], text[128];
  int32_t limit = INT32_MAX;
  int length = snprintf(path, sizeof path, "/sys/fs/cgroup%s", group);
  if (length <= 0 || size_t(length) + 10 >= sizeof path) return limit;
  size_t root = strlen("/sys/fs/cgroup"), end = size_t(length);
  while (end > root && path[end - 1] == '/') --end;
  for (;;) {
    memcpy(path + end, "/cpu.max", 9);
    if (read_text(path, text, sizeof text)) {
      const char *p = text;
      int64_t quota = parse_number(&p), period = parse_number(&p);
      int32_t cores = cores_of(quota, period);
      limit = cores < limit ? cores : limit;
    }
    if (end <= root) return limit;
    while (end > root && path[end - 1] != '/') --end;
    while (end > root && path[end - 1] == '/') --end;
  }
}

int32_t quota_limit() {
  char text[4096], quota[64], period[64];
  int32_t limit = INT32_MAX;
  if (read_text("/proc/self/cgroup", text, sizeof text)) {
    const char *line = strstr(text, "0::");
    if (line && (line == text || line[-1] == '\n')) {
      char *group = const_cast<char *>(line) + 3, *stop = strchr(group, '\n');
      if (stop) *stop = 0;
      limit = group_limit(group);
    }
  }
  if (read_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota, sizeof quota) &&
      read_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period, sizeof period)) {
    const char *q = quota, *p = period;
    int32_t cores = cores_of(parse_number(&q), parse_number(&p));
    limit = cores < limit ? cores : limit;
  }
  return limit;
}

}  // namespace

// ---- files

namespace {

// fstat() has no symbol in glibc before 2.33; the kernel's structure is the same.
bool about_file(int descriptor, struct stat *about) { return syscall(SYS_fstat, descriptor, about) == 0; }

}  // namespace

int open_file(const char *path, Mapping *mapping) {
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO would wait for a writer
  uint8_t first;
  if (descriptor < 0 || pread(descriptor, &first, 1, 0) < 0) {  // a folder opens, but cannot be read
    int error = errno;
    if (descriptor >= 0) close(descriptor);
    const bool stream = descriptor >= 0 && error == ESPIPE;  // a FIFO or a terminal
    return fail(MYCC_ERROR_LOAD, "cannot read %s: %s", path, stream ? "it is not a regular file" : strerror(error));
  }
  struct stat about;
  off_t size = about_file(descriptor, &about) && S_ISREG(about.st_mode) ? about.st_size : lseek(descriptor, 0, SEEK_END);
  if (size <= 0) {
    close(descriptor);
    return fail(MYCC_ERROR_LOAD, "%s is empty\n  The file is damaged or incomplete: copy or build it again.", path);
  }
  if (!reserve_mapping(size_t(size), mapping)) {
    close(descriptor);
    return out_of_memory(size_t(size));
  }
  mapping->descriptor = descriptor;
  mapping->modified[0] = about.st_mtim.tv_sec, mapping->modified[1] = about.st_mtim.tv_nsec;
  return MYCC_OK;
}

// Addresses alone: what is not written takes no memory, and counts as none.
bool reserve_mapping(size_t size, Mapping *mapping) {
  if (size > SIZE_MAX - 2 * kHugePage) return false;
  const size_t room = size + kHugePage;
  void *mapped = mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return false;
  mapping->data = reinterpret_cast<const uint8_t *>(trim_to_huge_pages(mapped, room, size));
  mapping->size = size;
  return true;
}

bool allow_writing(uint8_t *target, uint64_t size) {
  const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE)), begin = reinterpret_cast<uintptr_t>(target) & ~(page - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(target) + size + page - 1) & ~(page - 1);
  return mprotect(reinterpret_cast<void *>(begin), end - begin, PROT_READ | PROT_WRITE) == 0;
}

bool read_file(const Mapping &mapping, uint8_t *target, uint64_t offset, uint64_t size) {
  if (size && !allow_writing(target, size)) return false;
  while (size) {
    const size_t most = size < (size_t(1) << 30) ? size_t(size) : size_t(1) << 30;
    const ssize_t length = pread(mapping.descriptor, target, most, off_t(offset));
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) return false;
    target += length, offset += uint64_t(length), size -= uint64_t(length);
  }
  return true;
}

bool map_over(const Mapping &mapping, uint8_t *target, uint64_t offset, uint64_t size) {
  return mmap(target, size_t(size), PROT_READ, MAP_PRIVATE | MAP_FIXED, mapping.descriptor, off_t(offset)) != MAP_FAILED;
}

void finish_writing(const Mapping &mapping) { mprotect(const_cast<uint8_t *>(mapping.data), mapping.size, PROT_READ); }

bool file_changed(const Mapping &mapping) {
  struct stat about;
  return !about_file(mapping.descriptor, &about) || uint64_t(about.st_size) != mapping.size ||
         about.st_mtim.tv_sec != mapping.modified[0] || about.st_mtim.tv_nsec != mapping.modified[1];
}

void close_file(Mapping *mapping) {
  if (mapping->descriptor >= 0) close(mapping->descriptor);
  mapping->descriptor = -1;
}

void unmap_file(Mapping *mapping) {
  close_file(mapping);
  unmap_pages(const_cast<uint8_t *>(mapping->data), mapping->size);
  *mapping = {};
}

void expect_reading(const void *data, size_t size) {
  size_t page = size_t(sysconf(_SC_PAGESIZE));
  uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) & ~(page - 1);
  uintptr_t end = (reinterpret_cast<uintptr_t>(data) + size) & ~(page - 1);
  if (end > begin && size >= kHugePage) madvise(reinterpret_cast<void *>(begin), end - begin, MADV_HUGEPAGE);
}

// ---- code

int load_code(const uint8_t *image, size_t size, const char *label, CodeImage *code) {
  Line why;
  int descriptor = memory_file(label);
  if (descriptor >= 0 && open_code(descriptor, image, size, code, &why)) return MYCC_OK;
  const char *folders[] = {getenv("TMPDIR"), "/dev/shm", "/tmp", "/var/tmp"};
  for (const char *folder : folders) {
    descriptor = folder && *folder ? unnamed_file(folder) : -1;
    if (!why.empty() && descriptor >= 0) why.add("; ");
    if (descriptor >= 0 && open_code(descriptor, image, size, code, &why)) return MYCC_OK;
  }
  return fail(MYCC_ERROR_LOAD,
              "cannot load %s: %s\n  Where programs must not run from memory, set TMPDIR to a folder on a file system "
              "that is not mounted noexec.",
              label, why.empty() ? "no memory file and no temporary folder" : why.text());
}

bool open_system_library(const char *name, CodeImage *library) {
  library->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  return library->handle != nullptr;
}

void *find_symbol(const CodeImage &code, const char *name) { return dlsym(code.handle, name); }

void unload_code(CodeImage *code) {
  if (code->handle) dlclose(code->handle);
  if (code->descriptor >= 0) close(code->descriptor);  // not before: its number is part of the library's path
  *code = {};
}

// ---- cores, pages, threads

int32_t count_cores() {
  cpu_set_t set;
  int32_t cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : int32_t(sysconf(_SC_NPROCESSORS_ONLN));
  int32_t limit = quota_limit();
  cores = cores < limit ? cores : limit;
  return cores > 1 ? cores : 1;
}

void *map_pages(size_t bytes) {
  size_t room = bytes + kHugePage;
  if (room < bytes) return nullptr;
  void *mapped = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  void *data = trim_to_huge_pages(mapped, room, bytes);
  madvise(data, bytes, MADV_HUGEPAGE);
  return data;
}

void unmap_pages(void *data, size_t bytes) {
  size_t page = size_t(sysconf(_SC_PAGESIZE));
  if (data) munmap(data, (bytes + page - 1) & ~(page - 1));
}

void wait_on(std::atomic<uint32_t> *word, uint32_t expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void wake(std::atomic<uint32_t> *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

bool start_thread(void *(*body)(void *), void *argument) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);  // of this thread; the new one inherits it
  pthread_t thread;
  bool started = pthread_create(&thread, &attributes, body, argument) == 0;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return started;
}

void yield_core() { sched_yield(); }

void at_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) {
  pthread_atfork(before, in_parent, in_child);
}

int64_t now_nanoseconds() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t(time.tv_sec) * 1000000000 + time.tv_nsec;
}

}  // namespace mycc::runtime
