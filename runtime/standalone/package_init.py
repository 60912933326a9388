"""A model compiled by mycc, importable with this package file on sys.path. Needs numpy, and nothing else.

    import bert                       # with bert.pkg on sys.path
    y = bert.model(input_ids)         # loaded at its first use
    m = bert.load(threads=4)          # or with options

`model.signature` says what it takes and gives.
"""

from .runtime import Error, InputError, LoadError, RunError
from .runtime import load as _load


def load(threads=None, target=None, check="quick", *, device=None, launch=None):
    """Loads this package; see runtime.load."""
    return _load(_path(), threads, target, check, device=device, launch=launch)


def _path():
    path = getattr(globals().get("__loader__"), "archive", None)
    if path is None:
        raise LoadError("the package was unpacked", hint="Put the package file itself on sys.path and import from it.")
    return path


def __getattr__(name):
    if name != "model":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    model = globals()["model"] = load()
    return model


__all__ = ["Error", "InputError", "LoadError", "RunError", "load", "model"]  # noqa: F822 (model: see __getattr__)
