"""Models of several kinds, their weights, structures and refusals."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch
from mycc import CompileError
from mycc.compiler.capture import capture, format_graph, origin
from mycc.compiler.verify.reference import eager
from torch import nn
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch.export import Dim

Pair = namedtuple("Pair", "first second")


def same_results(model, graph):
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(model(*(x.clone() for x in graph.examples)))
    expected = [value for value in expected if isinstance(value, torch.Tensor)]
    for got, want in zip(graph.module(*graph.examples), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        h = self.up(x)
        return self.down(nn.functional.gelu(h))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(self.a(x)), self.a.weight, x


def test_operators_stay_whole():
    graph = capture(Mlp(), (torch.randn(1, 8),), dynamic_shapes=({0: Dim("batch", min=1, max=64)},))
    calls = [str(node.target) for node in graph.module.graph.nodes if node.op == "call_function"]
    assert calls == ["aten.linear.default", "aten.gelu.default", "aten.linear.default"]
    assert [(s.name, s.min, s.max) for s in graph.symbols] == [("batch", 1, 64)]
    assert set(graph.constants) == {"up_weight", "up_bias", "down_weight", "down_bias"}


def test_nodes_know_their_line_and_module():
    graph = capture(Mlp(), (torch.randn(1, 8),))
    node = next(n for n in graph.module.graph.nodes if n.op == "call_function")
    found = origin(node)
    assert found is not None
    assert found.file == __file__
    assert (found.text, found.module) == ("h = self.up(x)", "up")


@pytest.mark.parametrize("file", ["<ipython-input-3-ab>", "<stdin>", "<string>"])
def test_lines_that_were_typed_in(file):
    space = {"nn": nn}
    exec(compile("class Typed(nn.Module):\n def forward(self, x):\n  return x.exp()", file, "exec"), space)
    graph = capture(space["Typed"](), (torch.randn(3),))
    (found,) = [origin(n) for n in graph.module.graph.nodes if n.op == "call_function"]
    assert (found.file, found.line) == (file, 3)


def test_weights_are_the_models_own_and_tied_ones_are_stored_once():
    model = Tied()
    graph = capture(model, (torch.randn(2, 3),))
    same_results(model, graph)
    pointers = sorted(tensor.data_ptr() for tensor in graph.constants.values())
    assert pointers == sorted(p.data_ptr() for p in model.parameters())
    assert len(graph.constants) == 3
    output = graph.module.graph.output_node().args[0]
    assert [node.op for node in output] == ["call_function", "get_attr", "placeholder"]


def test_callables():
    layer = nn.Linear(3, 3)
    for function in (lambda x: layer(x) * 2, Tied().forward):
        graph = capture(function, (torch.randn(2, 3),))
        assert all(not tensor.requires_grad for tensor in graph.constants.values())
        same_results(function, graph)
    assert set(graph.constants) == {"a_weight", "a_bias", "b_bias"}


def test_exported_program():
    program = torch.export.export(Tied(), (torch.randn(2, 3),), dynamic_shapes=({0: Dim("batch", max=4)},))
    graph = capture(program)
    assert [(s.name, s.min, s.max) for s in graph.symbols] == [("s0", 1, 4)]
    assert len(graph.constants) == 3
    assert graph.in_tree == {"tuple": [{"tuple": ["*"]}, {"dict": []}]}


def test_output_structures():
    def outputs(x):
        return {"z": x + 1, "rest": [Pair(x * 2, None), 3, (x - 1,)]}

    graph = capture(outputs, (torch.randn(2),))
    pair = {"namedtuple": "Pair", "fields": [["first", "*"], ["second", {"none": None}]]}
    assert graph.out_tree == {"dict": [["z", "*"], ["rest", {"list": [pair, {"const": 3}, {"tuple": ["*"]}]}]]}
    assert [spec.name for spec in graph.outputs] == ["z", "rest_0_first", "rest_2_0"]


def test_constants_among_the_inputs():
    graph = capture(lambda x, k, flag=None: x * k, (torch.randn(2), 4), {"flag": True})
    inputs = [{"tuple": ["*", {"const": 4}], "names": ["x", "k"]}, {"dict": [["flag", {"const": True}]]}]
    assert graph.in_tree == {"tuple": inputs}


def data_dependent_size(x):
    return x[x > 0]


def data_dependent_branch(x):
    if x.sum() > 0:
        return x
    return x + 1


def data_dependent_int(x):
    return torch.zeros(int(x.sum().item()))


def wrong_shapes(x):
    return x @ torch.ones(7, 2)


def raises(x):
    raise ValueError("I do not like this")


def returns_a_size(x):
    return x, x.shape[0]


def other_operators(x):
    return hints_wrapper(lambda y: y + 1, (x,), {}, hints={"of": "a compiler"})


REFUSALS = [
    (data_dependent_branch, r"values of a tensor(.|\n)*test_capture.py:\d+  if x.sum\(\) > 0:(.|\n)*torch.where"),
    (data_dependent_int, r"a size is made of a float(.|\n)*test_capture.py:\d+  return torch.zeros(.|\n)*torch.int64"),
    (
        wrong_shapes,
        r"raises on its example inputs: .*mat1 and mat2 shapes cannot.*\n +test_capture.py:\d+  return x @",
    ),
    (raises, r"raises on its example inputs: ValueError: I do not like this\n +test_capture.py:\d+  raise"),
    (other_operators, r"torch.ops.higher_order.hints_wrapper cannot be compiled\n +test_capture.py:\d+"),
    (lambda x: 3, "the model returns no tensor"),
]


@pytest.mark.parametrize(("model", "message"), REFUSALS, ids=[r[0].__name__ for r in REFUSALS])
def test_refusals(model, message, capfd):
    with pytest.raises(CompileError, match=message):
        capture(model, (torch.ones(3, 3),))
    assert capfd.readouterr().err == ""


def test_a_size_as_output():
    """It is a tensor of one element to the package, and a Python number to its caller."""
    graph = capture(returns_a_size, (torch.ones(3),), dynamic_shapes=({0: Dim("n")},))
    assert {"scalar": "int"} in (graph.out_tree, *graph.out_tree.get("tuple", ()))
    assert torch.int64 in [spec.dtype for spec in graph.outputs if spec.shape == ()]


def test_a_size_that_depends_on_values():
    graph = capture(data_dependent_size, (torch.ones(3, 3),))
    (size,) = graph.computed
    assert (size.min, size.max) == (0, 9)
    assert size.where.endswith("return x[x > 0]")
    assert graph.outputs[0].shape == (size.symbol,)


@pytest.mark.parametrize(
    ("model", "args", "message"),
    [
        (nn.Linear(3, 3), (), r"the example inputs do not fit forward\(input: torch.Tensor\): missing"),
        (nn.Linear(3, 3, device="meta"), (torch.ones(3),), "'weight' of the model has no values"),
        (lambda x, y: x, (torch.ones(3), object()), "example input 'y' is a object"),
        (3, (), "cannot compile a int"),
    ],
    ids=["missing", "meta", "object", "no-model"],
)
def test_wrong_arguments(model, args, message):
    with pytest.raises(CompileError, match=message):
        capture(model, args)


def small_model(name):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if name == "bert":
        config = transformers.BertConfig(
            num_hidden_layers=2, hidden_size=32, num_attention_heads=2, intermediate_size=64, vocab_size=100
        )
        return transformers.BertModel(config).eval(), (torch.randint(0, 100, (1, 16)),)
    if name == "gpt2":
        config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=100, use_cache=False)
        return transformers.GPT2LMHeadModel(config).eval(), (torch.randint(0, 100, (1, 16)),)
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    return transformers.ResNetForImageClassification(config).eval(), (torch.randn(1, 3, 32, 32),)


class Branches(nn.Module):
    """Parameters belong to the branches, buffers come as operands; y is an operand that one branch alone reads."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x, y):
        return torch.cond(x.sum() > 0, lambda x, y: self.linear(x) + self.shift, lambda x, y: x - y, (x, y))


