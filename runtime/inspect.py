"""`mycc inspect`: what a package says of itself, read without loading any of its code."""

from __future__ import annotations

from typing import Any

from .archive import Archive, PackageSource
from .errors import LoadError
from .signature import Signature
from .tensorfile import parse_header
from .text import counted

__all__ = ["accuracy_line", "card_html", "choices_of", "describe", "inspect_package", "megabytes", "plan_text"]


def inspect_package(path: PackageSource) -> dict[str, Any]:
    """All about a package as JSON values.

    Keys: path, name, size, weights (size, tensors), other (bytes of everything but the weights), versions, entry_points
    (manifest rows, each with its signature as text), targets (with the sizes of their libraries), glibc (the oldest on
    which a target runs, of all targets), python (interpreter tags), members (name -> bytes), check,
    task (what it is for, or None), training (of a package that trains what its manifest says of that, or None).

    Raises:
        LoadError: not a whole package of a known version.
    """
    archive = Archive(path)
    manifest = archive.manifest
    weights = archive.read(manifest["weights"]["member"])
    try:
        tensors = len(parse_header(weights)[0])
    except ValueError as error:
        raise LoadError(f"{archive.label}: the weights' header is damaged: {error}") from None
    sizes = {name: member.size for name, member in archive.members.items()}
    return {
        "path": archive.path,
        "name": manifest["name"],
        "size": archive.size,
        "weights": {"size": len(weights), "tensors": tensors},
        "other": archive.size - len(weights),
        "versions": manifest["versions"],
        "entry_points": [{**row, "signature": str(Signature.from_manifest(row))} for row in manifest["entry_points"]],
        "targets": [
            {**row, "library_size": sizes.get(row["library"]), "loader_size": sizes.get(row["loader"])}
            for row in manifest["targets"]
        ],
        "glibc": _newest(row["glibc"] for row in manifest["targets"]),
        "python": sorted(manifest["python"]),
        "members": sizes,
        "check": manifest["check"],
        "tuning": manifest.get("tuning"),
        "quantization": manifest.get("quantization"),
        "state": manifest.get("state", []),
        "task": manifest.get("task"),
        "training": manifest.get("training"),
    }


def _target_text(row: dict[str, Any]) -> str:
    """A target, and the chip that its kernels were tuned for."""
    return f"{row['target']} (tuned for {row['chip']})" if "chip" in row else str(row["target"])


def describe(information: dict[str, Any]) -> str:
    """The inspection in a few lines of plain text."""
    versions = information["versions"]
    others = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "mycc")
    head = f"{information['name']}: compiled by mycc {versions.get('mycc', '?')}"
    lines = [f"{head} ({others})" if others else head]
    for row in information["entry_points"]:
        lines += ["", row["signature"]]
    weights, rows = information["weights"], information["entry_points"]
    targets = ", ".join(_target_text(row) for row in information["targets"])
    glibc = f"; glibc {information['glibc']} or later" if information["glibc"] else ""
    wrappers = ", ".join(information["python"])
    total, heavy, other = (megabytes(n) for n in (information["size"], weights["size"], information["other"]))
    facts = {
        "targets": targets + glibc,
        "python": f"{wrappers}; others through ctypes" if wrappers else "through ctypes",
        "size": f"{total}: {counted(weights['tensors'], 'weight')} {heavy}, everything else {other}",
        "kernels": ", ".join(f"{len(row['kernels'])} in {row['name']}" for row in rows),
        "memory": ", ".join(f"{memory_line(row['memory'])} in {row['name']}" for row in rows),
        "accuracy": accuracy_line(information["check"]),
    }
    if information["training"]:
        facts["training"] = training_line(information["training"])
    if information["state"]:
        facts["state"] = ", ".join(f"{row['name']}: {row['dtype']}{row['shape']}" for row in information["state"])
    if information["quantization"]:
        facts["quantised"] = "; ".join(quantization_lines(information["quantization"]))
    if information["tuning"]:
        facts["tuned"] = tuning_line(information)
    return "\n".join([*lines, "", *(f"{name:<10} {text}" for name, text in facts.items())])


def quantization_lines(quantization: dict[str, Any]) -> list[str]:
    """For each entry point what its weights became, and what that costs beside the model with floats."""
    return [_quantized_line(row) for row in quantization.get("entry_points", [])]


def _quantized_line(row: dict[str, Any]) -> str:
    layers = row.get("layers", [])
    size, floats = (sum(layer[name] for layer in layers) for name in ("bytes", "float_bytes"))
    error = f", error {row['error']:.1e} against the model with floats" if row.get("error") is not None else ""
    heard = [layer for layer in layers if layer.get("snr") is not None]
    worst = min(heard, key=lambda layer: layer["snr"], default=None)
    where = f" (worst layer: {worst['name']}, {worst['snr']:.0f} dB)" if worst else ""
    what = f"{counted(len(layers), 'layer')} of {row['entry']} {'is' if len(layers) == 1 else 'are'} {row['format']}"
    return f"{what}, {megabytes(floats)} -> {megabytes(size)}{error}{where}"


