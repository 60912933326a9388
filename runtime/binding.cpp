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
#include "src/python_errors.h"
#include "src/python_inputs.h"
#include "src/python_outputs.h"

namespace py = pybind11;

namespace {

using namespace mycc::binding;

// ---- libmycc.so

struct Functions {
#define MYCC_FUNCTION(name) decltype(&mycc_##name) name
  MYCC_FUNCTION(load_file);
  MYCC_FUNCTION(load_memory);
  MYCC_FUNCTION(unload);
  MYCC_FUNCTION(last_error);
  MYCC_FUNCTION(version);
  MYCC_FUNCTION(model_manifest);
  MYCC_FUNCTION(model_target);
  MYCC_FUNCTION(model_threads);
  MYCC_FUNCTION(output_count);
  MYCC_FUNCTION(run);
  MYCC_FUNCTION(tensor_free);
  MYCC_FUNCTION(profile);
  MYCC_FUNCTION(memory);
#undef MYCC_FUNCTION

  // Throws the LoadError of what is missing. The library is never closed: outputs point into it.
  explicit Functions(const std::string &path) {
    void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) raise(MYCC_ERROR_LOAD, ("cannot load libmycc.so: " + std::string(dlerror())).c_str());
#define MYCC_FUNCTION(name) find(handle, "mycc_" #name, reinterpret_cast<void **>(&name))
    MYCC_FUNCTION(load_file);
    MYCC_FUNCTION(load_memory);
    MYCC_FUNCTION(unload);
    MYCC_FUNCTION(last_error);
    MYCC_FUNCTION(version);
    MYCC_FUNCTION(model_manifest);
    MYCC_FUNCTION(model_target);
    MYCC_FUNCTION(model_threads);
    MYCC_FUNCTION(output_count);
    MYCC_FUNCTION(run);
    MYCC_FUNCTION(tensor_free);
    MYCC_FUNCTION(profile);
    MYCC_FUNCTION(memory);
#undef MYCC_FUNCTION
  }

  void check(int status) const {
    if (status != MYCC_OK) raise(status, last_error());
  }

 private:
  static void find(void *handle, const char *name, void **function) {
    *function = dlsym(handle, name);
    if (!*function) raise(MYCC_ERROR_LOAD, ("cannot load libmycc.so: it has no function " + std::string(name)).c_str());
  }
};

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

class Model {
 public:
  Model(std::shared_ptr<const Functions> functions, mycc_model *model, py::object memory)
      : functions_(std::move(functions)), model_(model), memory_(std::move(memory)) {}
  ~Model() { functions_->unload(model_); }
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;

  py::list run(int32_t entry, const py::handle &tensors) const {
    const Sequence values(tensors);
    const Inputs inputs(values.items(), values.size());
    const int32_t count = functions_->output_count(model_, entry);
    Outputs outputs(count, functions_->tensor_free);
    int status;
    {
      py::gil_scoped_release unlocked;
      status = functions_->run(model_, entry, inputs.data(), inputs.count(), outputs.data(), count);
    }
    functions_->check(status);
    const OutputKind kind(values.items(), values.size(), functions_->tensor_free);
    py::list result{size_t(count)};
    for (int32_t i = 0; i < count; ++i)
      PyList_SET_ITEM(result.ptr(), i, kind.make(&outputs.data()[i]).release().ptr());
    return result;
  }

  py::list profile(int32_t entry, const py::handle &tensors, int32_t runs) const {
    const Sequence values(tensors);
    const Inputs inputs(values.items(), values.size());
    std::vector<int64_t> times(kernel_count(entry));
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
    const Inputs inputs(values.items(), values.size());
    int64_t arena = 0, live = 0;
    functions_->check(functions_->memory(model_, entry, inputs.data(), inputs.count(), &arena, &live));
    return py::make_tuple(arena, live);
  }

  std::string manifest() const { return functions_->model_manifest(model_); }
  std::string target() const { return functions_->model_target(model_); }
  int32_t threads() const { return functions_->model_threads(model_); }

