"""The architectures of bench/sweep.py: a row each, in a small configuration with random weights.

A row names a configuration and a model class of transformers, the options of the configuration, and the inputs by
parameter. `batch` is the first dimension of every input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

VOCABULARY = 99
Make = Callable[[int], torch.Tensor]


@dataclass(frozen=True)
class Row:
    """One architecture; `inputs` are functions of the batch, `call` are arguments that stay the same."""

    name: str
    kind: str
    config: str
    model: str
    options: Mapping[str, Any]
    inputs: Mapping[str, Make]
    call: Mapping[str, Any] = field(default_factory=dict)


def tokens(length: int = 12, high: int = VOCABULARY) -> Make:
    """Whole numbers from 3 to high - 1."""
    return lambda batch: torch.randint(3, high, (batch, length))


def ones(*shape: int) -> Make:
    return lambda batch: torch.ones(batch, *shape, dtype=torch.int64)


def floats(*shape: int) -> Make:
    return lambda batch: torch.randn(batch, *shape)


def boxes(length: int) -> Make:
    """Boxes of words on a page of 1000 x 1000: the first corner before the second."""

    def make(batch: int) -> torch.Tensor:
        corner = torch.randint(0, 400, (batch, length, 2))
        return torch.cat((corner, corner + torch.randint(1, 500, (batch, length, 2))), -1)

    return make


TEXT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "vocab_size": VOCABULARY, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = {**TEXT, "num_key_value_heads": 2, "head_dim": 8}
EXPERTS = {**GROUPED, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
SEQ2SEQ = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": VOCABULARY,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
T5 = {
    "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4,
    "vocab_size": VOCABULARY, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0,
}  # fmt: skip
PATCHES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
STAGES = {"depths": [1, 2], "hidden_sizes": [16, 24], "num_stages": 2}
WAVE = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "conv_dim": [16, 16, 16], "conv_stride": [4, 4, 2], "conv_kernel": [8, 4, 4], "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "vocab_size": VOCABULARY,
}  # fmt: skip
RESNET = {
    "model_type": "resnet", "embedding_size": 12, "hidden_sizes": [12, 16, 20, 24], "depths": [1, 1, 1, 1],
    "layer_type": "basic", "out_features": ["stage4"],
}  # fmt: skip
DETR = {
    "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "backbone_config": RESNET,
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "num_queries": 6,
}  # fmt: skip
CLIP = {"text_config": TEXT, "vision_config": PATCHES, "projection_dim": 16}

IDS = {"input_ids": tokens()}
MASKED = {"input_ids": tokens(), "attention_mask": ones(12)}
PAIR = {"input_ids": tokens(), "decoder_input_ids": tokens(7)}
IMAGE = {"pixel_values": floats(3, 32, 32)}
PICTURE = {"pixel_values": floats(3, 64, 64)}
BOTH = {"input_ids": tokens(), "pixel_values": floats(3, 32, 32)}
SOUND = {"input_values": floats(1600)}


def _without(options: Mapping[str, Any], *names: str, **more: Any) -> dict[str, Any]:
    return {**{k: v for k, v in options.items() if k not in names}, **more}


def _rows(kind: str, *rows: tuple[Any, ...]) -> list[Row]:
    return [Row(name, kind, f"{stem}Config", model, *rest) for name, stem, model, *rest in rows]


ROWS = [
    *_rows(
        "text encoder",
        ("bert", "Bert", "BertForSequenceClassification", TEXT, MASKED),
        ("roberta", "Roberta", "RobertaForMaskedLM", TEXT, MASKED),
        ("distilbert", "DistilBert", "DistilBertForMaskedLM",
         {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "vocab_size": VOCABULARY,
          "max_position_embeddings": 64}, MASKED),
        ("albert", "Albert", "AlbertForMaskedLM", {**TEXT, "embedding_size": 16}, MASKED),
        ("electra", "Electra", "ElectraForTokenClassification", {**TEXT, "embedding_size": 16}, MASKED),
        ("deberta-v2", "DebertaV2", "DebertaV2ForMaskedLM",
         {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}, MASKED),
        ("mpnet", "MPNet", "MPNetForMaskedLM", TEXT, MASKED),
        ("modernbert", "ModernBert", "ModernBertForMaskedLM",
         {**TEXT, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2}, MASKED),
        ("fnet", "FNet", "FNetForMaskedLM", {**TEXT, "use_tpu_fourier_optimizations": False}, IDS),
        ("mobilebert", "MobileBert", "MobileBertForMaskedLM",
         {**TEXT, "embedding_size": 16, "intra_bottleneck_size": 16, "num_feedforward_networks": 2}, MASKED),
        ("squeezebert", "SqueezeBert", "SqueezeBertForMaskedLM", {**TEXT, "embedding_size": 32}, MASKED),
        ("roformer", "RoFormer", "RoFormerForMaskedLM", {**TEXT, "embedding_size": 32}, MASKED),
        ("nystromformer", "Nystromformer", "NystromformerForMaskedLM",
         {**TEXT, "num_landmarks": 4, "segment_means_seq_len": 12}, IDS),
        ("convbert", "ConvBert", "ConvBertForMaskedLM", {**TEXT, "embedding_size": 16, "conv_kernel_size": 3}, MASKED),
        ("longformer", "Longformer", "LongformerForMaskedLM", {**TEXT, "attention_window": 4}, MASKED),
        ("big-bird", "BigBird", "BigBirdForMaskedLM", {**TEXT, "attention_type": "original_full"}, MASKED),
        ("funnel", "Funnel", "FunnelForMaskedLM",
         {"block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48, "num_decoder_layers": 1,
          "vocab_size": VOCABULARY}, MASKED),
        ("xlnet", "XLNet", "XLNetLMHeadModel",
         {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48, "vocab_size": VOCABULARY}, IDS,
         {"use_mems": False}),
        ("esm", "Esm", "EsmForMaskedLM", {**TEXT, "mask_token_id": 4, "position_embedding_type": "rotary"}, MASKED),
        ("canine", "Canine", "CanineModel",
         {**TEXT, "max_position_embeddings": 128, "num_hash_buckets": 64, "num_hash_functions": 2,
          "local_transformer_stride": 32}, {"input_ids": tokens(64), "attention_mask": ones(64)}),
    ),
    *_rows(
        "text decoder",
        ("gpt2", "GPT2", "GPT2LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY}, IDS),
        ("gpt-neo", "GPTNeo", "GPTNeoForCausalLM",
         {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
          "window_size": 5, "vocab_size": VOCABULARY, "max_position_embeddings": 64}, IDS),
        ("gpt-neox", "GPTNeoX", "GPTNeoXForCausalLM", TEXT, MASKED),
        ("gptj", "GPTJ", "GPTJForCausalLM",
         {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "vocab_size": VOCABULARY, "n_positions": 64}, IDS),
        ("opt", "OPT", "OPTForCausalLM",
         _without(TEXT, "intermediate_size", ffn_dim=48, word_embed_proj_dim=16), MASKED),
        ("bloom", "Bloom", "BloomForCausalLM",
         {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY}, MASKED),
        ("llama", "Llama", "LlamaForCausalLM", GROUPED, MASKED),
        ("mistral", "Mistral", "MistralForCausalLM", {**GROUPED, "sliding_window": 5}, MASKED),
        ("qwen2", "Qwen2", "Qwen2ForCausalLM", GROUPED, MASKED),
        ("qwen3", "Qwen3", "Qwen3ForCausalLM", GROUPED, MASKED),
        ("gemma2", "Gemma2", "Gemma2ForCausalLM", {**GROUPED, "sliding_window": 5}, MASKED),
        ("gemma3", "Gemma3Text", "Gemma3ForCausalLM", {**GROUPED, "sliding_window": 5}, IDS),
        ("phi", "Phi", "PhiForCausalLM", TEXT, MASKED),
        ("phi3", "Phi3", "Phi3ForCausalLM", _without(GROUPED, "head_dim"), MASKED),
        ("falcon", "Falcon", "FalconForCausalLM", _without(TEXT, "intermediate_size"), MASKED),
        ("mpt", "Mpt", "MptForCausalLM",
         {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": VOCABULARY, "max_seq_len": 32}, MASKED),
        ("stablelm", "StableLm", "StableLmForCausalLM", _without(GROUPED, "head_dim"), MASKED),
        ("olmo2", "Olmo2", "Olmo2ForCausalLM", _without(GROUPED, "head_dim"), MASKED),
        ("cohere", "Cohere", "CohereForCausalLM", GROUPED, MASKED),
        ("gpt-bigcode", "GPTBigCode", "GPTBigCodeForCausalLM",
         {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY, "n_positions": 64}, IDS),
        ("xglm", "XGLM", "XGLMForCausalLM",
         {"d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 48, "vocab_size": VOCABULARY,
          "max_position_embeddings": 64}, MASKED),
    ),
    *_rows(
        "encoder-decoder",
        ("t5", "T5", "T5ForConditionalGeneration", T5, PAIR),
        ("longt5", "LongT5", "LongT5ForConditionalGeneration", {**T5, "local_radius": 3}, PAIR),
        ("bart", "Bart", "BartForConditionalGeneration", SEQ2SEQ, PAIR),
        ("marian", "Marian", "MarianMTModel", SEQ2SEQ, PAIR),
        ("pegasus", "Pegasus", "PegasusForConditionalGeneration", SEQ2SEQ, PAIR),
        ("m2m-100", "M2M100", "M2M100ForConditionalGeneration", SEQ2SEQ, PAIR),
        ("blenderbot", "Blenderbot", "BlenderbotForConditionalGeneration", SEQ2SEQ, PAIR),
        ("led", "LED", "LEDForConditionalGeneration", {**SEQ2SEQ, "attention_window": 4,
         "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64}, PAIR),
    ),
    *_rows(
        "mixture of experts",
        ("mixtral", "Mixtral", "MixtralForCausalLM", {**EXPERTS, "num_local_experts": 4}, MASKED),
        ("qwen2-moe", "Qwen2Moe", "Qwen2MoeForCausalLM",
         {**EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 24}, MASKED),
        ("qwen3-moe", "Qwen3Moe", "Qwen3MoeForCausalLM", {**EXPERTS, "num_experts": 4}, MASKED),
        ("olmoe", "Olmoe", "OlmoeForCausalLM", _without(EXPERTS, "head_dim", num_experts=4), MASKED),
        ("deepseek-v3", "DeepseekV3", "DeepseekV3ForCausalLM",
         {**_without(EXPERTS, "head_dim"), "num_key_value_heads": 4, "n_routed_experts": 4, "n_group": 2,
          "topk_group": 1, "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8,
          "v_head_dim": 8, "first_k_dense_replace": 1}, MASKED),
        ("granitemoe", "GraniteMoe", "GraniteMoeForCausalLM",
         {**_without(EXPERTS, "head_dim"), "num_local_experts": 4}, MASKED),
        ("gpt-oss", "GptOss", "GptOssForCausalLM",
         {**EXPERTS, "num_local_experts": 4, "sliding_window": 5,
          "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, MASKED),
        ("switch", "SwitchTransformers", "SwitchTransformersForConditionalGeneration",
         {**T5, "num_experts": 4, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}, PAIR),
    ),
    *_rows(
        "state space",
        ("mamba", "Mamba", "MambaForCausalLM",
         {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "vocab_size": VOCABULARY}, IDS),
        ("mamba2", "Mamba2", "Mamba2ForCausalLM",
         {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2,
          "chunk_size": 8, "vocab_size": VOCABULARY}, IDS),
        ("falcon-mamba", "FalconMamba", "FalconMambaForCausalLM",
         {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "vocab_size": VOCABULARY}, IDS),
        ("rwkv", "Rwkv", "RwkvForCausalLM",
         {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": VOCABULARY, "context_length": 32}, IDS),
        ("recurrent-gemma", "RecurrentGemma", "RecurrentGemmaForCausalLM",
         {**_without(GROUPED, "head_dim"), "num_hidden_layers": 3, "attention_window_size": 8, "lru_width": 32}, IDS),
        ("jamba", "Jamba", "JambaForCausalLM",
         {**_without(EXPERTS, "head_dim", "moe_intermediate_size"), "num_experts": 2, "attn_layer_period": 2,
          "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1, "use_mamba_kernels": False,
          "mamba_d_state": 4}, MASKED),
        ("lfm2", "Lfm2", "Lfm2ForCausalLM",
         {**_without(GROUPED, "head_dim"), "layer_types": ["conv", "full_attention"], "block_multiple_of": 8}, MASKED),
    ),
    *_rows(
        "vision classifier",
        ("vit", "ViT", "ViTForImageClassification", PATCHES, IMAGE),
        ("deit", "DeiT", "DeiTForImageClassification", PATCHES, IMAGE),
        ("beit", "Beit", "BeitForImageClassification", PATCHES, IMAGE),
        ("dinov2", "Dinov2", "Dinov2ForImageClassification", PATCHES, IMAGE),
        ("swin", "Swin", "SwinForImageClassification",
         {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
         IMAGE),
        ("swinv2", "Swinv2", "Swinv2ForImageClassification",
         {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
         IMAGE),
        ("convnext", "ConvNext", "ConvNextForImageClassification", STAGES, IMAGE),
        ("convnextv2", "ConvNextV2", "ConvNextV2ForImageClassification", STAGES, IMAGE),
        ("resnet", "ResNet", "ResNetForImageClassification",
         {"embedding_size": 12, "hidden_sizes": [20, 36], "depths": [2, 2]}, IMAGE),
        ("regnet", "RegNet", "RegNetForImageClassification",
         {"embedding_size": 12, "hidden_sizes": [16, 32], "depths": [1, 2], "groups_width": 8}, IMAGE),
        ("mobilenet-v2", "MobileNetV2", "MobileNetV2ForImageClassification",
         {"depth_multiplier": 0.25, "depth_divisible_by": 4, "min_depth": 4}, IMAGE),
        ("efficientnet", "EfficientNet", "EfficientNetForImageClassification",
         {"image_size": 32, "width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 320}, IMAGE),
        ("mobilevit", "MobileViT", "MobileViTForImageClassification",
         {"image_size": 64, "hidden_sizes": [16, 20, 24], "neck_hidden_sizes": [8, 8, 12, 16, 20, 24, 32],
          "num_attention_heads": 2}, PICTURE),
        ("levit", "Levit", "LevitForImageClassification",
         {"image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 3, 4], "depths": [1, 1, 1],
          "key_dim": [8, 8, 8]}, PICTURE),
        ("cvt", "Cvt", "CvtForImageClassification",
         {"embed_dim": [8, 16, 24], "num_heads": [1, 2, 3], "depth": [1, 2, 3],
          "drop_path_rate": [0.0, 0.0, 0.0]}, PICTURE),
        ("poolformer", "PoolFormer", "PoolFormerForImageClassification",
         {"hidden_sizes": [8, 12, 16, 20], "depths": [1, 1, 1, 1]}, PICTURE),
        ("focalnet", "FocalNet", "FocalNetForImageClassification",
         {"image_size": 32, "embed_dim": 16, "depths": [1, 1], "focal_levels": [2, 2], "focal_windows": [3, 3]}, IMAGE),
    ),
    *_rows(
        "detection",
        ("detr", "Detr", "DetrForObjectDetection", DETR, PICTURE),
        ("conditional-detr", "ConditionalDetr", "ConditionalDetrForObjectDetection", DETR, PICTURE),
        ("deformable-detr", "DeformableDetr", "DeformableDetrForObjectDetection",
         {**DETR, "backbone_config": {**RESNET, "out_features": ["stage2", "stage3", "stage4"]},
          "num_feature_levels": 3, "encoder_n_points": 2, "decoder_n_points": 2}, PICTURE),
        ("yolos", "Yolos", "YolosForObjectDetection",
         {**PATCHES, "image_size": [32, 32], "num_detection_tokens": 5}, IMAGE),
        ("rt-detr", "RTDetr", "RTDetrForObjectDetection",
         {"backbone_config": {"model_type": "rt_detr_resnet", "embedding_size": 12, "hidden_sizes": [12, 16, 20, 24],
                              "depths": [1, 1, 1, 1], "layer_type": "basic",
                              "out_features": ["stage2", "stage3", "stage4"]},
          "encoder_hidden_dim": 32, "encoder_in_channels": [16, 20, 24], "encoder_ffn_dim": 48,
          "encoder_attention_heads": 4, "d_model": 32, "num_queries": 6, "decoder_in_channels": [32, 32, 32],
          "decoder_ffn_dim": 48, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_n_points": 2,
          "num_denoising": 0, "backbone": None, "use_timm_backbone": False}, PICTURE),
    ),
    *_rows(
        "segmentation and depth",
        ("segformer", "Segformer", "SegformerForSemanticSegmentation",
         {"hidden_sizes": [8, 12, 16, 20], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 2],
          "decoder_hidden_size": 16}, PICTURE),
        ("upernet", "UperNet", "UperNetForSemanticSegmentation",
         {"backbone_config": {"model_type": "convnext", "hidden_sizes": [8, 12, 16, 20], "depths": [1, 1, 1, 1],
                              "out_features": ["stage1", "stage2", "stage3", "stage4"]},
          "hidden_size": 16, "auxiliary_in_channels": 16, "auxiliary_channels": 8, "num_labels": 5}, PICTURE),
        ("dpt", "DPT", "DPTForDepthEstimation",
         {**PATCHES, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "is_hybrid": False,
          "neck_hidden_sizes": [8, 8, 16, 16], "fusion_hidden_size": 16}, IMAGE),
        ("mask2former", "Mask2Former", "Mask2FormerModel",
         {"backbone_config": {"model_type": "swin", "image_size": 64, "embed_dim": 8, "depths": [1, 1, 1, 1],
                              "num_heads": [1, 1, 2, 2], "window_size": 2,
                              "out_features": ["stage1", "stage2", "stage3", "stage4"]},
          "hidden_dim": 32, "feature_size": 32, "mask_feature_size": 32, "encoder_layers": 1, "decoder_layers": 2,
          "num_attention_heads": 2, "encoder_feedforward_dim": 24, "dim_feedforward": 24, "num_queries": 5,
          "backbone": None, "use_timm_backbone": False, "num_labels": 5}, PICTURE),
        ("clipseg", "CLIPSeg", "CLIPSegForImageSegmentation",
         {**CLIP, "vision_config": {**PATCHES, "num_hidden_layers": 3}, "extract_layers": [1, 2], "reduce_dim": 16,
          "decoder_num_attention_heads": 2, "decoder_intermediate_size": 24}, BOTH),
        ("sam", "SamVision", "SamVisionModel",
         {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 64, "patch_size": 8,
          "output_channels": 16, "window_size": 3, "global_attn_indexes": [1], "mlp_dim": 32}, PICTURE),
    ),
    *_rows(
        "audio",
        ("whisper", "Whisper", "WhisperForConditionalGeneration",
         {**SEQ2SEQ, "num_mel_bins": 10, "max_source_positions": 21, "max_target_positions": 32,
          "begin_suppress_tokens": None, "suppress_tokens": None},
         {"input_features": floats(10, 42), "decoder_input_ids": tokens(5)}),
        ("wav2vec2", "Wav2Vec2", "Wav2Vec2ForCTC", WAVE, SOUND),
        ("hubert", "Hubert", "HubertForCTC", WAVE, SOUND),
        ("wavlm", "WavLM", "WavLMForCTC", {**WAVE, "num_buckets": 16, "max_bucket_distance": 32}, SOUND),
        ("sew", "SEW", "SEWForCTC", {**WAVE, "squeeze_factor": 2}, SOUND),
        ("ast", "AST", "ASTForAudioClassification",
         {**_without(PATCHES, "image_size"), "max_length": 32, "num_mel_bins": 16, "frequency_stride": 8,
          "time_stride": 8}, {"input_values": floats(32, 16)}),
        ("speech-to-text", "Speech2Text", "Speech2TextForConditionalGeneration",
         {**SEQ2SEQ, "input_feat_per_channel": 8, "conv_channels": 16, "max_source_positions": 40,
          "max_target_positions": 32}, {"input_features": floats(36, 8), "decoder_input_ids": tokens(5)}),
        ("encodec", "Encodec", "EncodecModel",
         {"hidden_size": 16, "num_filters": 4, "upsampling_ratios": [4, 2], "codebook_size": 32, "codebook_dim": 16,
          "num_lstm_layers": 1}, {"input_values": floats(1, 320)}, {"bandwidth": 24.0}),
    ),
    *_rows(
        "video",
        ("timesformer", "Timesformer", "TimesformerForVideoClassification",
         {**PATCHES, "num_frames": 3}, {"pixel_values": floats(3, 3, 32, 32)}),
        ("videomae", "VideoMAE", "VideoMAEForVideoClassification",
         {**PATCHES, "num_frames": 4, "tubelet_size": 2}, {"pixel_values": floats(4, 3, 32, 32)}),
        ("vivit", "Vivit", "VivitForVideoClassification",
         {**_without(PATCHES, "patch_size"), "num_frames": 4, "tubelet_size": [2, 8, 8]},
         {"pixel_values": floats(4, 3, 32, 32)}),
        ("vjepa2", "VJEPA2", "VJEPA2Model",
         {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "crop_size": 32, "patch_size": 8,
          "frames_per_clip": 4, "tubelet_size": 2, "pred_hidden_size": 24, "pred_num_hidden_layers": 1,
          "pred_num_attention_heads": 2}, {"pixel_values_videos": floats(4, 3, 32, 32)}, {"skip_predictor": True}),
    ),
    *_rows(
        "multimodal",
        ("clip", "CLIP", "CLIPModel", CLIP, BOTH),
        ("siglip", "Siglip", "SiglipModel", _without(CLIP, "projection_dim"), BOTH),
        ("blip", "Blip", "BlipForImageTextRetrieval",
         {**CLIP, "text_config": {**TEXT, "encoder_hidden_size": 32}, "image_text_hidden_size": 16}, BOTH),
        ("vilt", "Vilt", "ViltForQuestionAnswering", {**TEXT, **PATCHES, "max_image_length": -1}, BOTH),
        ("layoutlm", "LayoutLM", "LayoutLMForTokenClassification", {**TEXT, "max_2d_position_embeddings": 1024},
         {"input_ids": tokens(), "bbox": boxes(12)}),
        ("visual-bert", "VisualBert", "VisualBertModel", {**TEXT, "visual_embedding_dim": 20},
         {"input_ids": tokens(), "visual_embeds": floats(5, 20)}),
        ("lxmert", "Lxmert", "LxmertModel",
         {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": VOCABULARY,
          "l_layers": 1, "r_layers": 1, "x_layers": 1, "visual_feat_dim": 20},
         {"input_ids": tokens(), "visual_feats": floats(5, 20), "visual_pos": floats(5, 4)}),
        ("git", "Git", "GitForCausalLM", {**TEXT, "vision_config": PATCHES}, BOTH),
        ("perceiver", "Perceiver", "PerceiverModel",
         {"num_latents": 6, "d_latents": 16, "d_model": 20, "num_blocks": 1, "num_self_attends_per_block": 2,
          "num_self_attention_heads": 2, "num_cross_attention_heads": 2}, {"inputs": floats(9, 20)}),
    ),
    *_rows(
        "time series",
        ("patchtst", "PatchTST", "PatchTSTForPrediction",
         {"context_length": 24, "patch_length": 4, "patch_stride": 4, "num_input_channels": 2, "d_model": 16,
          "num_attention_heads": 2, "ffn_dim": 24, "num_hidden_layers": 2, "prediction_length": 6},
         {"past_values": floats(24, 2)}),
        ("patchtsmixer", "PatchTSMixer", "PatchTSMixerForPrediction",
         {"context_length": 24, "patch_length": 4, "patch_stride": 4, "num_input_channels": 2, "d_model": 8,
          "num_layers": 2, "prediction_length": 6}, {"past_values": floats(24, 2)}),
    ),
]  # fmt: skip
BY_NAME = {row.name: row for row in ROWS}

#: of architectures that are not right: why, in plain words
NOTES: dict[str, str] = {}
