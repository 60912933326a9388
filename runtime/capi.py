"""libmycc.so through ctypes: the C API of model.h with the same methods as the pybind11 module `_binding`.

Serves interpreters for which no `_binding` was built. A call costs some ten microseconds more.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from threading import get_ident, main_thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dlpack import (
    CPU,
    CUDA,
    CUDA_MANAGED,
    DataType,
    DlpackArray,
    ManagedTensor,
    dense_strides,
    export,
    managed_tensor,
)
from .errors import Error, InputError, LoadError, RunError

__all__ = ["Library", "Model"]

MAX_RANK = 16
_BFLOAT = 4
_ERRORS: dict[int, type[Error]] = {1: LoadError, 2: InputError, 3: RunError}
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}  # numpy's kind -> DLPack's code
_KINDS = {0: "i", 1: "u", 2: "f", 4: "u", 6: "b"}


class _Tensor(ctypes.Structure):
    """mycc_tensor."""

    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("dtype", DataType),
        ("shape", c_int64 * MAX_RANK),
        ("strides", c_int64 * MAX_RANK),
        ("owner", c_void_p),
    ]


class _LoadOptions(ctypes.Structure):
    """mycc_load_options."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("threads", c_int32),
        ("check_full", c_int32),
        ("target", c_char_p),
        ("device", c_char_p),
        ("launch", c_char_p),
        ("copy", c_int32),
    ]


