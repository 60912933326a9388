"""Prompts with images: pixels become vectors, which stand where the prompt has the image's token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from .engine import Engine, Text
from .options import Options
from .texts import Generator, TextStream, TokenStream, drafted, template_values, token_numbers

__all__ = ["SeenEngine", "SeenGenerator", "coordinates", "pixels_of"]


class SeenEngine(Engine):
    """An engine whose prompts may hold images: the source of a text is their vectors, f32[images, count, size]."""

    def __init__(self, model: Any, task: Mapping[str, Any], reuse: bool = False) -> None:
        super().__init__(model, task)  # equal tokens may stand for different images
        about = task["image"]
        self.token, self.count, self.size = int(about["token"]), int(about["count"]), int(about["size"])
        self.grid: tuple[int, int] | None = tuple(about["grid"]) if about["grid"] else None
        self._shift = [0] * len(self.rows)
        self._at: list[Any] = [None] * len(self.rows)

    def check(self, text: Text) -> None:
        super().check(text)
        held, images = text.prompt.count(self.token), 0 if text.source is None else len(text.source)
        if held != images * self.count:
            raise InputError(
                f"the prompt has {held} tokens of images, and {images} images have {images * self.count}",
                hint="Name the model's image token in the prompt once for each image.",
            )

    def _enter(self, row: int, text: Text) -> None:
        if self.grid is not None:
            self._at[row] = coordinates(text.prompt, self.token, self.grid)
            self._shift[row] = int(self._at[row].max()) + 1 - len(text.prompt)

    def _more(self, rows: Sequence[int], piece: tuple[int, int] | None = None) -> list[Any]:
        if piece is None:
            return [] if self.grid is None else [np.array([self._shift[row] for row in rows], np.int64)]
        text, (first, count) = self.rows[rows[0]], piece
        assert text is not None
        at = [] if self.grid is None else [np.ascontiguousarray(self._at[rows[0]][:, None, first : first + count])]
        return [self._vectors(text, first, count), *at]

    def _vectors(self, text: Text, first: int, count: int) -> Any:
        """f32[1, count, size], of a piece of a text's prompt."""
        vectors = np.zeros((1, count, self.size), np.float32)
        if text.source is not None:
            taken = np.array(text.prompt[first : first + count]) == self.token
            before = text.prompt[:first].count(self.token)
            every = np.asarray(text.source).reshape(-1, self.size)
            vectors[0, taken] = every[before : before + int(taken.sum())]
        return vectors


class SeenGenerator(Generator):
    """Generates texts for prompts with images."""

    engine_class = SeenEngine

    def __init__(self, model: Any, task: Mapping[str, Any], read: Any) -> None:
        super().__init__(model, task, read)
        self._about: Mapping[str, Any] = task["image"]
        self._see = model.entry("see")

    def vectors(self, images: Sequence[Any] | None) -> Any:
        """f32[images, count, size]; None without images."""
        if images is None or not len(images):
            return None
        return np.stack([np.array(self._see(pixels_of(image, self._about))) for image in images])

    def seen(self, prompt: str | Sequence[int], images: Sequence[Any] | None, options: Options) -> Text:
        """A text whose prompt has an image token for each image, or as many as an image has vectors."""
        tokens = token_numbers(self.encoded(prompt))
        token, count, many = int(self._about["token"]), int(self._about["count"]), len(images or ())
        if tokens.count(token) == many != 0 and count != 1:
            tokens = [t for own in tokens for t in ([own] * count if own == token else [own])]
        return self.made(tokens, options, self.vectors(images))

    def tokens(self, prompt: Sequence[int], given: Mapping[str, Any], draft: Any = None) -> TokenStream:
        images, options = _images(given)
        return TokenStream(self, drafted(self.seen(prompt, images, self.options(options)), draft))

    def stream(self, prompt: str | Sequence[int], given: Mapping[str, Any], draft: Any = None) -> TextStream:
        images, options = _images(given)
        return TextStream(self, drafted(self.seen(prompt, images, self.options(options)), draft))

    def chat(self, messages: Sequence[Mapping[str, Any]], given: Mapping[str, Any], draft: Any = None) -> TextStream:
        """images: those that the messages' parts of the type "image" do not hold themselves, in order."""
        images, options = _images(given)
        left, found = list(images or ()), []
        for message in messages:
            parts = message.get("content") if isinstance(message, Mapping) else None
            for part in parts if isinstance(parts, list) else ():
                if isinstance(part, Mapping) and part.get("type") == "image":
                    own = next((part[name] for name in ("image", "path") if name in part), None)
                    if own is None and not left:
                        raise InputError("the messages have more images than were given")
                    found.append(left.pop(0) if own is None else own)
        values, options = template_values(options)
        prompt = self.chat_tokens(messages, values)
        return TextStream(self, drafted(self.seen(prompt, [*found, *left], self.options(options)), draft))


