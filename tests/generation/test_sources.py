"""Encoder-decoders of texts and of speech: the tokens that transformers' generate chooses, and what callers get."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc.compiler.generation.tasks import compile_task

from .folders import VOCABULARY, train_tokenizer

from transformers import (  # isort: skip
    AutoModelForSeq2SeqLM, CONFIG_MAPPING, GenerationConfig, GenerationMixin, WhisperConfig, WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)  # fmt: skip

COUNT = 80
LONG = {"max_new_tokens": COUNT, "ignore_eos": True, "repetition_penalty": 3.0}
_SMALL = {
    "vocab_size": VOCABULARY, "d_model": 64, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 1,
    "decoder_start_token_id": 0, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96,
}  # fmt: skip
_T5 = {"vocab_size": VOCABULARY, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4,
       "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}  # fmt: skip
#: model_type -> its configuration
KINDS: dict[str, dict[str, Any]] = {
    "bart": {**_SMALL, "max_position_embeddings": 256, "forced_eos_token_id": None, "forced_bos_token_id": 5},
    "marian": {**_SMALL, "max_position_embeddings": 256, "forced_eos_token_id": None},
    "mt5": {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "t5": {**_T5, "relative_attention_max_distance": 24, "tie_word_embeddings": False},
    "umt5": {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}


def lively(network: Any) -> Any:
    """Weights so large that tokens do not repeat."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
            elif "embed_positions" in name or "relative_attention_bias" in name:
                parameter.copy_(torch.randn_like(parameter))
            elif "shared" in name or "embed_tokens" in name:
                parameter.copy_(torch.randn_like(parameter) * 0.3)
            else:
                parameter.copy_(torch.randn_like(parameter) * (1.5 / parameter[0].numel() ** 0.5))
    return network.eval()


def source(count: int) -> list[int]:
    return [(7 * i * i + 3 * i + 11) % 390 + 4 for i in range(count)]


def wanted(network: Any, count: int, skipped: int = 1, **inputs: Any) -> list[int]:
    network.generation_config.eos_token_id = None
    found = GenerationMixin.generate(
        network, **inputs, max_new_tokens=count, do_sample=False, pad_token_id=0, repetition_penalty=3.0
    )
    return [int(token) for token in found[0, skipped:]]


def network_of(kind: str) -> Any:
    return lively(AutoModelForSeq2SeqLM.from_config(CONFIG_MAPPING[kind](**KINDS[kind])))


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of a folder, as the command compiles it."""
    folder = tmp_path_factory.mktemp("t5")
    network_of("t5").save_pretrained(folder / "model")
    train_tokenizer().save_pretrained(folder / "model")
    given = {"max_length": COUNT + 8, "max_source_length": 40, "max_batch": 3}
    return compile_task("text2text-generation", str(folder / "model"), folder / "text.pkg", None, given, {}, [])


@pytest.mark.parametrize("kind", [k if k == "t5" else pytest.param(k, marks=pytest.mark.slow) for k in KINDS])
def test_greedy_tokens(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Of sources of several lengths, alone and side by side."""
    network = network_of(kind)
    if kind == "t5":
        package = request.getfixturevalue("t5")
    else:
        package = mycc.compile_text2text(
            network, out=tmp_path / "text.pkg", max_length=COUNT + 8, max_source_length=40, max_batch=3, verify=False
        )
    model = mycc.load(package)
    sources = [source(40), source(1), source(17), source(7)[3:]]
    forced = 1 if network.generation_config.forced_bos_token_id is not None else 0
    answers = [wanted(network, COUNT + forced, 1 + forced, input_ids=torch.tensor([s])) for s in sources]
    assert len(set(answers[0])) > 20
    assert [list(model.generate_tokens(s, **LONG)) for s in sources[:2]] == answers[:2]
    with model.generator.engine() as engine:
        options = model.generator.options(LONG)
        texts = [model.generator.text(s, options) for s in sources]
        for text in texts:
            engine.add(text)
        while engine.busy:
            list(engine.step())
    assert [text.tokens for text in texts] == answers


def test_a_folder_answers_texts(t5: Path) -> None:
    tokenizer, model = train_tokenizer(), mycc.load(t5)
    stream = model.generate("the quick brown fox", max_new_tokens=12, ignore_eos=True)
    text = stream.text()
    assert stream.prompt_tokens == tokenizer("the quick brown fox").input_ids
    assert tokenizer.decode(stream.tokens, skip_special_tokens=True) == text
    assert model.generate_batch(["the quick brown fox", "dog"], max_new_tokens=12, ignore_eos=True)[0] == text
    for prompt, words in (("", "the text is empty"), ("fox " * 40, "the package reads 40")):
        with pytest.raises(mycc.InputError, match=words):
            model.generate(prompt)
    with pytest.raises(mycc.InputError, match="not conversations"):
        model.chat([{"role": "user", "content": "x"}])
    with pytest.raises(mycc.InputError, match="does not write down speech"):
        model.transcribe(np.zeros(10, np.float32))


