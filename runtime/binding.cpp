// binding.cpp: the Python module _binding: the C API of model.h for numpy arrays, torch tensors and DLPack.
//
// Built once, when mycc is installed, never per model. It gets the functions of libmycc.so at run time, because that one
// may come from inside a package. It imports numpy, and knows torch only by what its tensors offer.

#include <dlfcn.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "mycc/model.h"
#include "src/dlpack_types.h"

namespace py = pybind11;

namespace {

using mycc::dlpack::ExchangeApi;
using mycc::dlpack::Managed;
using mycc::dlpack::ManagedVersioned;

constexpr uint8_t kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6;  // DLPack's codes

// ---- errors

PyObject *error_types[MYCC_ERROR_RUN + 1];  // by code; set by set_errors()

[[noreturn]] void raise(int code, const char *text) {
  PyObject *type = code >= 0 && code <= MYCC_ERROR_RUN && error_types[code] ? error_types[code] : PyExc_RuntimeError;
  // a damaged package may put any bytes into the text
  auto message = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(text, Py_ssize_t(strlen(text)), "replace"));
  PyErr_SetObject(type, message.ptr());
  throw py::error_already_set();
}

[[noreturn]] void raise_input(const std::string &text) { raise(MYCC_ERROR_INPUT, text.c_str()); }

void set_errors(const py::object &load, const py::object &input, const py::object &run) {
  const py::object *types[] = {nullptr, &load, &input, &run};
  for (int code = MYCC_ERROR_LOAD; code <= MYCC_ERROR_RUN; ++code) {
    Py_XDECREF(error_types[code]);
    error_types[code] = types[code]->inc_ref().ptr();
  }
}

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

// ---- inputs

// The tensors of a call; few of them need no allocation. What keeps borrowed memory alive is dropped with it.
class Inputs {
 public:
  Inputs(PyObject *const *values, size_t count) : count_(count) {
    if (count > kFew) many_.resize(count);
    for (size_t i = 0; i < count; ++i) import(values[i], i);
  }
  Inputs(const Inputs &) = delete;
  Inputs &operator=(const Inputs &) = delete;

  const mycc_tensor *data() const { return count_ > kFew ? many_.data() : few_; }
  int32_t count() const { return int32_t(count_); }

 private:
  static constexpr size_t kFew = 8;

  void import(PyObject *value, size_t index);
  void import_array(PyObject *array, size_t index);
  void import_object(PyObject *value, size_t index);
  void import_capsule(const py::object &capsule, size_t index);
  void fill(const mycc::dlpack::Tensor &source, size_t index);
  mycc_tensor &at(size_t index) { return count_ > kFew ? many_[index] : few_[index]; }

  size_t count_;
  mycc_tensor few_[kFew];
  std::vector<mycc_tensor> many_;
  std::vector<py::object> kept_;
};

std::string name_of(PyObject *value) { return Py_TYPE(value)->tp_name; }
std::string input_name(size_t index) { return "input " + std::to_string(index); }

[[noreturn]] void raise_rank(size_t index, long rank) {
  raise_input(input_name(index) + " has " + std::to_string(rank) + " dimensions; at most " +
              std::to_string(MYCC_MAX_RANK) + " are supported");
}

bool is_array(PyObject *value) {
  return PyObject_TypeCheck(value, py::detail::npy_api::get().PyArray_Type_);
}

// What a tensor type offers, looked up once for each type.
struct TensorType {
  PyTypeObject *type;
  const ExchangeApi *api;  // functions for exchange in C; NULL: none
  bool negates;            // has torch's lazy negation, of which DLPack knows nothing
};

const TensorType &tensor_type(PyTypeObject *type) {
  static std::vector<TensorType> rows;  // few types; they are kept alive
  for (const TensorType &row : rows)
    if (row.type == type) return row;
  const ExchangeApi *api = nullptr;
  PyObject *capsule = PyObject_GetAttrString(reinterpret_cast<PyObject *>(type), "__dlpack_c_exchange_api__");
  if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
    api = static_cast<const ExchangeApi *>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  PyErr_Clear();
  while (api && api->version.major != mycc::dlpack::kMajor) api = api->previous;
  if (api && !api->tensor_from_object) api = nullptr;
  Py_XDECREF(capsule);
  Py_INCREF(type);
  rows.push_back({type, api, PyObject_HasAttrString(reinterpret_cast<PyObject *>(type), "resolve_neg") == 1});
  return rows.back();
}

