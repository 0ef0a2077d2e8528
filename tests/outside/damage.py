"""Cases of damage: every file of a run × everything that may happen to it, and what its bytes still allow then."""
import functools
import random

import blows
import store_files
from scene import BASE_STEP, OLDER_STEPS, SNAPSHOT_STEPS
from verdict import Case

SNAPSHOT = SNAPSHOT_STEPS[-1]
SWAP_FILES = ("lock", "data", "manifest.0", "manifest.1")


class Base:
    """What the outside reader knows of the base's store."""

    def __init__(self, scene):
        self.scene = scene
        self.swap = scene.copy_of(BASE_STEP) / "swap"
        self.manifest = store_files.newest(self.swap)
        self.newest_name = self.manifest.file
        self.older_name = next(name for name in store_files.MANIFESTS if name != self.newest_name)

    def length(self, name):
        return (self.scene.copy_of(BASE_STEP) / name).stat().st_size


def blow_on(name, blow, *more):
    return lambda scene: blow(scene.work / name, *more)


def all_of(*steps):
    def run(scene):
        for step in steps:
            step(scene)

    return run


def whole_file_cases(name, group, best_when_gone, best_of=None):
    for blow in blows.WHOLE_FILE:
        best = BASE_STEP if blow in blows.KEEP_CONTENTS else best_when_gone
        best = (best_of or {}).get(blow, best)
        yield Case(f"{name}/{blows.name_of(blow)}", group, blow_on(name, blow), best)


def older_cases(name, group, best_of):
    for step in OLDER_STEPS:
        blow = functools.partial(blows.put_older, name=name, step=step)
        yield Case(f"{name}/older@{step}", group, blow, best_of(step))


def lock_cases(base):
    for swap in base.swaps:
        name = f"{swap}/lock"
        yield from whole_file_cases(name, "lock", BASE_STEP)
        yield from older_cases(name, "lock", lambda step: BASE_STEP)
        text = (base.scene.copy_of(BASE_STEP) / name).read_bytes()
        words = {key: text.find(key.encode()) for key in ("penstock", "job", "uuid", "device", "pid", "host", "check")}
        for word, at in {**words, "padding": store_files.LOCK_TEXT_BYTES - 2}.items():
            value = at + (len(word) + 3 if word not in ("penstock", "padding") else 0)
            for where, offsets in copies_of(value, store_files.LOCK_TEXT_BYTES, len(text)).items():
                yield flips(f"{name}/flip-{word}-{where}", "lock", name, offsets)


def copies_of(offset, distance, length):
    """The same byte in the first copy, in the second, in both."""
    found = {"first": [offset]}
    if offset + distance < length:
        found |= {"second": [offset + distance], "both": [offset, offset + distance]}
    return found


def flips(name, group, file, offsets, best=BASE_STEP, mask=0x10, **more):
    return Case(name, group, all_of(*(blow_on(file, blows.flip, offset, mask) for offset in offsets)), best, **more)


def manifest_offsets(manifest, draw):
    return {
        "magic": 0,
        "version": 8,
        "reserved": 13,
        "length": 17,
        "hash": 30,
        "uuid": 44,
        "generation": 56,
        "incarnation": 65,
        "time": 73,
        "granule": 81,
        "slots": 88,
        "devices": 92,
        "objects": 96,
        "tiles": 100,
        "entries": 104,
        "origin": 113,
        "shares": 136,
        "object": 140,
        "tile-record": manifest.tiles_offset + draw.randrange(25 * len(manifest.tiles)),
        "client": manifest.client_offset + draw.randrange(100),
        "padding": manifest.encoded_bytes - 1,
        "beyond": manifest.place_bytes - 1,
    }


def manifest_cases(base, draw):
    for bare, gone in ((base.newest_name, BASE_STEP - 1), (base.older_name, BASE_STEP)):
        name = f"swap/{bare}"
        group = "manifest, newest" if bare == base.newest_name else "manifest, older"
        # Half a file has the first copy, one byte less than all has it as well.
        kept = {blows.halved: BASE_STEP, blows.short_by_one: BASE_STEP}
        yield from whole_file_cases(name, group, gone, kept)
        yield from older_cases(name, group, lambda step, gone=gone: gone)
        copies = store_files.read_copies(base.swap)[store_files.MANIFESTS.index(bare)]
        for word, at in manifest_offsets(copies[0], draw).items():
            for where, offsets in copies_of(at, copies[0].place_bytes, base.length(name)).items():
                harmless = where != "both" or word == "beyond"
                yield flips(f"{name}/flip-{word}-{where}", group, name, offsets, BASE_STEP if harmless else gone)


