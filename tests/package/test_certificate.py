from __future__ import annotations

import math

import numpy as np
import pytest
from mycc.runtime import certificate as cert
from mycc.runtime.errors import LoadError
from mycc.runtime.generator import Fill, fill_tensor


def case(entry: str = "forward", outputs: int = 2, elements: int = 10_000, batch: int = 2) -> cert.CaseReference:
    inputs = (cert.InputCheck("f32", (batch, 4), Fill(1, spread=(0.0, 1.0))),)
    references = [np.random.default_rng(i).normal(size=(batch, elements // batch)) for i in range(outputs)]
    return cert.CaseReference(entry, {"batch": batch}, inputs, references, [1e-6] * outputs)


def test_it_survives_its_file() -> None:
    made = cert.make_certificate([case(), case(batch=5)])
    data = cert.serialize(made)
    back = cert.parse(data)
    assert len(data) <= cert.MAX_BYTES
    assert [(c.entry, c.sizes, c.inputs) for c in back.cases] == [(c.entry, c.sizes, c.inputs) for c in made.cases]
    for one, other in zip(made.cases, back.cases, strict=True):
        for a, b in zip(one.outputs, other.outputs, strict=True):
            assert np.array_equal(a.samples, b.samples)
            assert (a.shape, a.tolerance, len(b.samples)) == (b.shape, b.tolerance, 4096)


def test_it_is_a_safetensors_file(tmp_path: object) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = safetensors.load(cert.serialize(cert.make_certificate([case()])))
    assert {name: tensor.dtype for name, tensor in tensors.items()} == dict.fromkeys(
        ("case0.output0", "case0.output1"), np.dtype("f8")
    )


def test_samples_are_spread_over_rows_and_columns() -> None:
    positions = cert.sample_positions(128 * 768)
    assert len(set(positions.tolist())) == 4096
    assert len(set((positions % 768).tolist())) == 768
    assert len(set((positions // 768).tolist())) == 128
    assert np.array_equal(cert.sample_positions(10), np.arange(10))


def test_many_outputs_still_fit() -> None:
    made = cert.make_certificate([case(outputs=6), case(outputs=6, batch=5)])
    assert [len(made.cases), made.cases[0].sizes, len(made.cases[0].outputs[0].samples)] == [1, {"batch": 2}, 4096]
    crowd = cert.make_certificate([case(outputs=40)])
    assert len(cert.serialize(crowd)) <= cert.MAX_BYTES
    assert {len(output.samples) for output in crowd.cases[0].outputs} == {len(crowd.cases[0].outputs[39].samples)}


def test_inputs_are_made_again() -> None:
    made = cert.make_certificate([case()])
    (array,) = cert.check_inputs(cert.parse(cert.serialize(made)), 0)
    assert np.array_equal(array, fill_tensor("f32", (2, 4), Fill(1, spread=(0.0, 1.0))))


@pytest.mark.parametrize(
    ("found", "reference", "error"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0.0),
        ([3.0, 4.5], [3.0, 4.0], 0.1),
        ([0.0, 1e-9], [0.0, 0.0], 1e-9),
        ([np.nan, 4.0, np.inf], [np.nan, 4.0, np.inf], 0.0),
        ([np.nan, 4.0], [3.0, 4.0], math.inf),
        ([3.0, 4.0], [np.nan, 4.0], math.inf),
        ([-np.inf, 4.0], [np.inf, 4.0], math.inf),
    ],
)
def test_relative_error(found: list[float], reference: list[float], error: float) -> None:
    assert cert.relative_error(np.array(found, np.float64), np.array(reference)) == pytest.approx(error)


def test_a_damaged_certificate_is_refused() -> None:
    data = cert.serialize(cert.make_certificate([case()]))
    with pytest.raises(LoadError, match="certificate cannot be read: the header of the tensor file is longer"):
        cert.parse(data[:20])
    with pytest.raises(LoadError, match="unknown format 'mycc-certificate-9'"):
        cert.parse(data.replace(b"mycc-certificate-1", b"mycc-certificate-9"))
