"""The same as trainer_plain.py, offloaded by a line: a tiny GPT-2, Trainer, clipping, accumulation, evaluation, checkpoints."""
import json
import sys

import torch
from cores import test_core
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

import penstock.hugging_face

folder, steps, resume = sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3
torch.set_num_threads(1)
set_seed(1)

config = GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=32, bos_token_id=1, eos_token_id=2)
model = GPT2LMHeadModel(config)
g = torch.Generator().manual_seed(5)
rows = [torch.randint(3, 99, (16,), generator=g) for _ in range(48)]
data = [{"input_ids": row, "labels": row} for row in rows]

arguments = TrainingArguments(
    output_dir=f"{folder}/out", max_steps=steps, per_device_train_batch_size=2, gradient_accumulation_steps=2,
    max_grad_norm=0.5, learning_rate=1e-2, warmup_steps=2, lr_scheduler_type="cosine", weight_decay=0.1,
    logging_steps=1, save_steps=3, save_total_limit=2, eval_strategy="steps", eval_steps=3, report_to=[],
    use_cpu=True, disable_tqdm=True, seed=1, dataloader_pin_memory=False)

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1, foreach=False)
trainer = Trainer(model=model, args=arguments, train_dataset=data[:40], eval_dataset=data[40:],
                  optimizers=(optimizer, None))
engine = penstock.hugging_face.offload(trainer, core=test_core(folder=f"{folder}/store"))
trainer.train(resume_from_checkpoint=resume)
told = ("loss", "grad_norm", "learning_rate", "eval_loss", "step")
history = [{key: each[key] for key in told if key in each} for each in trainer.state.log_history]
with open(f"{folder}/history.json", "w") as file:
    json.dump([each for each in history if len(each) > 1], file)
trainer.save_model(f"{folder}/final")
