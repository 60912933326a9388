// binding.cpp: the Python module _binding: the C API of model.h for numpy arrays, torch tensors and DLPack.
//
// Built once, when mycc is installed, never per model. It gets the functions of libmycc.so at run time, because that one
// may come from inside a package. It imports numpy, and knows torch only by what its tensors offer.

#include <dlfcn.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "mycc/model.h"
#include "src/python/python_errors.h"
#include "src/python/python_inputs.h"
#include "src/python/python_outputs.h"

namespace py = pybind11;

namespace {

using namespace mycc::binding;
namespace dlpack = mycc::dlpack;

// ---- libmycc.so

#define MYCC_FUNCTIONS(F) \
  F(load_file) F(load_memory) F(unload) F(last_error) F(version) F(model_manifest) F(model_target) \
  F(model_threads) F(model_device) F(entry_count) F(input_count) F(output_count) F(kernel_count) \
  F(kernel_name) F(run_with) F(seed) F(synchronize) F(tensor_free) F(tensor_wait) F(tensor_to_device) \
  F(tensor_to_host) F(cuda_count) F(cuda_problem) F(cuda_device_at) F(cuda_copy_speed) F(state_new) \
  F(state_free) F(state_reset) F(state_read) F(state_write) F(state_view) F(input_written) F(profile) \
  F(memory)

struct Functions {
#define MYCC_FUNCTION(name) decltype(&mycc_##name) name;
  MYCC_FUNCTIONS(MYCC_FUNCTION)
#undef MYCC_FUNCTION

  // Throws the LoadError of what is missing. The library is never closed: outputs point into it.
  explicit Functions(const std::string &path) {
    void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) raise(MYCC_ERROR_LOAD, ("cannot load libmycc.so: " + std::string(dlerror())).c_str());
#define MYCC_FUNCTION(name) find(handle, "mycc_" #name, reinterpret_cast<void **>(&name));
    MYCC_FUNCTIONS(MYCC_FUNCTION)
#undef MYCC_FUNCTION
    calls = {tensor_free, tensor_wait, tensor_to_host, last_error};
    tensor_calls = &calls;
  }

  TensorCalls calls;

  void check(int status) const {
    if (status != MYCC_OK) raise(status, last_error());
  }

 private:
  static void find(void *handle, const char *name, void **function) {
    *function = dlsym(handle, name);
    if (!*function) raise(MYCC_ERROR_LOAD, ("cannot load libmycc.so: it has no function " + std::string(name)).c_str());
  }
};

unsigned long main_thread;  // of Python

// A list or tuple of tensors.
class Sequence {
 public:
  explicit Sequence(const py::handle &values) {
    fast_ = py::reinterpret_steal<py::object>(PySequence_Fast(values.ptr(), "the tensors have to be a sequence"));
    if (!fast_) throw py::error_already_set();
  }
  PyObject *const *items() const { return PySequence_Fast_ITEMS(fast_.ptr()); }
  size_t size() const { return size_t(PySequence_Fast_GET_SIZE(fast_.ptr())); }

 private:
  py::object fast_;
};

// ---- models

// A state of a model, beside its own.
class State {
 public:
  State(std::shared_ptr<const Functions> functions, mycc_state *state)
      : functions_(std::move(functions)), state_(state) {}
  ~State() { functions_->state_free(state_); }
  State(const State &) = delete;
  State &operator=(const State &) = delete;
  mycc_state *get() const { return state_; }

 private:
  std::shared_ptr<const Functions> functions_;
  mycc_state *state_;
};

// Python runs the handlers of signals in its main thread, between two of its instructions, which a call has none of.
bool handles_signals() { return PyThread_get_thread_ident() == main_thread; }

int interrupted(void *) {
  py::gil_scoped_acquire locked;
  return PyErr_CheckSignals();
}

// NULL: the model's own.
mycc_state *state_of(const py::handle &state) { return state.is_none() ? nullptr : state.cast<const State &>().get(); }

