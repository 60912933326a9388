"""Evident properties of example inputs: found in the example, and held by everything that is drawn like it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mycc.compiler.verify.properties import evident_fill
from mycc.runtime.certificate import CaseReference, InputCheck, check_inputs, make_certificate, parse, serialize
from mycc.runtime.generator import Fill, fill_tensor
from mycc.runtime.tensorfile import parse_header

Array = Any
_RANDOM = np.random.default_rng(0)
_MATRIX = _RANDOM.standard_normal((5, 5)).astype(np.float32)


def _definite(x: Array) -> bool:
    return bool((x == x.T).all()) and bool((np.linalg.eigvalsh(x.astype(np.float64)) > 0).all())


def _rows_of_one(x: Array) -> bool:
    return set(np.unique(x)) <= {0, 1} and bool((x.sum(-1) == 1).all())


def _conditioned(x: Array) -> bool:
    return bool((x == np.tril(x)).all()) and np.linalg.cond(x.astype(np.float64)) < 100


def _shares(x: Array) -> bool:
    return bool((np.diff(x) >= 0).all()) and x[0] >= 0 and x[-1] <= 1


def _padding(x: Array) -> bool:
    return bool((np.diff(x) <= 0).all()) and bool((x[:, 0] == 1).all())


#: name -> (example, what every draw like it has to hold)
EXAMPLES: dict[str, tuple[Array, Callable[[Array], bool]]] = {
    "boundaries": (np.float32([0, 1, 2, 3]), lambda x: (np.diff(x) >= 0).all()),
    "shares in order": (np.linspace(0, 1, 8, dtype=np.float32), _shares),
    "falling": (np.float32([[9, 5, 3, 1], [8, 7, 2, 1]]), lambda x: (np.diff(x) <= 0).all()),
    "one-hot": (np.eye(7, dtype=np.float32)[[1, 4, 0]], _rows_of_one),
    "one-hot integers": (np.eye(7, dtype=np.int64)[[1, 4, 0]], _rows_of_one),
    "float mask": (np.float32([1, 0, 0, 1, 1]), lambda x: set(np.unique(x)) <= {0, 1}),
    "padding": (np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]]), _padding),
    "causal mask": (np.tril(np.ones((5, 5), bool)), lambda x: (x == np.tril(np.ones((5, 5), bool))).all()),
    "probabilities": (_RANDOM.dirichlet([1] * 5, 3), lambda x: (x > 0).all() and np.allclose(x.sum(-1), 1)),
    "symmetric": (_MATRIX + _MATRIX.T, lambda x: (x == x.T).all()),
    "positive definite": (_MATRIX @ _MATRIX.T + np.eye(5, dtype=np.float32), _definite),
    "identity": (np.eye(5, dtype=np.float32), _definite),
    "factor of a matrix": (np.linalg.cholesky(_MATRIX @ _MATRIX.T + np.eye(5)), _conditioned),
    "positive": (_RANDOM.random(40).astype(np.float32) + 0.01, lambda x: (x > 0).all() and (x <= 1.5).all()),
    "coordinates": (_RANDOM.random((4, 5)) * 2 - 1, lambda x: (np.abs(x) <= 1).all()),
    "negative": (-_RANDOM.random(9) - 1, lambda x: (x < 0).all()),
    "positions": (np.arange(9), lambda x: (x == np.arange(9)).all()),
    "permutation": (np.array([2, 0, 1, 4, 3]), lambda x: sorted(x) == list(range(5))),
    "offsets": (np.array([0, 3, 3, 7, 9]), lambda x: (np.diff(x) >= 0).all() and x[0] == 0 and x[-1] == 9),
    "graph": (np.array([[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1], [1, 0, 1, 0]]), lambda x: (x == x.T).all()),
    "indices": (np.array([[3, 9, 4], [5, 3, 7]]), lambda x: (x >= 3).all() and (x <= 9).all()),
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_draws_keep_the_property(name: str) -> None:
    example, holds = EXAMPLES[name]
    assert holds(example)
    dtype = {"?": "bool", "l": "i64", "f": "f32", "d": "f64"}[example.dtype.char]
    draws = [
        fill_tensor(dtype, example.shape, evident_fill(example, seed)._replace(edges=edges and dtype[0] in "bi"))
        for seed in range(20)
        for edges in (False, True)
    ]
    assert all(x.dtype == example.dtype and holds(x) for x in draws)


@pytest.mark.parametrize("example", [_RANDOM.standard_normal(64), _RANDOM.integers(0, 99, (2, 9)), np.float32([1, 3])])
def test_random_examples_have_none(example: Array) -> None:
    assert not evident_fill(example, 1).kind


def test_constants_are_drawn() -> None:
    """A single number, or zeros: placeholders, most likely."""
    assert len(set(fill_tensor("f32", (9,), evident_fill(np.zeros(9, np.float32), 1)))) == 9
    single = fill_tensor("f32", (), evident_fill(np.float32(0.7).reshape(()), 1))
    assert single != np.float32(0.7)
    assert 0.3 < single < 1.1


def test_edges_are_duplicates_and_both_ends() -> None:
    for seed in range(20):
        x = fill_tensor("i64", (12,), Fill(seed, limits=(-5, 1000), edges=True))
        assert x.min() == -5
        assert x.max() == 1000
        assert len(set(x)) < 12


def test_a_certificate_tells_old_readers_of_plain_cases_alone() -> None:
    plain, special = Fill(1, limits=(0, 9)), Fill(2, limits=(0, 9), edges=True)
    cases = [
        CaseReference("forward", {"n": n}, (InputCheck("i64", (n,), how),), [np.arange(n)], [0.0])
        for n, how in ((4, special), (3, plain))
    ]
    data = serialize(make_certificate(cases))
    certificate = parse(data)
    assert [case.sizes for case in certificate.cases] == [{"n": 4}, {"n": 3}]
    assert [case.inputs[0].fill for case in certificate.cases] == [special, plain]
    assert [len(case.outputs[0].samples) for case in certificate.cases] == [4, 3]
    assert np.array_equal(check_inputs(certificate, 0)[0], fill_tensor("i64", (4,), special))
    entries, metadata, _ = parse_header(memoryview(data))
    assert '"sizes":{"n":3}' in metadata["cases"]
    assert '"n":4' not in metadata["cases"]
    assert next(e.shape for e in entries if e.name == "case0.output0") == (3,)


def test_the_same_bits_everywhere() -> None:
    """Pinned: a certificate of today is checked with these inputs on every machine."""
    found = {
        kind: fill_tensor("f32", (3, 3), Fill(5, (0.25, 1.0), kind=kind, diagonal=1.0 if kind == "symmetric" else None))
        for kind in ("ascending", "probabilities", "symmetric", "lower")
    }
    digest = hashlib.sha256(b"".join(x.tobytes() for x in found.values())).hexdigest()[:16]
    assert digest == "3b4bbd00b300b60a"
