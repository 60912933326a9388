"""Tokens a second of text generation, for each number format of the weights, and the share of the read bandwidth.

    python bench/text_decode.py [--size 124m|1b] [--formats float32,bf16,int8,int4] [--threads 1,2] [--tokens 64]

The model is Llama-like with random weights (124m: hidden 768, 12 layers, 12:4 heads, 2048, vocabulary 32000; 1b: hidden
2048, 22 layers, 32:4 heads, 5632). A step reads all weights but the embedding table. The bandwidth is that of a
read-only sum over 1 GB by as many threads, in turns with the steps.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZES: dict[str, dict[str, int]] = {
    "124m": {
        "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 4,
        "intermediate_size": 2048, "vocab_size": 32000,
    },
    "1b": {
        "hidden_size": 2048, "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4,
        "intermediate_size": 5632, "vocab_size": 32000,
    },
}  # fmt: skip
LENGTH, PROMPT = 640, 512
#: format -> dtype of the model, quantisation of mycc, bits of a weight with its scales
FORMATS: dict[str, tuple[torch.dtype, str | None, float]] = {
    "float32": (torch.float32, None, 32),
    "bf16": (torch.bfloat16, None, 16),
    "int8": (torch.float32, "int8", 8),
    "int8-dynamic": (torch.float32, "int8-dynamic", 8),
    "int4": (torch.float32, "int4:group=32", 4.5),
}


def reading(threads: int) -> float:
    """Bytes a second that a sum over 1 GB reads."""
    torch.set_num_threads(threads)
    x = torch.ones(1 << 28)
    spent = []
    for _ in range(5):
        begin = time.perf_counter()
        x.sum()
        spent.append(time.perf_counter() - begin)
    return x.nbytes / min(spent)


def measure(package: Any, tokens: int) -> tuple[float, float]:
    """Seconds of a step behind 64 positions, and of a prompt."""
    prefill, decode, state = package.entry("prefill"), package.entry("decode"), package.new_state()
    prompt = np.ones((1, PROMPT), np.int64)
    chunks = [prompt[:, i : i + 512] for i in range(0, PROMPT, 512)]
    prompts = []
    for _ in range(3):
        begin = time.perf_counter()
        for i, chunk in enumerate(chunks):
            prefill(chunk, np.array([512 * i]), state=state)
        prompts.append(time.perf_counter() - begin)
    steps = []
    for at in range(64, 64 + tokens):
        begin = time.perf_counter()
        decode(np.ones((1, 1), np.int64), np.array([at]), state=state)
        steps.append(time.perf_counter() - begin)
    return statistics.median(steps), min(prompts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=tuple(SIZES), default="124m")
    parser.add_argument("--formats", default="float32,bf16,int8,int8-dynamic,int4")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    torch.manual_seed(0)
    config = LlamaConfig(max_position_embeddings=2048, tie_word_embeddings=False, **SIZES[options.size])
    for name in options.formats.split(","):
        dtype, quantize, bits = FORMATS[name]
        network = LlamaForCausalLM(config).eval().to(dtype)
        weights = sum(p.numel() for p in network.parameters()) - network.model.embed_tokens.weight.numel()
        with tempfile.TemporaryDirectory(prefix="mycc-text-") as folder:
            begin = time.perf_counter()
            path = mycc.compile_generation(
                network, out=Path(folder) / "text.pkg", max_length=LENGTH, chunk=512, quantize=quantize, verify=False
            )
            compiled, size = time.perf_counter() - begin, path.stat().st_size / 1e6
            del network
            for threads in map(int, options.threads.split(",")):
                step, prompt = measure(mycc.load(path, threads=threads), options.tokens)
                share = weights * bits / 8 / step / reading(threads)
                print(
                    f"{options.size} {name:12} {threads} threads  {1 / step:7.1f} tokens/s  {100 * share:3.0f} % read"
                    f"  prompt {PROMPT / prompt:7.0f} tokens/s   {size:7.1f} MB, compiled in {compiled:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
