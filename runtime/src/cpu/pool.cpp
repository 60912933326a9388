#include "pool.h"

#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include "../base/lock.h"
#include "../base/os.h"

namespace mycc::runtime {

// The chunks of a loop that are still to do for one of its threads: `first` and `end` in one word. Its own thread takes
// them from the front; others that have nothing left take from the back, far from what it works on.
struct alignas(64) Share {
  std::atomic<uint64_t> chunks;  // first | end << 32

  void set(uint32_t first, uint32_t end) { chunks.store(first | uint64_t(end) << 32, std::memory_order_relaxed); }
  // The chunk, or -1.
  int64_t take(bool front) {
    uint64_t now = chunks.load(std::memory_order_relaxed);
    for (;;) {
      uint32_t first = uint32_t(now), end = uint32_t(now >> 32);
      if (first >= end) return -1;
      uint64_t next = front ? now + 1 : now - (uint64_t(1) << 32);
      if (chunks.compare_exchange_weak(now, next, std::memory_order_relaxed)) return front ? first : end - 1;
    }
  }
};

constexpr int32_t kShares = 32;             // more threads than that have shares in common
constexpr int64_t kMostChunks = INT32_MAX;  // a loop of more is run by its caller alone

// The gate says whether a loop is open, how many helpers are inside and how many may come; joining, leaving and closing
// are one atomic step each. The other fields belong to the caller while nobody is inside.
struct alignas(64) Slot {
  std::atomic<uint32_t> gate;
  int32_t shares;
  mycc_body body;
  void *argument;
  int64_t n, grain;
  Share share[kShares];
};

namespace {

constexpr uint32_t kInside = 0x3FF, kLimitShift = 10, kLimit = 0x3FFu << kLimitShift;
constexpr uint32_t kOwnerSleeps = 1u << 30, kOpen = 1u << 31;
constexpr int kSlots = 64;
// ns: before sleeping, when nothing runs that could open a loop and when something does; before giving the core away in
// between. A sleeper comes back in 5 us on bare metal, in 50 us on a virtual machine.
constexpr int64_t kIdleSpin = 100000, kCallSpin = 1000000, kBusySpin = 20000;

struct Pool {
  Slot slots[kSlots];
  alignas(64) std::atomic<uint64_t> open;      // bit i: slot i is worth a look
  alignas(64) std::atomic<uint64_t> used;      // bit i: slot i belongs to a call
  alignas(64) std::atomic<int32_t> in_flight;  // calls
  std::atomic<int32_t> workers;                // threads that exist
  std::atomic<int32_t> awake;                  // of them, not asleep
  alignas(64) std::atomic<int32_t> idle;       // of the awake, looking for work
  alignas(64) std::atomic<int32_t> sleepers;   // asleep, nobody has called them yet
  std::atomic<uint32_t> tokens;                // sleepers that were called, and have not yet woken up
  std::atomic<int32_t> cores;
  Lock growing;
};

Pool pool;

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Waits a little, first on the core, then letting others have it. False: `limit` ns have passed.
class Spinner {
 public:
  bool pause(int64_t limit) {
    if (++rounds_ % 32) {
      pause_core();
      return true;
    }
    int64_t now = now_nanoseconds();
    if (start_ == 0) start_ = now;
    if (now - start_ > kBusySpin) yield_core();
    return now - start_ < limit;
  }

