"""What becomes of the quantised models of torchao and PT2E: which operators, which constants, and their values."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.capture.export import CaptureRequest, capture_request
from mycc.compiler.capture.precision import in_dtype
from mycc.compiler.graph.widened import widened_weights
from mycc.compiler.ir.verify import verify_program
from mycc.compiler.lower import lower
from mycc.compiler.model.graph import ModelGraph
from mycc.compiler.verify import eager
from mycc.runtime.errors import CompileError
from torch import nn

from ..helpers.networks import Convolutions
from .support import Dim, agrees, graph_of, operators, passed

Q: Any = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
ASYMMETRIC = Q.MappingType.ASYMMETRIC
ROWS = Dim("rows", min=1, max=64)


def mlp(inner: int = 64) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(128, inner), nn.ReLU(), nn.Linear(inner, 32, bias=False)).eval()


def intx(bits: torch.dtype, group: int, **more: Any) -> Any:
    return Q.IntxWeightOnlyConfig(weight_dtype=bits, granularity=Q.PerGroup(group), **more)


def dynamic_intx(bits: torch.dtype, group: int, **more: Any) -> Any:
    return Q.Int8DynamicActivationIntxWeightConfig(weight_dtype=bits, weight_granularity=Q.PerGroup(group), **more)


def static(asymmetric: bool = False) -> Any:
    zero = {"act_mapping_type": ASYMMETRIC, "act_quant_zero_point": torch.full([1, 1], 3, dtype=torch.int8)}
    scale, by = torch.full([1, 1], 0.02), [Q.PerTensor(), Q.PerRow()]
    return Q.Int8StaticActivationInt8WeightConfig(act_quant_scale=scale, granularity=by, **(zero if asymmetric else {}))


#: a configuration of torchao, the operator that its linear layers become, and their bits
CONFIGS: dict[str, tuple[Callable[[], Any], str, int]] = {
    "int8 weights": (Q.Int8WeightOnlyConfig, "mycc.mixed_mm", 8),
    "int8 weights and activations": (Q.Int8DynamicActivationInt8WeightConfig, "aten._int_mm", 8),
    "int8 static": (lambda: static(), "aten._int_mm", 8),
    "int8 static with zero points": (lambda: static(True), "aten._int_mm", 8),
    "int4 by 32": (lambda: intx(torch.int4, 32), "mycc.grouped_mm", 4),
    "int4 by 64": (lambda: intx(torch.int4, 64), "mycc.grouped_mm", 4),
    "int4 with zero points": (lambda: intx(torch.int4, 32, mapping_type=ASYMMETRIC), "mycc.grouped_mm", 4),
    "int4 by rows": (
        lambda: Q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=Q.PerAxis(0)),
        "mycc.grouped_mm",
        4,
    ),
    "int3 by 32": (lambda: intx(torch.int3, 32), "mycc.grouped_mm", 4),
    "float8 weights": (Q.Float8WeightOnlyConfig, "mycc.float8_mm", 8),
    "float8 weights and activations": (Q.Float8DynamicActivationFloat8WeightConfig, "mycc.float8_mm", 8),
    "float8 by rows": (
        lambda: Q.Float8DynamicActivationFloat8WeightConfig(granularity=Q.PerRow()),
        "mycc.float8_mm",
        8,
    ),
    "int8 by 32": (lambda: intx(torch.int8, 32), "mycc.grouped_mm", 8),
    "int4 weights, int8 activations": (lambda: dynamic_intx(torch.int4, 32), "mycc.grouped_int_mm", 4),
    "the same with zero points": (
        lambda: dynamic_intx(torch.int4, 32, weight_mapping_type=ASYMMETRIC),
        "mycc.grouped_int_mm",
        4,
    ),
}


def no_float_matrices(graph: ModelGraph) -> None:
    """No constant of floats of more than 8 bits is as large as a weight (the smallest has 1600 elements)."""
    floats = [
        name
        for name, t in graph.constants.items()
        if t.is_floating_point() and t.element_size() > 1 and t.numel() >= 1600
    ]
    assert not floats


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("program", [False, True], ids=["module", "program"])
def test_linear_layers_of_torchao(name: str, program: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    config, operator, bits = CONFIGS[name]
    model, x = mlp(), torch.randn(5, 128)
    if name == "float8 by rows":
        model, x = model.bfloat16(), x.bfloat16()
    # torchao makes these on machines with such a GPU alone; the tensors are read anywhere
    monkeypatch.setattr("torchao.quantization.quant_api._check_hardware_support", lambda *_: None)
    Q.quantize_(model, config())
    shapes = ({0: ROWS},)
    exported = torch.export.export(model, (x,), dynamic_shapes=shapes) if program else None
    graph = capture(model, (x,), None, shapes) if exported is None else capture(exported, (x,))
    result = passed(graph)
    assert operators(result)[operator] == 2
    assert not {"aten.linear", "aten.mm", "aten.matmul"} & set(operators(result))
    no_float_matrices(result)
    assert not any("parametrizations" in name for name in result.constants)
    if operator.startswith("mycc.grouped"):
        node = next(n for n in result.module.graph.nodes if operator in str(n.target))
        assert node.args[-2] == bits
    agrees(graph, result)


@pytest.mark.parametrize("shape", [(1, 128), (1, 1, 128)])
@pytest.mark.parametrize(
    "name", ["int8 weights and activations", "int4 weights, int8 activations", "the same with zero points"]
)
def test_one_row(name: str, shape: tuple[int, ...]) -> None:
    """The last token of a prompt: a scale for each row is one scale for all."""
    config, operator, _ = CONFIGS[name]
    model, x = mlp(), torch.randn(shape)
    Q.quantize_(model, config())
    graph = capture(model, (x,))
    result = passed(graph)
    assert operators(result)[operator] == 2
    agrees(graph, result)
    for family in ("cpu", "cuda"):
        verify_program(lower(passed(graph), None, family).program, "lowering")


@pytest.mark.parametrize("shape", [(1, 128), (1, 1, 128)])
def test_a_row_of_bytes_by_four_bits(shape: tuple[int, ...], tmp_path: Path) -> None:
    """As a package: with zero points of the activations, which one row has one of."""
    model, x = mlp(), torch.randn(shape)
    Q.quantize_(model, dynamic_intx(torch.int4, 32))
    package = mycc.load(mycc.compile(model, (x,), out=tmp_path / "row.pkg"))
    torch.testing.assert_close(package(x), model(x), rtol=1e-4, atol=1e-4)


def test_a_model_in_half_precision_stays_in_it() -> None:
    model, x = mlp().bfloat16(), torch.randn(3, 128).bfloat16()
    Q.quantize_(model, intx(torch.int4, 32))
    graph = capture(model, (x,))
    result = passed(graph)
    assert operators(result)["mycc.grouped_mm"] == 2
    assert result.outputs[0].dtype == torch.bfloat16
    agrees(graph, result)


@pytest.mark.parametrize("bits", [torch.int4, torch.int8])
def test_embeddings_of_torchao(bits: torch.dtype) -> None:
    model, ids = nn.Sequential(nn.Embedding(50, 64)).eval(), torch.randint(0, 50, (2, 7))
    Q.quantize_(model, intx(bits, 32, mapping_type=ASYMMETRIC), filter_fn=lambda m, _: isinstance(m, nn.Embedding))
    graph = capture(model, (ids,))
    result = passed(graph)
    no_float_matrices(result)
    table = max(result.constants.values(), key=lambda t: t.nbytes)
    assert table.nbytes == 50 * (32 if bits == torch.int4 else 64)
    agrees(graph, result)


def test_a_scale_of_zero_is_refused_with_its_layer() -> None:
    model = mlp()
    Q.quantize_(model, intx(torch.int4, 32))
    model[2].weight.scale[3, 1] = 0.0  # type: ignore[union-attr,operator,index]
    with pytest.raises(CompileError, match=r"'2'.* 1 of 64 scales .* zero, NaN or infinite"):
        passed(capture(model, (torch.randn(2, 128),)))


def test_int4_of_bytes_with_two_values_is_read() -> None:
    """Int4WeightOnlyConfig's tensors: their products run on GPUs alone."""
    generator = torch.Generator().manual_seed(0)
    raw = torch.randint(-128, 128, (48, 32), generator=generator).to(torch.int8)
    scale, zero = torch.rand(2, 48, generator=generator) * 0.02 + 0.01, torch.randn(2, 48, generator=generator) * 0.05
    model = nn.Sequential(nn.Linear(64, 48)).eval()
    model[0].weight = nn.Parameter(Q.Int4Tensor(raw, scale, zero, [1, 32], torch.Size([48, 64])), requires_grad=False)
    bytes_ = raw.to(torch.uint8)
    low, high = (torch.where(h > 7, h.short() - 16, h.short()) for h in (bytes_ & 15, bytes_ >> 4))
    values = torch.stack((low, high), -1).reshape(48, 2, 32)
    floats = (values * scale.t().unsqueeze(-1) + zero.t().unsqueeze(-1)).reshape(48, 64)
    x = torch.randn(3, 64, generator=generator)
    (request,) = in_dtype([CaptureRequest(model, (x,))], None)
    graph = capture_request(request)
    result = passed(graph)
    assert operators(result)["mycc.grouped_mm"] == 1
    agrees(graph, result)
    want = nn.functional.linear(x, floats, model[0].bias)  # type: ignore[arg-type]
    torch.testing.assert_close(eager(result, (x,))[0], want, rtol=1e-5, atol=1e-5)
    assert isinstance(model[0].weight, Q.Int4Tensor), "the user's model stays as it is"


