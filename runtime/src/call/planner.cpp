#include "planner.h"

#include <algorithm>

#include "../base/memory.h"

namespace mycc::runtime {

namespace {

class Planner {
 public:
  Planner(const mycc_buffer *buffers, const int64_t *sizes, int32_t n, int32_t n_kernels)
      : buffers_(buffers), sizes_(sizes), n_(n), n_kernels_(n_kernels) {}

  bool plan(int64_t *offsets, int64_t *arena, int64_t *live, PlanOrder &known) {
    order_ = region_.array<int32_t>(size_t(n_));
    placed_ = region_.array<int32_t>(size_t(n_));
    fullest_ = region_.array<int64_t>(size_t(n_));
    trial_ = region_.array<int64_t>(size_t(n_));
    int64_t *sums = region_.array<int64_t>(size_t(n_kernels_) + 1);
    if (!order_ || !placed_ || !fullest_ || !trial_ || !sums) return false;
    *live = sum_live(sums);
    if (known.searches > 0) {
      memcpy(order_, known.order, size_t(n_) * sizeof(int32_t));
      *arena = place(offsets);
      if (as_good(*arena, *live, known)) return true;
    }
    search(offsets, arena, *live, known);
    return true;
  }

 private:
  static constexpr int64_t kMaxRounds = 32, kMaxSteps = 8000000;
  static constexpr int32_t kMaxSearches = 16;  // of several rounds, of the same buffers
  static constexpr double kTolerance = 1.0 / 64, kFair = 9.0 / 8;

  // Whether a plan in a known order is about as near to the live bytes as the plan that the order was found for. Small
  // sizes may waste much, as each buffer is rounded up; that says nothing of larger ones.
  static bool as_good(int64_t arena, int64_t live, const PlanOrder &known) {
    const double wanted = known.live ? double(known.arena) / double(known.live) : 1.0;
    if (wanted > kFair && live / 2 > known.live) return false;
    return double(arena) <= double(live) * (wanted + kTolerance);
  }

  void search(int64_t *offsets, int64_t *arena, int64_t live, PlanOrder &known) {
    const int64_t most = known.searches >= kMaxSearches ? 1 : rounds();
    *arena = INT64_MAX;
    using Before = bool (Planner::*)(int32_t, int32_t) const;
    for (Before before : {&Planner::larger, &Planner::earlier, &Planner::fuller}) {
      for (int32_t i = 0; i < n_; ++i) order_[i] = i;
      std::sort(order_, order_ + n_, [&](int32_t a, int32_t b) { return (this->*before)(a, b); });
      for (int64_t round = 0; *arena > live && round < most; ++round) {
        int64_t size = place(trial_);
        if (size < *arena) {
          *arena = size;
          if (n_) memcpy(offsets, trial_, size_t(n_) * sizeof(int64_t));
          if (n_) memcpy(known.order, order_, size_t(n_) * sizeof(int32_t));
        }
        if (!raise_highest(trial_, size)) break;
      }
    }
    known.arena = *arena, known.live = live, known.searches += 1;
  }

  // A round takes n * n steps.
  int64_t rounds() const {
    int64_t steps = int64_t(n_) * n_ + 1;
    return std::clamp(kMaxSteps / steps, int64_t(1), kMaxRounds);
  }

  // Moves the buffers that reach the top of the arena to the front of the order. False: they are there already.
  bool raise_highest(const int64_t *offsets, int64_t arena) {
    auto highest = [&](int32_t i) { return offsets[i] + sizes_[i] == arena; };
    int32_t *end = std::find_if_not(order_, order_ + n_, highest);
    if (std::find_if(end, order_ + n_, highest) == order_ + n_) return false;
    int32_t count = 0, kept = n_;
    for (int32_t i = n_; i-- > 0;)  // from the back, so that both parts keep their order
      if (!highest(order_[i])) placed_[--kept] = order_[i];
    for (int32_t i = 0; i < n_; ++i)
      if (highest(order_[i])) placed_[count++] = order_[i];
    memcpy(order_, placed_, size_t(n_) * sizeof(int32_t));
    return true;
  }

  // Largest sum of live bytes; fullest_[i] is the largest over the life of buffer i.
  int64_t sum_live(int64_t *sums) {
    for (int32_t i = 0; i < n_; ++i) {
      sums[buffers_[i].first] += sizes_[i];
      sums[buffers_[i].last + 1] -= sizes_[i];
    }
    int64_t live = 0;
    for (int32_t k = 0; k < n_kernels_; ++k) {
      if (k) sums[k] += sums[k - 1];
      live = std::max(live, sums[k]);
    }
    for (int32_t i = 0; i < n_; ++i)
      fullest_[i] = *std::max_element(sums + buffers_[i].first, sums + buffers_[i].last + 1);
    return live;
  }

  bool larger(int32_t a, int32_t b) const {
    return sizes_[a] != sizes_[b] ? sizes_[a] > sizes_[b] : a < b;
  }
  bool earlier(int32_t a, int32_t b) const {
    return buffers_[a].first != buffers_[b].first ? buffers_[a].first < buffers_[b].first : larger(a, b);
  }
  bool fuller(int32_t a, int32_t b) const {
    return fullest_[a] != fullest_[b] ? fullest_[a] > fullest_[b] : larger(a, b);
  }

  bool overlap(int32_t a, int32_t b) const {
    return buffers_[a].first <= buffers_[b].last && buffers_[b].first <= buffers_[a].last;
  }

  // Places all buffers in order_; returns the arena's size. placed_ is kept sorted by offset.
  int64_t place(int64_t *offsets) {
    int64_t arena = 0;
    for (int32_t count = 0; count < n_; ++count) {
      int32_t buffer = order_[count];
      offsets[buffer] = find_gap(offsets, count, buffer);
      arena = std::max(arena, offsets[buffer] + sizes_[buffer]);
      int32_t at = count;
      for (; at > 0 && offsets[placed_[at - 1]] > offsets[buffer]; --at) placed_[at] = placed_[at - 1];
      placed_[at] = buffer;
    }
    return arena;
  }

  int64_t find_gap(const int64_t *offsets, int32_t count, int32_t buffer) const {
    int64_t size = sizes_[buffer], end = 0, best = -1, best_size = INT64_MAX;
    for (int32_t i = 0; i < count; ++i) {
      int32_t other = placed_[i];
      if (!overlap(other, buffer)) continue;
      int64_t gap = offsets[other] - end;
      if (gap >= size && gap < best_size) best = end, best_size = gap;
      end = std::max(end, offsets[other] + sizes_[other]);
    }
    return best >= 0 ? best : end;
  }

  const mycc_buffer *buffers_;
  const int64_t *sizes_;
  int32_t n_, n_kernels_;
  Region region_;
  int32_t *order_ = nullptr, *placed_ = nullptr;
  int64_t *fullest_ = nullptr, *trial_ = nullptr;
};

}  // namespace

bool plan_memory(const mycc_buffer *buffers, const int64_t *sizes, int32_t n, int32_t n_kernels, int64_t *offsets,
                 int64_t *arena, int64_t *live, PlanOrder &known) {
  return Planner(buffers, sizes, n, n_kernels).plan(offsets, arena, live, known);
}

}  // namespace mycc::runtime
