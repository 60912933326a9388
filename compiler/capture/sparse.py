"""Sparse matrices inside of a model, as the rows, columns and values of their elements.

    torch.sparse.mm(s, x)       ->      zeros.index_add(0, rows, values * x[columns])
    one of the model's own      ->      sum over the places of each row of where(there, values * x[columns], 0)

Sums are in a fixed order. Elements at one place add up. What has more than two dimensions, or dense ones behind the
sparse, is refused, as are operators that are not in the table below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from ..model.operators.own import own_operator

if TYPE_CHECKING:
    from .functional import FunctionalCopy, Tensor

__all__ = [
    "NoSparseForm",
    "Sparse",
    "is_sparse",
    "product_by_shape",
    "sparse_call",
    "sparse_constant",
    "storage_of",
    "sum_by_shape",
]

aten = torch.ops.aten
_ORIGIN_KEYS = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node")
#: places of padded rows for each element of the matrix
_PADDING = 4


class NoSparseForm(Exception):
    """An operator on sparse tensors that cannot be said with dense ones."""


@dataclass(frozen=True)
class Sparse:
    """A sparse matrix of the program.

    rows, columns, values: tensors of one dimension, an item for each element.
    padded: columns, values and whether there is an element, [rows, places], of a matrix that no call changes.
    """

    rows: Any
    columns: Any
    values: Any
    shape: tuple[Any, Any]
    padded: tuple[Any, Any, Any] | None = None


def is_sparse(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.layout != torch.strided


def storage_of(tensor: torch.Tensor) -> torch.Tensor:
    """A dense tensor that has the memory of a sparse one's values."""
    return tensor._values() if tensor.layout == torch.sparse_coo else tensor.values()


def sparse_constant(tensor: torch.Tensor, constant: Callable[[str, torch.Tensor], Any]) -> Sparse:
    """A matrix of the model; constant(name, tensor) makes a constant of the program.

    Raises:
        NoSparseForm: it has blocks, more than two dimensions, or dense ones behind them.
    """
    plain = tensor.layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
    if not plain or tensor.dim() != 2 or tensor.dense_dim():
        raise NoSparseForm(f"a {str(tensor.layout).removeprefix('torch.')} tensor that is no plain matrix")
    whole = tensor.detach().to_sparse_coo().coalesce()
    (rows, columns), values = whole.indices().clone(), whole.values().clone()
    count = torch.bincount(rows, minlength=tensor.shape[0])
    width = int(count.max()) if len(count) else 0
    padded = None
    if 0 < width * tensor.shape[0] <= _PADDING * len(values):
        place = torch.arange(len(rows)) - (count.cumsum(0) - count)[rows]
        there = torch.arange(width) < count.unsqueeze(1)
        at = torch.zeros([tensor.shape[0], width], dtype=torch.int64).index_put((rows, place), columns)
        weights = values.new_zeros([tensor.shape[0], width]).index_put((rows, place), values)
        parts = {"padded_columns": at, "padded_values": weights, "padded_places": there}
        first, second, third = (constant(name, part) for name, part in parts.items())
        padded = first, second, third
    elements = [constant(f"elements.{i}", part) for i, part in enumerate((rows, columns, values))]
    return Sparse(elements[0], elements[1], elements[2], (tensor.shape[0], tensor.shape[1]), padded)


def sparse_call(
    copier: FunctionalCopy,
    node: fx.Node,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    constant: Callable[[str], Tensor],
) -> Any:
    """What an operator that takes or makes sparse matrices gives.

    Raises:
        NoSparseForm: there is no form for it.
    """

    def emit(function: Callable[..., Any], *operands: Any) -> Any:
        """Copies the operators that `function` calls on the operands' values into the graph."""
        tensors = [o for o in operands if hasattr(o, "node")]
        fakes = [_fake(node, copier.value(t).meta["val"]) for t in tensors]

        def run(*values: Any) -> Any:
            given = iter(values)
            return function(*(next(given) if hasattr(o, "node") else o for o in operands))

        with torch.no_grad(), _mode(node):
            body = make_fx(run, tracing_mode="real")(*fakes)
        for inner in body.graph.nodes:
            inner.meta.update({key: node.meta[key] for key in _ORIGIN_KEYS if key in node.meta})
        return copier.copy(body, tensors, constant)

    form = _FORMS.get(node.target)
    if form is None:
        if str(node.target).startswith("aten.to_sparse") and not any(isinstance(a, Sparse) for a in args):
            raise NoSparseForm(f"{node.target}: which elements the matrix holds depends on the values of a dense one")
        raise NoSparseForm(f"{node.target} of a sparse tensor")
    return form(emit, *args, **kwargs)


def _mode(node: fx.Node) -> Any:
    vals: list[Any] = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    return next(v.fake_mode for v in vals if hasattr(v, "fake_mode"))


