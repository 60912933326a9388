"""A process that compiles Triton kernels: a line of JSON in, a line of JSON out, until standard input ends.

Run as a file of its own, so that it imports Triton and nothing of mycc. It needs no GPU. A task has:

    module: path of the module, symbol: name of its kernel, signature: parameter -> type ("constexpr" for constants),
    constants: parameter -> value, divisors: parameter -> what divides it, options: all of Triton's,
    capability: 90, ptx: whether PTX is wanted rather than a cubin, out: path for the image

The answer: name, threads, shared, scratch_bytes, scratch_alignment, hidden, registers, spills (bytes), stack (bytes),
and accesses: instructions by width of each kind of access to global memory, such as {"ld.v4.b32": 2}; or error: its
text.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import sys
from collections import Counter
from pathlib import Path

_ACCESS = re.compile(r"\b(ld|st)\.global((?:\.\w+(?:::\w+)*)*?)(\.v[248])?\.([bfus]\d+)\b")
_COPY = re.compile(r"\bcp\.async\.(bulk\.tensor|c[ag]\.shared\.global)[^;]*?(?:\], \[[^\]]*\], (?:0x)?([0-9a-f]+))?")
_USED = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def compile_task(task: dict) -> dict:
    """One kernel."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as triton_compile

    spec = importlib.util.spec_from_file_location(Path(task["module"]).stem, task["module"])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, task["symbol"])
    places = {name: i for i, name in enumerate(function.arg_names)}
    attrs = {(places[name],): [["tt.divisibility", d]] for name, d in task["divisors"].items()}
    constants = {name: constant(value) for name, value in task["constants"].items()}
    source = ASTSource(function, task["signature"], constants, attrs)
    target, log = GPUTarget("cuda", task["capability"], 32), io.StringIO()
    with contextlib.redirect_stdout(log):
        compiled = triton_compile(source, target, task["options"])
        if lost_products(compiled.asm["cubin"]):
            log.seek(0)
            log.truncate()  # the log is that of the machine code which is taken
            compiled = triton_compile(source, target, {**task["options"], "ptx_options": "--opt-level 1"})
    if lost_products(compiled.asm["cubin"]):
        raise RuntimeError("ptxas has left out products whose sums the kernel reads")
    ptx, meta = compiled.asm["ptx"], compiled.metadata
    image = ptx.encode() + b"\0" if task["ptx"] else compiled.asm["cubin"]
    Path(task["out"]).write_bytes(image)
    spilled = _SPILLS.search(log.getvalue())
    stack, stores, loads = map(int, spilled.groups()) if spilled else (0, 0, 0)
    used = _USED.search(log.getvalue())
    params = re.search(r"\.entry \w+\(([^)]*)\)", ptx)
    declared = sum(1 for kind in task["signature"].values() if kind != "constexpr")
    return {
        "name": meta.name,
        "threads": 32 * meta.num_warps,
        "shared": meta.shared,
        "scratch_bytes": meta.global_scratch_size,
        "scratch_alignment": meta.global_scratch_align,
        "hidden": (params[1].count(".param") if params else declared + 2) - declared,
        "registers": int(used[1]) if used else 0,
        "spills": stores + loads,
        "stack": stack,
        "accesses": accesses(ptx),
    }


#: HGMMA.64x8x16.F16 RZ, gdesc[URZ], RZ, !UPT: what ptxas of CUDA 12 leaves of wgmma when it takes its sums for the
#: zeros that they start from (codegen/cuda/matrix.py keeps it from that)
_LOST = bytes.fromhex("f079ff3f00000000ff00000c")


def lost_products(image: bytes) -> bool:
    """Whether the machine code multiplies nothing where its source does, as wrong optimisation makes it."""
    return _LOST in image


def constant(value: object) -> object:
    """["tl", "float32"]: a type of triton.language."""
    import triton.language as tl

    return getattr(tl, value[1]) if isinstance(value, list) else value


def accesses(ptx: str) -> dict[str, int]:
    """Instructions that touch global memory, by kind and width."""
    found: Counter[str] = Counter()
    for kind, _, vector, element in _ACCESS.findall(ptx):
        found[f"{kind}{vector}.{element}"] += 1
    for kind, _ in _COPY.findall(ptx):
        found["bulk" if kind.startswith("bulk") else "copy"] += 1
    return dict(sorted(found.items()))


def main() -> None:
    answers = sys.stdout
    for line in sys.stdin:
        try:
            answer = compile_task(json.loads(line))
        except Exception as error:  # whatever it is, the builder says which kernel it was
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
