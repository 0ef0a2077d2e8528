import os
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).resolve().parent
# Mutants are copies of the package elsewhere (test_mutants.py).
sys.path[:0] = [os.environ.get("PENSTOCK_PACKAGE_AT", str(HERE.parent)), str(HERE)]


@pytest.fixture(autouse=True)
def one_thread_and_a_seed():
    torch.set_num_threads(1)
    torch.manual_seed(0)