class _RunOptions(ctypes.Structure):
    """mycc_run_options."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("has_stream", c_int32),
        ("stream", c_void_p),
        ("allocate", c_void_p),
        ("ctx", c_void_p),
        ("has_seed", c_int32),
        ("seed", ctypes.c_uint64),
        ("state", c_void_p),
        ("interrupted", c_void_p),
    ]


class _CudaDevice(ctypes.Structure):
    """mycc_cuda_device."""

    _fields_ = [
        ("name", c_char_p),
        ("major", c_int32),
        ("minor", c_int32),
        ("multiprocessors", c_int32),
        ("l2_bytes", c_int32),
        ("shared_bytes", c_int32),
        ("memory", ctypes.c_uint64),
    ]


_HANDLE, _TENSORS = c_void_p, POINTER(_Tensor)
_PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "mycc_load_file": (c_int, (c_char_p, POINTER(_LoadOptions), POINTER(_HANDLE))),
    "mycc_load_memory": (c_int, (c_void_p, c_size_t, POINTER(_LoadOptions), POINTER(_HANDLE))),
    "mycc_unload": (None, (_HANDLE,)),
    "mycc_last_error": (c_char_p, ()),
    "mycc_version": (c_char_p, ()),
    "mycc_model_manifest": (c_char_p, (_HANDLE,)),
    "mycc_model_target": (c_char_p, (_HANDLE,)),
    "mycc_model_threads": (c_int32, (_HANDLE,)),
    "mycc_entry_count": (c_int32, (_HANDLE,)),
    "mycc_entry_name": (c_char_p, (_HANDLE, c_int32)),
    "mycc_input_count": (c_int32, (_HANDLE, c_int32)),
    "mycc_output_count": (c_int32, (_HANDLE, c_int32)),
    "mycc_input": (POINTER(c_char_p), (_HANDLE, c_int32, c_int32)),  # a mycc_port begins with its name
    "mycc_model_device": (None, (_HANDLE, POINTER(c_int32), POINTER(c_int32))),
    "mycc_kernel_count": (c_int32, (_HANDLE, c_int32)),
    "mycc_kernel_name": (c_char_p, (_HANDLE, c_int32, c_int32)),
    "mycc_run_with": (c_int, (_HANDLE, c_int32, _TENSORS, c_int32, _TENSORS, c_int32, POINTER(_RunOptions))),
    "mycc_seed": (None, (_HANDLE, ctypes.c_uint64)),
    "mycc_synchronize": (c_int, (_HANDLE,)),
    "mycc_state_new": (c_int, (_HANDLE, POINTER(c_void_p))),
    "mycc_state_free": (None, (c_void_p,)),
    "mycc_state_reset": (c_int, (_HANDLE, c_void_p)),
    "mycc_state_read": (c_int, (_HANDLE, c_void_p, c_int32, _TENSORS)),
    "mycc_state_write": (c_int, (_HANDLE, c_void_p, c_int32, _TENSORS)),
    "mycc_state_view": (c_int, (_HANDLE, c_void_p, c_int32, _TENSORS)),
    "mycc_input_written": (c_int32, (_HANDLE, c_int32, c_int32)),
    "mycc_tensor_free": (None, (_TENSORS,)),
    "mycc_tensor_wait": (c_int, (_TENSORS, c_void_p)),
    "mycc_tensor_to_device": (c_int, (_HANDLE, _TENSORS, _TENSORS)),
    "mycc_tensor_to_host": (c_int, (_TENSORS, c_void_p, c_size_t)),
    "mycc_cuda_count": (c_int32, ()),
    "mycc_cuda_problem": (c_char_p, ()),
    "mycc_cuda_device_at": (c_int, (c_int32, POINTER(_CudaDevice))),
    "mycc_cuda_copy_speed": (c_int, (c_int32, c_size_t, POINTER(ctypes.c_double))),
    "mycc_profile": (c_int, (_HANDLE, c_int32, _TENSORS, c_int32, c_int32, POINTER(c_int64), c_int32)),
    "mycc_memory": (c_int, (_HANDLE, c_int32, _TENSORS, c_int32, POINTER(c_int64), POINTER(c_int64))),
}


class Library:
    """libmycc.so, loaded from `path`."""

    def __init__(self, path: str) -> None:
        try:
            self.c = ctypes.CDLL(path)
            for name, (result, arguments) in _PROTOTYPES.items():
                function = getattr(self.c, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as error:
            raise LoadError(f"cannot load libmycc.so: {error}") from None
        self.version: str = self.c.mycc_version().decode()

    def check(self, status: int) -> None:
        """Raises the error that a function of the C API reported."""
        if status:
            raise _ERRORS.get(status, RunError)(self.c.mycc_last_error().decode("utf-8", "replace"))

    def load_file(
        self, path: str, threads: int = 0, check_full: bool = False, target: str | None = None,
        device: str | None = None, launch: str | None = None, copy: bool = False,
    ) -> Model:  # fmt: skip
        options, handle = _options(threads, check_full, copy, target, device, launch), _HANDLE()
        self.check(self.c.mycc_load_file(os.fsencode(path), byref(options), byref(handle)))
        return Model(self, handle, None)

    def load_memory(
        self, data: Any, threads: int = 0, check_full: bool = False, target: str | None = None,
        device: str | None = None, launch: str | None = None, copy: bool = False,
    ) -> Model:  # fmt: skip
        options, handle = _options(threads, check_full, copy, target, device, launch), _HANDLE()
        array = np.frombuffer(data, np.uint8)
        self.check(self.c.mycc_load_memory(array.ctypes.data, array.size, byref(options), byref(handle)))
        return Model(self, handle, array)

    @property
    def cuda_problem(self) -> str:
        """Why this machine has no NVIDIA device; empty when it has one."""
        return str(self.c.mycc_cuda_problem().decode())

    def cuda_copy_speed(self, device: int, bytes: int) -> float:
        """Bytes a second of copies within a device's memory, each counted twice."""
        speed = ctypes.c_double()
        self.check(self.c.mycc_cuda_copy_speed(device, bytes, byref(speed)))
        return speed.value

    def cuda_devices(self) -> list[tuple[Any, ...]]:
        """(name, major, minor, multiprocessors, L2 bytes, shared bytes, memory) of every NVIDIA device."""
        rows = []
        for i in range(self.c.mycc_cuda_count()):
            d = _CudaDevice()
            self.check(self.c.mycc_cuda_device_at(i, byref(d)))
            name = d.name.decode()
            rows.append((name, d.major, d.minor, d.multiprocessors, d.l2_bytes, d.shared_bytes, d.memory))
        return rows


def _options(threads: int, check_full: bool, copy: bool, *names: str | None) -> _LoadOptions:
    texts = [None if name is None else name.encode() for name in names]
    return _LoadOptions(ctypes.sizeof(_LoadOptions), threads, int(check_full), *texts, int(copy))


