"""Vectors of texts: those of the encoder in float64, pooled as the folder says."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc.compiler.generation.tasks import compile_task

from .folders import TEXTS, train_tokenizer

transformers = pytest.importorskip("transformers")


def make_encoder(folder: Path, mode: str) -> Any:
    """A small BERT in the form of sentence-transformers."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=400, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
        max_position_embeddings=40, initializer_range=0.3,
    )  # fmt: skip
    network = transformers.BertModel(config).eval()
    network.save_pretrained(folder)
    train_tokenizer().save_pretrained(folder)
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    rows = [{"idx": i, "type": f"sentence_transformers.models.{k}", "path": p} for i, (k, p) in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 24}')
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, mode: True}))
    return network


def test_vectors_of_texts(tmp_path: Path) -> None:
    network = make_encoder(tmp_path / "model", "pooling_mode_mean_tokens")
    package = mycc.compile_embedding(tmp_path / "model", out=tmp_path / "vectors.pkg", max_batch=3)
    texts = [TEXTS[0] * 9, "the", TEXTS[1], "fox dog", TEXTS[2]]
    found = mycc.load(package).embed(texts)
    tokenizer, network = train_tokenizer(), network.double()
    for text, vector in zip(texts, found, strict=True):
        tokens = tokenizer(text, truncation=True, max_length=24).input_ids
        with torch.no_grad():
            mean = network(torch.tensor([tokens])).last_hidden_state[0].mean(0)
        np.testing.assert_allclose(vector, (mean / mean.norm()).numpy(), atol=1e-5)
    assert len(tokenizer(texts[0]).input_ids) > 24
    assert mycc.load(package).embed([]).shape == (0, 32)
    with pytest.raises(mycc.InputError, match="does not generate text"):
        mycc.load(package).generate("x")
    served(package, texts, found)


def served(package: Path, texts: list[str], vectors: Any) -> None:
    """The server's answers are the same vectors."""
    httpx, app = pytest.importorskip("httpx2"), pytest.importorskip("mycc.runtime.serve.app")
    openai = pytest.importorskip("openai")

    async def work() -> None:
        transport = httpx.ASGITransport(app=app.application(mycc.load(package), "small"))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            got = (await client.post("/v1/embeddings", json={"input": texts, "model": "small"})).json()
            np.testing.assert_array_equal([row["embedding"] for row in got["data"]], vectors)
            official = openai.AsyncOpenAI(api_key="none", base_url="http://test/v1", http_client=client)
            rows = await official.embeddings.create(model="small", input=texts)
            np.testing.assert_allclose([row.embedding for row in rows.data], vectors, atol=1e-6)
            body = {"input": texts[1], "encoding_format": "base64"}
            packed = (await client.post("/v1/embeddings", json=body)).json()["data"][0]["embedding"]
            np.testing.assert_allclose(np.frombuffer(base64.b64decode(packed), np.float32), vectors[1], atol=1e-6)
            for wrong in ({}, {"input": []}, {"input": "x", "dimensions": 3}, {"input": "x", "more": 1}):
                assert (await client.post("/v1/embeddings", json=wrong)).status_code == 400
            assert (await client.post("/v1/embeddings", json={"input": "x", "model": "y"})).status_code == 404

    asyncio.run(work())


@pytest.mark.parametrize("mode", ["first", "last", "max", "mean", "mean_sqrt"])
def test_pooling_sees_what_the_mask_says(mode: str) -> None:
    from mycc.compiler.generation.pooled import PooledEncoder

    vectors = torch.randn(2, 4, 3)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    pooled = PooledEncoder(None, mode, False)._pooled(vectors, mask)
    for i, count in enumerate((4, 2)):
        seen = vectors[i, :count]
        wanted = {
            "first": seen[0], "last": seen[-1], "max": seen.amax(0), "mean": seen.mean(0),
            "mean_sqrt": seen.sum(0) / count**0.5,
        }[mode]  # fmt: skip
        torch.testing.assert_close(pooled[i], wanted)


def test_steps_that_are_not_taken(tmp_path: Path) -> None:
    make_encoder(tmp_path / "model", "pooling_mode_weightedmean_tokens")
    with pytest.raises(mycc.CompileError, match="pools vectors in a way that packages do not take"):
        mycc.compile_embedding(tmp_path / "model", out=tmp_path / "vectors.pkg")
    rows = json.loads((tmp_path / "model" / "modules.json").read_text())
    rows[2]["type"] = "sentence_transformers.models.Dense"
    (tmp_path / "model" / "modules.json").write_text(json.dumps(rows))
    with pytest.raises(mycc.CompileError, match="asks for the step Dense"):
        mycc.compile_embedding(tmp_path / "model", out=tmp_path / "vectors.pkg")


def test_the_command_takes_a_folder_for_vectors(tmp_path: Path) -> None:
    make_encoder(tmp_path / "model", "pooling_mode_mean_tokens")
    folder = str(tmp_path / "model")
    made = compile_task("embedding", folder, tmp_path / "v.pkg", None, {"verify": False}, {}, [])
    assert made.exists()
    with pytest.raises(mycc.CompileError, match="--quantize does not go with --task embedding"):
        compile_task("embedding", folder, tmp_path / "w.pkg", None, {"quantize": "int4"}, {}, [])
