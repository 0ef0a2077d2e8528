"""What of an environment other hosts get, and the file that adds to it."""
from __future__ import annotations

import os
import re
from collections.abc import Mapping

from ..errors import UsageError

FILE, NAMED_BY = ".deepspeed_env", "DS_ENV_FILE"
EXPORTED = ("PYTHON", "NCCL", "UCX", "MLFLOW", "MV2")  # beginnings of names


def of_files(folders: tuple[str, ...] = ("~", ".")) -> dict[str, str]:
    """The lines NAME=VALUE; the later folder's count. Raises UsageError with line and text."""
    named = os.environ.get(NAMED_BY, "")
    paths = dict.fromkeys(os.path.join(os.path.expanduser(each), named or FILE) for each in folders)
    there = [path for path in paths if os.path.isfile(path)]
    if named and not there:
        raise UsageError(f"{NAMED_BY} is {named}, and there is no such file: {', '.join(paths)}")
    found: dict[str, str] = {}
    for path in there:
        try:
            with open(path, encoding="utf-8") as file:
                found.update(values_of(file.read(), path))
        except (OSError, UnicodeDecodeError) as problem:
            raise UsageError(f"{path}: {problem}") from problem
    return found


def values_of(text: str, path: str) -> dict[str, str]:
    """Quotes around a value are not of it, as for a shell."""
    found = {}
    for number, line in enumerate((each.strip() for each in text.split("\n")), 1):
        if not line or line.startswith("#"):
            continue
        read = re.fullmatch(r"([A-Za-z_]\w*)\s*=\s*(.*)", line, re.ASCII)
        if read is None:
            raise UsageError(f"{path}, line {number}: '{line}' is not NAME=VALUE")
        name, value = read.groups()
        quoted = re.fullmatch(r"""(["'])(.*)\1""", value)
        found[name] = quoted[2] if quoted else value
    return found


def exported(environment: Mapping[str, str], here: str) -> dict[str, str]:
    """To other hosts: modules of this directory are found there, too."""
    names = [each for each in environment if each.startswith(EXPORTED)]
    path = environment.get("PYTHONPATH")
    return {**{each: environment[each] for each in names}, "PYTHONPATH": f"{here}{os.pathsep}{path}" if path else here}
