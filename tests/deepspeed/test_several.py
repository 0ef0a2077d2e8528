"""Programs that were written for DeepSpeed, started by its command as two processes that train one model. They have no line
of Penstock's but the first."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import penstock
from penstock.launch import ports
from penstock.native import library

try:
    library.library()
except penstock.UsageError as absent:
    pytest.skip(str(absent), allow_module_level=True)

COMMAND = [sys.executable, "-c", "import sys; sys.argv[0] = 'deepspeed'; from penstock.deepspeed.launcher import main; "
                                 "sys.exit(main())"]
HEAD = '''
import penstock.deepspeed
import json, os, sys
import torch, deepspeed
import deepspeed.comm as dist
from torch import nn

class Model(nn.Module):
    def __init__(self, width=16, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.scale = nn.Parameter(torch.ones(1))
    def forward(self, x, y):
        for each in self.blocks:
            x = torch.tanh(each(x))
        return (x * self.scale - y).square().mean()

def made(stage=2, accumulation=1, seed=0, **sections):
    torch.manual_seed(seed)
    model = Model()
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": accumulation, "gradient_clipping": 0.5,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.0}},
              "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 10}, **sections}
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config, training_data=data)

chance = torch.Generator().manual_seed(1)
data = [(torch.randn(16, generator=chance), torch.randn(16, generator=chance), index) for index in range(22)]

def rows(step, rank):
    chance = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(2, 16, generator=chance), torch.randn(2, 16, generator=chance)

def train(engine, first, last):
    losses = []
    for step in range(first, last):
        loss = engine(*rows(step, dist.get_rank()))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses

def bits(engine):
    return [values.tolist() for what in ("master", "moment0", "moment1") for _, values in engine.named_weights(what)]

told = {}
'''
TAIL = '''
with open(f"told.{os.environ['RANK']}", "w") as file:  # a pipe that they share would mix long lines
    json.dump(told, file)
'''


def several(folder, body, *words, count=2, code=0, **variables):
    """What each process told, by rank; and the errors of all."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(HEAD + body + TAIL)
    for left in folder.glob("told.*"):
        left.unlink()
    inherited = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT")}
    done = subprocess.run([*COMMAND, f"--num_gpus={count}", f"--master_port={ports.another()}",
                           "--no_local_rank", "train.py", *map(str, words)], cwd=folder, text=True,
                          capture_output=True, timeout=120, check=False,
                          env={**inherited, "PYTHONPATH": str(Path(penstock.__file__).parents[1]), "OMP_NUM_THREADS": "1", **variables})
    assert done.returncode == code, done.stderr[-3000:]
    told = [folder / f"told.{rank}" for rank in range(count)]
    return [json.loads(each.read_text()) for each in told if each.exists()], done.stderr


TRAINS = '''
deepspeed.init_distributed()
engine, optimizer, loader, _ = made(int(sys.argv[1]), accumulation=2)
told.update(rank=engine.global_rank, rows=[], losses=[], norms=[], ends=[])
for x, y, index in loader:
    told["ends"].append(engine.is_gradient_accumulation_boundary())
    loss = engine(x, y)
    engine.backward(loss)
    engine.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean, op=dist.ReduceOp.SUM)
    told["rows"].append(index.tolist())
    told["losses"].append(mean.item() / dist.get_world_size())
    told["norms"].append(engine.get_global_grad_norm())
told["answers"] = [engine.world_size, engine.dp_world_size, engine.local_rank, engine.train_batch_size(),
                   engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps(), engine.global_steps,
                   engine.global_samples, len(loader)]
engine.set_train_batch_size(12)
told["answers"].append(engine.gradient_accumulation_steps())
told["evaluated"] = [index.tolist() for _, _, index in engine.deepspeed_io(data, batch_size=6, route="eval", num_local_io_workers=0)]
told["own"] = [index.tolist() for _, _, index in engine.deepspeed_io(data, batch_size=6, num_local_io_workers=0)]
if dist.get_rank() == 0:
    told["weights"] = {name: values.tolist() for name, values in engine.module.state_dict().items()}
dist.barrier()
'''


