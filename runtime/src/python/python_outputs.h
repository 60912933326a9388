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

// The functions of libmycc.so that a tensor of the runtime needs. The library is never closed.
struct TensorCalls {
  decltype(&mycc_tensor_free) free;
  decltype(&mycc_tensor_wait) wait;
  decltype(&mycc_tensor_to_host) to_host;
  decltype(&mycc_last_error) last_error;
};

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

// An array of the runtime for those who speak DLPack: other frameworks, bfloat16, which numpy lacks, arrays on a GPU.
class DlpackOutput {
 public:
  DlpackOutput(mycc_tensor *tensor, const TensorCalls &calls) : shared_(new Shared{*tensor, calls}) {
    tensor->owner = nullptr;
  }

  const mycc_tensor &tensor() const { return shared_->tensor; }
  const TensorCalls &calls() const { return shared_->calls; }
  py::tuple shape() const {
    py::tuple result(shared_->tensor.ndim);
    for (int d = 0; d < shared_->tensor.ndim; ++d) result[size_t(d)] = py::int_(shared_->tensor.shape[d]);
    return result;
  }
  py::tuple device() const { return py::make_tuple(shared_->tensor.device_type, shared_->tensor.device_id); }

  // stream: DLPack's number of the consumer's stream (1: the default one; -1: nothing is to be waited for).
  py::capsule dlpack(const py::kwargs &options) const {
    if (shared_->tensor.device_type == dlpack::kCuda) {
      intptr_t stream = 1;
      if (options.contains("stream") && !options["stream"].is_none()) stream = options["stream"].cast<intptr_t>();
      if (stream != -1) wait(reinterpret_cast<void *>(stream));
    }
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

  // Makes a stream wait until the array is written.
  void wait(void *stream) const {
    if (int status = shared_->calls.wait(&shared_->tensor, stream)) raise(status, shared_->calls.last_error());
  }

 private:
  struct Shared {
    mycc_tensor tensor;
    TensorCalls calls;
    ~Shared() { calls.free(&tensor); }
  };
  struct View {
    Managed managed;
    std::shared_ptr<Shared> shared;
  };
  std::shared_ptr<Shared> shared_;
};

inline const mycc_tensor *own_tensor(PyObject *value) {
  static PyTypeObject *type = reinterpret_cast<PyTypeObject *>(py::type::of<DlpackOutput>().release().ptr());
  if (Py_TYPE(value) != type) return nullptr;
  return &py::cast<const DlpackOutput &>(py::handle(value)).tensor();
}

inline const TensorCalls *tensor_calls = nullptr;  // of the latest library; set when it is opened

inline void wait_for(const mycc_tensor &tensor, void *stream) {
  if (int status = tensor_calls->wait(&tensor, stream)) raise(status, tensor_calls->last_error());
}

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

inline py::object to_numpy(mycc_tensor *tensor, const TensorCalls &calls) {
  py::object dtype = numpy_dtype(tensor->dtype);
  if (tensor->dtype.code == kBfloat) {
    py::object ml_dtypes = loaded_module("ml_dtypes");
    if (!ml_dtypes) return py::cast(DlpackOutput(tensor, calls));
    dtype = py::dtype::from_args(ml_dtypes.attr("bfloat16"));
  }
  auto *owned = new Owned{*tensor, calls.free};
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

// Makes outputs of the kind of an input.
class OutputKind {
 public:
  OutputKind(PyObject *const *values, size_t count, const Inputs &inputs, const TensorCalls &calls) : calls_(calls) {
    if (count == 0) return;
    PyObject *value = values[inputs.model_of_outputs()];
    if (is_array(value)) return;
    ours_ = own_tensor(value) != nullptr;
    if (!ours_) api_ = tensor_type(Py_TYPE(value)).api;
    if (!ours_ && !api_) importer_ = importer_of(value);
  }
  const ExchangeApi *api() const { return api_; }
  py::object make(mycc_tensor *tensor) const {
    if (api_) return to_framework(api_, tensor, calls_.free);
    const bool host = tensor->device_type == dlpack::kCpu;
    if (!host && (ours_ || !importer_)) return py::cast(DlpackOutput(tensor, calls_));
    if (importer_) return importer_(py::cast(DlpackOutput(tensor, calls_)));
    return to_numpy(tensor, calls_);
  }

 private:
  const TensorCalls &calls_;
  const ExchangeApi *api_ = nullptr;
  bool ours_ = false;
  py::object importer_;
};

// The outputs of a run; those that no Python object took over are freed. On a GPU the framework of the inputs may
// allocate them: then their memory is a part of its own, in the order of its stream.
class Outputs {
 public:
  Outputs(int32_t count, const TensorCalls &calls) : count_(count), calls_(calls) {
    if (count > kFew) many_.resize(size_t(count)), many_managed_.resize(size_t(count));
    for (int32_t i = 0; i < count; ++i) {
      data()[i].data = nullptr, data()[i].owner = nullptr;
      managed()[i] = nullptr;
    }
  }
  ~Outputs() {
    for (int32_t i = 0; i < count_; ++i) {
      calls_.free(&data()[i]);
      if (ManagedVersioned *left = managed()[i]) left->deleter(left);
    }
  }
  Outputs(const Outputs &) = delete;
  Outputs &operator=(const Outputs &) = delete;
  mycc_tensor *data() { return count_ > kFew ? many_.data() : few_; }

  // The options of a run whose outputs the framework allocates.
  void allocate_by(const ExchangeApi *api, mycc_run_options *options) {
    api_ = api;
    options->allocate = allocate;
    options->ctx = this;
  }
  py::object take(int32_t i, const OutputKind &kind) {
    ManagedVersioned *&made = managed()[i];
    if (!made) return kind.make(&data()[i]);
    void *object = nullptr;
    ManagedVersioned *given = made;
    made = nullptr;
    if (api_->object_from_managed(given, &object) != 0) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(static_cast<PyObject *>(object));
  }

 private:
  static constexpr int32_t kFew = 8;
  static void ignore(void *, const char *, const char *) {}
  static int allocate(void *ctx, int32_t index, mycc_tensor *tensor) {
    Outputs *self = static_cast<Outputs *>(ctx);
    dlpack::Tensor wanted{nullptr,       tensor->device_type, tensor->device_id, tensor->ndim,
                          tensor->dtype, tensor->shape,       tensor->strides,   0};
    ManagedVersioned *&made = self->managed()[index];
    if (self->api_->allocate(&wanted, &made, nullptr, ignore) != 0) return 1;
    tensor->data = static_cast<char *>(made->tensor.data) + made->tensor.byte_offset;
    return 0;
  }
  ManagedVersioned **managed() { return count_ > kFew ? many_managed_.data() : few_managed_; }

  int32_t count_;
  const TensorCalls &calls_;
  const ExchangeApi *api_ = nullptr;
  mycc_tensor few_[kFew];
  ManagedVersioned *few_managed_[kFew];
  std::vector<mycc_tensor> many_;
  std::vector<ManagedVersioned *> many_managed_;
};

}  // namespace mycc::binding
