"""Decoding and prompts of one GGUF file of random weights by mycc and by llama.cpp, in turns, on a CPU.

    python bench/llama_cpp_decode.py [--size 124m|1b] [--kinds Q4_0,Q8_0,F16] [--threads 1,2] [--rounds 12] [--tile 8]

The file has the Llama-like model of bench/text_decode.py. mycc compiles it as a user would (`mycc compile FILE.gguf`),
and the same network as torchao's 8da4w (4 bits by groups of 32, int8 activations), as int8 and as int8-dynamic.
llama.cpp is the one of llama-cpp-python, built from source for this machine. A turn is --tile steps of each behind 64
positions, or a prompt of 512 tokens. Prints tokens a second, medians of turns, and mycc's as a multiple of llama.cpp's.

Needs torch, transformers, gguf and llama-cpp-python beside mycc; no network.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import mycc
import numpy as np
from text_decode import LENGTH, PROMPT, SIZES
from turns import timed

Types = gguf.GGMLQuantizationType
#: behind so many positions a step is timed
FILLED = 64
Run = Callable[[], Any]


def tensors(size: dict[str, int]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The names of a file of the architecture llama, and their shapes."""
    hidden, inner, vocabulary = size["hidden_size"], size["intermediate_size"], size["vocab_size"]
    kv = hidden // size["num_attention_heads"] * size["num_key_value_heads"]
    yield "token_embd.weight", (vocabulary, hidden)
    for layer in range(size["num_hidden_layers"]):
        block = f"blk.{layer}."
        yield block + "attn_norm.weight", (hidden,)
        yield block + "ffn_norm.weight", (hidden,)
        for name, rows, columns in (
            *(("attn_q", hidden, hidden), ("attn_k", kv, hidden), ("attn_v", kv, hidden)),
            *(("attn_output", hidden, hidden), ("ffn_gate", inner, hidden), ("ffn_up", inner, hidden)),
            ("ffn_down", hidden, inner),
        ):
            yield f"{block}{name}.weight", (rows, columns)
    yield "output_norm.weight", (hidden,)
    yield "output.weight", (vocabulary, hidden)


def write_file(path: Path, size: dict[str, int], kind: str) -> None:
    """A model with random weights of a type, and a tokenizer that names its tokens by numbers."""
    writer = gguf.GGUFWriter(path, "llama")
    heads = size["num_attention_heads"]
    writer.add_context_length(2048)
    writer.add_embedding_length(size["hidden_size"])
    writer.add_block_count(size["num_hidden_layers"])
    writer.add_feed_forward_length(size["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(size["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(size["hidden_size"] // heads)
    writer.add_vocab_size(size["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    first = ["<s>", "</s>", "t", "h", "th"]
    writer.add_token_list([*first, *(f"t{i}" for i in range(size["vocab_size"] - len(first)))])
    writer.add_token_types([3, 3, *([1] * (size["vocab_size"] - 2))])
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    draw = np.random.default_rng(0)
    for name, shape in tensors(size):
        if len(shape) == 1:
            writer.add_tensor(name, np.ones(shape, np.float32))
            continue
        values = 0.02 * draw.standard_normal(shape, dtype=np.float32)
        if kind == "F16":
            writer.add_tensor(name, values.astype(np.float16))
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, Types[kind]), raw_dtype=Types[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def mycc_runs(path: Path, threads: int, tile: int) -> tuple[Run, Run]:
    """Steps of a package, and a prompt."""
    package = mycc.load(path, threads=threads)
    prefill, decode, state = package.entry("prefill"), package.entry("decode"), package.new_state()
    prompt, one = np.arange(5, 5 + PROMPT)[None], np.ones((1, 1), np.int64)

    def steps() -> None:
        for at in range(FILLED, FILLED + tile):
            decode(one, np.array([at]), state=state)

    return steps, lambda: prefill(prompt, np.array([0]), state=state)


def peer_runs(path: Path, threads: int, tile: int) -> tuple[Run, Run]:
    """The same of llama.cpp."""
    from llama_cpp import Llama

    model = Llama(str(path), n_ctx=1024, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False)
    prompt = list(range(5, 5 + PROMPT))

    def at(count: int) -> None:
        model.reset()
        model.n_tokens = count
        model._ctx.kv_cache_seq_rm(-1, count, -1)

    model.eval(prompt)

    def steps() -> None:
        at(FILLED)
        for _ in range(tile):
            model.eval([1])

    def read() -> None:
        at(0)
        model.eval(prompt)

    return steps, read


def network_of(size: dict[str, int]) -> Any:
    """The model in torch, in float32."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(max_position_embeddings=2048, tie_word_embeddings=False, **size)).eval()


def with_int8_activations(network: Any) -> Any:
    """torchao's 8da4w."""
    import torch
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup, quantize_

    quantize_(network, Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32)))
    return network


def compiled(file: Path, folder: Path, size: dict[str, int]) -> dict[str, Path]:
    """The packages that are compared with a file."""
    made: dict[str, tuple[Any, dict[str, Any]]] = {
        "F16": {"bf16": (file, {"dtype": "bf16"})},
        "Q4_0": {"the file": (file, {}), "8da4w": (lambda: with_int8_activations(network_of(size)), {})},
        "Q8_0": {
            "the file": (file, {}),
            "int8": (lambda: network_of(size), {"quantize": "int8"}),
            "int8-dynamic": (lambda: network_of(size), {"quantize": "int8-dynamic"}),
        },
    }[file.stem.rpartition("-")[2]]
    found = {}
    for name, (source, given) in made.items():
        found[name] = folder / f"{file.stem}-{name.replace(' ', '-')}.pkg"
        if not found[name].exists():
            source = source() if callable(source) else source
            mycc.compile_generation(source, out=found[name], max_length=LENGTH, chunk=PROMPT, verify=False, **given)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=tuple(SIZES), default="124m")
    parser.add_argument("--kinds", default="Q4_0,Q8_0,F16")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--tile", type=int, default=8, help="steps of a turn")
    parser.add_argument(
        "--folder", type=Path, help="where files and packages stay; those that are there are used again"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mycc-gguf-") as own:
        folder = options.folder or Path(own)
        for kind in options.kinds.split(","):
            file = folder / f"{options.size}-{kind}.gguf"
            if not file.exists():
                write_file(file, SIZES[options.size], kind)
            packages = compiled(file, folder, SIZES[options.size])
            for threads in map(int, options.threads.split(",")):
                peer = peer_runs(file, threads, options.tile)
                runs = {name: mycc_runs(path, threads, options.tile) for name, path in packages.items()}
                steps = timed({"llama.cpp": peer[0], **{n: r[0] for n, r in runs.items()}}, options.rounds)
                reads = timed({"llama.cpp": peer[1], **{n: r[1] for n, r in runs.items()}}, max(3, options.rounds // 4))
                for name in steps:
                    rate, read = 1e3 * options.tile / steps[name], 1e3 * PROMPT / reads[name]
                    print(
                        f"{options.size} {kind:5} {threads} threads  {name:14} "
                        f"{rate:7.1f} tokens/s ({steps['llama.cpp'] / steps[name]:.2f})   "
                        f"prompt {read:7.0f} tokens/s ({reads['llama.cpp'] / reads[name]:.2f})",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
