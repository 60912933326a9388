"""What a call can take and give: structures, constants, integers, strided tensors, several entry points, threads."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc.runtime.inspect import inspect_package

from ..helpers.command_server import CommandServer
from . import feature_models
from .support import compiled, mycc_command


@pytest.fixture(scope="module")
def model(features: Path) -> Any:
    return mycc.load(features, threads=2)


def close(found: Any, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=1e-5, atol=1e-5)


def test_nested_structures(model: Any) -> None:
    module, args, kwargs = feature_models.structures_example()
    wanted = module(*args, **kwargs)
    for convert in (lambda t: t, lambda t: t.numpy()):
        pair, scale = (convert(args[0][0]), {"bias": convert(args[0][1]["bias"])}), convert(kwargs["scale"])
        found = model.entry("structures")(pair, scale=scale, power=3)
        assert list(found) == list(wanted)
        assert isinstance(found["hidden"], tuple)
        assert isinstance(found["hidden"][1], list)
        assert type(found["hidden"][0]) is type(scale)
        close(found["hidden"][0], wanted["hidden"][0].detach())
        close(found["hidden"][1][0], wanted["hidden"][1][0].detach())
        close(found["hidden"][1][1], wanted["hidden"][1][1].detach())
        close(found["input"], args[0][0])
        close(found["constant"], wanted["constant"])
        close(found["made"], wanted["made"])
        assert found["power"] == 3
        assert found["nothing"] is None


def test_results_are_the_callers_own(model: Any) -> None:
    """An output that is an input, a constant or a repeated tensor can be written to without harm."""
    _, args, kwargs = feature_models.structures_example()
    x = args[0][0].clone()
    first = model.entry("structures")((x, args[0][1]), **kwargs)
    kept = x.clone(), first["hidden"][0].clone()
    first["input"].zero_()
    first["constant"].zero_()
    first["hidden"][1][1].zero_()
    assert torch.equal(x, kept[0])
    assert torch.equal(first["hidden"][0], kept[1])
    close(model.entry("structures")((x, args[0][1]), **kwargs)["constant"], torch.arange(6.0).reshape(2, 3))


def test_integers_and_booleans(model: Any) -> None:
    module, args = feature_models.integers_example()
    wanted = module(*args)
    for found, want in zip(model.entry("integers")(*args), wanted, strict=True):
        assert found.dtype == want.dtype
        torch.testing.assert_close(found, want)


def test_strided_inputs(model: Any) -> None:
    module, (ids,) = feature_models.tied_example()
    wide = torch.randint(0, 301, (12, 8))
    encode, decode = model.entry("encode"), model.entry("decode")
    for view in (wide[::2, ::2], wide.t()[:5, 1:4], wide[1:3, 3:7], wide[:1].expand(4, 8)):
        assert not view.is_contiguous()
        close(model.entry("tied")(view), module(view).detach())
        close(torch.as_tensor(model.entry("tied")(view.numpy())), module(view).detach())
    hidden = encode(ids)
    turned = hidden.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    assert turned.stride() != hidden.stride()
    assert torch.equal(decode(turned), decode(hidden))
    backwards = hidden.numpy()[:, :, ::-1]
    assert np.array_equal(decode(backwards), decode(backwards.copy()))


def test_entry_points_share_weights(features: Path, model: Any) -> None:
    module, (ids,) = feature_models.tied_example()
    close(model.entry("decode")(model.entry("encode")(ids)), module(ids).detach())
    unique = sum(t.nbytes for t in {id(t): t for t in module.parameters()}.values())
    structures, _, _ = feature_models.structures_example()
    unique += sum(t.nbytes for t in (*structures.parameters(), *structures.buffers()))
    stored = inspect_package(features)["weights"]["size"]
    assert stored <= 1.1 * unique + 4096, "a tied matrix in three entry points is stored once"
    with pytest.raises(mycc.InputError, match="no entry point 'decoder'"):
        model.entry("decoder")


def test_sixteen_threads_call_one_model(model: Any) -> None:
    module, _ = feature_models.tied_example()
    generator = torch.Generator().manual_seed(1)
    calls = [torch.randint(0, 301, (1 + i % 8, 1 + (i * 7) % 30), generator=generator) for i in range(320)]
    alone = [model.entry("tied")(ids).clone() for ids in calls]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(model.entry("tied"), calls))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
    close(together[-1], module(calls[-1]).detach())


def test_two_packages_in_one_process(features: Path, tmp_path: Path) -> None:
    """Each with its own weights; and the first still works when the second is gone."""
    torch.manual_seed(5)
    layer = torch.nn.Linear(5, 3).eval()
    other = mycc.load(mycc.compile(layer, (torch.ones(2, 5),), out=tmp_path / "other.pkg"), threads=2)
    model = mycc.load(features, threads=1)
    module, (ids,) = feature_models.tied_example()
    x = torch.randn(2, 5)
    close(other(x), layer(x).detach())
    close(model.entry("tied")(ids), module(ids).detach())
    del other
    close(model.entry("tied")(ids), module(ids).detach())


def test_a_package_is_loaded_from_bytes_and_outlives_its_file(features: Path, tmp_path: Path) -> None:
    path = tmp_path / "gone.pkg"
    path.write_bytes(features.read_bytes())
    models = [mycc.load(path.read_bytes()), mycc.load(path)]
    path.unlink()
    module, (ids,) = feature_models.tied_example()
    for model in models:
        close(model.entry("tied")(ids), module(ids).detach())


def test_an_exported_program_through_the_command(server: CommandServer, tmp_path: Path) -> None:
    module, args = feature_models.tied_example()
    torch.export.save(torch.export.export(module, args), tmp_path / "tied.pt2")
    out = tmp_path / "tied.pkg"
    package = mycc.load(compiled(server.mycc("compile", tmp_path / "tied.pt2", "--out", out), out))
    close(package(*args), module(*args).detach())


SOURCE = """
import torch

