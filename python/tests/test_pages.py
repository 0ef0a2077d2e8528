"""Pages: links and anchors lead somewhere, figures are the measured ones, what is generated is what it would be now."""
from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [each for each in ROOT.iterdir() if each.is_dir() and not re.match(r"\.|build$|shared$", each.name)]
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))])
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
DAY = ("install", "first-run", "trainer-script", "from-deepspeed", "settings", "gpus", "launch", "checkpoints", "trouble",
       "how-it-works", "libraries")


def prose_of(text: str) -> str:
    """Without blocks and spans of code."""
    return re.sub(r"`[^`\n]*`", "`code`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL))


def anchors_of(text: str) -> set[str]:
    """As GitHub makes them of headings."""
    found: set[str] = set()
    without_code = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for title in re.findall(r"^#+ (.*)$", without_code, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(slug if slug not in found else f"{slug}-{sum(each.startswith(slug) for each in found)}")
    return found


def broken(page: Path, text: str) -> list[str]:
    wrong = []
    for link in LINK.findall(prose_of(text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            wrong.append(f"{link}: there is no {target}")
        elif anchor and (target.suffix != ".md" or anchor not in anchors_of(target.read_text())):
            wrong.append(f"{link}: {target.name} has no such heading")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda each: str(each.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert not broken(page, page.read_text())


def test_a_link_that_leads_nowhere_is_found():
    page = ROOT / "docs/README.md"
    text = ("[a](gone.md) [b](install.md#gone) [c](#gone) [d](install.md#check) [`e`](install.md) `[f](gone)` "
            "![g](gone.svg)")
    assert [each.split(":")[0] for each in broken(page, text)] == ["gone.md", "install.md#gone", "#gone", "gone.svg"]


SOURCES = [each for folder in FOLDERS for each in folder.rglob("*") if each.suffix in {".h", ".cpp", ".py", ".sh"}]
NAMED = re.compile(rf"\b(?:{'|'.join(each.name for each in FOLDERS)})/[\w./-]+\.md\b")


def test_pages_that_comments_name_are_there():
    named = {(page, source) for source in SOURCES for page in NAMED.findall(source.read_text())}
    assert len(named) > 20
    assert not [f"{source}: {page}" for page, source in named if not (ROOT / page).exists()]


def test_the_list_has_every_page():
    listed = LINK.findall((ROOT / "docs/README.md").read_text())
    pages = {each.name for each in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages <= set(listed)
    assert [each for each in listed if each.removesuffix(".md") in DAY] == [f"{each}.md" for each in DAY]


def figures_of(text: str) -> set[tuple[str, str]]:
    """Figure and command of each row of the tables that have both."""
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")]
            for line in text.splitlines() if line.startswith("|")]
    return {(row[1], row[2]) for row in rows if len(row) >= 3 and row[2].startswith("`")}


def kills_of(text: str) -> tuple[str, str]:
    """What the long forms of the tests counted, as README tells it."""
    sections = (text.partition(f"\n## {name}\n")[2].partition("\n## ")[0] for name in ("kills", "training_kills"))
    counts = [sum(map(int, re.findall(r"^\* [a-z ]+: (\d+) kills", each, re.MULTILINE))) for each in sections]
    return "; ".join(f"{each:,}" for each in counts), "`./run test --long kills training_kills`"


def measured() -> set[tuple[str, str]]:
    return figures_of((ROOT / "bench/RESULTS.md").read_text()) | {kills_of((ROOT / "tests/RESULTS.md").read_text())}


def test_a_figure_of_the_first_screen_is_the_one_that_was_measured():
    told = figures_of((ROOT / "README.md").read_text())
    assert len(told) >= 7
    assert told <= measured()


def test_another_figure_is_found():
    readme = (ROOT / "README.md").read_text()
    for figure, command in figures_of(readme):
        another = readme.replace(f"| {figure} |", "| another |")
        assert figures_of(another) - measured() == {("another", command)}


def test_each_session_is_listed():
    listed = LINK.findall((ROOT / "bench/RESULTS.md").read_text().partition("## Sessions")[2])
    assert sorted(listed) == sorted(f"results/{each.name}" for each in (ROOT / "bench/results").iterdir())


def reference():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools/reference.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_reference_is_what_the_texts_of_the_package_say():
    assert (ROOT / "docs/reference-python.md").read_text() == reference().python_page(), "run tools/reference.py"


def test_an_argument_without_an_entry_is_no_reference():
    node = ast.parse('class Some:\n  """Text.\n\n  one: First.\n  """\n  one: int = 1\n  two: int = 2\n').body[0]
    with pytest.raises(SystemExit, match="two"):
        reference()._arguments("penstock.Some", node)


def test_the_page_of_the_package_is_one_page():
    assert len((ROOT / "python/README.md").read_text().splitlines()) <= 120
