"""Dynamic sizes: examples resized, symbols named and bounded, specialisations refused."""

from __future__ import annotations

import pytest
import sympy
import torch
from mycc import CompileError
from mycc.compiler.capture import CaptureRequest, capture, capture_request
from mycc.compiler.capture.failures import check_dynamic
from torch.export import Dim


def double(x):
    return x * 2


def pairs(x):
    return x.reshape(-1, 2, 3).sum(1)


def summary(graph):
    return [(s.name, s.min, s.max, s.input, s.dim, s.scale, s.offset) for s in graph.symbols]


def test_examples_of_one_are_resized_and_keep_their_ids():
    ids = torch.tensor([[7]])
    shapes = ({0: Dim("batch", min=1, max=64), 1: Dim("seq", min=1, max=512)},)
    graph = capture(torch.nn.Embedding(8, 4), (ids,), dynamic_shapes=shapes)
    assert summary(graph) == [("batch", 1, 64, 0, 0, 1, 0), ("seq", 1, 512, 0, 1, 1, 0)]
    batch, seq = graph.examples[0].shape
    assert min(batch, seq) >= 2
    assert batch != seq
    assert graph.examples[0].unique().tolist() == [7]


def test_a_good_example_is_kept():
    x = torch.randn(5, 3)
    graph = capture(double, (x,), dynamic_shapes=({0: Dim("n", max=9)},))
    assert graph.examples[0] is x


def test_equal_sizes_of_different_symbols_are_told_apart():
    def outer(x, y):
        return x[:, None] + y

    graph = capture(outer, (torch.randn(4), torch.randn(4)), dynamic_shapes=({0: Dim("a")}, {0: Dim("b")}))
    assert [str(s.name) for s in graph.symbols] == ["a", "b"]
    assert graph.outputs[0].shape == tuple(s.symbol for s in graph.symbols)


def test_derived_size():
    graph = capture(pairs, (torch.ones(2, 3),), dynamic_shapes=({0: 2 * Dim("half", min=1, max=8)},))
    assert summary(graph) == [("half", 1, 8, 0, 0, 2, 0)]


def test_hints_get_names_and_bounds():
    graph = capture(double, (torch.ones(1, 3),), dynamic_shapes=({0: Dim.AUTO, 1: Dim.DYNAMIC},))
    assert [s[:3] for s in summary(graph)] == [("s0", 1, 2**31 - 1), ("s1", 1, 2**31 - 1)]


def test_equal_sizes_of_hints_stay_equal():
    def products(x, y, z, bias):
        return (x + y) @ z + bias

    auto = {0: Dim.AUTO, 1: Dim.AUTO}
    args = torch.randn(4, 6), torch.randn(4, 6), torch.randn(6, 6), torch.randn(1, 6)
    graph = capture(products, args, dynamic_shapes=(auto, auto, auto, auto))
    rows, inner, columns = (s.symbol for s in graph.symbols)
    assert [spec.shape for spec in graph.inputs] == [(rows, inner), (rows, inner), (inner, columns), (1, columns)]


def test_command_line_form():
    request = CaptureRequest(double, (torch.ones(1, 4),), dynamic=("x:0=batch(1..64)", "x:1=2*half"))
    assert summary(capture_request(request)) == [("batch", 1, 64, 0, 0, 1, 0), ("half", 1, 2**31 - 1, 0, 1, 2, 0)]


def test_nested_arguments():
    def nested(d, pair, *rest, flag, **more):
        return d["q"] + pair[0] + rest[0] + more["w"]

    b = Dim("b", min=1)

    def one():
        return torch.ones(1, 3)

    shapes = {"d": {"q": {0: b}}, "pair": [{0: b}, None], "rest": ({0: b},), "w": {0: b}}
    kwargs = {"flag": True, "w": one()}
    graph = capture(nested, ({"q": one()}, (one(), one()), one()), kwargs, shapes)
    assert [spec.name for spec in graph.inputs] == ["d_q", "pair_0", "pair_1", "rest_0", "w"]
    assert [s.name for s in graph.symbols] == ["b"]
    inner = [{"dict": [["q", "*"]]}, {"tuple": ["*", "*"]}, "*"]
    positional = {"tuple": inner, "names": ["d", "pair", "rest_0"]}
    assert graph.in_tree == {"tuple": [positional, {"dict": [["flag", {"const": True}], ["w", "*"]]}]}


def fixes(x):
    return x.reshape(4, 3)


def needs_five(x):
    return x + torch.ones(5, 3)[: x.shape[0]]


def second(x):
    return x[1]


