"""The package's rooms: which may import from which, how many files they have, and that FILES.md has each of them."""
from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import penstock

PACKAGE = Path(penstock.__file__).resolve().parent
# Folders, and files at the root: each imports only from those before it, wherever in a file an import stands.
ROOMS = """errors version core optimizer_kinds loss_scale given machine launch units settings store weights native ranks run
           monitors step files optimizers optimizer checkpoints configuration managed_model engine zero opening
           deepspeed/configuration deepspeed hugging_face plans doctor command __main__ __init__""".split()
FILES_MOST = 25  # of a folder, as tests/tidy has it
Texts = Mapping[str, str]  # by a file's path in the package


def package() -> dict[str, str]:
    return {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}


def room_of(file: str) -> str:
    return file.rpartition("/")[0] or file.removesuffix(".py")


def file_of(parts: list[str], texts: Texts) -> str:
    """The module's, or that of the module which has the name."""
    while parts:
        for each in ("/".join(parts) + ".py", "/".join([*parts, "__init__.py"])):
            if each in texts:
                return each
        parts = parts[:-1]
    return "__init__.py"


def imports_of(file: str, texts: Texts) -> Iterator[str]:
    """Files of the package, also those that are imported within functions, or for the type checker."""
    for node in ast.walk(ast.parse(texts[file])):
        if isinstance(node, ast.Import):
            named = [each.name.split(".") for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ["penstock", *file.split("/")[:-1]]
            begin = above[:len(above) - node.level + 1] if node.level else []
            named = [[*begin, *(node.module or "").split("."), each.name] for each in node.names]
        else:
            continue
        for parts in ([each for each in parts if each] for parts in named):
            if parts[0] == "penstock":
                yield file_of(parts[1:], texts)


def graph_of(texts: Texts) -> dict[str, set[str]]:
    return {file: {*imports_of(file, texts)} - {file} for file in texts}


def arrows_up(texts: Texts) -> list[str]:
    place = {room: number for number, room in enumerate(ROOMS)}
    return [f"{file} imports {other}" for file, others in graph_of(texts).items() for other in sorted(others)
            if place[room_of(other)] > place[room_of(file)]]


def in_circles(texts: Texts) -> set[str]:
    """Files that import themselves, over others."""
    graph = graph_of(texts)

    def reached(file: str) -> set[str]:
        found: set[str] = set()
        ahead = [*graph[file]]
        while ahead:
            each = ahead.pop()
            if each not in found:
                found.add(each)
                ahead += graph[each]
        return found
    return {file for file in texts if file in reached(file)}


def named_in_files_md() -> Counter[str]:
    """A name without a folder is in that of the name before it in its row."""
    found: Counter[str] = Counter()
    table, _ = (PACKAGE.parent / "FILES.md").read_text().split("## Tests")
    for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
        folder = ""
        for name in re.findall(r"`([^`]+\.py)`", row):
            folder = name.rpartition("/")[0] or folder
            found[f"{folder}/{name.rpartition('/')[2]}".removeprefix("/")] += 1
    return found


def test_each_room_imports_only_from_those_before_it():
    texts = package()
    assert {room_of(file) for file in texts} == {*ROOMS}
    assert arrows_up(texts) == []


def test_no_files_import_each_other():
    assert in_circles(package()) == set()


def test_no_folder_is_a_store():
    files = Counter(str(Path(file).parent) for file in package())
    assert {folder: count for folder, count in files.items() if count > FILES_MOST} == {}


def test_the_list_of_files_has_each_once():
    wanted = {file for file in package() if not file.endswith("__init__.py")}
    assert named_in_files_md() == Counter(wanted)


def test_an_import_of_a_room_behind_is_seen_wherever_it_stands():
    others = dict.fromkeys(("__init__.py", "core.py", "engine.py", "weights/lent.py"), "")
    up = "from ..engine import Engine"
    for text in (up, f"def f():\n    {up}", f"if TYPE_CHECKING:\n    {up}", "import penstock.engine", "from .. import engine",
                 "from penstock.engine import Engine"):
        assert arrows_up({**others, "weights/bits.py": text}) == ["weights/bits.py imports engine.py"]
    assert arrows_up({**others, "weights/bits.py": "from ..core import Core\nfrom . import lent"}) == []


def test_a_circle_is_seen_and_who_only_leads_to_it_is_none_of_it():
    ring = {"run/a.py": "from .b import x", "run/b.py": "from . import c", "run/c.py": "def f():\n    from .a import y"}
    others = {"plans/d.py": "from ..run import a", "core.py": ""}
    assert in_circles({**ring, **others}) == {*ring}
    assert in_circles({**ring, **others, "run/c.py": "from ..core import Core"}) == set()
