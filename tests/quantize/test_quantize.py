"""Models of floats whose weights mycc makes integers: which layers, what values, what report, what refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.capture.export import CaptureRequest
from mycc.compiler.check import check
from mycc.compiler.graph.made import Made
from mycc.compiler.graph.recognize.quantised_weights import _are_scales
from mycc.compiler.ir.dtypes import DTYPES
from mycc.compiler.lower import lower
from mycc.compiler.model.graph import ModelGraph
from mycc.compiler.model.operators.quantised import packed
from mycc.compiler.number_formats import FORMATS, parse_quantization
from mycc.compiler.options import CompileOptions
from mycc.compiler.quantize.layers import find_layers
from mycc.compiler.quantize.measure import added_noise, measured_together, outputs
from mycc.compiler.quantize.quantize import plan, quantize
from mycc.compiler.quantize.report import QuantizationReport
from mycc.compiler.quantize.rewrite import Quantized, quantized_graph
from mycc.compiler.quantize.sums import sum_operands
from mycc.compiler.quantize.weights import to_integers
from mycc.compiler.schedule import schedule
from mycc.runtime.errors import CompileError
from torch import Tensor, nn

from ..graph.support import Dim, agrees, operators, passed
from ..helpers.networks import Convolutions

ROWS = Dim("rows", min=1, max=64)


class Words(nn.Module):
    """An embedding that is the output head too, a layer with a bias, and one in the form of GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.up = nn.Embedding(48, 64), nn.Linear(64, 96)
        self.down = nn.Parameter(torch.randn(96, 64) / 10)
        self.bias = nn.Parameter(torch.randn(64) / 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.up(self.embed(ids)).relu()
        x = torch.addmm(self.bias, x, self.down)
        return nn.functional.linear(x, self.embed.weight)


IDS, PICTURES = torch.arange(12) % 48, torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(0))


def words(**options: Any) -> tuple[ModelGraph, QuantizationReport]:
    torch.manual_seed(0)
    return done(capture(Words().eval(), (IDS,), None, ({0: ROWS},)), **options)


def images(**options: Any) -> tuple[ModelGraph, QuantizationReport]:
    torch.manual_seed(0)
    return done(capture(Convolutions().eval(), (PICTURES,)), **options)


def done(graph: ModelGraph, text: str, **options: Any) -> tuple[ModelGraph, QuantizationReport]:
    wanted = parse_quantization(text, **options)
    assert wanted is not None
    (result,), (report,) = quantize([graph], wanted)
    return result, report