def test_control_flow_becomes_regions():
    model, x, y = Branches(), torch.ones(2, 3), torch.randn(2, 3)
    shapes = {"x": {0: Dim("n", max=8)}, "y": {0: Dim("n", max=8)}}
    graph = capture(model, (torch.ones(4, 3), torch.ones(4, 3)), dynamic_shapes=shapes)
    first, second = graph.regions.values()
    assert set(first.constants) == {"linear_weight", "linear_bias"}
    assert second.constants == {}
    assert {s.name for s in first.symbols} == {"n"}
    assert set(graph.constants) == {"shift"}
    for sign in (1, -1):
        torch.testing.assert_close(eager(graph, (sign * x, y)), [model(sign * x, y)])
    assert "graph region_0" in format_graph(graph)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "resnet"])
def test_real_architectures(name, dynamic):
    model, args = small_model(name)
    dims = {0: Dim("batch", min=1, max=64)}
    if name != "resnet":
        dims[1] = Dim("seq", min=1, max=500)
    graph = capture(model, args, dynamic_shapes=(dims,) if dynamic else None)
    same_results(model, graph)
    assert "object" in graph.out_tree
    assert [s.name for s in graph.symbols] == (["batch", "seq"][: len(dims)] if dynamic else [])
    found = next(origin(n) for n in reversed(graph.module.graph.nodes) if n.op == "call_function")
    assert f"modeling_{name}" in found.file