def data_cases(base, draw):
    for device, swap in enumerate(base.swaps):
        name = f"{swap}/data"
        tiles = [tile for tile in base.manifest.tiles if tile.device == device]
        last = max(tiles, key=lambda tile: max(tile.offset, tile.other_offset))
        cut = BASE_STEP - 1 if last.offset > last.other_offset and last.bytes == last.extent_bytes else BASE_STEP
        yield from whole_file_cases(name, "data", SNAPSHOT, {blows.short_by_one: cut})
        # The copy of the step before has the tiles of that step, of which the older manifest is.
        yield from older_cases(name, "data", lambda step: step if step == BASE_STEP - 1 else SNAPSHOT)
        for number, tile in enumerate(draw.sample(tiles, min(4, len(tiles)))):
            at = draw.randrange(tile.bytes)
            yield flips(f"{name}/flip-current-{number}", "data", name, [tile.offset + at], BASE_STEP - 1)
            yield flips(f"{name}/flip-other-{number}", "data", name, [tile.other_offset + at])
            both = [tile.offset + at, tile.other_offset + at]
            yield flips(f"{name}/flip-both-{number}", "data", name, both, SNAPSHOT)
        padded = [tile for tile in tiles if tile.bytes < tile.extent_bytes]
        for tile in padded[:1]:
            yield flips(f"{name}/flip-padding", "data", name, [tile.offset + tile.bytes], BASE_STEP - 1)


def pair_cases(base):
    for blow in (blows.removed, blows.emptied, blows.zeroed, blows.garbage):
        both = [blow_on(f"swap/{name}", blow) for name in store_files.MANIFESTS]
        word = blows.name_of(blow)
        yield Case(f"manifests/{word}", "both manifests", all_of(*both), SNAPSHOT)
        lock = blow_on("swap/lock", blow)
        newest, older = (blow_on(f"swap/{name}", blow) for name in (base.newest_name, base.older_name))
        yield Case(f"lock+newest/{word}", "two files", all_of(lock, newest), BASE_STEP - 1)
        yield Case(f"lock+older/{word}", "two files", all_of(lock, older), BASE_STEP)
        yield Case(f"lock+data/{word}", "two files", all_of(lock, blow_on("swap/data", blow)), SNAPSHOT)
        yield Case(f"all-but-kept/{word}", "two files", all_of(lock, blow_on("swap/data", blow), *both), SNAPSHOT)
        three = all_of(lock, *both)
        yield Case(f"lock+manifests/{word}", "two files", three, SNAPSHOT)
        yield Case(f"log+lock/{word}", "two files", all_of(lock, blow_on("run/log.jsonl", blow)), BASE_STEP)


def snapshot_cases(base, draw):
    folder = f"swap/kept/step-{SNAPSHOT}"
    files = sorted(entry.name for entry in (base.scene.copy_of(BASE_STEP) / folder).iterdir())
    for bare in files:
        name = f"{folder}/{bare}"
        length = base.length(name)
        found = [(blows.name_of(blow), blow_on(name, blow), blow in blows.KEEP_CONTENTS) for blow in blows.WHOLE_FILE]
        for offset in sorted({draw.randrange(length) for _ in range(4)} | {0}) if length else []:
            found.append((f"flip@{offset}", blow_on(name, blows.flip, offset), False))
        for word, blow, kept in found:
            yield Case(f"{name}/{word}", "snapshot, run goes on", blow)
            # All that a lock says is in manifest.0, and manifest.1 of a snapshot is always empty.
            needless = bare in ("lock", "manifest.1") or (bare == "manifest.0" and word in ("halved", "short-by-one"))
            best = SNAPSHOT if kept or needless else SNAPSHOT_STEPS[0]
            yield Case(f"{name}/{word}/resume", "snapshot, --resume-from", blow, best,
                       ("--resume-from", f"step-{SNAPSHOT}"), newest=best)


def log_blow(change):
    def run(scene):
        path = scene.work / "run/log.jsonl"
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))

    return run


def shuffled(lines):
    lines = list(lines)
    random.Random(3).shuffle(lines)
    return lines


