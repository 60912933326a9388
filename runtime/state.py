"""What a loaded model keeps from call to call: the buffers that it changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .errors import InputError

__all__ = ["State"]


class State:
    """Tensors by the names that the model's buffers have, such as "layers.0.cache".

    `state[name]` is a copy, `state[name] = array` sets all of a tensor (a number or an array of its shape and dtype),
    `state.view(name)` is the tensor itself. One call at a time works on a state: calls with the same one wait for each
    other. On a GPU it lies in the memory of the device.
    """

    __slots__ = ("_native", "_numbers", "_rows", "handle")

    def __init__(self, native: Any, rows: Sequence[Mapping[str, Any]], handle: Any = None) -> None:
        self._native, self._rows = native, rows
        self._numbers = {row["name"]: i for i, row in enumerate(rows)}
        self.handle = handle  # of the native side; None: the model's own

    def _number(self, name: str) -> int:
        try:
            return self._numbers[name]
        except KeyError:
            names = ", ".join(self._numbers) or "nothing"
            raise InputError(f"the model keeps no tensor '{name}'", hint=f"It keeps: {names}.") from None

    def __getitem__(self, name: str) -> Any:
        return self._native.state_read(self.handle, self._number(name))

    def __setitem__(self, name: str, value: Any) -> None:
        number = self._number(name)
        if isinstance(value, bool | int | float | list | tuple):
            import numpy as np

            row = self._rows[number]
            if row["dtype"] not in _NUMPY:
                raise InputError(f"{name}: give a tensor of {row['dtype']}, which numpy does not have")
            value = _converted(np.asarray(value), row["dtype"], name)
            value = np.broadcast_to(value, row["shape"]) if value.ndim == 0 else value
        self._native.state_write(self.handle, number, value)

    def view(self, name: str) -> Any:
        """The tensor itself, without a copy: later calls change it, and what is written to it they read.

        A numpy array on the CPU; on a GPU, or in a dtype that numpy lacks, an array with DLPack.
        """
        return self._native.state_view(self.handle, self._number(name))

    def reset(self) -> None:
        """Back to the values that the buffers had when the model was compiled."""
        self._native.state_reset(self.handle)

    def update(self, values: Mapping[str, Any]) -> None:
        """Sets several tensors."""
        for name, value in values.items():
            self[name] = value

    def keys(self) -> list[str]:
        return list(self._numbers)

    def items(self) -> Iterator[tuple[str, Any]]:
        return ((name, self[name]) for name in self._numbers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def __repr__(self) -> str:
        rows = (f"{row['name']}: {row['dtype']}[{', '.join(map(str, row['shape']))}]" for row in self._rows)
        return f"<state {', '.join(rows) or 'without tensors'}>"


def _converted(value: Any, dtype: str, name: str) -> Any:
    """Numbers in the state's type; an InputError where they are others in it."""
    import numpy as np

    with np.errstate(all="ignore"):
        found = value.astype(_NUMPY[dtype])
    if found.dtype.kind in "biu" and not np.array_equal(found, value):
        raise InputError(f"{name}: {value.tolist()} is no value of the state's type, {dtype}")
    return found


_NUMPY = {
    "bool": "?", "u8": "u1", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "f16": "f2", "f32": "f4", "f64": "f8",
    "c64": "c8", "c128": "c16",
}  # fmt: skip
