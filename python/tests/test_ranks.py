"""Processes over torch.distributed as the core's ranks: what they say, and how they end together."""
from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import forked
import penstock
from penstock.command.ranks import Place, lines
from penstock.native import library

try:
    library.library()
except penstock.UsageError as absent:
    pytest.skip(str(absent), allow_module_level=True)

PACKAGE = Path(penstock.__file__).resolve().parents[1]
RANKS = [sys.executable, "-m", "penstock", "ranks", "--bytes", "65536"]
GROUP = """
import os, sys, time
import torch
from penstock.native.ranks import probe
from penstock.ranks.group import Group, joined
from datetime import timedelta
joined(); group = Group(timedelta(seconds=60)); rank = group.rank
"""


def start(count, *command, warm=forked.TORCH, **changed):
    """Processes of a launcher's."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                   "WORLD_SIZE": str(count), **changed}
    return [forked.Popen(command, env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}, text=True, warm=warm,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(count)]


def ended(processes, seconds=60):
    """Their codes, outputs and errors; one that does not end is a failure."""
    last = time.monotonic() + seconds
    told = [each.communicate(timeout=max(1, last - time.monotonic())) for each in processes]
    return [each.returncode for each in processes], [out for out, _ in told], [error for _, error in told]


def script(body):
    return sys.executable, "-c", GROUP + body


def test_ranks_tell_who_is_where_and_rank_0_speaks_for_all():
    codes, outputs, errors = ended(start(3, *RANKS, "--json"))
    assert codes == [0, 0, 0], errors
    told = json.loads(outputs[0])
    assert outputs[1:] == ["", ""]
    assert [each["rank"] for each in told["ranks"]] == [0, 1, 2] and len({each["boot"] for each in told["ranks"]}) == 1
    assert all(each[key] > 0 for each in told["ranks"] for key in (
        "small_seconds", "gather_bytes_per_s", "exchange_bytes_per_s", "sum_bytes_per_s", "memory_bytes", "threads"))


def test_the_launcher_of_the_package_starts_it():
    codes, outputs, errors = ended([subprocess.Popen(
        [sys.executable, "-m", "penstock", "launch", "--num_gpus", "2", "--module", "penstock", "ranks", "--bytes", "65536"],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)])
    assert codes == [0], errors
    assert "shared by 2 ranks" in outputs[0] and "sums over 2 ranks" in outputs[0]


@pytest.mark.parametrize("problem, error, words", [
    ("code: -98, name: EADDRINUSE", penstock.UsageError, "MASTER_PORT 29500 is in use on this host.*--master_port"),
    ("connection reset", penstock.PeerError, "2 processes .* could not be joined at no.such.host:29500: connection reset")])
def test_processes_that_cannot_be_joined_are_told_why(problem, error, words, monkeypatch, caplog):
    from penstock.ranks import group

    def fails(*_, **__):
        raise RuntimeError(problem)

    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "no.such.host", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(group.dist, "TCPStore", fails)
    with pytest.raises(error, match=words):
        group.joined()
    assert "MASTER_ADDR no.such.host is not known to this host" in caplog.text


MEETS = """
import os, sys, time
from datetime import timedelta
import penstock
from penstock.ranks import meeting
from penstock.ranks.group import joined, left
meeting.TOLD_AFTER, late = 1.0, {late}
if int(os.environ["RANK"]) == late:
    time.sleep({seconds})
    if {deadline} < {seconds}:
        sys.exit()
try:
    joined(timedelta(seconds={deadline}))
    left()
except penstock.PeerError as problem:
    print(problem)
    time.sleep(2)  # others have begun later
