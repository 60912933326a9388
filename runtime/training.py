"""A package that trains: steps, evaluations and gradients, and its parameters as files. Needs numpy alone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from .checkpoint import read_tensors, write_tensors
from .errors import InputError
from .loader import EntryPoint, Model
from .text import counted

__all__ = ["Training"]

_KEPT = "optimizer."  # of names in the state that belong to the optimizer
_SUMS = "gradient."  # of kept gradients


class Training(Model):
    """A loaded package with a training step; calls work on its own parameters, one after the other.

    step(*inputs, *targets, lr=...) -> loss: forward, backward and the optimizer's update. The numbers of the optimizer
    (lr, weight_decay, ...; `hyper` shows them) have its values where they are left out; with several parameter groups
    a number is for all of them, a sequence for one each. `betas=(b1, b2)` may be given as one.

    Random operators (dropout) draw from `seed=`, a whole number; without it each step takes the next one, from
    `next_seed` on, which is saved with the parameters.

    Attributes:
        hyper: the numbers that a step takes, with the optimizer's values.
        next_seed: of the next step that is given none.
    """

    __slots__ = ("_defaults", "_names", "hyper", "next_seed")

    def __init__(self, native: Any, path: str | None = None, source: Any = None) -> None:
        super().__init__(native, path, source)
        row = self.manifest["training"]
        self.hyper: dict[str, float | list[float]] = dict(row["hyper"])
        self.next_seed = 0
        self._defaults = {name: _number(value) for name, value in self.hyper.items()}
        self._names = {parameter["name"]: None for parameter in row["parameters"]}

    # -- training ---------------------------------------------------------------------------------------------------

    def step(self, *args: Any, seed: int | None = None, **kwargs: Any) -> Any:
        """One training step on a batch.

        Returns:
            The loss; with what the model returns behind it, when the package was compiled with outputs=True.

        Raises:
            InputError: arguments that do not fit; nothing has changed.
            RunError: the run failed; a part of the parameters may have changed: load the last ones that were saved.
        """
        return self._trained("step")(*args, seed=self._seed(seed), **self._numbers(kwargs))

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """The loss in evaluation mode, and what the model returns: (loss, output). Changes nothing."""
        return self._trained("evaluate")(*args, **kwargs)

    def gradients(self, *args: Any, seed: int | None = None, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """(loss, gradients by the parameters' names) of a batch. Parameters stay; batch norms' statistics change."""
        loss, found = self._trained("gradients")(*args, seed=self._seed(seed), **kwargs)
        return loss, found

    def apply(self, gradients: Mapping[str, Any], **hyper: Any) -> None:
        """The optimizer's update by gradients from elsewhere, such as the mean of several processes' own."""
        missing = [name for name in self._names if name not in gradients]
        unknown = [name for name in gradients if name not in self._names]
        if missing or unknown:
            wrong = f"lack '{missing[0]}'" if missing else f"have '{unknown[0]}', which is not trained"
            raise InputError(f"the gradients {wrong}", hint=f"They are of: {', '.join(self._names)}.")
        self._trained("apply")(dict(gradients), **self._numbers(hyper))

    def accumulate(self, *args: Any, weight: float = 1.0, seed: int | None = None, **kwargs: Any) -> Any:
        """Adds a batch's gradients, times `weight`, to those that `update` takes; returns the loss.

        Of n batches whose losses are means, weight=1/n gives the step of all of them at once.
        """
        return self._trained("accumulate")(*args, seed=self._seed(seed), weight=_number(weight), **kwargs)

    def update(self, **hyper: Any) -> None:
        """The optimizer's update by the gradients that `accumulate` has added up, which start from zero again."""
        self._trained("update")(**self._numbers(hyper))

    @property
    def steps(self) -> int:
        """How many updates the optimizer has made."""
        return max(int(self.state[name]) for name in self.state if name.startswith(_KEPT) and _is_step(name))

    @property
    def skipped_steps(self) -> int:
        """Steps that changed nothing, as the loss or a gradient was not finite; of packages with check_finite."""
        name = f"{_KEPT}skipped_steps"
        return int(self.state[name]) if name in self.state else 0

    def _trained(self, name: str) -> EntryPoint:
        for entry in self.entries.values():
            if entry.name == name:
                return entry
        made = ", ".join(self.entries)
        raise InputError(
            f"the package has no '{name}'", hint=f"It has: {made}. Compile it with entries=(..., '{name}')."
        )

    def _seed(self, seed: int | None) -> int:
        if seed is None:
            seed, self.next_seed = self.next_seed, self.next_seed + 1
        return seed

    def _numbers(self, given: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments of a step with the optimizer's numbers among them."""
        if not given:
            return self._defaults
        own = dict(given)
        betas = own.pop("betas", None) if "betas" not in self._defaults else None
        if betas is not None:
            own["beta1"], own["beta2"] = betas
        groups = self.manifest["training"]["groups"]
        for name in self._defaults.keys() & own.keys():
            own[name] = _checked(name, own[name], self._defaults[name].shape, groups)
        return self._defaults | own

    # -- parameters ---------------------------------------------------------------------------------------------------

    def parameters(self) -> dict[str, Any]:
        """Copies of the parameters that are trained, by name."""
        return {name: self.state[name] for name in self._names}

    def state_dict(self) -> dict[str, Any]:
        """Copies of parameters and buffers by the names that they have in the model's own state_dict().

        Parameters that are not trained are constants of the package and not among them.
        """
        found = {name: self.state[name] for name in self.state if not name.startswith((_KEPT, _SUMS))}
        aliases = self.manifest["training"].get("aliases", {})
        return found | {name: found[own] for name, own in aliases.items() if own in found}

    def load_state_dict(self, tensors: Mapping[str, Any], strict: bool = True) -> None:
        """Sets parameters and buffers. What the optimizer keeps stays as it is.

        Raises:
            InputError: a name is missing or unknown (with `strict`), or a tensor has another shape or dtype; nothing
                has changed.
        """
        aliases = self.manifest["training"].get("aliases", {})
        own = {name: value for name, value in tensors.items() if name not in aliases}
        self._set(own, [name for name in self.state if not name.startswith((_KEPT, _SUMS))], strict)

    def optimizer_state(self) -> dict[str, Any]:
        """Copies of what the optimizer keeps: optimizer.<parameter>.<tensor>, and its counters."""
        return {name: self.state[name] for name in self.state if name.startswith(_KEPT)}

    def save(self, path: str | os.PathLike[str], optimizer: bool = True) -> None:
        """Writes parameters, buffers and what the optimizer keeps as safetensors; the file appears whole or not at all.

        optimizer: False: parameters and buffers alone, for other programs.
        """
        names = [name for name in self.state if not name.startswith(_SUMS) and (optimizer or name[:10] != _KEPT)]
        rows = {row["name"]: row for row in self.manifest["state"]}
        metadata = {"format": "pt", **({"mycc.next_seed": str(self.next_seed)} if optimizer else {})}
        write_tensors(path, [(name, rows[name], self.state.view(name)) for name in names], metadata)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Sets what `save` wrote: training goes on as if it had not stopped. A file of parameters alone sets them.

        Raises:
            InputError: the file is none of this model's; nothing has changed.
        """
        tensors, metadata = read_tensors(path)
        with_optimizer = any(name.startswith(_KEPT) for name in tensors)
        aliases = self.manifest["training"].get("aliases", {})
        tensors = {name: value for name, value in tensors.items() if name not in aliases}
        names = [n for n in self.state if not n.startswith(_SUMS) and (with_optimizer or not n.startswith(_KEPT))]
        self._set(tensors, names, True)
        if "mycc.next_seed" in metadata:
            self.next_seed = int(metadata["mycc.next_seed"])

    def _set(self, tensors: Mapping[str, Any], names: Sequence[str], strict: bool) -> None:
        missing = [name for name in names if name not in tensors] if strict else []
        unknown = [name for name in tensors if name not in names] if strict else []
        if missing or unknown:
            wrong = f"'{missing[0]}' is missing" if missing else f"'{unknown[0]}' is unknown"
            raise InputError(f"these are not the tensors of this model: {wrong}", hint=f"It has: {', '.join(names)}.")
        rows = {row["name"]: row for row in self.manifest["state"]}
        chosen = {name: value for name, value in tensors.items() if name in names}
        for name, value in chosen.items():
            _check_shape(name, value, rows[name])
        before = {name: self.state[name] for name in chosen}
        try:
            for name, value in chosen.items():
                self.state[name] = value
        except BaseException:
            self.state.update(before)
            raise

    def __repr__(self) -> str:
        row = self.manifest["training"]
        numbers = ", ".join(f"{name}={value}" for name, value in self.hyper.items())
        trained = counted(len(row["parameters"]), "parameter")
        return f"{super().__repr__()}\ntrains {trained} by {row['optimizer']}({numbers})"


def _is_step(name: str) -> bool:
    return name == f"{_KEPT}step" or (name.startswith(f"{_KEPT}group") and name.endswith(".step"))


def _number(value: Any) -> Any:
    import numpy as np

    return np.asarray(value, np.float64)


def _checked(name: str, value: Any, shape: tuple[int, ...], groups: int) -> Any:
    """A number of the optimizer as the step takes it: one for all groups, or one each."""
    import numpy as np

    try:
        found = np.asarray(value, np.float64)
        return np.ascontiguousarray(np.broadcast_to(found, shape)) if shape else found.reshape(shape)
    except (TypeError, ValueError):
        wanted = "a number" if not shape else f"a number, or one for each of the {groups} parameter groups"
        raise InputError(f"{name} has to be {wanted}, not {value!r}") from None


def _check_shape(name: str, value: Any, row: Mapping[str, Any]) -> None:
    shape = list(getattr(value, "shape", row["shape"]))
    if shape != row["shape"]:
        raise InputError(f"'{name}' has the shape {shape}, where the model has {row['shape']}")
