"""`mycc verify`: all hashes of a package, the weights' too, then its accuracy certificate."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from .archive import Archive
from .certificate import CaseReport, Report, as_dict, check, parse
from .loader import load
from .text import counted

__all__ = ["VerifyReport", "verify_package"]


@dataclass(frozen=True)
class VerifyReport:
    """`members` and `blocks` of weights whose hashes are right, and the certificate's result (None: it has none)."""

    path: str
    target: str
    members: int
    blocks: int
    accuracy: Report | None

    @property
    def ok(self) -> bool:
        return self.accuracy is None or self.accuracy.ok

    def text(self) -> str:
        """Plain text, a line for each output."""
        members, blocks = counted(self.members, "member"), counted(self.blocks, "block")
        lines = [f"{self.path}: {members} and {blocks} of weights match their hashes"]
        if self.accuracy is None:
            return "\n".join([*lines, "no accuracy certificate: it was compiled without verification"])
        for case in self.accuracy.cases:
            lines += _case_lines(case)
        return "\n".join([*lines, f"verified on {self.target}" if self.ok else "NOT as accurate as when it was built"])

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        accuracy = None if self.accuracy is None else as_dict(self.accuracy)
        return {
            "ok": self.ok, "path": self.path, "target": self.target, "members": self.members, "blocks": self.blocks,
            "accuracy": accuracy,
        }  # fmt: skip


def verify_package(
    path: str | os.PathLike[str], threads: int | None = None, target: str | None = None, device: str | None = None
) -> VerifyReport:
    """Checks a package; an output that is not accurate enough makes the report not `ok`.

    Raises:
        LoadError: it is damaged (which member or block is said), or not for this machine.
    """
    archive = Archive(path)
    members = archive.check_members()
    blocks = archive.check_weights()
    model = load(path, threads, target, device=device)
    member = archive.manifest["check"].get("certificate")
    accuracy = None if member is None else check(model, parse(archive.read(member)))
    return VerifyReport(os.fspath(path), model.target, members, blocks, accuracy)


def _case_lines(case: CaseReport) -> list[str]:
    sizes = ", ".join(f"{name} {size}" for name, size in case.sizes.items())
    lines = [f"{case.entry}" + (f" ({sizes})" if sizes else "")]
    for output in case.outputs:
        right = f"error {output.error:.1e}, allowed {output.tolerance:.1e}"
        state = f"NOT OK: {output.problem}" if output.problem else right
        lines.append(f"  {output.name}: {state} ({counted(output.samples, 'sample')})")
    return lines
