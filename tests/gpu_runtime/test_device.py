"""The runtime on a real GPU: frameworks, streams, threads, graphs, memory and failures. Marked `gpu`."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mycc.runtime.errors import InputError, RunError
from mycc.runtime.launches import programs
from torch import nn

from ..helpers.threads import in_threads

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


class Stack(nn.Module):
    """Several launches with activations between them."""

    def __init__(self, layers: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(100, 64)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.table(index) * 2


def compiled(folder: Path, model: nn.Module, *inputs: torch.Tensor, target: str = "cuda", **how: Any) -> Path:
    import mycc

    return mycc.compile(model.eval(), inputs, out=folder / "model.pkg", target=target, verify=False, **how)


@pytest.fixture(scope="module")
def stack() -> Stack:
    torch.manual_seed(0)
    return Stack().eval()


@pytest.fixture(scope="module")
def stack_package(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = torch.export.Dim("rows", min=1, max=1 << 21)
    return compiled(tmp_path_factory.mktemp("stack"), stack, torch.randn(8, 64), dynamic_shapes=({0: rows},))


@pytest.fixture
def model(stack_package: Path) -> Any:
    import mycc

    return mycc.load(stack_package)


def reference(stack: Stack, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return copy.deepcopy(stack).double()(x.detach().cpu().double()).float()


def check(y: Any, stack: Stack, x: torch.Tensor) -> None:
    result = y.detach().cpu() if isinstance(y, torch.Tensor) else torch.as_tensor(np.asarray(y))
    torch.testing.assert_close(result.float(), reference(stack, x), rtol=2e-3, atol=2e-3)


def test_torch_tensors_stay_on_the_device(model: Any, stack: Stack) -> None:
    assert model.device == "cuda:0"
    for rows in (1, 8, 100, 8, 8):
        x = torch.randn(rows, 64, device="cuda")
        y = model(x)
        assert isinstance(y, torch.Tensor)
        assert y.device == x.device
        check(y, stack, x)
    x = torch.randn(64, 8, device="cuda").t()
    check(model(x), stack, x)  # strided: its framework makes it dense
    x = torch.randn(8 * 64 + 1, device="cuda")[1:].view(8, 64)
    check(model(x), stack, x)  # not aligned: copied once


def test_host_arrays_come_back(model: Any, stack: Stack) -> None:
    x = torch.randn(16, 64)
    assert isinstance(model(x.numpy()), np.ndarray)
    check(model(x.numpy()), stack, x)
    assert model(x).device.type == "cpu"
    check(model(x), stack, x)
    on_device = model.to_device(x.numpy())
    check(model(on_device).numpy(), stack, x)


@pytest.mark.parametrize("launch", ["direct", "graph", "debug"])
def test_every_way_to_launch_has_the_same_bits(stack_package: Path, model: Any, launch: str) -> None:
    import mycc

    other = mycc.load(stack_package, launch=launch)
    for rows in (8, 40, 8, 40, 8):
        x = torch.randn(rows, 64, device="cuda")
        assert torch.equal(model(x), other(x))


def test_streams(model: Any, stack: Stack) -> None:
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.randn(32, 64, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        inside = [model(x + i) for i in range(20)]
    explicit = [model(x, stream=other) for _ in range(20)]
    torch.cuda.synchronize()
    for i, y in enumerate(inside):
        check(y, stack, x + i)
    for y in explicit:
        assert torch.equal(y, inside[0])


def test_threads(model: Any, stack: Stack) -> None:
    inputs = [torch.randn(1 + i, 64, device="cuda") for i in range(8)]
    expected = [model(x) for x in inputs]
    torch.cuda.synchronize()
    wrong: list[int] = []

    def work(seed: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(50):
                k = (seed + i) % len(inputs)
                y = model(inputs[k])
                torch.cuda.current_stream().synchronize()
                if not torch.equal(y, expected[k]):
                    wrong.append(k)

    in_threads(work, 6)
    assert wrong == []


def test_many_sizes_stay_within_bounds(model: Any, stack: Stack) -> None:
    for rows in [*range(1, 60), *range(1, 60)]:
        x = torch.randn(rows, 64, device="cuda")
        y = model(x)
    check(y, stack, x)


def test_weights_are_shared(tmp_path: Path) -> None:
    """Four models more of 64 MB each would take 256 MB if each had weights of its own."""
    import mycc

    path = compiled(tmp_path, nn.Linear(4096, 4096), torch.randn(1, 4096))
    x = torch.randn(1, 4096, device="cuda")
    models = [mycc.load(path)]
    models[0](x)

    def more() -> int:
        """Bytes that four more models take; tests beside this one take memory of the device as well."""
        torch.cuda.synchronize()
        before = torch.cuda.mem_get_info()[0]
        models.extend(mycc.load(path) for _ in range(4))
        for model in models[-4:]:
            assert model(x).shape == (1, 4096)
        torch.cuda.synchronize()
        return before - torch.cuda.mem_get_info()[0]

    assert min(more() for _ in range(5)) < 64 << 20


def test_an_index_out_of_range(tmp_path: Path) -> None:
    import mycc

    model = mycc.load(compiled(tmp_path, Words(), torch.zeros(4, dtype=torch.long)))
    bad = torch.tensor([0, 1, 100, 3])
    with pytest.raises(RunError, match="index out of range"):
        model(bad)
    model(bad.cuda())
    with pytest.raises(RunError, match="an earlier call failed: index out of range"):
        model.synchronize()
    good = torch.tensor([0, 1, 99, 3]).cuda()
    assert model(good).shape == (4, 64)
    model.synchronize()


def test_refusals(model: Any) -> None:
    with pytest.raises(InputError, match="dtype is f64"):
        model(torch.randn(8, 64, device="cuda", dtype=torch.float64))
    with pytest.raises(InputError, match="dimension 1 is 65"):
        model(torch.randn(8, 65, device="cuda"))


def test_a_capture_is_refused_and_goes_on(model: Any) -> None:
    graph = torch.cuda.CUDAGraph()
    x = torch.randn(8, 64, device="cuda")
    with torch.cuda.graph(graph):
        y = x + 1
        with pytest.raises(RunError, match="is being captured"):
            model(x)
    graph.replay()
    assert torch.equal(y, x + 1)


def test_out_of_memory_and_on(model: Any, stack: Stack) -> None:
    small = torch.randn(8, 64, device="cuda")
    check(model(small), stack, small)
    torch.cuda.synchronize()
    hog = torch.empty(torch.cuda.mem_get_info()[0] - (128 << 20), dtype=torch.uint8, device="cuda")
    text = r"out of memory on cuda:0 \(.*\): \d+ bytes are needed, \d+ of \d+ are free"
    with pytest.raises(RunError, match=text):
        model(np.zeros((1 << 20, 64), np.float32))
    check(model(small), stack, small)
    del hog
    torch.cuda.empty_cache()
    check(model(small), stack, small)


def test_profile(model: Any) -> None:
    x = torch.randn(8, 64, device="cuda")
    model.synchronize()
    times = model.profile([x], 20)
    assert len(times) == len(model.kernels)
    (entry,) = model.manifest["entry_points"]
    running = [programs(row, {"rows": 8}) > 0 for row in entry["launches"][model.target]]
    assert any(running)
    assert all(300 < t < 1_000_000 for t, runs in zip(times, running, strict=True) if runs)


def test_cupy(model: Any, stack: Stack) -> None:
    cupy = pytest.importorskip("cupy")
    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    with cupy.cuda.Stream():
        y = model(cupy.asarray(x))
        assert isinstance(y, cupy.ndarray)
        check(cupy.asnumpy(y), stack, torch.from_numpy(x))
    check(cupy.asnumpy(model(cupy.asarray(x), stream=cupy.cuda.Stream(non_blocking=True))), stack, torch.from_numpy(x))


def test_jax(stack_package: Path) -> None:
    """In a process of its own: jax takes most of the memory."""
    pytest.importorskip("jax")
    script = """
