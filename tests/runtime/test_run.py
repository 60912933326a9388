"""Calls: shapes, layouts, kinds of tensors, refusals by message."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mycc.runtime.errors import InputError

from .conftest import Loaded
from .packages import WEIGHTS


def affine(x: Any) -> Any:
    return 2 * x + WEIGHTS


@pytest.mark.parametrize("batch", [1, 2, 7, 33, 64])
def test_dynamic_batch(model: Loaded, batch: int) -> None:
    x = np.random.default_rng(batch).standard_normal((batch, 4), np.float32)
    y = model("affine", x)
    assert y.dtype == np.float32
    assert y.flags.c_contiguous
    assert y.flags.writeable
    np.testing.assert_array_equal(y, affine(x))


def test_dynamic_arena(model: Loaded) -> None:
    for blocks in (1, 5, 1000, 5, 2, *range(1, 150)):
        x = np.arange(8 * blocks + 1, dtype=np.float32)
        np.testing.assert_array_equal(model("chain", x), (x + 1) * 3 - 2)


def test_empty_dimension(model: Loaded) -> None:
    assert model("copies", np.zeros((0, 3), np.float32)).shape == (0, 3)
    with pytest.raises(InputError, match=r"x: dimension 0 \(batch\) is 0, the package was compiled for 1\.\.64"):
        model("affine", np.zeros((0, 4), np.float32))


@pytest.mark.parametrize(
    ("entry", "tensors", "message"),
    [
        ("affine", [(2, 4, "f8")], "x: dtype is f64, the package was compiled for f32"),
        ("affine", [(2, 4, "u2")], "x: dtype is u16, the package was compiled for f32"),
        ("affine", [(4, "f4")], r"x: has 1 dimension \(4\), the package was compiled for 2 \(batch, 4\)"),
        ("affine", [(1, 2, 4, "f4")], r"x: has 3 dimensions \(1, 2, 4\), the package was compiled for 2 \(batch, 4\)"),
        ("affine", [(2, 5, "f4")], "x: dimension 1 is 5, the package was compiled for 4"),
        ("affine", [(65, 4, "f4")], r"x: dimension 0 \(batch\) is 65, the package was compiled for 1\.\.64"),
        ("affine", [], r"affine has 1 input \(x\), but 0 were given"),
        ("pair", [(1, 2, "f4")], r"pair has 2 inputs \(a, b\), but 1 was given"),
        ("chain", [(10, "f4")], r"x: dimension 0 \(8\*blocks \+ 1\) is 10, the package was compiled for "
                                r"8\*blocks \+ 1 with blocks in 1\.\.4000"),
        ("pair", [(2, 3, "f4"), (3, 5, "f4")], r"a: dimension 1 \(seq\) is 3, the package was compiled for 2"),
        ("pair", [(2, 2, "f4"), (2, 4, "f4")], r"b: dimension 1 \(2\*batch \+ 1\) is 4, but has to be 5 here: "
                                               r"batch is 2 by dimension 0 of a"),
        ("pair", [(2, 2, "f4"), (3, 5, "f4")], r"b: dimension 0 \(seq\) is 3, but has to be 2 here: "
                                               r"seq is 2 by dimension 1 of a"),
    ],
)  # fmt: skip
def test_refusals(model: Loaded, entry: str, tensors: list[Any], message: str) -> None:
    arrays = [np.zeros(shape, dtype) for *shape, dtype in tensors]
    with pytest.raises(InputError, match=f"^{message}$"):
        model(entry, *arrays)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1.0, 2, 3, 4]], "input 0 has to be a numpy array, a torch tensor or have DLPack, not a list"),
        (None, "not a NoneType"),
        (np.zeros((1, 4), ">f4"), "input 0 has the dtype >f4, which no package takes"),
        (np.array([["a"]]), "input 0 has the dtype <U1"),
        (np.zeros((1,) * 17, np.float32), "input 0 has 17 dimensions; at most 16 are supported"),
    ],
)
def test_values_that_are_no_tensors(model: Loaded, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        model("affine", value)


def test_an_input_that_is_wrong_is_told_by_its_number(model: Loaded) -> None:
    """Not by the text alone, which loader.py need not read to give the input its name."""
    with pytest.raises(InputError) as caught:
        model("pair", np.zeros((2, 2), np.float32), np.zeros((1, 4), ">f4"))
    assert (caught.value.input, caught.value.finding) == (1, " has the dtype >f4, which no package takes")
    with pytest.raises(InputError) as caught:  # the C library names it itself
        model("pair", np.zeros((2, 2), np.float32), np.zeros((3, 5), np.float32))
    assert (caught.value.input, caught.value.finding) == (None, "")


def test_unknown_entry(model: Loaded) -> None:
    with pytest.raises(InputError, match="handmade has no entry point 99; it has 12"):
        model.native.run(99, [])
    with pytest.raises(InputError, match="has no entry point -1"):
        model.native.run(-1, [])


def test_failure_in_a_kernel(model: Loaded) -> None:
    assert model("lookup", np.array([0, 3, 1])).tolist() == [0.5, 8.0, -1.0]
    with pytest.raises(InputError, match=r"indices: 0\.\.3 are valid"):
        model("lookup", np.array([0, 4]))
    assert model("lookup", np.array([2])).tolist() == [4.0], "the next call is not concerned"


def test_strided_inputs(model: Loaded) -> None:
    base = np.random.default_rng(3).standard_normal((64, 8), np.float32)
    for view in (base[:, ::2], base[::3, 4:], base[::-1, 3::-1], base.T[:4].T, np.asfortranarray(base[:, :4])):
        np.testing.assert_array_equal(model("affine", view), affine(view))
    row = np.broadcast_to(base[0, :4], (9, 4))
    np.testing.assert_array_equal(model("affine", row), affine(row))


def test_all_permutations(model: Loaded) -> None:
    import itertools

    for order in itertools.permutations(range(4)):
        shape = tuple((2, 3, 4, 5)[axis] for axis in order)
        x = np.arange(120, dtype=np.float32).reshape(shape).transpose(np.argsort(order))
        np.testing.assert_array_equal(model("copy", x), x)
        padded = np.zeros((4, 6, 8, 10), np.float32)[::2, ::2, ::2, ::2]
        padded[...] = x
        np.testing.assert_array_equal(model("copy", padded), x)


def test_unaligned_input(model: Loaded) -> None:
    raw = np.zeros(8 * 16 + 1, np.uint8)[1:]
    x = raw.view(np.float32).reshape(8, 4)
    x[...] = np.arange(32).reshape(8, 4)
    np.testing.assert_array_equal(model("affine", x), affine(x))
    fields = np.zeros(3, np.dtype([("a", "i1"), ("x", "f4", 4)]))
    fields["x"] = 2.0
    np.testing.assert_array_equal(model("affine", fields["x"]), affine(fields["x"]))


def test_large_strided_input(model: Loaded) -> None:
    x = np.arange(2 * 16001, dtype=np.float32)[::2]
    np.testing.assert_array_equal(model("chain", x), (x + 1) * 3 - 2)


def test_output_outlives_the_model(library: Any, package: bytes) -> None:
    y = Loaded(library.load_memory(package))("affine", np.ones((3, 4), np.float32))
    gc.collect()
    np.testing.assert_array_equal(y, affine(np.ones((3, 4), np.float32)))


def test_outputs_are_freed(model: Loaded) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    x = np.zeros(8 * 4000 + 1, np.float32)
    for _ in range(50):
        model("chain", x)
    before = resident()
    for _ in range(2000):
        model("chain", x)
    assert resident() - before < 16 << 20


def test_inputs_are_released(model: Loaded) -> None:
    x = np.zeros((2, 4), np.float32)[:, ::1]
    alive = weakref.ref(x)
    model("affine", x)
    del x
    assert alive() is None


def test_profile(model: Loaded) -> None:
    times = model.native.profile(0, [np.zeros((64, 4), np.float32)], 5)
    assert len(times) == 1
    assert 0 < times[0] < 10**9
    with pytest.raises(InputError, match="at least one run"):
        model.native.profile(0, [np.zeros((64, 4), np.float32)], 0)


def test_memory(model: Loaded) -> None:
    size = 4 * (8 * 10 + 1) // 64 * 64 + 64
    assert model.native.memory(2, [np.zeros(81, np.float32)]) == (2 * size, 2 * size)
    assert model.native.memory(5, [bfloat([[0, 1, 2], [3, 4, 5]])]) == (128, 128)
    assert model.native.memory(0, [np.zeros((1, 4), np.float32)]) == (0, 0)
    assert model.native.memory(2, [np.zeros(81, np.float32)]) == (2 * size, 2 * size), "after another entry point"


def test_entry_points_share_a_state(library: Any, package: bytes) -> None:
    """One caller goes from a large arena to none and back."""
    model = Loaded(library.load_memory(package, threads=1))
    for blocks in (1, 4000, 2, 3999):
        x = np.arange(8 * blocks + 1, dtype=np.float32)
        np.testing.assert_array_equal(model("chain", x), (x + 1) * 3 - 2)
        model("lookup", np.array([1]))
        assert model("halves", bfloat(np.zeros((2, 3)))).shape == (2, 3)


class OnlyDlpack:
    """An array of a framework that nobody knows."""

    def __init__(self, array: Any, device: int = 1) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


def bfloat(bits: Any) -> Any:
    from mycc.runtime.dlpack import DlpackArray

    return DlpackArray(np.array(bits, np.uint16), 4)


def test_anything_with_dlpack(model: Loaded) -> None:
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(model("affine", OnlyDlpack(x)), affine(x))
    np.testing.assert_array_equal(model("affine", OnlyDlpack(x[:, ::-1])), affine(x))
    with pytest.raises(InputError, match="input 0 is not on the CPU"):
        model("affine", OnlyDlpack(x, device=2))


def test_bfloat(model: Loaded) -> None:
    from mycc.runtime.arrays import as_array

    bits = [[0x3F80, 0xC000, 0x7F80], [0, 0x8000, 0x4049]]
    y = model("halves", bfloat(bits))
    expected = (np.array(bits, np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(as_array(y, "bf16"), expected)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = expected.astype(ml_dtypes.bfloat16)
    z = model("halves", x)
    assert z.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(z.astype(np.float32), expected)


class TestTorch:
    """torch tensors, without a copy in either direction."""

    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        self.torch = pytest.importorskip("torch")

    def test_kinds(self, model: Loaded) -> None:
        torch = self.torch
        x = torch.randn(5, 4)
        for value in (x, torch.nn.Parameter(x), x.requires_grad_(), x.T.contiguous().T):
            y = model("affine", value)
            assert type(y) is torch.Tensor
            assert not y.requires_grad
            torch.testing.assert_close(y, 2 * x.detach() + torch.from_numpy(WEIGHTS), rtol=0, atol=0)

    def test_bfloat(self, model: Loaded) -> None:
        x = self.torch.randn(2, 3).bfloat16()
        y = model("halves", x)
        assert y.dtype == self.torch.bfloat16
        assert self.torch.equal(x, y)

    def test_lazy_negation_is_seen(self, model: Loaded) -> None:
        torch = self.torch
        x = torch.view_as_complex(torch.randn(3, 4, 2)).conj().imag
        assert x.is_neg()
        torch.testing.assert_close(model("affine", x), 2 * x.clone() + torch.from_numpy(WEIGHTS), rtol=0, atol=0)

    def test_refusals(self, model: Loaded) -> None:
        torch = self.torch
        with pytest.raises(InputError, match="x: dtype is f64, the package was compiled for f32"):
            model("affine", torch.zeros(1, 4, dtype=torch.float64))
        with pytest.raises(InputError, match="input 0, a Tensor, cannot be read"):
            model("affine", torch.zeros(1, 4).to_sparse())
        with pytest.raises(InputError, match="input 0"):
            model("affine", torch.zeros(1, 4, device="meta"))

    def test_memory_is_freed(self, model: Loaded) -> None:
        y = model("chain", self.torch.zeros(8 * 4000 + 1))
        part = y[10:20]
        del y
        gc.collect()
        assert part.tolist() == [1.0] * 10