# -- speech -----------------------------------------------------------------------------------------------------------

_WHISPER = {
    **_SMALL, "num_mel_bins": 16, "max_source_positions": 50, "max_target_positions": 256, "eos_token_id": 3,
    "begin_suppress_tokens": None, "suppress_tokens": None,
}  # fmt: skip
_SPOKEN = {"<|en|>": 390, "<|de|>": 391, "<|fr|>": 392}
_GENERATION = {
    "decoder_start_token_id": 0, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 3, "lang_to_id": _SPOKEN,
    "task_to_id": {"transcribe": 393, "translate": 394}, "no_timestamps_token_id": 395, "is_multilingual": True,
    "suppress_tokens": [5, 6, 7], "begin_suppress_tokens": [8, 9], "return_timestamps": False, "max_length": 256,
}  # fmt: skip


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    """A small Whisper that hears one second, its feature extractor, and its package."""
    folder = tmp_path_factory.mktemp("whisper")
    network = lively(WhisperForConditionalGeneration(WhisperConfig(**_WHISPER)))
    network.generation_config = GenerationConfig(**_GENERATION)
    extractor = WhisperFeatureExtractor(feature_size=16, chunk_length=1)
    network.save_pretrained(folder / "model")
    extractor.save_pretrained(folder / "model")
    if not (folder / "model" / "preprocessor_config.json").is_file():
        (folder / "model" / "preprocessor_config.json").write_text(json.dumps(extractor.to_dict()))
    train_tokenizer().save_pretrained(folder / "model")
    package = mycc.compile_speech(folder / "model", out=folder / "speech.pkg", max_batch=2)
    return network, extractor, mycc.load(package)


def sound(count: int = 12000) -> np.ndarray:
    times = np.arange(count) / 16000
    noise = np.random.default_rng(0).standard_normal(count) * 0.05
    return (np.sin(2 * np.pi * (300 + 500 * times) * times) * 0.5 + noise).astype(np.float32)


def test_speech(speech: tuple[Any, Any, Any]) -> None:
    network, extractor, model = speech
    features = extractor(sound(), sampling_rate=16000, return_tensors="np").input_features
    own = model.entry("features")(np.pad(sound(), (0, 4000)))
    np.testing.assert_allclose(own, features[0], rtol=1e-4, atol=1e-4)
    given = torch.from_numpy(features)
    heard = int(network.detect_language(given)[0])
    for language, task, begin in (
        ("de", "translate", [0, 391, 394, 395]), ("en", None, [0, 390, 393, 395]), (None, None, [0, heard, 393, 395])
    ):  # fmt: skip
        answer = wanted(network, COUNT, len(begin), input_features=given, decoder_input_ids=torch.tensor([begin]))
        assert len(set(answer)) > 20
        for audio in (features[0], sound()):
            stream = model.transcribe(audio, language, task, **LONG)
            stream.text()
            assert stream.tokens == answer
        assert _SPOKEN[f"<|{stream.language}|>"] == begin[1]
        assert stream.finish_reason == "length"


def test_longer_sound_and_files(speech: tuple[Any, Any, Any], tmp_path: Path) -> None:
    model = speech[2]
    samples = np.concatenate([sound(16000), sound(8000)])
    whole = model.transcribe(samples, "en", max_new_tokens=8, ignore_eos=True)
    text = whole.text()
    parts = [
        model.transcribe(part, "en", max_new_tokens=8, ignore_eos=True) for part in (samples[:16000], samples[16000:])
    ]
    assert "".join(part.text() for part in parts) == text
    assert whole.tokens == parts[0].tokens + parts[1].tokens
    wide = np.round(samples * 32767).astype(np.int16)
    with wave.open(str(tmp_path / "two.wav"), "wb") as file:
        file.setnchannels(2), file.setsampwidth(2), file.setframerate(16000)
        file.writeframes(np.repeat(wide, 2).tobytes())
    tokens = [model.transcribe(a, "en", max_new_tokens=8, ignore_eos=True) for a in (wide, tmp_path / "two.wav")]
    assert tokens[0].text() == tokens[1].text() != ""
    with wave.open(str(tmp_path / "slow.wav"), "wb") as file:
        file.setnchannels(1), file.setsampwidth(2), file.setframerate(8000)
        file.writeframes(wide.tobytes())
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (tmp_path / "slow.wav", {}, "8000 samples a second; the model takes 16000"),
        (tmp_path / "none.wav", {}, "cannot read"),
        (samples, {"language": "xx"}, "does not know the language 'xx'"),
        (samples, {"task": "sing"}, "no task 'sing'"),
        (samples.reshape(2, -1), {}, "not an array of shape"),
        (samples[:0], {}, "not an array of shape"),
        (samples * np.nan, {}, "NaN"),
        (wide.astype(np.int64), {}, "not int64"),
    ]
    for audio, options, words in wrong:
        with pytest.raises(mycc.InputError, match=words):
            model.transcribe(audio, **options)
    with pytest.raises(mycc.InputError, match="writes down speech"):
        model.generate_tokens([5])
