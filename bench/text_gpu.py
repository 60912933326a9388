"""Text generation on a GPU: steps and prompts of a Llama of 1 B in bfloat16, and many requests at once.

    python bench/text_gpu.py [--sections decode,prefill,serving] [--texts 1,16,64] [--layers 16] [--json FILE]

The model has random weights (hidden 2048, 16 layers, 32:8 heads, 8192, vocabulary 128256) and comes from
mycc.compile_generation, so that decode and prefill are those of a user's package; with several texts the cache is in
blocks. decode: a step behind 512 positions of each text, as a share of what a copy moves in the same run; bytes are all
weights that a step reads and the keys and values of the filled positions. prefill: prompts of 512 and 2048 tokens, as a
share of the rate of torch's product of 8192 x 8192 x 8192 in bfloat16 on random data in the same run; operations are
those of the layers for all tokens, and of the head for the last. serving: 64 requests of mixed lengths, all at the
beginning, by the native scheduler (bench/serving.py says what is printed). After each figure come the longest kernels.

Needs torch, triton, transformers and mycc importable; no network. Packages are built side by side in processes of
their own; --folder keeps them. tests/gpu_runtime/test_generation.py checks the tokens.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

HIDDEN, HEADS, KV_HEADS, INNER, VOCABULARY = 2048, 32, 8, 8192, 128256
#: positions of a text, and those that are filled when a step is timed
LENGTH, FILLED = 1024, 512


class Form(NamedTuple):
    """A package: texts at once, tokens of a text, tokens of a prompt that one call reads."""

    texts: int
    length: int
    chunk: int

    @property
    def file(self) -> str:
        return f"text-{self.texts}-{self.length}-{self.chunk}.pkg"


LONG = Form(1, 2560, 2048)


def forms_of(options: argparse.Namespace) -> list[Form]:
    """The packages that the sections need."""
    forms = []
    if "decode" in options.sections:
        forms += [Form(int(texts), LENGTH, 512) for texts in options.texts.split(",")]
    if "prefill" in options.sections:
        forms += [Form(1, LENGTH, 512), LONG]
    if "serving" in options.sections:
        forms.append(Form(16, LENGTH, 512))
    return list(dict.fromkeys(forms))


def build(form: Form, options: argparse.Namespace) -> None:
    """A package of a form, in this process."""
    import mycc
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=HIDDEN, num_hidden_layers=options.layers, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
        intermediate_size=INNER, vocab_size=VOCABULARY, max_position_embeddings=4096, tie_word_embeddings=False,
        dtype=torch.bfloat16,
    )  # fmt: skip
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    network = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(before)
    begin, out = time.perf_counter(), Path(options.folder) / form.file
    mycc.compile_generation(
        network, out=out, max_length=form.length, max_batch=form.texts, chunk=form.chunk, target=options.target,
        verify=False,
    )  # fmt: skip
    spent, size = time.perf_counter() - begin, out.stat().st_size
    print(f"{form.file}: built in {spent:.0f} s, {size / 1e6:.0f} MB", flush=True)


def weights_of(layers: int) -> int:
    """Weights of the layers."""
    size = HIDDEN // HEADS
    return layers * HIDDEN * (2 * HIDDEN + 2 * KV_HEADS * size + 3 * INNER)


def blocks_of(model: Any, texts: int) -> tuple[Any, ...]:
    """The table of blocks of as many texts, of a package whose cache is in blocks: each text's own."""
    task = model.manifest["task"]
    if "blocks" not in task:
        return ()
    columns = -(-task["length"] // task["block"])
    return ((torch.arange(texts * columns).reshape(texts, columns) % (task["blocks"] - 1) + 1).cuda(),)


def decode(model: Any, form: Form, layers: int, copy: float) -> dict[str, Any]:
    """The time of a step of all texts."""
    from gpu_kernels import alone
    from quantized_gpu import kernels_of, step_us

    entry, state = model.entry("decode"), model.new_state()
    tokens, start = torch.full((form.texts, 1), 5).cuda(), torch.full((form.texts,), FILLED).cuda()
    given = (tokens, start, *blocks_of(model, form.texts))
    with alone():
        spent = step_us(lambda: entry(*given, state=state))
    cache = 2 * 2 * form.texts * (FILLED + 1) * KV_HEADS * (HIDDEN // HEADS) * layers
    moved = 2 * (weights_of(layers) + HIDDEN * VOCABULARY) + cache
    share = moved / (spent * 1e-6) / copy
    print(
        f"decode {form.texts:3} texts {spent:8.1f} us a step, {1e6 * form.texts / spent:7.0f} tokens/s, "
        f"{100 * share:3.0f} % of a copy ({moved / 1e9:.2f} GB)",
        flush=True,
    )
    kernels_of(lambda *x: entry(*x, state=state), given)
    return {"section": "decode", "texts": form.texts, "us": spent, "share": share, "bytes": moved}


def prefill(model: Any, count: int, layers: int, product: float) -> dict[str, Any]:
    """The time of a prompt of `count` tokens."""
    from gpu_kernels import alone
    from quantized_gpu import kernels_of, step_us

    entry, state = model.entry("prefill"), model.new_state()
    given = (torch.randint(4, VOCABULARY, (1, count)).cuda(), torch.zeros(1, dtype=torch.int64).cuda())
    with alone():
        spent = step_us(lambda: entry(*given, state=state), 20)
    work = 2 * (weights_of(layers) * count + HIDDEN * VOCABULARY) + layers * 2 * count * (count + 1) * HIDDEN
    share = work / (spent * 1e-6) / product
    print(
        f"prefill {count:5} tokens {spent:8.1f} us, {work / spent / 1e6:6.0f} TFLOP/s, "
        f"{100 * share:3.0f} % of the product",
        flush=True,
    )
    kernels_of(lambda *x: entry(*x, state=state), given)
    return {"section": "prefill", "tokens": count, "us": spent, "share": share, "operations": work}


def product_rate() -> float:
    """Operations a second of torch's product of 8192 x 8192 x 8192 in bfloat16, random data, on a GPU that is warm."""
    from quantized_gpu import step_us

    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * 8192**3 / (step_us(lambda: torch.mm(a, b, out=out), 50) * 1e-6)


def serving(path: Path) -> None:
    """bench/serving.py with this package."""
    here = Path(__file__).resolve().parent
    subprocess.run([sys.executable, here / "serving.py", "--package", path, "--batch", "16"], check=False)


def measure(options: argparse.Namespace, built: dict[Form, Any]) -> list[dict[str, Any]]:
    """All figures, as the packages become ready."""
    import mycc
    from quantized_gpu import copy_bandwidth

    copy, product, rows = copy_bandwidth(), product_rate(), []
    print(
        f"{torch.cuda.get_device_name()}: a copy moves {copy / 1e12:.2f} TB/s, a product {product / 1e12:.0f} TFLOP/s",
        flush=True,
    )
    for form, process in built.items():
        if process is not None and process.wait() != 0:
            print(f"{form.file} was not built", flush=True)
            continue
        model = mycc.load(Path(options.folder) / form.file)
        if "decode" in options.sections and form != LONG:
            rows.append(decode(model, form, options.layers, copy))
        if "prefill" in options.sections and form.texts == 1:
            rows.append(prefill(model, 2048 if form == LONG else 512, options.layers, product))
        del model
        if "serving" in options.sections and form.texts == 16:
            serving(Path(options.folder) / form.file)
    return [{"section": "machine", "copy": copy, "product": product}, *rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", default="decode,prefill,serving")
    parser.add_argument("--texts", default="1,16,64")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--target", default="cuda:sm_90")
    parser.add_argument("--folder", help="where packages go; those that are there are used again")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--build", nargs=3, type=int, metavar=("TEXTS", "LENGTH", "CHUNK"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build:
        build(Form(*options.build), options)
        return
    with tempfile.TemporaryDirectory(prefix="mycc-text-") as own:
        options.folder = options.folder or own
        Path(options.folder).mkdir(parents=True, exist_ok=True)
        built: dict[Form, Any] = {}
        for form in forms_of(options):
            command = [
                sys.executable, __file__, "--layers", str(options.layers), "--target", options.target, "--folder",
                options.folder, "--build", *map(str, form),
            ]  # fmt: skip
            there = (Path(options.folder) / form.file).exists()
            built[form] = None if there else subprocess.Popen(command)
        rows = measure(options, built)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
