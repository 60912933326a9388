"""Models of images that are made, of sounds, of graphs and of physics: diffusers, torchaudio, speechbrain,
torch_geometric, e3nn, neuraloperator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from .library_base import Function, Input, LibraryRow, image, ints


def _class(library: str, name: str, **options: Any) -> Callable[[], torch.nn.Module]:
    """A class of a library, called with its options."""

    def build() -> torch.nn.Module:
        import importlib

        return getattr(importlib.import_module(library), name)(**options)

    return build


_BLOCKS = {"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8}
_LATENT = {"h": (16, 24, 32), "w": (24, 16, 16)}
_BY_8 = {"h": 8, "w": 8}
_TIME = Input(("b",), lambda shape: torch.randint(0, 1000, shape))
_WORDS = Input(("b", 7, 16))


def _diffusers(
    name: str, kind: str, model: str, options: Mapping[str, Any], inputs: tuple[Input, ...], **more: Any
) -> LibraryRow:
    return LibraryRow(f"diffusers/{name}", kind, _class("diffusers", model, **options), inputs, **more)


DIFFUSERS = [
    _diffusers(
        "unet2d",
        "diffusion",
        "UNet2DModel",
        {
            "sample_size": 16,
            "in_channels": 3,
            "out_channels": 3,
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
            **_BLOCKS,
        },
        (image("h", "w"), _TIME),
        sizes=_LATENT,
        multiple=_BY_8,
    ),
    _diffusers(
        "unet2d_condition",
        "diffusion",
        "UNet2DConditionModel",
        {
            "sample_size": 16,
            "cross_attention_dim": 16,
            "attention_head_dim": 8,
            **_BLOCKS,
            "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
            "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
        },
        (image("h", "w", 4), _TIME, _WORDS),
        sizes=_LATENT,
        multiple=_BY_8,
    ),
    _diffusers(
        "unet3d_condition",
        "diffusion",
        "UNet3DConditionModel",
        {
            "sample_size": 16,
            "cross_attention_dim": 16,
            "attention_head_dim": 8,
            **_BLOCKS,
            "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
            "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
        },
        (Input(("b", 4, 3, 16, 16)), _TIME, _WORDS),
    ),
    _diffusers(
        "unet1d",
        "diffusion",
        "UNet1DModel",
        {
            "sample_size": 64,
            "in_channels": 4,
            "out_channels": 4,
            "block_out_channels": (16, 32),
            "extra_in_channels": 32,
            "down_block_types": ("DownBlock1DNoSkip", "DownBlock1D"),
            "up_block_types": ("UpBlock1D", "UpBlock1DNoSkip"),
            "time_embedding_type": "fourier",
            "use_timestep_embedding": False,
            "flip_sin_to_cos": True,
            "mid_block_type": "UNetMidBlock1D",
        },
        (Input(("b", 4, 64)), _TIME),
    ),
    _diffusers(
        "uvit2d",
        "diffusion",
        "UVit2DModel",
        {
            "hidden_size": 32,
            "cond_embed_dim": 16,
            "encoder_hidden_size": 16,
            "block_out_channels": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "intermediate_size": 48,
            "micro_cond_encode_dim": 8,
            "micro_cond_embed_dim": 40,
            "block_num_heads": 4,
            "vocab_size": 64,
            "codebook_size": 60,
            "sample_size": 8,
            "in_channels": 32,
        },
        (Input(("b", 8, 8), ints(60)), _WORDS, Input(("b", 16)), Input(("b", 5))),
    ),
    _diffusers(
        "controlnet",
        "diffusion",
        "ControlNetModel",
        {
            "cross_attention_dim": 16,
            "attention_head_dim": 8,
            "conditioning_embedding_out_channels": (8, 16),
            **_BLOCKS,
            "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        },
        (image(16, 16, 4), _TIME, _WORDS, image(32, 32)),
        call={"conditioning_scale": 0.7},
    ),
    _diffusers(
        "dit",
        "diffusion",
        "DiTTransformer2DModel",
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "in_channels": 4,
            "num_layers": 2,
            "sample_size": 16,
            "norm_num_groups": 8,
            "num_embeds_ada_norm": 10,
        },
        (image(16, 16, 4), _TIME, Input(("b",), ints(10))),
    ),
    _diffusers(
        "pixart",
        "diffusion",
        "PixArtTransformer2DModel",
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "in_channels": 4,
            "out_channels": 8,
            "num_layers": 2,
            "cross_attention_dim": 16,
            "sample_size": 16,
            "caption_channels": 16,
            "norm_num_groups": 8,
            "use_additional_conditions": False,
        },
        (image(16, 16, 4), _WORDS, _TIME),
        call={"added_cond_kwargs": {"resolution": None, "aspect_ratio": None}},
    ),
    _diffusers(
        "sd3",
        "diffusion",
        "SD3Transformer2DModel",
        {
            "sample_size": 16,
            "patch_size": 2,
            "in_channels": 4,
            "num_layers": 2,
            "attention_head_dim": 8,
            "num_attention_heads": 4,
            "joint_attention_dim": 16,
            "caption_projection_dim": 32,
            "pooled_projection_dim": 16,
            "out_channels": 4,
            "pos_embed_max_size": 16,
        },
        (image(16, 16, 4), _WORDS, Input(("b", 16)), _TIME),
    ),
    _diffusers(
        "flux",
        "diffusion",
        "FluxTransformer2DModel",
        {
            "patch_size": 1,
            "in_channels": 4,
            "num_layers": 1,
            "num_single_layers": 1,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 16,
            "pooled_projection_dim": 16,
            "axes_dims_rope": (4, 4, 8),
        },
        (Input(("b", 16, 4)), _WORDS, Input(("b", 16)), Input(("b",), torch.rand), Input((16, 3)), Input((7, 3))),
        names=("hidden_states", "encoder_hidden_states", "pooled_projections", "timestep", "img_ids", "txt_ids"),
    ),
    _diffusers(
        "cogview3",
        "diffusion",
        "CogView3PlusTransformer2DModel",
        {
            "patch_size": 2,
            "in_channels": 4,
            "num_layers": 1,
            "attention_head_dim": 4,
            "num_attention_heads": 2,
            "out_channels": 4,
            "text_embed_dim": 16,
            "time_embed_dim": 8,
            "condition_dim": 2,
            "pos_embed_max_size": 8,
            "sample_size": 8,
        },
        (image(8, 8, 4), _WORDS, _TIME, Input(("b", 2)), Input(("b", 2)), Input(("b", 2))),
    ),
    _diffusers(
        "prior",
        "diffusion",
        "PriorTransformer",
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "num_layers": 2,
            "embedding_dim": 16,
            "num_embeddings": 7,
            "additional_embeddings": 4,
        },
        (Input(("b", 16)), _TIME, Input(("b", 16)), _WORDS),
    ),
    _diffusers(
        "autoencoder_kl",
        "autoencoder",
        "AutoencoderKL",
        {
            **_BLOCKS,
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
            "latent_channels": 4,
        },
        (image("h", "w"),),
        sizes=_LATENT,
        multiple=_BY_8,
    ),
    _diffusers(
        "autoencoder_tiny",
        "autoencoder",
        "AutoencoderTiny",
        {
            "encoder_block_out_channels": (16, 16),
            "decoder_block_out_channels": (16, 16),
            "num_encoder_blocks": (1, 1),
            "num_decoder_blocks": (1, 1),
        },
        (image("h", "w"),),
        sizes=_LATENT,
        multiple=_BY_8,
    ),
    _diffusers(
        "autoencoder_cogvideox",
        "autoencoder",
        "AutoencoderKLCogVideoX",
        {
            "in_channels": 3,
            "out_channels": 3,
            "block_out_channels": (8, 8, 8, 8),
            "latent_channels": 4,
            "layers_per_block": 1,
            "norm_num_groups": 2,
            "temporal_compression_ratio": 4,
            "down_block_types": ("CogVideoXDownBlock3D",) * 4,
            "up_block_types": ("CogVideoXUpBlock3D",) * 4,
        },
        (Input(("b", 3, 5, 16, 16)),),
    ),
    _diffusers(
        "vq",
        "autoencoder",
        "VQModel",
        {
            "block_out_channels": (16, 32),
            "norm_num_groups": 8,
            "latent_channels": 3,
            "num_vq_embeddings": 32,
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
        },
        (image(16, 16),),
    ),
    _diffusers(
        "temporal_decoder",
        "autoencoder",
        "AutoencoderKLTemporalDecoder",
        {
            "block_out_channels": (32, 32),
            "latent_channels": 4,
            "layers_per_block": 1,
            "down_block_types": ("DownEncoderBlock2D",) * 2,
        },
        (Input((2, 3, 16, 16)),),
        call={"num_frames": 2},
    ),
]


_SOUND = {"t": (4000, 3200, 4800)}
_WAVE = Input(("b", "t"))


def _transform(name: str, **options: Any) -> Callable[[], torch.nn.Module]:
    return _class("torchaudio.transforms", name, **options)


def _filter(name: str, *options: Any) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        import torchaudio

        return Function(lambda x: getattr(torchaudio.functional, name)(x, *options))

    return build


def _audio(name: str, **options: Any) -> Callable[[], torch.nn.Module]:
    return _class("torchaudio.models", name, **options)


def _wav2vec2() -> torch.nn.Module:
    import torchaudio

    return torchaudio.models.wav2vec2_model(
        "group_norm", [(16, 10, 5), (16, 3, 2)], False, 32, 0.0, 8, 2, 2, 4, 0.0, 48, 0.0, 0.0, False, 0.0, 12
    )


class Conformer(torch.nn.Module):
    """torchaudio's conformer with the lengths of its sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.network = _audio(
            "Conformer", input_dim=16, num_heads=4, ffn_dim=32, num_layers=2, depthwise_conv_kernel_size=7
        )()

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        return self.network(x, lengths)


