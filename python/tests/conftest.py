import gc
import os
import sys
from pathlib import Path

import pytest

# The core's optimizers round each operation by itself. Torch does so where it uses no fused multiply-add; read at its
# import.
if os.environ.get("PENSTOCK_TEST_CORE") == "native":
    os.environ["ATEN_CPU_CAPABILITY"] = "default"
import torch  # noqa: E402

HERE = Path(__file__).resolve().parent
# Mutants are copies of the package elsewhere (test_mutants.py).
sys.path[:0] = [os.environ.get("PENSTOCK_PACKAGE_AT", str(HERE.parent)), str(HERE)]


from cores import NATIVE, WITHIN_BACKWARD, round_each_operation  # noqa: E402

if NATIVE:
    round_each_operation()


def pytest_collection_modifyitems(items):
    if NATIVE:
        for item in items:
            if "fake" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="looks into the stand-in core"))
    if WITHIN_BACKWARD:
        for item in items:
            if "afterwards" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="wants gradients, weights or a graph after a step's backward"))


def pytest_collection_finish():
    """What has been imported is looked through by no gc.collect() of a test: that would take a quarter of a second each."""
    import torch._dynamo  # noqa: F401  optimizers import it
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def one_thread_and_a_seed():
    torch.set_num_threads(1)
    torch.manual_seed(0)