"""


@pytest.mark.parametrize("late", [0, 2])
def test_a_rank_that_does_not_come_is_named(late):
    codes, outputs, errors = ended(start(3, sys.executable, "-c", MEETS.format(late=late, seconds=7, deadline=4)))
    assert codes == [0, 0, 0], errors
    for rank in {0, 1, 2} - {late}:
        if late == 0:
            assert "rank 0, which listens at 127.0.0.1:" in outputs[rank] and "has not come within 4 s" in outputs[rank]
            assert "missing after 1 s: rank 0, which listens at 127.0.0.1:" in errors[rank] and "frame #" not in errors[rank]
        else:
            assert "2 of 3 processes came to 127.0.0.1:" in outputs[rank] and "within 4 s; missing: rank 2\n" in outputs[rank]
            assert errors[rank].count("missing after 1 s: rank 2;") == (rank == 0)


@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_that_comes_late_is_told_of_and_waited_for(late):
    codes, outputs, errors = ended(start(2, sys.executable, "-c", MEETS.format(late=late, seconds=4, deadline=60)))
    assert (codes, outputs) == ([0, 0], ["", ""]), errors
    assert f"missing after 1 s: rank {late}" in errors[1 - late] and "missing" not in errors[late]


def test_one_process_alone_is_one_rank():
    codes, outputs, _ = ended([forked.Popen(RANKS, env={**os.environ, "PYTHONPATH": str(PACKAGE)}, text=True,
                                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)])
    assert codes == [0] and "sums over 1 rank: the bits of the loop" in outputs[0] and "start several by" in outputs[0]


def test_ranks_that_call_other_things_are_told_so_by_one_of_them():
    codes, outputs, errors = ended(start(2, "sh", "-c", f"exec {shlex.join(RANKS[:-1])} $(((RANK + 1) * 64))"))
    assert sorted(codes) == [2, 7] and outputs == ["", ""], errors
    told, silent = errors if codes[0] == 2 else reversed(errors)
    assert told.startswith("the ranks are not at the same call") and "rank 1 with the gradients of the probe (128 " in told
    assert silent == ""


def voices(errors):
    """Which ranks have printed a traceback."""
    return [rank for rank, error in enumerate(errors) if "Traceback" in error]


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "raise RuntimeError('a fault of the program')"])
def test_a_rank_that_is_gone_ends_the_others_at_once_and_one_of_all_says_why(end):
    body = f"""
import signal
from penstock import PenstockError
if rank == 1:
    time.sleep(0.2)
    {end}
begin = time.monotonic()
try:
    for _ in range(1000):
        probe(group.struct, 1 << 16)
finally:
    print(sys.exc_info()[0].__name__, time.monotonic() - begin < 20)
"""
    codes, outputs, errors = ended(start(3, *script(body)))
    assert codes[0] == codes[2] == 7 and codes[1] in (1, -9), errors
    assert outputs[0] == outputs[2] == "PeerError True\n"
    assert len(voices(errors)) == 1, errors
    if "raise" in end:
        assert codes[1] == 1 and "RuntimeError: a fault of the program" in errors[1], errors


@pytest.mark.parametrize("count, end", [(2, "raise RuntimeError('a fault of the program')"), (3, "os._exit(3)")])
def test_rank_0_that_has_the_board_is_a_rank_as_all_others(count, end):
    """It stays until the others have asked the board, and they ask when its connections are closed."""
    body = f"""
from penstock.ranks import last_words
last_words.LINGER = 20.0
if rank == 0:
    time.sleep(0.2)
    print(time.time(), flush=True)
    {end}
try:
    for _ in range(1000):
        probe(group.struct, 1 << 16)
finally:
    print(time.time())
"""
    codes, outputs, errors = ended(start(count, *script(body)))
    assert codes == [1 if "raise" in end else 3, 7, 7][:count], errors
    assert voices(errors) == [0 if "raise" in end else 1], errors
    assert max(map(float, outputs)) - float(outputs[0]) < 10


def test_a_board_is_what_all_ranks_see_and_a_stopped_rank_holds_up_nothing():
    """Through the functions that the core calls. Rank 0, which has the store, is stopped in the end: neither a call that is
    under way then nor the board waits for it."""
    body = r"""
import ctypes, signal
import torch.distributed as dist
from penstock.native import structs
group.board._answered._seconds = 2
calls, error, place = group.struct, structs.Error(), ctypes.create_string_buffer(1501)
def get(key, room=1501):
    status = calls.get(key, ctypes.addressof(place), room, None, ctypes.byref(error))
    return status, place.value if status == 0 else error.message
