"""/v1/embeddings: vectors of texts by a package for them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InputError
from .requests import texts_or_tokens

__all__ = ["embeddings"]

_KNOWN = {"model", "input", "encoding_format", "user", "dimensions"}
#: texts of one request at most, as OpenAI's
_MOST = 2048


async def embeddings(model: Any, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request. Raises InputError for a field that is wrong or not taken."""
    for field in body:
        if field not in _KNOWN:
            raise InputError(f"there is no parameter '{field}'")
    texts: Sequence[str | Sequence[int]] = texts_or_tokens("input", body.get("input"))
    if len(texts) > _MOST:
        raise InputError(f"input has {len(texts)} texts; at most {_MOST} are taken at once")
    embedder = model.embedder
    if body.get("dimensions") not in (None, embedder.size):
        raise InputError(f"dimensions: the model's vectors have {embedder.size}")
    form = body.get("encoding_format") or "float"
    if form not in ("float", "base64"):
        raise InputError("encoding_format has to be 'float' or 'base64'")
    count = sum(len(embedder.tokens(text)) for text in texts)
    vectors = await asyncio.to_thread(embedder.embed, texts)
    rows = [
        {"object": "embedding", "index": i, "embedding": row.tolist() if form == "float" else _packed(row)}
        for i, row in enumerate(vectors)
    ]
    return {"object": "list", "data": rows, "model": name, "usage": {"prompt_tokens": count, "total_tokens": count}}


def _packed(row: Any) -> str:
    """The bytes of a vector of float32, little end first, in base64."""
    return base64.b64encode(row.astype("<f4").tobytes()).decode()