TORCHAUDIO = [
    *(
        LibraryRow(f"torchaudio/{name}", "sound", build, (_WAVE,), _SOUND)
        for name, build in (
            ("Spectrogram", _transform("Spectrogram", n_fft=256)),
            ("MelSpectrogram", _transform("MelSpectrogram", sample_rate=8000, n_fft=256, n_mels=20)),
            ("MFCC", _transform("MFCC", sample_rate=8000, n_mfcc=12, melkwargs={"n_fft": 256, "n_mels": 20})),
            (
                "GriffinLim",
                lambda: torch.nn.Sequential(
                    _transform("Spectrogram", n_fft=256)(),
                    _transform("GriffinLim", n_fft=256, n_iter=2, rand_init=False)(),
                ),
            ),
            ("Resample", _transform("Resample", orig_freq=8000, new_freq=6000)),
            ("MuLawEncoding", _transform("MuLawEncoding")),
            ("lowpass_biquad", _filter("lowpass_biquad", 8000, 500.0)),
            ("equalizer_biquad", _filter("equalizer_biquad", 8000, 500.0, 6.0)),
            ("deemph_biquad", _filter("deemph_biquad", 44100)),
            ("wav2vec2", _wav2vec2),
        )
    ),
    LibraryRow(
        "torchaudio/ConvTasNet",
        "sound",
        _audio(
            "ConvTasNet", enc_num_feats=16, msk_num_feats=8, msk_num_hidden_feats=16, msk_num_layers=2, msk_num_stacks=1
        ),
        (Input(("b", 1, "t")),),
        _SOUND,
        {"t": 8},
    ),
    LibraryRow("torchaudio/Wav2Letter", "sound", _audio("Wav2Letter", num_classes=8), (Input(("b", 1, 800)),)),
    LibraryRow(
        "torchaudio/DeepSpeech",
        "sound",
        _audio("DeepSpeech", n_feature=16, n_hidden=24, n_class=8),
        (Input(("b", 1, 20, 16)),),
    ),
    LibraryRow(
        "torchaudio/Conformer",
        "sound",
        Conformer,
        (Input(("b", 20, 16)), Input(("b",), lambda shape: torch.full(shape, 20))),
    ),
]