 private:
  size_t kernel_count(int32_t entry) const {
    py::list rows = py::module_::import("json").attr("loads")(manifest())["entry_points"];
    if (entry < 0 || size_t(entry) >= rows.size()) return 0;
    return py::len(rows[size_t(entry)]["kernels"]);
  }

  std::shared_ptr<const Functions> functions_;
  mycc_model *model_;
  py::object memory_;  // what the package lies in, when it was not loaded from a file
};

class Library {
 public:
  explicit Library(const std::string &path) : functions_(std::make_shared<const Functions>(path)) {}

  std::string version() const { return functions_->version(); }

  std::unique_ptr<Model> load_file(const py::object &path, int32_t threads, bool check_full,
                                   const py::object &target) const {
    const std::string name = py::bytes(py::module_::import("os").attr("fsencode")(path));
    return load(threads, check_full, target, py::object(), [&](const mycc_load_options &options, mycc_model **model) {
      return functions_->load_file(name.c_str(), &options, model);
    });
  }

  std::unique_ptr<Model> load_memory(const py::object &data, int32_t threads, bool check_full,
                                     const py::object &target) const {
    // the memoryview keeps the bytes from being moved or freed
    py::object view = py::reinterpret_steal<py::object>(PyMemoryView_FromObject(data.ptr()));
    if (!view) throw py::error_already_set();
    const Py_buffer *buffer = PyMemoryView_GET_BUFFER(view.ptr());
    if (!PyBuffer_IsContiguous(buffer, 'C')) raise(MYCC_ERROR_LOAD, "the package's bytes have to be contiguous");
    return load(threads, check_full, target, view, [&](const mycc_load_options &options, mycc_model **model) {
      return functions_->load_memory(buffer->buf ? buffer->buf : "", size_t(buffer->len), &options, model);
    });
  }

 private:
  template <class Load>
  std::unique_ptr<Model> load(int32_t threads, bool check_full, const py::object &target, py::object memory,
                              Load load) const {
    const std::string name = target.is_none() ? "" : target.cast<std::string>();
    const mycc_load_options options{sizeof(mycc_load_options), threads, check_full, target.is_none() ? nullptr : name.c_str()};
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

}  // namespace

PYBIND11_MODULE(_binding, m) {
  m.doc() = "The runtime's C API (libmycc.so) for Python.";
  m.def("set_errors", &set_errors, py::arg("load"), py::arg("input"), py::arg("run"),
        "The exception classes to raise; each is called with the text.");
  py::class_<Library>(m, "Library", py::module_local(), "libmycc.so, loaded from a path.")
      .def(py::init<const std::string &>(), py::arg("path"))
      .def_property_readonly("version", &Library::version)
      .def("load_file", &Library::load_file, py::arg("path"), py::arg("threads") = 0, py::arg("check_full") = false,
           py::arg("target") = py::none())
      .def("load_memory", &Library::load_memory, py::arg("data"), py::arg("threads") = 0,
           py::arg("check_full") = false, py::arg("target") = py::none());
  py::class_<Model>(m, "Model", py::module_local(), "A loaded package: runs on flat sequences of tensors.")
      .def("run", &Model::run, py::arg("entry"), py::arg("tensors"),
           "The list of an entry point's outputs, of the kind of the first input.")
      .def("profile", &Model::profile, py::arg("entry"), py::arg("tensors"), py::arg("runs") = 1,
           "Nanoseconds of each kernel, averaged over the runs.")
      .def("memory", &Model::memory, py::arg("entry"), py::arg("tensors"),
           "Bytes of the arena for these inputs, and the largest sum of live bytes.")
      .def_property_readonly("manifest", &Model::manifest)
      .def_property_readonly("target", &Model::target)
      .def_property_readonly("threads", &Model::threads);
  py::class_<DlpackOutput>(m, "DlpackOutput", py::module_local(), "A tensor on the CPU that speaks DLPack.")
      .def_property_readonly("shape", &DlpackOutput::shape)
      .def("__dlpack__", &DlpackOutput::dlpack)
      .def("__dlpack_device__", &DlpackOutput::device);
}