REFUSALS = [
    (
        fixes,
        {0: Dim("batch", max=8)},
        r"fixes a dimension(.|\n)*batch is fixed to 4 +test_sizes.py:\d+  return x.reshape",
    ),
    (fixes, {0: Dim.DYNAMIC}, r"fixes a dimension(.|\n)*x dimension 0 is fixed to 4"),
    (needs_five, {0: Dim("batch", max=8)}, r"all sizes of the dynamic range(.|\n)*Dim\('batch', max=5\)"),
    (pairs, {0: Dim("batch", max=8)}, r"all sizes of the dynamic range(.|\n)*batch = 2\*_batch"),
    (second, {0: Dim("n", min=1)}, r"does not work for n = 1(.|\n)*test_sizes.py:\d+  return x\[1\]"),
    (double, {7: Dim("n")}, "names dimension 7; its example has 2 dimensions"),
    (double, {0: Dim("n", min=6, max=9)}, r"dimension 0 is 4, outside the range 6..9 of 'n'"),
]


@pytest.mark.parametrize(
    ("model", "dims", "message"), REFUSALS, ids=[f"{r[0].__name__}-{i}" for i, r in enumerate(REFUSALS)]
)
def test_refusals(model, dims, message):
    with pytest.raises(CompileError, match=message):
        capture(model, (torch.ones(4, 3),), dynamic_shapes=(dims,))


def test_size_one_is_left_out_when_nobody_asked_for_it():
    graph = capture(second, (torch.ones(4, 3),), dynamic_shapes=({0: Dim("n", max=9)},))
    assert summary(graph) == [("n", 2, 9, 0, 0, 1, 0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "cannot read --dynamic 'nonsense'"),
        ("z:0=n", "the model has no tensor input 'z'(.|\n)*x"),
        ("x:5=n", "input 'x' has 2 dimensions, 0 to 1"),
        ("x:0=n(9..3)", "the range 9..3 of 'n' is empty"),
        ("x:0=n(4..4)", "has one size only"),
    ],
)
def test_command_line_refusals(text, message):
    with pytest.raises(CompileError, match=message):
        capture_request(CaptureRequest(double, (torch.ones(4, 3),), dynamic=(text,)))


def test_two_values_for_one_size():
    shapes = ({0: Dim("n")}, {0: Dim("n")})
    with pytest.raises(CompileError, match=r"'n' has different values(.|\n)*2 in x dimension 0, 4 in y dimension 0"):
        capture(lambda x, y: (x, y), (torch.ones(2), torch.ones(4)), dynamic_shapes=shapes)


def test_unknown_argument():
    with pytest.raises(CompileError, match=r"names 'q'(.|\n)*Its arguments: x"):
        capture(double, (torch.ones(2),), dynamic_shapes={"q": {0: Dim("n")}})


def test_a_changed_example_size_is_no_small_one():
    """With 2 in the place of the second 3, `y[1:]` were of size 1, which torch.export takes for a constant."""
    dims = ({0: Dim("n", min=1, max=9)}, {0: Dim("m", min=2, max=9)})
    graph = capture(lambda x, y: (x * 2, y[1:] * 2), (torch.ones(3), torch.ones(3)), dynamic_shapes=dims)
    assert [x.shape[0] for x in graph.examples] == [3, 4]


def test_a_size_that_the_model_makes_1_of_the_example():
    """8 places are one of the next layer: torch takes that for a constant."""
    layers = torch.nn.Sequential(torch.nn.Conv1d(1, 3, 3, 8, 1), torch.nn.ReLU(), torch.nn.Conv1d(3, 2, 1, 2))
    graph = capture(layers, (torch.randn(2, 1, 8),), dynamic_shapes=({2: 4 * Dim("n", min=2, max=16)},))
    (size,) = graph.symbols
    assert (size.name, size.min, size.max) == ("n", 2, 16)
    for n in (8, 12, 64):
        x = torch.randn(2, 1, n)
        torch.testing.assert_close(graph.module(x)[0], layers(x))


def test_a_size_that_several_slices_make_1_of_the_example():
    """torch.export takes the example's size for it without a word."""

    def increased(x: torch.Tensor) -> torch.Tensor:
        rest = x[1:][1:][1:]
        rest.add_(1)
        return rest.clone()

    graph = capture(increased, (torch.ones(4),), dynamic_shapes=({0: Dim("n", min=3, max=16)},))
    assert [s.name for s in graph.symbols] == ["n"]
    for n in (3, 4, 9):
        assert graph.module(torch.ones(n))[0].shape == (n - 3,)


def test_a_size_that_torch_fixes_without_a_word_is_refused():
    n = Dim("n", min=2, max=16)
    check_dynamic([(sympy.Symbol("s0"), 4), (4,)], ["x", "y"], [{0: n}, {}])
    with pytest.raises(CompileError, match=r"fixes a dimension(.|\n)*n \(y dimension 0\) is fixed to 8"):
        check_dynamic([(sympy.Symbol("s0"),), (8,)], ["x", "y"], [{0: n}, {0: 2 * n}])
