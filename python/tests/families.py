"""Families of transformers with tiny random configurations, and a batch for each. No downloads."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

VOCABULARY = 99
Batch = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """`model` is the name of a class in transformers, `batch` makes one from a generator."""

    name: str
    model: str
    batch: Callable[[torch.Generator], Batch]
    options: dict[str, Any] = field(default_factory=dict)
    ties: bool = False  # tied and untied can both be configured
    parts: tuple[tuple[str, dict[str, Any]], ...] = ()  # configurations within the configuration

    def make(self, dropout: float, tied: bool | None = None) -> nn.Module:
        import transformers
        cls = getattr(transformers, self.model)
        options = {**self.options, **{key: dict(value) for key, value in self.parts}}
        if tied is not None:
            options["tie_word_embeddings"] = tied
        config = cls.config_class(**options)
        for each in (config, *(getattr(config, key) for key, _ in self.parts)):
            _set_dropout(each, dropout)
        model: nn.Module = cls(config)
        return model.train()


def _set_dropout(config: Any, dropout: float) -> None:
    for key, value in config.to_dict().items():
        if "drop" in key and isinstance(value, float) and not isinstance(value, bool):
            setattr(config, key, dropout)


def tokens(g: torch.Generator, rows: int = 2, length: int = 12) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (rows, length), generator=g)


def causal(g: torch.Generator) -> Batch:
    ids = tokens(g)
    return {"input_ids": ids, "labels": ids}


def masked(g: torch.Generator) -> Batch:
    ids = tokens(g)
    mask = torch.ones_like(ids)
    mask[0, 9:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": tokens(g)}


def classified(g: torch.Generator) -> Batch:
    return {"input_ids": tokens(g), "labels": torch.randint(0, 2, (2,), generator=g)}


def translated(g: torch.Generator) -> Batch:
    return {"input_ids": tokens(g), "labels": tokens(g, length=7)}


def image(side: int = 32) -> Callable[[torch.Generator], Batch]:
    def batch(g: torch.Generator) -> Batch:
        return {"pixel_values": torch.randn(2, 3, side, side, generator=g),
                "labels": torch.randint(0, 2, (2,), generator=g)}
    return batch


def image_and_text(g: torch.Generator) -> Batch:
    return {"input_ids": tokens(g), "pixel_values": torch.randn(2, 3, 32, 32, generator=g), "return_loss": True}


def speech(g: torch.Generator) -> Batch:
    return {"input_values": torch.randn(2, 400, generator=g), "labels": torch.randint(1, 9, (2, 3), generator=g)}


def mel(g: torch.Generator) -> Batch:
    return {"input_features": torch.randn(2, 8, 60, generator=g), "labels": tokens(g, length=7)}


SPECIAL = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
SMALL = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
             max_position_embeddings=64, **SPECIAL)
GROUPED = dict(**SMALL, num_key_value_heads=2)
ENCODER_DECODER = dict(vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                       decoder_attention_heads=4, encoder_ffn_dim=40, decoder_ffn_dim=40, max_position_embeddings=64,
                       decoder_start_token_id=2, forced_eos_token_id=None, **SPECIAL)
T5 = dict(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=40, num_layers=2, num_heads=4, decoder_start_token_id=0,
          pad_token_id=0, eos_token_id=2)
VISION = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, image_size=32,
              patch_size=8, num_labels=2)
SPEECH = dict(vocab_size=12, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
              conv_dim=(16, 16), conv_stride=(4, 4), conv_kernel=(8, 4), num_conv_pos_embeddings=4,
              num_conv_pos_embedding_groups=2, mask_time_prob=0.2, mask_time_length=2, num_feat_extract_layers=2)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, output_router_logits=True)
CLIP_TEXT = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                 intermediate_size=40, max_position_embeddings=64, eos_token_id=2, bos_token_id=1, pad_token_id=0)
CLIP_VISION = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, image_size=32,
                   patch_size=8)

FAMILIES = [
    # Text, decoders.
    Family("GPT-2", "GPT2LMHeadModel", causal, dict(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4,
                                                    n_positions=64, **SPECIAL), ties=True),
    Family("GPT-Neo", "GPTNeoForCausalLM", causal,
           dict(vocab_size=VOCABULARY, hidden_size=32, num_layers=2, num_heads=4, max_position_embeddings=64,
                attention_types=[[["global", "local"], 1]], window_size=4, **SPECIAL), ties=True),
    Family("GPT-NeoX", "GPTNeoXForCausalLM", causal, SMALL, ties=True),
    Family("GPT-J", "GPTJForCausalLM", causal, dict(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4,
                                                    rotary_dim=4, n_positions=64, **SPECIAL)),
    Family("GPT-BigCode", "GPTBigCodeForCausalLM", causal, dict(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4,
                                                                n_positions=64, **SPECIAL), ties=True),
    Family("OPT", "OPTForCausalLM", causal,
           dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=40,
                max_position_embeddings=64, word_embed_proj_dim=32, **SPECIAL), ties=True),
    Family("BLOOM", "BloomForCausalLM", causal, dict(vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4,
                                                     **SPECIAL), ties=True),
    Family("Falcon", "FalconForCausalLM", causal, SMALL, ties=True),
    Family("Llama", "LlamaForCausalLM", causal, GROUPED, ties=True),
    Family("Mistral", "MistralForCausalLM", causal, dict(**GROUPED, sliding_window=4), ties=True),
    Family("Qwen2", "Qwen2ForCausalLM", causal, GROUPED, ties=True),
    Family("Qwen3", "Qwen3ForCausalLM", causal, dict(**GROUPED, head_dim=8), ties=True),
    Family("Gemma", "GemmaForCausalLM", causal, dict(**GROUPED, head_dim=8), ties=True),
    Family("Gemma 2", "Gemma2ForCausalLM", causal, dict(**GROUPED, head_dim=8, sliding_window=4), ties=True),
    Family("Gemma 3", "Gemma3ForCausalLM", causal, dict(**GROUPED, head_dim=8, sliding_window=4), ties=True),
    Family("Phi", "PhiForCausalLM", causal, GROUPED, ties=True),
    Family("Phi-3", "Phi3ForCausalLM", causal, dict(**GROUPED, original_max_position_embeddings=64), ties=True),
    Family("StableLM", "StableLmForCausalLM", causal, GROUPED, ties=True),
    Family("OLMo 2", "Olmo2ForCausalLM", causal, GROUPED, ties=True),
    Family("Cohere", "CohereForCausalLM", causal, GROUPED, ties=True),
    Family("Granite", "GraniteForCausalLM", causal, GROUPED, ties=True),
    Family("Starcoder 2", "Starcoder2ForCausalLM", causal, GROUPED, ties=True),
    Family("XLNet", "XLNetLMHeadModel", causal, dict(vocab_size=VOCABULARY, d_model=32, n_layer=2, n_head=4, d_inner=40,
                                                     **SPECIAL)),
    # Mixtures of experts.
    Family("Mixtral", "MixtralForCausalLM", causal,
           dict(**GROUPED, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True), ties=True),
    Family("Qwen2-MoE", "Qwen2MoeForCausalLM", causal,
           dict(**GROUPED, **EXPERTS, shared_expert_intermediate_size=24), ties=True),
    Family("Qwen3-MoE", "Qwen3MoeForCausalLM", causal, dict(**GROUPED, **EXPERTS, head_dim=8), ties=True),
    Family("DeepSeek-V3", "DeepseekV3ForCausalLM", causal,
           dict(**SMALL, num_key_value_heads=4, moe_intermediate_size=24, n_routed_experts=4, num_experts_per_tok=2,
                n_group=2, topk_group=1, first_k_dense_replace=1, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8,
                qk_nope_head_dim=8, v_head_dim=8), ties=True),
    Family("GPT-OSS", "GptOssForCausalLM", causal, dict(**GROUPED, head_dim=8, num_local_experts=4,
                                                        num_experts_per_tok=2, sliding_window=4), ties=True),
    # State space.
    Family("Mamba", "MambaForCausalLM", causal, dict(vocab_size=VOCABULARY, hidden_size=32, state_size=8,
                                                     num_hidden_layers=2, **SPECIAL), ties=True),
    Family("Mamba 2", "Mamba2ForCausalLM", causal, dict(vocab_size=VOCABULARY, hidden_size=32, state_size=8,
                                                        num_heads=8, head_dim=8, n_groups=2, num_hidden_layers=2,
                                                        chunk_size=4, **SPECIAL), ties=True),
    Family("RWKV", "RwkvForCausalLM", causal, dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2,
                                                   attention_hidden_size=32, context_length=16, **SPECIAL), ties=True),
    # Text, encoders.
    Family("BERT", "BertForMaskedLM", masked, SMALL, ties=True),
    Family("RoBERTa", "RobertaForMaskedLM", masked, SMALL, ties=True),
    Family("DistilBERT", "DistilBertForMaskedLM", masked, dict(vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=4,
                                                               hidden_dim=40, max_position_embeddings=64), ties=True),
    Family("ALBERT", "AlbertForMaskedLM", masked, dict(**SMALL, embedding_size=16), ties=True),
    Family("ELECTRA", "ElectraForMaskedLM", masked, dict(**SMALL, embedding_size=16), ties=True),
    Family("DeBERTa-v2", "DebertaV2ForSequenceClassification", classified,
           dict(**SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8, num_labels=2)),
    Family("MPNet", "MPNetForMaskedLM", masked, SMALL, ties=True),
    Family("ModernBERT", "ModernBertForMaskedLM", masked, dict(**SMALL, cls_token_id=1, sep_token_id=2), ties=True),
    # Encoder-decoders.
    Family("T5", "T5ForConditionalGeneration", translated, T5, ties=True),
    Family("mT5", "MT5ForConditionalGeneration", translated, dict(**T5, feed_forward_proj="gated-gelu")),
    Family("BART", "BartForConditionalGeneration", translated, ENCODER_DECODER, ties=True),
    Family("Pegasus", "PegasusForConditionalGeneration", translated, ENCODER_DECODER),
    Family("Marian", "MarianMTModel", translated, dict(**ENCODER_DECODER, decoder_vocab_size=VOCABULARY)),
    # Vision.
    Family("ViT", "ViTForImageClassification", image(), VISION),
    Family("DeiT", "DeiTForImageClassification", image(), VISION),
    Family("DINOv2", "Dinov2ForImageClassification", image(), dict(**VISION, drop_path_rate=0.1)),
    Family("BEiT", "BeitForImageClassification", image(), VISION),
    Family("Swin", "SwinForImageClassification", image(), dict(
        image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=2)),
    Family("ConvNeXt", "ConvNextForImageClassification", image(), dict(
        hidden_sizes=[16, 32], depths=[1, 2], num_stages=2, num_labels=2, drop_path_rate=0.1)),
    Family("ResNet", "ResNetForImageClassification", image(), dict(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], num_labels=2)),
    Family("SegFormer", "SegformerForImageClassification", image(), dict(
        num_encoder_blocks=2, depths=[1, 2], sr_ratios=[2, 1], hidden_sizes=[16, 32], patch_sizes=[7, 3],
        strides=[4, 2], num_attention_heads=[2, 4], mlp_ratios=[2, 2], num_labels=2)),
    # Speech, and several at once.
    Family("wav2vec 2.0", "Wav2Vec2ForCTC", speech, SPEECH),
    Family("HuBERT", "HubertForCTC", speech, SPEECH),
    Family("Whisper", "WhisperForConditionalGeneration", mel, dict(
        **{**ENCODER_DECODER, "max_position_embeddings": 64}, num_mel_bins=8, max_source_positions=30,
        max_target_positions=20)),
    Family("CLIP", "CLIPModel", image_and_text, dict(projection_dim=16),
           parts=(("text_config", CLIP_TEXT), ("vision_config", CLIP_VISION))),
    Family("SigLIP", "SiglipModel", image_and_text, {},
           parts=(("text_config", CLIP_TEXT), ("vision_config", CLIP_VISION))),
]


def batches(family: Family, count: int) -> Iterator[Batch]:
    g = torch.Generator().manual_seed(7)
    return (family.batch(g) for _ in range(count))
