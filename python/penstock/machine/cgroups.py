"""The control groups of this process: the rules of pinned_pool/cgroups.cpp."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def folders(controller: str, root: str = "") -> Iterator[tuple[str, int]]:
    """Of the process's group and of those above it, with the version of the controller. A line is "4:memory:/user", or
    "0::/user" of version 2. `root` stands before /proc and /sys: a test shows another machine."""
    for line in text_of(f"{root}/proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not group.startswith("/"):
            continue
        if not controllers:
            mounts, version = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], 2
        elif controller in controllers.split(","):
            mounts, version = [f"/sys/fs/cgroup/{controller}"], 1
        else:
            continue
        for mount in mounts:
            for each in (Path(group), *Path(group).parents):
                yield f"{mount}{each}".rstrip("/"), version


def number_in(path: str) -> int | None:
    """None where there is no such file, or no number in it ("max")."""
    text = text_of(path).strip()
    return int(text) if text.isdecimal() else None


def numbers_in(path: str) -> dict[str, int]:
    """Of lines "name value", or "name: value kB"."""
    words = [line.split() for line in text_of(path).splitlines()]
    return {each[0].rstrip(":"): int(each[1]) for each in words if len(each) > 1 and each[1].isdecimal()}


def text_of(path: str) -> str:
    """Nothing where it cannot be read."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
