"""What may be where a store was, times who is said to own the run, times the log, times the command that follows."""
import itertools
import json

import blows
import toy
from scene import BASE_STEP, SNAPSHOT_STEPS
from verdict import Case

SNAPSHOT = SNAPSHOT_STEPS[-1]
OLDER = 6  # more than one commit before the base
COMMANDS = {"plain": (), "resume": ("--resume-from", f"step-{SNAPSHOT}"), "back": ("--go-back",)}


def of_store(change):
    """Changes all of a store but its kept snapshots; `change` gets the lock as it was."""

    def run(scene):
        swap = scene.work / "swap"
        lock = (swap / "lock").read_bytes()
        for entry in swap.iterdir():
            if entry.name not in ("kept", "penstock-profile.json"):
                toy.remove_tree(entry)
        change(swap / "lock", lock)

    return run


def put_back_older(scene):
    for name in ("lock", "data", "manifest.0", "manifest.1"):
        blows.put_older(scene, f"swap/{name}", OLDER)


# Each with the newest step that it still holds; None: there is no store.
STORES = {
    "whole": (lambda scene: None, BASE_STEP),
    "older": (put_back_older, OLDER),
    "gone": (of_store(lambda path, lock: None), None),
    "lock": (of_store(lambda path, lock: path.write_bytes(lock)), None),
    "lock-emptied": (of_store(lambda path, lock: path.write_bytes(b"")), None),
    "lock-zeroed": (of_store(lambda path, lock: path.write_bytes(bytes(len(lock)))), None),
    "lock-cut": (of_store(lambda path, lock: path.write_bytes(lock[:100])), None),
    "lock-torn": (of_store(lambda path, lock: path.write_bytes(lock[:200] + bytes(len(lock) - 200))), None),
}


def of_owner(change):
    def run(scene):
        path = scene.work / "run/store.json"
        path.write_text(change(path.read_text()))

    return run


def other_store(text):
    owner = json.loads(text)
    owner["store"] = ("1" if owner["store"][0] == "0" else "0") + owner["store"][1:]
    return json.dumps(owner)


def other_place(text):
    return json.dumps({**json.loads(text), "directory": "/nowhere/at/all"})


# Each with whether it still says that a store was in this place.
OWNERS = {
    "known": (lambda scene: None, True),
    "removed": (lambda scene: blows.removed(scene.work / "run/store.json"), False),
    "emptied": (of_owner(lambda text: ""), False),
    "garbage": (of_owner(lambda text: text.replace('"', "#")), False),
    "other-store": (of_owner(other_store), True),
    "other-place": (of_owner(other_place), False),
}


def of_another(scene):
    path = scene.work / "run/log.jsonl"
    text = path.read_text()
    path.write_text(text.replace('"loss":', '"loss":1').replace('"grad_norm":', '"grad_norm":1'))


LOGS = {
    "log": lambda scene: None,
    "no-log": lambda scene: blows.removed(scene.work / "run/log.jsonl"),
    "log-of-another": of_another,
}


def all_of(*steps):
    def run(scene):
        for step in steps:
            step(scene)

    return run


def best_of(holds, command):
    if command == "back" and holds is None:
        return 0
    return SNAPSHOT if command == "resume" or holds is None else holds


def known_of(holds, owner, log):
    """The newest step that anything left knows of. Another run's log says nothing of this store, unless its owner does."""
    if log == "log" or (log == "log-of-another" and (holds is None or owner == "known")):
        return BASE_STEP
    if holds is None:
        return SNAPSHOT if OWNERS[owner][1] else 0
    return holds


def cases():
    for store, owner, log, command in itertools.product(STORES, OWNERS, LOGS, COMMANDS):
        change, holds = STORES[store]
        known = known_of(holds, owner, log)
        best = best_of(holds, command)
        if command == "plain":
            best = min(best, known)
        blow = all_of(change, OWNERS[owner][0], LOGS[log])
        yield Case(f"{store}/{owner}/{log}/{command}", "states", blow, best, COMMANDS[command], newest=known)