def plainly(rows):
    """Losses and norms of torch alone, with each step's rows of both ranks: those that DeepSpeed 0.19.8 gave, too."""
    space = {}
    exec(HEAD.split("def made")[0].split("import torch, deepspeed")[0].replace("import penstock.deepspeed", ""), space)
    exec("import torch\nfrom torch import nn\n" + "class Model" + HEAD.split("class Model")[1].split("def made")[0], space)
    exec("import torch\nchance" + HEAD.split("\nchance", 1)[1].split("def rows")[0], space)
    torch.manual_seed(0)
    model, data = space["Model"](), space["data"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    losses, norms = [], []
    for number, of_ranks in enumerate(zip(*rows)):
        mean = sum(model(torch.stack([data[each][0] for each in mine]), torch.stack([data[each][1] for each in mine]))
                   for mine in of_ranks) / 2
        (mean / 2).backward()
        losses.append(mean.item())
        if number % 2:
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
            optimizer.step()
            optimizer.zero_grad()
    return losses, norms, model


@pytest.mark.parametrize("stage", [2, 3])
def test_two_processes_train_one_model_on_rows_of_their_own(stage, tmp_path):
    told, errors = several(tmp_path, TRAINS, stage)
    order = list(torch.utils.data.DistributedSampler(range(22), 2, 0)), list(torch.utils.data.DistributedSampler(range(22), 2, 1))
    assert [sum(each["rows"], []) for each in told] == list(order), "as DeepSpeed's, in the first epoch"
    losses, norms, model = plainly([each["rows"] for each in told])
    for rank, each in enumerate(told):
        assert each["losses"] == pytest.approx(losses, rel=2e-6)
        assert each["norms"][1::2] == pytest.approx(norms, rel=2e-6)
        assert each["ends"] == [False, True] * 3
        assert each["answers"] == [2, 2, rank, 8, 2, 2, 3, 24, 6, 3]
        assert sum(each["evaluated"], []) == list(range(rank, 22, 2))
    assert sorted(row for each in told for row in sum(each["own"], [])) == list(range(22))
    for name, values in model.state_dict().items():
        assert torch.allclose(torch.tensor(told[0]["weights"][name]), values, atol=1e-6), "rank 0 alone has read them"
    assert errors.count("there is no GPU here: 2 processes") == 1
    assert errors.count("stage 3 with 2 processes is run as stage 2") == (stage == 3)


CALLS = '''
told["rank"] = rank = int(os.environ["RANK"])
assert not dist.is_initialized() and (dist.get_rank(), dist.get_world_size()) == (0, 1)
deepspeed.init_distributed(dist_backend="nccl", dist_init_required=True)
assert dist.is_initialized() and dist.is_available() and dist.get_local_rank() == rank == dist.get_rank()
t = torch.full((4,), rank + 1.0)
def of(call, *given, **named):
    call(*given, **named, prof=False, log_name="x", debug="y")
def has(tensor, *values):
    assert tensor.tolist() == list(map(float, values)), (tensor, values)
whole, pair, half = torch.zeros(8), [torch.zeros(4), torch.zeros(4)], torch.zeros(2)
of(dist.all_gather_into_tensor, output_tensor=whole, tensor=t); has(whole, 1, 1, 1, 1, 2, 2, 2, 2)
of(dist.allgather_fn, whole, t); of(dist.all_gather, tensor_list=pair, tensor=t); has(pair[1], 2, 2, 2, 2)
of(dist.reduce_scatter_tensor, output_tensor=half, tensor=t.clone()); has(half, 3, 3)
of(dist.reduce_scatter_fn, half, t.clone()); of(dist.reduce_scatter, output=half, input_list=[t[:2], t[2:]]); has(half, 3, 3)
of(dist.all_to_all_single, output=pair[0], tensor=t); has(pair[0], 1, 1, 2, 2)
sent = t.clone(); of(dist.broadcast, tensor=sent, src=1); has(sent, 2, 2, 2, 2)
most = t.clone(); dist.all_reduce(most, op=dist.ReduceOp.MAX, async_op=True).wait(); has(most, 2, 2, 2, 2)
summed = t.clone(); of(dist.reduce, tensor=summed, dst=0); rank or has(summed, 3, 3, 3, 3)
of(dist.inference_all_reduce, t.clone())
values = [None, None]; dist.all_gather_object(values, {"of": rank}); assert values == [{"of": 0}, {"of": 1}]
values = [rank]; dist.broadcast_object_list(values, src=1); assert values == [1]
of(dist.gather, t, pair if rank == 0 else None, dst=0); of(dist.scatter, t, pair if rank == 0 else None, src=0)
dist.send(t, 1) if rank == 0 else dist.recv(t, src=0)
alone = dist.new_group(ranks=[0]); rank or has(t, 1, 1, 1, 1) or dist.all_reduce(t, group=alone)
of(dist.barrier); dist.monitored_barrier()
assert dist.get_all_ranks_from_group() == [0, 1] and dist.get_global_rank(dist.get_world_group(), 1) == 1
groups = deepspeed.utils.groups
assert (groups._get_data_parallel_world_size(), groups._get_data_parallel_rank(), groups._get_model_parallel_world_size(),
        groups._get_sequence_parallel_rank()) == (2, rank, 1, 0)
idle, *_ = deepspeed.initialize(model=nn.Linear(4, 1), config={"train_micro_batch_size_per_gpu": 2})
told["idle"] = [idle.module.weight.tolist(), idle.train_batch_size(), idle.global_rank == rank]
assert deepspeed.DeepSpeedConfig({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2}).gradient_accumulation_steps == 2
dist.destroy_process_group()
'''


def test_calls_of_its_comm_are_torchs_by_its_names_and_arguments(tmp_path):
    told, _ = several(tmp_path, CALLS)
    assert told[0]["idle"] == told[1]["idle"] and told[0]["idle"][1:] == [4, True], "an engine without an optimizer has rank 0's"


HABITS = '''
engine, *_ = made(2)
told.update(rank=engine.global_rank, losses=train(engine, 0, 2))
block = engine.module.blocks[0].weight
for of in (0, 1):
    with deepspeed.zero.GatheredParameters(block, modifier_rank=of):
        block.data.fill_(0.25 * (dist.get_rank() + 1))
    assert block.sum().item() == 64.0 * (of + 1)
with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
    if dist.get_rank() == 0:
        told["first"] = block.sum().item()
engine.eval()
total = torch.zeros(1)
with torch.no_grad():
    for step in range(2 + dist.get_rank()):  # one has more than the other
        total += engine(*rows(50 + step, dist.get_rank())).item()
dist.all_reduce(total)
engine.train()
engine.save_16bit_model("saved", "model.bin")
engine.save_16bit_model("saved", "model.safetensors")
engine.save_16bit_model("saved", "model.safetensors")
if dist.get_rank() == 0:
    saved = torch.load("saved/model.bin")
    assert all(torch.equal(saved[name], each) for name, each in engine.module_state_dict().items())
tag = "of-%d" % dist.get_rank()
engine.save_checkpoint("checkpoints", tag=tag, client_state={"of": dist.get_rank()})
told["goes on"] = train(engine, 2, 4), bits(engine)
engine.save_checkpoint("checkpoints", tag="of-0", client_state={"of": 0}) if len(sys.argv) > 1 else None
engine.destroy()
'''
LOADS = '''
engine, *_ = made(2, seed=5)
path, client = engine.load_checkpoint("checkpoints")
told.update(rank=engine.global_rank, path=path, client=client, steps=engine.global_steps)
told["goes on"] = train(engine, 2, 4), bits(engine)
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
engine.load_checkpoint("checkpoints", load_module_only=True)
told["fp32"] = all(torch.equal(each, engine.weight(name, "master"))
                   for name, each in get_fp32_state_dict_from_zero_checkpoint("checkpoints").items())
'''


def test_what_programs_do_on_all_ranks_or_one_and_checkpoints_go_on_to_the_same_bits(tmp_path):
    begun, errors = several(tmp_path, HABITS)
    assert begun[0]["first"] == 128.0 and begun[0]["losses"] != begun[1]["losses"]
    assert errors.count("ranks gave different tags") == 1
    assert sorted(each.name for each in (tmp_path / "checkpoints").iterdir()) == ["latest", "of-0", "zero_to_fp32.py"]
    resumed, _ = several(tmp_path, LOADS)
    for rank in (0, 1):
        assert resumed[rank]["goes on"] == begun[rank]["goes on"]
        assert (resumed[rank]["path"], resumed[rank]["client"], resumed[rank]["steps"]) == ("checkpoints/of-0", {"of": 0}, 2)
        assert resumed[rank]["fp32"]
    alone, _ = several(tmp_path, LOADS, count=1)
    assert (alone[0]["steps"], alone[0]["fp32"]) == (2, True), "one process goes on from two"


TRAINER = '''
import signal, penstock.hugging_face
sys.path[:0] = [os.environ["TESTS"] + "/../../tests/deepspeed", os.environ["TESTS"]]
from test_mission import OFFLOADED
from test_trainer import arguments, llama, losses, rows
from transformers import Trainer, TrainerCallback
kind, surface, dies = sys.argv[1], sys.argv[2], sys.argv[3] == "dies"
config = json.loads(OFFLOADED.replace("bfloat16", "bf16"))
del config["scheduler"]  # DeepSpeed's warm-up is not Trainer's

class Dies(TrainerCallback):
    def on_step_end(self, args, state, control, **others):
        if dies and state.global_step == 4 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)

said = {"deepspeed": config if surface == "deepspeed" else None, "bf16": False, "save_steps": 2, "weight_decay": 0.0,
        "save_strategy": "no" if surface == "ddp" else "steps", "max_grad_norm": 0.5, "report_to": []}
if kind == "sft":
    import trl
    from datasets import Dataset
    from tiny_language import tokenizer
    texts = Dataset.from_dict({"text": [" ".join(f"w{(7 * row + word) % 61}" for word in range(12)) for row in range(24)]})
    args = arguments("out", trl.SFTConfig, max_length=24, gradient_checkpointing=True, **said)
    trainer = trl.SFTTrainer(model=llama(), processing_class=tokenizer(), args=args, train_dataset=texts, callbacks=[Dies()])
else:
    trainer = Trainer(llama(), arguments("out", **said), train_dataset=rows(), callbacks=[Dies()])
if surface == "offload":
    penstock.hugging_face.offload(trainer, "store")
there = os.path.isdir("out/checkpoint-2")
dist.barrier() if dist.is_initialized() else torch.distributed.barrier()
trainer.train(resume_from_checkpoint=surface != "ddp" and there)
told.update(rank=torch.distributed.get_rank(), losses=losses(trainer), made=type(trainer.model_wrapped).__name__)
trainer.save_model("out/final")
'''


@pytest.mark.long
@pytest.mark.parametrize("surface", ["deepspeed", "offload"])
@pytest.mark.parametrize("kind", ["trainer", "sft"])
def test_trainers_losses_are_those_of_distributed_data_parallel_also_when_a_rank_is_killed(kind, surface, tmp_path):
    """To the last digit here, as fp32 has it; sums of gradients are rounded otherwise, so not on every machine."""
    tests = {"TESTS": str(Path(penstock.__file__).parents[1] / "tests")}
    whole, _ = several(tmp_path / "whole", TRAINER, kind, surface, "lives", **tests)
    plain, _ = several(tmp_path / "plain", TRAINER, kind, "ddp", "lives", **tests)
    assert (whole[0]["made"] == "DeepSpeedEngine") == (surface == "deepspeed")
    assert plain[0]["made"] == "DistributedDataParallel"
    assert whole[0]["losses"] == pytest.approx(plain[0]["losses"], rel=1e-6)
    several(tmp_path / "killed", TRAINER, kind, surface, "dies", code=137, **tests)
    resumed, _ = several(tmp_path / "killed", TRAINER, kind, surface, "lives", **tests)
    assert resumed[0]["losses"] == whole[0]["losses"] == whole[1]["losses"]
    assert (tmp_path / "killed/out/final/model.safetensors").exists()
