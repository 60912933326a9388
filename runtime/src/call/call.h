// call.h: the state of one run of an entry point. A model keeps a few for the next calls, so that a call in the steady
// state allocates nothing but its outputs.
#pragma once

#include <setjmp.h>

#include <atomic>

#include "../base/errors.h"
#include "../package/loaded.h"
#include "../cpu/pool.h"

namespace mycc::runtime {

constexpr int64_t kUnbounded = int64_t(1) << 60;  // sizes up to here and above have no bound

class Call {
 public:
  // A state from the model's free ones, or a new one; NULL: out of memory (the error is stored).
  static Call *acquire(mycc_model &model);
  static void release(Call *call);
  static Call *take_free(mycc_model &model);  // NULL: none. Not locked.
  static void destroy(Call *call);

  // Takes hold of the state that the run works on, until the call is released. Without one given it is the model's.
  int use_state(const Entry &entry, mycc_state *given);
  void drop_state();
  // Copies what the run wrote to dense copies of inputs to the inputs themselves.
  void write_back(const Entry &entry, const mycc_tensor *inputs);
  // Inputs that the run writes to are copied and keep their values.
  void spare_inputs(bool spare) { spares_inputs_ = spare; }
  mycc_model *model() { return &model_; }
  // Checks the inputs against the signature and finds the values of the size symbols. With `data`, also makes the
  // inputs dense. bind.cpp.
  int bind(const Entry &entry, const mycc_tensor *inputs, int32_t n_inputs, bool data);
  // The entry point to run for the sizes that bind() found: a variant with its own symbols' values, or the same one.
  Entry &variant(Entry &entry);
  // Checks the outputs that the caller gave and allocates the others, as far as their sizes are known before the run;
  // undoes the latter when it fails. The outputs have to stay where they are until the run ends. bind.cpp.
  int bind_outputs(const Entry &entry, mycc_tensor *outputs, int32_t n_outputs);
  // Frees those that this call allocated: it has failed.
  void free_new_outputs(mycc_tensor *outputs, int32_t n_outputs);
  // Finds the place of the arena's buffers for these sizes. call.cpp.
  int place(Entry &entry);
  int reserve_arena();
  // Finds live_bytes() where the compiler placed the buffers.
  int sum_live(const Entry &entry);
  void set_seed(uint64_t seed) { seed_ = seed; }
  // What mycc_run_options.interrupted says; NULL: nothing ends the calls of execute().
  void watch(int (*interrupted)(void *), void *ctx) { interrupted_ = interrupted, interrupt_ctx_ = ctx; }
  int execute(const Entry &entry);
  int profile(const Entry &entry, int32_t runs, int64_t *nanoseconds);

  int64_t arena_bytes() const { return arena_bytes_; }
  int64_t live_bytes() const { return live_bytes_; }