class Model {
 public:
  Model(std::shared_ptr<const Functions> functions, mycc_model *model, py::object memory)
      : functions_(std::move(functions)), model_(model), memory_(std::move(memory)) {
    int32_t type;
    functions_->model_device(model_, &type, &place_.device);
    place_.gpu = type == dlpack::kCuda;
    for (int32_t i = 0; i < functions_->entry_count(model_); ++i) entries_.push_back(entry_of(i));
  }
  ~Model() { functions_->unload(model_); }
  uintptr_t handle() const { return reinterpret_cast<uintptr_t>(model_); }
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;

  py::list run(int32_t entry, const py::handle &tensors, const py::handle &stream, const py::handle &seed,
               const py::handle &state) const {
    const Sequence values(tensors);
    const Inputs inputs(values.items(), values.size(), place(stream));
    static const Entry none{};  // run_with() says what is wrong with the number
    const Entry &own = size_t(entry) < entries_.size() ? entries_[size_t(entry)] : none;
    for (int32_t i : own.written)
      if (i < inputs.count()) inputs.check_writable(values.items()[i], size_t(i));
    const OutputKind kind(values.items(), values.size(), inputs, functions_->calls);
    const int32_t count = own.outputs;
    Outputs outputs(count, functions_->calls);
    const Place &where = inputs.place();
    mycc_run_options options{sizeof(mycc_run_options), where.has_stream, where.stream, nullptr, nullptr, 0, 0,
                             state_of(state), handles_signals() ? interrupted : nullptr};
    if (!seed.is_none()) options.has_seed = 1, options.seed = seed_of(seed);
    if (inputs.on_device() && kind.api() && !where.given) outputs.allocate_by(kind.api(), &options);
    int status;
    {
      py::gil_scoped_release unlocked;
      status = functions_->run_with(model_, entry, inputs.data(), inputs.count(), outputs.data(), count, &options);
    }
    if (status != MYCC_OK && PyErr_Occurred()) throw py::error_already_set();  // a signal's handler has raised it
    functions_->check(status);
    for (int32_t i : own.written)
      if (i < inputs.count()) inputs.write_back(size_t(i));
    py::list result{size_t(count)};
    for (int32_t i = 0; i < count; ++i) PyList_SET_ITEM(result.ptr(), i, outputs.take(i, kind).release().ptr());
    return result;
  }

  std::unique_ptr<State> new_state() const {
    mycc_state *made = nullptr;
    functions_->check(functions_->state_new(model_, &made));
    return std::make_unique<State>(functions_, made);
  }
  void state_reset(const py::handle &state) const {
    functions_->check(unlocked([&, own = state_of(state)] { return functions_->state_reset(model_, own); }));
  }
  py::object state_read(const py::handle &state, int32_t i) const {
    return state_tensor([&, own = state_of(state)](mycc_tensor *made) {
      return functions_->state_read(model_, own, i, made);
    });
  }
  py::object state_view(const py::handle &state, int32_t i) const {
    return state_tensor([&, own = state_of(state)](mycc_tensor *made) {
      return functions_->state_view(model_, own, i, made);
    });
  }
  void state_write(const py::handle &state, int32_t i, const py::handle &value) const {
    PyObject *const values[] = {value.ptr()};
    const Inputs inputs(values, 1, place(py::none()));
    auto write = [&, own = state_of(state)] { return functions_->state_write(model_, own, i, inputs.data()); };
    functions_->check(unlocked(write));
  }

  py::list profile(int32_t entry, const py::handle &tensors, int32_t runs) const {
    const Sequence values(tensors);
    const Inputs inputs(values.items(), values.size(), place(py::none()));
    std::vector<int64_t> times(size_t(functions_->kernel_count(model_, entry)));
    int status;
    {
      py::gil_scoped_release unlocked;
      status = functions_->profile(model_, entry, inputs.data(), inputs.count(), runs, times.data(),
                                   int32_t(times.size()));
    }
    functions_->check(status);
    py::list result;
    for (int64_t time : times) result.append(time);
    return result;
  }