void Inputs::import(PyObject *value, size_t index) {
  if (is_array(value)) return import_array(value, index);
  const TensorType &type = tensor_type(Py_TYPE(value));
  if (type.negates && py::handle(value).attr("is_neg")().ptr() == Py_True) {
    kept_.push_back(py::handle(value).attr("resolve_neg")());
    value = kept_.back().ptr();
  }
  if (!type.api) return import_object(value, index);
  mycc::dlpack::Tensor tensor;
  if (type.api->tensor_from_object(value, &tensor) == 0) return fill(tensor, index);
  py::error_already_set error;  // what the framework says: a sparse layout, a dtype without a DLPack code, ...
  raise_input(input_name(index) + ", a " + name_of(value) + ", cannot be read: " + std::string(py::str(error.value())));
}

// numpy's type numbers on Linux.
bool dtype_of_number(int number, mycc_dtype *dtype) {
  static const mycc_dtype table[] = {{kBool, 8, 1}, {kInt, 8, 1},    {kUInt, 8, 1},    {kInt, 16, 1},
                                     {kUInt, 16, 1}, {kInt, 32, 1},  {kUInt, 32, 1},   {kInt, 64, 1},
                                     {kUInt, 64, 1}, {kInt, 64, 1},  {kUInt, 64, 1},   {kFloat, 32, 1},
                                     {kFloat, 64, 1}, {0, 0, 0},     {kComplex, 64, 1}, {kComplex, 128, 1}};
  constexpr int kHalf = 23;
  if (number == kHalf) {
    *dtype = {kFloat, 16, 1};
  } else if (number >= 0 && number < int(sizeof table / sizeof *table) && table[number].bits) {
    *dtype = table[number];
  } else {
    return false;
  }
  return true;
}

mycc_dtype dtype_of(PyObject *array, size_t index) {
  PyObject *object = py::detail::array_proxy(array)->descr;
  const auto *descr = py::detail::array_descriptor_proxy(object);
  mycc_dtype dtype;
  bool native = descr->byteorder == '=' || descr->byteorder == '|';
  if (native && dtype_of_number(descr->type_num, &dtype)) return dtype;
  std::string name = py::str(py::handle(object));
  if (native && name == "bfloat16") return {kBfloat, 16, 1};  // of ml_dtypes
  raise_input(input_name(index) + " has the dtype " + name + ", which no package takes");
}

void Inputs::import_array(PyObject *array, size_t index) {
  mycc_tensor &tensor = at(index);
  tensor.dtype = dtype_of(array, index);
  const int64_t bytes = tensor.dtype.bits / 8;
  const py::detail::PyArray_Proxy *proxy = py::detail::array_proxy(array);
  if (proxy->nd > MYCC_MAX_RANK) raise_rank(index, proxy->nd);
  tensor.data = proxy->data;
  tensor.device_type = mycc::dlpack::kCpu, tensor.device_id = 0;
  tensor.ndim = proxy->nd;
  tensor.owner = nullptr;
  for (int d = 0; d < proxy->nd; ++d) {
    tensor.shape[d] = proxy->dimensions[d];
    tensor.strides[d] = proxy->strides[d] / bytes;
    if (proxy->strides[d] % bytes == 0) continue;
    // a field of a structured array: no stride in elements describes it
    kept_.push_back(py::module_::import("numpy").attr("ascontiguousarray")(py::handle(array)));
    return import_array(kept_.back().ptr(), index);
  }
}

// Objects that have DLPack's Python protocol, and numpy's scalars.
void Inputs::import_object(PyObject *value, size_t index) {
  py::handle object(value);
  if (!py::hasattr(object, "__dlpack__")) {
    if (py::isinstance(object, py::module_::import("numpy").attr("generic"))) {
      kept_.push_back(py::array::ensure(object));
      return import_array(kept_.back().ptr(), index);
    }
    raise_input(input_name(index) + " has to be a numpy array, a torch tensor or have DLPack, not a " + name_of(value));
  }
  py::tuple device = object.attr("__dlpack_device__")();
  if (device[0].cast<int>() != mycc::dlpack::kCpu)
    raise_input(input_name(index) + " is not on the CPU, where the package runs\n  Copy it to the CPU first.");
  py::object plain = py::hasattr(object, "detach") ? object.attr("detach")() : py::reinterpret_borrow<py::object>(object);
  import_capsule(plain.attr("__dlpack__")(), index);
}

// The capsule is kept, not consumed: when it goes, it frees what it holds.
void Inputs::import_capsule(const py::object &capsule, size_t index) {
  kept_.push_back(capsule);
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor"))
    return fill(static_cast<Managed *>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"))->tensor, index);
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    auto *managed = static_cast<ManagedVersioned *>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (managed->version.major == mycc::dlpack::kMajor) return fill(managed->tensor, index);
  }
  raise_input(input_name(index) + " speaks an unknown version of DLPack");
}