def _images(given: Mapping[str, Any]) -> tuple[Sequence[Any] | None, dict[str, Any]]:
    """The images of a call, and its other options."""
    options = dict(given)
    images = options.pop("images", None)
    if images is not None and not isinstance(images, list | tuple):
        raise InputError("images has to be a list of images")
    return images, options


def coordinates(tokens: Sequence[int], token: int, grid: tuple[int, int]) -> Any:
    """i64[3, tokens]: time, row and column of each token's position. An image takes as many positions as the longer
    side of its grid."""
    rows, columns = grid
    parts, place, i = [], 0, 0
    while i < len(tokens):
        if tokens[i] == token:
            row, column = np.divmod(np.arange(rows * columns), columns)
            parts.append(np.stack([np.zeros_like(row), row, column]) + place)
            place, i = place + max(grid), i + rows * columns
        else:
            parts.append(np.full((3, 1), place))
            place, i = place + 1, i + 1
    return np.concatenate(parts, 1).astype(np.int64)


def pixels_of(image: Any, about: Mapping[str, Any]) -> Any:
    """f32[3, height, width] as the model takes it.

    image: so already; or u8[height, width, 3]; or an image of Pillow; or the path of a file. Those of other sizes are
    resized by Pillow, as preprocessor_config.json says.

    Raises:
        InputError: it is none of these, or Pillow is needed and not installed.
    """
    height, width = int(about["height"]), int(about["width"])
    given = image if isinstance(image, np.ndarray) else None
    if given is not None and given.dtype.kind == "f":
        if given.shape != (3, height, width):
            raise InputError(f"pixels are f32[3, {height}, {width}] or u8[rows, columns, 3], not {list(given.shape)}")
        return np.ascontiguousarray(given, np.float32)
    if given is not None and (given.dtype != np.uint8 or given.ndim != 3 or given.shape[2] != 3):
        raise InputError(
            f"pixels are f32[3, {height}, {width}] or u8[rows, columns, 3], not {given.dtype}{list(given.shape)}"
        )
    if given is None or given.shape != (height, width, 3):
        given = _resized(image, height, width, bool(about["crop"]), int(about["resample"]))
    scaled = given.astype(np.float32) * np.float32(about["scale"])
    scaled = (scaled - np.array(about["mean"], np.float32)) / np.array(about["std"], np.float32)
    return np.ascontiguousarray(scaled.transpose(2, 0, 1))


def _resized(image: Any, height: int, width: int, crop: bool, resample: int) -> Any:
    """u8[height, width, 3]; crop: the middle of the image whose shorter side fits, instead of all of it."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise InputError("images of other sizes need the Pillow library", hint="pip install pillow") from None
    try:
        if isinstance(image, np.ndarray):
            image = Image.fromarray(image)
        elif not isinstance(image, Image.Image):
            image = Image.open(image)
        image = image.convert("RGB")
    except (OSError, UnidentifiedImageError, AttributeError, ValueError) as error:
        raise InputError(f"cannot read an image: {error}") from None
    if not crop:
        return np.asarray(image.resize((width, height), resample))
    factor = max(height / image.height, width / image.width)
    size = max(round(image.width * factor), width), max(round(image.height * factor), height)
    wide = image.resize(size, resample)
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    return np.asarray(wide.crop((left, top, left + width, top + height)))
