"""Folders in Hugging Face's form: small random models with a tokenizer that is trained here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 400
TEXTS = [
    "the quick brown fox jumps over the lazy dog ",
    "a package holds what it needs, and nothing else. ",
    "日本語 café ",
]
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "initializer_range": 0.3,
    "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1,
}  # fmt: skip


def train_tokenizer() -> Any:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>", "<|user|>", "<|assistant|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text * 3 for text in TEXTS], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE
    )


def make_network(kind: str, **more: Any) -> Any:
    """A random model of this model_type, in eval mode. Norms and biases are no ones and zeros."""
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**{**_SIZES, **more})).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return network


def make_folder(folder: Path, kind: str, dtype: torch.dtype = torch.float32, **more: Any) -> Any:
    """Writes a model of this kind with its tokenizer; returns the network."""
    shard = more.pop("shard", None)
    network = make_network(kind, **more).to(dtype)
    network.save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    train_tokenizer().save_pretrained(folder)
    return network


def greedy(network: Any, prompt: list[int], count: int) -> list[int]:
    """The tokens that transformers' generate chooses, its end token or not."""
    ids = torch.tensor([prompt])
    network.generation_config.eos_token_id = None
    found = network.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, pad_token_id=0
    )
    return [int(token) for token in found[0, len(prompt) :]]
