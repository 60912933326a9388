"""What a call refuses: wrong dtypes, ranks, sizes, ranges, devices, names, counts and token ids."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch

from ..helpers.command_server import CommandServer

IDS, WEIGHT = np.zeros((2, 5), np.int64), np.ones((5, 8), np.float32)


@pytest.fixture(scope="module")
def model(package: Path) -> Any:
    return mycc.load(package, threads=2)


class OnGpu:
    """Says that it lies on a CUDA device, as a torch tensor there does."""

    shape = (2, 5)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **_: object) -> object:
        return torch.utils.dlpack.to_dlpack(torch.zeros(2, 5, dtype=torch.int64))


REFUSALS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "dtype": ((IDS.astype(np.int32), WEIGHT), {}, r"ids: dtype is i32, the package was compiled for i64"),
    "dtype of the second": ((IDS, WEIGHT.astype(np.float64)), {}, r"weight: dtype is f64, .* compiled for f32"),
    "rank": ((IDS[0], WEIGHT), {}, r"ids: has 1 dimension \(5\), the package was compiled for 2 \(batch, seq\)"),
    "fixed size": ((IDS, WEIGHT[:, :7].copy()), {}, r"weight: dimension 1 is 7, the package was compiled for 8"),
    "sizes that differ": ((IDS, np.ones((4, 8), np.float32)), {}, r"weight: dimension 0 \(seq\) is 4, but has to be 5"),
    "range": ((np.zeros((17, 5), np.int64), WEIGHT), {}, r"ids: dimension 0 \(batch\) is 17, .* compiled for 1\.\.16"),
    "empty": ((np.zeros((0, 5), np.int64), WEIGHT), {}, r"ids: dimension 0 \(batch\) is 0, .* compiled for 1\.\.16"),
    "device": ((OnGpu(), WEIGHT), {}, r"ids is not on the CPU, where the package runs\n  Copy it to the CPU"),
    "count": ((IDS,), {}, r"misses argument 'weight'"),
    "too many": ((IDS, WEIGHT, WEIGHT), {}, r"takes 2 arguments but 3 were given"),
    "name": ((IDS,), {"wight": WEIGHT}, r"has no argument 'wight'"),
    "twice": ((IDS, WEIGHT), {"ids": IDS}, r"got argument 'ids' twice"),
    "no tensor": ((IDS, 3.0), {}, r"argument 'weight' has to be a tensor, not .*3\.0"),
    "none": ((None, WEIGHT), {}, r"argument 'ids' has to be a tensor, not None"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_of_a_call(model: Any, case: str) -> None:
    args, kwargs, message = REFUSALS[case]
    with pytest.raises(mycc.InputError, match=message) as raised:
        model(*args, **kwargs)
    assert isinstance(raised.value, mycc.Error)
    assert model(IDS, WEIGHT).shape == (2, 5, 8)


def test_a_tensor_without_memory(model: Any) -> None:
    with pytest.raises(mycc.InputError, match="ids, a Tensor, cannot be read: Cannot pack tensors on meta") as raised:
        model(torch.zeros(2, 5, dtype=torch.int64, device="meta"), torch.ones(5, 8))
    assert "frame" not in str(raised.value)


def test_a_tensor_with_gradients_is_taken_as_its_values(model: Any) -> None:
    found = model(torch.zeros(2, 5, dtype=torch.int64), torch.ones(5, 8, requires_grad=True))
    assert not found.requires_grad
    assert np.array_equal(found.numpy(), model(IDS, WEIGHT))


MESSAGE = r"index out of range in embedding.* \(conftest\.py:\d+\): {} in a dimension of size 11"


@pytest.mark.parametrize("token", [11, -1, 1 << 40, (1 << 63) - 1, -(1 << 63)])
def test_a_token_beyond_the_vocabulary(model: Any, tagger: torch.nn.Module, token: int) -> None:
    ids = IDS.copy()
    ids[1, 3] = token
    with pytest.raises(mycc.RunError, match=MESSAGE.format(token)):
        model(ids, WEIGHT)
    found = model(IDS, WEIGHT)
    with torch.no_grad():
        wanted = tagger(torch.from_numpy(IDS), torch.from_numpy(WEIGHT)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_inputs_at_the_end_of_a_page_are_not_read_beyond(model: Any) -> None:
    """An input that ends where unmapped memory begins: reading one element more would end the process."""
    page = 4096
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    private_anonymous, read_write, none = 0x22, 0x3, 0x0
    memory = libc.mmap(None, 2 * page, read_write, private_anonymous, -1, 0)
    assert libc.mprotect(memory + page, page, none) == 0
    for seq in (1, 3, 5, 7, 16, 17):
        buffer = (ctypes.c_float * (seq * 8)).from_address(memory + page - seq * 8 * 4)
        weight = np.frombuffer(buffer, np.float32).reshape(seq, 8)
        weight[:] = 1.0
        ids = np.zeros((3, seq), np.int64)
        assert np.array_equal(model(ids, weight), model(ids, weight.copy()))


def test_strided_inputs_are_accepted(model: Any) -> None:
    weight = np.arange(80, dtype=np.float32).reshape(5, 16)[:, ::2]
    ids = np.arange(10).reshape(5, 2).T
    assert not weight.flags.c_contiguous
    assert np.array_equal(model(ids, weight), model(ids.copy(), weight.copy()))


def test_the_command_says_the_same(server: CommandServer, package: Path, tmp_path: Path) -> None:
    def refused(*args: object) -> str:
        done = server.mycc("run", package, "--out", "out.npz", *args, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("error: ")
        assert not (tmp_path / "out.npz").exists()
        return done.stderr

    np.savez(tmp_path / "a.npz", ids=IDS.astype(np.float32), weight=WEIGHT)
    np.savez(tmp_path / "b.npz", ids=IDS, wight=WEIGHT)
    np.savez(tmp_path / "c.npz", ids=IDS + 11, weight=WEIGHT)
    assert "ids.astype(numpy.int64)" in refused("--input", "a.npz")
    assert "weight" in refused("--input", "b.npz")
    assert "index" in refused("--input", "c.npz")
    assert "--dynamic 'ids:0=batch(" in refused("--size", "batch=99")
    assert "no/such.npz" in refused("--input", "no/such.npz")
    assert "entry point 'backward'" in refused("--entry", "backward")


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_what_a_call_takes_it_gives_back(model: Any, convert: Callable[[Any], Any]) -> None:
    assert type(model(convert(IDS), convert(WEIGHT))) is type(convert(WEIGHT))


class Divide(torch.nn.Module):
    """a, b of integers -> their quotient and remainder, and the quotient of a and the first of b."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a // b, a % b, torch.div(a, b[0], rounding_mode="trunc")


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_integer_division_by_zero_fails(dtype: torch.dtype, tmp_path: Path) -> None:
    a, b = torch.arange(37).to(dtype), (torch.arange(37) % 5 + 1).to(dtype)
    model = mycc.load(mycc.compile(Divide(), (a, b), out=tmp_path / "divide.pkg", verify=False))
    for got, want in zip(model(a, b), Divide()(a, b), strict=True):
        assert torch.equal(torch.as_tensor(got), want)
    for place in (0, 20, 36):  # the first, one of a whole vector, the last of a partial one
        zero = b.clone()
        zero[place] = 0
        with pytest.raises(mycc.RunError, match=r"integer division by zero in .*test_run\.py:\d+"):
            model(a, zero)
    assert torch.equal(torch.as_tensor(model(a, b)[0]), a // b)