def build():
    torch.manual_seed(3)
    return torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),)

def wide(features=6):
    return torch.nn.Linear(features, 3).eval(), (), {"input": torch.ones(2, features)}
"""


def test_factories_through_the_command(server: CommandServer, tmp_path: Path) -> None:
    """model.py:factory, package.module:factory, and keyword inputs."""
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "__init__.py").touch()
    (tmp_path / "nets" / "linear.py").write_text(SOURCE)
    forms = {"a.pkg": "nets/linear.py:build", "b.pkg": "nets.linear:build", "c.pkg": "nets/linear.py:wide"}
    for out, form in forms.items():
        compiled(server.mycc("compile", form, "--out", out, cwd=tmp_path), Path(out))
    torch.manual_seed(3)
    layer, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
    for name in ("a.pkg", "b.pkg"):
        close(mycc.load(tmp_path / name)(x), layer(x).detach())
    assert mycc.load(tmp_path / "c.pkg")(input=torch.ones(2, 6)).shape == (2, 3)


def test_inspect_names_kernels_and_lines(features: Path) -> None:
    done = mycc_command("inspect", features)
    assert done.returncode == 0, done.stderr
    assert "feature_models.py" in done.stdout
    assert "tied(ids: i64[batch, seq]) -> output: f32[batch, seq, 301]" in done.stdout


def test_run_and_bench_commands(features: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    done = mycc_command("run", features, "--entry", "tied", "--size", "batch=3", "--size", "seq=4", "--out", out)
    assert done.returncode == 0, done.stderr
    assert np.load(out)["output"].shape == (3, 4, 301)
    done = mycc_command("bench", features, "--entry", "tied", "--runs", "5", "--kernels")
    assert done.returncode == 0, done.stderr
    assert "gemm" in done.stdout


def test_importing_a_loaded_model_needs_no_torch(features: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import mycc, numpy as np\n"
        f"m = mycc.load({str(features)!r})\n"
        "print(m.entry('tied')(np.zeros((2, 3), np.int64)).shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "(2, 3, 301)\n", done.stderr
