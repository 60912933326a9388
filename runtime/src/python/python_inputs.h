// python_inputs.h: Python's tensors as mycc_tensor: numpy arrays, torch tensors, anything with DLPack; nothing is copied.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <string>
#include <vector>

#include "../call/extent.h"
#include "dlpack_types.h"
#include "python_errors.h"

namespace mycc::binding {

namespace py = pybind11;

using dlpack::ExchangeApi;
using dlpack::Managed;
using dlpack::ManagedVersioned;

constexpr uint8_t kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6;  // DLPack's codes

// Where a model runs, and what a call runs on: the caller's stream, or that of the first tensor on the device.
struct Place {
  bool gpu = false;
  int32_t device = 0;
  bool given = false;  // the caller has named the stream
  bool has_stream = false;
  void *stream = nullptr;
};

struct TensorType;

// The tensors of a call; few of them need no allocation. What keeps borrowed memory alive is dropped with it.
class Inputs {
 public:
  Inputs(PyObject *const *values, size_t count, const Place &place) : count_(count), place_(place) {
    if (count > kFew) many_.resize(count);
    for (size_t i = 0; i < count; ++i) import(values[i], i);
    for (size_t i : later_) import_object(values[i], i);  // the stream is known
  }
  Inputs(const Inputs &) = delete;
  Inputs &operator=(const Inputs &) = delete;

  const mycc_tensor *data() const { return count_ > kFew ? many_.data() : few_; }
  int32_t count() const { return int32_t(count_); }
  const Place &place() const { return place_; }
  // The value that outputs are like: the first one on a device, else the first.
  size_t model_of_outputs() const { return device_value_; }
  bool on_device() const { return on_device_; }
  // Raises unless a call may change the memory of the value that was given.
  void check_writable(PyObject *value, size_t index) const;
  // What the call wrote to the dense copy of a strided tensor on the device, in that tensor; behind the call on its
  // stream.
  void write_back(size_t index) const;

 private:
  static constexpr size_t kFew = 8;

  void import(PyObject *value, size_t index);
  void import_ours(const mycc_tensor &tensor, size_t index);
  bool make_contiguous(PyObject *value, size_t index);
  bool resolve_conj(const TensorType &type, PyObject *value);
  void note_device(size_t index);
  void import_array(PyObject *array, size_t index);
  void import_object(PyObject *value, size_t index);
  void import_capsule(const py::object &capsule, size_t index);
  void fill(const dlpack::Tensor &source, size_t index);
  mycc_tensor &at(size_t index) { return count_ > kFew ? many_[index] : few_[index]; }
  mycc_tensor as_given(size_t index) const;

  // A strided tensor on the device, and the dense copy that the call takes.
  struct Copied {
    size_t index;
    py::object given, dense;
    mycc_tensor tensor;  // as it was given
  };

