"""The safetensors format: what the safetensors library writes is read, and the other way; hostile files are refused."""
from __future__ import annotations

import json
import random
import struct

import pytest
import torch

import penstock
from penstock.files.safetensors_file import TYPES, SafetensorsFile, SafetensorsWriter, TensorInfo
from penstock.weights.bits import same_bits

ONE = {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}


def file_of(header, data: bytes = bytes(24), length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(begin: int, end: int, dtype: str = "F32", shape=None):
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


def read(path, content: bytes):
    path.write_bytes(content)
    file = SafetensorsFile(path)
    return {name: file.read(name) for name in file.tensors}


def tensors_of_all_types():
    made = {}
    for name, dtype in TYPES.items():
        count = 6 * dtype.itemsize
        raw = torch.arange(count, dtype=torch.uint8) % (2 if dtype == torch.bool else 251)
        made[name] = raw.view(dtype).view(2, 3)
    return {**made, "scalar": torch.tensor(3.5), "empty": torch.zeros(0, 4)}


def bits(tensor):
    return (tensor.dtype, tuple(tensor.shape), bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()))


def test_what_is_written_is_what_the_library_reads_and_what_the_library_writes_is_read(tmp_path):
    library = pytest.importorskip("safetensors.torch")
    made = tensors_of_all_types()
    infos = {name: TensorInfo(tuple(each.shape), each.dtype) for name, each in made.items()}
    with SafetensorsWriter(tmp_path / "ours", infos) as file:
        for name in reversed(list(made)):
            file.write(name, made[name])
    theirs = library.load_file(tmp_path / "ours")
    assert theirs.keys() == made.keys() and all(bits(theirs[name]) == bits(made[name]) for name in made)
    library.save_file(made, tmp_path / "theirs", metadata={"format": "pt"})
    ours = SafetensorsFile(tmp_path / "theirs")
    assert all(bits(ours.read(name)) == bits(made[name]) for name in made)
    assert same_bits(SafetensorsFile(tmp_path / "ours").read("F32"), made["F32"])


@pytest.mark.parametrize("content, text", [
    (b"1234", "4 bytes"), (struct.pack("<Q", 1 << 63) + b"{}", "more than"),
    (file_of(ONE, length=1000), "header is said to have 1000 bytes"), (file_of(b'{"\xff": 1}'), "not UTF-8 at byte 2"),
    (file_of("{"), "no JSON"), (file_of("[" * 100_000), "no JSON"), (file_of("[]"), "no object"),
    (file_of('{"\\ud800": {}}'), "name, '.ud800', is not UTF-8"),
    (file_of('{"a": 1, "a": 2}'), "has 'a' twice"),
    (file_of('{"a": {"dtype": "F32", "dtype": "F32"}}'), "'dtype' twice"),
    (file_of({"__metadata__": {"a": 1}, **ONE}), "__metadata__"), (file_of({"a": 3}), "is not said by"),
    (file_of({"a": {**ONE["a"], "more": 1}}), "is not said by"), (file_of({"a": entry(0, 24, "F31")}), "type 'F31'"),
    (file_of({"a": entry(0, 24, 32)}), "type 32"), (file_of({"a": entry(0, 24, shape=[-2, -3])}), "shape .-2, -3."),
    (file_of({"a": entry(0, 24, shape=[2.0, 3])}), "shape .2.0, 3."),
    (file_of({"a": entry(0, 24, shape=[True, 6])}), "shape .True, 6."),
    (file_of({"a": entry(0, 24, shape=[1] * 65 + [6])}), "has the shape"),
    (file_of({"a": entry(0, 24, shape="6")}), "shape '6'"), (file_of({"a": entry(0, 24, shape=[7])}), "takes 28 bytes"),
    (file_of({"a": entry(0, 0, shape=[0, 1 << 62])}, b""), "has the shape"),
    (file_of({"a": entry(0, 24, shape=[1 << 61, 1 << 61])}), "takes"),
    (file_of({"a": entry(0, 28)}), "said to lie at .0, 28. of 24 bytes"),
    (file_of({"a": entry(24, 0, shape=[0])}), "said to lie at"), (file_of({"a": entry(-4, 20)}), "said to lie at"),
    (file_of({"a": {**ONE["a"], "data_offsets": [0]}}), "said to lie at"),
    (file_of({"a": entry(0, 16), "b": entry(12, 24)}), "'b' overlaps"),
    (file_of({"a": entry(0, 24), "b": entry(0, 24)}), "'b' overlaps"),
    (file_of({"a": entry(0, 12), "b": entry(16, 24)}), "'b' does not begin at"),
    (file_of({"a": entry(0, 20)}), "4 bytes at its end"), (file_of({}), "24 bytes at its end"),
])
def test_a_hostile_header_is_refused_by_what_is_wrong_with_it(tmp_path, content, text):
    with pytest.raises(penstock.WeightsError, match=text) as refused:
        read(tmp_path / "hostile.safetensors", content)
    assert "hostile.safetensors" in str(refused.value) and len(str(refused.value)) < 600
    str(refused.value).encode("utf-8")


def test_a_file_that_becomes_shorter_while_it_is_read_is_named(tmp_path):
    path = tmp_path / "short.safetensors"
    path.write_bytes(file_of(ONE))
    file = SafetensorsFile(path)
    path.write_bytes(file_of(ONE)[:-5])
    with pytest.raises(penstock.WeightsError, match="'a' ends after 19 of 24 bytes"):
        file.read("a")
    path.unlink()
    with pytest.raises(penstock.WeightsError, match="'a' cannot be read: No such file"):
        file.read("a")


def mutated(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(min(len(changed), 400)) if changed else 0
        kind = rng.randrange(6)
        if kind == 0 and changed:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at:at + rng.randrange(1, 20)]
        elif kind == 2:
            changed[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
        elif kind == 3:
            changed[at:at + 1] = rng.choice((b"-", b"9", b"e", b'"', b"{", b"[", b"null", b"1e999", b"NaN", b"\\u"))
        elif kind == 4:
            changed[:8] = struct.pack("<Q", rng.choice((0, 1, 1 << 20, 1 << 40, (1 << 64) - 1, len(content))))
        else:
            other = rng.randrange(min(len(changed), 400)) if changed else 0
            changed[at:at + 8] = changed[other:other + 8]
    return bytes(changed)


def test_of_thousands_of_mutated_files_each_is_read_or_refused(tmp_path):
    """Nothing but WeightsError comes out; what is read lies within the file. Seed and turn are in the failure."""
    header = {"__metadata__": {"format": "pt"}, "a": entry(0, 24, shape=[2, 3]), "b": entry(24, 28, "BF16", [2]),
              "c.weight": entry(28, 28, shape=[0]), "d": entry(28, 36, "I64", [1])}
    content = file_of(header, bytes(range(36)))
    seed, refused, read_whole = 20, 0, 0
    rng = random.Random(seed)
    for turn in range(6000):
        data = mutated(rng, content)
        try:
            got = read(tmp_path / "mutated.safetensors", data)
            read_whole += 1
            assert sum(each.numel() * each.element_size() for each in got.values()) <= len(data), (seed, turn)
        except penstock.WeightsError:
            refused += 1
        except BaseException as error:
            raise AssertionError(f"seed {seed}, turn {turn}: {type(error).__name__}: {error}; {data!r}") from error
    assert refused > 3000 and read_whole > 100
