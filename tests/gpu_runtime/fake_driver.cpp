// fake_driver.cpp: a libcuda.so.1 for machines without a GPU. Device memory is host memory; kernels are the C++ functions
// below, found by name. It is as lazy as the rules of CUDA allow: work waits in its stream until somebody synchronises,
// and then runs no earlier than the streams and events that were named make it. So whatever is not ordered shows as wrong
// results. It also counts calls, checks pointers, and fails on demand.
//
// An image is the text "fake sm_90 <kernel> <kernel> ...".
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "src/gpu/cuda_types.h"

using namespace mycc::cuda;
using std::string;
using std::vector;

namespace {

constexpr Result kInvalidContext = Result(201), kInvalidHandle = Result(400), kIllegalAddress = Result(700), kNotFound = Result(500);

struct Op {
  uint64_t sequence;
  std::function<void()> work;
};
struct FakeStream {
  uint64_t id;
  bool blocking;
  std::deque<Op> queue;
  uint64_t done = 0;  // the last sequence number that has run
  bool alive = true;
};
struct FakeEvent {
  FakeStream *stream = nullptr;
  uint64_t sequence = 0;
  double time = 0;
};
struct Block {
  size_t size;
  bool pinned;
  bool freed;
};

// State. A test sets what is here before the runtime opens the driver.
std::recursive_mutex guard;
vector<int> chips = {90};  // 10 * major + minor
int driver_version = 12080;
size_t memory_limit = size_t(1) << 30, memory_used = 0;
bool capturing = false;
Result sticky = kSuccess;
std::map<string, uint64_t> counts;
std::map<string, std::pair<int, int>> failures;  // symbol -> calls that still work, code
vector<string> log_lines;
std::map<uintptr_t, Block> blocks;
std::set<FakeStream *> streams;
FakeStream legacy{1, true, {}, 0, true};
uint64_t sequence = 0, next_stream = 10;
double clock_ms = 0;
thread_local Context current = nullptr;
const Context contexts[4] = {Context(0x1000), Context(0x2000), Context(0x3000), Context(0x4000)};

Result enter(const char *symbol, bool needs_context = true) {
  counts[symbol] += 1;
  auto found = failures.find(symbol);
  if (found != failures.end() && found->second.first-- <= 0) {
    Result code = Result(found->second.second);
    failures.erase(found);
    return code;
  }
  if (needs_context && !current) return kInvalidContext;
  return sticky;
}
#define ENTER(symbol)                                   \
  std::lock_guard<std::recursive_mutex> locked(guard);  \
  if (Result entered = enter(symbol)) return entered
#define ENTER_ANYWHERE(symbol)                          \
  std::lock_guard<std::recursive_mutex> locked(guard);  \
  if (Result entered = enter(symbol, false)) return entered

FakeStream *stream_of(Stream stream) {
  if (!stream || stream == Stream(1)) return &legacy;
  return reinterpret_cast<FakeStream *>(stream);
}

// Runs a stream's work up to a sequence number, and before each piece what it has to wait for.
void run_until(FakeStream *stream, uint64_t last) {
  while (!stream->queue.empty() && stream->queue.front().sequence <= last) {
    Op op = stream->queue.front();
    stream->queue.pop_front();
    if (stream == &legacy) {
      for (FakeStream *other : streams)
        if (other->blocking) run_until(other, op.sequence);
    } else if (stream->blocking) {
      run_until(&legacy, op.sequence);
    }
    op.work();
    stream->done = op.sequence;
  }
}
void run_all() {
  run_until(&legacy, UINT64_MAX);
  for (FakeStream *stream : streams) run_until(stream, UINT64_MAX);
}
void enqueue(FakeStream *stream, std::function<void()> work) { stream->queue.push_back({++sequence, std::move(work)}); }

uintptr_t make_block(size_t size, bool pinned) {
  void *memory = aligned_alloc(512, (size + 511) / 512 * 512);
  memset(memory, 0xFB, (size + 511) / 512 * 512);  // garbage that is no zero and no number
  blocks[uintptr_t(memory)] = {size, pinned, false};
  return uintptr_t(memory);
}
// The block that [address, address + size) lies in; NULL: it is no living memory of ours.
Block *block_of(uintptr_t address, size_t size) {
  auto found = blocks.upper_bound(address);
  if (found == blocks.begin()) return nullptr;
  --found;
  bool inside = address + size <= found->first + found->second.size;
  return inside && !found->second.freed ? &found->second : nullptr;
}
bool touch(const void *address, size_t size) {
  if (size == 0 || block_of(uintptr_t(address), size)) return true;
  std::ostringstream text;
  text << "touched memory that is not there: " << size << " bytes at " << address;
  log_lines.push_back(text.str());
  sticky = kIllegalAddress;
  return false;
}
Result free_block(Address address) {
  auto found = blocks.find(uintptr_t(address));
  if (found == blocks.end() || found->second.freed) return kInvalidValue;
  memset(reinterpret_cast<void *>(address), 0xFD, found->second.size);  // what reads it later reads garbage
  found->second.freed = true;
  if (!found->second.pinned) memory_used -= found->second.size;
  return kSuccess;
}

#include "fake_kernels.h"

struct FakeFunction {
  string name;
  const FakeKernel *kernel;
  int dynamic_shared = 48 << 10;
};
struct FakeModule {
  std::map<string, FakeFunction> functions;
};
struct Node {
  FunctionHandle *function = nullptr;
  unsigned grid[3], block[3], shared;
  Values values;
  FakeEvent *event = nullptr;
};
struct FakeGraph {
  std::deque<Node> nodes;  // the nodes' addresses are their handles
  vector<std::pair<Node *, Node *>> edges;
};
struct FakeExec {
  vector<const Node *> order;
  std::map<const Node *, Node> nodes;
};

Values capture(const FakeFunction *function, void **params) {
  Values values;
  for (char c : function->kernel->sizes + "pp") {
    size_t size = c == 't' ? 128 : c == 'i' ? 4 : 8;
    const uint8_t *from = static_cast<const uint8_t *>(*params++);
    values.bytes.emplace_back(from, from + size);
  }
  return values;
}

Result check_launch(const FakeFunction *function, const unsigned *grid, const unsigned *block, unsigned shared) {
  if (!grid[0] || !grid[1] || !grid[2] || grid[1] > 65535 || grid[2] > 65535 || !block[0] || block[0] > 1024) return kInvalidValue;
  return int(shared) > function->dynamic_shared ? kInvalidValue : kSuccess;
}

void run_node(const Node &node) {
  if (node.event) {
    node.event->time = clock_ms += 0.001;  // an event takes time of its own
    return;
  }
  const FakeFunction *function = reinterpret_cast<const FakeFunction *>(node.function);
  clock_ms += 0.002;
  if (sticky == kSuccess) function->kernel->body({node.grid, node.block, node.shared, node.values});
}

}  // namespace

