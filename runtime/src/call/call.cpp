#include "call.h"

#include <stdio.h>

#include "../base/os.h"
#include "../package/package_file.h"
#include "planner.h"
#include "state.h"

namespace mycc::runtime {

namespace {

constexpr size_t kMaxPlans = 64;                       // kept for an entry point
constexpr size_t kLargeArena = size_t(64) << 20;       // given back when calls stop needing it
constexpr int32_t kOversizedCalls = 16;                // after so many
constexpr size_t kMaxFreeBytes = size_t(256) << 20;    // that more than one free state may hold

// Of a clock that costs little, from any beginning; and so many of them are some hundredths of a second.
#if defined(__x86_64__)
uint64_t ticks() { return __builtin_ia32_rdtsc(); }
constexpr uint64_t kAskedAfter = uint64_t(1) << 26;
#else
uint64_t ticks() { return uint64_t(now_nanoseconds()); }
constexpr uint64_t kAskedAfter = 30000000;
#endif
constexpr int64_t kFewPieces = 8;  // of a loop that is not interrupted

int32_t most(int32_t a, int32_t b) { return a > b ? a : b; }

bool same(const int64_t *a, const int64_t *b, int32_t n) {
  for (int32_t i = 0; i < n; ++i)
    if (a[i] != b[i]) return false;
  return true;
}

}  // namespace

// ---- life

Call::Call(mycc_model &model) : model_(model) {
  host_ = {this,    host_parallel_for, host_scratch, host_fail,  nullptr, model.threads,
           nullptr, nullptr,           host_define,   nullptr};
}

bool Call::allocate() {
  int32_t inputs = 0, outputs = 0, symbols = 0, buffers = 0, input_dims = 0, output_dims = 0, computed = 0;
  for (int32_t i = 0; i < model_.manifest.n_entries; ++i) {
    const EntryInfo &info = *model_.entries[i].info;
    inputs = most(inputs, info.n_inputs), outputs = most(outputs, info.n_outputs);
    const mycc_computed *found = model_.entries[i].computed;
    computed = most(computed, found ? found->n_sizes : 0);
    symbols = most(symbols, info.n_symbols), buffers = most(buffers, model_.entries[i].code->n_buffers);
    input_dims = most(input_dims, info.input_dims), output_dims = most(output_dims, info.output_dims);
  }
  symbols_ = region_.array<int64_t>(size_t(symbols) + size_t(computed));
  buffers_ = region_.array<uint8_t *>(computed ? size_t(buffers) : 0);
  known_offsets_ = region_.array<int64_t>(computed ? size_t(buffers) : 0);
  planned_symbols_ = region_.array<int64_t>(size_t(symbols));
  dims_ = region_.array<int64_t>(size_t(input_dims));
  output_dims_ = region_.array<int64_t>(size_t(output_dims));
  sizes_ = region_.array<int64_t>(size_t(buffers));
  offsets_ = region_.array<int64_t>(size_t(buffers));
  order_ = region_.array<int32_t>(size_t(buffers));
  inputs_ = region_.array<const void *>(size_t(inputs));
  input_bytes_ = region_.array<int64_t>(size_t(inputs));
  outputs_ = region_.array<void *>(size_t(outputs));
  is_new_ = region_.array<bool>(size_t(outputs));
  void *scratch = calloc(size_t(model_.threads), sizeof(Memory));
  scratch_ = static_cast<Memory *>(scratch);
  for (int32_t i = 0; scratch_ && i < model_.threads; ++i) new (&scratch_[i]) Memory();
  known_arenas_ = static_cast<Memory *>(calloc(size_t(computed) + 1, sizeof(Memory)));
  for (int32_t i = 0; known_arenas_ && i < computed; ++i) new (&known_arenas_[n_known_arenas_++]) Memory();
  return buffers_ && known_offsets_ && known_arenas_ && symbols_ && planned_symbols_ && dims_ && output_dims_ && sizes_ &&
         offsets_ && order_ && inputs_ && input_bytes_ && outputs_ && is_new_ && scratch_;
}

Call *Call::take_free(mycc_model &model) {
  Call *call = model.free_calls;
  if (!call) return nullptr;
  model.free_calls = call->next_;
  model.n_free_calls -= 1;
  model.free_bytes -= call->held_bytes();
  return call;
}

Call *Call::acquire(mycc_model &model) {
  if (check_pages(model.file) != MYCC_OK) return nullptr;
  {
    Locked locked(model.lock);
    if (Call *call = take_free(model)) return call;
  }
  void *memory = nullptr;
  if (posix_memalign(&memory, 64, sizeof(Call)) != 0) {
    out_of_memory(sizeof(Call));
    return nullptr;
  }
  Call *call = new (memory) Call(model);
  if (call->allocate()) return call;
  destroy(call);
  out_of_memory(4096);
  return nullptr;
}

void Call::release(Call *call) {
  mycc_model &model = call->model_;
  call->trim();
  call->drop_state();
  {
    Locked locked(model.lock);
    size_t bytes = call->held_bytes();
    bool keep = model.n_free_calls == 0 ||
                (model.n_free_calls < available_threads() && model.free_bytes + bytes <= kMaxFreeBytes);
    if (keep) {
      call->next_ = model.free_calls;
      model.free_calls = call;
      model.n_free_calls += 1;
      model.free_bytes += bytes;
      return;
    }
  }
  destroy(call);
}

void Call::destroy(Call *call) {
  for (int32_t i = 0; call->scratch_ && i < call->model_.threads; ++i) call->scratch_[i].~Memory();
  free(call->scratch_);
  for (int32_t i = 0; i < call->n_known_arenas_; ++i) call->known_arenas_[i].~Memory();
  free(call->known_arenas_);
  call->~Call();
  free(call);
}

size_t Call::held_bytes() const {
  size_t bytes = arena_.capacity() + dense_.capacity();
  for (int32_t i = 0; i < model_.threads; ++i) bytes += scratch_[i].capacity();
  for (int32_t i = 0; i < n_known_arenas_; ++i) bytes += known_arenas_[i].capacity();
  return bytes;
}

// A large arena is kept as long as calls need it.
void Call::trim() {
  bool oversized = arena_.capacity() > kLargeArena && size_t(arena_bytes_) < arena_.capacity() / 4;
  oversized_calls_ = oversized ? oversized_calls_ + 1 : 0;
  if (oversized_calls_ >= kOversizedCalls) arena_.release();
  if (dense_.capacity() > kLargeArena) dense_.release();
  for (int32_t i = 0; i < n_known_arenas_; ++i)
    if (known_arenas_[i].capacity() > kLargeArena) known_arenas_[i].release();
}

// ---- memory

int Call::place(Entry &entry) {
  const mycc_entry &code = *entry.code;
  if (is_older())
    if (int status = check_older_sizes(entry)) return status;
  if (code.n_buffers == 0 || code.static_offsets) {
    planned_ = nullptr;  // arena_bytes_ is of this entry point now
    arena_bytes_ = code.n_buffers ? code.static_arena_size : 0;
    live_bytes_ = 0;
    placed_ = code.n_buffers ? code.static_offsets : offsets_;
    return MYCC_OK;
  }
  placed_ = offsets_;
  if (planned_ == &entry && same(symbols_, planned_symbols_, code.n_symbols)) return MYCC_OK;
  if (!find_plan(entry)) {
    planned_ = nullptr;
    if (int status = make_plan(entry)) return status;
    keep_plan(entry);
  }
  planned_ = &entry;
  memcpy(planned_symbols_, symbols_, size_t(code.n_symbols) * sizeof(int64_t));
  return MYCC_OK;
}

int Call::make_plan(const Entry &entry) {
  if (int status = find_known_sizes(entry, 0)) return status;
  return plan_sizes(entry, 0, offsets_, &arena_bytes_, &live_bytes_);
}

int Call::plan_sizes(const Entry &entry, int32_t known, int64_t *offsets, int64_t *arena, int64_t *live) {
  const mycc_entry &code = *entry.code;
  PlanOrder &kept = entry.orders[known], order;
  const size_t bytes = size_t(code.n_buffers) * sizeof(int32_t);
  {
    Locked locked(model_.lock);
    order = {order_, kept.arena, kept.live, kept.searches};
    memcpy(order_, kept.order, bytes);
  }
  const int32_t searches = order.searches;
  if (!plan_memory(code.buffers, sizes_, code.n_buffers, code.n_kernels, offsets, arena, live, order))
    return out_of_memory(size_t(code.n_buffers) * 64);
  if (order.searches == searches) return MYCC_OK;
  Locked locked(model_.lock);
  memcpy(kept.order, order_, bytes);
  kept.arena = order.arena, kept.live = order.live, kept.searches = order.searches;
  return MYCC_OK;
}

int Call::sum_live(const Entry &entry) {
  if (!entry.code->n_buffers || !entry.code->static_offsets) return MYCC_OK;
  int status = make_plan(entry);
  arena_bytes_ = entry.code->static_arena_size;
  return status;
}

bool Call::find_plan(Entry &entry) {
  const mycc_entry &code = *entry.code;
  Locked locked(model_.lock);
  for (Plan &plan : entry.plans) {
    if (!same(plan.symbols, symbols_, code.n_symbols)) continue;
    memcpy(offsets_, plan.offsets, size_t(code.n_buffers) * sizeof(int64_t));
    arena_bytes_ = plan.arena, live_bytes_ = plan.live;
    plan.last_use = ++entry.plan_uses;
    return true;
  }
  return false;
}

// In place of the one that was not used for the longest time, once there are enough. Where memory is short, the next
// call plans again.
void Call::keep_plan(Entry &entry) {
  const mycc_entry &code = *entry.code;
  Locked locked(model_.lock);
  Plan *kept = nullptr;
  if (entry.plans.size() < kMaxPlans) {
    Plan fresh{};
    fresh.symbols = model_.region.array<int64_t>(size_t(code.n_symbols));
    fresh.offsets = model_.region.array<int64_t>(size_t(code.n_buffers));
    if (!fresh.symbols || !fresh.offsets || !entry.plans.push(fresh)) return;
    kept = &entry.plans[entry.plans.size() - 1];
  } else {
    for (Plan &plan : entry.plans)
      if (!kept || plan.last_use < kept->last_use) kept = &plan;
  }
  memcpy(kept->symbols, symbols_, size_t(code.n_symbols) * sizeof(int64_t));
  memcpy(kept->offsets, offsets_, size_t(code.n_buffers) * sizeof(int64_t));
  kept->arena = arena_bytes_, kept->live = live_bytes_;
  kept->last_use = ++entry.plan_uses;
}

int Call::reserve_arena() { return arena_.reserve(size_t(arena_bytes_)) ? MYCC_OK : out_of_memory(size_t(arena_bytes_)); }

// ---- state

int Call::use_state(const Entry &entry, mycc_state *given) {
  if (!entry.info->n_state && !given) return MYCC_OK;
  if (given && given->model != &model_) return fail(MYCC_ERROR_INPUT, "the state belongs to another model");
  mycc_state *state = state_for(model_, given);
  if (!state) return MYCC_ERROR_RUN;
  if (int status = enter_state(*state, entry.info->n_changes > 0)) return status;
  state_ = state;
  return MYCC_OK;
}

void Call::drop_state() {
  if (!state_) return;
  leave_state(*state_);
  release_state(state_);
  state_ = nullptr;
}

// ---- running

int Call::execute(const Entry &entry) {
  CallInFlight flight(model_.threads);
  flight_ = &flight;
  failed_.store(0, std::memory_order_relaxed);
  running_ = &entry;
  const bool whole = run_program(entry);
  flight_ = nullptr;
  if (!whole) return fail(MYCC_ERROR_RUN, "%s: the call was interrupted", entry.info->name);
  if (failed_.load(std::memory_order_acquire)) return fail(failure_code_, "%s", failure_);
  return MYCC_OK;
}

// False: it was interrupted. Only loops are left then, which no thread is in: programs have no destructors.
bool Call::run_program(const Entry &entry) {
  mycc_call call{&host_,   model_.weights, arena_.reserve(0), placed_,  inputs_, outputs_,
                 symbols_, nullptr,        nullptr,           buffers_, seed_,   state_ ? state_->tensors : nullptr,
                 0};
  if (interrupted_) {
    stopped_.store(false, std::memory_order_relaxed);
    asked_ = ticks();
    if (_setjmp(leave_)) return false;
  }
  entry.code->run(&call);
  return true;
}

int Call::profile(const Entry &entry, int32_t runs, int64_t *nanoseconds) {
  int status = execute(entry);  // warms the caches, and its time does not count
  n_kernels_ = entry.code->n_kernels;
  for (int32_t i = 0; i < n_kernels_; ++i) nanoseconds[i] = 0;
  kernel_times_ = nanoseconds;
  host_.trace = host_trace;
  for (int32_t run = 0; run < runs && status == MYCC_OK; ++run) {
    last_kernel_ = -1;
    status = execute(entry);
  }
  host_.trace = nullptr;
  kernel_times_ = nullptr;
  for (int32_t i = 0; i < n_kernels_; ++i) nanoseconds[i] /= runs;
  return status;
}

void Call::host_parallel_for(void *ctx, int64_t n, int64_t grain, mycc_body body, void *argument) {
  Call *call = static_cast<Call *>(ctx);
  if (call->interrupted_) return call->watched_loop(n, grain, body, argument);
  call->flight_->parallel_for(n, grain, body, argument);
}

struct WatchedLoop {
  Call *call;
  mycc_body body;
  void *argument;
};

// Short loops are asked about before they run, long ones in each piece too.
void Call::watched_loop(int64_t n, int64_t grain, mycc_body body, void *argument) {
  if (ticks() - asked_ > kAskedAfter) ask();
  if (n / kFewPieces < grain) {
    if (!stopped_.load(std::memory_order_relaxed)) flight_->parallel_for(n, grain, body, argument);
  } else {
    WatchedLoop loop{this, body, argument};
    flight_->parallel_for(n, grain, watched_body, &loop);
  }
  if (stopped_.load(std::memory_order_relaxed)) _longjmp(leave_, 1);
}

void Call::watched_body(void *argument, int64_t begin, int64_t end, int32_t worker) {
  const WatchedLoop *loop = static_cast<const WatchedLoop *>(argument);
  Call *call = loop->call;
  if (call->stopped_.load(std::memory_order_relaxed)) return;
  loop->body(loop->argument, begin, end, worker);
  if (worker == 0 && ticks() - call->asked_ > kAskedAfter) call->ask();
}

void Call::ask() {
  asked_ = ticks();
  if (interrupted_(interrupt_ctx_)) stopped_.store(true, std::memory_order_relaxed);
}

void *Call::host_scratch(void *ctx, int32_t worker, size_t bytes) {
  uint8_t *memory = static_cast<Call *>(ctx)->scratch_[worker].reserve(bytes);
  if (!memory) {
    Line line;
    line.add("out of memory: %zu more bytes are needed", bytes);
    host_fail(ctx, MYCC_ERROR_RUN, line.text());
  }
  return memory;
}

// The first failure wins; it is read when all threads of the call are done.
void Call::host_fail(void *ctx, int32_t code, const char *text) {
  Call *call = static_cast<Call *>(ctx);
  int32_t none = 0;
  if (!call->failed_.compare_exchange_strong(none, 1)) return;
  call->failure_code_ = code == MYCC_OK ? int32_t(MYCC_ERROR_RUN) : code;
  snprintf(call->failure_, sizeof call->failure_, "%s", text ? text : "the run failed");
}

void Call::host_trace(void *ctx, int32_t kernel) {
  Call *call = static_cast<Call *>(ctx);
  int64_t now = now_nanoseconds();
  if (call->last_kernel_ >= 0) call->kernel_times_[call->last_kernel_] += now - call->last_time_;
  call->last_kernel_ = kernel >= 0 && kernel < call->n_kernels_ ? kernel : -1;
  call->last_time_ = now_nanoseconds();
}

}  // namespace mycc::runtime
