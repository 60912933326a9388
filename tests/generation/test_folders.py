"""What is wrong with a folder is said before anything is compiled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mycc
import pytest

from .folders import make_folder, make_network


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    make_folder(folder, "llama", shard="100KB")
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy to be spoiled."""
    import shutil

    return Path(shutil.copytree(whole, tmp_path / "model"))


def refusal(folder: Any, out: Path, **options: Any) -> str:
    with pytest.raises(mycc.CompileError) as refused:
        mycc.compile_generation(folder, out=out / "x.pkg", **options)
    assert not (out / "x.pkg").exists()
    return str(refused.value)


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_files_that_are_missing(folder: Path, tmp_path: Path) -> None:
    assert "there is no folder" in refusal(tmp_path / "nowhere", tmp_path)
    (tmp_path / "net.py").write_text("model = 1\n")
    text = refusal(tmp_path / "net.py", tmp_path)
    assert "net.py' is a Python source; --task is for a model's folder" in text
    assert f"Leave --task out: mycc compile {tmp_path / 'net.py'}" in text
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 2
    for shard in shards[:2]:
        shard.unlink()
    text = refusal(folder, tmp_path)
    assert f"2 of the {len(shards)} files of weights are missing" in text
    assert shards[0].name in text
    (folder / "model.safetensors.index.json").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")
    assert "neither model.safetensors nor model.safetensors.index.json; it has pytorch_model.bin" in refusal(
        folder, tmp_path
    )
    (folder / "config.json").unlink()
    assert "it has no config.json" in refusal(folder, tmp_path)


def test_weights_of_another_class_name_its_task(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=20, **sizes)).save_pretrained(tmp_path / "bert")
    with pytest.raises(mycc.CompileError, match="lack 6 tensors that BertForMaskedLM has") as refused:
        mycc.compile_transformer(tmp_path / "bert", task="fill-mask", out=tmp_path / "x.pkg")
    assert refused.value.hint == "They are of BertModel, says config.json. Its task: --task feature-extraction"


def test_files_that_are_wrong(folder: Path, tmp_path: Path) -> None:
    change(folder / "config.json", num_hidden_layers=3)
    text = refusal(folder, tmp_path)
    assert "lack" in text
    assert "model.layers.2." in text
    change(folder / "config.json", model_type="lama", architectures=["LamaForCausalLM"])
    assert "does not know the architecture LamaForCausalLM (model_type 'lama')" in refusal(folder, tmp_path)
    change(folder / "config.json", model_type="vit", architectures=["ViTModel"])
    assert "ViTModel is not a model that AutoModelForCausalLM of transformers loads" in refusal(folder, tmp_path)
    change(folder / "config.json", quantization_config={"quant_method": "aqlm"})
    assert "quantised by aqlm are not taken" in refusal(folder, tmp_path)
    (folder / "config.json").write_text("{")
    assert "cannot read" in refusal(folder, tmp_path)


def test_a_chat_template_that_is_wrong(folder: Path, tmp_path: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ bos_token }}\n{% for m in messages %}")
    text = refusal(folder, tmp_path, strict=True)
    assert "the chat template cannot be read at line 2: Unexpected end of template" in text
    assert "the package refuses chats" in text


def test_options_that_are_wrong(whole: Path, tmp_path: Path) -> None:
    assert "the model knows 128 positions" in refusal(whole, tmp_path, max_length=129)
    assert "max_batch has to be a whole number from 1" in refusal(whole, tmp_path, max_batch=0)
    assert "max_length has to be at least 2" in refusal(whole, tmp_path, max_length=1)
    assert "there is no directory" in refusal(whole, tmp_path / "no")


def test_states_of_a_recurrence_have_no_blocks(tmp_path: Path) -> None:
    network = make_network("mamba", hidden_size=32)
    text = refusal(network, tmp_path, max_batch=2, cache_tokens=256)
    assert "cache_tokens does not go with MambaForCausalLM" in text
