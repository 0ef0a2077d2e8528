"""RUN/log.jsonl, read strictly and held against the log of a training that nothing ever happened to."""
import json
from dataclasses import dataclass, field
from pathlib import Path

COMPARED = ("loss", "grad_norm", "lr", "tokens")


@dataclass
class LogCheck:
    missing: list = field(default_factory=list)
    doubled: list = field(default_factory=list)
    disorder: bool = False
    foreign: int = 0  # lines that are no record of a step that can be there
    wrong: list = field(default_factory=list)  # steps whose values are others

    def problems(self):
        words = []
        if self.missing:
            words.append(f"lines missing of steps {ranges(self.missing)}")
        if self.doubled:
            words.append(f"steps twice: {ranges(self.doubled)}")
        if self.disorder:
            words.append("not in order")
        if self.foreign:
            words.append(f"{self.foreign} lines that are no step's")
        if self.wrong:
            words.append(f"other values than a training in peace has at steps {ranges(self.wrong)}")
        return words


def ranges(numbers):
    numbers = sorted(numbers)
    parts, begin = [], None
    for i, number in enumerate(numbers):
        begin = number if begin is None else begin
        if i + 1 == len(numbers) or numbers[i + 1] != number + 1:
            parts.append(str(begin) if begin == number else f"{begin}-{number}")
            begin = None
    return ", ".join(parts)


def record_of(line):
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("step"), int):
        return None
    return record


def values_of(record):
    return tuple(record.get(key) for key in COMPARED)


def read_reference(path):
    """step → values, of a training in peace."""
    records = [record_of(line) for line in Path(path).read_text().splitlines()]
    return {record["step"]: values_of(record) for record in records}


def check_log(path, reference, last_step):
    """Whether the log has each step from 1 to last_step once, in order, with the reference's values."""
    check = LogCheck()
    path = Path(path)
    text = path.read_bytes().decode(errors="replace") if path.is_file() else ""
    seen = []
    for line in text.splitlines():
        record = record_of(line)
        if record is None or not 1 <= record["step"] <= last_step:
            check.foreign += 1
            continue
        seen.append(record["step"])
        if values_of(record) != reference.get(record["step"]):
            check.wrong.append(record["step"])
    check.missing = sorted(set(range(1, last_step + 1)) - set(seen))
    check.doubled = sorted({step for step in seen if seen.count(step) > 1})
    check.disorder = seen != sorted(seen)
    return check