def card_html(manifest: dict[str, Any], path: str | None, where: str) -> str:
    """A loaded package as a small table for notebooks.

    manifest: of the package. path: its file, None where it was loaded from bytes. where: target, device and threads.
    """
    import html
    import os

    rows = manifest["entry_points"]
    facts = {
        "runs": where,
        "kernels": ", ".join(f"{len(row['kernels'])} in {row['name']}" for row in rows),
        "targets": ", ".join(row["target"] for row in manifest["targets"]),
        "weights": megabytes(manifest["weights"]["size"]),
        "accuracy": accuracy_line(manifest["check"]),
    }
    if path is not None and os.path.exists(path):
        facts["file"] = f"{path}, {megabytes(os.path.getsize(path))}"
    signatures = "<br>".join(html.escape(str(Signature.from_manifest(row))) for row in rows if "variant_of" not in row)
    cells = "".join(
        f"<tr><th style='text-align:left'>{name}</th><td style='text-align:left'>{html.escape(text)}</td></tr>"
        for name, text in facts.items()
    )
    name = html.escape(manifest["name"])
    return f"<div><b>{name}</b><br><code>{signatures}</code><table>{cells}</table></div>"


def memory_line(memory: dict[str, Any]) -> str:
    """The arena of an entry point; of one with dynamic sizes only the number of its buffers is known."""
    text = f"{counted(memory.get('buffers', 0), 'buffer')}"
    if memory.get("dynamic"):
        return f"{text}, placed for the sizes of each call"
    if "arena" in memory:
        text += f", arena {megabytes(memory['arena'])}"
    if memory.get("live"):
        text += f", {memory['arena'] / memory['live']:.2f} x live"
    return text


def training_line(training: dict[str, Any]) -> str:
    """`AdamW of 12 parameters in 2 groups, memory budget 0.4, steps that are not finite are skipped`"""
    text = f"{training['optimizer']} of {counted(len(training['parameters']), 'parameter')}"
    if training["groups"] > 1:
        text += f" in {counted(training['groups'], 'group')}"
    budget = training.get("memory_budget", 1.0)
    if budget < 1:
        text += f", memory budget {budget:g}: a step keeps this share of its activations"
    return text + (", steps that are not finite are skipped" if training.get("check_finite") else "")


def tuning_line(information: dict[str, Any]) -> str:
    """Which kernels differ from the cost model's, and where that was measured."""
    tuning, rows = information["tuning"], information["entry_points"]
    keys = {kernel["key"] for row in rows for kernel in row["kernels"] if kernel.get("key")}
    made = {key for choices in tuning["targets"].values() for key in choices}
    where = f"measured on {tuning['machine'].get('cpu', 'a CPU')} with {counted(tuning['threads'], 'thread')}"
    return f"{len(made)} of {len(keys)} kinds of kernels differ from the cost model's choice; {where}"


def choices_of(information: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Kernel key -> what was chosen, for the package's first target that has choices."""
    tuning = information["tuning"] or {"targets": {}}
    names = [row["target"] for row in information["targets"]]
    found: dict[str, dict[str, Any]] = next((tuning["targets"][n] for n in names if n in tuning["targets"]), {})
    return found


#: decisions of a plan that its short text names
SHORT_PLAN = ("form", "algorithm", "vector", "parallel", "tasks", "block", "warps", "stages")


def plan_text(kernel: dict[str, Any]) -> str:
    """The plan of a kernel's row in short, "form rows, vector j4"; "" where the package does not say it."""
    plan = kernel.get("plan")
    if not isinstance(plan, dict):
        return ""
    shown = [(name, plan[name]) for name in SHORT_PLAN if isinstance(plan.get(name), str | int | list)]
    blocking = plan.get("blocking")  # of a matrix kernel: its first number is what the sums are cut by
    shown += list(blocking.items())[:1] if isinstance(blocking, dict) else []
    return ", ".join(f"{name} {' '.join(map(str, x)) if isinstance(x, list) else x}" for name, x in shown)


def accuracy_line(check: dict[str, Any]) -> str:
    """The numerical check of the build: the largest error of all outputs, beside eager's."""
    errors, eager = check.get("error") or [], check.get("eager") or []
    if not errors:
        return "not checked when it was built"
    beside = f" (eager {max(eager):.1e})" if eager else ""
    return f"error {max(errors):.1e} against float64{beside}"


def megabytes(size: int) -> str:
    """A size to read: "437.5 MB", "12.0 kB", "64 B"."""
    if size >= 100_000:
        return f"{size / 1e6:.1f} MB"
    return f"{size / 1e3:.1f} kB" if size >= 1000 else f"{size} B"


def _newest(versions: Any) -> str:
    known = [version for version in versions if version]
    return max(known, key=lambda version: [int(part) for part in version.split(".")], default="")
