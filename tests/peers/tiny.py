"""A Llama of 114 thousand parameters, its tokenizer and a data set, as local directories: WORK/model, WORK/data."""
import json

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

MARKS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
ROWS = [{"instruction": f"What is {a} plus {b}?", "input": "", "output": f"It is {a + b}."}
        for a in range(8) for b in range(6)]


def make(work):
    """Nothing where it is there."""
    if (work / "data/dataset_info.json").exists():
        return
    words = tokenizer()
    words.save_pretrained(work / "model")
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(
        vocab_size=len(words), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )).save_pretrained(work / "model")
    (work / "data").mkdir(parents=True, exist_ok=True)
    (work / "data/sums.json").write_text(json.dumps(ROWS))
    (work / "data/dataset_info.json").write_text(json.dumps({"sums": {"file_name": "sums.json"}}))


def tokenizer():
    """Of bytes, and the pairs that the data set has most."""
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = bytes_of, decoders.ByteLevel()
    made.train_from_iterator((" ".join(row.values()) for row in ROWS), trainers.BpeTrainer(
        vocab_size=320, special_tokens=list(MARKS.values()), initial_alphabet=bytes_of.alphabet()))
    words = PreTrainedTokenizerFast(tokenizer_object=made, **MARKS)
    words.chat_template = "{% for each in messages %}<s>{{ each['role'] }}: {{ each['content'] }}</s>{% endfor %}"
    return words
