"""Packages loaded by each of the two ways into libmycc.so."""

from __future__ import annotations

from pathlib import Path

import mycc
from mycc.runtime.capi import Library
from mycc.runtime.loader import Model
from mycc.runtime.native import LIBRARY, installed_file

__all__ = ["INTERFACES", "load_by"]

INTERFACES = ("pybind11", "ctypes")


def load_by(interface: str, package: Path) -> Model:
    """The package as mycc.load gives it, or with the C API called by ctypes."""
    if interface == "pybind11":
        return mycc.load(package)
    library = installed_file(LIBRARY)
    assert library is not None
    return Model(Library(library).load_file(str(package)), str(package))
