"""How mycc's parts are installed: what messages say when one is missing.

The distribution is `mycc-aot`: the name `mycc` belongs to another project on the public index. The import name and the
command are mycc. `mycc-aot-runtime` is the same module without its compiler, for machines that only load packages.
"""

from __future__ import annotations

__all__ = ["NO_COMPILER", "how_to_install"]

NO_COMPILER = "this installation is mycc-aot-runtime, which has no compiler; install mycc-aot instead of it"


def how_to_install(extra: str) -> str:
    """The hint for a part that is missing; extra: "cli", "compiler", "bench"."""
    return (
        f"Install mycc with its extra '{extra}': pip install '.[{extra}]' in a checkout of mycc, "
        f"or pip install 'mycc_aot-VERSION.whl[{extra}]' from a wheel."
    )
