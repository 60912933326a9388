"""A generated module: imports, the device functions that a kernel names, and the kernel."""

from __future__ import annotations

import re
from functools import cache

from ..render import environment
from .kernel import PLACEHOLDER

FUNCTIONS = "functions.py.j2"


def render(template: str, view: object) -> str:
    """The text of a module whose kernel is called PLACEHOLDER."""
    return module_text(environment("cuda").get_template(template).render(k=view, name=PLACEHOLDER))


def module_text(body: str) -> str:
    """The module around the text of a kernel."""
    functions = [text for name, text in device_functions().items() if re.search(rf"\b{name}\b", body)]
    code = "\n\n\n".join((*functions, _tidy(body)))
    imports = ["import triton", "import triton.language as tl"]
    if "libdevice." in code:
        imports.append("from triton.language.extra import libdevice")
    return "\n".join((*imports, "", "", code)).rstrip() + "\n"


@cache
def device_functions() -> dict[str, str]:
    """The functions of FUNCTIONS by name."""
    text = environment("cuda").get_template(FUNCTIONS).render()
    parts = [part.strip() for part in text.split("\n\n\n")]
    return {re.search(r"def (\w+)\(", part)[1]: part for part in parts if part}  # type: ignore[index]


def _tidy(body: str) -> str:
    """Without empty lines, which come of template lines that say nothing."""
    return "\n".join(line.rstrip() for line in body.splitlines() if line.strip())
