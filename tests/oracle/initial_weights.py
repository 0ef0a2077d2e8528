#!/usr/bin/env python3
"""The first weights of some parameters of the tests' toy model, from the definitions alone: Python without packages.

  python3 tests/oracle/initial_weights.py > tests/oracle/initial_weights.golden

A parameter is drawn by the Mersenne twister (MT19937) seeded with the lower 32 bits of XXH3-64("UNIT/PARAMETER", seed of
the run): blocks of 16 uniform numbers of 24 bits, of which the first and the second 8 give the cosines and the sines of
Box and Muller's transform, as torch's normal_() fills a tensor of 16 elements or more.
"""
import math
import random

MASK = (1 << 64) - 1
SECRET = bytes.fromhex(  # bytes 24 to 55 of XXH3's default secret
    "7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e")


def word(data, at):
    return int.from_bytes(data[at:at + 8], "little")


def xxh3(name, seed):
    """XXH3-64 of 9 to 16 bytes."""
    data = name.encode()
    assert 9 <= len(data) <= 16, name
    low = word(data, 0) ^ (((word(SECRET, 0) ^ word(SECRET, 8)) + seed) & MASK)
    high = word(data, len(data) - 8) ^ (((word(SECRET, 16) ^ word(SECRET, 24)) - seed) & MASK)
    product = low * high
    folded = (product & MASK) ^ (product >> 64)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    value = (len(data) + swapped + high + folded) & MASK
    value ^= value >> 37
    value = value * 0x165667919E3779F9 & MASK
    return value ^ value >> 32


def uniform(seed):
    state = [seed & 0xFFFFFFFF]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) & 0xFFFFFFFF)
    twister = random.Random()
    twister.setstate((3, tuple(state) + (624,), None))
    while True:
        yield (twister.getrandbits(32) & 0xFFFFFF) / (1 << 24)


def first_block(name, seed, deviation):
    draw = uniform(xxh3(name, seed))
    block = [next(draw) for _ in range(16)]
    radius = [math.sqrt(-2 * math.log(1 - each)) for each in block[:8]]
    angle = [2 * math.pi * each for each in block[8:]]
    return [deviation * r * math.cos(a) for r, a in zip(radius, angle)] + \
           [deviation * r * math.sin(a) for r, a in zip(radius, angle)]


def main():
    for unit, parameter, name, deviation in ((0, 0, "embedding/table", 0.5), (1, 1, "blocks.0/mix", 0.15),
                                             (2, 1, "blocks.1/mix", 0.15), (4, 1, "head/weight", 0.2)):
        for seed in (1, 0x123456789ABCDEF):
            numbers = first_block(name, seed, deviation)
            first = ",\n     ".join(", ".join(f"{each:.8g}F" for each in numbers[i:i + 8]) for i in (0, 8))
            print(f'{{{unit}, {parameter}, "{name}", {seed:#x},\n    {{{first}}}}},')


main()
