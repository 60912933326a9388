"""Where eager itself specifies nothing, with the reason: the only places where results may differ from it."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

from .catalog import Call, Entry


@dataclass(frozen=True)
class Free:
    """What of a result is free."""

    zeros: bool = False  # the sign of zeros
    overflow: bool = False  # elements that are not finite, in eager or in the package
    small: bool = False  # elements that are roundings of the largest one
    nan: bool = False  # elements that are NaN in eager
    values: bool = False  # all values; shapes and dtypes are compared
    errors: bool = False  # whether values that eager refuses are refused
    dtypes: bool = False  # the dtypes of floats
    skipped: bool = False  # eager itself may end the process: not run

    def words(self) -> list[str]:
        """For the page."""
        texts = {
            "zeros": "signs of zeros",
            "overflow": "elements that are not finite, in eager or in the package",
            "small": "errors of elements that are small beside the largest one",
            "nan": "elements that are NaN in eager",
            "values": "values",
            "errors": "what eager refuses",
            "dtypes": "dtypes of floats",
            "skipped": "anything: it is not run",
        }
        return [text for name, text in texts.items() if getattr(self, name)]


def _any(_: object) -> bool:
    return True


def _not_finite(call: Call) -> bool:
    """NaN or an infinity among the inputs, or numbers whose products overflow."""
    floats = [x for x in call.inputs if x.is_floating_point() or x.is_complex()]
    return any(not bool((x.abs().double() <= _large(x.dtype)).all()) for x in floats if x.numel())


def _complex(call: Call) -> bool:
    """Tensors or numbers are complex."""
    given = (*call.inputs, *call.constants)
    return any(x.is_complex() if isinstance(x, torch.Tensor) else isinstance(x, complex) for x in given)


def _divides_least(call: Call) -> bool:
    """The least integer over -1, in div and lcm."""
    given = [x for x in (*call.inputs, *call.constants) if isinstance(x, (torch.Tensor, int))]
    if len(given) < 2 or not all(isinstance(x, int) or not x.is_floating_point() for x in given[:2]):
        return False
    a, b = (torch.as_tensor(x) for x in given[:2])
    dtype = torch.result_type(a, b)
    if dtype == torch.bool or torch.iinfo(dtype).min == 0:
        return False
    a, b = torch.broadcast_tensors(a.to(dtype), b.to(dtype))
    return bool(((a == torch.iinfo(dtype).min) & ((b == -1) | (torch.gcd(a, b) == -1))).any())


def _long_degree(call: Call) -> bool:
    """A degree of more than 10^6; a number may come before the tensors, and counts as one too."""
    given = [x for x in (*call.inputs, *call.constants) if isinstance(x, (torch.Tensor, int, float))]
    return len(given) > 1 and any(bool((torch.as_tensor(x).double() > 1e6).any()) for x in given)


def _infinite_beside_subnormal(call: Call) -> bool:
    """Elements that are not finite, and others that are smaller than the smallest normal number."""
    floats = [x for x in call.inputs if x.is_floating_point() and x.numel()]
    small = any(bool(((x != 0) & (x.abs() < torch.finfo(x.dtype).tiny)).any()) for x in floats)
    return small and not all(bool(x.isfinite().all()) for x in floats)


def _duplicates(call: Call) -> bool:
    """An index that holds an element twice."""
    indices = [x for x in call.inputs if x.dtype in (torch.int64, torch.int32)]
    return any(x.unique().numel() < x.numel() for x in indices)


def _equal_counts(call: Call) -> bool:
    """NaN, or two values of a row that occur equally often, in one of the dimensions."""
    x = call.inputs[0]
    if bool(x.isnan().any()):
        return True
    rows = (r for d in range(x.dim()) for r in x.movedim(d, -1).reshape(-1, x.shape[d]))
    counts = (r.unique(return_counts=True)[1].sort(descending=True).values for r in rows)
    return any(len(c) > 1 and bool(c[0] == c[1]) for c in counts)


def _nan(call: Call) -> bool:
    """NaN among the inputs."""
    return any(bool(x.isnan().any()) for x in call.inputs)


def _quotients_overflow(call: Call) -> bool:
    """Finite numbers whose quotient is infinite in their type."""
    given = [x for x in (*call.inputs, *call.constants) if isinstance(x, (torch.Tensor, int, float))]
    if len(given) != 2 or not any(isinstance(x, torch.Tensor) for x in given):
        return False
    with contextlib.suppress(RuntimeError):  # two forms that do not broadcast: results are written to one of them
        pairs = ((given[0], given[1]), (given[1], given[0]))  # reflected operators divide the second by the first
        return any(bool((torch.isinf(torch.div(a, b)) & _finite(a, b)).any()) for a, b in pairs)
    return False


def _finite(a: torch.Tensor | float, b: torch.Tensor | float) -> torch.Tensor:
    """Where both are finite, and the second is not 0."""
    return torch.isfinite(torch.as_tensor(a)) & torch.isfinite(torch.as_tensor(b)) & (torch.as_tensor(b) != 0)


def _cancels(call: Call) -> bool:
    """A mean that is lost in the rounding of float32 numbers as large as the inputs."""
    floats = [x.double() for x in call.inputs if x.is_floating_point() and x.numel()]
    return any(bool(x.isfinite().all()) and abs(float(x.sum())) <= 1e-6 * float(x.abs().max()) for x in floats)


def _irregular(call: Call) -> bool:
    """Not finite, or a matrix among the inputs that is singular nearly, or a square one with a negative eigenvalue."""
    if _not_finite(call):
        return True
    if any(x.is_floating_point() and x.numel() and float(x.abs().max()) < _SMALL for x in call.inputs):
        return True  # determinants underflow
    matrices = [x.detach().to(torch.complex128) for x in call.inputs if x.dim() >= 2 and x.numel()]
    sides = [math.isqrt(x.numel()) for x in matrices]  # tensors that tensorinv takes for one matrix
    matrices += [
        x.reshape(n, n) for x, n in zip(list(matrices), sides, strict=True) if x.dim() > 2 and n * n == x.numel()
    ]
    return any(not bool((torch.linalg.cond(x) <= _CONDITION).all()) or _indefinite(x) for x in matrices)


_CONDITION, _SMALL = 1e6, 1e-30


def _indefinite(x: torch.Tensor) -> bool:
    return x.shape[-1] == x.shape[-2] and bool((torch.linalg.eigvals(x).real < 0).any())


def _large(dtype: torch.dtype) -> float:
    """The root of the largest number: the square of a larger one overflows."""
    return float(torch.finfo(dtype).max) ** 0.5


@dataclass(frozen=True)
class Rule:
    """A row: which entries (a pattern, and how the page names them), values, what is free, and why."""

    name: str
    entries: str
    values: str
    free: Free
    reason: str
    fills: str = ""  # a pattern for the names of fills
    when: Callable[[Call], bool] = _any
    of: Callable[[Entry], bool] = _any
    devices: tuple[str, ...] = ("cpu", "cuda")


def elementwise(entry: Entry) -> bool:
    """Whether each element of the results follows from one element of each input, so that no order of sums matters."""
    return isinstance(entry.op, (UnaryUfuncInfo, BinaryUfuncInfo)) or bool(re.fullmatch(_ELEMENTWISE, entry.name))


_ELEMENTWISE = "clamp|where|lerp|addcmul|addcdiv|nan_to_num|masked_fill|sign|sgn"
_LINEAR_ALGEBRA = (
    "linalg.(?!vector_norm|cross|diagonal|vecdot|multi_dot|matrix_power|vander).*"
    "|geqrf|ormqr|lu|lu_solve|lu_unpack|qr|svd|svd_lowrank|pca_lowrank|cholesky.*|logdet|pinverse|triangular_solve|norm.nuc"
)
_NORMS = ".*(batch|group|layer|instance)_norm.*|nn.(Batch|Group|Layer|Instance)Norm.*"
_INTEGER_QUOTIENTS = "div.*|floor_divide|fmod|remainder|__r(mod|div)__"
_PRODUCTS = (
    "addmm.*|gradient|_softmax_backward_data|addmv|addbmm|baddbmm|addr|mm|bmm|mv|dot|vdot|inner|matmul|__rmatmul__|einsum|tensordot|kron|cov|corrcoef"
    "|linalg.*|.*conv.*|nn.(Lazy)?Conv.*|(_refs.)?fft.*|stft|istft|.*avg_pool.*|nn.*AvgPool.*|.*_aa|.*interpolate.*"
    "|.*upsample.*|.*linear|nn.(Bil|L)inear|cholesky.*|triangular_solve|lu|lu_solve|ormqr|geqrf|qr|svd|pinverse"
)
_INTEGERS = ".*integer|mixed|ties"

RULES: tuple[Rule, ...] = (
    Rule(
        "`matrix_exp`",
        "(linalg.)?matrix_exp",
        "not finite, or with squares that overflow",
        Free(skipped=True),
        "eager on a GPU squares a matrix 2^63 times for an infinite norm, and never returns",
        when=_not_finite,
        devices=("cuda",),
    ),
    Rule(
        "`qr`, `geqrf` and what is made of them",
        "(linalg.)?qr|geqrf|linalg.lstsq|(svd|pca)_lowrank",
        "not finite, with squares that overflow, or singular",
        Free(skipped=True),
        "eager's library on a GPU does not return for some of them",
        when=_irregular,
        devices=("cuda",),
    ),
    Rule(
        "orthogonal polynomials (`special.hermite_polynomial_h`, ...)",
        "special.*polynomial.*",
        "degrees of more than 10^6",
        Free(skipped=True),
        "eager on a GPU takes an infinite degree for 2^63, and goes through so many steps",
        when=_long_degree,
        devices=("cuda",),
    ),
    Rule(
        "`embedding_bag`",
        "nn.functional.embedding_bag|nn.EmbeddingBag",
        "integers out of range",
        Free(skipped=True),
        "eager on a GPU takes offsets without a check, reads outside of its tensors and ends the process",
        _INTEGERS,
        devices=("cuda",),
    ),
    Rule(
        "sums of products on a GPU: products of matrices, convolutions, Fourier transforms, `linalg.*`",
        _PRODUCTS,
        "infinities or NaN beside numbers below the smallest normal one",
        Free(overflow=True),
        "tensor cores take such a number for 0, and 0 times infinity is NaN",
        when=_infinite_beside_subnormal,
        devices=("cuda",),
    ),
    Rule(
        "`scatter`, `index_copy`, `index_put`, `put`",
        "scatter|index_copy|index_put|put",
        "an index that occurs twice",
        Free(values=True),
        "which of the values stays depends on the order of eager's threads on a GPU",
        when=_duplicates,
        devices=("cuda",),
    ),
    Rule(
        "`mode`",
        "mode",
        "NaN, or values that occur equally often",
        Free(values=True, errors=True),
        "torch does not say which of them it gives, a GPU gives others than a CPU, and fails at rows of NaN alone",
        when=_equal_counts,
        devices=("cuda",),
    ),
    Rule(
        "quotients of integers",
        _INTEGER_QUOTIENTS,
        "a divisor of 0",
        Free(errors=True),
        "eager on a CPU refuses it; on a GPU it gives some number, and packages for GPUs do",
        devices=("cuda",),
    ),
    Rule(
        "`native_batch_norm`, `native_layer_norm` and their kin",
        "_?native_(batch|layer)_norm.*|_batch_norm_with_update",
        "statistics of 16-bit tensors",
        Free(dtypes=True),
        "torch returns them in 16 bits on a CPU and in float32 on a GPU; one package has one signature, the CPU's",
        devices=("cuda",),
    ),
    Rule(
        "`addr`",
        "addr",
        "factors that 16 bits do not hold",
        Free(small=True),
        "torch's CPU kernel rounds alpha and beta to the tensors' type, as packages do; its GPU kernels do not",
        devices=("cuda",),
    ),
    Rule(
        "`cross`",
        "(linalg.)?cross",
        "results of 0",
        Free(zeros=True),
        "products of 16-bit numbers that underflow to 0 in eager stay in float32 on a GPU",
        devices=("cuda",),
    ),
    Rule(
        "`gelu`",
        "nn.functional.gelu|nn.GELU",
        "-0 and -infinity in 16 bits",
        Free(zeros=True, nan=True),
        "0 where eager has -0 and NaN: a comparison for each element cost a vision transformer 2 % of its time",
        devices=("cuda",),
    ),
    Rule(
        "`cov`, `corrcoef`",
        "cov|corrcoef",
        "rows of equal numbers, and weights or deviations that overflow or underflow",
        Free(values=True),
        "what is left of a row minus its mean are roundings; their quotients are free",
        devices=("cuda",),
        fills=".+",
    ),
    Rule(
        "`RMSNorm`",
        "nn.RMSNorm|.*rms_norm",
        "infinities",
        Free(overflow=True),
        "eager's fused kernel on a GPU makes the whole row NaN, its CPU code only the infinities",
        when=_not_finite,
        devices=("cuda",),
    ),
    Rule(
        "`_segment_reduce`, `linalg.ldl_solve`, `lu_solve`, `lu_unpack`, `_unsafe_masked_index`, `ctc_loss`, "
        "`repeat_interleave`",
        "_segment_reduce.*|repeat_interleave|linalg.ldl_solve|(linalg.)?lu_solve|lu_unpack|_unsafe_masked_index.*|nn.functional.ctc_loss|nn.CTCLoss",
        "integers out of range",
        Free(skipped=True),
        "eager takes lengths, pivots and indices without a check, and reads and writes outside of its tensors",
        _INTEGERS,
    ),
    Rule(
        "`linalg.eig`, `linalg.eigvals`",
        "linalg.eig(vals)?",
        "not finite, or with squares that overflow",
        Free(skipped=True),
        "LAPACK ends the process in some of its forms",
        when=_not_finite,
    ),
    Rule(
        "`div` with the rounding mode `trunc`, `lcm`",
        "div.trunc_rounding|lcm",
        "the least integer over -1",
        Free(skipped=True),
        "eager ends the process; mycc wraps (`tests/ops/test_special_edges.py`)",
        when=_divides_least,
    ),
    Rule(
        "complex numbers",
        ".*",
        "products and quotients of infinities and zeros",
        Free(overflow=True, zeros=True),
        "eager's vector loops multiply by parts, its scalar loops repair infinities as C does",
        when=_complex,
    ),
    Rule(
        "`unique`, `unique_consecutive`",
        "unique.*",
        "NaN",
        Free(values=True),
        "each NaN differs from each other one, and the order of rows that hold them is free",
        when=_not_finite,
    ),
    Rule(
        "`mode`",
        "mode",
        "NaN",
        Free(values=True),
        "eager sorts by a comparison that NaN makes no order, so that what is counted depends on where NaN lies",
        when=_nan,
    ),
    Rule(
        "`fmod`, `remainder`, `%`",
        "fmod|remainder|__rmod__",
        "finite numbers whose quotient overflows",
        Free(nan=True),
        "eager's vector loop gives NaN, its scalar loop the exact remainder, as packages do",
        when=_quotients_overflow,
    ),
    Rule(
        "`var_mean`, `std_mean`",
        "(var|std)_mean.*",
        "sums that cancel",
        Free(zeros=True),
        "the order of additions decides whether a mean is 0 or a small number, which 16 bits round to a 0 of its sign",
        when=_cancels,
    ),
    Rule(
        "`lerp`",
        "lerp",
        "results of 0",
        Free(zeros=True),
        "eager's vector loop adds (w - 1) d where its scalar loop takes (1 - w) d away",
    ),
    Rule(
        "`searchsorted`, `bucketize`",
        "searchsorted|bucketize",
        "boundaries that are not in order",
        Free(values=True),
        "what a search finds among them is left open",
    ),
    Rule(
        "`_softmax_backward_data`",
        "_softmax_backward_data",
        "NaN and infinities",
        Free(overflow=True),
        "eager takes the sum away before or after the product, by the dimension",
        when=_not_finite,
    ),
    Rule(
        "factorisations, solvers and what is made of them (`linalg.*`, `qr`, `svd`, `pinverse`, `logdet`, ...)",
        _LINEAR_ALGEBRA,
        "not finite, with squares that overflow, singular or not positive definite",
        Free(values=True, errors=True),
        "LAPACK's blocking decides how far they spread, and whether a pivot is 0; of `lu_factor`, `ldl_factor` and "
        "what is made of them mycc gives what is left of a factorisation that eager refuses",
        when=_irregular,
    ),
    Rule(
        "`qr`, `geqrf`, `ormqr` and what is made of them",
        "(linalg.)?qr|geqrf|ormqr|linalg.(lstsq|householder|pinv).*",
        "-0",
        Free(values=True),
        "the sign of a reflection is that of an element of 0",
        ".* -0",
    ),
    Rule(
        "sums of products: products of matrices, convolutions, Fourier transforms, averages, resizes, `linalg.*`",
        _PRODUCTS,
        "results of 0",
        Free(zeros=True),
        "a sum that starts at 0 loses the sign of -0, and one that starts at its first term keeps it",
    ),
    Rule(
        "Fourier transforms",
        "(fft|_refs.fft|nn.functional).*fft.*|stft|istft",
        "not finite, or with squares that overflow",
        Free(values=True),
        "the factors that a length is split into decide how far they spread",
        when=_not_finite,
    ),
    Rule(
        "Fourier transforms",
        "(fft|_refs.fft|nn.functional).*fft.*|stft|istft",
        "sums of large and small numbers",
        Free(small=True),
        "each term of a transform has all elements of its input, so that errors are relative to the largest",
    ),
    Rule(
        "`istft`",
        "istft",
        "windows whose squares add up to 0",
        Free(errors=True),
        "mycc divides by the sum: a check would cost every call a reading of it, on a GPU a wait",
        "all .*",
    ),
    Rule(
        "`maximum`, `minimum`, `fmax`, `fmin`, `clamp`, `amax`, `amin`, and what compares by them",
        "(clamp|max|min|amax|amin|aminmax|maximum|minimum|fmax|fmin|cummax|cummin).*|.*(max_pool|margin|hinge|MaxPool).*",
        "0 beside -0",
        Free(zeros=True),
        "they are equal; eager's vector loops take the second of them, its scalar loops the first",
    ),
    Rule(
        "what adds several elements (sums, norms, products of matrices, convolutions, resizes, ...)",
        ".*",
        "the largest number",
        Free(overflow=True),
        "whether a sum overflows on its way depends on the order of its terms, and on products fused with additions",
        ".*max",
        of=lambda entry: not elementwise(entry),
    ),
    Rule(
        "`kthvalue`, `topk`, `median`, `quantile`, `nanquantile`, `mode`, `unique`",
        "kthvalue|topk|(nan)?median|(nan)?quantile|mode|unique.*",
        "0 beside -0",
        Free(zeros=True),
        "they are equal, and the order of equal elements is free",
    ),
    Rule(
        "`var_mean`, `std_mean`, norms of batches, groups, layers and instances",
        f"(var|std)_mean.*|{_NORMS}",
        "infinities",
        Free(overflow=True),
        "eager's running mean is NaN behind an infinity, and infinite where the infinity comes last",
        when=_not_finite,
    ),
    Rule(
        "convolutions",
        ".*conv.*|nn.(Lazy)?Conv.*",
        "NaN and infinities",
        Free(overflow=True),
        "eager multiplies the zeros of the padding by the weights, with some algorithms; mycc leaves them out",
        when=_not_finite,
    ),
    Rule(
        "attention with a causal mask, and transformers",
        "nn.functional.(scaled_dot_product|multi_head).*|nn.(Transformer|Multihead).*",
        "not finite, or with squares that overflow",
        Free(values=True),
        "mycc does not read keys and values that a mask excludes; eager multiplies them by 0",
        when=_not_finite,
    ),
    Rule(
        "antialiased resizes",
        ".*_aa",
        "not finite, or with squares that overflow",
        Free(values=True),
        "mycc multiplies by a matrix, in which pixels outside of a window have the weight 0",
        when=_not_finite,
    ),
    Rule(
        "`histogram`, `histogramdd`, `binary_cross_entropy`, `linalg.lu_factor`",
        "histogram(dd)?|nn.BCELoss|nn.functional.binary_cross_entropy|linalg.lu_factor",
        "bounds that are NaN, probabilities outside of 0 to 1, factors with a 0 on the diagonal",
        Free(errors=True),
        "mycc computes with them: a check would cost every call a reading of all elements, on a GPU a wait",
    ),
    Rule(
        "`grid_sampler_2d`, `grid_sampler_3d`",
        ".*grid_sample.*",
        "results of 0",
        Free(zeros=True),
        "eager multiplies the corners outside of the image by 0, mycc leaves them out",
    ),
    Rule(
        "`softshrink`",
        "nn.functional.softshrink|nn.Softshrink",
        "results of 0",
        Free(zeros=True),
        "eager's vector loop gives 0 where its scalar loop gives x * 0",
    ),
    Rule(
        "norms of batches, groups, layers and instances",
        _NORMS,
        "results of 0",
        Free(zeros=True),
        "eager adds a shift of 0 where mycc subtracts the mean and adds nothing",
    ),
    Rule(
        "`tensor_split`",
        "tensor_split",
        "the least int64",
        Free(errors=True),
        "torch cannot take this number as a size; others out of range are cut in both",
        _INTEGERS,
    ),
    Rule(
        "orthogonal polynomials (`special.hermite_polynomial_h`, ...)",
        "special.*polynomial.*",
        "NaN",
        Free(values=True),
        "for degrees from 2 on eager returns a variable that it has not set",
        when=_not_finite,
    ),
    Rule(
        "`special.laguerre_polynomial_l`, `special.legendre_polynomial_p`",
        "special.(laguerre_polynomial_l|legendre_polynomial_p)",
        "degrees of more than 10^6",
        Free(skipped=True),
        "so many steps of eager's recurrence take seconds, and are rounding errors alone; mycc ends it there",
        when=_long_degree,
    ),
)


def free_of(entry: Entry, call: Call, fill: str = "", device: str = "cpu") -> Free:
    """What is free for a call of an entry."""
    found = [
        rule.free
        for rule in RULES
        if re.fullmatch(rule.entries, entry.name)
        and re.match(rule.fills, fill)
        and device in rule.devices
        and rule.of(entry)
        and rule.when(call)
    ]
    return Free(*(any(getattr(f, field) for f in found) for field in Free.__dataclass_fields__))