_FEATURES = {"t": (60, 44, 81)}


def _brain(module: str, name: str, **options: Any) -> Callable[[], torch.nn.Module]:
    return _class(f"speechbrain.lobes.models.{module}", name, **options)


SPEECHBRAIN = [
    LibraryRow(
        "speechbrain/ECAPA_TDNN",
        "sound",
        _brain(
            "ECAPA_TDNN",
            "ECAPA_TDNN",
            input_size=20,
            channels=[32] * 4 + [96],
            lin_neurons=16,
            attention_channels=16,
            device="cpu",
        ),
        (Input(("b", "t", 20)),),
        _FEATURES,
    ),
    LibraryRow(
        "speechbrain/Xvector",
        "sound",
        _brain("Xvector", "Xvector", in_channels=20, tdnn_channels=[32] * 4 + [48], lin_neurons=16, device="cpu"),
        (Input(("b", "t", 20)),),
        _FEATURES,
    ),
    LibraryRow(
        "speechbrain/CRDNN",
        "sound",
        _brain(
            "CRDNN",
            "CRDNN",
            input_shape=[None, None, 20],
            cnn_channels=[8, 8],
            rnn_neurons=16,
            rnn_layers=1,
            dnn_neurons=16,
            time_pooling=True,
        ),
        (Input(("b", 60, 20)),),
    ),
]


