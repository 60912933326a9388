// stress.cpp: many callers of one package on the fake driver, with tensors of the host and of the device, while the same
// package is loaded and unloaded beside them; built with the thread sanitizer. Prints how many results were wrong.
#include <stdio.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "mycc/model.h"

namespace {

constexpr int kChain = 1;  // the entry point: y = 120 x
constexpr int kThreads = 6, kCalls = 150;

std::atomic<int> wrong{0};

bool good(int status) {
  if (status == MYCC_OK) return true;
  fprintf(stderr, "%s\n", mycc_last_error());
  ++wrong;
  return false;
}

void compare(const float *y, const std::vector<float> &x) {
  for (size_t i = 0; i < x.size(); ++i)
    if (y[i] != 120 * x[i]) ++wrong;
}

mycc_tensor tensor_of(std::vector<float> &x) {
  mycc_tensor tensor{};
  tensor.data = x.data();
  tensor.device_type = 1;
  tensor.ndim = 1;
  tensor.dtype = {2, 32, 1};
  tensor.shape[0] = int64_t(x.size());
  tensor.strides[0] = 1;
  return tensor;
}

void call_from_host(mycc_model *model, std::vector<float> &x) {
  mycc_tensor input = tensor_of(x), output{};
  if (!good(mycc_run(model, kChain, &input, 1, &output, 1))) return;
  compare(static_cast<float *>(output.data), x);
  mycc_tensor_free(&output);
}

void call_on_device(mycc_model *model, std::vector<float> &x) {
  mycc_tensor source = tensor_of(x), input{}, output{};
  std::vector<float> y(x.size());
  if (!good(mycc_tensor_to_device(model, &source, &input))) return;
  if (good(mycc_run(model, kChain, &input, 1, &output, 1)) &&
      good(mycc_tensor_to_host(&output, y.data(), y.size() * sizeof(float))))
    compare(y.data(), x);
  mycc_tensor_free(&input);
  mycc_tensor_free(&output);
}

void work(mycc_model *model, const std::vector<char> &package, int seed) {
  for (int i = 0; i < kCalls; ++i) {
    std::vector<float> x(size_t(1 + (seed * 7 + i) % 20), float(seed * 1000 + i));
    i % 3 ? call_on_device(model, x) : call_from_host(model, x);
    if (i % 50 != 7) continue;
    mycc_model *other = nullptr;
    if (good(mycc_load_memory(package.data(), package.size(), nullptr, &other))) mycc_unload(other);
    good(mycc_synchronize(model));
  }
}

}  // namespace

int main(int, char **arguments) {
  std::ifstream file(arguments[1], std::ios::binary);
  const std::vector<char> package((std::istreambuf_iterator<char>(file)), {});
  mycc_model *model = nullptr;
  if (!good(mycc_load_memory(package.data(), package.size(), nullptr, &model))) return 1;
  std::vector<std::thread> threads;
  for (int seed = 0; seed < kThreads; ++seed) threads.emplace_back([&, seed] { work(model, package, seed); });
  for (std::thread &thread : threads) thread.join();
  mycc_unload(model);
  printf("%d wrong\n", wrong.load());
  return 0;
}
