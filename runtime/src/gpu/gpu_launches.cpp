#include "gpu_launches.h"

#include <string.h>

namespace mycc::runtime {

namespace {

constexpr int64_t kMaxGrid[3] = {0x7fffffff, 65535, 65535};
constexpr size_t kLine = 64;

size_t aligned(size_t offset, size_t alignment) { return (offset + alignment - 1) / alignment * alignment; }

bool same_map(const mycc_tensor_map &a, const mycc_tensor_map &b) {
  if (a.address != b.address || a.element != b.element || a.swizzle != b.swizzle || a.rank != b.rank) return false;
  for (int32_t d = 0; d < a.rank; ++d)
    if (a.box[d] != b.box[d] || a.sizes[d] != b.sizes[d] || (d + 1 < a.rank && a.strides[d] != b.strides[d]))
      return false;
  return true;
}

}  // namespace

GpuLaunches::~GpuLaunches() { drop_graph(); }

void GpuLaunches::drop_graph() {
  if (gpu_forked()) return;
  if (exec_) model_.api->exec_destroy(exec_);
  if (graph_) model_.api->graph_destroy(graph_);
  exec_ = nullptr, graph_ = nullptr;
}

// ---- recording

void GpuLaunches::begin() { position_ = map_position_ = 0; }

void GpuLaunches::clear() {
  launches_.clear(), values_.clear(), params_.clear();
  scratch_bytes_ = 0;
  recorded_ = false;
}

int GpuLaunches::add(int32_t kernel, int32_t number, int64_t x, int64_t y, int64_t z, const void *const *args) {
  const int64_t sizes[3] = {x, y, z};
  unsigned grid[3];
  for (int d = 0; d < 3; ++d) {
    if (sizes[d] <= 0) return MYCC_OK;
    grid[d] = unsigned(sizes[d]);
  }
  for (int d = 0; d < 3; ++d)
    if (sizes[d] > kMaxGrid[d])
      return fail(MYCC_ERROR_RUN, "kernel %s: these sizes need a grid of %lld x %lld x %lld blocks, which is too large",
                  model_.program->kernels[kernel].name, static_cast<long long>(x), static_cast<long long>(y),
                  static_cast<long long>(z));
  if (recorded_) return update(kernel, grid, args);
  return append(kernel, number, grid, args);
}

int GpuLaunches::append(int32_t kernel, int32_t number, const unsigned *grid, const void *const *args) {
  const GpuKernel &code = model_.kernels[kernel];
  GpuLaunch launch{kernel, number, {grid[0], grid[1], grid[2]}, values_.size(), params_.size(), 0, true};
  if (code.row->scratch_bytes > 0) {
    launch.scratch = aligned(scratch_bytes_, size_t(code.row->scratch_alignment > 1 ? code.row->scratch_alignment : 1));
    size_t bytes = size_t(code.row->scratch_bytes) * grid[0];
    if (__builtin_mul_overflow(bytes, size_t(grid[1]) * grid[2], &bytes) ||
        __builtin_add_overflow(launch.scratch, bytes, &scratch_bytes_))
      return fail(MYCC_ERROR_RUN, "out of memory: kernel %s takes %s", code.row->name, kTooManyBytes);
  }
  const size_t end = values_.size() + code.bytes;
  bool room = values_.reserve(aligned(end, 4096)) && launches_.push(launch);
  for (uint32_t i = 0; room && i < code.bytes; ++i) room = values_.push(0);
  for (int32_t i = 0; room && i < code.n_values; ++i) room = params_.push(nullptr);
  if (!room) return out_of_memory(end);
  for (int32_t i = 0; i < code.row->n_params; ++i)
    memcpy(&values_[launch.values + code.offsets[i]], args[i], code.row->param_bytes[i]);
  return MYCC_OK;
}

// A program asks for the same launches whenever the sizes are the same; only addresses differ.
int GpuLaunches::update(int32_t kernel, const unsigned *grid, const void *const *args) {
  if (position_ == launches_.size() || launches_[position_].kernel != kernel ||
      memcmp(launches_[position_].grid, grid, sizeof launches_[position_].grid) != 0)
    return fail(MYCC_ERROR_RUN, "kernel %s: the launches differ from those of an earlier call with the same sizes",
                model_.program->kernels[kernel].name);
  GpuLaunch &launch = launches_[position_++];
  const GpuKernel &code = model_.kernels[kernel];
  for (int32_t i = 0; i < code.row->n_params; ++i)
    if (set_value(launch.values + code.offsets[i], args[i], code.row->param_bytes[i])) launch.changed = true;
  return MYCC_OK;
}

// True: it was another value.
bool GpuLaunches::set_value(size_t at, const void *value, uint32_t bytes) {
  uint8_t *kept = &values_[at];
  if (bytes == 8) {
    uint64_t was, is;
    memcpy(&was, kept, 8), memcpy(&is, value, 8);
    if (was == is) return false;
  } else if (memcmp(kept, value, bytes) == 0) {
    return false;
  }
  memcpy(kept, value, bytes);
  return true;
}

int GpuLaunches::tensor_map(void *map, const mycc_tensor_map &tensor) {
  if (map_position_ == maps_.size() && !maps_.push(GpuTensorMap{})) return out_of_memory(sizeof(GpuTensorMap));
  GpuTensorMap &known = maps_[map_position_++];
  if (known.tensor.rank == 0 || !same_map(known.tensor, tensor)) {
    const int32_t rank = tensor.rank;
    if (rank < 1 || rank > 5) return fail(MYCC_ERROR_RUN, "a tensor map has %d dimensions", rank);
    uint64_t sizes[5], strides[5];  // the driver counts from the innermost
    uint32_t box[5], steps[5];
    for (int32_t d = 0; d < rank; ++d) {
      const int32_t from = rank - 1 - d;
      sizes[d] = uint64_t(tensor.sizes[from]), box[d] = uint32_t(tensor.box[from]), steps[d] = 1;
      if (d > 0) strides[d - 1] = uint64_t(tensor.strides[from]);
    }
    constexpr int kNoInterleave = 0, kPromote128 = 2, kZeros = 0;
    cuda::Result result =
        model_.api->encode_tiled(map, tensor.element, uint32_t(rank), const_cast<void *>(tensor.address), sizes,
                                 strides, box, steps, kNoInterleave, tensor.swizzle, kPromote128, kZeros);
    if (result != cuda::kSuccess) return gpu_fail(MYCC_ERROR_RUN, result, "a tensor map of %d dimensions", rank);
    known.tensor = tensor;
    memcpy(known.map, map, sizeof known.map);
  } else {
    memcpy(map, known.map, sizeof known.map);
  }
  return MYCC_OK;
}

int GpuLaunches::finish(cuda::Address scratch) {
  if (recorded_ && position_ != launches_.size())
    return fail(MYCC_ERROR_RUN, "the launches are fewer than those of an earlier call with the same sizes");
  for (GpuLaunch &launch : launches_) {
    const GpuKernel &code = model_.kernels[launch.kernel];
    if (code.row->scratch_bytes > 0 && code.row->n_scratch_params > 0) {
      const cuda::Address place = scratch + launch.scratch;
      if (set_value(launch.values + code.offsets[code.row->n_params], &place, 8)) launch.changed = true;
    }
    if (recorded_) continue;
    for (int32_t i = 0; i < code.n_values; ++i)
      params_[launch.params + size_t(i)] = &values_[launch.values + code.offsets[i]];
  }
  recorded_ = true;
  return MYCC_OK;
}

// ---- one by one

// early: it may start before its predecessor ends, when it waits by itself.
cuda::Result GpuLaunches::launch_one(size_t i, cuda::Stream stream, bool early) {
  const GpuLaunch &launch = launches_[i];
  const mycc_gpu_kernel &row = model_.program->kernels[launch.kernel];
  cuda::LaunchAttribute dependent{};
  dependent.id = cuda::kAttributeDependent;
  dependent.value.number = 1;
  early = early && (row.flags & MYCC_GPU_DEPENDENT);
  const cuda::LaunchConfig config{{launch.grid[0], launch.grid[1], launch.grid[2]},
                                  {unsigned(row.threads), 1, 1},
                                  unsigned(row.shared),
                                  stream,
                                  early ? &dependent : nullptr,
                                  early ? 1u : 0u};
  return model_.api->launch(&config, model_.kernels[launch.kernel].function, &params_[launch.params], nullptr);
}

int GpuLaunches::issue(cuda::Stream stream, const mycc_entry &entry, bool wait) {
  for (size_t i = 0; i < launches_.size(); ++i) {
    cuda::Result result = launch_one(i, stream, i > 0 && !wait);  // what runs before the first may not be ours
    if (result == cuda::kSuccess && wait) result = model_.api->stream_synchronize(stream);
    if (result != cuda::kSuccess)
      return gpu_fail(MYCC_ERROR_RUN, result, "%s: kernel %d (%s)", entry.name, launches_[i].number,
                      model_.program->kernels[launches_[i].kernel].name);
  }
  return MYCC_OK;
}

int GpuLaunches::issue_timed(cuda::Stream stream, const mycc_entry &entry, int64_t *nanoseconds) {
  const cuda::Api &api = *model_.api;
  cuda::Event events[2] = {nullptr, nullptr};
  cuda::Result result = api.event_create(&events[0], cuda::kEventDefault);
  if (result == cuda::kSuccess) result = api.event_create(&events[1], cuda::kEventDefault);
  for (size_t i = 0; i < launches_.size() && result == cuda::kSuccess; ++i) {
    float milliseconds = 0;
    result = api.event_record(events[0], stream);
    if (result == cuda::kSuccess) result = launch_one(i, stream, false);
    if (result == cuda::kSuccess) result = api.event_record(events[1], stream);
    if (result == cuda::kSuccess) result = api.stream_synchronize(stream);
    if (result == cuda::kSuccess) result = api.event_elapsed(&milliseconds, events[0], events[1]);
    const int32_t number = launches_[i].number;
    if (number >= 0 && number < entry.n_kernels) nanoseconds[number] += int64_t(double(milliseconds) * 1e6);
  }
  for (cuda::Event event : events)
    if (event) api.event_destroy(event);
  return result == cuda::kSuccess ? int(MYCC_OK) : gpu_fail(MYCC_ERROR_RUN, result, "%s: profiling", entry.name);
}

// ---- as a graph

cuda::KernelNode GpuLaunches::node_of(const GpuLaunch &launch) {
  const mycc_gpu_kernel &row = model_.program->kernels[launch.kernel];
  return {model_.kernels[launch.kernel].function,
          {launch.grid[0], launch.grid[1], launch.grid[2]},
          {unsigned(row.threads), 1, 1},
          unsigned(row.shared),
          &params_[launch.params],
          nullptr,
          nullptr,
          nullptr};
}

// The edge from launch - 1. A dependent kernel waits by itself, so it may start when its predecessor says so.
cuda::Result GpuLaunches::connect(size_t launch) {
  const cuda::Api &api = *model_.api;
  const cuda::GraphNode *from = &nodes_[launch - 1], *to = &nodes_[launch];
  const bool early = model_.program->kernels[launches_[launch].kernel].flags & MYCC_GPU_DEPENDENT;
  if (!early || !api.graph_typed_edges) return api.graph_edges(graph_, from, to, 1);
  const cuda::GraphEdge edge{cuda::kPortDependent, 0, cuda::kEdgeDependent, {0, 0, 0, 0, 0}};
  return api.graph_typed_edges(graph_, from, to, &edge, 1);
}

int GpuLaunches::build_graph(const mycc_entry &entry) {
  const cuda::Api &api = *model_.api;
  drop_graph();
  if (!nodes_.reserve(launches_.size())) return out_of_memory(launches_.size() * sizeof(cuda::GraphNode));
  cuda::Result result = api.graph_create(&graph_, 0);
  for (size_t i = 0; i < launches_.size() && result == cuda::kSuccess; ++i) {
    const cuda::KernelNode node = node_of(launches_[i]);
    cuda::GraphNode added = nullptr;
    result = api.graph_kernel(&added, graph_, nullptr, 0, &node);
    if (i < nodes_.size())
      nodes_[i] = added;
    else
      nodes_.push(added);
    if (result == cuda::kSuccess && i > 0) result = connect(i);
    launches_[i].changed = false;
  }
  if (result == cuda::kSuccess) result = api.graph_instantiate(&exec_, graph_, 0);
  if (result == cuda::kSuccess) return MYCC_OK;
  drop_graph();
  return gpu_fail(MYCC_ERROR_RUN, result, "%s: the graph of its %zu launches", entry.name, launches_.size());
}

// The arguments that have changed.
int GpuLaunches::update_graph(const mycc_entry &entry) {
  for (size_t i = 0; i < launches_.size(); ++i) {
    if (!launches_[i].changed) continue;
    const cuda::KernelNode node = node_of(launches_[i]);
    cuda::Result result = model_.api->exec_set_kernel(exec_, nodes_[i], &node);
    if (result != cuda::kSuccess)
      return gpu_fail(MYCC_ERROR_RUN, result, "%s: kernel %d (%s)", entry.name, launches_[i].number,
                      model_.program->kernels[launches_[i].kernel].name);
    launches_[i].changed = false;
  }
  return MYCC_OK;
}

int GpuLaunches::issue_graph(cuda::Stream stream, const mycc_entry &entry) {
  if (int status = update_graph(entry)) return status;
  cuda::Result result = model_.api->exec_launch(exec_, stream);
  if (result == cuda::kSuccess) return MYCC_OK;
  return gpu_fail(MYCC_ERROR_RUN, result, "%s: its %zu launches as a graph", entry.name, launches_.size());
}

// ---- profile

cuda::Result GpuLaunches::build_timed(cuda::Graph graph, const Array<cuda::Event> &events) {
  const cuda::Api &api = *model_.api;
  cuda::GraphNode last = nullptr, next = nullptr;
  cuda::Result result = api.graph_event(&last, graph, nullptr, 0, events[0]);
  for (size_t i = 0; i < launches_.size() && result == cuda::kSuccess; ++i) {
    const cuda::KernelNode node = node_of(launches_[i]);
    result = api.graph_kernel(&next, graph, &last, 1, &node);
    if (result == cuda::kSuccess) result = api.graph_event(&last, graph, &next, 1, events[i + 1]);
  }
  return result;
}

cuda::Result GpuLaunches::sum_times(cuda::GraphExec exec, cuda::Stream stream, const Array<cuda::Event> &events,
                                    int32_t runs, const mycc_entry &entry, int64_t *nanoseconds) {
  const cuda::Api &api = *model_.api;
  for (int32_t run = 0; run <= runs; ++run) {  // the first one warms up
    cuda::Result result = api.exec_launch(exec, stream);
    if (result == cuda::kSuccess) result = api.stream_synchronize(stream);
    if (result != cuda::kSuccess) return result;
    for (size_t i = 0; run > 0 && i < launches_.size(); ++i) {
      float milliseconds = 0;
      result = api.event_elapsed(&milliseconds, events[i], events[i + 1]);
      if (result != cuda::kSuccess) return result;
      const int32_t number = launches_[i].number;
      if (number >= 0 && number < entry.n_kernels) nanoseconds[number] += int64_t(double(milliseconds) * 1e6);
    }
  }
  return cuda::kSuccess;
}

// Adds the time of `count` launches in a row of the graph that calls use.
cuda::Result GpuLaunches::time_row(cuda::Stream stream, const Array<cuda::Event> &events, int32_t count,
                                   double *milliseconds) {
  const cuda::Api &api = *model_.api;
  float elapsed = 0;
  cuda::Result result = api.event_record(events[0], stream);
  for (int32_t i = 0; i < count && result == cuda::kSuccess; ++i) result = api.exec_launch(exec_, stream);
  if (result == cuda::kSuccess) result = api.event_record(events[1], stream);
  if (result == cuda::kSuccess) result = api.stream_synchronize(stream);
  if (result == cuda::kSuccess) result = api.event_elapsed(&elapsed, events[0], events[1]);
  *milliseconds += double(elapsed);
  return result;
}

// All runs together. The device waits for the first graph of a row, so that one is taken off.
cuda::Result GpuLaunches::time_whole(cuda::Stream stream, const Array<cuda::Event> &events, int32_t runs,
                                     int64_t *nanoseconds) {
  constexpr int32_t kRow = 5;
  double one = 0, row = 0;
  cuda::Result result = model_.api->exec_launch(exec_, stream);
  for (int32_t run = 0; run < runs && result == cuda::kSuccess; ++run) {
    result = time_row(stream, events, 1, &one);
    if (result == cuda::kSuccess) result = time_row(stream, events, kRow, &row);
  }
  *nanoseconds = int64_t((row - one) / (kRow - 1) * 1e6);
  return result;
}

int GpuLaunches::profile(cuda::Stream stream, const mycc_entry &entry, int32_t runs, int64_t *nanoseconds) {
  const cuda::Api &api = *model_.api;
  for (int32_t i = 0; i < entry.n_kernels; ++i) nanoseconds[i] = 0;
  if (launches_.size() == 0) return MYCC_OK;
  if (int status = exec_ ? update_graph(entry) : build_graph(entry)) return status;
  Array<cuda::Event> events;
  cuda::Graph graph = nullptr;
  cuda::GraphExec exec = nullptr;
  int64_t whole = 0, sum = 0;
  cuda::Result result = events.reserve(launches_.size() + 1) ? cuda::kSuccess : cuda::kOutOfMemory;
  for (size_t i = 0; i <= launches_.size() && result == cuda::kSuccess; ++i) {
    cuda::Event event = nullptr;
    result = api.event_create(&event, cuda::kEventDefault);
    if (result == cuda::kSuccess) events.push(event);
  }
  if (result == cuda::kSuccess) result = api.graph_create(&graph, 0);
  if (result == cuda::kSuccess) result = build_timed(graph, events);
  if (result == cuda::kSuccess) result = api.graph_instantiate(&exec, graph, 0);
  if (result == cuda::kSuccess) result = sum_times(exec, stream, events, runs, entry, nanoseconds);
  if (result == cuda::kSuccess) result = time_whole(stream, events, runs, &whole);
  if (exec) api.exec_destroy(exec);
  if (graph) api.graph_destroy(graph);
  for (cuda::Event event : events) api.event_destroy(event);
  if (result != cuda::kSuccess) return gpu_fail(MYCC_ERROR_RUN, result, "%s: profiling", entry.name);
  for (int32_t i = 0; i < entry.n_kernels; ++i) sum += nanoseconds[i];
  const int64_t surplus = whole > 0 && sum > whole ? (sum - whole) / int64_t(launches_.size()) : 0;
  for (int32_t i = 0; i < entry.n_kernels; ++i) {
    const int64_t least = nanoseconds[i] / 8,
                  shorter = nanoseconds[i] - surplus;  // of a short kernel something remains
    nanoseconds[i] = (shorter > least ? shorter : least) / runs;
  }
  return MYCC_OK;
}

}  // namespace mycc::runtime