void Inputs::fill(const mycc::dlpack::Tensor &source, size_t index) {
  mycc_tensor &tensor = at(index);
  if (source.ndim < 0 || source.ndim > MYCC_MAX_RANK) raise_rank(index, source.ndim);
  tensor.data = static_cast<char *>(source.data) + source.byte_offset;
  tensor.device_type = source.device_type, tensor.device_id = source.device_id;
  tensor.ndim = source.ndim;
  tensor.dtype = source.dtype;
  tensor.owner = nullptr;
  int64_t step = 1;
  for (int d = source.ndim; d-- > 0;) {
    tensor.shape[d] = source.shape[d];
    tensor.strides[d] = source.strides ? source.strides[d] : step;
    step *= source.shape[d];
  }
}

// ---- outputs

// An output on its way into a framework; the last user frees the runtime's memory, on whatever thread.
template <class Kind>
struct Exported {
  Kind managed;
  mycc_tensor tensor;
  decltype(&mycc_tensor_free) free_tensor;

  static void release(Kind *managed) {
    Exported *self = static_cast<Exported *>(managed->context);
    self->free_tensor(&self->tensor);
    delete self;
  }
};

// Takes the tensor over.
template <class Kind>
Kind *export_tensor(mycc_tensor *source, decltype(&mycc_tensor_free) free_tensor) {
  auto *made = new Exported<Kind>{{}, *source, free_tensor};
  source->owner = nullptr;
  made->managed.context = made;
  made->managed.deleter = Exported<Kind>::release;
  mycc_tensor &tensor = made->tensor;
  made->managed.tensor = {tensor.data,  tensor.device_type, tensor.device_id, tensor.ndim,
                          tensor.dtype, tensor.shape,       tensor.strides,   0};
  return &made->managed;
}

// An output for those who speak DLPack: other frameworks, and bfloat16, which numpy lacks.
class DlpackOutput {
 public:
  DlpackOutput(mycc_tensor *tensor, decltype(&mycc_tensor_free) free_tensor) : shared_(new Shared{*tensor, free_tensor}) {
    tensor->owner = nullptr;
  }

  py::tuple shape() const {
    py::tuple result(shared_->tensor.ndim);
    for (int d = 0; d < shared_->tensor.ndim; ++d) result[size_t(d)] = py::int_(shared_->tensor.shape[d]);
    return result;
  }
  static py::tuple device() { return py::make_tuple(mycc::dlpack::kCpu, 0); }

  py::capsule dlpack(const py::kwargs &) const {
    auto *view = new View{{}, shared_};
    mycc_tensor &tensor = shared_->tensor;
    view->managed.context = view;
    view->managed.deleter = [](Managed *self) { delete static_cast<View *>(self->context); };
    view->managed.tensor = {tensor.data,  tensor.device_type, tensor.device_id, tensor.ndim,
                            tensor.dtype, tensor.shape,       tensor.strides,   0};
    return py::capsule(&view->managed, "dltensor", [](PyObject *capsule) {
      if (!PyCapsule_IsValid(capsule, "dltensor")) return;  // somebody took it
      auto *managed = static_cast<Managed *>(PyCapsule_GetPointer(capsule, "dltensor"));
      managed->deleter(managed);
    });
  }

 private:
  struct Shared {
    mycc_tensor tensor;
    decltype(&mycc_tensor_free) free_tensor;
    ~Shared() { free_tensor(&tensor); }
  };
  struct View {
    Managed managed;
    std::shared_ptr<Shared> shared;
  };
  std::shared_ptr<Shared> shared_;
};

py::object loaded_module(const char *name) {
  PyObject *found = PyDict_GetItemString(PyImport_GetModuleDict(), name);  // borrowed
  return found ? py::reinterpret_borrow<py::object>(found) : py::object();
}

// numpy's dtype for a code and a width; a null object: it has none.
const py::object &numpy_dtype(mycc_dtype dtype) {
  static py::object *table[7][17];  // by code and bytes; kept until the process ends
  static const py::object none;
  static const char kinds[] = {'i', 'u', 'f', 0, 0, 'c', 'b'};
  const int bytes = dtype.bits / 8;
  if (dtype.code >= sizeof kinds || !kinds[dtype.code] || bytes > 16) return none;
  py::object *&entry = table[dtype.code][bytes];
  if (!entry) entry = new py::object(py::dtype(std::string(1, kinds[dtype.code]) + std::to_string(bytes)));
  return *entry;
}