class Model:
    """A loaded package: runs on flat lists of tensors."""

    def __init__(self, library: Library, handle: c_void_p, memory: Any) -> None:
        self._library, self._c, self._handle = library, library.c, handle
        self._memory = memory  # the package's bytes have to outlive the model
        self.handle: int = handle.value or 0  # the address of the mycc_model
        self.manifest: str = self._c.mycc_model_manifest(handle).decode()
        self.target: str = self._c.mycc_model_target(handle).decode()
        self.threads: int = self._c.mycc_model_threads(handle)
        kind, number = c_int32(), c_int32()
        self._c.mycc_model_device(handle, byref(kind), byref(number))
        self.device = "cpu" if kind.value == CPU else f"cuda:{number.value}"

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._c.mycc_unload(self._handle)

    def run(
        self, entry: int, tensors: Sequence[Any], stream: Any = None, seed: int | None = None, state: Any = None
    ) -> list[Any]:
        """Outputs of an entry point, of the kind of the first input, or of the first on a GPU."""
        place = _Place(self.device != "cpu", stream)
        inputs, _keep = self._import(entry, tensors, place)
        for index, value in enumerate(tensors):
            if self._c.mycc_input_written(self._handle, entry, index):
                _check_writable(value, index)
        outputs = (_Tensor * max(1, self._c.mycc_output_count(self._handle, entry)))()
        count = self._c.mycc_output_count(self._handle, entry)
        number = 0 if seed is None else _seed(seed)
        options = _RunOptions(
            ctypes.sizeof(_RunOptions), int(place.has_stream), place.stream, None, None, int(seed is not None), number,
            _state_handle(state), None,
        )  # fmt: skip
        with _Interruptible(options):
            status = self._c.mycc_run_with(self._handle, entry, inputs, len(tensors), outputs, count, byref(options))
        self._library.check(status)
        arrays = [_adopt(self._library, outputs[i]) for i in range(count)]
        torch = sys.modules.get("torch")
        if torch is not None and tensors and isinstance(tensors[place.device_value], torch.Tensor):
            return [torch.from_dlpack(array) for array in arrays]
        return arrays

    def _import(self, entry: int, tensors: Sequence[Any], place: _Place) -> tuple[Any, list[Any]]:
        """The inputs as mycc_tensor, and what keeps their memory alive."""
        inputs, kept = (_Tensor * max(1, len(tensors)))(), []
        for index, value in enumerate(tensors):
            try:
                kept.append(_import(inputs[index], value, place))
            except _Unfit as reason:
                port = self._c.mycc_input(self._handle, entry, index)
                name = port[0].decode() if port else f"input {index}"
                raise InputError(f"{name}: {reason}") from reason.__cause__
            if inputs[index].device_type == CUDA:
                place.note(index)
        return inputs, kept

    def kernels(self, entry: int) -> list[str]:
        """Names of the kernels, in the order of their times."""
        count = self._c.mycc_kernel_count(self._handle, entry)
        return [self._c.mycc_kernel_name(self._handle, entry, i).decode() for i in range(count)]

    def profile(self, entry: int, tensors: Sequence[Any], runs: int) -> list[int]:
        """Nanoseconds of each kernel."""
        inputs, _keep = self._import(entry, tensors, _Place(self.device != "cpu"))
        count = self._c.mycc_kernel_count(self._handle, entry)
        times = (c_int64 * max(1, count))()
        status = self._c.mycc_profile(self._handle, entry, inputs, len(tensors), runs, times, count)
        self._library.check(status)
        return list(times[:count])

    def memory(self, entry: int, tensors: Sequence[Any]) -> tuple[int, int]:
        """Bytes of the arena and the largest sum of live bytes."""
        inputs, _keep = self._import(entry, tensors, _Place(self.device != "cpu"))
        arena, live = c_int64(), c_int64()
        status = self._c.mycc_memory(self._handle, entry, inputs, len(tensors), byref(arena), byref(live))
        self._library.check(status)
        return arena.value, live.value

    def seed(self, value: int) -> None:
        """The seed of the next call that names none."""
        self._c.mycc_seed(self._handle, _seed(value))

    def new_state(self) -> StateHandle:
        """A state with the first values."""
        handle = c_void_p()
        self._library.check(self._c.mycc_state_new(self._handle, byref(handle)))
        return StateHandle(self, handle)

    def state_reset(self, state: StateHandle | None) -> None:
        """Back to the first values; None: the model's own."""
        self._library.check(self._c.mycc_state_reset(self._handle, _state_handle(state)))

    def state_read(self, state: StateHandle | None, index: int) -> Any:
        """A copy of a tensor of a state."""
        made = _Tensor()
        self._library.check(self._c.mycc_state_read(self._handle, _state_handle(state), index, byref(made)))
        return _adopt(self._library, made)

    def state_write(self, state: StateHandle | None, index: int, array: Any) -> None:
        """Sets a tensor of a state."""
        source = _Tensor()
        try:
            _keep = _import(source, array, _Place(self.device != "cpu"))
        except _Unfit as reason:
            raise InputError(f"the new value: {reason}") from reason.__cause__
        self._library.check(self._c.mycc_state_write(self._handle, _state_handle(state), index, byref(source)))

    def state_view(self, state: StateHandle | None, index: int) -> Any:
        """The tensor itself."""
        made = _Tensor()
        self._library.check(self._c.mycc_state_view(self._handle, _state_handle(state), index, byref(made)))
        return _adopt(self._library, made)

    def synchronize(self) -> None:
        """Waits for all calls on a GPU; raises what failed there."""
        self._library.check(self._c.mycc_synchronize(self._handle))

    def to_device(self, array: Any) -> DeviceOutput | Any:
        """A copy where the model runs."""
        source, target = _Tensor(), _Tensor()
        _keep = _import(source, array, _Place(False))
        self._library.check(self._c.mycc_tensor_to_device(self._handle, byref(source), byref(target)))
        return _adopt(self._library, target)


