"""What other tools read: a trace for Perfetto and Chrome, a graph for Graphviz and Netron."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["dot_text", "trace_events"]


def _shown(report: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The entry point and the target that were measured, else the first."""
    measured = report["measured"] or {}
    entry = next((e for e in report["entry_points"] if e["name"] == measured.get("entry")), report["entry_points"][0])
    targets = list(entry["targets"])
    return entry, next((t for t in targets if t == measured.get("target")), targets[0])


def trace_events(report: Mapping[str, Any]) -> dict[str, Any]:
    """One run as a trace: kernels one after the other, as long as their medians, or a microsecond each where nothing
    was measured."""
    entry, target = _shown(report)
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": f"{report['package']['name']} {target}"}}
    ]
    start = 0.0
    for kernel in entry["targets"][target]["kernels"]:
        duration = kernel.get("us", 1.0)
        facts = {"operators": ", ".join(kernel["ops"]), "lines": ", ".join(kernel["sources"])}
        events.append({"name": kernel["name"], "cat": kernel["kind"], "ph": "X", "pid": 0, "tid": 0, "ts": start,
                       "dur": duration, "args": facts})  # fmt: skip
        start += duration
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def dot_text(report: Mapping[str, Any]) -> str:
    """The operators of an entry point and what they read, without weights."""
    entry, _ = _shown(report)
    nodes = [n for n in (entry["graph"] or {"nodes": []})["nodes"] if n["op"] != "weight"]
    names = {n["name"] for n in nodes}
    lines = [f"digraph {json.dumps(entry['name'])} {{"]
    for node in nodes:
        op = node["op"].removeprefix("aten.")
        lines.append(f"  {json.dumps(node['name'])} [label={json.dumps(op + chr(10) + node['type'])}];")
        lines += [f"  {json.dumps(n)} -> {json.dumps(node['name'])};" for n in node["inputs"] if n in names]
    return "\n".join([*lines, "}", ""])
