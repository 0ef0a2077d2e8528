"""Every name of the surface is found, or refused with its reason; and where it does not fit it is said."""
import importlib
import importlib.metadata
import subprocess
import sys

import deepspeed
import pytest

import penstock
from penstock.deepspeed import names, registered

ALL = [(module, name) for module, those in names.MODULES.items() for name in those if name != "*"]


def test_every_name_is_there():
    refused = 0
    for module, name in ALL:
        found = getattr(importlib.import_module(module), name)
        assert found is not None
        if isinstance(found, type) and (found.__doc__ or "").startswith("Refused: "):
            refused += 1
            with pytest.raises(penstock.UsageError, match=rf"^{module}.{name}: "):
                found()
            assert not isinstance(3, found)
    assert 20 < refused < 60 and len(ALL) > 150


def test_what_is_not_there_says_so():
    for ask in (lambda: deepspeed.nonsense, lambda: deepspeed.comm.nonsense):
        with pytest.raises(AttributeError, match="has no such name"):
            ask()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("deepspeed.nonsense")
    assert "initialize" in dir(deepspeed)


def test_it_is_a_distribution_of_a_version_that_programs_take():
    from packaging.version import Version
    version = Version(importlib.metadata.version("deepspeed"))
    assert Version("0.18.6") <= version < Version("0.19") and deepspeed.__version__ == registered.VERSION
    assert importlib.metadata.metadata("deepspeed")["Name"] == "deepspeed"


def ended(text):
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)


def test_too_late_is_refused_with_the_remedy():
    told = ended("import accelerate.accelerator\nimport penstock.deepspeed")
    assert told.returncode == 1 and "ImportError: accelerate was imported before penstock.deepspeed" in told.stderr
    assert "the first line of the program" in told.stderr


def test_a_real_deepspeed_is_not_stood_for_and_a_folder_is_none(tmp_path):
    (tmp_path / "deepspeed").mkdir()
    text = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport penstock.deepspeed, deepspeed; print(deepspeed.__version__)"
    assert ended(text).stdout.strip() == registered.VERSION
    (tmp_path / "deepspeed/__init__.py").write_text("__version__ = '0.19.8'\n")
    told = ended(text)
    assert told.returncode == 1 and f"DeepSpeed itself is installed, {tmp_path}" in told.stderr


def test_the_name_is_registered_without_torch():
    """A .pth calls it at each start of the interpreter."""
    text = (f"import sys, importlib.util as u\nspec = u.spec_from_file_location('f', {registered.__file__!r})\n"
            "made = u.module_from_spec(spec); spec.loader.exec_module(made); made.at_start(); made.at_start()\n"
            "assert 'torch' not in sys.modules and 'penstock' not in sys.modules\n"
            "assert sum(made.is_ours(each) for each in sys.meta_path) == 1\n"
            "import deepspeed; print(deepspeed.initialize.__module__)")
    told = ended(text)
    assert told.stdout.strip() == "penstock.deepspeed.start", told.stderr