def tile_packed(q: torch.Tensor) -> torch.Tensor:
    """q [N, K] of 0 .. 15 as a kernel for tensor cores takes it, number by number."""
    rows, columns = q.shape
    out = torch.zeros(rows // 8, columns // 128, 32, 4, dtype=torch.int64)
    for n in range(rows):
        for k in range(columns):
            tile, own = k % 32, k % 8
            place = 16 * (own % 2) + 8 * (tile // 16) + 4 * (tile % 16 // 8)
            out[n // 8, k // 128, n % 8 * 4 + own // 2, k % 128 // 32] |= int(q[n, k]) << place
    return torch.where(out >= 1 << 31, out - (1 << 32), out).to(torch.int32)


@pytest.mark.parametrize("kind", ["tiles", "int32"])
def test_int4_in_the_order_of_a_kernel_is_read(kind: str) -> None:
    torch.manual_seed(0)
    q, scale = torch.randint(0, 16, (8, 1024)), (torch.rand(8, 32) * 0.02 + 0.01).bfloat16()
    if kind == "tiles":
        zero = (torch.randn(8, 32) * 0.05).bfloat16()
        pair = torch.stack((scale, zero), -1).transpose(0, 1).contiguous()
        # of 5 rows and 960 columns: the others are what the kernel's tiles need
        tensor: Any = Q.Int4TilePackedTo4dTensor(tile_packed(q), pair, [1, 32], torch.Size([5, 960]))
        floats = (q.reshape(8, 32, 32) - 8) * scale.double().unsqueeze(-1) + zero.double().unsqueeze(-1)
    else:
        zeros = torch.randint(0, 16, (8, 32), dtype=torch.int8)
        words = (q.reshape(8, -1, 8) << torch.arange(0, 32, 4)).sum(-1)
        words = torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)
        own = (words, scale.t().contiguous(), zeros.t().contiguous(), [1, 32], torch.Size([8, 1024]))
        tensor = Q.Int4PlainInt32Tensor(*own)
        floats = (q.reshape(8, 32, 32) - zeros.unsqueeze(-1)) * scale.double().unsqueeze(-1)
    rows, columns = tensor.shape
    model = nn.Sequential(nn.Linear(columns, rows, bias=False)).eval().bfloat16()
    model[0].weight = nn.Parameter(tensor, requires_grad=False)
    x = torch.randn(3, columns).bfloat16()
    (request,) = in_dtype([CaptureRequest(model, (x,))], None)
    result = passed(capture_request(request))
    assert operators(result)["mycc.grouped_mm"] == 1
    want = x.double() @ floats.reshape(8, 1024)[:rows, :columns].t()
    torch.testing.assert_close(eager(result, (x,))[0].double(), want, rtol=1e-2, atol=2e-2)


def test_int4_with_activations_in_float8_is_refused_with_its_layer() -> None:
    raw, part = torch.zeros(48, 32, dtype=torch.int8), torch.ones(2, 48)
    tensor = Q.Int4Tensor(raw, part, part, [1, 32], torch.Size([48, 64]), activation_dtype=torch.float8_e4m3fn)
    model = nn.Sequential(nn.Linear(64, 48)).eval()
    model[0].weight = nn.Parameter(tensor, requires_grad=False)
    with pytest.raises(CompileError, match=r"the int4 weight of '0' wants activations in float8"):
        in_dtype([CaptureRequest(model, (torch.randn(3, 64),))], None)


def test_a_format_that_is_not_compiled_is_refused_with_its_layer() -> None:
    nf4: Any = pytest.importorskip("torchao.quantization.quantize_.workflows.nf4.nf4_tensor")
    model = nn.Sequential(nn.Linear(128, 128)).eval()
    model[0].weight = nn.Parameter(nf4.to_nf4(torch.randn(128, 128)), requires_grad=False)
    with pytest.raises(CompileError, match=r"the weight of '0' is in nf4(.|\n)*Use torchao's IntxWeightOnlyConfig"):
        capture(model, (torch.randn(2, 128),))


def test_a_weight_that_is_widened_in_every_call_is_told() -> None:
    told = widened_weights(passed(capture(Weights(), (torch.randn(1, 256, 4, 4),))))
    assert len(told) == 1
    assert "widened to floats in every call" in told[0]
    float8 = nn.Sequential(nn.Linear(1024, 512)).eval()
    Q.quantize_(float8, Q.Float8WeightOnlyConfig())
    assert not widened_weights(passed(capture(float8, (torch.randn(2, 1024),)))), "kernels read float8 as it is"
    assert not widened_weights(passed(capture(mlp(), (torch.randn(2, 128),))))
    with torch.no_grad():
        qdata = float8[0].weight.qdata
        qdata.view(torch.uint8)[3, 4] = 0x7F
    graph = passed(capture(float8, (torch.randn(2, 1024),)))
    (told,) = widened_weights(graph)
    assert "'0' holds NaN" in told
    assert not widened_weights(graph, ("cuda",)), "tensor cores take NaN"


@pytest.mark.parametrize("group", [6, 12, 24, 48, 96])
@pytest.mark.parametrize("integers", [False, True])
def test_groups_that_no_kernel_reads_are_told(group: int, integers: bool) -> None:
    """Weights of 4 bits: on CPUs groups are whole lines of eight, on GPUs whole runs of 16, or of 32 beside int8."""
    w = torch.randint(-8, 8, (32, 96), dtype=torch.int8)
    scales = torch.rand(32, 96 // group) + 0.1
    x = torch.randint(-128, 128, (3, 96), dtype=torch.int8) if integers else torch.randn(3, 96)

    def forward(s: Any, x: torch.Tensor) -> torch.Tensor:
        if integers:
            return torch.ops.mycc.grouped_int_mm(x, None, s.w, s.s, None, 4, group)
        return torch.ops.mycc.grouped_mm(x, s.w, s.s, None, 4, group)

    graph = passed(graph_of(forward, x, w=w, s=scales))
    least = {"cpu": 8, "cuda": 32 if integers else 16}
    for family, values in least.items():
        told = widened_weights(graph, (family,))
        if group % values == 0:
            assert not told
        else:
            machines = {"cpu": "CPUs", "cuda": "GPUs"}[family]
            assert f"a scale for each {group} values, and {machines} take groups of a multiple of {values} " in told[0]


@pytest.mark.parametrize("kind", ["zero points", "transposed"])
def test_a_quantised_weight_that_is_kept_as_floats_is_told(kind: str) -> None:
    """Zero points of a convolution, and a transposed one: the layer is told, with the reason."""
    q = torch.ops.quantized_decomposed
    w = torch.randint(-128, 127, (32, 32, 3, 3)).to(torch.int8)
    scales, zeros = torch.rand(32) + 0.1, torch.full((32,), 3 if kind == "zero points" else 0)
    function = nn.functional.conv2d if kind == "zero points" else nn.functional.conv_transpose2d

    def forward(s: Any, x: torch.Tensor) -> torch.Tensor:
        x = q.dequantize_per_tensor(
            q.quantize_per_tensor(x, 0.02, 3, -128, 127, torch.int8), 0.02, 3, -128, 127, torch.int8
        )
        return function(x, q.dequantize_per_channel(s.w, s.s, s.z, 0, -128, 127, torch.int8))

    (told,) = widened_weights(passed(graph_of(forward, torch.randn(1, 32, 6, 6), w=w, s=scales, z=zeros)))
    assert "is kept as f" in told
    assert ("no zero points" if kind == "zero points" else "transposed convolutions") in told


@pytest.mark.parametrize("scale", ["rows", "number", "rows with 0"])
def test_integers_that_a_model_scales_by_hand_stay_integers(scale: str) -> None:
    """linear(x, w.float() * s): small weights, too, which would be folded to floats. Scales of 0 make it floats."""
    scales = torch.rand(32, 1) + 0.1 if scale != "number" else torch.tensor(0.02)
    if scale == "rows with 0":
        scales[3] = 0
    w = torch.randint(-127, 127, (32, 64)).to(torch.int8)
    forms = (lambda s, x: s.w.float() * s.s, lambda s, x: s.s * s.w.to(x.dtype), lambda s, x: s.w * s.s)
    for form in forms if scale == "rows" else forms[:1]:
        graph = graph_of(lambda s, x, form=form: nn.functional.linear(x, form(s, x)), torch.randn(3, 64), w=w, s=scales)
        found = passed(graph)
        assert ("mycc.mixed_mm" in " ".join(operators(found))) == (scale != "rows with 0")
        assert agrees(graph, found)


class Weights(nn.Module):
    """A convolution of floats with a weight of int8."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.randint(-128, 128, (256, 256, 3, 3)).to(torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(x, self.w.float() * 0.01, None, 1, 1)


# PT2E ----------------------------------------------------------------------------------------------------------------
def x86(dynamic: bool) -> Any:
    module: Any = pytest.importorskip("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    config = module.get_default_x86_inductor_quantization_config(is_dynamic=dynamic)
    return module.X86InductorQuantizer().set_global(config)


def xnnpack(dynamic: bool) -> Any:
    module: Any = pytest.importorskip("torchao.testing.pt2e._xnnpack_quantizer")
    config = module.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic)
    return module.XNNPACKQuantizer().set_global(config)


def pt2e(quantizer: Callable[[bool], Any], dynamic: bool, fold: bool) -> Any:
    """A case; one of them runs in `make test`."""
    name = f"{quantizer.__name__}-{'dynamic' if dynamic else 'static'}-{'integers' if fold else 'floats'}"
    quick = quantizer is x86 and not dynamic and not fold
    return pytest.param(quantizer, dynamic, fold, id=name, marks=[] if quick else [pytest.mark.slow])


PT2E = [pt2e(quantizer, *how) for quantizer in (x86, xnnpack) for how in itertools.product((False, True), repeat=2)]


@pytest.mark.parametrize(("quantizer", "dynamic", "fold"), PT2E)
def test_models_of_pt2e(quantizer: Callable[[bool], Any], dynamic: bool, fold: bool) -> None:
    """fold: whether the model holds weights that are integers, or floats and the operators that round them."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(0)
    x = torch.randn(2, 3, 12, 12)
    prepared = prepare_pt2e(torch.export.export(Convolutions().eval(), (x,)).module(), quantizer(dynamic))
    prepared(x)
    converted = convert_pt2e(prepared, fold_quantize=fold)
    if torch.__version__ < (2, 13) and not any("quantize" in str(node.target) for node in converted.graph.nodes):
        pytest.skip(f"with torch {torch.__version__} torchao's quantizer marks no layer")
    graph = capture(torch.export.export(converted, (x,)), (x,))
    result = passed(graph)
    assert operators(result)["aten._int_mm"] == 1
    if not dynamic:
        assert operators(result)["mycc.int_conv"] == 2
        assert not {"aten.conv2d", "aten.linear"} & set(operators(result))
        assert all(t.dtype == torch.int8 for name, t in result.constants.items() if t.numel() > 64)
    agrees(graph, result)


class Unsigned(nn.Module):
    """Layers of unsigned weights, whose zero points the graph computes, and a window whose padding has a name."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.randint(0, 256, (64, 96), dtype=torch.uint8))
        self.register_buffer("taps", torch.randint(-127, 128, (16, 8, 4, 3), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(64) * 0.01 + 0.001)
        self.register_buffer("zeros", torch.randint(-5, 6, (64,)))

    def forward(self, x: torch.Tensor, offset: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ops, numbers = torch.ops.quantized_decomposed, (0.05, 3, -128, 127, torch.int8)
        rounded = ops.quantize_per_tensor(x.reshape(1, 8, -1, 12), *numbers)
        x = ops.dequantize_per_tensor(ops.quantize_per_tensor(x, *numbers), *numbers)
        own = (self.w, self.scales, self.zeros + 120, 0, 0, 255, torch.uint8)
        given = (self.w, self.scales, self.zeros + offset, 0, 0, 255, torch.uint8)
        taps = (self.taps, self.scales[:16], self.zeros[:16] * 0, 0, -128, 127, torch.int8)
        shown = ops.dequantize_per_tensor(rounded, *numbers)
        image = nn.functional.conv2d(shown, ops.dequantize_per_channel(*taps), None, 1, "same", (1, 2))
        layers = (nn.functional.linear(x, ops.dequantize_per_channel(*weight)) for weight in (own, given))
        return image, *layers


def test_zero_points_that_are_computed_count() -> None:
    """From constants they are known; from an input they leave a layer of floats."""
    args = torch.randn(33, 96), torch.tensor(120)
    graph = capture(Unsigned(), args)
    result = passed(graph)
    found = operators(result)
    assert [found[f"mycc.{name}"] for name in ("grouped_int_mm", "int_conv")] == [1, 1]
    agrees(graph, result)


class Padded(nn.Module):
    """A convolution of rounded values with a frame of zeros, which has a lower and an upper line more than is even."""

    def __init__(self, zero: int, sides: tuple[int, ...]) -> None:
        super().__init__()
        self.numbers = (0.05, zero, 0, 255, torch.uint8)
        self.sides = sides
        self.register_buffer("w", torch.randint(-127, 128, (8, 4, 3, 3), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(8) * 0.01)
        self.register_buffer("zeros", torch.zeros(8, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ops = torch.ops.quantized_decomposed
        rounded = ops.quantize_per_tensor(nn.functional.pad(x, self.sides), *self.numbers)
        x = ops.dequantize_per_tensor(rounded, *self.numbers)
        w = ops.dequantize_per_channel(self.w, self.scales, self.zeros, 0, -128, 127, torch.int8)
        return nn.functional.conv2d(x, w, None, 2, 1)


@pytest.mark.parametrize(
    ("zero", "sides", "padding"),
    [(7, (1, 1), [1, 2]), (7, (0, 1, 0, 1), [1, 2, 1, 2]), (0, (0, 0, 2, 0), [3, 1, 1, 1]), (0, (), [1, 1])],
)
def test_zeros_around_a_map_are_padding_of_the_integers(zero: int, sides: tuple[int, ...], padding: list[int]) -> None:
    """What computes the map may then write its integers, frame or no frame."""
    model, x = Padded(zero, sides), torch.randn(1, 4, 7, 6)
    graph = capture(model, (x,))
    result = passed(graph)
    conv = next(n for n in result.module.graph.nodes if "int_conv" in str(n.target))
    assert conv.args[4] == padding
    assert "aten.pad" not in operators(result)
    agrees(graph, result)


@pytest.mark.parametrize(
    "numbers", [(0.05, 300, 0, 255, torch.uint8), (2.0**-24, 0, -(2**30), 2**30, torch.int32)], ids=["zero", "int32"]
)
def test_integers_that_8_bits_do_not_hold_are_multiplied_as_floats(numbers: tuple[Any, ...]) -> None:
    """No byte stands for the zero around the first map; sums of the second one would not fit into int32."""
    model, x = Padded(0, (1, 1)), torch.randn(1, 4, 7, 6)
    model.numbers = numbers
    graph = capture(model, (x,))
    result = passed(graph)
    assert "mycc.int_conv" not in operators(result)
    agrees(graph, result)


@pytest.mark.slow  # test_models_of_pt2e and test_fake_quantize.py see the same operators
def test_models_of_quantisation_aware_training() -> None:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e

    module: Any = pytest.importorskip("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    torch.manual_seed(0)
    x, model = torch.randn(2, 3, 12, 12), Convolutions()
    model.first = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8))  # type: ignore[assignment]
    config = module.get_default_x86_inductor_quantization_config(is_qat=True)
    trained = torch.export.export(model.train(), (x,)).module()
    prepared = prepare_qat_pt2e(trained, module.X86InductorQuantizer().set_global(config))
    prepared(x).square().mean().backward()
    torch.optim.SGD(prepared.parameters(), lr=0.01).step()
    graph = capture(torch.export.export(convert_pt2e(prepared), (x,)), (x,))
    result = passed(graph)
    assert operators(result)["aten._int_mm"] == 1
    assert operators(result)["mycc.int_conv"] == 2
    assert all(t.dtype == torch.int8 for name, t in result.constants.items() if t.numel() > 64)
    agrees(graph, result)
