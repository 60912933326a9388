"""torch.nn.attention.varlen_attn in plain operators: texts of any lengths behind each other in one tensor.

    text t has the queries cu_seq_q[t] .. cu_seq_q[t + 1] - 1 and the keys cu_seq_k[t] .. cu_seq_k[t + 1] - 1;
    its last query stands at its last key

Each query sees one run of keys, from `first` up to `end`, which a window makes shorter. So the mask is two comparisons
of the key, by which kernels leave out blocks of other texts. Keys in pages lie behind each other text by text.
Torch has kernels for CUDA alone, by flash attention; this says the same on every target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from .softmax_attention import softmax_attention
from .traced import traced

__all__ = ["varlen_attention"]

_NAME = "torch_attn::_varlen_attn"


def varlen_attention(node: fx.Node) -> fx.GraphModule | None:
    """The graph of a call of the operator, for the nodes that it reads, in order; None of other operators."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target._schema.name not in (_NAME, f"{_NAME}_out"):
        return None
    places = node.all_input_nodes
    writes = target._schema.is_mutable
    statistics = bool(node.users) if writes else any(u.args[1] != 0 and u.users for u in node.users)
    names = [argument.name for argument in target._schema.arguments]

    def body(*given: Any) -> Any:
        own = dict(zip(places, given, strict=True))
        values = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        arguments: dict[str, Any] = {n: fx.node.map_arg(v, own.__getitem__) for n, v in values.items()}
        result, sums = _attention(arguments, statistics)
        if writes:
            arguments["out"].copy_(result)
            return sums
        return result, sums, None

    return traced(node, body, [n.meta["val"] for n in places], composite=True)


def _attention(given: Mapping[str, Any], statistics: bool) -> tuple[Tensor, Tensor | None]:
    """The result [T, H, E] and the logarithm of the sums of exponentials [H, T], inf of a query that sees no key."""
    query, key, value = given["query"], given["key"], given["value"]
    texts = _Texts(given)
    if given.get("block_table") is not None:
        key, value = (_gathered(x, given["block_table"]) for x in (key, value))
    scale = given.get("scale")
    first, end = texts.seen(query.shape[0])
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (query, key, value))
    found, sums, _ = softmax_attention(
        q,
        k,
        v,
        None,
        lambda b, h, m, n: (n >= first[:, None]) & (n < end[:, None]),
        1 / math.sqrt(query.shape[-1]) if scale is None else scale,
        statistics,
    )
    result = found.squeeze(0).transpose(0, 1).contiguous()
    if sums is None:
        return result, None
    return result, torch.where(sums == -math.inf, math.inf, sums * math.log(2)).squeeze(0).float()


def _gathered(pool: Tensor, table: Tensor) -> Tensor:
    """[pages, rows, heads, size] by [texts, pages of a text] -> [keys of all texts, heads, size]. All of these are the
    keys of one text to the kernel, which reads the pages where they lie."""
    return pool[table.reshape(1, -1)].flatten(1, 2)[0]


class _Texts:
    """Where texts begin and how long they are."""

    def __init__(self, given: Mapping[str, Any]):
        self.begins = given["cu_seq_q"].long()
        table = given.get("block_table")
        if table is not None:
            room = table.shape[1] * given["key"].shape[1]
            self.keys = torch.arange(table.shape[0] + 1, device=table.device) * room
        else:
            self.keys = given["cu_seq_k"].long()
        used = given.get("seqused_k")
        self.lengths = self.keys[1:] - self.keys[:-1] if used is None else used.long()
        left, right = given.get("window_size") or (-1, -1)
        self.left, self.right = left, 0 if given.get("is_causal") else right

    def seen(self, queries: int) -> tuple[Tensor, Tensor]:
        """The first key that each query sees, and the one behind the last: i64[queries]."""
        places = torch.arange(queries, device=self.begins.device)
        last = self.lengths.shape[0] - 1
        text = torch.searchsorted(self.begins[1:], places, right=True).clamp(max=last)
        first = self.keys[text]
        end = first + self.lengths[text]
        own = places - self.begins[text + 1] + end  # the key that stands where the query does
        if self.right >= 0:
            end = torch.minimum(end, own + (self.right + 1))
        if self.left >= 0:
            first = torch.maximum(first, own - self.left)
        return first, torch.where(places < self.begins[-1], end, 0)