extern "C" {

// ---- for the tests

void fake_set_chips(const int *values, int n) { chips.assign(values, values + n); }
void fake_set_version(int version) { driver_version = version; }
void fake_set_memory(size_t bytes) { memory_limit = bytes; }
void fake_set_capturing(int on) { capturing = on; }
void fake_fail(const char *symbol, int after, int code) { failures[symbol] = {after, code}; }
uint64_t fake_count(const char *symbol) { return counts[symbol]; }
size_t fake_memory_used() { return memory_used; }
uint64_t fake_pending() {
  uint64_t total = legacy.queue.size();
  for (FakeStream *stream : streams) total += stream->queue.size();
  return total;
}
const char *fake_log() {
  static string text;
  text.clear();
  for (const string &line : log_lines) text += line + "\n";
  return text.c_str();
}

// ---- the driver

Result cuInit(unsigned) {
  ENTER_ANYWHERE("cuInit");
  return chips.empty() ? kNoDevice : kSuccess;
}
Result cuDriverGetVersion(int *version) {
  *version = driver_version;
  return kSuccess;
}
Result cuGetErrorName(Result code, const char **name) {
  static const std::map<int, const char *> names = {{1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {100, "CUDA_ERROR_NO_DEVICE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"}, {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {500, "CUDA_ERROR_NOT_FOUND"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {999, "CUDA_ERROR_UNKNOWN"}};
  auto found = names.find(code);
  *name = found == names.end() ? "CUDA_ERROR_OTHER" : found->second;
  return kSuccess;
}
Result cuGetErrorString(Result, const char **text) {
  *text = "as the fake driver says";
  return kSuccess;
}
Result cuDeviceGetCount(int *count) {
  *count = int(chips.size());
  return kSuccess;
}
Result cuDeviceGet(Device *device, int i) {
  *device = i;
  return kSuccess;
}
Result cuDeviceGetName(char *name, int size, Device device) {
  strncpy(name, chips[size_t(device)] == 90 ? "NVIDIA Fake 90" : "NVIDIA Fake", size_t(size));
  return kSuccess;
}
Result cuDeviceTotalMem_v2(size_t *bytes, Device) {
  *bytes = memory_limit;
  return kSuccess;
}
Result cuDeviceGetAttribute(int *value, DeviceAttribute which, Device device) {
  const int chip = chips[size_t(device)];
  switch (which) {
    case kMajor: *value = chip / 10; break;
    case kMinor: *value = chip % 10; break;
    case kMultiprocessors: *value = 4; break;
    case kThreadsOfMultiprocessor: *value = 2048; break;
    case kL2Bytes: *value = 1 << 20; break;
    case kSharedPerBlock: *value = 200 << 10; break;
    case kMemoryPools: *value = chip >= 80; break;
  }
  return kSuccess;
}
Result cuDevicePrimaryCtxRetain(Context *context, Device device) {
  ENTER_ANYWHERE("cuDevicePrimaryCtxRetain");
  *context = contexts[device];
  return kSuccess;
}
Result cuCtxGetCurrent(Context *context) {
  *context = current;
  return kSuccess;
}
static thread_local vector<Context> stack;
Result cuCtxPushCurrent_v2(Context context) {
  std::lock_guard<std::recursive_mutex> locked(guard);
  counts["cuCtxPushCurrent_v2"] += 1;
  stack.push_back(current);
  current = context;
  return kSuccess;
}
Result cuCtxPopCurrent_v2(Context *context) {
  *context = current;
  current = stack.back();
  stack.pop_back();
  return kSuccess;
}
Result cuMemGetInfo_v2(size_t *left, size_t *total) {
  *left = memory_limit - memory_used, *total = memory_limit;
  return kSuccess;
}
Result cuMemAlloc_v2(Address *address, size_t size) {
  ENTER("cuMemAlloc_v2");
  if (memory_used + size > memory_limit) return kOutOfMemory;
  memory_used += size;
  *address = make_block(size, false);
  return kSuccess;
}
Result cuMemFree_v2(Address address) {
  ENTER("cuMemFree_v2");
  run_all();
  return free_block(address);
}
Result cuMemHostAlloc(void **data, size_t size, unsigned) {
  ENTER("cuMemHostAlloc");
  *data = reinterpret_cast<void *>(make_block(size, true));
  return kSuccess;
}
Result cuMemFreeHost(void *data) {
  ENTER("cuMemFreeHost");
  run_all();
  return free_block(Address(data));
}
Result cuMemHostGetDevicePointer_v2(Address *address, void *data, unsigned) {
  *address = Address(data);
  return kSuccess;
}
Result cuMemPoolCreate(Pool *pool, const PoolProperties *properties) {
  ENTER("cuMemPoolCreate");
  if (properties->allocation_type != 1 || properties->location_type != 1) return kInvalidValue;
  *pool = Pool(0x7000);
  return kSuccess;
}
Result cuMemPoolSetAttribute(Pool, int, void *) { return kSuccess; }
Result cuMemPoolTrimTo(Pool, size_t) {
  ENTER("cuMemPoolTrimTo");
  return kSuccess;
}
Result cuMemAllocFromPoolAsync(Address *address, size_t size, Pool, Stream) {
  ENTER("cuMemAllocFromPoolAsync");
  if (memory_used + size > memory_limit) return kOutOfMemory;
  memory_used += size;
  *address = make_block(size, false);
  return kSuccess;
}
Result cuMemFreeAsync(Address address, Stream stream) {
  ENTER("cuMemFreeAsync");
  enqueue(stream_of(stream), [address] { free_block(address); });
  return kSuccess;
}
static bool pinned(const void *data, size_t size) {
  Block *block = block_of(uintptr_t(data), size);
  return block && block->pinned;
}
Result cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t size, Stream stream) {
  ENTER("cuMemcpyHtoDAsync_v2");
  if (pinned(from, size)) {  // read when its turn comes
    enqueue(stream_of(stream), [=] {
      if (touch(reinterpret_cast<void *>(to), size)) memcpy(reinterpret_cast<void *>(to), from, size);
    });
    return kSuccess;
  }
  vector<uint8_t> bytes(static_cast<const uint8_t *>(from), static_cast<const uint8_t *>(from) + size);
  enqueue(stream_of(stream), [to, bytes] {
    if (touch(reinterpret_cast<void *>(to), bytes.size())) memcpy(reinterpret_cast<void *>(to), bytes.data(), bytes.size());
  });
  return kSuccess;
}
Result cuMemcpyDtoHAsync_v2(void *to, Address from, size_t size, Stream stream) {
  ENTER("cuMemcpyDtoHAsync_v2");
  enqueue(stream_of(stream), [=] {
    if (touch(reinterpret_cast<void *>(from), size)) memcpy(to, reinterpret_cast<void *>(from), size);
  });
  if (!pinned(to, size)) run_until(stream_of(stream), UINT64_MAX);
  return sticky;
}
Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t size, Stream stream) {
  ENTER("cuMemcpyDtoDAsync_v2");
  enqueue(stream_of(stream), [=] {
    if (touch(reinterpret_cast<void *>(to), size) && touch(reinterpret_cast<void *>(from), size))
      memcpy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), size);
  });
  return kSuccess;
}
Result cuMemsetD8Async(Address to, unsigned char value, size_t size, Stream stream) {
  ENTER("cuMemsetD8Async");
  enqueue(stream_of(stream), [=] {
    if (touch(reinterpret_cast<void *>(to), size)) memset(reinterpret_cast<void *>(to), value, size);
  });
  return kSuccess;
}
Result cuStreamCreate(Stream *stream, unsigned flags) {
  ENTER("cuStreamCreate");
  auto *made = new FakeStream{++next_stream, !(flags & kStreamNonBlocking), {}, 0, true};
  streams.insert(made);
  *stream = reinterpret_cast<Stream>(made);
  return kSuccess;
}
Result cuStreamDestroy_v2(Stream stream) {
  ENTER("cuStreamDestroy_v2");
  stream_of(stream)->alive = false;  // its work goes on
  return kSuccess;
}
Result cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  ENTER("cuStreamWaitEvent");
  FakeEvent wanted = *reinterpret_cast<FakeEvent *>(event);
  if (!stream_of(stream)->alive) return kInvalidHandle;
  enqueue(stream_of(stream), [wanted] {
    if (wanted.stream) run_until(wanted.stream, wanted.sequence);
  });
  return kSuccess;
}
Result cuStreamSynchronize(Stream stream) {
  ENTER("cuStreamSynchronize");
  FakeStream *waited = stream_of(stream);
  enqueue(waited, [] {});
  run_until(waited, UINT64_MAX);
  return sticky;
}
Result cuStreamIsCapturing(Stream, int *status) {
  ENTER("cuStreamIsCapturing");
  *status = capturing;
  return kSuccess;
}
Result cuStreamGetId(Stream stream, unsigned long long *id) {
  ENTER("cuStreamGetId");
  if (!stream_of(stream)->alive) return kInvalidHandle;
  *id = stream_of(stream)->id;
  return kSuccess;
}
Result cuEventCreate(Event *event, unsigned) {
  ENTER("cuEventCreate");
  *event = reinterpret_cast<Event>(new FakeEvent());
  return kSuccess;
}
Result cuEventDestroy_v2(Event event) {
  ENTER("cuEventDestroy_v2");
  (void)event;  // work that waits may still name it
  return kSuccess;
}
Result cuEventRecord(Event event, Stream stream) {
  ENTER("cuEventRecord");
  FakeStream *on = stream_of(stream);
  if (!on->alive) return kInvalidHandle;
  auto *recorded = reinterpret_cast<FakeEvent *>(event);
  enqueue(on, [recorded] { recorded->time = clock_ms; });
  recorded->stream = on, recorded->sequence = sequence;
  return kSuccess;
}
Result cuEventQuery(Event event) {
  ENTER("cuEventQuery");
  auto *asked = reinterpret_cast<FakeEvent *>(event);
  return !asked->stream || asked->stream->done >= asked->sequence ? kSuccess : kNotReady;
}
Result cuEventSynchronize(Event event) {
  ENTER("cuEventSynchronize");
  auto *waited = reinterpret_cast<FakeEvent *>(event);
  if (waited->stream) run_until(waited->stream, waited->sequence);
  return sticky;
}
Result cuEventElapsedTime(float *milliseconds, Event a, Event b) {
  ENTER("cuEventElapsedTime");
  *milliseconds = float(reinterpret_cast<FakeEvent *>(b)->time - reinterpret_cast<FakeEvent *>(a)->time);
  return kSuccess;
}
Result cuModuleLoadData(Module *module, const void *image) {
  ENTER("cuModuleLoadData");
  std::istringstream text(static_cast<const char *>(image));
  string magic, chip, name;
  text >> magic >> chip;
  if (magic != "fake") return Result(200);
  int device = 0;
  while (contexts[device] != current) ++device;
  if (chip != "sm_" + std::to_string(chips[size_t(device)]) && chip != "ptx") return kNoBinary;
  auto *made = new FakeModule();
  while (text >> name)
    if (kernels.count(name)) made->functions[name] = {name, &kernels.at(name)};
  *module = reinterpret_cast<Module>(made);
  return kSuccess;
}
Result cuModuleUnload(Module module) {
  ENTER("cuModuleUnload");
  run_all();
  delete reinterpret_cast<FakeModule *>(module);
  return kSuccess;
}
Result cuModuleGetFunction(Function *function, Module module, const char *name) {
  ENTER("cuModuleGetFunction");
  auto &functions = reinterpret_cast<FakeModule *>(module)->functions;
  auto found = functions.find(name);
  if (found == functions.end()) return kNotFound;
  *function = reinterpret_cast<Function>(&found->second);
  return kSuccess;
}
Result cuFuncSetAttribute(Function function, int attribute, int value) {
  ENTER("cuFuncSetAttribute");
  if (attribute == kFunctionDynamicShared) reinterpret_cast<FakeFunction *>(function)->dynamic_shared = value;
  return kSuccess;
}
Result cuFuncSetCacheConfig(Function, int) { return kSuccess; }
Result cuLaunchKernelEx(const LaunchConfig *config, Function function, void **params, void **) {
  ENTER("cuLaunchKernelEx");
  for (unsigned i = 0; i < config->n_attributes; ++i)
    if (config->attributes[i].id == kAttributeDependent && config->attributes[i].value.number) counts["dependent launches"] += 1;
  auto *kernel = reinterpret_cast<FakeFunction *>(function);
  if (Result wrong = check_launch(kernel, config->grid, config->block, config->shared)) return wrong;
  if (!stream_of(config->stream)->alive) return kInvalidHandle;
  Node node;
  node.function = function;
  memcpy(node.grid, config->grid, sizeof node.grid);
  memcpy(node.block, config->block, sizeof node.block);
  node.shared = config->shared;
  node.values = capture(kernel, params);
  enqueue(stream_of(config->stream), [node] { run_node(node); });
  return kSuccess;
}
Result cuGraphCreate(Graph *graph, unsigned) {
  ENTER("cuGraphCreate");
  *graph = reinterpret_cast<Graph>(new FakeGraph());
  return kSuccess;
}
Result cuGraphDestroy(Graph graph) {
  ENTER("cuGraphDestroy");
  delete reinterpret_cast<FakeGraph *>(graph);
  return kSuccess;
}
static Result fill(Node *node, const KernelNode *params) {
  auto *kernel = reinterpret_cast<FakeFunction *>(params->function);
  if (Result wrong = check_launch(kernel, params->grid, params->block, params->shared)) return wrong;
  node->function = params->function;
  memcpy(node->grid, params->grid, sizeof node->grid);
  memcpy(node->block, params->block, sizeof node->block);
  node->shared = params->shared;
  node->values = capture(kernel, params->params);
  return kSuccess;
}
static void connect(FakeGraph *graph, const GraphNode *from, size_t count, Node *to) {
  for (size_t i = 0; i < count; ++i) graph->edges.push_back({reinterpret_cast<Node *>(from[i]), to});
}
Result cuGraphAddKernelNode_v2(GraphNode *handle, Graph graph, const GraphNode *from, size_t count, const KernelNode *params) {
  ENTER("cuGraphAddKernelNode_v2");
  auto *whole = reinterpret_cast<FakeGraph *>(graph);
  whole->nodes.emplace_back();
  connect(whole, from, count, &whole->nodes.back());
  *handle = reinterpret_cast<GraphNode>(&whole->nodes.back());
  return fill(&whole->nodes.back(), params);
}
Result cuGraphAddEventRecordNode(GraphNode *handle, Graph graph, const GraphNode *from, size_t count, Event event) {
  ENTER("cuGraphAddEventRecordNode");
  auto *whole = reinterpret_cast<FakeGraph *>(graph);
  whole->nodes.emplace_back();
  whole->nodes.back().event = reinterpret_cast<FakeEvent *>(event);
  connect(whole, from, count, &whole->nodes.back());
  *handle = reinterpret_cast<GraphNode>(&whole->nodes.back());
  return kSuccess;
}
Result cuGraphAddDependencies(Graph graph, const GraphNode *from, const GraphNode *to, size_t count) {
  ENTER("cuGraphAddDependencies");
  for (size_t i = 0; i < count; ++i) connect(reinterpret_cast<FakeGraph *>(graph), from + i, 1, reinterpret_cast<Node *>(to[i]));
  return kSuccess;
}
Result cuGraphAddDependencies_v2(Graph graph, const GraphNode *from, const GraphNode *to, const GraphEdge *edges, size_t count) {
  ENTER("cuGraphAddDependencies_v2");
  for (size_t i = 0; i < count; ++i) {
    if (edges[i].type != kEdgeDependent || edges[i].from_port != kPortDependent || edges[i].to_port) return kInvalidValue;
    counts["dependent edges"] += 1;
    connect(reinterpret_cast<FakeGraph *>(graph), from + i, 1, reinterpret_cast<Node *>(to[i]));
  }
  return kSuccess;
}
// Nodes that nothing orders run in reverse: a missing edge shows.
Result cuGraphInstantiateWithFlags(GraphExec *exec, Graph graph, unsigned long long) {
  ENTER("cuGraphInstantiateWithFlags");
  auto *whole = reinterpret_cast<FakeGraph *>(graph);
  auto *made = new FakeExec();
  std::set<const Node *> placed;
  while (placed.size() < whole->nodes.size()) {
    for (size_t i = whole->nodes.size(); i-- > 0;) {
      const Node *node = &whole->nodes[i];
      bool ready = !placed.count(node);
      for (auto &edge : whole->edges) ready = ready && (edge.second != node || placed.count(edge.first));
      if (!ready) continue;
      placed.insert(node);
      made->order.push_back(node);
      made->nodes[node] = *node;
      break;
    }
  }
  *exec = reinterpret_cast<GraphExec>(made);
  return kSuccess;
}
Result cuGraphExecKernelNodeSetParams_v2(GraphExec exec, GraphNode node, const KernelNode *params) {
  ENTER("cuGraphExecKernelNodeSetParams_v2");
  auto &nodes = reinterpret_cast<FakeExec *>(exec)->nodes;
  auto found = nodes.find(reinterpret_cast<Node *>(node));
  return found == nodes.end() ? kInvalidHandle : fill(&found->second, params);
}
Result cuGraphLaunch(GraphExec exec, Stream stream) {
  ENTER("cuGraphLaunch");
  auto *whole = reinterpret_cast<FakeExec *>(exec);
  vector<Node> nodes;
  for (const Node *node : whole->order) nodes.push_back(whole->nodes.at(node));
  enqueue(stream_of(stream), [nodes] {
    for (const Node &node : nodes) run_node(node);
  });
  return kSuccess;
}
Result cuGraphExecDestroy(GraphExec exec) {
  ENTER("cuGraphExecDestroy");
  delete reinterpret_cast<FakeExec *>(exec);
  return kSuccess;
}
Result cuTensorMapEncodeTiled(void *map, int element, uint32_t rank, void *address, const uint64_t *sizes, const uint64_t *strides,
                              const uint32_t *, const uint32_t *, int, int, int, int) {
  ENTER_ANYWHERE("cuTensorMapEncodeTiled");
  if (rank != 2 || element != 7 || uintptr_t(map) % 64 || uintptr_t(address) % 16) return kInvalidValue;
  const uint64_t words[] = {uint64_t(address), sizes[0], sizes[1], strides[0]};
  memcpy(map, words, sizeof words);
  return kSuccess;
}

}  // extern "C"