 private:
  uint32_t rounds_ = 0;
  int64_t start_ = 0;
};

// Thread `home` first has its own share, the same part of the loop each time: what it wrote in the loop before is in its
// caches. Then it helps the others.
void run_chunks(Slot &slot, int32_t home, int32_t worker) {
  int64_t n = slot.n, grain = slot.grain;
  int32_t shares = slot.shares;
  for (int32_t i = 0; i < shares; ++i) {
    Share &share = slot.share[(home + i) % shares];
    for (int64_t chunk; (chunk = share.take(i == 0)) >= 0;) {
      int64_t begin = chunk * grain, end = n - begin < grain ? n : begin + grain;
      slot.body(slot.argument, begin, end, worker);
    }
  }
}

// Helpers leave only when no chunk is left, so the number at joining is unique among those that still get chunks.
bool join(Slot &slot, int32_t self) {
  uint32_t gate = slot.gate.load(std::memory_order_relaxed);
  do {
    if (!(gate & kOpen) || (gate & kInside) >= (gate & kLimit) >> kLimitShift) return false;
  } while (!slot.gate.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire, std::memory_order_relaxed));
  pool.idle.fetch_sub(1, std::memory_order_relaxed);
  int32_t number = int32_t(gate & kInside) + 1, own = self % slot.shares;  // the first share is the caller's
  run_chunks(slot, own ? own : number % slot.shares, number);
  uint64_t bit = uint64_t(1) << (&slot - pool.slots);  // while we are inside, the bit stands for this loop
  if (pool.open.load(std::memory_order_relaxed) & bit) pool.open.fetch_and(~bit, std::memory_order_relaxed);
  pool.idle.fetch_add(1, std::memory_order_relaxed);
  uint32_t before = slot.gate.fetch_sub(1, std::memory_order_acq_rel);
  if ((before & kOwnerSleeps) && (before & kInside) == 1) wake(&slot.gate, 1);
  return true;
}

bool join_any(int32_t self) {
  for (uint64_t open = pool.open.load(std::memory_order_seq_cst); open; open &= open - 1)
    if (join(pool.slots[__builtin_ctzll(open)], self)) return true;
  return false;
}

// Spinning is for calls that are likely to come back soon, on cores that nobody else of this process wants.
bool cores_to_spare() {
  return pool.awake.load(std::memory_order_relaxed) + pool.in_flight.load(std::memory_order_relaxed) <=
         available_threads();
}

// Takes one of the tokens that callers left for sleepers.
void take_token() {
  for (;;) {
    uint32_t tokens = pool.tokens.load(std::memory_order_relaxed);
    if (tokens == 0)
      wait_on(&pool.tokens, 0);
    else if (pool.tokens.compare_exchange_weak(tokens, tokens - 1, std::memory_order_acquire))
      return;
  }
}

// Every sleeper is either counted in `sleepers` or has a token waiting for it.
void sleep_until_called(int32_t self) {
  pool.idle.fetch_sub(1, std::memory_order_relaxed);
  pool.awake.fetch_sub(1, std::memory_order_relaxed);
  pool.sleepers.fetch_add(1, std::memory_order_seq_cst);
  bool worked = join_any(self);  // a loop may have opened before its caller could see this sleeper
  int32_t sleepers = pool.sleepers.load(std::memory_order_relaxed);
  bool cancelled = false;
  while (worked && sleepers > 0 && !cancelled)
    cancelled = pool.sleepers.compare_exchange_weak(sleepers, sleepers - 1, std::memory_order_relaxed);
  if (!cancelled) take_token();
  pool.awake.fetch_add(1, std::memory_order_relaxed);
  pool.idle.fetch_add(1, std::memory_order_relaxed);
}

int64_t spin_limit() { return pool.in_flight.load(std::memory_order_relaxed) ? kCallSpin : kIdleSpin; }

void *worker_main(void *argument) {
#if defined(__linux__)
  prctl(PR_SET_NAME, "mycc-worker");
#endif
  int32_t self = int32_t(reinterpret_cast<intptr_t>(argument));
  for (;;) {
    Spinner spinner;
    bool waiting = true;
    while (waiting) {
      if (join_any(self))
        spinner = Spinner();
      else
        waiting = cores_to_spare() && spinner.pause(spin_limit());
    }
    sleep_until_called(self);
  }
}

// At least `count` workers, as far as the system gives threads.
void grow(int32_t count) {
  Locked locked(pool.growing);
  while (pool.workers.load() < count) {
    pool.awake.fetch_add(1);
    pool.idle.fetch_add(1);
    if (!start_thread(worker_main, reinterpret_cast<void *>(intptr_t(pool.workers.load()) + 1))) {
      pool.awake.fetch_sub(1);
      pool.idle.fetch_sub(1);
      return;
    }
    pool.workers.fetch_add(1);
  }
}

void call_sleepers(int32_t wanted) {
  int32_t sleepers = pool.sleepers.load(std::memory_order_seq_cst);
  if (sleepers == 0) return;
  int32_t missing = wanted - pool.idle.load(std::memory_order_relaxed);
  while (missing > 0 && sleepers > 0) {
    int32_t called = missing < sleepers ? missing : sleepers;
    if (!pool.sleepers.compare_exchange_weak(sleepers, sleepers - called, std::memory_order_seq_cst)) continue;
    pool.tokens.fetch_add(uint32_t(called), std::memory_order_release);
    wake(&pool.tokens, called);
    return;
  }
}

Slot *take_slot() {
  uint64_t used = pool.used.load(std::memory_order_relaxed);
  while (~used) {
    int i = __builtin_ctzll(~used);
    if (pool.used.compare_exchange_weak(used, used | uint64_t(1) << i, std::memory_order_acquire)) return &pool.slots[i];
  }
  return nullptr;
}

}  // namespace