assert get(b"beat/0")[0] == structs.NOT_FOUND
dist.barrier()
assert calls.put(b"beat/%d" % rank, b"1\non\n", None, ctypes.byref(error)) == 0
assert calls.put_first(b"cause", b"rank %d" % rank, ctypes.addressof(place), 1501, None, ctypes.byref(error)) == 0
stands = group.gathered(place.value)
assert stands[0] == stands[1] and get(b"cause") == (0, stands[0]), stands
assert [get(b"beat/%d" % each) for each in range(2)] == [(0, b"1\non\n")] * 2
assert get(b"cause", 4) == (0, b"ran"), "what finds no room is cut"
again = Group(timedelta(seconds=60))
assert again.board.get("cause") is None, "another run"
again.close()
dist.barrier()
if rank == 0:
    print("stops", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
time.sleep(0.3)
import threading
begin = time.monotonic()
threading.Timer(0.5, lambda: calls.abort(b"rank 0 is silent", None)).start()
try:
    probe(group.struct, 64)
except Exception as error_of_call:
    print(error_of_call, 0.4 < time.monotonic() - begin < 10)
begin = time.monotonic()
print(get(b"cause"), 1 < time.monotonic() - begin < 5)
print(get(b"cause"), time.monotonic() - begin < 5, flush=True)
import queue
answer = queue.SimpleQueue()
group.board._answered._asked.put((lambda: "its thread is free again", answer))
os._exit(0 if answer.get(timeout=5) else 1)
"""
    processes = start(2, *script(body))
    codes, outputs, errors = ended(processes[1:])
    processes[0].kill()
    host = processes[0].communicate()
    assert codes == [0], (errors, host)
    lost = (7, b"the store of the processes has not answered for 2 s")
    assert outputs == [f"rank 0 is silent True\n{lost} True\n{lost} True\n"] and host == ("stops\n", "")


def test_a_call_that_raises_is_an_error_and_not_what_lies_in_a_register():
    body = """
def broken(*given):
    raise KeyboardInterrupt("somebody pressed ^C")
group._all_gather = broken
from penstock.native import ranks
group.struct.all_gather = group.kept = ranks.CALL(group._guarded(broken))
try:
    probe(group.struct, 64)
except Exception as error:
    print(type(error).__name__, error)
"""
    codes, outputs, errors = ended(start(2, *script(body)))
    assert codes == [0, 0], errors
    assert outputs == ["PeerError somebody pressed ^C\n"] * 2


def test_a_group_of_the_programs_own_goes_on_beside_it():
    body = """
import threading
import torch.distributed as dist
ended = []
thread = threading.Thread(target=lambda: ended.append(probe(group.struct, 1 << 16)))
thread.start()
for turn in range(50):
    sums = torch.full((3,), float(rank + turn))
    dist.all_reduce(sums)
    assert sums[0] == 2 * turn + 1
thread.join()
print(len(ended), group.gathered(rank))
group.close()
dist.barrier()
"""
    codes, outputs, errors = ended(start(2, *script(body)))
    assert codes == [0, 0], errors
    assert outputs == ["1 [0, 1]\n"] * 2


def test_the_table_names_machines_and_the_slowest():
    places = [Place(rank, rank % 2, f"worker-{rank // 2}", f"boot-{rank // 2}", 100 + rank, (0, 1, 2, 5), 2, 8 << 30,
                    "0: H100" if rank == 3 else None) for rank in range(4)]
    rates = [{"small_seconds": 1e-3 * (rank + 1), "gather_bytes_per_s": 1e9 * (4 - rank), "exchange_bytes_per_s": 2e9,
              "sum_bytes_per_s": 5e9} for rank in range(4)]
    told = lines(places, rates)
    assert told[0] == "worker-0: 8 GiB of memory free, 4 cores, shared by 2 ranks"
    assert told[1] == "  rank 0: process 100, cores 0-2,5, 2 torch threads"
    assert told[5] == "  rank 3: process 103, cores 0-2,5, 2 torch threads, GPU 0: H100"
    assert told[-1] == ("between ranks: gather 1.00 GB/s, exchange with its sum 2.00 GB/s, received by the slowest; a small "
                        "call 4.00 ms")
