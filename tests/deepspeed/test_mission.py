"""Commands, configurations and code lines of pages that DeepSpeed's users read, as they stand. mission.md lists them."""
import argparse
import json
import shlex

import deepspeed
import pytest
import torch
from conftest import Model
from test_initialize import batch
from test_trainer import arguments, llama, losses, rows
from tiny_language import tokenizer

from penstock.deepspeed import launcher
from penstock.launch import filters, gpus, slots

OFFLOADED = """{
    "bfloat16": {"enabled": "auto"},
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
             "min_loss_scale": 1},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                 "warmup_num_steps": "auto"}},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true},
                          "allgather_partitions": true, "allgather_bucket_size": 2e8, "overlap_comm": true,
                          "reduce_scatter": true, "reduce_bucket_size": 2e8, "contiguous_gradients": true},
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto", "steps_per_print": 1e5
}"""
GATHERED = """{
    "bfloat16": {"enabled": false},
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
             "min_loss_scale": 1},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                 "warmup_num_steps": "auto"}},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true},
                          "offload_param": {"device": "cpu", "pin_memory": true}, "overlap_comm": true,
                          "contiguous_gradients": true, "sub_group_size": 1e9, "reduce_bucket_size": "auto",
                          "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
                          "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
                          "stage3_gather_fp16_weights_on_model_save": true},
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 1e5, "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false
}"""
FINE_TUNED = {
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
    "fp16": {"enabled": False}, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}, "gradient_clipping": "auto"}


def test_accelerate_itself_does_not_fill_in_the_older_word_bfloat16(tmp_path):
    from transformers import Trainer
    with pytest.raises(ValueError, match="`bfloat16.enabled` not found in kwargs"):
        Trainer(llama(), arguments(tmp_path, deepspeed=json.loads(OFFLOADED)), train_dataset=rows()).train()


@pytest.mark.parametrize("text, bf16", [
    (OFFLOADED.replace('"bfloat16": {"enabled": "auto"}', '"bfloat16": {"enabled": true}'), True),
    (OFFLOADED.replace("bfloat16", "bf16"), True), (OFFLOADED.replace("bfloat16", "bf16"), False), (GATHERED, False)],
    ids=["stage 2, bfloat16", "stage 2, bf16", "stage 2", "stage 3"])
def test_the_guides_configurations_train_by_trainer(text, bf16, tmp_path):
    from transformers import Trainer
    (tmp_path / "ds_config.json").write_text(text)
    trainer = Trainer(llama(), arguments(tmp_path, deepspeed=str(tmp_path / "ds_config.json"), bf16=bf16, max_grad_norm=1.0,
                                         save_strategy="no"), train_dataset=rows())
    trainer.train()
    found = losses(trainer)
    assert len(found) == 5 and all(3 < each < 5 for each in found)
    trainer.save_model(tmp_path / "saved")
    assert (tmp_path / "saved/model.safetensors").exists()


def test_an_optimizer_may_be_given_to_trainer_beside_its_model(tmp_path):
    """trainer = Trainer(model=model, args=args, train_dataset=train_dataset, data_collator=…, optimizers=(optimizer, None))."""
    from transformers import Trainer
    model = llama()
    config = {key: each for key, each in FINE_TUNED.items() if key not in ("optimizer", "scheduler")}
    trainer = Trainer(model=model, args=arguments(tmp_path, deepspeed=config, save_strategy="no"), train_dataset=rows(),
                      optimizers=(torch.optim.AdamW(model.parameters(), lr=1e-3), None))
    trainer.train()
    assert len(losses(trainer)) == 5


def test_the_page_on_fine_tuning_trains(tmp_path):
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import TrainerCallback
    told = []

    class MemoryUsageCallback(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.is_world_process_zero and state.global_step % 2 == 0:
                told.append(state.global_step)
    texts = Dataset.from_dict({"text": [" ".join(f"w{(7 * row + word) % 61}" for word in range(12)) for row in range(24)]})
    args = arguments(tmp_path, trl.SFTConfig, adam_beta1=0.9, adam_beta2=0.95, weight_decay=0.1, bf16=True, max_length=24,
                     ddp_find_unused_parameters=False, gradient_checkpointing=True, dataloader_num_workers=2,
                     dataloader_pin_memory=True, deepspeed=FINE_TUNED, max_grad_norm=1.0, save_strategy="steps")
    trainer = trl.SFTTrainer(model=llama().bfloat16(), processing_class=tokenizer(), args=args, train_dataset=texts,
                             callbacks=[MemoryUsageCallback()])
    trainer.train()
    assert told == [2, 4] and len(losses(trainer)) == 5 and (tmp_path / "checkpoint-4/global_step4").is_dir()


def test_the_quick_start_initializes_loops_saves_and_goes_on(data, configuration, written, tmp_path):
    parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
    parser.add_argument("--local_rank", type=int, default=-1)
    cmd_args = parser.parse_args(["--local_rank=0", "--deepspeed", "--deepspeed_config", written(configuration())])
    saved, seen = [], {}
    for life in range(2):
        torch.manual_seed(0)
        model = Model()
        params = filter(lambda each: each.requires_grad, model.parameters())
        model_engine, optimizer, dataloader, lr_schduler = deepspeed.initialize(
            args=cmd_args, model=model, training_data=data, model_parameters=params,
            lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9))
        client_sd, step = {}, -1
        if life == 1:
            _, client_sd = model_engine.load_checkpoint(tmp_path / "saved", saved[-1])
            step = client_sd["step"]
        for step in range(step + 1, 4):  # noqa: B020
            loss = model_engine(*batch(data, step))
            model_engine.backward(loss)
            model_engine.step()
            if life == 1:
                assert (loss.item(), lr_schduler.get_last_lr()) == seen[step]
            seen[step] = loss.item(), lr_schduler.get_last_lr()
            if step % 2 and step < 3:
                client_sd["step"] = step
                ckpt_id = loss.item()
                model_engine.save_checkpoint(tmp_path / "saved", ckpt_id, client_sd=client_sd)
                saved.append(ckpt_id)
        assert isinstance(optimizer, torch.optim.Optimizer) and len(dataloader) == 6
        model_engine.destroy()