struct Owned {
  mycc_tensor tensor;
  decltype(&mycc_tensor_free) free_tensor;
};

py::object to_numpy(mycc_tensor *tensor, decltype(&mycc_tensor_free) free_tensor) {
  py::object dtype = numpy_dtype(tensor->dtype);
  if (tensor->dtype.code == kBfloat) {
    py::object ml_dtypes = loaded_module("ml_dtypes");
    if (!ml_dtypes) return py::cast(DlpackOutput(tensor, free_tensor));
    dtype = py::dtype::from_args(ml_dtypes.attr("bfloat16"));
  }
  auto *owned = new Owned{*tensor, free_tensor};
  tensor->owner = nullptr;
  py::capsule base(owned, [](void *memory) {
    Owned *owned = static_cast<Owned *>(memory);
    owned->free_tensor(&owned->tensor);
    delete owned;
  });
  const py::detail::npy_api &numpy = py::detail::npy_api::get();
  Py_ssize_t shape[MYCC_MAX_RANK];
  for (int d = 0; d < owned->tensor.ndim; ++d) shape[d] = owned->tensor.shape[d];
  constexpr int kWriteable = py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
  PyObject *array = numpy.PyArray_NewFromDescr_(numpy.PyArray_Type_, dtype.release().ptr(), owned->tensor.ndim, shape,
                                                nullptr, owned->tensor.data, kWriteable, nullptr);
  if (!array) throw py::error_already_set();
  numpy.PyArray_SetBaseObject_(array, base.release().ptr());
  return py::reinterpret_steal<py::object>(array);
}

py::object to_framework(const ExchangeApi *api, mycc_tensor *tensor, decltype(&mycc_tensor_free) free_tensor) {
  auto *managed = export_tensor<ManagedVersioned>(tensor, free_tensor);
  managed->version = {mycc::dlpack::kMajor, 0};
  void *object = nullptr;
  if (api->object_from_managed(managed, &object) != 0) {
    managed->deleter(managed);
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(static_cast<PyObject *>(object));
}

// from_dlpack of the framework that a value comes from: torch.from_dlpack, jax.numpy.from_dlpack, ...; null: none.
py::object importer_of(PyObject *value) {
  py::object name = py::getattr(py::handle(reinterpret_cast<PyObject *>(Py_TYPE(value))), "__module__", py::none());
  if (!py::isinstance<py::str>(name)) return {};
  std::string root = name.cast<std::string>();
  root = root.substr(0, root.find('.'));
  if (root == "jaxlib") root = "jax";
  for (const char *part : {"", ".numpy", ".dlpack", ".utils.dlpack"}) {
    py::object module = loaded_module((root + part).c_str());
    if (module && py::hasattr(module, "from_dlpack")) return module.attr("from_dlpack");
  }
  return {};
}

// Makes outputs of the kind of the first input.
class OutputKind {
 public:
  OutputKind(PyObject *const *values, size_t count, decltype(&mycc_tensor_free) free_tensor) : free_(free_tensor) {
    if (count == 0 || is_array(values[0])) return;
    api_ = tensor_type(Py_TYPE(values[0])).api;
    if (!api_) importer_ = importer_of(values[0]);
  }
  py::object make(mycc_tensor *tensor) const {
    if (api_) return to_framework(api_, tensor, free_);
    if (importer_) return importer_(py::cast(DlpackOutput(tensor, free_)));
    return to_numpy(tensor, free_);
  }

 private:
  decltype(&mycc_tensor_free) free_;
  const ExchangeApi *api_ = nullptr;
  py::object importer_;
};

// The outputs of a run; those that no Python object took over are freed.
class Outputs {
 public:
  Outputs(int32_t count, decltype(&mycc_tensor_free) free_tensor) : count_(count), free_(free_tensor) {
    if (count > kFew) many_.resize(size_t(count));
    for (int32_t i = 0; i < count; ++i) data()[i].data = nullptr, data()[i].owner = nullptr;
  }
  ~Outputs() {
    for (int32_t i = 0; i < count_; ++i) free_(&data()[i]);
  }
  Outputs(const Outputs &) = delete;
  Outputs &operator=(const Outputs &) = delete;
  mycc_tensor *data() { return count_ > kFew ? many_.data() : few_; }

 private:
  static constexpr int32_t kFew = 8;
  int32_t count_;
  decltype(&mycc_tensor_free) free_;
  mycc_tensor few_[kFew];
  std::vector<mycc_tensor> many_;
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