 protected:
  explicit Call(mycc_model &model);
  bool allocate();
  int read_symbols(const Entry &entry, const mycc_tensor *inputs);
  int check_dims(const Entry &entry, const mycc_tensor *inputs);
  int make_dense(const Entry &entry, const mycc_tensor *inputs);
  bool is_written(const Entry &entry, int32_t input) const;
  int check_written(const Entry &entry, const mycc_tensor *inputs);
  int check_output(const mycc_port &port, const mycc_tensor &tensor, const int64_t *dims);
  int check_overlap(const Entry &entry, const mycc_tensor *outputs, int32_t output);
  void note_new_outputs(mycc_tensor *outputs, int32_t n_outputs);
  int measure_inputs(const Entry &entry, const mycc_tensor *inputs);
  static int too_large(const mycc_port &output, const int64_t *dims);
  int bind_output(const Entry &entry, int32_t output, const int64_t *dims);
  // The outputs and buffers whose sizes are known when the first `known` computed ones are. computed.cpp.
  static int32_t known_buffer(const Entry &entry, int32_t i);
  static int32_t known_output(const Entry &entry, int32_t i);
  int bind_known_outputs(const Entry &entry, int32_t known);
  // What place(i, dims) says of each output whose sizes are known when the first `known` of the computed ones are.
  template <class Place> int each_known_output(const Entry &entry, int32_t known, const Place &place) {
    const EntryInfo &info = *entry.info;
    entry.code->output_dims(symbols_, output_dims_);
    const int64_t *dims = output_dims_;
    for (int32_t i = 0; i < info.n_outputs; dims += info.outputs[i++].ndim) {
      if (known_output(entry, i) != known) continue;
      if (int status = place(i, dims)) return status;
    }
    return MYCC_OK;
  }
  int find_known_sizes(const Entry &entry, int32_t known);
  int plan_known_buffers(const Entry &entry, int32_t known, int64_t *arena);
  void place_known_buffers(const Entry &entry, int32_t known, uint8_t *memory);
  int enter_size(const Entry &entry, int32_t i, int64_t value);  // among the symbols, if it is in its range
  int define(const Entry &entry, int32_t i, int64_t value);
  int make_plan(const Entry &entry);
  // plan_memory() of sizes_, with what earlier plans of the entry point tell.
  int plan_sizes(const Entry &entry, int32_t known, int64_t *offsets, int64_t *arena, int64_t *live);
  // Of a program of an older package. older_programs.cpp.
  bool is_older() const;
  int check_older_sizes(const Entry &entry);
  bool older_sizes_fit(const Entry &entry);
  bool find_plan(Entry &entry);
  void keep_plan(Entry &entry);
  size_t held_bytes() const;
  void trim();

  bool run_program(const Entry &entry);
  void watched_loop(int64_t n, int64_t grain, mycc_body body, void *argument);
  void ask();
  static void watched_body(void *argument, int64_t begin, int64_t end, int32_t worker);
  static void host_parallel_for(void *ctx, int64_t n, int64_t grain, mycc_body body, void *argument);
  static void *host_scratch(void *ctx, int32_t worker, size_t bytes);
  static void host_fail(void *ctx, int32_t code, const char *text);
  static void host_trace(void *ctx, int32_t kernel);
  static int32_t host_define(void *ctx, int32_t i, int64_t value);

  mycc_model &model_;
  mycc_host host_;
  CallInFlight *flight_ = nullptr;
  Region region_;
  Call *next_ = nullptr;

  // Sized for the largest entry point.
  int64_t *symbols_ = nullptr, *dims_ = nullptr, *output_dims_ = nullptr, *sizes_ = nullptr, *offsets_ = nullptr;
  const void **inputs_ = nullptr;
  int64_t *input_bytes_ = nullptr;
  void **outputs_ = nullptr;
  bool *is_new_ = nullptr;  // for each output: the caller gave no memory

  mycc_state *state_ = nullptr;
  bool spares_inputs_ = false;

  // Of sizes that the run finds.
  const Entry *running_ = nullptr;
  mycc_tensor *bound_outputs_ = nullptr;  // of the caller of the run
  uint8_t **buffers_ = nullptr;
  int64_t *known_offsets_ = nullptr;
  Memory *known_arenas_ = nullptr;  // one for each computed size
  int32_t n_known_arenas_ = 0;
  uint64_t seed_ = 0;

  const Entry *planned_ = nullptr;  // whose plan offsets_ holds, for the symbols
  int64_t *planned_symbols_ = nullptr;
  const int64_t *placed_ = nullptr;  // offsets_, or the compiler's
  int32_t *order_ = nullptr;         // of a PlanOrder
  int64_t arena_bytes_ = 0, live_bytes_ = 0;
  int32_t oversized_calls_ = 0;  // in a row, that left most of a large arena unused

  Memory arena_, dense_;
  Memory *scratch_ = nullptr;  // one of each worker

  int (*interrupted_)(void *) = nullptr;
  void *interrupt_ctx_ = nullptr;
  uint64_t asked_ = 0;                 // when it was last asked, or the call began
  std::atomic<bool> stopped_{false};   // by its answer
  jmp_buf leave_;                      // out of the program

  std::atomic<int32_t> failed_{0};
  int32_t failure_code_ = 0;
  char failure_[1024];

  int64_t *kernel_times_ = nullptr;
  int64_t last_time_ = 0;
  int32_t last_kernel_ = -1, n_kernels_ = 0;
};

}  // namespace mycc::runtime
