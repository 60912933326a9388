"""A vision-language model of transformers with its cache: vectors of images stand where a prompt has their tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...runtime.errors import CompileError
from .cache import call_cache
from .images import ImageEncoder
from .module import TextModel, cache_argument

__all__ = ["DecodeSeen", "PrefillSeen", "SeenTextModel"]


class SeenTextModel(TextModel):
    """As TextModel. token: the number that stands for a vector of an image; encoder: what makes the vectors."""

    def __init__(
        self, network: Any, encoder: ImageEncoder, token: int, length: int, texts: int, whole: bool, chunk: int = 0
    ) -> None:
        super().__init__(network, length, texts, whole, chunk=chunk)
        self.token, self.grid = token, encoder.grid

    def seen_logits(
        self, tokens: Tensor, start: Tensor, rows: Tensor | None, vectors: Tensor | None, at: Tensor | None
    ) -> Tensor:
        """tokens i64[batch, count], behind the first `start` i64[batch] of each text -> logits f32[batch, vocabulary].

        vectors: f32[batch, count, size], what stands where a token is the image's. at: where positions have three
        coordinates, these, i64[3, batch, count].
        """
        places = self.places(tokens, start, rows)
        embedded = self.network.get_input_embeddings()(tokens)
        if vectors is not None:
            embedded = torch.where((tokens == self.token)[..., None], vectors.to(embedded.dtype), embedded)
        cache = {cache_argument(self.network): call_cache([memory() for memory in self._memory], places)}
        positions = places.positions if at is None else at
        out = self.network(inputs_embeds=embedded, position_ids=positions, use_cache=True, logits_to_keep=1, **cache)
        found = out.logits[:, -1].float()
        assert isinstance(found, Tensor)
        return found

    def check_images(self, encoder: ImageEncoder) -> None:
        """Raises CompileError where the model itself sees an image otherwise than by vectors in its prompt."""
        pixels = torch.randn((3, encoder.height, encoder.width), generator=torch.Generator().manual_seed(0))
        network = self.network
        with torch.no_grad():
            vectors = encoder(pixels)
            tokens = torch.tensor([[3, *[self.token] * vectors.shape[0], 4, 5]])
            given: dict[str, Any] = {"pixel_values": pixels.to(network.dtype)[None]}
            at = None
            if encoder.packed:
                rows, columns = encoder.height // encoder.patch, encoder.width // encoder.patch
                given = {
                    "pixel_values": encoder._patches(pixels.to(network.dtype), rows, columns),
                    "image_grid_thw": torch.tensor([[1, rows, columns]]),
                    "mm_token_type_ids": (tokens == self.token).int(),
                }
            wanted = network(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False, **given)
            if encoder.packed:
                at = network.model.get_rope_index(
                    tokens, given["mm_token_type_ids"], image_grid_thw=given["image_grid_thw"]
                )[0]
            padded = vectors.new_zeros((1, tokens.shape[1], vectors.shape[1]))
            padded[:, 1 : 1 + vectors.shape[0]] = vectors
            zero = torch.zeros(1, dtype=torch.int64)
            if tokens.shape[1] > self.length:
                raise CompileError(
                    f"an image takes {vectors.shape[0]} tokens, and a text has {self.length}",
                    hint="Compile with a larger --max-length, or a smaller --image-size.",
                )
            found = self.seen_logits(tokens, zero, zero if self.texts > 1 else None, padded, at)
            for buffer in self.buffers(recurse=False):
                buffer.zero_()
        row = wanted.logits[:, -1].float()
        if not torch.allclose(found, row, rtol=0.05, atol=0.02 * float(row.abs().max())):
            raise CompileError(
                f"{type(network).__name__} sees images in a way that packages do not follow",
                hint="It may let the tokens of an image see each other, or give their vectors to other layers.",
            )


class PrefillSeen(nn.Module):
    """Reads a piece of one text behind its first `start` tokens, with the vectors of images in it."""

    def __init__(self, model: SeenTextModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        tokens: Tensor,
        start: Tensor,
        row: Tensor | None = None,
        vectors: Tensor | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        return self.model.seen_logits(tokens, start, row, vectors, at)


class DecodeSeen(nn.Module):
    """Takes one token more of the texts in the first rows of the cache. shift: i64[batch], how far the coordinates of
    each text's next position are from its number of tokens, of models whose positions have three."""

    def __init__(self, model: SeenTextModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, start: Tensor, shift: Tensor | None = None) -> Tensor:
        at = None if shift is None else (start + shift)[None, :, None].expand(3, -1, -1)
        return self.model.seen_logits(tokens, start, None, None, at)
