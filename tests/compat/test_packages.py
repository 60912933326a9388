"""Packages that earlier releases made load, and compute the same bits (docs/compatibility.md)."""

from __future__ import annotations

import platform
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
from mycc.runtime.verify import verify_package

ARCHIVES = sorted(Path(__file__).parent.glob("packages-*.tar.xz"))
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the packages are for x86-64-v2")


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Any]]:
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(request.param) as archive:
        archive.extractall(folder, filter="data")
    with np.load(folder / "expected.npz") as expected:
        yield folder, expected


def same_bits(found: Any, expected: Any) -> None:
    found = np.asarray(found)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


def test_there_is_a_release() -> None:
    assert ARCHIVES


def test_a_model_of_floats(release: tuple[Path, Any]) -> None:
    folder, expected = release
    results = mycc.load(folder / "float32.pkg")(expected["float32/x"])
    for name in ("scores", "best", "calls"):
        same_bits(results[name], expected[f"float32/{name}"])


def test_a_quantised_model(release: tuple[Path, Any]) -> None:
    folder, expected = release
    same_bits(mycc.load(folder / "quantised.pkg")(expected["quantised/y"]), expected["quantised/output"])


def test_training(release: tuple[Path, Any]) -> None:
    folder, expected = release
    t = mycc.load(folder / "training.pkg")
    y, labels = expected["quantised/y"], np.arange(4)
    same_bits(np.array([float(t.step(y, labels)) for _ in range(3)]), expected["training/losses"])
    for name, value in t.state_dict().items():
        same_bits(value, expected[f"training/state/{name}"])


def test_text(release: tuple[Path, Any]) -> None:
    folder, expected = release
    m = mycc.load(folder / "text.pkg")
    found = np.array(list(m.generate_tokens([5, 9, 2], max_new_tokens=12, temperature=0, ignore_eos=True)))
    same_bits(found, expected["text/tokens"])


def test_certificates(release: tuple[Path, Any]) -> None:
    folder, _ = release
    assert verify_package(folder / "float32.pkg").ok
    assert verify_package(folder / "quantised.pkg").ok
