"""Hosts and schedulers as they are: Slurm's daemons, sshd in network namespaces, DeepSpeed's own launcher. All of them by
`./run test --long hosts`, which wants python/tests/venv.sh to have run once; or, of a release build:

    PENSTOCK_LIBRARY=build/release/python/libpenstock_python.so PENSTOCK_PROGRAM=build/release/penstock \\
        .peers/python/bin/python -B -m pytest -rs -p no:cacheprovider --rootdir tests/hosts tests/hosts

As root, with Debian's slurm-wlm, munge, openssh-server, openssh-client, iproute2 and openmpi-bin. A test is skipped, with
the reason, where something that it needs is not there. What is started lies in a folder of its own and ends with it. Of
the machine's configuration nothing is written, and no service of it is asked."""
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "python"), str(ROOT / "tests/outside")]

from daemons import TOLD, Daemons  # noqa: E402
from training import Training, a_port  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes minutes")


def pytest_terminal_summary(terminalreporter, exitstatus):
    """In the form that tests/long.sh keeps."""
    counted = {kind: len(terminalreporter.stats.get(kind, ())) for kind in ("passed", "failed", "error", "skipped")}
    lines = [", ".join(f"{count} {kind}" for kind, count in counted.items() if count or kind == "passed"), *TOLD]
    for each in lines:
        terminalreporter.write_line(f"RESULT hosts: {each}")


@pytest.fixture
def folder():
    """A short path, because sockets are in it; whatever bears its name at the end is ended."""
    with Daemons() as made:
        yield made.folder


def of_one_host(ranks):
    """By `penstock launch` alone, on this machine."""
    with Daemons() as made:
        training = Training(made.folder, ranks)
        training.ran(training.launch("--num_gpus", str(ranks), *a_port()))
        return training.result()


@pytest.fixture(scope="session")
def undisturbed():
    return of_one_host(2)


@pytest.fixture(scope="session")
def three_undisturbed():
    return of_one_host(3)