  py::tuple memory(int32_t entry, const py::handle &tensors) const {
    const Sequence values(tensors);
    const Inputs inputs(values.items(), values.size(), place(py::none()));
    int64_t arena = 0, live = 0;
    functions_->check(functions_->memory(model_, entry, inputs.data(), inputs.count(), &arena, &live));
    return py::make_tuple(arena, live);
  }

  py::list kernels(int32_t entry) const {
    py::list names;
    for (int32_t i = 0; i < functions_->kernel_count(model_, entry); ++i)
      names.append(py::str(functions_->kernel_name(model_, entry, i)));
    return names;
  }

  void synchronize() const {
    int status;
    {
      py::gil_scoped_release unlocked;
      status = functions_->synchronize(model_);
    }
    functions_->check(status);
  }

  DlpackOutput to_device(const py::handle &value) const {
    PyObject *const values[] = {value.ptr()};
    const Inputs inputs(values, 1, Place{});
    mycc_tensor made;
    functions_->check(functions_->tensor_to_device(model_, inputs.data(), &made));
    return DlpackOutput(&made, functions_->calls);
  }

  void seed(const py::handle &value) const { functions_->seed(model_, seed_of(value)); }
  std::string device() const { return place_.gpu ? "cuda:" + std::to_string(place_.device) : "cpu"; }
  std::string manifest() const { return functions_->model_manifest(model_); }
  std::string target() const { return functions_->model_target(model_); }
  int32_t threads() const { return functions_->model_threads(model_); }

 private:
  template <class Work>
  static int unlocked(Work work) {
    py::gil_scoped_release released;
    return work();
  }
  template <class Make>
  py::object state_tensor(Make make) const {
    Outputs made(1, functions_->calls);
    functions_->check(unlocked([&] { return make(made.data()); }));
    const Inputs none(nullptr, 0, place_);
    return made.take(0, OutputKind(nullptr, 0, none, functions_->calls));
  }

  // A whole number of any sign; its lowest 64 bits count.
  static uint64_t seed_of(const py::handle &value) {
    if (!PyLong_Check(value.ptr())) raise_input("seed has to be a whole number, not a " + name_of(value.ptr()));
    const unsigned long long bits = PyLong_AsUnsignedLongLongMask(value.ptr());
    if (PyErr_Occurred()) throw py::error_already_set();
    return bits;
  }

  // The caller's stream: None, a number, or an object that has one: torch's, cupy's, or of the __cuda_stream__ protocol.
  Place place(const py::handle &stream) const {
    Place place = place_;
    if (stream.is_none()) return place;
    if (!place.gpu) raise_input("a package that runs on the CPU takes no stream");
    py::object number = py::reinterpret_borrow<py::object>(stream);
    for (const char *name : {"cuda_stream", "ptr", "__cuda_stream__"}) {
      if (!py::hasattr(stream, name)) continue;
      number = stream.attr(name);
      if (PyCallable_Check(number.ptr())) number = py::tuple(number())[1];
      break;
    }
    if (!PyLong_Check(number.ptr()))
      raise_input("stream has to be a CUDA stream of torch or cupy, or its address, not a " + name_of(stream.ptr()));
    place.given = place.has_stream = true;
    place.stream = PyLong_AsVoidPtr(number.ptr());
    if (PyErr_Occurred()) throw py::error_already_set();
    return place;
  }

  // What every call asks of its entry point.
  struct Entry {
    int32_t outputs = 0;
    std::vector<int32_t> written;  // inputs
  };
  Entry entry_of(int32_t i) const {
    Entry entry{functions_->output_count(model_, i), {}};
    for (int32_t input = 0; input < functions_->input_count(model_, i); ++input)
      if (functions_->input_written(model_, i, input)) entry.written.push_back(input);
    return entry;
  }

