"""`mycc` and `python -m mycc`: the command, or what to install where it is missing."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command line. Exit code 2 where the extra `cli` is not installed."""
    # torch, which is not yet loaded, then asks Linux for large pages: copies of weights take a third of the time
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    try:
        from .cli import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "click", "rich"):
            raise
        from .runtime.installation import how_to_install

        print(f"error: the command needs {error.name}, which is not installed", file=sys.stderr)
        print(f"  {how_to_install('cli')}", file=sys.stderr)
        sys.exit(2)
    app(prog_name="mycc")


if __name__ == "__main__":
    main()
