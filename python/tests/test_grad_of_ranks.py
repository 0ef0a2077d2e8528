"""`grad` over several processes: behind a backward it is the mean over them, whole on each, as under
DistributedDataParallel; torch's own clipping and whatever a program does to it counts."""
from __future__ import annotations

import json
import sys

import pytest

import penstock
from penstock.native import library
from test_ranks import ended, start

try:
    library.library()
except penstock.UsageError as absent:
    pytest.skip(str(absent), allow_module_level=True)

# A loop of torch's. One process takes the rows of both ranks in turn: the mean of two is exact.
PROGRAM = '''
import hashlib, json, os, sys
import torch, penstock
from torch import nn

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
directory, share = sys.argv[1], int(sys.argv[2])
torch.manual_seed(7)
model = nn.Sequential(nn.Linear(20, 300), nn.LayerNorm(300), nn.ReLU(), nn.Linear(300, 300), nn.Linear(300, 5))
module, optimizer, *_ = penstock.initialize(
    model, torch.optim.AdamW(model.parameters(), lr=1e-2),
    store=penstock.Store(directory, tile_elements=4096, sum_order="ranks_first"))  # whose ranks keep sums of two units
parameters = list(model.parameters())

def say(**what):
    print(json.dumps({"rank": rank, **what}), flush=True)

def loss_of(step, of):
    torch.manual_seed(step * 10 + of)
    return nn.functional.mse_loss(module(torch.randn(4, 20)), torch.randn(4, 5)) / share

def backward(step):
    for of in range(share) if share > 1 else [rank]:
        loss_of(step, of).backward()

def bits(values):
    digest = hashlib.sha256()
    for each in values:
        digest.update(each.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()
'''
ENDING = '''
say(bits=bits(values for _, values in module.named_weights("master")))
module.close()
'''


def run(count, directory, share, what):
    codes, outputs, errors = ended(start(count, sys.executable, "-c", PROGRAM + what, str(directory), str(share),
                                         **({} if count > 1 else {"RANK": "0", "WORLD_SIZE": "1"})))
    return codes, [[json.loads(line) for line in each.splitlines() if line.startswith("{")] for each in outputs], errors


def same_on_two_and_one(directory, what):
    codes, two, errors = run(2, directory / "two", 1, what + ENDING)
    assert codes == [0, 0], errors
    codes, one, errors = run(1, directory / "one", 2, what + ENDING)
    assert codes == [0], errors
    expected = [{key: value for key, value in each.items() if key != "rank"} for each in one[0]]
    for rank in two:
        assert [{key: value for key, value in each.items() if key != "rank"} for each in rank] == expected
    return expected


def test_what_torch_and_the_program_do_to_it_counts_as_in_one_process(tmp_path):
    said = same_on_two_and_one(tmp_path, '''
for step in range(3):
    optimizer.zero_grad()
    assert all(each.grad is None for each in parameters)
    backward(step)
    norm = nn.utils.clip_grad_norm_(parameters, 0.1)
    say(step=step, norm=norm.item(), grads=bits(each.grad for each in parameters))
    for each in parameters[:2]:
        each.grad.add_(each.detach(), alpha=1e-2)
    parameters[2].grad = None
    parameters[3].grad = torch.ones(300)
    parameters[4].grad = parameters[4].grad * 2
    parameters[5].grad.data.clamp_(-1e-4, 1e-4)
    own = torch.full_like(parameters[6], 1e-3)
    parameters[6].grad = own
    own.mul_(3)
    own = None
    optimizer.step()
''')
    assert len({each["grads"] for each in said if "grads" in each}) == 3


def test_it_goes_on_to_the_next_backward(tmp_path):
    """The mean of what comes is added to the mean that is there: one process adds each row to it, which rounds otherwise."""
    what = '''
for step in range(2):
    for micro in range(2):
        backward(step * 2 + micro)
        for each in parameters[:4]:
            each.grad.mul_(0.5)
        say(norms=[each.grad.norm().item() for each in parameters])
    optimizer.step()
    model.zero_grad(set_to_none=step == 1)
    say(without=[each.grad is None or not each.grad.any() for each in parameters])
'''
    codes, two, errors = run(2, tmp_path / "two", 1, what + ENDING)
    assert codes == [0, 0], errors
    codes, (one,), errors = run(1, tmp_path / "one", 2, what + ENDING)
    assert codes == [0], errors
    for rank in two:
        for mine, whole in zip(rank, one):
            assert mine.get("norms", []) == pytest.approx(whole.get("norms", []), rel=1e-5)
            assert mine.get("without") == whole.get("without")
    assert two[0][-1]["bits"] == two[1][-1]["bits"]


def test_a_step_scaled_by_torch(tmp_path):
    """torch.amp.GradScaler looks at gradients that are not finite, and divides in place."""
    same_on_two_and_one(tmp_path, '''
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
for step in range(4):
    optimizer.zero_grad()
    for of in range(share) if share > 1 else [rank]:
        scaler.scale(loss_of(step, of)).backward()
    if step == 1:
        parameters[0].grad[0, 0] = float("inf")
    scaler.unscale_(optimizer)
    say(norm=nn.utils.clip_grad_norm_(parameters, 0.5).item() if step != 1 else 0)
    scaler.step(optimizer)
    scaler.update()
    say(scale=scaler.get_scale())
''')


def test_what_cannot_be_is_named(tmp_path):
    codes, said, errors = run(2, tmp_path, 1, '''
def refused(call):
    try:
        call()
    except (RuntimeError, penstock.UsageError) as refusal:
        say(refused=str(refusal))

backward(0)
kept = parameters[0].grad
backward(1)
refused(kept.norm)
del kept
hook = parameters[0].register_post_accumulate_grad_hook(lambda each: each.grad.norm())
refused(lambda: backward(2))
hook.remove()
optimizer.zero_grad()
own = torch.zeros(300, 20)
parameters[0].grad = own
refused(lambda: backward(3))
del own
backward(4)
say(came=bool(parameters[0].grad.any()))
backward(5)
if rank == 0:
    parameters[0].grad.norm()
optimizer.step()
''')
    for rank in said:
        assert len(rank) == 4, errors
        for each, words in zip(rank, (
                "a tensor is read that was '0.weight'.grad until a step, zero_grad(), an assignment or, over several "
                "processes, a further backward",
                "'0.weight'.grad is read or set within backward: over several processes it is the mean over them",
                "a backward comes while '0.weight'.grad is a tensor that the program has assigned and still has")):
            assert words in each["refused"]
        assert rank[3] == {"rank": rank[3]["rank"], "came": True}
    assert 0 not in codes and "the ranks are not at the same call" in "".join(errors), errors
