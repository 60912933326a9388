"""The GPU of this machine, as its driver describes it. The driver is opened when it is asked for, never on import."""

from __future__ import annotations

import ctypes

from ...runtime.errors import CompileError

__all__ = ["compute_capability"]

_DRIVER = "libcuda.so.1"
# CUdevice_attribute
_MAJOR, _MINOR = 75, 76
_HINT = "Name the GPU to build for, as in --target cuda:sm_90: that needs no GPU."


def compute_capability() -> int:
    """Of the first device: 90 for 9.0.

    Raises:
        CompileError: no driver, or no device.
    """
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        raise CompileError(
            f"target 'cuda' is this machine's GPU, and there is no driver ({_DRIVER})", hint=_HINT
        ) from None
    code = driver.cuInit(0)
    count = ctypes.c_int(0)
    if code == 0:
        code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code != 0 or count.value == 0:
        raise CompileError(f"target 'cuda' is this machine's GPU, and the driver finds none (code {code})", hint=_HINT)
    device, major, minor = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(0)
    for attribute, value in ((_MAJOR, major), (_MINOR, minor)):
        if code := driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device):
            raise CompileError(f"the driver does not describe this machine's GPU (code {code})", hint=_HINT)
    return major.value * 10 + minor.value
