"""Fourier transforms of any size against torch in float64; their tables against exact roots of unity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import mycc
import numpy as np
import pytest
import torch
from mycc.compiler.ir.fourier import is_smooth, roots, table

fft = torch.fft
SIZES = (1, 2, 5, 8, 13, 17, 60, 97, 143, 1000, 1024)
WINDOW = torch.hann_window(32)


def real(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def normal(*shape: int) -> torch.Tensor:
    return torch.complex(real(*shape), real(*shape[::-1]).reshape(shape))


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    **{f"fft_{n}": (fft.fft, (normal(3, n),)) for n in SIZES},
    **{f"ifft_{n}": (fft.ifft, (normal(2, n),)) for n in SIZES},
    **{f"rfft_{n}": (fft.rfft, (real(3, n),)) for n in SIZES},
    **{f"irfft_{n}": (lambda x, n=n: fft.irfft(x, n), (normal(2, n // 2 + 1),)) for n in SIZES},
    "padded": (lambda x: fft.fft(x, 40, dim=0, norm="ortho"), (normal(33, 3),)),
    "cut": (lambda x: fft.rfft(x, 20, norm="forward"), (real(3, 33),)),
    "hfft": (lambda x: fft.hfft(x, 12) + fft.hfft(x, 12, norm="ortho"), (normal(3, 7),)),
    "ihfft": (fft.ihfft, (real(3, 12),)),
    "fft2": (lambda x: fft.ifft2(fft.fft2(x) * 2, norm="backward"), (normal(2, 6, 10),)),
    "rfftn": (lambda x: fft.irfftn(fft.rfftn(x), s=x.shape[-2:], dim=(1, 2)), (real(2, 6, 10),)),
    "shift": (lambda x: fft.fftshift(fft.fftn(fft.ifftshift(x))), (normal(4, 5),)),
    "stft": (lambda x: torch.stft(x, 32, 8, window=WINDOW.to(x.dtype), return_complex=True), (real(2, 200),)),
    "stft_complex": (lambda x: torch.stft(x, 10), (normal(100),)),
    "stft_parts": (lambda x: torch.stft(x, 10, return_complex=False), (normal(2, 50),)),
    "istft": (
        lambda x: torch.istft(
            torch.stft(x, 32, 8, window=WINDOW.to(x.dtype), normalized=True, return_complex=True), 32, 8,
            window=WINDOW.to(x.dtype), normalized=True, length=190,
        ),
        (real(2, 200),),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("fourier")
    return mycc.load(mycc.compile(CASES, out=folder / "fft.pkg", verify=False))


def distance(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got - want).abs().max() / want.abs().max())


@pytest.mark.parametrize("name", CASES)
def test_transforms(name: str, package: Any) -> None:
    function, args = CASES[name]
    want = function(*(a.to(torch.complex128) if a.is_complex() else a.double() for a in args))
    own, got = function(*args), package.entry(name)(*args)
    assert (got.dtype, got.shape) == (own.dtype, own.shape)
    assert distance(got, want) <= 4 * distance(own, want) + 3e-7


class Spectrum(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = fft.fft(x, dim=1)
        return fft.rfft(x), fft.ifft(z, dim=1).real


def test_sizes_that_are_known_at_run_time(tmp_path: Any) -> None:
    """Their tables are made by the package; in float64, all to its precision, whatever the size's factors."""
    n = torch.export.Dim("n", min=1, max=4096)
    example = real(2, 60).double()
    path = mycc.compile(Spectrum(), (example,), out=tmp_path / "spectrum.pkg", dynamic_shapes={"x": {1: n}})
    package = mycc.load(path)
    for size in (1, 2, 7, 60, 97, 194, 256, 499, 1000):
        x = real(2, size).double()
        half, back = package(x)
        assert distance(half, fft.rfft(x)) < 1e-14
        assert distance(back, x) < 1e-14


@pytest.mark.slow  # test_sizes_that_are_known_at_run_time
def test_signals_of_any_length(tmp_path: Any) -> None:
    """Spectrogram, mel spectrogram and their way back; lengths whose count of frames is not a whole fraction too."""
    filters = real(17, 6).abs()

    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        spectrum = torch.stft(x, 32, 8, window=WINDOW, return_complex=True)
        mel = (spectrum.abs().square().mT @ filters).clamp(1e-3).log()
        return torch.view_as_real(spectrum), mel, torch.istft(spectrum, 32, 8, window=WINDOW)

    shapes = ({1: torch.export.Dim("length", min=64, max=2000)},)
    loaded = mycc.load(mycc.compile(model, (real(2, 200),), out=tmp_path / "stft.pkg", dynamic_shapes=shapes))
    for length in (64, 77, 200, 1999):
        x = real(2, length)
        for found, wanted in zip(loaded(x), model(x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [1, 3, 8, 97, 1000])
def test_roots_of_unity_are_exact(n: int) -> None:
    with mpmath.workdps(40):
        exact = [mpmath.expjpi(mpmath.mpf(-2 * k) / n) for k in range(n)]
        wanted = np.array([complex(z) for z in exact])
    found = roots(np.arange(n), n)
    assert np.abs(found.real - wanted.real).max() <= 2**-53
    assert np.abs(found.imag - wanted.imag).max() <= 2**-53


def test_tables() -> None:
    assert [n for n in range(1, 40) if not is_smooth(n)] == [17, 19, 23, 29, 31, 34, 37, 38]
    assert table("rfft", 8).size == 2 * 4 + 2 * 5
    assert table("fft", 17).size == 2 * 17 + 4 * 64
