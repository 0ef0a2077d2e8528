#!/usr/bin/env python3
"""Reads seeded hostfiles and filters by DeepSpeed's launcher and by Penstock's, and compares. By hand, because it needs
DeepSpeed 0.19.8 itself, in an environment without Penstock's name in its place:

    DS_ACCELERATOR=cpu PYTHONPATH=python python tests/peers/launcher.py [CASES [SEED]]

Exit code 1: a difference that docs/launch.md does not name.
"""
import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from deepspeed.launcher import runner

from penstock.errors import UsageError
from penstock.launch import cores, filters, hostfile

# What is refused on purpose, by the words of its error.
ON_PURPOSE = {"has no slots;": "slots=0", "is not HOST slots=NUMBER": "other words behind slots=N",
              " twice, once": "a host as a whole and by slot",
              "is no list of slots": "a number in another form than digits of ASCII",
              "leaves no slot": "nothing is left", ": there ": "more hosts than there are",
              " has ": "more slots than there are"}
DOCUMENTED = [  # of its documentation and its own tests
    ("worker-1 slots=4\nworker-2 slots=4", {"exclude": "worker-2:0@worker-3:0,1"}),
    ("worker-1 slots=4\nworker-2 slots=4\nworker-3 slots=4", {"exclude": "worker-2:0@worker-3:0,1"}),
    ("worker-1 slots=4\nworker-2 slots=4", {"include": "worker-2:0,1"}),
    ("worker-1 slots=4\nworker-2 slots=4", {"num_nodes": 2}),
    ("worker-0 slots=4\nworker-1 slots=4", {"include": "worker-0@worker-1:0,2"}),
    ("worker-0 slots=4", {"exclude": "worker-1:0"}),
    ("# a comment\n\nworker-1 slots=2\n   # another\nworker-2 slots=2", {}), ("1 slots=2\n2 slots=2", {}),
    ("worker-1 slots=2\nworker-2 slot=2", {}), ("worker-1 slots 2", {}), ("worker-1 slots=2\nworker-1 slots=4", {}),
    ("", {}), ("#", {}),
    ("worker 1 slots=2", {}), ("worker-1 slots=2 max_slots=4", {}),
    ("127.0.0.1 slots=2\n# worker-3 slots=1", {"include": "127.0.0.1"})]
ONE, BOTH = "worker-0 slots=4", "worker-0 slots=4\nworker-1 slots=4"
DOCUMENTED += [  # of tests/unit/launcher/test_run.py
    *((ONE, {"exclude": each}) for each in ("worker-0:1", "worker-0:1,2", "worker-0", "worker-0:0,1,2,3")),
    *((ONE, {"include": each}) for each in ("worker-0:1", "worker-0:1,1", "worker-0:1@worker-0:0,1", "worker-0")),
    *((BOTH, {"exclude": each}) for each in ("worker-1", "worker-0:0,1@worker-1:3", "jeff", "worker-1:4",
                                             "worker-1@worker-0:1@5")),
    *((BOTH, {"include": each}) for each in ("worker-1:0,3", "jeff", "worker-1:4")), (BOTH, {}), (ONE, {}),
    *(("localhost slots=1", {"num_nodes": 1, each: "localhost"}) for each in ("include", "exclude")),
    *(("localhost slots=1", {"num_gpus": 1, each: "localhost"}) for each in ("include", "exclude")),
    ("\nworker-1 slots=2\nworker-2 slots=2\n\nlocalhost slots=1\n123.23.12.10 slots=2\n\n#worker-1 slots=3\n# a\n\n",
     {}),
    ("worker-1 slots=2\nworker-2 slots=1\nworker-1 slots=1", {}), ("this is bad slots=1", {}), ("missingslots", {}),
    ("worker-1 slots=2\nthis is bad slots=1\nworker-2 slots=4\nmissingslots\n\n", {})]


def by_deepspeed(path, words):
    """Hosts with slots, or None: refused."""
    try:
        pool = runner.fetch_hostfile(path)
        if (words.num_nodes >= 0 or words.num_gpus >= 0) and (words.include or words.exclude):
            return None
        active = runner.parse_inclusion_exclusion(pool, words.include, words.exclude)
        active = runner.apply_num_nodes_and_gpus(active, words.num_nodes, words.num_gpus)
        return [(name, [*slots]) for name, slots in active.items()]
    except ValueError:
        return None


