"""Triton kernels that the model calls: by kernel[grid](...), by wrap_triton, or inside of a triton_op.

torch.export shows the first two as triton_kernel_wrapper_mutation while `tracing_kernels` is in force, and leaves a
triton_op whole: `opened` looks into it. None of it needs a GPU. What a kernel writes to says torch's analysis of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops import triton_kernel_wrap as wrap

from ..model.operators.kept import CUSTOM
from ..model.operators.triton_kernels import KernelCall
from .traced import traced

__all__ = ["KERNEL_CALLS", "KernelArguments", "NoKernel", "opened", "tracing_kernels"]

#: torch's operators for a call of a kernel
KERNEL_CALLS = ("triton_kernel_wrapper_mutation", "triton_kernel_wrapper_functional")
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


class NoKernel(Exception):
    """A call that cannot be compiled: why, and what to do."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


@contextmanager
def tracing_kernels() -> Iterator[None]:
    """While it lasts, kernel[grid] of a @triton.jit function is what wrap_triton(kernel)[grid] is."""
    try:
        from triton.runtime.jit import KernelInterface
    except ImportError:
        yield
        return
    plain = KernelInterface.__getitem__

    def traced(kernel: Any, grid: Any) -> Any:
        return torch.library.wrap_triton(kernel)[grid]

    KernelInterface.__getitem__ = traced
    try:
        yield
    finally:
        KernelInterface.__getitem__ = plain


class _AnyDriver:
    """Stands for a driver, so that Triton makes its IR without a GPU."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)


@contextmanager
def _driver() -> Iterator[None]:
    import triton

    chosen = triton.runtime.driver
    before = chosen._active
    chosen.set_active(_AnyDriver())
    try:
        yield
    finally:
        chosen._active = before


def opened(node: fx.Node) -> fx.GraphModule | None:
    """The body of a triton_op, for the node's operands that are no plain values, in order; None for other operators,
    and for those that the user registered a lowering or a kernel for."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or str(target) in CUSTOM:
        return None
    from torch._library.custom_ops import OPDEFS
    from torch._library.triton import get_triton_kernels_for_op

    definition = OPDEFS.get(target._schema.name)
    if definition is None or not get_triton_kernels_for_op(target._schema.name):
        return None
    inside = definition._abstract_fn  # triton_op registers its function as the fake one, too
    assert inside is not None
    places = node.all_input_nodes
    values = [n.meta["val"] for n in places]

    def body(*given: Any) -> Any:
        own = dict(zip(places, given, strict=True))
        args = fx.node.map_arg(node.args, own.__getitem__)
        return inside(*args, **fx.node.map_arg(node.kwargs, own.__getitem__))

    return traced(node, body, values)


