// memory.h: the few containers that the runtime needs. No exceptions: a failed allocation is a value to check.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <new>
#include <type_traits>

namespace mycc::runtime {

// A piece of text that lies elsewhere; not ended by NUL.
struct Span {
  const char *data = nullptr;
  size_t size = 0;

  bool operator==(const Span &other) const {
    return size == other.size && (size == 0 || memcmp(data, other.data, size) == 0);
  }
  bool operator==(const char *text) const { return *this == Span{text, strlen(text)}; }
  bool operator!=(const char *text) const { return !(*this == text); }
  bool starts_with(const char *text) const {
    size_t length = strlen(text);
    return size >= length && memcmp(data, text, length) == 0;
  }
  bool ends_with(const char *text) const {
    size_t length = strlen(text);
    return size >= length && memcmp(data + size - length, text, length) == 0;
  }
};

// The order of names: by their bytes.
inline bool before(const Span &a, const Span &b) {
  const size_t shorter = a.size < b.size ? a.size : b.size;
  const int order = shorter ? memcmp(a.data, b.data, shorter) : 0;
  return order ? order < 0 : a.size < b.size;
}

// What printf's "%.*s" takes.
#define MYCC_SPAN(span) int((span).size), (span).data

// A growing array of plain values.
template <class T>
class Array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Array() = default;
  Array(const Array &) = delete;
  Array &operator=(const Array &) = delete;
  ~Array() { free(data_); }

  // False: no memory; the array is unchanged.
  bool push(const T &value) {
    if (size_ == capacity_ && !reserve(capacity_ ? 2 * capacity_ : 16)) return false;
    data_[size_++] = value;
    return true;
  }
  bool reserve(size_t count) {
    if (count <= capacity_) return true;
    T *moved = static_cast<T *>(realloc(data_, count * sizeof(T)));
    if (!moved) return false;
    data_ = moved;
    capacity_ = count;
    return true;
  }
  void clear() { size_ = 0; }
  void pop() { --size_; }
  void swap(Array &other) {
    T *data = data_;
    data_ = other.data_;
    other.data_ = data;
    size_t size = size_, capacity = capacity_;
    size_ = other.size_, capacity_ = other.capacity_;
    other.size_ = size, other.capacity_ = capacity;
  }
  T &operator[](size_t i) { return data_[i]; }
  const T &operator[](size_t i) const { return data_[i]; }
  T *begin() { return data_; }
  T *end() { return data_ + size_; }
  const T *begin() const { return data_; }
  const T *end() const { return data_ + size_; }
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }

 private:
  T *data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

// A value of its own memory; NULL when memory is short. The operator new of C++ would bring its exceptions along.
template <class T>
T *make_value() {
  void *memory = malloc(sizeof(T));
  return memory ? new (memory) T : nullptr;
}
template <class T>
void free_value(T *value) {
  if (!value) return;
  value->~T();
  free(value);
}

// Zeroed memory that is given back all at once.
class Region {
 public:
  Region() = default;
  Region(const Region &) = delete;
  Region &operator=(const Region &) = delete;
  ~Region() {
    for (Block *block = blocks_; block;) {
      Block *next = block->next;
      free(block);
      block = next;
    }
  }
  // `count` zeroed values (for 0, one); NULL when memory is short.
  template <class T>
  T *array(size_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    if (count == 0) count = 1;
    if (count > (SIZE_MAX - sizeof(Block)) / sizeof(T)) return nullptr;
    Block *block = static_cast<Block *>(calloc(1, sizeof(Block) + count * sizeof(T)));
    if (!block) return nullptr;
    block->next = blocks_;
    blocks_ = block;
    return reinterpret_cast<T *>(block + 1);
  }

 private:
  struct alignas(16) Block {
    Block *next;
  };
  Block *blocks_ = nullptr;
};

}  // namespace mycc::runtime