def _fake(node: fx.Node, value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or hasattr(value, "fake_mode"):
        return value
    return _mode(node).from_tensor(value, static_shapes=True)


# operators -----------------------------------------------------------------------------------------------------------
_FORMS: dict[Any, Callable[..., Any]] = {}
_Emit = Callable[..., Any]


def _form(*targets: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        _FORMS.update(dict.fromkeys(targets, function))
        return function

    return add


@_form(aten.sparse_coo_tensor.indices_size)
def _made(emit: _Emit, indices: Any, values: Any, size: Sequence[Any], **kwargs: Any) -> Sparse:
    dims = values.node.meta["val"].dim(), len(size)
    if dims != (1, 2):
        raise NoSparseForm("a sparse tensor that is no matrix of numbers")
    rows, columns = emit(lambda i: (i[0], i[1]), indices)
    return Sparse(rows, columns, values, (size[0], size[1]))


@_form(aten.coalesce.default, aten._coalesced.default, aten.detach.default, aten.alias.default, aten.clone.default)
def _same(emit: _Emit, s: Sparse, *_: Any, **__: Any) -> Sparse:
    return s


@_form(aten.t.default, aten.transpose.int, aten.numpy_T.default)
def _transposed(emit: _Emit, s: Sparse, *_: Any) -> Sparse:
    return Sparse(s.columns, s.rows, s.values, (s.shape[1], s.shape[0]))


@_form(aten.to_dense.default)
def _dense(emit: _Emit, s: Sparse, dtype: Any = None, **_: Any) -> Any:
    def function(rows: Any, columns: Any, values: Any, m: Any, n: Any) -> Any:
        return values.new_zeros([m, n]).index_put((rows, columns), values, accumulate=True)

    return emit(function, s.rows, s.columns, s.values, *s.shape)


@own_operator(
    "sparse_product(Tensor matrix, Tensor x) -> Tensor",
    lambda matrix, x: x.new_empty([matrix.shape[0], *x.shape[1:]], dtype=torch.result_type(matrix, x)),
)
def sparse_product(matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A sparse matrix times a dense one or a vector: torch's own operators have no fake values at dynamic sizes."""
    return matrix @ x


def product_by_shape(function: Callable[..., Any], input: Any, other: Any, **kwargs: Any) -> Any:
    """A product; of a sparse matrix by an operator that takes dynamic sizes."""
    a, b = input, other
    if is_sparse(a) and isinstance(b, torch.Tensor) and not is_sparse(b) and not kwargs:
        return torch.ops.mycc.sparse_product(a, b)
    if is_sparse(b) and isinstance(a, torch.Tensor) and not is_sparse(a) and a.dim() == 2 and not kwargs:
        return torch.ops.mycc.sparse_product(b.t(), a.t()).t()
    return function(a, b, **kwargs)


def sum_by_shape(
    function: Callable[..., Any], input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1, **kwargs: Any
) -> Any:
    """input + mat1 @ mat2, likewise."""
    x, a, b = input, mat1, mat2
    if not is_sparse(a) or is_sparse(b) or is_sparse(x) or kwargs:
        return function(x, a, b, beta=beta, alpha=alpha, **kwargs)
    y = torch.ops.mycc.sparse_product(a, b)
    y = y if alpha == 1 else y * alpha
    return y + (torch.zeros_like(x) if beta == 0 else x if beta == 1 else x * beta)


@_form(
    torch.ops.mycc.sparse_product.default,
    aten._sparse_mm.default,
    aten.mm.default,
    aten.matmul.default,
    aten.mv.default,
)
def _product(emit: _Emit, a: Any, b: Any) -> Any:
    if isinstance(a, Sparse) and isinstance(b, Sparse):
        raise NoSparseForm("a product of two sparse matrices")
    if isinstance(b, Sparse):  # x @ s = (s.t() @ x.t()).t()
        transposed = Sparse(b.columns, b.rows, b.values, (b.shape[1], b.shape[0]))
        if a.node.meta["val"].dim() != 2:
            raise NoSparseForm("a product of a vector with a sparse matrix")
        return emit(lambda y: y.t(), _product(emit, transposed, emit(lambda x: x.t(), a)))
    if b.node.meta["val"].dim() not in (1, 2):
        raise NoSparseForm("a product of a sparse matrix with several matrices")
    if a.padded is not None:
        return emit(_padded_product, *a.padded, b)
    return emit(_added_product, a.rows, a.columns, a.values, a.shape[0], b)


def _padded_product(columns: Any, values: Any, there: Any, x: Any) -> Any:
    shape = [*columns.shape, *x.shape[1:]]
    taken = x.index_select(0, columns.reshape([-1])).reshape(shape)
    if x.dim() == 2:
        values, there = values.unsqueeze(-1), there.unsqueeze(-1)
    return torch.where(there, taken * values, 0).sum(1, dtype=torch.result_type(taken, values))


def _added_product(rows: Any, columns: Any, values: Any, m: Any, x: Any) -> Any:
    weights = values.unsqueeze(-1) if x.dim() == 2 else values
    terms = x.index_select(0, columns) * weights
    return terms.new_zeros([m, *x.shape[1:]]).index_add(0, rows, terms)


@_form(aten.addmm.default, aten._sparse_addmm.default)
def _sum(emit: _Emit, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if isinstance(c, Sparse):
        raise NoSparseForm("a sum with a sparse matrix")
    y = _product(emit, a, b)

    def function(c: Any, y: Any) -> Any:
        y = y if alpha == 1 else y * alpha
        return y.clone() if beta == 0 else y + (c if beta == 1 else c * beta)

    return emit(function, c, y)


@_form(aten._values.default, aten.values.default)
def _values(emit: _Emit, s: Sparse) -> Any:
    return s.values


@_form(aten._indices.default, aten.indices.default)
def _indices(emit: _Emit, s: Sparse) -> Any:
    return emit(lambda rows, columns: torch.stack([rows, columns]), s.rows, s.columns)
