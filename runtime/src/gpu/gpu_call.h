// gpu_call.h: the state of one run of an entry point on a GPU: device memory, and the launches of the latest sizes. A
// model keeps a few for the next calls. A call returns while the device works; the next one on the same stream may take
// the same state at once, one on another stream waits on the device for the state's last work.
#pragma once

#include "../call/call.h"
#include "gpu_launches.h"

namespace mycc::runtime {

// The launches of an entry point for some sizes.
struct GpuShape {
  explicit GpuShape(const GpuModel &model) : launches(model) {}

  GpuShape *next = nullptr;
  const Entry *entry = nullptr;
  Region region;
  int64_t *symbols = nullptr;
  uintptr_t *addresses = nullptr;  // with which the launches were recorded or updated last
  int64_t calls = 0;
  GpuLaunches launches;
};

class GpuCall : public Call {
 public:
  // A whole call. The model's device has to be usable.
  static int run(mycc_model &model, Entry &entry, const mycc_tensor *inputs, int32_t n_inputs, mycc_tensor *outputs,
                 int32_t n_outputs, const mycc_run_options &options);
  static int profile(mycc_model &model, Entry &entry, const mycc_tensor *inputs, int32_t n_inputs, int32_t runs,
                     int64_t *nanoseconds);
  static int synchronize(mycc_model &model);
  static void destroy_all(mycc_model &model);

 private:
  explicit GpuCall(mycc_model &model);
  static GpuCall *create(mycc_model &model);
  static void destroy(GpuCall *call);
  static GpuCall *acquire(mycc_model &model, unsigned long long stream_id);
  static void release(GpuCall *call);
  static GpuCall *take(mycc_model &model, unsigned long long stream_id);
  bool prepare_state();
  bool idle() const;

  int prepare(Entry &entry, const mycc_tensor *inputs, mycc_tensor *outputs, int32_t n_outputs,
              const mycc_run_options &options);
  int place_inputs(const Entry &entry, const mycc_tensor *inputs);
  int copy_inputs(const Entry &entry, const mycc_tensor *inputs);
  int place_outputs(const Entry &entry, mycc_tensor *outputs, int32_t n_outputs, const mycc_run_options &options);
  int place_known_outputs(const Entry &entry, int32_t known);
  int place_output(const Entry &entry, int32_t i, const int64_t *dims);
  void place_in(const Entry &entry, int32_t known, const DeviceMemory &memory);
  int take_memory(const Entry &entry);
  int take_zeros(const Entry &entry);
  int list_launches(const Entry &entry);
  bool addresses_changed(const Entry &entry, uintptr_t *kept);
  GpuShape *find_shape(const Entry &entry);
  void make_room(bool graph);
  void drop_shape();
  static void drop(GpuShape **at);
  void set_program_call(const Entry &entry);
  int issue(const Entry &entry);
  // Of programs that decide by what the device has computed. gpu_pieces.cpp.
  int run_in_pieces(const Entry &entry);
  int profile_pieces(const Entry &entry, int32_t runs, int64_t *nanoseconds);
  int issue_piece();
  int fetch(const void *address, void *value, int32_t bytes);
  int define(const Entry &entry, int32_t i, int64_t value);
  int finish(const Entry &entry, mycc_tensor *outputs);
  int copy_outputs(const Entry &entry, mycc_tensor *outputs);
  cuda::Result mark_done();
  // Of what a call changes beside its outputs. gpu_in_place.cpp.
  int wait_for_state(unsigned long long stream_id);
  int mark_state(unsigned long long stream_id);
  int copy_back(const Entry &entry, const mycc_tensor *inputs);
  int settle();
  int failure_of(const Entry &entry, bool earlier);
  int earlier_failure();
  uint8_t *staging(size_t bytes);

  static void host_launch(void *ctx, int32_t kernel, int64_t x, int64_t y, int64_t z, const void *const *args);
  static void host_tensor_map(void *ctx, void *map, const mycc_tensor_map *tensor);
  static void host_number(void *ctx, int32_t kernel);
  static int32_t host_fetch(void *ctx, const void *address, void *value, int32_t bytes);
  static int32_t host_define(void *ctx, int32_t i, int64_t value);

  const GpuModel &gpu_;
  const cuda::Api &api_;
  GpuCall *next_free_ = nullptr;
  cuda::Stream own_stream_ = nullptr;  // of calls that name none
  cuda::Event done_ = nullptr;         // after the last work of this state
  unsigned long long last_stream_ = 0;
  bool in_flight_ = false;  // the last work may not be done

  cuda::Stream stream_ = nullptr;  // of this call
  bool outputs_on_host_ = false, copies_ = false;
  DeviceMemory arena_memory_, zeros_, scratch_memory_, dense_memory_;
  size_t zeros_clean_ = 0;  // bytes of zeros_ that are zero
  size_t dense_bytes_ = 0, staged_bytes_ = 0;
  size_t *input_places_ = nullptr, *output_places_ = nullptr;  // in dense_memory_; kNowhere: they are where they belong
  int64_t *output_bytes_ = nullptr;
  void *pinned_ = nullptr;  // host memory for small copies
  size_t pinned_bytes_ = 0;
  int32_t *status_ = nullptr;  // a word for each entry point, in host memory that the device writes
  cuda::Address status_address_ = 0;

  GpuShape *shapes_ = nullptr;  // the latest first
  int32_t number_ = 0;          // kernel of the entry point whose launches come
  GpuLaunches *launches_ = nullptr;  // where they go: the shape's, or the piece's

  mycc_call program_{};              // what the program is given
  GpuLaunches piece_;                // what was launched since the host knew a value last
  void *fetched_ = nullptr;          // pinned host memory for such a value
  DeviceMemory *known_memory_ = nullptr;  // one for each computed size: buffers, and outputs for the host
  int32_t n_known_memory_ = 0;
  const mycc_run_options *options_ = nullptr;
  int64_t *piece_times_ = nullptr;   // of a profile
};

// An output of the runtime in the memory of a device.
int gpu_tensor_wait(const mycc_tensor &tensor, cuda::Stream stream);
int gpu_tensor_to_device(mycc_model &model, const mycc_tensor &source, mycc_tensor *target);
int gpu_tensor_to_host(const mycc_tensor &source, void *target, size_t bytes);
int gpu_copy_speed(GpuDevice &device, size_t bytes, double *bytes_per_second);
// data, owner and device of the tensor; its shape is set. Its memory may be used in the order of the stream.
int gpu_allocate_output(GpuDevice &device, size_t bytes, cuda::Stream stream, mycc_tensor *tensor);
// The stream's work so far is what the output needs.
int gpu_output_written(const mycc_tensor &tensor, cuda::Stream stream);

}  // namespace mycc::runtime
