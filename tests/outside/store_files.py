"""Reads locks and manifests by swap/FORMAT.md alone, so that what the program says can be held against its bytes."""
import struct
from dataclasses import dataclass
from pathlib import Path

HEADER_BYTES = 136
LOCK_TEXT_BYTES = 512
MANIFESTS = ("manifest.0", "manifest.1")


@dataclass
class Tile:
    """The record of one tile, and where its current slot lies."""

    object_index: int
    device: int
    offset: int  # of its extent in the device's data, in its current slot
    other_offset: int  # in the slot that is not current; the same where there is one slot
    bytes: int
    extent_bytes: int


@dataclass
class Manifest:
    file: str
    place: int  # where the copy begins
    place_bytes: int
    encoded_bytes: int
    generation: int
    step: int | None
    tiles_offset: int  # from the beginning of the place
    client_offset: int
    tiles: list


def _layout(objects, granule, slots, shares, records):
    """Tiles with their places; equal or other shares, as "Extents and `data`" says."""
    turns, credit = [], [0] * len(shares)
    for _ in range(sum(shares)):
        credit = [have + share for have, share in zip(credit, shares)]
        device = credit.index(max(credit))
        credit[device] -= sum(shares)
        turns.append(device)
    extents = []  # (object, tile, bytes)
    for number, (total, tile_bytes) in enumerate(objects):
        for begin in range(0, total, tile_bytes):
            extents.append((number, min(tile_bytes, total - begin)))
    places = [{} for _ in range(slots)]
    ends = [0] * len(shares)
    for number in range(len(objects)):
        for slot in range(slots):
            for index, (owner, length) in enumerate(extents):
                if owner != number:
                    continue
                device = turns[index % len(turns)]
                places[slot][index] = ends[device]
                ends[device] += -(-length // granule) * granule
    tiles = []
    for index, (owner, length) in enumerate(extents):
        slot = records[index] & 1
        other = 1 - slot if slots == 2 else slot
        extent = -(-length // granule) * granule
        device = turns[index % len(turns)]
        tiles.append(Tile(owner, device, places[slot][index], places[other][index], length, extent))
    return tiles


def _number(value):
    text = value.decode("latin-1")
    if text.strip().lstrip("-").isdigit():
        return int(text)
    return int.from_bytes(value, "little") if len(value) in (4, 8) else None


def parse_manifest(place, file="", offset=0):
    """The manifest in these bytes, or None. Its hash is not looked at."""
    if len(place) < HEADER_BYTES or place[:8] != b"PENSTOCK":
        return None
    try:
        (encoded,) = struct.unpack_from("<Q", place, 16)
        generation, _, _, granule = struct.unpack_from("<4Q", place, 56)
        slots, devices, object_count, tile_count, entries = struct.unpack_from("<5I", place, 88)
        shares = struct.unpack_from(f"<{devices}H", place, HEADER_BYTES)
        at = HEADER_BYTES + 2 * devices
        objects = []
        for _ in range(object_count):
            total, tile_bytes, name_bytes = struct.unpack_from("<QQH", place, at)
            objects.append((total, tile_bytes))
            at += 18 + name_bytes
        tiles_offset = at
        records = [place[at + 25 * i + 24] for i in range(tile_count)]
        at += 25 * tile_count
        client_offset, step = at, None
        for _ in range(entries):
            key_bytes, value_bytes = struct.unpack_from("<II", place, at)
            key = place[at + 8 : at + 8 + key_bytes]
            value = place[at + 8 + key_bytes : at + 8 + key_bytes + value_bytes]
            step = _number(value) if key == b"step" else step
            at += 8 + key_bytes + value_bytes
        tiles = _layout(objects, granule, slots, shares, records)
    except (struct.error, IndexError, ZeroDivisionError, ValueError):
        return None
    return Manifest(file, offset, len(place), encoded, generation, step, tiles_offset, client_offset, tiles)


def read_copies(directory):
    """The four copies, None for what is no manifest."""
    copies = []
    for name in MANIFESTS:
        path = Path(directory) / name
        content = path.read_bytes() if path.is_file() else b""
        half = len(content) // 2
        copies.append([parse_manifest(content[i * half : (i + 1) * half], name, i * half) for i in (0, 1)])
    return copies


def newest(directory):
    found = [copy for file in read_copies(directory) for copy in file if copy]
    return max(found, key=lambda copy: copy.generation, default=None)


def committed_step(directory):
    """The step of the newest manifest on disk; None where nothing is committed."""
    found = newest(directory)
    return found.step if found else None


def commit_was_cut(directory):
    """Whether the newest generation has its first copy and not yet its second."""
    found = newest(directory)
    if found is None:
        return False
    first, second = next(file for file in read_copies(directory) if found.file in {c.file for c in file if c})
    return first is None or second is None or first.generation != second.generation


def is_whole_snapshot(directory):
    return newest(directory) is not None
