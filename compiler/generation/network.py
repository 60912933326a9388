"""The model of a folder, loaded by transformers from the files at hand; nothing is downloaded."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from ...runtime.errors import CompileError
from ..checkpoints.network import other_task
from .folder import Folder

__all__ = ["load_network", "require_transformers"]

#: the oldest version of transformers that was tried
OLDEST = "5.17"


def require_transformers() -> None:
    """Raises CompileError where transformers is not installed, or has not what a cache is made of."""
    with _without_warnings():
        _import_transformers()


def _import_transformers() -> None:
    try:
        import transformers
    except ImportError as error:
        raise CompileError(
            f"compiling a model's folder needs transformers: {error}", hint="pip install transformers"
        ) from None
    try:
        from . import attention, cache, module  # noqa: F401
    except ImportError as error:
        raise CompileError(
            f"transformers {transformers.__version__} does not fit: {error}",
            hint=f"Versions from {OLDEST} on are known to: pip install -U transformers",
        ) from None


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Libraries that transformers imports, such as torchao, warn of files they cannot load, which mycc does not use."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        yield
    finally:
        logging.disable(before)


def load_network(folder: Folder, auto_class: str, dtype: Any = None) -> Any:
    """The network in eval mode, with the folder's weights.

    Args:
        folder: what read_folder gave.
        auto_class: which of transformers' classes loads it: "AutoModelForCausalLM", "AutoModel".
        dtype: a torch dtype; None: the one that the folder's weights have.

    Raises:
        CompileError: transformers does not know the architecture, has no such form of it, or the weights do not fit.
    """
    require_transformers()
    import transformers

    kind = folder.config.get("model_type")
    if kind not in transformers.CONFIG_MAPPING:
        raise CompileError(
            f"transformers {transformers.__version__} does not know the architecture {folder.architecture} "
            f"(model_type {kind!r})",
            hint="A newer transformers may know it. Code that lies in the folder itself is not run.",
        )
    loader = getattr(transformers, auto_class)
    with _quiet():
        config = _config(folder)
        if type(config) not in loader._model_mapping:
            raise CompileError(
                f"{folder.architecture} is not a model that {auto_class} of transformers loads",
                hint="Name another task: --task embedding takes encoders.",
            )
        if folder.is_gguf:
            from ..checkpoints.gguf_file import GgufFile, load_gguf

            return load_gguf(GgufFile(folder.path), config, loader, dtype)
        if folder.config.get("quantization_config"):
            from ..checkpoints.network import load_folder

            return load_folder(folder.path, config, loader, dtype)
        try:
            network, found = loader.from_pretrained(
                folder.path, config=config, dtype=dtype or "auto", local_files_only=True, output_loading_info=True
            )
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise CompileError(f"the weights in '{folder.path}' cannot be loaded: {reason}") from None
    missing = sorted(found["missing_keys"])
    if missing:
        raise CompileError(
            f"the weights in '{folder.path}' lack {len(missing)} tensors that {type(network).__name__} has",
            details=missing[:8],
            hint=other_task(network),
        )
    return network.eval()


def _config(folder: Folder) -> Any:
    import transformers

    if folder.is_gguf:
        return transformers.CONFIG_MAPPING[folder.config["model_type"]](**folder.config)
    try:
        return transformers.AutoConfig.from_pretrained(folder.path, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CompileError(f"cannot read '{folder.path / 'config.json'}': {error}") from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' own reports and progress bars: what matters becomes an error above."""
    from transformers.utils import logging as reports

    level, bars = reports.get_verbosity(), reports.is_progress_bar_enabled()
    reports.set_verbosity(logging.CRITICAL)
    reports.disable_progress_bar()
    try:
        yield
    finally:
        reports.set_verbosity(level)
        if bars:
            reports.enable_progress_bar()