_INTERRUPTED = ctypes.CFUNCTYPE(c_int, c_void_p)


class _Interruptible:
    """Around a run: a signal whose handler raises ends it, with what was raised. Python runs handlers in its
    main thread alone."""

    def __init__(self, options: _RunOptions) -> None:
        self._raised: BaseException | None = None
        self._function = _INTERRUPTED(self._ask)  # kept until the run has ended
        self._hook: Any = None
        self._main = main_thread().ident
        if get_ident() == self._main:
            options.interrupted = ctypes.cast(self._function, c_void_p)

    def _ask(self, _: Any) -> int:
        return int(self._raised is not None)  # a handler runs before the first instruction of this function

    def _note(self, unraisable: Any) -> None:
        """What a handler raises has no caller in Python to go to."""
        if get_ident() != self._main:
            self._hook(unraisable)
        elif self._raised is None:
            self._raised = unraisable.exc_value

    def __enter__(self) -> None:
        if get_ident() == self._main:
            self._hook, sys.unraisablehook = sys.unraisablehook, self._note

    def __exit__(self, *_: Any) -> None:
        if self._hook is not None:
            sys.unraisablehook = self._hook
        if self._raised is not None:
            raise self._raised


def _seed(value: object) -> int:
    """A whole number of any sign; its lowest 64 bits count."""
    if not isinstance(value, int):
        raise InputError(f"seed has to be a whole number, not a {type(value).__name__}")
    return value & (2**64 - 1)


class StateHandle:
    """A state of a model, beside its own."""

    __slots__ = ("_model", "handle")

    def __init__(self, model: Model, handle: c_void_p) -> None:
        self._model, self.handle = model, handle

    def __del__(self) -> None:
        self._model._c.mycc_state_free(self.handle)


def _state_handle(state: StateHandle | None) -> c_void_p | None:
    return None if state is None else state.handle


def _check_writable(value: Any, index: int) -> None:
    """Raises unless a call may change the value's memory."""
    why = ""
    if isinstance(value, np.generic):
        why = "is a number, not an array"
    elif isinstance(value, np.ndarray):
        if any(stride % value.dtype.itemsize for stride in value.strides):
            why = "is a field of a structured array"
        elif not value.flags.writeable:
            why = "is read-only"
    if why:
        raise InputError.of_input(index, f" {why}, but the model writes to it", "Give it a copy.")


class _Place:
    """What a call works on: the caller's stream, and which input the outputs are like."""

    def __init__(self, gpu: bool, stream: Any = None) -> None:
        self.gpu, self.has_stream, self.stream = gpu, stream is not None, 0
        self.device_value, self._found = 0, False
        if stream is None:
            return
        if not gpu:
            raise InputError("a package that runs on the CPU takes no stream")
        for name in ("cuda_stream", "ptr", "__cuda_stream__"):
            if hasattr(stream, name):
                stream = getattr(stream, name)
                stream = stream()[1] if callable(stream) else stream
                break
        if not isinstance(stream, int):
            kind = type(stream).__name__
            raise InputError(f"stream has to be a CUDA stream of torch or cupy, or its address, not a {kind}")
        self.stream = stream

    def note(self, index: int) -> None:
        """An input lies on the device."""
        self.has_stream = True
        if not self._found:
            self._found, self.device_value = True, index


class _Unfit(Exception):
    """Why a value cannot be an input; the caller knows its name."""