_GRAPH = {"n": (20, 12, 31), "e": (60, 30, 90)}


def _edges(shape: tuple[int, ...]) -> torch.Tensor:
    """Edges among the first 10 nodes, which every graph has."""
    return torch.randint(0, 10, shape)


_NODES, _EDGES = Input(("n", 16)), Input((2, "e"), _edges)


def _graph(name: str, **options: Any) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        import torch_geometric.nn

        return getattr(torch_geometric.nn, name)(**options)

    return build


class Attributed(torch.nn.Module):
    """A layer that takes attributes of edges."""

    def __init__(self, build: Callable[[], torch.nn.Module]) -> None:
        super().__init__()
        self.network = build()

    def forward(self, x: torch.Tensor, edges: torch.Tensor, attributes: torch.Tensor) -> Any:
        return self.network(x, edges, attributes)


_MODEL = {"in_channels": 16, "hidden_channels": 24, "num_layers": 2, "out_channels": 8}
_LAYER = {"in_channels": 16, "out_channels": 8}
GRAPHS = [
    *(
        LibraryRow(f"torch_geometric/{n}", "graph", _graph(n, **_MODEL, **more), (_NODES, _EDGES), _GRAPH)
        for n, more in (("GCN", {}), ("GAT", {"heads": 2}), ("GraphSAGE", {}), ("GIN", {}), ("EdgeCNN", {}))
    ),
    *(
        LibraryRow(f"torch_geometric/{n}", "graph", _graph(n, **_LAYER, **more), (_NODES, _EDGES), _GRAPH)
        for n, more in (
            ("ChebConv", {"K": 3}),
            ("GATv2Conv", {}),
            ("TransformerConv", {"heads": 2}),
            ("TAGConv", {}),
            ("SGConv", {}),
            ("ARMAConv", {}),
            ("ClusterGCNConv", {}),
            ("LEConv", {}),
            ("MFConv", {}),
        )
    ),
    LibraryRow(
        "torch_geometric/NNConv",
        "graph",
        lambda: Attributed(_graph("NNConv", **_LAYER, nn=torch.nn.Linear(4, 128))),
        (_NODES, _EDGES, Input(("e", 4))),
        _GRAPH,
    ),
    LibraryRow(
        "torch_geometric/GINEConv",
        "graph",
        lambda: Attributed(_graph("GINEConv", nn=torch.nn.Linear(16, 8), edge_dim=4)),
        (_NODES, _EDGES, Input(("e", 4))),
        _GRAPH,
    ),
]


def _tensor_product() -> torch.nn.Module:
    from e3nn import o3

    return o3.FullyConnectedTensorProduct("8x0e + 4x1o", "0e + 1o", "8x0e + 4x1o")


def _harmonics() -> torch.nn.Module:
    from e3nn import o3

    return Function(lambda x: o3.spherical_harmonics([0, 1, 2, 3], x, True))


def _operator(name: str, **options: Any) -> Callable[[], torch.nn.Module]:
    return _class("neuralop.models", name, **options)


_FIELD = {"n_modes": (8, 8), "hidden_channels": 16, "in_channels": 2, "out_channels": 1, "n_layers": 2}
PHYSICS = [
    LibraryRow("e3nn/tensor_product", "physics", _tensor_product, (Input(("b", 20)), Input(("b", 4)))),
    LibraryRow("e3nn/spherical_harmonics", "physics", _harmonics, (Input(("b", 3)),)),
    LibraryRow("neuralop/FNO", "physics", _operator("FNO", **_FIELD), (image(16, 16, 2),)),
    LibraryRow("neuralop/TFNO", "physics", _operator("TFNO", **_FIELD, rank=0.2), (image(16, 16, 2),)),
    LibraryRow(
        "neuralop/UNO",
        "physics",
        _operator(
            "UNO",
            in_channels=2,
            out_channels=1,
            hidden_channels=16,
            uno_out_channels=[16, 16, 16],
            uno_n_modes=[[8, 8], [4, 4], [8, 8]],
            uno_scalings=[[1, 1], [0.5, 0.5], [2, 2]],
            n_layers=3,
            channel_mlp_skip="linear",
        ),
        (image(16, 16, 2),),
    ),
]
ROWS = [*DIFFUSERS, *TORCHAUDIO, *SPEECHBRAIN, *GRAPHS, *PHYSICS]