  std::shared_ptr<const Functions> functions_;
  mycc_model *model_;
  std::vector<Entry> entries_;
  Place place_;
  py::object memory_;  // what the package lies in, when it was not loaded from a file
};

class Library {
 public:
  explicit Library(const std::string &path) : functions_(std::make_shared<const Functions>(path)) {}

  std::string version() const { return functions_->version(); }
  std::string cuda_problem() const { return functions_->cuda_problem(); }
  double cuda_copy_speed(int32_t device, size_t bytes) const {
    double speed = 0;
    functions_->check(functions_->cuda_copy_speed(device, bytes, &speed));
    return speed;
  }
  py::list cuda_devices() const {
    py::list rows;
    for (int32_t i = 0; i < functions_->cuda_count(); ++i) {
      mycc_cuda_device d;
      functions_->check(functions_->cuda_device_at(i, &d));
      rows.append(py::make_tuple(d.name, d.major, d.minor, d.multiprocessors, d.l2_bytes, d.shared_bytes, d.memory));
    }
    return rows;
  }

  std::unique_ptr<Model> load_file(const py::object &path, int32_t threads, bool check_full, const py::object &target,
                                   const py::object &device, const py::object &launch, bool copy) const {
    const std::string name = py::bytes(py::module_::import("os").attr("fsencode")(path));
    auto load_file = [&](const mycc_load_options &options, mycc_model **model) {
      return functions_->load_file(name.c_str(), &options, model);
    };
    return load(threads, check_full, target, device, launch, copy, py::object(), load_file);
  }

  std::unique_ptr<Model> load_memory(const py::object &data, int32_t threads, bool check_full, const py::object &target,
                                     const py::object &device, const py::object &launch, bool copy) const {
    // the memoryview keeps the bytes from being moved or freed
    py::object view = py::reinterpret_steal<py::object>(PyMemoryView_FromObject(data.ptr()));
    if (!view) throw py::error_already_set();
    const Py_buffer *buffer = PyMemoryView_GET_BUFFER(view.ptr());
    if (!PyBuffer_IsContiguous(buffer, 'C')) raise(MYCC_ERROR_LOAD, "the package's bytes have to be contiguous");
    auto load_memory = [&](const mycc_load_options &options, mycc_model **model) {
      return functions_->load_memory(buffer->buf ? buffer->buf : "", size_t(buffer->len), &options, model);
    };
    return load(threads, check_full, target, device, launch, copy, copy ? py::object() : view, load_memory);
  }

 private:
  template <class Load>
  std::unique_ptr<Model> load(int32_t threads, bool check_full, const py::object &target, const py::object &device,
                              const py::object &launch, bool copy, py::object memory, Load load) const {
    std::string texts[3];
    const char *names[3] = {nullptr, nullptr, nullptr};
    const py::object *values[3] = {&target, &device, &launch};
    for (int i = 0; i < 3; ++i) {
      if (values[i]->is_none()) continue;
      texts[i] = values[i]->cast<std::string>();
      names[i] = texts[i].c_str();
    }
    const mycc_load_options options{sizeof(mycc_load_options), threads, check_full, names[0], names[1], names[2],
                                    copy};
    mycc_model *model = nullptr;
    int status;
    {
      py::gil_scoped_release unlocked;
      status = load(options, &model);
    }
    functions_->check(status);
    return std::make_unique<Model>(functions_, model, std::move(memory));
  }

  std::shared_ptr<const Functions> functions_;
};

py::object numpy_of(const DlpackOutput &array) {
  const mycc_tensor &tensor = array.tensor();
  py::object dtype = numpy_dtype(tensor.dtype);
  if (tensor.dtype.code == kBfloat) dtype = py::module_::import("ml_dtypes").attr("bfloat16");
  py::array made(py::dtype::from_args(dtype), std::vector<py::ssize_t>(tensor.shape, tensor.shape + tensor.ndim));
  if (int status = array.calls().to_host(&tensor, made.mutable_data(), size_t(made.nbytes())))
    raise(status, array.calls().last_error());
  return made;
}

}  // namespace