def test_what_a_model_needs_is_estimated(model, capsys):
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs_all_live
    estimate_zero3_model_states_mem_needs_all_live(model, num_gpus_per_node=1, num_nodes=1)
    assert "GB" in capsys.readouterr().out


@pytest.mark.parametrize("command, where", [
    ("deepspeed --master_port 29500 --num_gpus=2 run_s2s.py --deepspeed ds_config.json", "localhost:0,1"),
    ("deepspeed --num_gpus=4 train.py", "localhost:0,1,2,3"),
    ("deepspeed --num_gpus=4   main.py --task sft_train --subtask sft  --checkpoint_dir ./model/sft_checkpoint",
     "localhost:0,1,2,3"),
    ("deepspeed --hostfile=myhostfile client_entry.py --own args --deepspeed --deepspeed_config ds_config.json",
     "worker-1:0,1,2,3@worker-2:0,1,2,3@worker-3:0,1"),
    ("deepspeed --hostfile=myhostfile --num_nodes=2 client_entry.py --own args --deepspeed --deepspeed_config ds_config.json",
     "worker-1:0,1,2,3@worker-2:0,1,2,3"),
    ("deepspeed --hostfile=myhostfile --exclude=\"worker-2:0@worker-3:0,1\" client_entry.py --deepspeed --deepspeed_config "
     "ds_config.json", "worker-1:0,1,2,3@worker-2:1,2,3"),
    ("deepspeed --hostfile=myhostfile --include=\"worker-2:0,1\" client_entry.py --deepspeed --deepspeed_config ds_config.json",
     "worker-2:0,1")])
def test_commands_for_several_processes_are_those_of_the_launcher(command, where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpus, "count", lambda: 0)
    (tmp_path / "myhostfile").write_text("worker-1 slots=4\nworker-2 slots=4\nworker-3 slots=2\n")
    begun = []
    monkeypatch.setattr(launcher.start, "run", lambda options, name: begun.append((slots.taken(options, print), options)) or 75)
    assert launcher.main(shlex.split(command)[1:]) == 75
    (hosts, options), = begun
    assert filters.said_of(hosts) == where and options.user_args == shlex.split(command)[shlex.split(command).index(options.user_script) + 1:]


@pytest.mark.parametrize("stage, sections", [
    (1, {}), (2, {"offload_optimizer_device": "cpu", "offload_param_device": "cpu"}),
    (3, {"offload_optimizer_device": "none", "offload_param_device": "none", "zero3_save_16bit_model": True})])
def test_accelerates_files_of_each_stage_launch_one_process(stage, sections, tmp_path):
    """With num_processes 1; what comes of 8 is said in test_initialize.py."""
    import os
    import subprocess
    import sys
    deepspeed_config = {"gradient_accumulation_steps": 2, "zero3_init_flag": False, "zero_stage": stage, **sections}
    (tmp_path / "stage.yaml").write_text(json.dumps({
        "compute_environment": "LOCAL_MACHINE", "debug": False, "deepspeed_config": deepspeed_config,
        "distributed_type": "DEEPSPEED", "downcast_bf16": "no", "enable_cpu_affinity": False, "machine_rank": 0,
        "main_training_function": "main", "mixed_precision": "bf16", "num_machines": 1, "num_processes": 1,
        "rdzv_backend": "static", "same_network": True, "tpu_env": [], "tpu_use_cluster": False, "tpu_use_sudo": False,
        "use_cpu": False}))
    (tmp_path / "train.py").write_text("""
import torch
from accelerate import Accelerator
accelerator = Accelerator()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 8)), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, in loader:
    with accelerator.accumulate(model):
        loss = model(x.to(torch.bfloat16)).float().square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
print(type(model).__name__, accelerator.state.deepspeed_plugin.zero_stage, model.global_steps)
""")
    # What `install` writes into an environment, without one.
    (tmp_path / "sitecustomize.py").write_text("import runpy\nfrom penstock.deepspeed import registered as r; r.at_start()\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(tmp_path / "stage.yaml"),
                           str(tmp_path / "train.py")], capture_output=True, text=True, check=False, env=environment)
    assert f"DeepSpeedEngine {stage} 4" in done.stdout, done.stderr[-2000:]