def _import(target: _Tensor, value: Any, place: _Place) -> Any:
    """Describes a value's memory in `target`; returns what keeps that memory alive."""
    if isinstance(value, np.ndarray | np.generic):
        return _import_numpy(target, np.asarray(value))
    if not hasattr(value, "__dlpack__"):
        raise _Unfit(f"has to be a numpy array, a torch tensor or anything with DLPack, not a {type(value).__name__}")
    on_device = place.gpu and next(iter(value.__dlpack_device__())) in (CUDA, CUDA_MANAGED)
    try:
        plain = value.detach() if hasattr(value, "detach") else value
        # the producer makes our stream wait for its own; 1 is the default stream
        managed, capsule = managed_tensor(plain, (place.stream or 1) if on_device else None)
    except Exception as error:
        raise _Unfit(f"its DLPack export failed: {error}") from error
    tensor = managed.tensor
    _check_rank(tensor.ndim)
    target.data = (tensor.data or 0) + tensor.byte_offset
    target.device_type, target.device_id = tensor.device_type, tensor.device_id
    target.ndim, target.dtype = tensor.ndim, tensor.dtype
    target.shape[: tensor.ndim] = tensor.shape[: tensor.ndim]
    strides = tensor.strides[: tensor.ndim] if tensor.strides else dense_strides(tensor.shape[: tensor.ndim])
    target.strides[: tensor.ndim] = strides
    return capsule


def _import_numpy(target: _Tensor, array: NDArray[Any]) -> Any:
    dtype = array.dtype
    if dtype.kind not in _CODES or not dtype.isnative:
        raise _Unfit(f"dtype is {dtype}, which no package takes")
    _check_rank(array.ndim)
    if any(stride % dtype.itemsize for stride in array.strides):
        array = np.ascontiguousarray(array)  # fields of a structured array: no stride in elements describes them
    target.data = array.__array_interface__["data"][0]
    target.device_type, target.ndim = CPU, array.ndim
    target.dtype = DataType(_CODES[dtype.kind], 8 * dtype.itemsize, 1)
    target.shape[: array.ndim] = array.shape
    target.strides[: array.ndim] = [stride // dtype.itemsize for stride in array.strides]
    return array


def _check_rank(rank: int) -> None:
    if rank > MAX_RANK:
        raise _Unfit(f"has {rank} dimensions; no package takes more than {MAX_RANK}")


class _Output:
    """Memory of the runtime, as numpy reads it; given back when the last array over it is gone."""

    __slots__ = ("__array_interface__", "_library", "_tensor")

    def __init__(self, library: Library, tensor: _Tensor, interface: dict[str, Any]) -> None:
        self._library, self._tensor = library, tensor
        self.__array_interface__ = interface

    def __del__(self) -> None:
        self._library.c.mycc_tensor_free(byref(self._tensor))


class DeviceOutput:
    """An array of the runtime in the memory of a GPU, for those who speak DLPack; numpy() copies it to the host."""

    __slots__ = ("_library", "_tensor")

    def __init__(self, library: Library, tensor: _Tensor) -> None:
        self._library, self._tensor = library, tensor

    def __del__(self) -> None:
        self._library.c.mycc_tensor_free(byref(self._tensor))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._tensor.shape[: self._tensor.ndim])

    def numpy(self) -> NDArray[Any]:
        """A copy in host memory; bfloat16 as ml_dtypes has it."""
        code, size = self._tensor.dtype.code, self._tensor.dtype.bits // 8
        made = np.empty(self.shape, f"{_KINDS[code]}{size}")
        c = self._library.c
        self._library.check(c.mycc_tensor_to_host(byref(self._tensor), made.ctypes.data, made.nbytes))
        if code == _BFLOAT:
            import ml_dtypes

            return made.view(ml_dtypes.bfloat16)
        return made

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor.device_type, self._tensor.device_id

    def __dlpack__(self, stream: Any = None, **_: Any) -> Any:
        if stream != -1:
            self._library.check(self._library.c.mycc_tensor_wait(byref(self._tensor), 1 if stream is None else stream))
        own = self._tensor
        managed = ManagedTensor()
        managed.tensor.data, managed.tensor.ndim, managed.tensor.dtype = own.data, own.ndim, own.dtype
        managed.tensor.device_type, managed.tensor.device_id = own.device_type, own.device_id
        managed.tensor.shape = ctypes.cast(own.shape, POINTER(c_int64))
        managed.tensor.strides = ctypes.cast(own.strides, POINTER(c_int64))
        return export(managed, self)


def _adopt(library: Library, tensor: _Tensor) -> Any:
    own = _Tensor()
    ctypes.pointer(own)[0] = tensor
    if own.device_type != CPU:
        return DeviceOutput(library, own)
    shape = tuple(own.shape[: own.ndim])
    dtype = np.dtype(f"{_KINDS[own.dtype.code]}{own.dtype.bits // 8}")
    interface = {"version": 3, "shape": shape, "typestr": dtype.str, "data": (own.data or 0, False)}
    array = np.asarray(_Output(library, own, interface))
    return DlpackArray(array, _BFLOAT) if own.dtype.code == _BFLOAT else array
