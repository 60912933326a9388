"""Indentation of generated code by its braces: templates need not count columns."""

from __future__ import annotations


def indent(text: str, width: int = 2) -> str:
    """The text with every line indented by the braces open before it; empty lines dropped inside functions."""
    depth = 0
    lines: list[str] = []
    for raw in text.splitlines():
        line = raw.strip()
        if not line:
            if depth == 0 and lines and lines[-1]:
                lines.append("")
            continue
        closes = len(line) - len(line.lstrip("}"))
        level = max(depth - closes, 0)
        lines.append(line if line.startswith("#") else " " * (width * level) + line)
        depth += line.count("{") - line.count("}")
    return "\n".join(lines).strip() + "\n"
