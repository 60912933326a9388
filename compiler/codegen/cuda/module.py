"""A generated module: imports, the device functions that a kernel names, and the kernel."""

from __future__ import annotations

import re
from functools import cache

from ..environments import environment
from .kernel import PLACEHOLDER

FUNCTIONS = ("functions.py.j2", "special.py.j2")


def render(template: str, view: object, leaves_room: bool = True) -> str:
    """The text of a module whose kernel is called PLACEHOLDER; leaves_room: see Device.leaves_room."""
    return module_text(kernel_text(template, view, leaves_room))


def kernel_text(template: str, view: object, leaves_room: bool = True) -> str:
    """The text of the kernel alone, without the module around it."""
    return environment("cuda").get_template(template).render(k=view, name=PLACEHOLDER, leaves_room=leaves_room)


def module_text(body: str) -> str:
    """The module around the text of a kernel."""
    code = "\n\n\n".join((*_functions_of(body), _tidy(body)))
    imports = ["import triton", "import triton.language as tl"]
    if "libdevice." in code:
        imports.append("from triton.language.extra import libdevice")
    return "\n".join((*imports, "", "", code)).rstrip() + "\n"


def _functions_of(body: str) -> tuple[str, ...]:
    """The device functions that a text names, and those that they name."""
    wanted: set[str] = set()
    texts = [body]
    while texts:
        named = set(re.findall(r"\w+", texts.pop())) & device_functions().keys()
        texts += [device_functions()[name] for name in named - wanted]
        wanted |= named
    return tuple(text for name, text in device_functions().items() if name in wanted)


@cache
def device_functions() -> dict[str, str]:
    """The functions of FUNCTIONS by name."""
    found = {}
    for template in FUNCTIONS:
        text = environment("cuda").get_template(template).render()
        for part in text.split("@triton.jit\n")[1:]:
            name = re.match(r"def (\w+)\(", part)
            assert name is not None
            found[name[1]] = f"@triton.jit\n{part.strip()}"
    return found


def _tidy(body: str) -> str:
    """Without empty lines, which come of template lines that say nothing."""
    return "\n".join(line.rstrip() for line in body.splitlines() if line.strip())
