// fake_kernels.h: the kernels of the fake driver, as C++ functions. Part of fake_driver.cpp, inside its namespace.
struct Values {
  vector<vector<uint8_t>> bytes;
  template <class T>
  T get(size_t i) const {
    T value;
    memcpy(&value, bytes[i].data(), sizeof value);
    return value;
  }
  template <class T>
  T *pointer(size_t i) const { return reinterpret_cast<T *>(get<uint64_t>(i)); }
};
struct Run {
  const unsigned *grid, *block;
  unsigned shared;
  const Values &values;
};
struct FakeKernel {
  string sizes;  // p: pointer, i: 4 bytes, l: 8, t: a tensor map; two pointers follow for scratch
  void (*body)(const Run &);
};

// y = x * factor
void scale(const Run &run) {
  const float *x = run.values.pointer<float>(0);
  float *y = run.values.pointer<float>(1);
  int32_t n = run.values.get<int32_t>(2);
  float factor = run.values.get<float>(3);
  if (!touch(x, 4 * size_t(n)) || !touch(y, 4 * size_t(n))) return;
  for (int32_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}
// y = x + z
void add(const Run &run) {
  const float *x = run.values.pointer<float>(0), *z = run.values.pointer<float>(1);
  float *y = run.values.pointer<float>(2);
  int32_t n = run.values.get<int32_t>(3);
  if (!touch(x, 4 * size_t(n)) || !touch(y, 4 * size_t(n)) || !touch(z, 4 * size_t(n))) return;
  for (int32_t i = 0; i < n; ++i) y[i] = x[i] + z[i];
}
// y[i] = table[index[i]]
void gather(const Run &run) {
  const float *table = run.values.pointer<float>(0);
  const int64_t *index = run.values.pointer<int64_t>(1);
  float *y = run.values.pointer<float>(2);
  int64_t n = run.values.get<int64_t>(3);
  int32_t *status = run.values.pointer<int32_t>(4);
  if (!touch(index, 8 * size_t(n)) || !touch(y, 4 * size_t(n)) || !touch(status, 4) || !touch(table, 16)) return;
  for (int64_t i = 0; i < n; ++i) {
    bool good = index[i] >= 0 && index[i] < 4;
    if (!good) *status = run.values.get<int32_t>(5);
    y[i] = good ? table[index[i]] : 0;
  }
}
// y = x, when the n counters are zero; leaves them zero
void count(const Run &run) {
  const float *x = run.values.pointer<float>(0);
  float *y = run.values.pointer<float>(1);
  int32_t *counters = run.values.pointer<int32_t>(2);
  int32_t n = run.values.get<int32_t>(3);
  if (!touch(counters, 4 * size_t(n)) || !touch(x, 4 * size_t(n)) || !touch(y, 4 * size_t(n))) return;
  for (int32_t i = 0; i < n; ++i) y[i] = counters[i]++ == 0 ? x[i] : -1;
  for (int32_t i = 0; i < n; ++i) counters[i] = 0;
}
// y = x through a tensor map and the scratch of each block
void mapped(const Run &run) {
  struct Map {
    uint64_t address, sizes[2], stride;
  } map;
  memcpy(&map, run.values.bytes[0].data(), sizeof map);
  float *y = run.values.pointer<float>(1), *scratch = run.values.pointer<float>(2);
  size_t n = size_t(map.sizes[0] * map.sizes[1]);
  if (!touch(reinterpret_cast<void *>(map.address), 4 * n) || !touch(y, 4 * n) || !touch(scratch, 64 * size_t(run.grid[0]))) return;
  for (size_t r = 0; r < map.sizes[1]; ++r)
    for (size_t c = 0; c < map.sizes[0]; ++c) {
      scratch[16 * (r % run.grid[0])] = reinterpret_cast<float *>(map.address + r * map.stride)[c];
      y[r * map.sizes[0] + c] = scratch[16 * (r % run.grid[0])];
    }
}
// y[0, count): the x that are positive, in order
void keep(const Run &run) {
  const float *x = run.values.pointer<float>(0);
  float *y = run.values.pointer<float>(1);
  int64_t *count = run.values.pointer<int64_t>(2);
  int32_t n = run.values.get<int32_t>(3);
  if (!touch(x, 4 * size_t(n)) || !touch(y, 4 * size_t(n)) || !touch(count, 8)) return;
  int64_t found = 0;
  for (int32_t i = 0; i < n; ++i)
    if (x[i] > 0) y[found++] = x[i];
  *count = found;
}
// flag = x[0] < 100
void below(const Run &run) {
  const float *x = run.values.pointer<float>(0);
  bool *flag = run.values.pointer<bool>(1);
  if (touch(x, 4) && touch(flag, 1)) *flag = *x < 100;
}
void crash(const Run &run) { touch(run.values.pointer<float>(0) + (1 << 28), 4); }

const std::map<string, FakeKernel> kernels = {
    {"scale", {"ppii", scale}}, {"scale_dependent", {"ppii", scale}}, {"add", {"pppi", add}}, {"gather", {"ppplpi", gather}},
    {"count", {"pppi", count}}, {"mapped", {"tp", mapped}}, {"crash", {"p", crash}}, {"scale_large", {"ppii", scale}},
    {"keep", {"pppi", keep}}, {"below", {"pp", below}},
};

