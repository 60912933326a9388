// blocks.h: memory of outputs, which come and go with every call. Large blocks are pages of their own, and freed ones
// are kept for the next call: malloc gives them back to the system, in threads other than the first one at every call,
// and fresh pages take up to a twelfth of the time of a language model. See docs/decisions/0038-outputs-in-kept-pages.md.
#pragma once

#include <stddef.h>

namespace mycc::runtime {

// At least `bytes`, aligned to 64; what they hold is undefined. *pages: what release_block() has to be told. NULL: out
// of memory.
void *allocate_block(size_t bytes, size_t *pages);
void release_block(void *data, size_t pages);

}  // namespace mycc::runtime
