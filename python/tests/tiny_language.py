"""A tiny language model in a directory, with a tokenizer of its own: what trainers want that know text alone."""
from __future__ import annotations

from pathlib import Path

WORDS = ("<pad>", "<s>", "</s>", "<unk>", *(f"w{each}" for each in range(92)))


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
                                   unk_token="<unk>", padding_side="left")


def save(folder: Path, dropout: float = 0.0) -> Path:
    """A Llama of two layers."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(2)
    LlamaForCausalLM(LlamaConfig(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        attention_dropout=dropout)).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def text(seed: int, words: int) -> str:
    import random

    chance = random.Random(seed)
    return " ".join(chance.choice(WORDS[4:]) for _ in range(words))
