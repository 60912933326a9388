"""Handles of the C API at their edges: NULL, unloaded, used by several threads, given again after a failure."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .packages import NAMES
from .test_c_api import INPUT, OK, RUN, Dtype, Tensor, c, handle, run, tensor  # noqa: F401

GONE = b"the model was unloaded"


def load(c: Any, path: Path) -> ctypes.c_void_p:  # noqa: F811
    model = ctypes.c_void_p()
    assert c.mycc_load_file(os.fsencode(path), None, ctypes.byref(model)) == OK
    return model


def calls(c: Any, model: Any) -> dict[str, Callable[[], Any]]:  # noqa: F811
    """Every function of a model."""
    place, x, y = ctypes.c_void_p(), tensor(np.ones((3, 4), np.float32)), Tensor()
    x_, y_ = ctypes.byref(x), ctypes.byref(y)
    numbers = (ctypes.c_int64 * 2)()
    return {
        "model_manifest": lambda: c.mycc_model_manifest(model),
        "model_target": lambda: c.mycc_model_target(model),
        "model_device": lambda: c.mycc_model_device(model, None, None) and None,
        "model_threads": lambda: c.mycc_model_threads(model),
        "entry_count": lambda: c.mycc_entry_count(model),
        "entry_name": lambda: c.mycc_entry_name(model, 0),
        "entry_find": lambda: c.mycc_entry_find(model, b"affine") + 1,
        "input_count": lambda: c.mycc_input_count(model, 0),
        "output_count": lambda: c.mycc_output_count(model, 0),
        "input": lambda: c.mycc_input(model, 0, 0),
        "output": lambda: c.mycc_output(model, 0, 0),
        "symbol_count": lambda: c.mycc_symbol_count(model, 0),
        "symbol_at": lambda: c.mycc_symbol_at(model, 0, 0),
        "kernel_count": lambda: c.mycc_kernel_count(model, 0),
        "kernel_name": lambda: c.mycc_kernel_name(model, 0, 0),
        "state_count": lambda: c.mycc_state_count(model),
        "state_port": lambda: c.mycc_state_port(model, 0),
        "input_written": lambda: c.mycc_input_written(model, 0, 0),
        "seed": lambda: c.mycc_seed(model, ctypes.c_uint64(3)) and None,
        "unload": lambda: c.mycc_unload(model) and None,
        "run": lambda: c.mycc_run(model, 0, x_, 1, y_, 1),
        "run_with": lambda: c.mycc_run_with(model, 0, x_, 1, y_, 1, None),
        "synchronize": lambda: c.mycc_synchronize(model),
        "tensor_to_device": lambda: c.mycc_tensor_to_device(model, x_, y_),
        "state_new": lambda: c.mycc_state_new(model, ctypes.byref(place)),
        "state_reset": lambda: c.mycc_state_reset(model, None),
        "state_read": lambda: c.mycc_state_read(model, None, 0, y_),
        "state_write": lambda: c.mycc_state_write(model, None, 0, x_),
        "state_view": lambda: c.mycc_state_view(model, None, 0, y_),
        "profile": lambda: c.mycc_profile(model, 0, x_, 1, 1, numbers, 1),
        "memory": lambda: c.mycc_memory(model, 0, x_, 1, ctypes.byref(numbers, 0), ctypes.byref(numbers, 8)),
    }


def last_error(c: Any) -> bytes:  # noqa: F811
    return bytes(c.mycc_last_error())


@pytest.mark.parametrize("unloaded", [False, True])
def test_no_function_takes_a_model_that_is_null_or_unloaded(c: Any, package_file: Path, unloaded: bool) -> None:  # noqa: F811
    model = load(c, package_file) if unloaded else ctypes.c_void_p()
    c.mycc_unload(model)
    for name, call in calls(c, model).items():
        result = call()
        if name in list(calls(c, model))[20:]:
            assert (name, result) == (name, INPUT)
            assert last_error(c) == (GONE if unloaded else b"the model is NULL"), name
        else:
            assert not result, name


def test_null_beside_the_model(c: Any, handle: Any) -> None:  # noqa: F811
    for function, arguments in {
        "tensor_wait": (None, None),
        "tensor_to_host": (None, None, 0),
        "tensor_to_device": (handle, None, None),
        "state_new": (handle, None),
        "state_read": (handle, None, 0, None),
        "state_write": (handle, None, 0, None),
        "state_view": (handle, None, 0, None),
        "memory": (handle, 0, None, 1, None, None),
        "profile": (handle, 0, None, 1, 1, None, 1),
    }.items():
        assert getattr(c, f"mycc_{function}")(*arguments) == INPUT, function
    c.mycc_state_free(None)
    c.mycc_model_device(handle, None, None)
    assert c.mycc_entry_find(handle, None) == -1


def test_a_model_is_unloaded_while_it_runs(c: Any, package_file: Path) -> None:  # noqa: F811
    """Calls under way end as they would; later ones are refused; the last one takes the model down."""
    for _ in range(5):
        model, results, begun = load(c, package_file), [], threading.Barrier(5)

        def caller(model: Any = model, results: list[Any] = results, begun: Any = begun) -> None:
            x = np.arange(40_000)
            want, output, given = None, Tensor(), (Tensor * 1)(tensor(x))
            begun.wait()
            while True:
                made = (Tensor * 1)(output)
                status = c.mycc_run(model, NAMES["interleave"], given, 1, made, 1)
                if status != OK:
                    results.append((status, last_error(c)))
                    return
                got = np.ctypeslib.as_array(ctypes.cast(made[0].data, ctypes.POINTER(ctypes.c_int64)), (x.size,)).copy()
                want = got if want is None else want
                if not np.array_equal(got, want):
                    results.append("wrong")
                c.mycc_tensor_free(made)

        threads = [threading.Thread(target=caller) for _ in range(4)]
        for thread in threads:
            thread.start()
        begun.wait()
        threading.Event().wait(0.05)
        c.mycc_unload(model)
        for thread in threads:
            thread.join()
        assert results == [(INPUT, GONE)] * 4


def test_outputs_of_an_earlier_call_outlive_a_failing_one(c: Any, handle: Any) -> None:  # noqa: F811
    outputs = [Tensor()]
    assert run(c, handle, "lookup", [tensor(np.array([1, 2]))], outputs)[0] == OK
    data, owner = outputs[0].data, outputs[0].owner
    for wrong in (np.array([1, 9]), np.array([1, 2, 3]), np.array([1.0, 2.0], np.float32)):
        assert run(c, handle, "lookup", [tensor(wrong)], outputs)[0] == INPUT
        assert (outputs[0].data, outputs[0].owner) == (data, owner)
    assert run(c, handle, "lookup", [tensor(np.array([3, 0]))], outputs)[0] == OK
    values = np.ctypeslib.as_array(ctypes.cast(outputs[0].data, ctypes.POINTER(ctypes.c_float)), (2,))
    np.testing.assert_array_equal(values, [8.0, 0.5])
    c.mycc_tensor_free(ctypes.byref(outputs[0]))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("ndim", 99, b"the tensor has 99 dimensions; there may be 16"),
        ("ndim", -1, b"the tensor has -1 dimensions; there may be 16"),
        ("dtype", Dtype(2, 0, 1), b"the tensor has elements of 0 bits"),
        ("dtype", Dtype(2, 24, 1), b"the tensor has elements of 24 bits"),
        ("data", None, b"the tensor has no data"),
        ("device_type", 77, None),
    ],
)
def test_tensors_to_copy(c: Any, handle: Any, field: str, value: Any, message: bytes | None) -> None:  # noqa: F811
    given, target = tensor(np.ones((3, 4), np.float32)), np.empty(12, np.float32)
    setattr(given, field, value)
    made = Tensor()
    assert c.mycc_tensor_to_device(handle, ctypes.byref(given), ctypes.byref(made)) == INPUT
    assert message is None or last_error(c) == message
    assert c.mycc_tensor_to_host(ctypes.byref(given), ctypes.c_void_p(target.ctypes.data), target.nbytes) == INPUT
    assert message is None or last_error(c) == message
    assert made.data is None
