"""A part of the package is whole after its own constructor, and changes by its own calls: no other file writes its
attributes."""
from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from test_rooms import Texts, package

# What has the name of an attribute of ours, and is another's.
OTHERS = {
    "checkpoints/kept_scheduler.py: scheduler.optimizer": "torch's",
    "hugging_face.py: trainer.optimizer": "transformers'",
    "doctor/disk.py: pages.memory": "of a thread",
    "native/described.py: given.kept": "of a C structure",
    "native/session.py: listed.units": "of a C structure",
    "step/generators.py: _numpys_bits(value).state": "numpy's",
    "zero.py: parameter.data": "torch's", "zero.py: out.data": "torch's",
    "step/keeper.py: each.penstock_keeper": "parameters of the program become ours by it",
}


def written(text: str) -> Iterator[ast.Attribute]:
    for node in ast.walk(ast.parse(text)):
        targets = node.targets if isinstance(node, ast.Assign) else (
            [node.target] if isinstance(node, (ast.AugAssign, ast.AnnAssign)) else [])
        for target in targets:
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(each, ast.Attribute):
                    yield each


def is_own(target: ast.Attribute) -> bool:
    return isinstance(target.value, ast.Name) and target.value.id == "self"


def of_classes(text: str) -> Iterator[str]:
    """Attributes that a file's classes give themselves, or declare."""
    yield from (each.attr for each in written(text) if is_own(each))
    for node in ast.walk(ast.parse(text)):
        for each in node.body if isinstance(node, ast.ClassDef) else ():
            targets = each.targets if isinstance(each, ast.Assign) else [each.target] if isinstance(each, ast.AnnAssign) else []
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def written_from_outside(texts: Texts) -> set[str]:
    files = defaultdict(set)
    for file, text in texts.items():
        for name in of_classes(text):
            files[name].add(file)
    return {f"{file}: {ast.unparse(each)}" for file, text in texts.items() for each in written(text)
            if not is_own(each) and files[each.attr] and file not in files[each.attr]}


def test_no_file_writes_what_is_another_ones():
    assert written_from_outside(package()) == {*OTHERS}


def test_what_is_written_from_outside_is_found():
    part = "class Part:\n    def __init__(self):\n        self.told = None\n"
    for text in ("part.told = print", "self.part.told = print", "part.told, x = print, 1", "part.told += 1"):
        assert written_from_outside({"part.py": part, "engine.py": text}) == {f"engine.py: {text.partition('told')[0]}told"}
    assert written_from_outside({"part.py": part + "Part().told = 1", "engine.py": "part.tell(print)"}) == set()
