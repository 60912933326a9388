"""Vision-language models: the tokens that transformers' generate chooses for prompts with images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc.runtime.generation.seen import pixels_of

from .folders import VOCABULARY

from transformers import CONFIG_MAPPING, AutoModelForImageTextToText  # isort: skip

TOKEN, COUNT = 390, 80
_TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 320, "initializer_range": 0.3,
    "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1,
}  # fmt: skip
#: the size of images that a package is compiled for; None: the model's own
IMAGE: dict[str, Any] = {"llava": None, "qwen2_5_vl": (56, 84), "qwen2_vl": (56, 28)}


def network_of(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "llava":
        vision = CONFIG_MAPPING["clip_vision_model"](
            hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2, image_size=24,
            patch_size=8, initializer_range=0.3,
        )  # fmt: skip
        config = CONFIG_MAPPING[kind](
            vision_config=vision, text_config=CONFIG_MAPPING["llama"](**_TEXT), image_token_index=TOKEN,
            image_seq_length=9,
        )  # fmt: skip
    else:
        more = {"window_size": 56, "fullatt_block_indexes": [1], "out_hidden_size": 64, "hidden_size": 32}
        vision = {
            "depth": 2,
            "num_heads": 2,
            "intermediate_size": 48,
            "patch_size": 14,
            "initializer_range": 0.3,
            **more,
        }
        if kind == "qwen2_vl":
            vision = {"depth": 2, "num_heads": 2, "embed_dim": 32, "hidden_size": 64, "patch_size": 14, "mlp_ratio": 2}
        rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
        config = CONFIG_MAPPING[kind](
            vision_config=vision, text_config={**_TEXT, "rope_parameters": rope}, image_token_id=TOKEN,
            vision_start_token_id=391, vision_end_token_id=392, video_token_id=393,
        )  # fmt: skip
    network = AutoModelForImageTextToText.from_config(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
            elif parameter.dim() > 2:
                parameter.copy_(torch.randn_like(parameter) * 0.2)
    return network


def patches(image: torch.Tensor) -> torch.Tensor:
    """What Qwen2VLImageProcessor gives for an image of patches of 14: those of a block of 2 x 2 in a row, each twice;
    f32[patches, 3 * 2 * 14 * 14]."""
    rows, columns = image.shape[1] // 14, image.shape[2] // 14
    found = []
    for row in range(0, rows, 2):
        for column in range(0, columns, 2):
            for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
                top, left = (row + i) * 14, (column + j) * 14
                patch = image[:, top : top + 14, left : left + 14]
                found.append(torch.stack([patch, patch], 1).flatten())
    return torch.stack(found)


def wanted(kind: str, network: Any, tokens: list[int], images: list[Any], count: int) -> list[int]:
    ids, pixels = torch.tensor([tokens]), torch.from_numpy(np.stack(images))
    given: dict[str, Any] = {"pixel_values": pixels}
    if kind != "llava":
        rows, columns = pixels.shape[2] // 14, pixels.shape[3] // 14
        given = {
            "pixel_values": torch.cat([patches(image) for image in pixels]),
            "image_grid_thw": torch.tensor([[1, rows, columns]] * len(images)),
            "mm_token_type_ids": (ids == TOKEN).int(),
        }  # fmt: skip
    network.generation_config.eos_token_id = None
    found = network.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), **given, max_new_tokens=count, do_sample=False,
        pad_token_id=0,
    )  # fmt: skip
    return [int(token) for token in found[0, len(tokens) :]]


@pytest.mark.parametrize(
    "kind",
    ["llava", pytest.param("qwen2_5_vl", marks=pytest.mark.slow), pytest.param("qwen2_vl", marks=pytest.mark.slow)],
)
def test_greedy_tokens(kind: str, tmp_path: Path) -> None:
    """Of one image and of two, and of texts of other lengths at once, in pieces that cut the images."""
    network = network_of(kind)
    package = mycc.compile_image_text(
        network, out=tmp_path / "seen.pkg", max_batch=2, chunk=7, image_size=IMAGE[kind], verify=kind == "llava"
    )
    model = mycc.load(package)
    about = model.manifest["task"]["image"]
    random = np.random.default_rng(0)
    images = [random.standard_normal((3, about["height"], about["width"])).astype(np.float32) for _ in range(2)]
    seen = [TOKEN] * about["count"]
    prompts = [([5, 6, *seen, 7, 8, 9], images[:1]), ([*seen, 11, 12, *seen, 13], images)]
    answers = [wanted(kind, network, tokens, given, COUNT) for tokens, given in prompts]
    other = wanted(kind, network, *([5, 6, *seen, 7, 8, 9], images[1:]), 20)
    assert answers[0][:20] != other
    options = {"max_new_tokens": COUNT, "ignore_eos": True}
    for (tokens, given), answer in zip(prompts, answers, strict=True):
        short = [t for i, t in enumerate(tokens) if t != TOKEN or i == 0 or tokens[i - 1] != TOKEN]
        assert list(model.generate_tokens(short, images=given, **options)) == answer
    with model.generator.engine() as engine:
        texts = [model.generator.seen(t, g, model.generator.options(options)) for t, g in prompts]
        for text in texts:
            engine.add(text)
        while engine.busy:
            list(engine.step())
    assert [text.tokens for text in texts] == answers
    plain = list(model.generate_tokens([5, 6, 7], max_new_tokens=20, ignore_eos=True))
    ids = torch.tensor([[5, 6, 7]])
    found = network.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False)
    assert plain == found[0, 3:].tolist()
    with pytest.raises(mycc.InputError, match="the prompt has 0 tokens of images"):
        model.generate_tokens([5], images=images)
    with pytest.raises(mycc.InputError, match="pixels are"):
        model.generate_tokens([TOKEN], images=[images[0][:, 1:]])


def test_a_model_of_texts_is_refused(tmp_path: Path) -> None:
    network = CONFIG_MAPPING["llama"](**_TEXT)
    from transformers import AutoModelForCausalLM

    with pytest.raises(mycc.CompileError, match="does not read images"):
        mycc.compile_image_text(AutoModelForCausalLM.from_config(network), out=tmp_path / "none.pkg")


def test_images_of_other_sizes() -> None:
    """Bytes of the right size by numpy alone; others by Pillow, whole or their middle."""
    about = {
        "height": 4,
        "width": 4,
        "scale": 1 / 255,
        "mean": [0.5] * 3,
        "std": [0.25] * 3,
        "crop": False,
        "resample": 3,
    }
    image = np.random.default_rng(0).integers(0, 256, (4, 4, 3)).astype(np.uint8)
    np.testing.assert_allclose(
        pixels_of(image, about), ((image / 255 - 0.5) / 0.25).transpose(2, 0, 1), rtol=1e-5, atol=1e-6
    )
    pillow = pytest.importorskip("PIL.Image")
    wide = np.zeros((8, 16, 3), np.uint8)
    wide[:, 4:12] = 255
    assert (pixels_of(wide, {**about, "crop": True}) == 2).all()
    whole = pixels_of(pillow.fromarray(wide), about)
    assert whole[0, 0, 0] < -1 < 1 < whole[0, 0, 1]
