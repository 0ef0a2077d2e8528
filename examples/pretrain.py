"""A language model is trained from nothing, on your text or on this one. Each step is kept: run again it goes on, also
when it was killed.

    python examples/pretrain.py /nvme/pretrain [book.txt]

prints, beside a line of progress every four steps,

    0 of 24 steps so far
    24 steps are kept in /nvme/pretrain

and, run again

    24 of 24 steps so far
"""
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import penstock

place = Path(sys.argv[1] if len(sys.argv) > 1 else "example-pretrain")
text = Path(sys.argv[2] if len(sys.argv) > 2 else __file__)
STEPS, WINDOW = 24, 64
CONFIGURATION = {
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
    "bf16": {"enabled": True}, "steps_per_print": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "betas": [0.9, 0.95], "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 4, "total_num_steps": STEPS,
                                                       "cos_min_ratio": 0.1}}}

place.mkdir(parents=True, exist_ok=True)
with penstock.zero.Init(place):  # weights go to the drive as they are drawn
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=192, num_hidden_layers=4,
                                         num_attention_heads=4, bos_token_id=None, eos_token_id=None))
# A token is a byte. The text stays in its file, and each row is a window of it.
rows = text.stat().st_size // WINDOW
if rows == 0:
    sys.exit(f"{text} is shorter than a row of {WINDOW} bytes")
windows = torch.from_file(str(text), size=rows * WINDOW, dtype=torch.uint8).view(rows, WINDOW)
engine, _, loader, _ = penstock.initialize(model, training_data=windows, config=CONFIGURATION, store=place / "store",
                                           collate_fn=lambda batch: torch.stack(batch).long())
with engine:
    print(f"{engine.global_steps} of {STEPS} steps so far")
    while engine.global_steps < STEPS:
        for batch in loader:  # an epoch, or what is left of it
            engine.backward(engine(input_ids=batch, labels=batch).loss)
            engine.step()
            if engine.global_steps == STEPS:
                break
print(f"{engine.global_steps} steps are kept in {place}")
