"""How much memory is free for graphs, and how long a reading of it serves."""
from __future__ import annotations

import time

import pytest

from penstock.machine import room
from penstock.machine.host_memory import HostMemory
from penstock.machine.room import HostRoom


class Machine:
    def __init__(self, *free: int) -> None:
        self.free, self.readings = list(free), 0

    def __call__(self) -> HostMemory:
        self.readings += 1
        return HostMemory(self.free.pop(0) if len(self.free) > 1 else self.free[0], "free RAM")


def test_what_is_free_is_what_the_machine_can_give():
    assert HostRoom()() == pytest.approx(HostMemory.read().available_bytes, rel=0.3)


def test_a_reading_serves_while_a_quarter_of_it_could_not_be_filled():
    machine = Machine(10**12, 5)
    there = HostRoom(machine)
    assert [there() for _ in range(3)] == [10**12] * 3 and machine.readings == 1


def test_where_little_is_free_it_is_read_each_time():
    machine = Machine(3000, 2000, 1000)
    there = HostRoom(machine)
    read = []
    for _ in range(3):
        read.append(there())
        time.sleep(1e-5)
    assert read == [3000, 2000, 1000]


def test_it_is_read_anew_after_a_while_and_when_memory_was_given_back(monkeypatch):
    monkeypatch.setattr(room, "LONGEST_SECONDS", 0.01)
    machine = Machine(10**12, 2 * 10**12, 3 * 10**12)
    there = HostRoom(machine)
    assert there() == 10**12
    there.forget()
    assert there() == 2 * 10**12
    time.sleep(0.02)
    assert there() == 3 * 10**12


class Host(HostRoom):
    """Whose heights are told."""

    def __init__(self) -> None:
        super().__init__(Machine(10**12))
        self.taken = self.height = 0

    def _taken(self) -> int:
        return self.taken

    def _height(self) -> int:
        self.height = max(self.height, self.taken)
        return self.height


def test_what_a_call_takes_is_seen_by_a_new_height_also_of_what_is_free_again():
    host = Host()
    for taken, height, grown in ((100, 100, 0), (150, 180, 80), (190, 190, 80), (120, 190, 80), (120, 240, 120), (500, 500, 380)):
        host.taken, host.height = taken, height
        host.look()
        assert host.grown_bytes == grown
    assert host.wanted(0) == 380 + room.LEAST_BYTES and host.wanted(1000) == 1000 + room.LEAST_BYTES


def test_what_is_taken_between_steps_is_no_calls():
    host = Host()
    host.look()
    host.look_away()
    host.taken = 1000
    host.look()
    assert host.grown_bytes == 0


def test_what_the_process_has_is_read():
    host = HostRoom()
    assert 0 < host._taken() <= host._height() * 1.1
