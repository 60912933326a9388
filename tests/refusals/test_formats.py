"""Files of other kinds are recognised by their bytes and answered with what helps; nothing of them is run."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import mycc
import pytest
import torch
from mycc.cli import app
from mycc.compiler.bench.command import is_source
from mycc.compiler.capture.source import load_source
from mycc.compiler.package.other_weights import _read as read_for_package
from mycc.runtime.checkpoint import read_tensors
from mycc.runtime.formats import recognise
from mycc.runtime.inspect import inspect_package
from typer.testing import CliRunner


class Trap:
    """Would leave a file behind if it were unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("sprung"),)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formats")
    module = torch.nn.Linear(2, 2)
    torch.save(module.state_dict(), folder / "weights.pth")
    torch.save(module.state_dict(), folder / "old.bin", _use_new_zipfile_serialization=False)
    two = torch.nn.Sequential(module)  # its _metadata has keys with dictionaries behind them
    optimizer = torch.optim.Adam(two.parameters())
    two(torch.randn(1, 2)).sum().backward()
    optimizer.step()
    torch.save(two.state_dict(), folder / "two.pth")
    torch.save({"epoch": 3, "optim": optimizer.state_dict(), "ema_model": two.state_dict()}, folder / "last.ckpt")
    torch.save({"net": dict(two.state_dict()), "step": 1}, folder / "net.ckpt", _use_new_zipfile_serialization=False)
    torch.save(module, folder / "module.pt")
    torch.save(module, folder / "old.pt", _use_new_zipfile_serialization=False)
    torch.save({"x": Trap()}, folder / "trap.pt")
    torch.jit.save(torch.jit.trace(module, torch.randn(1, 2)), str(folder / "script.pt"))
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    (folder / "m.onnx").write_bytes(b"\x08\x08\x12\x07pytorch")
    (folder / "bert").mkdir()
    (folder / "bert" / "config.json").write_text('{"model_type": "bert"}')
    (folder / "gpt2").mkdir()
    (folder / "gpt2" / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"]}')
    (folder / "judge").mkdir()
    (folder / "judge" / "config.json").write_text('{"architectures": ["BertForSequenceClassification"]}')
    return folder


@pytest.mark.parametrize(
    ("name", "kind", "advice"),
    [
        ("weights.pth", "a state_dict saved by torch.save", "weights.pth', map_location='cpu'))"),
        ("two.pth", "a state_dict saved by torch.save", "two.pth', map_location='cpu'))"),
        ("last.ckpt", "a checkpoint saved by torch.save", "last.ckpt', map_location='cpu')['ema_model'])"),
        ("net.ckpt", "a checkpoint saved by torch.save", "net.ckpt', map_location='cpu')['net'])"),
        ("old.bin", "a state_dict saved by torch.save", "model = TheClass(...)"),
        ("module.pt", "a pickled object (torch.nn.modules.linear.Linear)", "weights_only=False"),
        ("old.pt", "a pickled object (torch.nn.modules.linear.Linear)", "weights_only=False"),
        ("trap.pt", "a pickled object (pathlib.Path)", "If you trust it"),
        ("script.pt", "a TorchScript file", "the module that was scripted or traced"),
        ("w.safetensors", "a safetensors file", "safetensors.torch.load_file"),
        ("m.onnx", "an ONNX file", "that model's source"),
        ("bert", "a folder of a Hugging Face model", "--task feature-extraction"),
        ("gpt2", "a folder of a Hugging Face model", "--task text-generation"),
        ("judge", "a folder of a Hugging Face model", "--task text-classification"),
    ],
)
def test_other_formats_get_their_advice_everywhere(
    files: Path, name: str, kind: str, advice: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(files / name)
    with pytest.raises(mycc.CompileError) as compiled:
        load_source(path)
    assert f"is {kind}, not the source of a model" in str(compiled.value)
    for read in (inspect_package, mycc.load):
        with pytest.raises(mycc.LoadError) as loaded:
            read(path)
        assert f"is {kind}, not a package" in str(loaded.value)
        assert advice in str(loaded.value)
    for command in ("bench", "explain"):  # they take packages and sources
        done = CliRunner().invoke(app, [command, path])
        assert done.exit_code == 2
        assert f"is {kind}, neither a package nor the source of a model" in done.stderr
        assert advice in done.stderr
    assert not (tmp_path / "sprung").exists()


def test_weights_that_are_no_safetensors_say_how_they_become_some(files: Path) -> None:
    expected = {
        "weights.pth": ("a state_dict saved", "safetensors.torch.save_file(torch.load('", "map_location='cpu'), 'w"),
        "net.ckpt": ("a checkpoint saved", "map_location='cpu')['net'], 'weights.safetensors')"),
        "m.onnx": ("an ONNX file, not a safetensors file",),
    }
    for name, texts in expected.items():
        for read in (read_for_package, read_tensors):
            with pytest.raises(mycc.InputError) as refused:
                read(files / name)
            assert not [text for text in texts if text not in str(refused.value)]


def test_sources_and_packages_are_told_apart(tmp_path: Path) -> None:
    source = tmp_path / "net.py"
    source.write_text("model = 1\n")
    with pytest.raises(mycc.LoadError, match="a Python source, not a package") as error:
        mycc.load(source)
    assert "mycc compile" in str(error.value)
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.randn(1, 2),)), tmp_path / "p.pt2")
    found = recognise(tmp_path / "p.pt2")
    assert found is not None
    assert found.source
    (tmp_path / "p.pt2").rename(tmp_path / "p.bin")  # the bytes tell, not the name
    assert isinstance(load_source(str(tmp_path / "p.bin")).model, torch.export.ExportedProgram)
    assert is_source(str(tmp_path / "p.bin"))
    assert recognise(tmp_path / "missing") is None
    (tmp_path / "text.bin").write_bytes(b"hello")
    assert recognise(tmp_path / "text.bin") is None


def test_a_folder_without_a_model_and_two_packages_are_told(tmp_path: Path) -> None:
    from mycc.commands.verify import verify_command

    with pytest.raises(mycc.CompileError, match=r"has no config\.json(.|\n)*Name the file in it"):
        load_source(str(tmp_path))
    with zipfile.ZipFile(tmp_path / "a.pkg", "w") as file:
        file.writestr("manifest.json", "{}")
        file.comment = b"mycc:1"
    with pytest.raises(mycc.InputError, match="Check one at a time: mycc verify"):
        verify_command(files=[str(tmp_path / "a.pkg"), str(tmp_path / "b.pkg")])