class KernelArguments:
    """The arguments of a traced call, by role. tensors, grid, sizes: values of the traced graph, of the operator
    mycc::triton_kernel."""

    def __init__(self, node: fx.Node) -> None:
        given: Mapping[str, Any] = node.kwargs
        self.kernel, options = _function(wrap.kernel_side_table.get_kernel(given["kernel_idx"]))
        constants = {**wrap.kernel_side_table.get_constant_args(given["constant_args_idx"]), **options}
        if given.get("tma_descriptor_metadata"):
            raise NoKernel(f"{self.name} takes tensor descriptors", "Make them in the kernel.")
        self.grid = tuple((*given["grid"][0], 1, 1)[:3])
        values = {**given["kwargs"], **constants}
        self.options = {k: values[k] for k in _OPTIONS if k in values and k not in self.kernel.arg_names}
        self.tensors: list[fx.Node] = []
        self.sizes: list[Any] = []
        self.arguments: list[tuple[str, str, Any]] = []
        self.constants: list[tuple[str, Any]] = []
        for parameter in self.kernel.params:
            self._argument(parameter, values)
        written = set(_written(node, dict(self.constants)))
        positions = {name: place for name, kind, place in self.arguments if kind == "tensor"}
        self.written = sorted({positions[name] for name in written if name in positions})
        if not self.written:
            raise NoKernel(f"{self.name} writes to none of its tensors")

    @property
    def name(self) -> str:
        return str(self.kernel.__name__)

    @property
    def names(self) -> list[str]:
        """The first parameter that gets each tensor."""
        first = {place: name for name, kind, place in reversed(self.arguments) if kind == "tensor"}
        return [first[i] for i in range(len(self.tensors))]

    def call(self) -> KernelCall:
        values = [t.meta["val"] for t in self.tensors]
        dtypes = tuple(value.dtype for value in values)
        orders = tuple(_order(value, self.name) for value in values)
        return KernelCall(
            self.kernel, tuple(self.arguments), tuple(self.constants), dtypes, orders, tuple(self.written), self.options
        )

    def _argument(self, parameter: Any, values: Mapping[str, Any]) -> None:
        name = parameter.name
        if name not in values and not parameter.has_default:
            raise NoKernel(f"{self.name} gets no value for {name}")
        value = values.get(name, parameter.default if parameter.has_default else None)
        known = value.meta["val"] if isinstance(value, fx.Node) else value
        if parameter.is_constexpr or value is None:
            if isinstance(value, fx.Node):
                raise NoKernel(f"{name} of {self.name} is a tl.constexpr, and {value} is a size of the input")
            self.constants.append((name, getattr(value, "value", value)))
        elif isinstance(known, torch.Tensor):
            assert isinstance(value, fx.Node)
            if value not in self.tensors:
                self.tensors.append(value)
            self.arguments.append((name, "tensor", self.tensors.index(value)))
        elif isinstance(known, (bool, float)):
            self.arguments.append((name, "number", known))
        elif isinstance(known, (int, torch.SymInt)):
            if known == 1 and not isinstance(known, torch.SymInt) and not parameter.do_not_specialize:
                self.constants.append((name, 1))
                return
            self.arguments.append((name, "size", len(self.sizes)))
            self.sizes.append(value)
        else:
            raise NoKernel(
                f"{name} of {self.name} is a {type(known).__name__}", "Kernels take tensors, numbers and sizes."
            )


def _function(kernel: Any) -> tuple[Any, dict[str, Any]]:
    """The function of a kernel, and the constants and options of the first configuration of an autotuned one."""
    if not hasattr(kernel, "configs"):
        return kernel, {}
    if not hasattr(kernel.fn, "arg_names") or hasattr(kernel.fn, "configs"):
        raise NoKernel("a kernel with several decorators around @triton.jit cannot be compiled")
    first = kernel.configs[0]
    own = {name: getattr(first, name, None) for name in _OPTIONS}
    return kernel.fn, {**first.kwargs, **{k: v for k, v in own.items() if v is not None}}


def _written(node: fx.Node, constants: Mapping[str, Any]) -> Sequence[str]:
    """Names of the parameters whose tensors the kernel writes to. constants: those of defaults among them."""
    given: Mapping[str, Any] = node.kwargs
    values = {k: v.meta["val"] if isinstance(v, fx.Node) else v for k, v in given["kwargs"].items()}
    with _driver():
        return list(
            wrap.get_mutated_tensors(
                given["kernel_idx"],
                given["constant_args_idx"],
                {**constants, **values},
                given.get("tma_descriptor_metadata") or {},
            )
        )


def _order(value: torch.Tensor, kernel: str) -> tuple[int, ...]:
    """The dimensions of a tensor that fills its memory, from the slowest to the fastest."""
    strides, shape = value.stride(), value.shape
    if value.is_contiguous():
        return tuple(range(value.dim()))
    order = tuple(sorted(range(value.dim()), key=lambda d: (-int(strides[d]), d)))
    if not value.permute(order).is_contiguous():
        raise NoKernel(
            f"{kernel} gets a view of {list(shape)} with strides {list(strides)}, which leaves out parts of its memory",
            "Give it x.contiguous().",
        )
    return order
