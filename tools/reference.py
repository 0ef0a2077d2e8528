#!/usr/bin/env python3
"""Writes the generated pages of docs/: reference-python.md out of the package's sources, and reference-keys.md out of
the program's key table.

    tools/reference.py [--program build/release/penstock]

Needs neither torch nor the package. Without the program the keys stay as they are. Tests hold both pages against what
they are made from: python/tests/test_pages.py, tests/trainer/config/key_table_test.cpp.
"""
from __future__ import annotations

import argparse
import ast
import inspect
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, DOCS = ROOT / "python/penstock", ROOT / "docs"
BEGINS = ("begin", "use_loader", "use_monitors", "keep_alive", "count_from")  # calls of the engine that initialize() makes
KEYS = {"penstock keys": ["keys"], "penstock keys --package": ["keys", "--package"]}  # by the comments around them
ENTRY = re.compile(r"^(\w+): ", re.MULTILINE)


def python_page() -> str:
    """The text of reference-python.md."""
    return "\n".join([
        "# Reference: the Python package", "",
        "Written by [tools/reference.py](../tools/reference.py) from the package's own texts; `help(penstock.Store)` "
        "says the same.", "",
        *_arguments("penstock.initialize", _of_package("initialize")),
        *_arguments("penstock.Store", _of_package("Store")),
        *_arguments("penstock.Settings", _of_package("Settings")),
        *_arguments("penstock.plan", _of_package("plan")),
        *_calls("penstock.Engine", _of_package("Engine"), _named("managed_model.py", "ManagedModel")),
        *_one_call("penstock.hugging_face.offload", _named("hugging_face.py", "offload")),
        *_one_call("penstock.zero.Init", _named("zero.py", "Init")),
        *_errors()])


def keys_page(page: str, program: Path) -> str:
    """The page with what the program prints now between its comments."""
    for name, arguments in KEYS.items():
        printed = subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, rest = page.split(begin)
        page = before + begin + printed + end + rest.split(end)[1]
    return page


def _of_package(name: str) -> ast.FunctionDef | ast.ClassDef:
    """What `from penstock import NAME` gives."""
    for node in ast.walk(ast.parse((PACKAGE / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and name in (each.name for each in node.names):
            return _named(node.module.replace(".", "/") + ".py", name)
    raise SystemExit(f"penstock has no {name}")


def _named(file: str, name: str) -> ast.FunctionDef | ast.ClassDef:
    for node in ast.parse((PACKAGE / file).read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return node
    raise SystemExit(f"{file} has no {name}")


def _arguments(title: str, node: ast.FunctionDef | ast.ClassDef) -> list[str]:
    """A heading, what stands before the entries, and a table of the arguments: those with an entry."""
    text = ast.get_docstring(node) or ""
    own = dict(_defaults(node))
    found = [each for each in ENTRY.finditer(text) if each[1] in own]
    told = {each[1]: text[each.end():following].strip() for each, following in
            zip(found, [*(each.start() for each in found[1:]), len(text)])}
    if title != "penstock.plan" and list(told) != list(own):  # a plan's others are those of initialize()
        raise SystemExit(f"{title}: arguments are {list(own)}, entries of the text are {list(told)}")
    rows = [f"| `{name}` | {_cell(own[name])} | {_one_line(each)} |" for name, each in told.items()]
    return [f"## {title}", "", _paragraphs(text[:found[0].start()]), "",
            "| argument | default | what it is |", "|---|---|---|", *rows, ""]


def _defaults(node: ast.FunctionDef | ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Names, in their order, with their defaults as Python writes them; empty: there is none."""
    if isinstance(node, ast.ClassDef):
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                yield each.target.id, "" if each.value is None else ast.unparse(each.value)
        return
    plain, named = node.args.args, node.args.kwonlyargs
    missing: list[ast.expr | None] = [None] * (len(plain) - len(node.args.defaults))
    for argument, default in [*zip(plain, [*missing, *node.args.defaults]), *zip(named, node.args.kw_defaults)]:
        yield argument.arg, "" if default is None else ast.unparse(default)


def _calls(title: str, node: ast.FunctionDef | ast.ClassDef, base: ast.FunctionDef | ast.ClassDef) -> list[str]:
    """A class, and its public calls with their texts; then those of a class that it is."""
    lines = [f"## {title}", "", _paragraphs(ast.get_docstring(node) or ""), ""]
    for each in (*node.body, *base.body):
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_") and each.name not in BEGINS:
            own = [name for name, _ in _defaults(each) if name != "self"] or (["..."] if each.args.kwarg else [])
            shown = each.name if _is_property(each) else f"{each.name}({', '.join(own)})"
            lines.append(f"* **`{shown}`** {_one_line(ast.get_docstring(each) or '')}")
    return [*lines, ""]


def _is_property(node: ast.FunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)


def _one_call(title: str, node: ast.FunctionDef | ast.ClassDef) -> list[str]:
    return [f"## {title}", "", _paragraphs(ast.get_docstring(node) or ""), ""]


def _errors() -> list[str]:
    """Each kind, with what it is a kind of."""
    rows = [f"| `{each.name}` | {', '.join(f'`{ast.unparse(base)}`' for base in each.bases)} | {_one_line(ast.get_docstring(each) or '')} |"
            for each in ast.parse((PACKAGE / "errors.py").read_text()).body if isinstance(each, ast.ClassDef)]
    return ["## Errors", "", "| error | a kind of | when |", "|---|---|---|", *rows, ""]


def _paragraphs(text: str) -> str:
    return "\n\n".join(_one_line(each) for each in inspect.cleandoc(text).split("\n\n"))


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _cell(default: str) -> str:
    return f"`{default}`" if default else "required"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/penstock")
    program = parser.parse_args().program
    (DOCS / "reference-python.md").write_text(python_page())
    if program.is_file():
        page = DOCS / "reference-keys.md"
        page.write_text(keys_page(page.read_text(), program))
    else:
        print(f"{program} is not there: docs/reference-keys.md stays as it is (./run build, or --program)")


if __name__ == "__main__":
    main()