PYBIND11_MODULE(_binding, m) {
  m.doc() = "The runtime's C API (libmycc.so) for Python.";
  main_thread = py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
  m.def("set_errors", &set_errors, py::arg("load"), py::arg("input"), py::arg("run"),
        "The exception classes to raise; each is called with the text.");
  py::class_<Library>(m, "Library", py::module_local(), "libmycc.so, loaded from a path.")
      .def(py::init<const std::string &>(), py::arg("path"))
      .def_property_readonly("version", &Library::version)
      .def("load_file", &Library::load_file, py::arg("path"), py::arg("threads") = 0, py::arg("check_full") = false,
           py::arg("target") = py::none(), py::arg("device") = py::none(), py::arg("launch") = py::none(),
           py::arg("copy") = false)
      .def("load_memory", &Library::load_memory, py::arg("data"), py::arg("threads") = 0,
           py::arg("check_full") = false, py::arg("target") = py::none(), py::arg("device") = py::none(),
           py::arg("launch") = py::none(), py::arg("copy") = false)
      .def_property_readonly("cuda_problem", &Library::cuda_problem)
      .def("cuda_copy_speed", &Library::cuda_copy_speed, py::arg("device"), py::arg("bytes"))
      .def("cuda_devices", &Library::cuda_devices,
           "(name, major, minor, multiprocessors, L2 bytes, shared bytes, memory) of every NVIDIA device.");
  py::class_<State>(m, "State", py::module_local(), "Tensors that live from call to call.");
  py::class_<Model>(m, "Model", py::module_local(), "A loaded package: runs on flat sequences of tensors.")
      .def("run", &Model::run, py::arg("entry"), py::arg("tensors"), py::arg("stream") = py::none(),
           py::arg("seed") = py::none(), py::arg("state") = py::none(), "The list of an entry point's outputs, of the kind of the first input.")
      .def_property_readonly("handle", &Model::handle, "The address of the mycc_model.")
      .def("seed", &Model::seed, py::arg("value"), "The seed of the next call that names none.")
      .def("profile", &Model::profile, py::arg("entry"), py::arg("tensors"), py::arg("runs") = 1,
           "Nanoseconds of each kernel, averaged over the runs.")
      .def("new_state", &Model::new_state, "A state with the first values.")
      .def("state_reset", &Model::state_reset, py::arg("state"), "Back to the first values; None: the model's own.")
      .def("state_read", &Model::state_read, py::arg("state"), py::arg("index"), "A copy of a tensor of a state.")
      .def("state_write", &Model::state_write, py::arg("state"), py::arg("index"), py::arg("array"))
      .def("state_view", &Model::state_view, py::arg("state"), py::arg("index"), "The tensor itself.")
      .def("memory", &Model::memory, py::arg("entry"), py::arg("tensors"),
           "Bytes of the arena for these inputs, and the largest sum of live bytes.")
      .def("kernels", &Model::kernels, py::arg("entry"), "Names of the kernels, in the order of their times.")
      .def("synchronize", &Model::synchronize, "Waits for all calls on a GPU; raises what failed there.")
      .def("to_device", &Model::to_device, py::arg("array"), "A copy where the model runs, as a DlpackOutput.")
      .def_property_readonly("device", &Model::device)
      .def_property_readonly("manifest", &Model::manifest)
      .def_property_readonly("target", &Model::target)
      .def_property_readonly("threads", &Model::threads);
  py::class_<DlpackOutput>(m, "DlpackOutput", py::module_local(), "A tensor of the runtime that speaks DLPack.")
      .def_property_readonly("shape", &DlpackOutput::shape)
      .def("numpy", &numpy_of, "A copy in host memory.")
      .def("__dlpack__", &DlpackOutput::dlpack)
      .def("__dlpack_device__", &DlpackOutput::device);
}