def by_penstock(path, words):
    """The same, and the error's text."""
    try:
        there = hostfile.read_hostfile(path)
        if (words.num_nodes >= 0 or words.num_gpus >= 0) and (words.include or words.exclude):
            return None, ""
        if words.include and words.exclude:
            return None, ""
        if words.include:
            taken = filters.included(there, words.include)
        elif words.exclude:
            taken = filters.excluded(there, words.exclude)
        else:
            taken = filters.first(there, *(None if each < 0 else each for each in (words.num_nodes, words.num_gpus)))
        return [(each.name, [*each.slots]) for each in taken], ""
    except UsageError as error:
        return None, str(error)


def drawn(draw):
    """A hostfile, mostly a right one, and words."""
    names = draw.sample(["a", "worker-1", "worker-2", "10.0.0.7", "n.x", "w_3"], draw.randint(1, 4))
    lines = [f"{name}{draw.choice([' ', '  ', chr(9)])}slots={draw.randint(1, 5)}" for name in names]
    for odd in ("# none", "", " \t", "  # x slots=3", "b slots=", "c slots=2 # ours", "d slots=2 max_slots=3",
                "e slots=0", "f slots=2x",
                "g slots = 2", f"{names[0]} slots=1", "h  slots=2 and more", "slots=3", "i slots=2 # \f j slots=1",
                "k slots=2 # \u2028l slots=1", "m slots=02", "n slots=2\r", "o:22 slots=1", "p max_slots=2 slots=1"):
        if draw.random() < 0.02:
            lines.insert(draw.randint(0, len(lines)), odd)
    words = {}
    chosen = draw.choice([(), ("include",), ("include",), ("exclude",), ("exclude",), ("num",), ("num",),
                          ("include", "exclude"),
                          ("include", "num")])
    for option in ("include", "exclude"):
        if option in chosen:
            parts = []
            for _ in range(draw.randint(1, 3)):
                slots = ",".join(str(draw.randint(0, draw.choice([0, 1, 1, 4]))) for _ in range(draw.randint(1, 3)))
                odd = draw.choice([":", ":x", f":{slots},", f":{slots}:1", f":+{slots}", ":0_1", ":-1", ":0-1", ":01",
                                   " "])
                listed = draw.choice(["", "", *[f":{slots}"] * 5, f": {slots} ", odd])
                parts.append(draw.choice([*names * 6, "gone"]) + listed)
            words[option] = "@".join(parts)
    if "num" in chosen and draw.random() < 0.7:
        words["num_nodes"] = draw.randint(1, 4)
    if "num" in chosen and draw.random() < 0.7:
        words["num_gpus"] = draw.randint(1, 4)
    return "\n".join(lines), words


def a_part_of_a_list(draw):
    form = draw.choice(["{0}", "{0}-{1}", "x", "{1}-{0}", ""][:draw.choice([1, 2, 2, 2, 5])])
    return form.format(*sorted(draw.sample(range(20), 2)))


def core_list(read, text):
    try:
        return [*read(text)]
    except (ValueError, UsageError):
        return None


def main():
    count, seed = (int(each) for each in (*sys.argv[1:], *("1000", "1")[len(sys.argv) - 1:]))
    draw, found = random.Random(seed), Counter()
    runner.logger.disabled = True
    for number in range(count + len(DOCUMENTED)):
        text, words = DOCUMENTED[number] if number < len(DOCUMENTED) else drawn(draw)
        given = argparse.Namespace(**{"include": "", "exclude": "", "num_nodes": -1, "num_gpus": -1, **words})
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "hosts"
            path.write_text(text)
            theirs, (ours, error) = by_deepspeed(str(path), given), by_penstock(str(path), given)
        reason = next((why for said, why in ON_PURPOSE.items() if said in error), "")
        kind = "both refuse" if theirs is ours is None else "equal" if theirs == ours else (
            f"refused here alone: {reason}" if ours is None and reason else "DIFFERENT")
        found[kind] += 1
        if kind == "DIFFERENT":
            print(f"{text!r} {words}: DeepSpeed {theirs}, Penstock {ours} {error}")
    from deepspeed.utils.numa import parse_range_list
    for _ in range(count):
        text = ",".join(a_part_of_a_list(draw) for _ in range(draw.randint(1, 3)))
        same = core_list(parse_range_list, text) == core_list(cores.listed, text)
        found["lists of cores: equal" if same else "DIFFERENT"] += 1
        if not same:
            print(f"{text!r}: DeepSpeed {core_list(parse_range_list, text)}, Penstock {core_list(cores.listed, text)}")
    for kind, times in sorted(found.items()):
        print(f"{times:6} {kind}")
    return 1 if found["DIFFERENT"] else 0


if __name__ == "__main__":
    sys.exit(main())
