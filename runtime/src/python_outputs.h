// python_outputs.h: outputs of the runtime as Python's tensors, of the kind of the first input; they own the memory.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "dlpack_types.h"
#include "python_inputs.h"

namespace mycc::binding {

namespace py = pybind11;

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
  static py::tuple device() { return py::make_tuple(dlpack::kCpu, 0); }

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

inline py::object loaded_module(const char *name) {
  PyObject *found = PyDict_GetItemString(PyImport_GetModuleDict(), name);  // borrowed
  return found ? py::reinterpret_borrow<py::object>(found) : py::object();
}

// numpy's dtype for a code and a width; a null object: it has none.
inline const py::object &numpy_dtype(mycc_dtype dtype) {
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

inline py::object to_numpy(mycc_tensor *tensor, decltype(&mycc_tensor_free) free_tensor) {
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

inline py::object to_framework(const ExchangeApi *api, mycc_tensor *tensor, decltype(&mycc_tensor_free) free_tensor) {
  auto *managed = export_tensor<ManagedVersioned>(tensor, free_tensor);
  managed->version = {dlpack::kMajor, 0};
  void *object = nullptr;
  if (api->object_from_managed(managed, &object) != 0) {
    managed->deleter(managed);
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(static_cast<PyObject *>(object));
}

// from_dlpack of the framework that a value comes from: torch.from_dlpack, jax.numpy.from_dlpack, ...; null: none.
inline py::object importer_of(PyObject *value) {
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

}  // namespace mycc::binding
