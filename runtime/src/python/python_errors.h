// python_errors.h: the C API's failures as Python exceptions.
#pragma once

#include <pybind11/pybind11.h>

#include <cstring>
#include <string>

#include "mycc/model.h"

namespace mycc::binding {

namespace py = pybind11;

inline PyObject *error_types[MYCC_ERROR_RUN + 1];  // by code; set by set_errors()

[[noreturn]] inline void raise(int code, const char *text) {
  PyObject *type = code >= 0 && code <= MYCC_ERROR_RUN && error_types[code] ? error_types[code] : PyExc_RuntimeError;
  // a damaged package may put any bytes into the text
  auto message = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(text, Py_ssize_t(strlen(text)), "replace"));
  PyErr_SetObject(type, message.ptr());
  throw py::error_already_set();
}

[[noreturn]] inline void raise_input(const std::string &text) { raise(MYCC_ERROR_INPUT, text.c_str()); }

// An input that is known by its number alone: InputError.input and .finding let the caller name it.
[[noreturn]] inline void raise_input(size_t index, const std::string &finding) {
  const auto type = py::reinterpret_borrow<py::object>(error_types[MYCC_ERROR_INPUT]);
  const auto text = [](const std::string &s) {
    return py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(s.data(), Py_ssize_t(s.size()), "replace"));
  };
  if (!type) raise_input("input " + std::to_string(index) + finding);
  py::object error = type(text("input " + std::to_string(index) + finding));
  error.attr("input") = index;
  error.attr("finding") = text(finding);
  PyErr_SetObject(type.ptr(), error.ptr());
  throw py::error_already_set();
}

inline void set_errors(const py::object &load, const py::object &input, const py::object &run) {
  const py::object *types[] = {nullptr, &load, &input, &run};
  for (int code = MYCC_ERROR_LOAD; code <= MYCC_ERROR_RUN; ++code) {
    Py_XDECREF(error_types[code]);
    error_types[code] = types[code]->inc_ref().ptr();
  }
}

}  // namespace mycc::binding