LOGS = {
    "doubled-file": lambda lines: lines + lines,
    "doubled-lines": lambda lines: [line for one in lines for line in (one, one)],
    "shuffled": shuffled,
    "two-swapped": lambda lines: lines[:2] + [lines[3], lines[2]] + lines[4:],
    "foreign-object": lambda lines: lines[:3] + [b'{"hello": 1}\n'] + lines[3:],
    "foreign-text-first": lambda lines: [b"# a log\n"] + lines,
    "foreign-bytes": lambda lines: lines[:5] + [bytes(range(128, 200)) + b"\n"] + lines[5:],
    "foreign-step": lambda lines: lines[:3] + [b'{"step": 999, "loss": 1.0}\n'] + lines[3:],
    "foreign-step-below": lambda lines: lines[:3] + [b'{"step": 2, "loss": 1.0}\n'] + lines[3:],
    "step-ahead-at-end": lambda lines: lines + [lines[-1].replace(b'"step":8', b'"step":9')],
    "first-gone": lambda lines: lines[1:],
    "middle-gone": lambda lines: lines[:3] + lines[4:],
    "last-gone": lambda lines: lines[:-1],
    "last-three-gone": lambda lines: lines[:-3],
    "last-torn": lambda lines: lines[:-1] + [lines[-1][:40]],
    "last-without-end": lambda lines: lines[:-1] + [lines[-1][:-1]],
    "blank-line": lambda lines: lines[:3] + [b"\n"] + lines[3:],
    "windows-ends": lambda lines: [line[:-1] + b"\r\n" for line in lines],
    "zeros-at-end": lambda lines: lines[:-2] + [bytes(len(lines[-2]) + len(lines[-1]))],
    "of-another-run": lambda lines: [line.replace(b'"loss":', b'"loss":1') for line in lines],
}


def log_cases(base, draw):
    name = "run/log.jsonl"
    yield from whole_file_cases(name, "log", BASE_STEP)
    yield from older_cases(name, "log", lambda step: BASE_STEP)
    for word, change in LOGS.items():
        # Nobody can know a loss but by computing it again.
        excused = frozenset(range(1, BASE_STEP + 1)) if word == "of-another-run" else frozenset()
        yield Case(f"{name}/{word}", "log", log_blow(change), excused=excused)
    text = (base.scene.copy_of(BASE_STEP) / name).read_bytes()
    for word, at in {"brace": 0, "key": 2, "step": text.find(b'"step":') + 7, "end": text.find(b"\n")}.items():
        yield flips(f"{name}/flip-{word}", "log", name, [at])
    yield flips(f"{name}/flip-loss", "log", name, [text.find(b'"loss":') + 9], excused=frozenset({1}), mask=1)


def side_cases(base, draw):
    for name, group in (("run/store.json", "store.json"), ("run/summary.json", "summary.json"),
                        ("text.tokens", "tokens"), ("swap/penstock-profile.json", "profile")):
        yield from whole_file_cases(name, group, BASE_STEP)
        for offset in sorted(draw.sample(range(base.length(name)), 5)):
            yield flips(f"{name}/flip@{offset}", group, name, [offset])
    for name in ("run", "swap/kept"):
        for blow in (blows.removed, blows.dangling_link, blows.link_to_itself, blows.link_elsewhere, blows.pipe):
            yield Case(f"{name}/{blows.name_of(blow)}", "directories", blow_on(name, blow))
    for name in base.swaps:
        for blow in (blows.unmounted, blows.removed, blows.dangling_link, blows.link_elsewhere, blows.pipe):
            best = BASE_STEP if blow is blows.link_elsewhere else SNAPSHOT if name != "swap" else None
            yield Case(f"{name}/{blows.name_of(blow)}", "directories", blow_on(name, blow), best)


def permission_cases(base, nobody):
    """As another user than root, whom nothing is forbidden."""
    snapshot = f"swap/kept/step-{SNAPSHOT}"
    names = [*(f"{swap}/{file}" for swap in base.swaps for file in ("lock", "data")), "swap/manifest.0",
             "swap/manifest.1", "run/log.jsonl", "run/store.json", "run/summary.json", "text.tokens",
             "swap/penstock-profile.json", "swap", "run", "swap/kept", snapshot, f"{snapshot}/lock"]
    for name in names:
        for blow in blows.PERMISSIONS:
            given = all_of(blow_on(name, blow), nobody.give)
            yield Case(f"{name}/{blows.name_of(blow)}", "permissions", given, program=nobody.program)


def cases(scene, seed, nobody=None):
    base = Base(scene)
    base.swaps = ["swap", "swap2"] if scene.form == "two" else ["swap"]
    draw = random.Random(seed)
    yield from lock_cases(base)
    yield from manifest_cases(base, draw)
    yield from data_cases(base, draw)
    if scene.form != "two":
        yield from pair_cases(base)
    yield from snapshot_cases(base, draw)
    yield from log_cases(base, draw)
    yield from side_cases(base, draw)
    if nobody:
        yield from permission_cases(base, nobody)
