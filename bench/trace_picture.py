#!/usr/bin/env python3
"""A step out of a trace, as lines of text.

  penstock train CONFIG --trace step.json && bench/trace_picture.py step.json

Each column is a part of the step. What compute does is filled by how much of that part it takes; NVMe rows say GB/s.
"""
import argparse
import json
from pathlib import Path

FILL = " ░▒▓█"
WAITS = ("wait for weights", "wait for tiles", "wait for commit", "wait for spill")


class Picture:
    def __init__(self, spans, begin, end, width):
        self.spans, self.begin, self.end, self.width = spans, begin, end, width
        self.column = (end - begin) / width

    def of(self, *kinds):
        return [(each["ts"], each["ts"] + each["dur"], each["args"].get("bytes", 0)) for each in self.spans
                if each["cat"] in kinds]

    def columns(self, first, last):
        """Those that an interval meets, and how long it is in each."""
        first, last = max(first, self.begin), min(last, self.end)
        at = int((first - self.begin) / self.column)
        while first < last and at < self.width:
            until = min(last, self.begin + (at + 1) * self.column)
            yield at, until - first
            first, at = until, at + 1

    def busy(self, intervals):
        """The part of each column that they cover, together."""
        covered, reached = [0.0] * self.width, self.begin
        for first, last, _ in sorted(intervals):
            for at, length in self.columns(max(first, reached), last):
                covered[at] += length / self.column
            reached = max(reached, last)
        return covered

    def rates(self, intervals):
        """GB/s: bytes count from the end of the transfer before to the end of their own."""
        moved, before = [0.0] * self.width, self.begin
        for end, count in sorted((last, count) for _, last, count in intervals):
            if end > before:
                for at, length in self.columns(before, end):
                    moved[at] += count * length / (end - before)
            elif self.begin <= end < self.end:
                moved[int((end - self.begin) / self.column)] += count
            before = max(before, end)
        return [count / self.column / 1e3 for count in moved]  # bytes per microsecond: MB/s

    def text(self):
        compute, update = self.busy(self.of("compute")), self.busy(self.of("update"))
        rows = [("compute", "".join(fill(a - b) for a, b in zip(compute, update))), ("update", "".join(map(fill, update))),
                ("wait", "".join(map(fill, self.busy(self.of(*WAITS)))))]
        rows += [(name, "".join(map(digit, self.rates(self.of(name))))) for name in ("NVMe read", "NVMe write")]
        rows.append(("commit", "".join("|" if each > 0 else " " for each in self.busy(self.of("commit")))))
        return "\n".join(f"{name:<11}{row.rstrip()}" for name, row in rows)


def fill(part):
    return FILL[round(max(0.0, min(1.0, part)) * (len(FILL) - 1))]


def digit(rate):
    return " " if rate < 0.05 else "." if rate < 0.5 else str(min(9, round(rate)))


def steps_of(spans):
    """By number: the first moment of its compute."""
    begins = {}
    for each in spans:
        if each["cat"] in ("compute", *WAITS):
            step = each["args"]["step"]
            begins[step] = min(begins.get(step, each["ts"]), each["ts"])
    return begins


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--step", type=int, help="else the last that is followed by another one")
    parser.add_argument("--width", type=int, default=100, help="columns")
    options = parser.parse_args()
    told = json.loads(options.trace.read_text())
    spans = [each for each in told["traceEvents"] if each["ph"] == "X"]
    begins = steps_of(spans)
    whole = sorted(begins)[:-1]
    step = options.step if options.step is not None else whole[-1] if whole else None
    if step not in whole or options.width < 1:
        raise SystemExit(f"{options.trace}: of its steps {sorted(begins)} those that are followed by another one can be "
                         "drawn, in one column at least")
    begin, end = begins[step], begins[min(each for each in begins if each > step)]
    print(f"step {step}: {(end - begin) / 1e6:.2f} s, {(end - begin) / options.width / 1e3:.0f} ms a column")
    print(Picture(spans, begin, end, options.width).text())


if __name__ == "__main__":
    main()
