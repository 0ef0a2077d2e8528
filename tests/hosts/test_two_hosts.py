"""`penstock launch` over hosts that ssh reaches: each has a network, a name and processes of its own, and an sshd. Wants root,
and Debian's iproute2, openssh-server and openssh-client."""
from __future__ import annotations

import os
import signal
import time

import pytest

import daemons
import namespaces
from training import STEPS, Training, library_is_there, process_of

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(namespaces.absent()), reason=namespaces.absent()),
              pytest.mark.skipif(bool(library_is_there()), reason=library_is_there())]
SILENCE = 30  # seconds after which a rank that says nothing ends the others (docs/ranks.md)
ENDS = 20  # seconds for all else, on a machine that does much else


class Two:
    """Hosts alpha and beta, and a training on them that alpha starts."""

    def __init__(self, folder):
        self.hosts = namespaces.Hosts(folder, "alpha", "beta")
        self.training = Training(folder)
        (folder / ".deepspeed_env").write_text("".join(
            f"{name}={os.environ[name]}\n" for name in ("PENSTOCK_LIBRARY",) if name in os.environ) + "OMP_NUM_THREADS=1\n")
        self.say("alpha slots=1", "beta slots=1")

    def say(self, *lines):
        (self.training.folder / "hosts").write_text("".join(f"{each}\n" for each in lines))
        self.training.ranks = sum(int(each.rpartition("=")[2]) for each in lines)

    def begin(self, *words, pause=0.0):
        folder = self.training.folder
        command = self.training.launch("--hostfile", "hosts", f"--launcher_args=-F {folder}/ssh_config", *words, pause=pause)
        return self.training.begin(self.hosts.hosts["alpha"].within(command, folder), HOME=str(folder))

    def goes_on(self, undisturbed, *words):
        code, errors = self.training.end(self.begin(*words))
        assert code == 0, errors
        assert self.training.result() == undisturbed
        assert self.all_end(ENDS) < ENDS

    def all_end(self, seconds):
        began = time.monotonic()
        assert daemons.within(lambda: not self.hosts.left(), seconds), self.hosts.left()
        return time.monotonic() - began


@pytest.fixture
def two(folder):
    made = Two(folder)
    yield made
    made.hosts.close()


@pytest.mark.parametrize("words", [(), ("--master_addr", f"{namespaces.NETWORK}.1"), ("--master_addr", "alpha", "--no_ssh_check")])
def test_two_hosts_have_the_bits_of_one(two, undisturbed, words):
    two.goes_on(undisturbed, *words)
    assert two.training.hosts() == ["alpha", "beta"]


def test_two_slots_on_one_of_them(two, three_undisturbed):
    two.say("alpha slots=1", "beta slots=2")
    two.goes_on(three_undisturbed)
    assert two.training.hosts() == ["alpha", "beta", "beta"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_ends_all_on_both_hosts(two, undisturbed, rank):
    begun = two.begin(pause=0.3)
    two.training.comes_to(3)
    pid, killed = two.training.pid(rank), process_of(rank, two.training.folder)
    os.kill(killed, signal.SIGKILL)
    at = time.monotonic()
    code, errors = two.training.end(begun, ENDS)
    two.all_end(ENDS)
    tell(f"two hosts, rank {rank} killed: exit code {code}, all ended", at)
    assert code == 128 + signal.SIGKILL, (code, errors)
    host = ("alpha", "beta")[rank]
    causes = [line for line in errors.splitlines() if line.startswith("penstock launch:")]
    assert len(causes) == 1 and f"rank {rank} on {host}, process {pid}, was ended by SIGKILL" in causes[0], errors
    assert max(two.training.last_steps()) < STEPS
    two.goes_on(undisturbed)


def test_sigterm_to_the_launcher_stops_both_hosts_behind_the_same_step(two, undisturbed):
    begun = two.begin(pause=0.3)
    two.training.comes_to(3)
    launcher = next(pid for pid, words in two.hosts.hosts["alpha"].processes().items()
                    if " launch " in words and "--hears" not in words and "nsenter" not in words and "ssh" not in words[:4])
    os.kill(launcher, signal.SIGTERM)
    code, errors = two.training.end(begun, 60)
    assert code == 75, (code, errors)
    steps = two.training.last_steps()
    assert steps[0] == steps[1] < STEPS, steps
    two.all_end(ENDS)
    two.goes_on(undisturbed)
    assert two.training.began_behind() == steps


@pytest.mark.parametrize("of", ["alpha", "beta"])
def test_a_connection_of_ssh_that_is_killed_ends_all(two, undisturbed, of):
    begun = two.begin(pause=0.3)
    two.training.comes_to(3)
    sessions = [pid for pid, words in two.hosts.hosts[of].processes().items() if words.startswith("sshd: root@")]
    assert len(sessions) == 1, two.hosts.hosts[of].processes()
    os.kill(sessions[0], signal.SIGKILL)
    at = time.monotonic()
    code, errors = two.training.end(begun, ENDS)
    two.all_end(ENDS)
    tell(f"two hosts, the connection to {of} killed: exit code {code}, all ended", at)
    assert code == 255 and f"the connection to {of} ended with exit code 255" in errors, (code, errors)
    two.goes_on(undisturbed)


def test_a_host_that_cannot_be_reached_is_named_and_nothing_is_made(two):
    two.say("alpha slots=1", "gone slots=1")
    code, errors = two.training.end(two.begin(), 60)
    assert code == 2 and "gone cannot be reached: ssh: connect to host gone port 22: No route to host" in errors, errors
    two.all_end(ENDS)
    assert not (two.training.folder / "store").exists() and not two.training.told(0)


def test_a_network_that_is_cut_ends_all_within_the_deadline(two, undisturbed):
    begun = two.begin(pause=0.3)
    two.training.comes_to(3)
    two.hosts.cut("beta")
    at = time.monotonic()
    assert daemons.within(lambda: not ranks(two), SILENCE + ENDS), (two.hosts.left(), two.training.errors())
    tell("two hosts, network cut: all ranks ended", at)
    code, errors = two.training.end(begun, 120)
    two.all_end(120)
    tell(f"two hosts, network cut: exit code {code}, all ended", at)
    assert code == 255 and "PeerError: rank 1 (beta): silent for 30 s" in errors, (code, errors)
    assert max(two.training.last_steps()) < STEPS
    two.hosts.cut("beta", "up")
    two.goes_on(undisturbed)


def ranks(two):
    return [pid for pid, words in two.hosts.left().items() if "-u train.py" in words]


def tell(what, at):
    daemons.tell(f"{what} after {time.monotonic() - at:.1f} s")
