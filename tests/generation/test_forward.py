"""`--task text-classification` and its like: a folder's network as one function, its inputs made from config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc.compiler.generation.forward import FORWARD_TASKS
from mycc.compiler.generation.tasks import TASKS, compile_task
from mycc.compiler.options import check_task

transformers = pytest.importorskip("transformers")

_TEXT = {
    "vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48,
    "max_position_embeddings": 40, "initializer_range": 0.3, "pad_token_id": 1,
}  # fmt: skip
_CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "feature-extraction": ("BertConfig", _TEXT, 40),
    "fill-mask": ("RobertaConfig", {**_TEXT, "type_vocab_size": 1}, 38),
    "question-answering": ("ElectraConfig", {**_TEXT, "embedding_size": 32}, 40),
    "text-classification": ("BertConfig", {**_TEXT, "id2label": {0: "bad", 1: "good", 2: "fair"}}, 40),
    "token-classification": (
        "DistilBertConfig",
        {"vocab_size": 120, "dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 48, "max_position_embeddings": 40},
        40,
    ),
}


def make(folder: Path, task: str, config: Any) -> Any:
    torch.manual_seed(0)
    network = getattr(transformers, FORWARD_TASKS[task].loader).from_config(config).eval()
    network.save_pretrained(folder)
    return network


_QUICK = ("text-classification", "feature-extraction")


def compile_named(task: str, folder: Path, **given: Any) -> Path:
    """As the command compiles a folder, to a file beside it."""
    return compile_task(task, str(folder), folder.with_name("m.pkg"), None, given, {}, [])


@pytest.mark.parametrize("task", [t if t in _QUICK else pytest.param(t, marks=pytest.mark.slow) for t in _CASES])
def test_models_of_texts(task: str, tmp_path: Path) -> None:
    kind, fields, length = _CASES[task]
    network = make(tmp_path / "model", task, getattr(transformers, kind)(**fields))
    package = mycc.compile_transformer(tmp_path / "model", task=task, out=tmp_path / "m.pkg", max_batch=3)
    model = mycc.load(package)
    facts = model.manifest["task"]
    assert (facts["name"], facts["length"], facts["batch"]) == (task, length, 3)
    assert facts.get("labels") == (list(network.config.id2label.values()) if FORWARD_TASKS[task].labels else None)
    tokens = torch.randint(3, 120, (3, 11), generator=torch.Generator().manual_seed(1))
    given = {"input_ids": tokens, "attention_mask": (torch.arange(11) < torch.tensor([[11], [6], [1]])).long()}
    if kind in ("BertConfig", "ElectraConfig"):
        given["token_type_ids"] = (torch.arange(11) > 4).long().expand(3, -1).contiguous()
    assert [port.name for port in model.signature.inputs] == list(given)
    found = model(**{name: value.numpy() for name, value in given.items()})
    with torch.no_grad():
        wanted = network.double()(**given)
    assert list(found) == list(FORWARD_TASKS[task].results)
    for name, value in found.items():
        np.testing.assert_allclose(value, wanted[name].numpy(), atol=2e-5)


def test_a_classifier_of_images(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48, image_size=24, patch_size=8,
        num_channels=2, initializer_range=0.3, num_labels=5,
    )  # fmt: skip
    network = make(tmp_path / "model", "image-classification", config)
    path = compile_named("image-classification", tmp_path / "model", max_batch=4, target="cpu")
    model, pixels = mycc.load(path), torch.randn(3, 2, 24, 24)
    signature = str(model.signature).splitlines()[0]
    assert signature == "forward(pixel_values: f32[batch, 2, 24, 24]) -> logits: f32[batch, 5]"
    with torch.no_grad():
        wanted = network.double()(pixels.double()).logits
    np.testing.assert_allclose(model(pixels.numpy())["logits"], wanted.numpy(), atol=2e-5)
    assert model.manifest["task"]["image"]["size"] == [24, 24]
    with pytest.raises(mycc.CompileError, match="reads images"):
        compile_named("image-classification", tmp_path / "model", max_length=8)
    with pytest.raises(mycc.CompileError, match=r"is not a model that AutoModelForMaskedLM .* loads"):
        compile_named("fill-mask", tmp_path / "model")
    with pytest.raises(mycc.CompileError, match="--cache-tokens does not go with --task fill-mask"):
        compile_named("fill-mask", tmp_path / "model", cache_tokens=8)


def test_an_unknown_task_is_answered_with_those_that_exist() -> None:
    with pytest.raises(mycc.CompileError, match="there is no task 'classify'") as told:
        check_task("classify")
    assert all(name in str(told.value.hint) for name in TASKS)
    with pytest.raises(mycc.CompileError, match="Did you mean text-generation"):
        check_task("text-generaton")
    for task in TASKS:
        check_task(task)
    assert {"embedding", "text-generation", *FORWARD_TASKS} <= set(TASKS)


def test_arguments_of_all_tasks_reach_their_functions(tmp_path: Path) -> None:
    for task in TASKS:
        with pytest.raises(mycc.CompileError, match="there is no folder"):
            compile_named(task, tmp_path / "none", target="cpu", dtype="bf16", verify=False, strict=True)


def test_the_help_of_the_command_names_every_task() -> None:
    from mycc.cli import app
    from typer.testing import CliRunner

    shown = CliRunner().invoke(app, ["compile", "--help"], env={"COLUMNS": "400"}).output
    assert not [name for name in TASKS if name not in "".join(shown.split())]
