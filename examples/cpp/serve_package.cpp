// serve_package.cpp: one loaded model, called by several threads at once, as a server would.
//
//   serve_package model.pkg [threads] [calls of each]
#include <mycc/model.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

void check(int status) {
  if (status != MYCC_OK) throw std::runtime_error(mycc_last_error());
}

// The outputs of one run; frees the runtime's memory.
class Outputs {
 public:
  explicit Outputs(std::size_t count) : tensors_(count) {}
  ~Outputs() {
    for (mycc_tensor &tensor : tensors_) mycc_tensor_free(&tensor);
  }
  Outputs(const Outputs &) = delete;
  Outputs &operator=(const Outputs &) = delete;
  Outputs(Outputs &&) = default;

  std::vector<mycc_tensor> &tensors() { return tensors_; }
  const mycc_tensor &operator[](std::size_t i) const { return tensors_[i]; }
  std::size_t bytes(std::size_t i) const {
    std::size_t count = tensors_[i].dtype.bits / 8;
    for (int d = 0; d < tensors_[i].ndim; ++d) count *= std::size_t(tensors_[i].shape[d]);
    return count;
  }

 private:
  std::vector<mycc_tensor> tensors_;
};

class Model {
 public:
  explicit Model(const std::string &path) {
    mycc_model *model = nullptr;
    check(mycc_load_file(path.c_str(), nullptr, &model));
    model_.reset(model);
  }
  mycc_model *get() const { return model_.get(); }

  Outputs run(const std::vector<mycc_tensor> &inputs) const {
    Outputs outputs(std::size_t(mycc_output_count(get(), 0)));
    std::vector<mycc_tensor> &tensors = outputs.tensors();
    check(mycc_run(get(), 0, inputs.data(), int32_t(inputs.size()), tensors.data(), int32_t(tensors.size())));
    return outputs;
  }

 private:
  struct Unload {
    void operator()(mycc_model *model) const { mycc_unload(model); }
  };
  std::unique_ptr<mycc_model, Unload> model_;
};

// A dense tensor of zeros; a dimension named by a size symbol takes its smallest value.
struct Zeros {
  std::vector<std::uint64_t> memory;
  mycc_tensor tensor{};

  Zeros(const mycc_model *model, const mycc_port &port) {
    std::int64_t step = 1;
    tensor.device_type = 1;
    tensor.ndim = port.ndim;
    tensor.dtype = port.dtype;
    for (int d = port.ndim; d-- > 0;) {
      tensor.shape[d] = size_of(model, port.dims[d]);
      tensor.strides[d] = step;
      step *= tensor.shape[d];
    }
    memory.resize(std::size_t(step) * port.dtype.bits / 64 + 1);
    tensor.data = memory.data();
  }

  static std::int64_t size_of(const mycc_model *model, const char *dim) {
    for (int i = 0; i < mycc_symbol_count(model, 0); ++i)
      if (std::strcmp(mycc_symbol_at(model, 0, i)->name, dim) == 0) return mycc_symbol_at(model, 0, i)->min;
    char *end;
    std::int64_t size = std::strtoll(dim, &end, 10);
    if (*end) throw std::runtime_error(std::string("this example cannot compute the size ") + dim);
    return size;
  }
};

void serve(const Model &model, int threads, int calls) {
  std::vector<Zeros> values;
  std::vector<mycc_tensor> inputs;
  for (int i = 0; i < mycc_input_count(model.get(), 0); ++i)
    values.emplace_back(model.get(), *mycc_input(model.get(), 0, i));
  for (Zeros &value : values) inputs.push_back(value.tensor);

  const Outputs expected = model.run(inputs);
  std::vector<int> differing(std::size_t(threads), 0);
  std::vector<std::thread> callers;
  auto start = std::chrono::steady_clock::now();
  for (int t = 0; t < threads; ++t) {
    callers.emplace_back([&, t] {
      for (int call = 0; call < calls; ++call) {
        const Outputs outputs = model.run(inputs);
        for (std::size_t i = 0; i < std::size_t(mycc_output_count(model.get(), 0)); ++i)
          differing[std::size_t(t)] += std::memcmp(outputs[i].data, expected[i].data, expected.bytes(i)) != 0;
      }
    });
  }
  for (std::thread &caller : callers) caller.join();
  std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  int wrong = 0;
  for (int count : differing) wrong += count;
  std::printf("%d calls by %d threads, %.1f us each, %d outputs differ\n", threads * calls, threads,
              time.count() / (double(threads) * calls), wrong);
  if (wrong) throw std::runtime_error("outputs differ from call to call");
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: serve_package model.pkg [threads] [calls of each]\n");
    return 2;
  }
  try {
    serve(Model(argv[1]), argc > 2 ? std::atoi(argv[2]) : 4, argc > 3 ? std::atoi(argv[3]) : 100);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  }
}
