"""transformers' Trainer in several processes, offloaded by a line: its checkpoints are gone on from, by any number."""
import json
import shutil
import sys

import pytest
from test_ranks import ended, start

import forked
import penstock
from penstock.native import library

try:
    library.library()
except penstock.UsageError as absent:
    pytest.skip(str(absent), allow_module_level=True)

PROGRAM = """
import json, os, sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed
import penstock.hugging_face

os.environ["LOCAL_RANK"] = os.environ["RANK"]
folder, resume, stopped_in = sys.argv[1], sys.argv[2] == "resumed", int(sys.argv[3])
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
set_seed(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=32, bos_token_id=1, eos_token_id=2,
                                   resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
chance = torch.Generator().manual_seed(5)
rows = [torch.randint(3, 99, (16,), generator=chance) for _ in range(48)]

class Stops(TrainerCallback):
    def on_step_begin(self, args, state, control, **others):
        if rank == ranks - 1 and state.global_step + 1 == stopped_in:
            os.kill(os.getpid(), 15)

class Rows(torch.utils.data.Dataset):  # in order, so that two processes have the rows of one
    def __len__(self):
        return len(rows)
    def __getitem__(self, index):
        return {"input_ids": rows[index], "labels": rows[index]}

class Ordered(Trainer):
    def _get_train_sampler(self, *given):
        return torch.utils.data.SequentialSampler(self.train_dataset)

arguments = TrainingArguments(
    output_dir=f"{folder}/out", max_steps=6, per_device_train_batch_size=4 // ranks, gradient_accumulation_steps=2,
    max_grad_norm=0.5, learning_rate=1e-2, warmup_steps=2, lr_scheduler_type="cosine", weight_decay=0.1,
    logging_steps=1, save_steps=2, save_total_limit=2, report_to=[], use_cpu=True, disable_tqdm=True, seed=1,
    dataloader_pin_memory=False)
trainer = Ordered(model=model, args=arguments, train_dataset=Rows(), callbacks=[Stops()])
engine = penstock.hugging_face.offload(trainer)
engine.stop_on_signals()
trainer.train(resume_from_checkpoint=resume)
told = [{key: each[key] for key in ("loss", "grad_norm", "learning_rate") if key in each} for each in trainer.state.log_history]
os.write(1, (json.dumps({"rank": rank, "told": [each for each in told if "loss" in each]}) + chr(10)).encode())
"""


def trained(folder, count, *words, codes=0):
    """What rank 0 told, in a folder of all."""
    (folder / "train.py").write_text(PROGRAM)
    found, outputs, errors = ended(start(count, sys.executable, str(folder / "train.py"), str(folder), *map(str, words),
                                         warm=forked.TRAINER, OMP_NUM_THREADS="1"), 120)
    assert found == [codes] * count, errors
    told = [json.loads(line) for line in outputs[0].splitlines() if line.startswith('{"rank')]
    return told[0]["told"] if told else []


def same(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        assert one == pytest.approx(other, rel=2e-6)


def test_checkpoints_of_two_processes_are_gone_on_from_by_two_and_by_one(tmp_path):
    """SIGTERM comes to the last one within step 3: all save behind it, and end. Losses are logged with few digits."""
    for name in ("whole", "stopped"):
        (tmp_path / name).mkdir()
    whole = trained(tmp_path / "whole", 2, "begun", 0)
    trained(tmp_path / "stopped", 2, "begun", 3, codes=75)
    checkpoint = tmp_path / "stopped/out/checkpoint-3"
    assert sorted(each.name for each in (checkpoint / "penstock-step-3").iterdir()) == [
        "model.json", "part-0.safetensors", "part-1.safetensors"]
    shutil.copytree(tmp_path / "stopped/out", tmp_path / "alone/out")
    same(trained(tmp_path / "alone", 1, "resumed", 0), whole)
    assert trained(tmp_path / "stopped", 2, "resumed", 0) == whole
