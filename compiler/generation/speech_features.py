"""Whisper's features of sound, as a module: the logarithm of the power in bands of a mel scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...runtime.errors import CompileError

__all__ = ["SpeechFeatures"]

#: what preprocessor_config.json says where it says nothing
_USUAL = {"sampling_rate": 16000, "hop_length": 160, "n_fft": 400}


class SpeechFeatures(nn.Module):
    """f32[samples] -> f32[bands, frames].

    Attributes:
        samples: of a window; shorter sound is filled up with zeros by the caller.
        rate: samples of a second.
    """

    filters: Tensor
    window: Tensor

    def __init__(self, filters: Tensor, samples: int, rate: int, hop: int, size: int) -> None:
        super().__init__()
        self.samples, self.rate, self.hop, self.size = samples, rate, hop, size
        self.register_buffer("filters", filters)  # [bands, frequencies]
        self.register_buffer("window", torch.hann_window(size))

    @staticmethod
    def of(config: Mapping[str, Any], bands: int, frames: int) -> SpeechFeatures:
        """By what preprocessor_config.json says.

        Raises:
            CompileError: it does not fit the model, or asks for what is not taken.
        """
        from transformers.audio_utils import mel_filter_bank

        kind = config.get("feature_extractor_type", "WhisperFeatureExtractor")
        if kind != "WhisperFeatureExtractor":
            raise CompileError(f"preprocessor_config.json asks for {kind}; packages compute WhisperFeatureExtractor's")
        if config.get("feature_size", bands) != bands or config.get("dither", 0.0) or config.get("do_normalize"):
            raise CompileError(
                f"preprocessor_config.json does not fit the model, which takes {bands} bands without dither and "
                "normalisation"
            )
        rate, hop, size = (int(config.get(name, usual)) for name, usual in _USUAL.items())
        filters = mel_filter_bank(
            num_frequency_bins=1 + size // 2, num_mel_filters=bands, min_frequency=0.0, max_frequency=8000.0,
            sampling_rate=rate, norm="slaney", mel_scale="slaney",
        )  # fmt: skip
        return SpeechFeatures(torch.from_numpy(filters.T.copy()).float(), frames * hop, rate, hop, size).eval()

    def forward(self, samples: Tensor) -> Tensor:
        spectrum = torch.stft(samples, self.size, self.hop, window=self.window, return_complex=True)
        parts = torch.view_as_real(spectrum[..., :-1])
        power = parts[..., 0].square() + parts[..., 1].square()
        logarithm = torch.clamp(self.filters @ power, min=1e-10).log10()
        logarithm = torch.maximum(logarithm, logarithm.max() - 8.0)
        return (logarithm + 4.0) / 4.0
