// internals.cpp: what lies behind the C API, made callable from the tests.
#include <vector>

#include "src/call/blocks.h"
#include "src/package/json.h"
#include "src/call/planner.h"
#include "src/package/sha256.h"

extern "C" {

// known: NULL: none is.
int test_plan(const mycc_buffer *buffers, const int64_t *sizes, int32_t n, int32_t n_kernels, int64_t *offsets,
              int64_t *arena, int64_t *live, mycc::runtime::PlanOrder *known) {
  std::vector<int32_t> order(size_t(n) + 1);
  mycc::runtime::PlanOrder none = {order.data(), 0, 0, 0};
  return mycc::runtime::plan_memory(buffers, sizes, n, n_kernels, offsets, arena, live, known ? *known : none);
}

void *test_allocate_block(size_t bytes, size_t *pages) { return mycc::runtime::allocate_block(bytes, pages); }

void test_release_block(void *data, size_t pages) { mycc::runtime::release_block(data, pages); }

void test_sha256(const uint8_t *data, size_t size, uint8_t *digest) { mycc::runtime::sha256(data, size, digest); }

// 0 where the text is JSON; the last string of a top-level array goes to `last`.
const char *test_json(const char *text, size_t size, char *last, size_t room) {
  mycc::runtime::Json json;
  const char *error = json.parse(text, size);
  if (error) return error;
  for (const auto *value = json.first(&json.root()); value; value = json.next(value))
    if (value->text.data && value->text.size < room) memcpy(last, value->text.data, value->text.size + 1);
  return nullptr;
}
}