  size_t count_;
  Place place_;
  bool on_device_ = false;
  size_t device_value_ = 0;
  std::vector<size_t> later_;
  std::vector<size_t> read_only_;  // of those that DLPack describes
  mycc_tensor few_[kFew];
  std::vector<mycc_tensor> many_;
  std::vector<py::object> kept_;
  std::vector<Copied> copied_;
};

inline std::string name_of(PyObject *value) { return Py_TYPE(value)->tp_name; }

[[noreturn]] inline void raise_rank(size_t index, long rank) {
  raise_input(index, " has " + std::to_string(rank) + " dimensions; at most " + std::to_string(MYCC_MAX_RANK) +
                         " are supported");
}

inline bool is_array(PyObject *value) {
  return PyObject_TypeCheck(value, py::detail::npy_api::get().PyArray_Type_);
}

// What a tensor type offers, looked up once for each type.
struct TensorType {
  PyTypeObject *type;
  const ExchangeApi *api;  // functions for exchange in C; NULL: none
  bool negates;            // has torch's lazy negation, of which DLPack knows nothing
};

inline const TensorType &tensor_type(PyTypeObject *type) {
  static std::vector<TensorType> rows;  // few types; they are kept alive
  for (const TensorType &row : rows)
    if (row.type == type) return row;
  const ExchangeApi *api = nullptr;
  PyObject *capsule = PyObject_GetAttrString(reinterpret_cast<PyObject *>(type), "__dlpack_c_exchange_api__");
  if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
    api = static_cast<const ExchangeApi *>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  PyErr_Clear();
  while (api && api->version.major != dlpack::kMajor) api = api->previous;
  if (api && !api->tensor_from_object) api = nullptr;
  Py_XDECREF(capsule);
  Py_INCREF(type);
  rows.push_back({type, api, PyObject_HasAttrString(reinterpret_cast<PyObject *>(type), "resolve_neg") == 1});
  return rows.back();
}

inline bool dense(const dlpack::Tensor &tensor) {
  int64_t step = 1;
  for (int d = tensor.ndim; d-- > 0;) {
    if (tensor.shape[d] == 0) return true;
    if (tensor.strides && tensor.shape[d] != 1 && tensor.strides[d] != step) return false;
    step *= tensor.shape[d];
  }
  return true;
}

inline void Inputs::import(PyObject *value, size_t index) {
  if (is_array(value)) return import_array(value, index);
  const TensorType &type = tensor_type(Py_TYPE(value));
  if (type.negates && py::handle(value).attr("is_neg")().ptr() == Py_True) {
    kept_.push_back(py::handle(value).attr("resolve_neg")());
    value = kept_.back().ptr();
  }
  if (!type.api) {
    return place_.gpu ? later_.push_back(index) : import_object(value, index);
  }
  dlpack::Tensor tensor;
  if (type.api->tensor_from_object(value, &tensor) == 0) {
    if (tensor.dtype.code == kComplex && resolve_conj(type, value)) return import(kept_.back().ptr(), index);
    fill(tensor, index);
    if (tensor.device_type != dlpack::kCuda && tensor.device_type != dlpack::kCudaManaged) return;
    if (place_.gpu && !place_.has_stream) {
      place_.has_stream = true;
      const int failed = type.api->current_stream(tensor.device_type, tensor.device_id, &place_.stream);
      if (failed) throw py::error_already_set();
    }
    note_device(index);
    if (!dense(tensor)) make_contiguous(value, index);
    return;
  }
  py::error_already_set error;  // what the framework says: a sparse layout, a dtype without a DLPack code, ...
  std::string reason = py::str(error.value());
  reason.resize(std::min(reason.size(), reason.find('\n')));  // a stack trace may follow
  raise_input(index, ", a " + name_of(value) + ", cannot be read: " + reason);
}

// torch's lazy conjugation, of which DLPack knows nothing: true when the last of kept_ is the tensor without it.
inline bool Inputs::resolve_conj(const TensorType &type, PyObject *value) {
  if (!type.negates || py::handle(value).attr("is_conj")().ptr() != Py_True) return false;
  kept_.push_back(py::handle(value).attr("resolve_conj")());
  return true;
}

// The memory of an array that the runtime has made (python_outputs.h); NULL: the value is none.
const mycc_tensor *own_tensor(PyObject *value);
void wait_for(const mycc_tensor &tensor, void *stream);

inline void Inputs::note_device(size_t index) {
  if (!on_device_) device_value_ = index;
  on_device_ = true;
}

// A strided tensor on the device as a dense one, by its own framework on the stream of the call. False: it stays as it
// is, and the runtime says what is wrong with it.
inline bool Inputs::make_contiguous(PyObject *value, size_t index) {
  py::handle object(value);
  if (!place_.gpu || place_.given || !py::hasattr(object, "contiguous")) return false;
  copied_.push_back({index, py::reinterpret_borrow<py::object>(object), object.attr("contiguous")(), at(index)});
  import(py::object(copied_.back().dense).ptr(), index);
  return true;
}

inline mycc_tensor Inputs::as_given(size_t index) const {
  for (const Copied &one : copied_)
    if (one.index == index) return one.tensor;
  return data()[index];
}

inline void Inputs::write_back(size_t index) const {
  for (const Copied &one : copied_)
    if (one.index == index) one.given.attr("detach")().attr("copy_")(one.dense);
}

inline void Inputs::import_ours(const mycc_tensor &tensor, size_t index) {
  at(index) = tensor;
  at(index).owner = nullptr;
  if (tensor.device_type != dlpack::kCuda) return;
  note_device(index);
  place_.has_stream = true;
  wait_for(tensor, place_.stream);
}

// numpy's type numbers on Linux.
inline bool dtype_of_number(int number, mycc_dtype *dtype) {
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

inline mycc_dtype dtype_of(PyObject *array, size_t index) {
  PyObject *object = py::detail::array_proxy(array)->descr;
  const auto *descr = py::detail::array_descriptor_proxy(object);
  mycc_dtype dtype;
  bool native = descr->byteorder == '=' || descr->byteorder == '|';
  if (native && dtype_of_number(descr->type_num, &dtype)) return dtype;
  std::string name = py::str(py::handle(object));
  if (native && name == "bfloat16") return {kBfloat, 16, 1};  // of ml_dtypes
  raise_input(index, " has the dtype " + name + ", which no package takes");
}

inline void Inputs::import_array(PyObject *array, size_t index) {
  mycc_tensor &tensor = at(index);
  tensor.dtype = dtype_of(array, index);
  const int64_t bytes = tensor.dtype.bits / 8;
  const py::detail::PyArray_Proxy *proxy = py::detail::array_proxy(array);
  if (proxy->nd > MYCC_MAX_RANK) raise_rank(index, proxy->nd);
  tensor.data = proxy->data;
  tensor.device_type = dlpack::kCpu, tensor.device_id = 0;
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

inline void Inputs::check_writable(PyObject *value, size_t index) const {
  const char *why = nullptr;
  if (!copied_.empty()) {  // the runtime sees the copies: what it asks of the memory is asked here
    const mycc_tensor own = as_given(index);
    if (runtime::is_expanded(own))
      raise_input(index, ": the model writes to it, so its elements must not share memory: pass a copy");
    for (size_t i = 0; i < count_; ++i) {
      if (i != index && runtime::overlap(runtime::extent_of(own), runtime::extent_of(as_given(i))))
        raise_input(index, ": the model writes to it, so it must not share memory with input " + std::to_string(i));
    }
  }
  if (is_array(value)) {
    const py::detail::PyArray_Proxy *proxy = py::detail::array_proxy(value);
    if (!(proxy->flags & py::detail::npy_api::NPY_ARRAY_WRITEABLE_)) why = "is read-only";
    const int64_t bytes = dtype_of(value, index).bits / 8;
    for (int d = 0; d < proxy->nd; ++d)
      if (proxy->strides[d] % bytes) why = "is a field of a structured array";
  } else if (std::find(read_only_.begin(), read_only_.end(), index) != read_only_.end()) {
    why = "is read-only";
  } else {
    const py::handle object(value);
    for (const char *lazy : {"is_neg", "is_conj"})
      if (py::hasattr(object, lazy) && object.attr(lazy)().ptr() == Py_True) why = "is a lazy view";
    if (py::isinstance(object, py::module_::import("numpy").attr("generic"))) why = "is a number, not an array";
  }
  if (why) raise_input(index, std::string(" ") + why + ", but the model writes to it\n  Give it a copy.");
}

// Objects that have DLPack's Python protocol, and numpy's scalars.
inline void Inputs::import_object(PyObject *value, size_t index) {
  if (const mycc_tensor *ours = own_tensor(value)) return import_ours(*ours, index);
  py::handle object(value);
  if (!py::hasattr(object, "__dlpack__")) {
    if (py::isinstance(object, py::module_::import("numpy").attr("generic"))) {
      kept_.push_back(py::array::ensure(object));
      return import_array(kept_.back().ptr(), index);
    }
    raise_input(index, " has to be a numpy array, a torch tensor or have DLPack, not a " + name_of(value));
  }
  py::tuple device = object.attr("__dlpack_device__")();
  const int kind = device[0].cast<int>();
  const bool on_device = kind == dlpack::kCuda || kind == dlpack::kCudaManaged;
  if (kind != dlpack::kCpu && !place_.gpu)
    raise_input(index, " is not on the CPU, where the package runs\n  Copy it to the CPU first.");
  py::object plain = py::hasattr(object, "detach") ? object.attr("detach")() : py::reinterpret_borrow<py::object>(object);
  if (!on_device) return import_capsule(plain.attr("__dlpack__")(), index);
  place_.has_stream = true;
  note_device(index);
  constexpr intptr_t kLegacy = 1;  // DLPack's number of the default stream
  const intptr_t stream = place_.stream ? reinterpret_cast<intptr_t>(place_.stream) : kLegacy;
  import_capsule(plain.attr("__dlpack__")(py::arg("stream") = stream), index);
}

// The capsule is kept, not consumed: when it goes, it frees what it holds.
inline void Inputs::import_capsule(const py::object &capsule, size_t index) {
  kept_.push_back(capsule);
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor"))
    return fill(static_cast<Managed *>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"))->tensor, index);
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    auto *managed = static_cast<ManagedVersioned *>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    constexpr uint64_t kReadOnly = 1;
    if (managed->flags & kReadOnly) read_only_.push_back(index);
    if (managed->version.major == dlpack::kMajor) return fill(managed->tensor, index);
  }
  raise_input(index, " speaks an unknown version of DLPack");
}

inline void Inputs::fill(const dlpack::Tensor &source, size_t index) {
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

}  // namespace mycc::binding