import sys, numpy, jax, mycc
model = mycc.load(sys.argv[1])
x = numpy.arange(8 * 64, dtype=numpy.float32).reshape(8, 64) / 512
y = model(jax.numpy.asarray(x))
assert isinstance(y, jax.Array) and y.devices() == jax.numpy.asarray(x).devices(), type(y)
numpy.testing.assert_array_equal(numpy.asarray(y), model(x))
"""
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(stack_package)], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_without_torch(stack_package: Path) -> None:
    script = """
import sys, numpy, mycc
model = mycc.load(sys.argv[1])
x = numpy.ones((8, 64), numpy.float32)
assert numpy.array_equal(model(x), model(model.to_device(x)).numpy())
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script, str(stack_package)], check=True)


def test_packages_for_both_choose_the_gpu(stack: Stack, tmp_path: Path) -> None:
    import mycc

    path = compiled(tmp_path, stack, torch.randn(8, 64), target="cpu,cuda")
    x = torch.randn(8, 64)
    gpu, cpu = mycc.load(path), mycc.load(path, device="cpu")
    assert (gpu.device, cpu.device) == ("cuda:0", "cpu")
    torch.testing.assert_close(gpu(x), cpu(x), rtol=2e-3, atol=2e-3)


def test_ptx_runs_where_no_cubin_fits(stack: Stack, tmp_path: Path) -> None:
    import mycc

    model = mycc.load(compiled(tmp_path, stack, torch.randn(8, 64), target="cuda:ptx"))
    assert model.target == "cuda:ptx"
    x = torch.randn(8, 64, device="cuda")
    check(model(x), stack, x)


class Writes(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x[1:] += y[1:]
        return x.sum(0)


def test_strided_arguments_that_are_written_to(tmp_path: Path) -> None:
    """The tensor that was given has the new values, and one whose elements share memory is refused."""
    import mycc

    model = mycc.load(compiled(tmp_path, Writes(), torch.randn(6, 8), torch.randn(6, 8)))
    y = torch.randn(6, 8, device="cuda")
    for x in (torch.randn(8, 6, device="cuda").t(), torch.randn(6, 16, device="cuda")[:, ::2]):
        own = x.clone()
        want = Writes()(own, y)
        torch.testing.assert_close(model(x, y), want)
        torch.testing.assert_close(x, own)
    with pytest.raises(mycc.InputError, match="must not share memory: pass a copy"):
        model(torch.randn(1, 8, device="cuda").expand(6, 8), y)
    whole = torch.randn(12, 8, device="cuda")
    with pytest.raises(mycc.InputError, match="must not share memory with"):
        model(whole[::2], whole[5:11])
