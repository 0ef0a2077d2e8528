"""A script with transformers' Trainer, offloaded by one line. Run again it goes on from its last checkpoint.

    python examples/trainer.py /nvme/trainer

prints the Trainer's own lines, and at the end

    trained for 6 steps; its checkpoints: checkpoint-3, checkpoint-6
"""
import sys
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import penstock.hugging_face

place = Path(sys.argv[1] if len(sys.argv) > 1 else "example-trainer")
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=64, n_layer=4, n_head=4, n_positions=32))
rows = [torch.randint(0, 64, (16,)) for _ in range(24)]
trainer = Trainer(
    model=model, train_dataset=[{"input_ids": row, "labels": row} for row in rows],
    args=TrainingArguments(output_dir=str(place / "out"), num_train_epochs=1, save_steps=3, logging_steps=2,
                           learning_rate=1e-3, per_device_train_batch_size=4, report_to=[],
                           use_cpu=not torch.cuda.is_available()))
penstock.hugging_face.offload(trainer, place / "store")  # the line
trainer.train(resume_from_checkpoint=get_last_checkpoint(place / "out"))
kept = sorted(each.name for each in (place / "out").glob("checkpoint-*"))
print(f"trained for {trainer.state.global_step} steps; its checkpoints: {', '.join(kept)}")