int32_t available_threads() {
  int32_t cores = pool.cores.load(std::memory_order_relaxed);
  if (cores == 0) {
    cores = count_cores();
    pool.cores.store(cores, std::memory_order_relaxed);
  }
  return cores < kMaxThreads ? cores : kMaxThreads;
}

CallInFlight::CallInFlight(int32_t threads) : threads_(threads) {
  pool.in_flight.fetch_add(1, std::memory_order_relaxed);
}

CallInFlight::~CallInFlight() {
  if (slot_) pool.used.fetch_and(~(uint64_t(1) << (slot_ - pool.slots)), std::memory_order_release);
  pool.in_flight.fetch_sub(1, std::memory_order_relaxed);
}

// Calls that run at the same time share the cores evenly.
int32_t CallInFlight::helpers_wanted() const {
  int32_t calls = pool.in_flight.load(std::memory_order_relaxed);
  if (calls <= 1) return threads_ - 1;
  int32_t share = available_threads() / calls;
  return (share < threads_ ? share : threads_) - 1;
}

void CallInFlight::parallel_for(int64_t n, int64_t grain, mycc_body body, void *argument) {
  if (grain < 1) grain = 1;
  int64_t chunks = n / grain + (n % grain != 0);
  int32_t helpers = threads_ > 1 && chunks > 1 && chunks <= kMostChunks ? helpers_wanted() : 0;
  if (helpers > 0 && !slot_) slot_ = take_slot();
  if (helpers > 0 && slot_) {
    run_shared(*slot_, chunks - 1 < helpers ? int32_t(chunks - 1) : helpers, chunks, n, grain, body, argument);
    return;
  }
  for (int64_t begin = 0; begin < n; begin += grain) body(argument, begin, n - begin < grain ? n : begin + grain, 0);
}

void CallInFlight::run_shared(Slot &slot, int32_t helpers, int64_t chunks, int64_t n, int64_t grain, mycc_body body,
                              void *argument) {
  if (pool.workers.load(std::memory_order_relaxed) < helpers) grow(helpers);
  uint64_t bit = uint64_t(1) << (&slot - pool.slots);
  slot.body = body, slot.argument = argument;
  slot.n = n, slot.grain = grain;
  slot.shares = helpers + 1 < kShares ? helpers + 1 : kShares;
  for (int32_t i = 0; i < slot.shares; ++i)
    slot.share[i].set(uint32_t(chunks * i / slot.shares), uint32_t(chunks * (i + 1) / slot.shares));
  slot.gate.store(kOpen | uint32_t(helpers) << kLimitShift, std::memory_order_release);
  pool.open.fetch_or(bit, std::memory_order_seq_cst);
  call_sleepers(helpers);
  run_chunks(slot, 0, 0);
  pool.open.fetch_and(~bit, std::memory_order_relaxed);
  uint32_t gate = slot.gate.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  Spinner spinner;
  while (gate & kInside) {
    if (!spinner.pause(kCallSpin) &&
        (gate & kOwnerSleeps || slot.gate.compare_exchange_strong(gate, gate | kOwnerSleeps)))
      wait_on(&slot.gate, gate | kOwnerSleeps);
    gate = slot.gate.load(std::memory_order_acquire);
  }
}

void pool_before_fork() { pool.growing.acquire(); }

void pool_after_fork(bool in_child) {
  if (in_child) {  // only this thread is left, and it is in no call
    for (Slot &slot : pool.slots) slot.gate.store(0);
    pool.open.store(0), pool.used.store(0), pool.in_flight.store(0);
    pool.workers.store(0), pool.awake.store(0), pool.idle.store(0);
    pool.sleepers.store(0), pool.tokens.store(0);
  }
  pool.growing.release();
}

}  // namespace mycc::runtime
