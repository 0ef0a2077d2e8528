"""How much memory is free: the least of the machine's and of each control group's."""
from __future__ import annotations

import time

import pytest

from penstock.room import Group, HostRoom, groups_of_this_process


def version_2(root, path, limit, used, dropped=0):
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {dropped}\nactive_file 5\n")


def version_1(root, path, limit, used, dropped=0):
    folder = root / "memory" / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"inactive_file 1\ntotal_inactive_file {dropped}\n")


def groups(tmp_path, lines):
    process = tmp_path / "cgroup"
    process.write_text(lines)
    return groups_of_this_process(process, tmp_path)


def test_what_is_free_is_what_the_kernel_says():
    with open("/proc/meminfo") as file:
        expected = next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    assert HostRoom([])() == pytest.approx(expected, rel=0.3)


def test_a_group_of_version_2_and_those_around_it_limit_it(tmp_path):
    version_2(tmp_path, "outer/inner", "max", 10)
    version_2(tmp_path, "outer", 5000, 4000, dropped=500)
    found = groups(tmp_path, "0::/outer/inner\n")
    assert [each.left() for each in found] == [1500]
    assert HostRoom(found)() == 1500


def test_a_group_of_version_1(tmp_path):
    version_1(tmp_path, "job", 9000, 4000, dropped=300)
    version_1(tmp_path, "", (1 << 63) - 4096, 4000)
    assert [each.left() for each in groups(tmp_path, "4:memory:/job\n3:cpu:/job\n")] == [5300]


def test_within_a_container_the_path_is_the_hosts(tmp_path):
    version_2(tmp_path, "", 3000, 1000)
    assert [each.left() for each in groups(tmp_path, "0::/system/container-7\n")] == [2000]


def test_without_groups_nothing_limits(tmp_path):
    assert groups_of_this_process(tmp_path / "none", tmp_path) == []


def test_a_group_that_goes_limits_no_more(tmp_path):
    version_2(tmp_path, "job", 3000, 1000)
    room = HostRoom(groups(tmp_path, "0::/job\n"))
    (tmp_path / "job" / "memory.current").unlink()
    assert room() > 3000


def test_a_reading_serves_for_milliseconds_and_is_forgotten_when_memory_was_given_back(tmp_path):
    version_2(tmp_path, "job", 3000, 1000)
    room = HostRoom(groups(tmp_path, "0::/job\n"))
    assert room() == 2000
    version_2(tmp_path, "job", 3000, 500)
    room.forget()
    assert room() == 2500
    version_2(tmp_path, "job", 3000, 0)
    time.sleep(0.02)
    assert room() == 3000


def test_a_group_says_its_files(tmp_path):
    version_2(tmp_path, "job", 100, 40, dropped=10)
    assert Group(tmp_path / "job/memory.max", tmp_path / "job/memory.current", "inactive_file").left() == 70
