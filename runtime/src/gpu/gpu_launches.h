// gpu_launches.h: the launches of one entry point for given sizes: recorded once, compared and updated afterwards, and
// issued one by one or as an executable graph.
#pragma once

#include "gpu_model.h"

namespace mycc::runtime {

// A launch of the list. Its values lie in the list's memory.
struct GpuLaunch {
  int32_t kernel;
  int32_t number;  // kernel of the entry point, for messages and profiles
  unsigned grid[3];
  size_t values;   // where its values begin
  size_t params;   // where its pointers to values begin
  size_t scratch;  // where its scratch begins in the call's scratch memory
  bool changed;    // its values differ from the executable graph's
};

// A tensor map that was asked for, and the answer.
struct GpuTensorMap {
  mycc_tensor_map tensor;
  uint8_t map[128];
};

// The steps of a run: begin(), then add() and tensor_map() for whatever the program asks for, then finish(). A list that
// differs from run to run is cleared in front of begin().
class GpuLaunches {
 public:
  explicit GpuLaunches(const GpuModel &model) : model_(model) {}
  ~GpuLaunches();
  GpuLaunches(const GpuLaunches &) = delete;
  GpuLaunches &operator=(const GpuLaunches &) = delete;

  void begin();
  void clear();
  int add(int32_t kernel, int32_t number, int64_t x, int64_t y, int64_t z, const void *const *args);
  int tensor_map(void *map, const mycc_tensor_map &tensor);
  // Bytes of scratch memory that all launches need together.
  size_t scratch_bytes() const { return scratch_bytes_; }
  int finish(cuda::Address scratch);

  size_t size() const { return launches_.size(); }
  // Issue all launches to a stream. `entry` names the entry point in messages. issue(): one by one; with `wait`, each
  // is waited for, so that a failure names its kernel.
  int issue(cuda::Stream stream, const mycc_entry &entry, bool wait);
  int issue_graph(cuda::Stream stream, const mycc_entry &entry);
  // One by one, each waited for; adds the nanoseconds of each kernel of the entry point.
  int issue_timed(cuda::Stream stream, const mycc_entry &entry, int64_t *nanoseconds);
  bool has_graph() const { return exec_ != nullptr; }
  int build_graph(const mycc_entry &entry);
  int update_graph(const mycc_entry &entry);

  // Nanoseconds of each kernel of the entry point, averaged over `runs` runs: events between the launches of a graph.
  // An event takes time of its own and keeps kernels from overlapping; by what the times are too long in all, against
  // the graph without events, each is made shorter.
  int profile(cuda::Stream stream, const mycc_entry &entry, int32_t runs, int64_t *nanoseconds);

 private:
  int append(int32_t kernel, int32_t number, const unsigned *grid, const void *const *args);
  int update(int32_t kernel, const unsigned *grid, const void *const *args);
  bool set_value(size_t at, const void *value, uint32_t bytes);
  void drop_graph();
  cuda::Result launch_one(size_t launch, cuda::Stream stream, bool early);
  cuda::KernelNode node_of(const GpuLaunch &launch);
  cuda::Result connect(size_t launch);
  cuda::Result build_timed(cuda::Graph graph, const Array<cuda::Event> &events);
  cuda::Result sum_times(cuda::GraphExec exec, cuda::Stream stream, const Array<cuda::Event> &events, int32_t runs,
                         const mycc_entry &entry, int64_t *nanoseconds);
  cuda::Result time_row(cuda::Stream stream, const Array<cuda::Event> &events, int32_t count, double *milliseconds);
  cuda::Result time_whole(cuda::Stream stream, const Array<cuda::Event> &events, int32_t runs, int64_t *nanoseconds);

  const GpuModel &model_;
  Array<GpuLaunch> launches_;
  Array<uint8_t> values_;
  Array<void *> params_;  // pointers to the values
  Array<GpuTensorMap> maps_;
  size_t position_ = 0, map_position_ = 0;  // of the run in progress
  size_t scratch_bytes_ = 0;
  bool recorded_ = false;  // the list stands: runs compare with it

  cuda::Graph graph_ = nullptr;
  cuda::GraphExec exec_ = nullptr;
  Array<cuda::GraphNode> nodes_;
};

}  // namespace mycc::runtime
