"""Which GPU a rank computes on. torch's calls that count and choose them are replaced: no machine here has several."""
from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from penstock.deepspeed import accelerator, comm
from penstock.ranks import gpus
from penstock.ranks.gpus import Seat, shared, take_own, take_turns
from penstock.store import Store


class Gpus:
    def __init__(self, count, current=0):
        self.count, self.current = count, current


@pytest.fixture
def there(monkeypatch):
    here = Gpus(4)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: here.count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: here.count)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: here.current)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: setattr(here, "current", number))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: SimpleNamespace(uuid=f"GPU-{number}"))
    monkeypatch.setattr(gpus, "machine", lambda rank: f"boot-{rank // 4}")
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    return here


class Ranks:
    """One of several, of which the others have done the same with a GPU of their own."""

    def __init__(self, rank, ranks=8):
        self.rank, self.ranks, self.said = rank, ranks, []

    def gathered(self, value):
        self.said.append(value)
        if isinstance(value, str):
            return [f"boot-{rank // 4}" for rank in range(self.ranks)]
        return [Seat(f"boot-{rank // 4}", f"host-{rank // 4}", rank % 2, f"GPU-{rank % 2}") for rank in range(self.ranks)]


def chosen(rank, device="cuda"):
    take_turns(store := Store("x", device=device), Ranks(rank))
    return store.torch_device()


@pytest.mark.parametrize("local_rank, number", [("0", 0), ("1", 1), ("3", 3), ("5", 1), (None, 2)])
def test_each_rank_takes_the_gpu_of_its_number_by_turns(there, monkeypatch, local_rank, number):
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    assert chosen(6) == torch.device("cuda", number), "rank 6 is the third one of its machine"
    assert there.current == number, "the script's own .cuda() goes there, too"


def test_a_script_that_has_chosen_one_keeps_it(there, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    there.current = 3
    assert chosen(1) == torch.device("cuda", 3)


@pytest.mark.parametrize("device", ["cuda:2", "cpu", "emulated"])
def test_a_store_that_names_another_device_leaves_the_current_one(there, monkeypatch, device):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert chosen(1, device) == torch.device(device if device == "cuda:2" else "cpu") and there.current == 0


def test_a_process_that_sees_one_gpu_computes_there(there, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "3")
    there.count = 1
    assert chosen(3) == torch.device("cuda", 0)
    there.count = 0
    take_own(3)
    assert there.current == 0


def test_ranks_that_have_one_gpu_are_told_by_rank_0_alone(there, caplog):
    chosen(0)
    assert [each.message.partition(":")[0] for each in caplog.records] == [
        "ranks 0, 2 compute on one GPU, 0 of host-0", "ranks 1, 3 compute on one GPU, 1 of host-0",
        "ranks 4, 6 compute on one GPU, 0 of host-1", "ranks 5, 7 compute on one GPU, 1 of host-1"]
    caplog.clear()
    chosen(1)
    assert not caplog.records


def test_one_number_is_another_gpu_where_processes_see_others():
    seats = [Seat("boot", "host", 0, f"GPU-{rank}") for rank in range(2)]
    assert shared(seats) == [] and shared([seat._replace(gpu="") for seat in seats]) == []


@pytest.mark.parametrize("name, number", [("cuda", 3), ("cpu", 0)])
def test_deepspeeds_init_distributed_takes_it_before_nccl_does(there, monkeypatch, name, number):
    taken = []
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setattr(comm, "get_accelerator", lambda: accelerator.Accelerator(name))
    monkeypatch.setattr(comm, "_meet", lambda *_: taken.append(there.current))
    comm.init_distributed("gloo")
    assert taken == [number]
