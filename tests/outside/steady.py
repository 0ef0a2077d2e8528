#!/usr/bin/env python3
"""A long run of small steps, looked at from outside: memory, descriptors, files and step times must stay level.

    tests/outside/steady.py --program build/release/penstock --dir DIR --steps 20000 --form kept

The medians of the second and of the last tenth of the run are compared (the first tenth warms up):

    resident memory    last <= second + 2 MiB + 1 %
    descriptors        the most in the last tenth <= the most before: a copy of a snapshot has some of its own
    the store's files  equal, to a byte; with --form kept as many snapshots at most as before
    run's files        log.jsonl grows by a line a step and is not looked at; of all others there are no more
    step times         last <= 1.5 × second, from log.jsonl; --no-times leaves them out on a machine with other work

Exit code 1 when one of them grows.
"""
import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import toy  # noqa: E402
from program import Program  # noqa: E402

MIB = 1 << 20
EVERY_S = 0.2
KEEP_EVERY = 20  # a thousand snapshots come and go


def resident_bytes(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError("the process has no memory any more")


def store_bytes(work, form):
    """Of the files that a store has from its creation on; not of snapshots, which come and go."""
    return sum(entry.stat().st_size for swap in toy.swap_directories(form) for entry in (work / swap).iterdir()
               if entry.is_file())


def names_in(path):
    return len(os.listdir(path)) if path.is_dir() else 0


def sample(pid, work, form):
    return {
        "resident": resident_bytes(pid),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "store": store_bytes(work, form),
        "snapshots": names_in(work / "swap/kept"),
        "run": names_in(work / "run"),
    }


def watch(running, work, form):
    samples = []
    while not running.ended():
        # Loading is no step; samples begin with the first line of the log.
        log = work / "run/log.jsonl"
        if log.is_file() and log.stat().st_size > 0:
            try:
                samples.append(sample(running.pid, work, form))
            except OSError:
                pass  # it has just ended, or a snapshot was removed under our eyes
        time.sleep(EVERY_S)
    return samples


def tenth(values, number):
    """The number-th tenth, counted from 1."""
    return values[len(values) * (number - 1) // 10 : max(len(values) * number // 10, 1)]


def medians(values):
    return statistics.median(tenth(values, 2)), statistics.median(tenth(values, 10))


def most(values):
    return max(values[: len(values) * 9 // 10]), max(tenth(values, 10))


PEAKS = ("descriptors", "snapshots", "run")  # of which a moment too many counts
BOUNDS = {
    "resident": lambda second: second * 1.01 + 2 * MIB,
    "descriptors": lambda second: second,
    "store": lambda second: second,
    "snapshots": lambda second: second,
    "run": lambda second: second,
    "step time": lambda second: second * 1.5,
}


def show(name, second, last):
    if name in ("resident", "store"):
        return f"{name:12} {second / MIB:12.2f} MiB {last / MIB:12.2f} MiB"
    if name == "step time":
        return f"{name:12} {second * 1000:12.3f} ms  {last * 1000:12.3f} ms "
    return f"{name:12} {second:12.0f}     {last:12.0f}    "


def compare(series):
    """Prints a line for each series; returns the names of those that grow."""
    grown = []
    print(f"{'':12} {'second tenth':>16} {'last tenth':>16}   (of counts: the most before, and in the last tenth)")
    for name, values in series.items():
        second, last = most(values) if name in PEAKS else medians(values)
        bad = last > BOUNDS[name](second)
        print(show(name, second, last) + ("   GROWS" if bad else ""))
        grown += [name] * bad
    return grown


def run(arguments):
    work = Path(arguments.dir).resolve() / "steady"
    toy.remove_tree(work)
    program = Program(str(Path(arguments.program).resolve()), deadline_s=arguments.deadline)
    toy.write_toy(program, work, arguments.form, {"keep.every": KEEP_EVERY} if arguments.form == "kept" else {})
    running = program.start(work, ["train", "config.json", "--steps", str(arguments.steps)])
    samples = watch(running, work, arguments.form)
    life = running.wait()
    if life.code != 0:
        print(f"the run ended with {life.code}: {life.error()}")
        return 1
    records = [json.loads(line) for line in (work / "run/log.jsonl").read_text().splitlines()]
    series = {name: [one[name] for one in samples] for name in samples[0]}
    if not arguments.no_times:
        series["step time"] = [record["seconds"] for record in records]
    print(f"{len(records)} steps in {life.seconds:.0f} s, {len(samples)} samples, form '{arguments.form}'")
    grown = compare(series)
    if len(records) != arguments.steps:
        print(f"log.jsonl has {len(records)} lines")
        grown.append("log")
    verdict = f"grows: {', '.join(grown)}" if grown else "level"
    print(f"RESULT steady: {len(records)} steps of form '{arguments.form}' in {life.seconds:.0f} s: {verdict}")
    return 1 if grown else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--form", default="kept", choices=sorted(toy.FORMS))
    parser.add_argument("--deadline", type=float, default=7200)
    parser.add_argument("--no-times", action="store_true")
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
