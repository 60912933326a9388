"""Whole operators: every lowering, compiled and run, against torch in float64.

Many samples are entry points of one package. A sample's operator is lowered as it stands: the graph passes, which may
write it in another form, are left out here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc.compiler import pipeline
from mycc.compiler.lower.core.registry import REGISTRY
from mycc.compiler.model.operators.kept import CUSTOM

from ..helpers.samples import Operator, Sample, disagreement, reference
from ..helpers.sources import bools_in_memory
from .operator_samples import samples


def first_ones(of: list[Sample]) -> list[Sample]:
    """The first sample of each operator and dtype."""
    first: dict[tuple[str, Any], Sample] = {}
    for sample in of:
        first.setdefault((sample.operator, sample.operands[0].dtype if sample.operands else None), sample)
    return list(first.values())


ALL = samples()
FIRST = first_ones(ALL)
OTHERS = [s for s in ALL if s not in FIRST]
SAMPLES = FIRST + OTHERS
CHUNK = 80  # entry points of a package
CASES = [
    *(pytest.param(i, id=s.name) for i, s in enumerate(FIRST)),
    *(pytest.param(i, id=s.name, marks=pytest.mark.slow) for i, s in enumerate(OTHERS, len(FIRST))),
]
Entry = tuple[Any, Operator]


def chunk_of(position: int) -> range:
    """The positions of the samples that are compiled together: first ones or others."""
    begin, end = (0, len(FIRST)) if position < len(FIRST) else (len(FIRST), len(SAMPLES))
    start = begin + (position - begin) // CHUNK * CHUNK
    return range(start, min(start + CHUNK, end))


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Entry]:
    """The compiled entry point of a sample, by its position; packages are compiled on the first demand."""
    folder = tmp_path_factory.mktemp("operators")

    @cache
    def package(positions: range) -> tuple[Any, dict[int, Operator]]:
        modules = {i: Operator(SAMPLES[i]).eval() for i in positions}
        entries = {
            f"sample{i}": (m, SAMPLES[i].inputs(SAMPLES[i].batches[0]), None, SAMPLES[i].dynamic_shapes())
            for i, m in modules.items()
        }
        path = folder / f"from{positions[0]}.pkg"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pipeline, "run_graph_passes", lambda graph, *_, **__: graph)
            mycc.compile(entries, out=path, verify=False)
        assert bools_in_memory(path) == []
        return mycc.load(path), modules

    failures: dict[range, Exception] = {}  # a package that does not compile is tried once

    def find(position: int) -> Entry:
        chunk = chunk_of(position)
        if chunk in failures:
            raise failures[chunk]
        try:
            model, modules = package(chunk)
        except Exception as error:
            failures[chunk] = error
            raise
        return model.entry(f"sample{position}"), modules[position]

    return find


@pytest.mark.parametrize("position", CASES)
def test_operator(position: int, entry: Callable[[int], Entry]) -> None:
    sample = SAMPLES[position]
    compiled, module = entry(position)
    for batch in sample.batches:
        inputs = sample.inputs(batch)
        got = compiled(*inputs)
        with torch.no_grad():
            eager = module(*(x.clone() for x in inputs))
        if sample.note == "only shape":
            assert [(g.dtype, g.shape) for g in got] == [(e.dtype, e.shape) for e in eager]
            continue
        want = eager if sample.eager else reference(sample, module, inputs)
        for i, (g, w, e) in enumerate(zip(got, want, eager, strict=True)):
            problem = disagreement(sample, g, w, e)
            assert not problem, f"output {i} at batch {batch}: {problem}"


#: operators that have tests of another kind: file -> their names
ELSEWHERE = {
    "capture/test_attention_sinks.py": "mycc.attention.default",
    "gpu/test_attention_gradient.py": "mycc.attention_gradient.default mycc.trained_attention.default",
    "gpu/test_convolution_gradients.py": "mycc.conv_weight_gradient.default",
    "models/test_assertions.py": "mycc.assert_true.default",
    "ops/test_data_sizes.py": """aten._local_scalar_dense.default aten._unique2.default aten.argwhere.default
        aten.bincount.default aten.item.default aten.masked_select.default aten.nonzero.default
        aten.nonzero_numpy.default aten.repeat_interleave.Tensor aten.repeat_interleave.self_Tensor
        aten.unique_consecutive.default aten.unique_dim.default aten.unique_dim_consecutive.default
        aten.where.default""",
    "ops/test_random.py": """aten.alpha_dropout.default aten.bernoulli.Tensor aten.cauchy.default
        aten.exponential.default aten.feature_alpha_dropout.default aten.feature_dropout.default
        aten.geometric.default aten.log_normal.default aten.native_dropout.default aten.normal_functional.default
        aten.random.default aten.random.from aten.random.to aten.randperm.default
        aten.rrelu_with_noise_functional.default aten.uniform.default""",
    "ops/test_complex.py": """mycc.complex_cholesky.default mycc.complex_cumprod.default mycc.complex_eigh.default
        mycc.complex_lu.default mycc.complex_qr.default mycc.complex_reflectors.default mycc.complex_svd.default
        mycc.complex_triangular.default mycc.complex_eig.default mycc.complex_ldl.default
        mycc.complex_ldl_solve.default""",
    "ops/test_linalg.py": "mycc.eig.default",
    "ops/test_bits.py": "aten.view.dtype",
    "ops/test_choices.py": "aten.searchsorted.Tensor",
    "ops/test_fourier.py": "mycc.fft.default mycc.irfft.default mycc.rfft.default",
    "gpu/test_triton_calls.py": "mycc.triton_kernel.default",
    "ops/test_library_operators.py": """mycc.ctc_loss.default mycc.torchaudio___lfilter_core_loop.default
        torchvision.nms.default torchvision.ps_roi_align.default torchvision.ps_roi_pool.default
        torchvision.roi_align.default torchvision.roi_pool.default""",
    "ops/test_scalars.py": """aten.floor_divide.Scalar aten.logit.default aten.pow.Scalar aten.pow.Tensor_Tensor
        aten.softshrink.default aten.true_divide.Scalar aten.true_divide.Tensor""",
    "ops/test_grouped.py": "transformers.grouped_mm_fallback.default",
    "ops/test_recurrent.py": "aten.lstm.input aten.gru.input aten.rnn_tanh.input aten.rnn_relu.input",
    "models/test_state.py": "aten.select_scatter.default aten.slice_scatter.default",
    "ops/test_gradient_kernels.py": (
        "aten._scaled_dot_product_flash_attention_for_cpu.default "
        "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"
    ),
    "schedule/test_kv_blocks.py": "mycc.read_blocks.default",
    "training/test_memory.py": "mycc.recomputed.default",
    "ops/test_quantised.py": (
        "aten._int_mm.default mycc.mixed_mm.default mycc.grouped_mm.default mycc.grouped_int_mm.default "
        "mycc.int_conv.default mycc.float8_mm.default"
    ),
}


def test_every_lowering_has_a_sample() -> None:
    elsewhere = {name for names in ELSEWHERE.values() for name in names.split()}
    sampled = {s.operator for s in SAMPLES}
    own = set(REGISTRY.names()) - CUSTOM  # what other tests register
    missing = own - sampled - elsewhere
    assert not missing, f"no sample of {', '.join(sorted(missing))}"
    assert not elsewhere & sampled
    assert elsewhere <= set(REGISTRY.names())
    for name in ELSEWHERE:
        assert (Path(__file__).parents[1] / name).exists()


def test_every_sample_has_a_lowering() -> None:
    unknown = {s.operator for s in SAMPLES if REGISTRY.find(s.operator) is None}
    assert not unknown, f"no lowering of {', '.join(sorted(unknown))}"