# values --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("bits", "least"), [("int8", 38.0), ("int4", 19.0)])
def test_integers_are_near_the_floats(bits: str, least: float) -> None:
    w = torch.randn(33, 64, generator=torch.Generator().manual_seed(1))
    w[0], w[1, :32], w[2, 3], w[3] = 0.0, 0.0, 1e4, 1e-9
    own = to_integers(w, FORMATS[bits])
    assert own.values.dtype == torch.int8
    assert int(own.values.min()) >= (-8 if bits == "int4" else -127)
    assert int(own.values.max()) <= (7 if bits == "int4" else 127)
    assert bool((own.scales != 0).all())
    again = (own.values.reshape(33, -1, own.group).double() * own.scales.double().unsqueeze(-1)).reshape(w.shape)
    assert torch.equal(again[0], torch.zeros(64, dtype=torch.float64))
    noise, signal = (again - w).double()[4:].square().sum(), w[4:].double().square().sum()
    assert 10 * float(torch.log10(signal / noise)) > least


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(300, 64), (5, 4, 16), (1, 64), (2, 1 << 15)])
def test_weights_become_floats_in_pieces(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    values = torch.randint(-8, 8, shape, dtype=torch.int8)
    rows, columns = shape[0], values[0].numel()
    scales, zeros = torch.rand(rows, columns // 32).half() + 1, torch.randint(-3, 3, (rows, columns // 32))
    found = torch.ops.mycc.dequantize(values, scales, zeros, 4, 32, dtype)
    exact = (values.double().reshape(rows, -1, 32) - zeros.unsqueeze(-1)) * scales.double().unsqueeze(-1)
    assert found.dtype == dtype
    torch.testing.assert_close(found, exact.reshape(shape).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("wrong", [None, 0.0, -0.0, float("nan"), float("inf"), -float("inf")])
def test_scales_that_stand_for_nothing_are_seen(dtype: torch.dtype, wrong: float | None) -> None:
    tiny = float(torch.finfo(dtype).smallest_normal)
    scales = torch.tensor([[1.0, -2.0], [tiny, -float(torch.finfo(dtype).max)]], dtype=dtype)
    if wrong is not None:
        scales[1, 0] = wrong
    assert _are_scales(scales) == (wrong is None)
    assert _are_scales(scales.t()) == (wrong is None)


class Dropping(nn.Module):
    """Numbers at random between layers, and in front of the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.dropout(x, 0.5, True)
        return self.last(torch.dropout(self.first(x), 0.5, True))


@pytest.mark.parametrize("model", [Words, Dropping])
def test_both_models_are_measured_in_one_walk_as_one_after_the_other(model: type[nn.Module]) -> None:
    torch.manual_seed(0)
    example = IDS if model is Words else torch.randn(12, 64)
    graph = capture(model().eval(), (example,))
    wanted = parse_quantization("int4:group=32")
    assert wanted is not None
    form = wanted.format
    rows = [Quantized(x, to_integers(x.matrix, form)) for x in plan(graph, wanted).layers]
    samples = [list(graph.examples)]
    torch.manual_seed(1)
    together = measured_together(graph, rows, samples)
    assert together is not None
    noise, exact, found = together
    torch.manual_seed(1)
    noise_apart, exact_apart = added_noise(graph, rows, samples)
    assert noise == noise_apart
    torch.manual_seed(1)
    found_apart = [outputs(quantized_graph(graph, rows), samples[0])]
    for a, b in ((exact, exact_apart), (found, found_apart)):
        assert all(torch.equal(x, y) for x, y in zip(a[0], b[0], strict=True))


def test_entry_points_share_what_is_made_of_their_weights() -> None:
    values = torch.randint(-8, 8, (4, 8), dtype=torch.int8)
    made = Made()
    first = made.once("halves", (values,), lambda: packed(values))
    assert made.once("halves", (values.view_as(values),), lambda: packed(values)) is first
    assert made.once("scales", (values,), lambda: packed(values)) is not first
    other = values.clone()
    assert made.once("halves", (other,), lambda: packed(other)) is not first
    assert Made().once("halves", (values,), lambda: packed(values)) is not first


def test_int4_scales_are_float16_unless_they_do_not_fit() -> None:
    w = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    assert to_integers(w, FORMATS["int4"]).scales.dtype == torch.float16
    assert to_integers(w * 1e-6, FORMATS["int4"]).scales.dtype == torch.float32


# graphs --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "operator"),
    [("int8", "mycc.mixed_mm"), ("int8-dynamic", "aten._int_mm"), ("int4", "mycc.grouped_mm")],
)
def test_all_layers_read_integers(text: str, operator: str) -> None:
    graph, report = words(text=text)
    result = passed(graph)
    assert operators(result)[operator] == 3
    assert [row.name for row in report.layers] == ["embed", "up", "down"]
    assert not report.left
    floats = [t for t in result.constants.values() if t.is_floating_point() and t.numel() > 384]
    assert not floats, "no weight of floats is left"
    agrees(graph, result)
    assert report.error is not None
    assert 0 < report.error < (0.2 if text == "int4" else 0.03)
    assert all(row.snr is not None and row.snr > (15 if text == "int4" else 30) for row in report.layers)


def test_sizes_are_those_of_the_bits() -> None:
    _, report = words(text="int4")
    assert [row.size for row in report.layers] == [48 * 64 * 9 // 16, 96 * 64 * 9 // 16, 96 * 64 * 9 // 16]
    assert report.layers[0].floats == 48 * 64 * 4


def test_calibrated_convolutions_are_integers() -> None:
    graph, report = images(text="int8", calibrate=[PICTURES, PICTURES * 0.5])
    result = passed(graph)
    assert operators(result)["mycc.int_conv"] == 2
    assert operators(result)["aten._int_mm"] == 1
    assert not {"aten.conv2d", "aten.linear"} & set(operators(result))
    agrees(graph, result)
    assert report.measured == "2 calibration inputs"
    assert report.error is not None
    assert 0 < report.error < 0.05


class Padded(nn.Module):
    """Two convolutions with zeros in front of the second one, more of them behind than before."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, stride=2, groups=8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(nn.functional.pad(self.first(x).relu(), (0, 1, 0, 1)))


def test_zeros_around_a_calibrated_map_are_padding_of_its_integers() -> None:
    """The first convolution may then write integers."""
    torch.manual_seed(0)
    graph, _ = done(capture(Padded().eval(), (PICTURES,)), text="int8", calibrate=[PICTURES])
    result = passed(graph)
    assert "aten.pad" not in operators(result)
    convolutions = [n for n in result.module.graph.nodes if "int_conv" in str(n.target)]
    assert [list(n.args[4]) for n in convolutions] == [[0, 0], [0, 1, 0, 1]]
    agrees(graph, result)


class Residual(nn.Module):
    """A stem with a pool, a block with a convolution beside it, a block without, and one that a head reads too."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.beside = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(3))
        self.blocks = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(3))
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(self.stem(x).relu(), 3, 2, 1)
        x = (self.norms[0](self.blocks[0](x)) + self.beside(x)).relu()
        x = (self.norms[1](self.blocks[1](x)) + x).relu()
        x = x + self.norms[2](self.blocks[2](nn.functional.pad(x, (0, 0, 0, 0))))
        return self.head(x.mean((2, 3)))


def test_sums_of_calibrated_maps_read_integers() -> None:
    """Nothing between convolutions is stored wider than a byte, and the pool compares bytes."""
    torch.manual_seed(0)
    graph, report = done(capture(Residual().eval(), (PICTURES,)), text="int8", calibrate=[PICTURES])
    result = passed(graph)
    agrees(graph, result)
    assert report.error is not None
    assert 0 < report.error < 0.05
    (pool,) = [n for n in result.module.graph.nodes if "max_pool2d" in str(n.target)]
    assert pool.meta["val"].dtype == torch.int8
    nodes = schedule(lower(result).program).program.nodes
    wide = {b.name for node in nodes[:-3] for b in node.writes() if b.kind == "temp" and DTYPES[b.dtype].size > 1}
    assert not wide


class LinearResidual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(12, 24), nn.Linear(24, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(x).relu())


def test_sums_that_no_convolution_reads_stay_floats() -> None:
    graph = capture(LinearResidual().eval(), (PICTURES,))
    assert sum_operands(graph, find_layers(graph)[0]) == []


def test_a_calibrated_head_that_is_an_embedding_too_has_its_own_range() -> None:
    _, report = words(text="int8", calibrate=[IDS])
    assert all(row.snr is not None and row.snr > 30 for row in report.layers)


def test_without_calibration_convolutions_stay() -> None:
    _, report = images(text="int8")
    assert [row.name for row in report.layers] == ["head"]
    assert [(x.name, "calibration" in x.reason) for x in report.left] == [("first", True), ("second", True)]


def test_layers_that_take_floats_alone_are_told() -> None:
    model = nn.Sequential(nn.Linear(64, 32), nn.Unflatten(1, (32, 1)), nn.ConvTranspose1d(32, 8, 3)).eval()
    _, report = done(capture(model, (torch.randn(2, 64),)), text="int8")
    assert [row.name for row in report.layers] == ["0"]
    assert [x.name for x in report.left] == ["2"]
    assert "takes floats alone" in report.left[0].reason


def test_layers_of_one_module_have_the_names_of_its_parameters() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 48, batch_first=True), 1).eval()
    graph = capture(model, (torch.randn(2, 8, 32),))
    names = ["layers.0.self_attn.in_proj_weight", "layers.0.self_attn.out_proj", "layers.0.linear1", "layers.0.linear2"]
    assert [row.name for row in done(graph, "int8")[1].layers] == names
    assert [row.name for row in done(graph, "int8", skip="*.self_attn.*,*1")[1].layers] == names[3:]


def test_patterns_leave_layers_as_they_are() -> None:
    graph, report = words(text="int8", skip="em*,up")
    assert [row.name for row in report.layers] == ["down"]
    assert {x.name for x in report.left} == {"embed", "up"}
    assert operators(passed(graph))["aten.linear"] == 2


def test_a_calibration_file_has_one_sample_or_several(tmp_path: Any) -> None:
    np.savez(tmp_path / "one.npz", x=PICTURES.numpy())
    np.savez(tmp_path / "many.npz", x=np.stack([PICTURES.numpy()] * 3))
    assert images(text="int8", calibrate=str(tmp_path / "one.npz"))[1].measured == "1 calibration inputs"
    assert images(text="int8", calibrate=str(tmp_path / "many.npz"))[1].measured == "3 calibration inputs"


# refusals ------------------------------------------------------------------------------------------------------------
REFUSED: Sequence[tuple[dict[str, Any], str]] = [
    ({"text": "nf4"}, r"cannot quantise to 'nf4'(.|\n)*Use int4 instead"),
    ({"text": "int8:group=32"}, r"'int8' has a scale for each row"),
    ({"text": "int4:group=20"}, r"a group of 20 weights is none"),
    ({"text": "int4:group=128"}, r"groups of 128 do not divide the 64 columns of 'embed'(.|\n)*int4:group=64"),
    ({"text": "int8", "skip": "embd"}, r"--quantize-skip embd names no layer(.|\n)*Did you mean embed"),
    ({"text": "int8", "skip": "*"}, r"no layer to quantise"),
    ({"text": "int4", "calibrate": [IDS]}, r"'int4' takes no calibration"),
    ({"text": "int8", "calibrate": []}, r"no inputs for calibration"),
    ({"text": "int8", "calibrate": [IDS.float()]}, r"calibration input 0: ids is f32\[12\], and the model takes i64"),
    ({"text": "int8", "calibrate": "lacking.npz"}, r"cannot read 'lacking.npz'"),
    ({"text": "int8", "calibrate": "no_such:thing"}, r"cannot find 'no_such:thing'"),
    ({"text": "int4", "max_error": 1e-4}, r"error of \S+, more than --max-error 0.0001\n  \w+: adds noise, .* dB"),
    ({"text": "int8", "max_error": -1.0}, r"largest error has to be a number above 0"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        words(**options)


class _Largest(nn.Module):
    def forward(self, logits: Tensor) -> Tensor:
        return logits.argmax(-1)


def test_entry_points_without_layers_stay_as_they_are() -> None:
    """As those that choose tokens of a text do; only a model that has no layer at all is refused."""
    form = parse_quantization("int8")
    assert form is not None
    layers = capture(nn.Linear(64, 8).eval(), (torch.randn(2, 64),))
    largest = capture(_Largest(), (torch.randn(2, 8),))
    found, reports = quantize([layers, largest], form)
    assert found[1] is largest
    assert [len(report.layers) for report in reports] == [1]
    with pytest.raises(CompileError, match="no layer to quantise"):
        quantize([largest], form)


def test_a_check_of_entry_points_without_layers() -> None:
    layers = CaptureRequest(nn.Linear(64, 8).eval(), (torch.randn(2, 64),), {}, None, name="layers")
    largest = CaptureRequest(_Largest(), (torch.randn(2, 8),), {}, None, name="largest")
    options = CompileOptions(quantize=parse_quantization("int8"))
    assert check([layers, largest], options).ok
    assert not check([largest], options).ok


def test_options_without_a_format_are_refused() -> None:
    with pytest.raises(CompileError, match="--max-error says how to quantise, and nothing is"):
        parse_quantization(None, max_error=0.1)


def test_weights_that_are_not_finite_are_refused_by_name() -> None:
    model = nn.Sequential(nn.Linear(64, 8), nn.Linear(8, 64)).eval()
    with torch.no_grad():
        model[1].weight[3, 2] = torch.inf
    with pytest.raises(CompileError, match="the weight of '1' holds NaN or infinity"):
        done(capture(model, (torch.randn(2, 64),)), text="int8")
