"""A GGUF file: its configuration, its tokenizer, and its tensors under the names of transformers' modules."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...runtime.errors import CompileError
from .gguf_blocks import BLOCKS, read_blocks
from .network import Checkpoint, check_finite, empty_network, fill
from .weights import PackedWeight, refused

__all__ = ["GgufFile", "load_gguf"]

#: architectures that are taken -> whether the rows of q and k lie in pairs, as llama.cpp turns them
_ARCHITECTURES = {"llama": True, "qwen2": False, "qwen3": False}
#: fields of the metadata behind the architecture's name -> of transformers' configuration; they have to be there
_FIELDS = {
    "block_count": "num_hidden_layers", "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads", "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "context_length": "max_position_embeddings",
}  # fmt: skip
_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


class GgufFile(Checkpoint):
    """Reads a file's metadata; its tensors lie in the file until they are asked for.

    Raises:
        CompileError: gguf is not installed, the file is damaged, or of an architecture that is not taken.
    """

    title = "GGUF"

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            import gguf
        except ImportError as error:
            raise CompileError(f"reading a GGUF file needs gguf: {error}", hint="pip install gguf") from None
        try:
            self._reader = gguf.GGUFReader(path, "c")  # mapped, copied where it is written
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise CompileError(f"cannot read '{path}' as GGUF: {error}") from None
        self._tensors = {t.name: t for t in self._reader.tensors}
        self.architecture = str(self.field("general.architecture") or "unknown")
        if self.architecture not in _ARCHITECTURES:
            raise CompileError(
                f"GGUF files of the architecture {self.architecture} are not taken",
                hint=f"Architectures: {', '.join(sorted(_ARCHITECTURES))}. A folder of the model may be.",
            )
        keys = {arch: key for key, arch in gguf.MODEL_ARCH_NAMES.items()}
        self._names = gguf.get_tensor_name_map(keys[self.architecture], int(self._needed("block_count")))
        self._taken: set[str] = set()
        self._check_types()

    def field(self, key: str) -> Any:
        """A field of the metadata; None without it."""
        found = self._reader.fields.get(key)
        return None if found is None else found.contents()

    def _needed(self, key: str) -> Any:
        found = self.field(f"{self.architecture}.{key}")
        if found is None:
            raise CompileError(f"'{self.path}' does not say {self.architecture}.{key}")
        return found

    def _check_types(self) -> None:
        for name, tensor in self._tensors.items():
            kind = tensor.tensor_type.name
            if kind not in BLOCKS and kind not in _FLOATS:
                raise refused(name, f"its type {kind} is not taken", f"Types: {', '.join([*BLOCKS, *_FLOATS])}.")

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """What config.json would say. Raises CompileError for a missing field and scaled positions of other kinds."""
        own = self.architecture
        fields = {name: self._needed(key) for key, name in _FIELDS.items()}
        if any(isinstance(v, list) for v in fields.values()):
            raise CompileError(f"the layers of '{self.path}' have different sizes, which are not taken")
        heads = fields["num_attention_heads"]
        fields["num_key_value_heads"] = self.field(f"{own}.attention.head_count_kv") or heads
        size = self.field(f"{own}.attention.key_length") or self.field(f"{own}.rope.dimension_count")
        fields["head_dim"] = size or fields["hidden_size"] // heads
        fields["vocab_size"] = self._shape("token_embd.weight")[0]
        theta = self.field(f"{own}.rope.freq_base") or 10000.0
        fields["rope_parameters"] = {"rope_theta": theta, **self._positions()}
        fields["tie_word_embeddings"] = "output.weight" not in self._tensors
        fields["attention_bias"] = own == "llama" and "blk.0.attn_q.bias" in self._tensors
        for name, key in _SPECIAL.items():
            if name != "unk_token":
                fields[f"{name}_id"] = self.field(f"tokenizer.ggml.{key}_token_id")
        return {"model_type": own, **fields}

    def _positions(self) -> dict[str, Any]:
        kind = self.field(f"{self.architecture}.rope.scaling.type") or "none"
        if kind == "none":
            return {"rope_type": "default"}
        if kind == "linear":
            return {"rope_type": "linear", "factor": self._needed("rope.scaling.factor")}
        raise CompileError(f"'{self.path}' scales positions by {kind}, which is not taken from GGUF files")

    @property
    def dtype(self) -> torch.dtype:
        """Of what is computed: float32 beside integers, else that of the matrices."""
        kinds = {t.tensor_type.name for t in self._tensors.values() if len(t.shape) > 1}
        return _FLOATS[kinds.pop()] if len(kinds) == 1 and kinds <= _FLOATS.keys() else torch.float32

    @property
    def special_tokens(self) -> dict[str, str]:
        """The texts of the special tokens by their names."""
        field, found = self._reader.fields.get("tokenizer.ggml.tokens"), {}
        for name, key in _SPECIAL.items():
            token = self.field(f"tokenizer.ggml.{key}_token_id")
            if token is not None and field is not None and token < len(field.data):
                found[name] = str(field.contents(token))
        return found

    def tokenizer(self) -> bytes | None:
        """What tokenizer.json would hold; None where the file has no tokens."""
        if self.field("tokenizer.ggml.model") in (None, "no_vocab"):
            return None
        from transformers import AutoTokenizer

        try:
            made = AutoTokenizer.from_pretrained(self.path.parent, gguf_file=self.path.name, local_files_only=True)
        except Exception as error:  # each of its builders raises its own
            raise CompileError(
                f"the tokenizer in '{self.path}' cannot be read: {error}",
                hint="Name the model's tokenizer.json by --tokenizer.",
            ) from None
        return str(made.backend_tokenizer.to_str()).encode()

    # the tensors ----------------------------------------------------------------------------------------------------
    def _shape(self, name: str) -> tuple[int, ...]:
        if name not in self._tensors:
            raise CompileError(f"'{self.path}' has no tensor {name}")
        return tuple(int(n) for n in reversed(self._tensors[name].shape))

    def _name(self, name: str) -> str:
        """The file's name of a parameter of transformers' network."""
        found = self._names.get_name(name, try_suffixes=(".weight", ".bias"))
        return str(found) if found is not None else name

    def packed(self, layer: str, shape: tuple[int, int]) -> PackedWeight | None:
        name = self._name(f"{layer}.weight")
        tensor = self._tensors.get(name)
        if tensor is None or tensor.tensor_type.name not in BLOCKS:
            return None
        if self._shape(name) != shape:
            raise refused(layer, f"it is {list(self._shape(name))} in the file, and {list(shape)} in the network")
        self._taken.add(name)
        weight = read_blocks(tensor.tensor_type.name, tensor.data.reshape(shape[0], -1), shape[1])
        rows = self._rows_in_file(layer, shape[0])
        if rows is None:
            return weight
        zeros = None if weight.zeros is None else weight.zeros[rows]
        return PackedWeight(weight.values[rows], weight.scales[rows], zeros, weight.bits, weight.group)

    def floats(self, name: str) -> Tensor | None:
        own = self._name(name)
        tensor = self._tensors.get(own)
        if tensor is None or tensor.tensor_type.name not in _FLOATS:
            return None
        self._taken.add(own)
        data = np.ascontiguousarray(tensor.data)
        found = torch.from_numpy(data).view(_FLOATS[tensor.tensor_type.name]).reshape(self._shape(own))
        check_finite(name, found)
        rows = self._rows_in_file(name.rpartition(".")[0], found.shape[0])
        return found if rows is None else found[rows]

    def _rows_in_file(self, layer: str, rows: int) -> Tensor | None:
        """For q and k of llama.cpp's "llama": where in the file the rows of a layer lie."""
        last = layer.rpartition(".")[2]
        if not _ARCHITECTURES[self.architecture] or last not in ("q_proj", "k_proj"):
            return None
        heads = self.config["num_attention_heads" if last == "q_proj" else "num_key_value_heads"]
        return torch.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)

    @property
    def left(self) -> list[str]:
        """Tensors that nobody asked for."""
        return sorted(set(self._tensors) - self._taken - {"rope_freqs.weight"})

    @property
    def frequencies(self) -> Tensor | None:
        """What the frequencies of positions are divided by."""
        tensor = self._tensors.get("rope_freqs.weight")
        return None if tensor is None else torch.from_numpy(np.array(tensor.data, np.float32))


def load_gguf(file: GgufFile, config: Any, auto_class: Any, dtype: torch.dtype | None) -> Any:
    """The network of a GGUF file, in eval mode. Raises CompileError for tensors that are missing or not read."""
    own = dtype or file.dtype
    network = empty_network(config, auto_class, own)
    fill(network, file, own, f"'{file.path}'")
    if file.left:
        raise CompileError(
            f"'{file.path}' holds {len(file.left)} tensors that {type(network).__name__} does not read",
            details=file.left[:8],
        )
    factors = file.frequencies
    if factors is not None:
        for module in network.modules():
            frequencies = module._buffers.get("inv_freq")
            if frequencies is not None:
                frequencies.div_(factors)
    return network
