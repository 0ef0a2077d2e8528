"""Backups of one file and not of another: each subset of a run's files, from an earlier step, over the newer state."""
import itertools

import blows
from scene import BASE_STEP, OLDER_STEPS, SNAPSHOT_STEPS
from verdict import Case

FILES = ("lock", "data", "manifest.0", "manifest.1", "log.jsonl")


def paths_of(files, swaps):
    for file in files:
        if file == "log.jsonl":
            yield "run/log.jsonl"
        elif file.startswith("manifest"):
            yield f"swap/{file}"
        else:
            yield from (f"{swap}/{file}" for swap in swaps)


def put_all(names, step):
    def run(scene):
        for name in names:
            blows.put_older(scene, name, step)

    return run


def two_steps(step):
    """A store has two of them: the last and the one before."""
    return {step, step - 1}


def manifests_of(files, step, newest_name):
    """The steps that the manifests are of. A file holds that of one parity."""
    found = set()
    for name, parity in ((newest_name, BASE_STEP % 2), (other_of(newest_name), 1 - BASE_STEP % 2)):
        found |= {one for one in two_steps(step if name in files else BASE_STEP) if one % 2 == parity}
    return found


def best_of(files, step, newest_name):
    """The newest step whose manifest and whose tiles are both there, or else the newest snapshot."""
    tiles = two_steps(step if "data" in files else BASE_STEP)
    return max((manifests_of(files, step, newest_name) & tiles) | {SNAPSHOT_STEPS[-1]})


def other_of(name):
    return "manifest.1" if name == "manifest.0" else "manifest.0"


def case_of(files, step, newest_name, swaps):
    names = list(paths_of(files, swaps))
    restored = {"data", "manifest.0", "manifest.1"} <= set(files)
    best = step if restored else best_of(files, step, newest_name)
    # With the log of that time only the manifests may know that there was more.
    known = max({step} | manifests_of(files, step, newest_name)) if "log.jsonl" in files else BASE_STEP
    return Case(f"backup@{step}/{'+'.join(files)}", "backup", put_all(names, step), best, newest=known)


def cases(newest_name, swaps):
    for step in OLDER_STEPS:
        for count in range(1, len(FILES) + 1):
            for files in itertools.combinations(FILES, count):
                yield case_of(files, step, newest_name, swaps)
