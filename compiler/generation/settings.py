"""generation_config.json, as far as a package does what it says."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

__all__ = ["generation_settings"]

#: what the package takes over: field -> the value at which it has no effect
_TAKEN: dict[str, object] = {
    "do_sample": False, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": None, "repetition_penalty": 1.0,
    "max_new_tokens": None, "suppress_tokens": None, "begin_suppress_tokens": None,
}  # fmt: skip
#: what changes the tokens and is not done: field -> the value at which it has no effect
_LEFT: dict[str, object] = {
    "num_beams": 1, "no_repeat_ngram_size": 0, "bad_words_ids": None, "forced_bos_token_id": None,
    "forced_eos_token_id": None, "typical_p": 1.0, "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0, "encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0, "sequence_bias": None,
    "exponential_decay_length_penalty": None, "guidance_scale": None, "penalty_alpha": None,
    "diversity_penalty": 0.0, "watermarking_config": None,
}  # fmt: skip


def generation_settings(
    given: Mapping[str, Any], config: Mapping[str, Any], followed: Collection[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """The settings of a package, and a warning for each field that it does not follow.

    given: generation_config.json. config: config.json, which may name the special tokens. followed: fields that the
    package's task follows by other means.
    """
    settings = {
        name: given[name] for name, plain in _TAKEN.items() if given.get(name) is not None and given[name] != plain
    }
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = given.get(name, config.get(name))
        if value is not None:
            settings[name] = value
    notes = [
        f"generation_config.json sets {name} to {given[name]!r}, which the package does not follow"
        for name, plain in _LEFT.items()
        if given.get(name) is not None and given[name] != plain and name not in followed
    ]
    return settings, notes
