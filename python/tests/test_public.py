"""What the package shows of itself: names, docstrings, types."""
from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import penstock

PACKAGE = Path(penstock.__file__).resolve().parent
PLAIN = {"Core", "Store", "ParameterSpec"}  # their classes say what their members are


def own_calls(kind):
    """Also those of classes of the package that it is."""
    ours = [each for each in reversed(kind.__mro__) if each.__module__.startswith("penstock")]
    return {name: each for one in ours for name, each in vars(one).items() if not name.startswith("_")
            and (inspect.isfunction(each) or isinstance(each, (property, staticmethod, classmethod)))}


def test_every_public_name_is_there_and_documented():
    assert penstock.__all__ == sorted(penstock.__all__, key=lambda name: (name[0].islower(), name))
    assert penstock.__doc__ and len(set(penstock.__all__)) == len(penstock.__all__)
    missing = []
    for name in penstock.__all__:
        public = getattr(penstock, name)
        missing += [name] * (not (public.__doc__ or "").strip())
        if inspect.isclass(public) and name not in PLAIN:
            missing += [f"{name}.{key}" for key, each in own_calls(public).items() if not each.__doc__]
    assert missing == []


def test_every_error_is_public():
    from penstock import errors
    kinds = {name for name, each in vars(errors).items() if inspect.isclass(each) and issubclass(each, Exception)}
    assert kinds <= set(penstock.__all__)


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").is_file()


@pytest.mark.long
def test_types_are_strict():
    pytest.importorskip("mypy")
    done = subprocess.run([sys.executable, "-m", "mypy", "penstock"], cwd=PACKAGE.parent, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_package_is_imported_without_torch_until_something_of_it_is_asked_for():
    code = ("import sys; sys.modules['torch'] = None; import penstock, penstock.__main__; dir(penstock)\n"
            "try: penstock.Engine\n"
            "except ImportError as problem: print(problem)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert "torch" in done.stdout and not done.stderr, done.stderr
