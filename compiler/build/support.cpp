// The four functions that GCC and Clang may call of themselves, so that a package's code needs no libc.
// Compiled without builtins and loop idioms: otherwise these loops would become calls of themselves.
#include <stddef.h>
#include <stdint.h>

#define MYCC_SUPPORT extern "C" __attribute__((visibility("hidden")))

typedef uint8_t bytes32 __attribute__((vector_size(32), aligned(1), may_alias));
typedef uint64_t word8 __attribute__((aligned(1), may_alias));
typedef uint32_t word4 __attribute__((aligned(1), may_alias));
typedef uint16_t word2 __attribute__((aligned(1), may_alias));

// Both ends first into registers: right for every overlap.
template <class Word> static inline void move_ends(uint8_t *to, const uint8_t *from, size_t n) {
  Word head = *(const Word *)from, tail = *(const Word *)(from + n - sizeof(Word));
  *(Word *)to = head;
  *(Word *)(to + n - sizeof(Word)) = tail;
}

// n in [8, 32): two pairs of words, again all loaded before the first store.
static inline void move_words(uint8_t *to, const uint8_t *from, size_t n) {
  if (n <= 16) return move_ends<word8>(to, from, n);
  word8 a = *(const word8 *)from, b = *(const word8 *)(from + 8);
  word8 c = *(const word8 *)(from + n - 16), d = *(const word8 *)(from + n - 8);
  *(word8 *)to = a;
  *(word8 *)(to + 8) = b;
  *(word8 *)(to + n - 16) = c;
  *(word8 *)(to + n - 8) = d;
}

static inline void move_small(uint8_t *to, const uint8_t *from, size_t n) {
  if (n >= 8) return move_words(to, from, n);
  if (n >= 4) return move_ends<word4>(to, from, n);
  if (n >= 2) return move_ends<word2>(to, from, n);
  if (n == 1) *to = *from;
}

MYCC_SUPPORT void *memcpy(void *__restrict to, const void *__restrict from, size_t n) {
  uint8_t *d = (uint8_t *)to;
  const uint8_t *s = (const uint8_t *)from;
  if (n < 32) {
    move_small(d, s, n);
    return to;
  }
  bytes32 tail = *(const bytes32 *)(s + n - 32);
  for (size_t i = 0; i + 32 <= n; i += 32) *(bytes32 *)(d + i) = *(const bytes32 *)(s + i);
  *(bytes32 *)(d + n - 32) = tail;
  return to;
}

MYCC_SUPPORT void *memmove(void *to, const void *from, size_t n) {
  uint8_t *d = (uint8_t *)to;
  const uint8_t *s = (const uint8_t *)from;
  if (n < 32) {
    move_small(d, s, n);
    return to;
  }
  if ((uintptr_t)d - (uintptr_t)s >= n) {  // no byte is overwritten before it is read
    bytes32 tail = *(const bytes32 *)(s + n - 32);
    for (size_t i = 0; i + 32 <= n; i += 32) *(bytes32 *)(d + i) = *(const bytes32 *)(s + i);
    *(bytes32 *)(d + n - 32) = tail;
    return to;
  }
  bytes32 head = *(const bytes32 *)s;
  for (size_t i = n; i >= 32; i -= 32) *(bytes32 *)(d + i - 32) = *(const bytes32 *)(s + i - 32);
  *(bytes32 *)d = head;
  return to;
}

MYCC_SUPPORT void *memset(void *to, int value, size_t n) {
  uint8_t *d = (uint8_t *)to;
  uint8_t byte = (uint8_t)value;
  if (n < 32) {
    for (size_t i = 0; i < n; i++) d[i] = byte;
    return to;
  }
  bytes32 block = byte - (bytes32){};
  for (size_t i = 0; i + 32 <= n; i += 32) *(bytes32 *)(d + i) = block;
  *(bytes32 *)(d + n - 32) = block;
  return to;
}

MYCC_SUPPORT int memcmp(const void *left, const void *right, size_t n) {
  const uint8_t *a = (const uint8_t *)left, *b = (const uint8_t *)right;
  for (size_t i = 0; i < n; i++) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}
