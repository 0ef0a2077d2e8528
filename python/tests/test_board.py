"""The board of the ranks, and who has the last word: in this process, over stores of torch's."""
from __future__ import annotations

import os
import socket
import sys
import threading
import time
from datetime import timedelta

import pytest
import torch.distributed as dist

from penstock.errors import PeerError
from penstock.ranks import board as boards
from penstock.ranks.board import Board
from penstock.ranks.connections import Connections
from penstock.ranks.last_words import ENDED_BY_ANOTHER, INTERRUPTED, Cause, LastWords

STORAGE = Cause(1, 1, "worker-2", "storage: /nvme/weights: no space left")


def rank_of(store, run="a"):
    return Board(store, run, patience=2)


def test_what_was_put_first_stands_and_what_was_put_last(tmp_path):
    for store in (dist.HashStore(), dist.FileStore(str(tmp_path / "store"), 2), dist.PrefixStore("a", dist.HashStore())):
        one, other, another_run = rank_of(store), rank_of(store), rank_of(store, "b")
        assert one.get("beat/1") is None
        one.put("beat/1", "1\non\nworker-2\n")
        assert other.get("beat/1") == "1\non\nworker-2\n"
        one.put("beat/1", "2")
        assert other.get("beat/1") == "2"
        assert one.put_first("cause", "mine") == other.put_first("cause", "yours") == one.put_first("cause", "x") == "mine"
        assert other.get("cause") == "mine" and another_run.get("cause") is None
        for each in (one, other, another_run):
            each.close()


def test_of_many_that_put_at_once_one_is_first():
    store = dist.HashStore()
    all_ranks = [rank_of(store) for _ in range(8)]
    stands = [""] * 8

    def put(rank):
        stands[rank] = all_ranks[rank].put_first("cause", f"rank {rank}")
    threads = [threading.Thread(target=put, args=(rank,)) for rank in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(stands)) == 1 and stands[0].startswith("rank ")


def tcp_store():
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=10))


@pytest.mark.parametrize("clones", [True, False])
def test_it_does_not_wait_for_a_program_that_waits_for_a_key(clones, monkeypatch):
    """As where torch makes a group of which a rank has not come."""
    if not clones:  # of older torches
        for kind in (dist.Store, dist.TCPStore, dist.PrefixStore):
            monkeypatch.delattr(kind, "clone", raising=False)
    store = tcp_store()
    board = rank_of(dist.PrefixStore("default", store))
    waiting = threading.Thread(target=store.get, args=("late",))
    waiting.start()
    time.sleep(0.1)
    begin = time.monotonic()
    board.put("beat/0", "1")
    assert board.get("beat/0") == "1" and board.get("beat/1") is None and time.monotonic() - begin < 1
    dist.TCPStore("127.0.0.1", store.port, is_master=False, wait_for_workers=False).set("late", "here")
    waiting.join()


class Silent:
    """A store whose host is stopped."""

    def __init__(self):
        self.goes_on = threading.Event()

    def clone(self):
        return self

    def check(self, keys):
        self.goes_on.wait()
        return False


def test_a_store_that_does_not_answer_is_lost(monkeypatch):
    monkeypatch.setattr(dist, "PrefixStore", lambda _, store: store)
    store = Silent()
    board = rank_of(store)
    begin = time.monotonic()
    for _ in range(3):
        with pytest.raises(PeerError, match="the store of the processes has not answered for 2 s"):
            board.get("cause")
    assert time.monotonic() - begin < 4, "it is not asked again"
    store.goes_on.set()


def test_a_process_that_was_stopped_still_gets_its_answer(monkeypatch):
    """As long as it was away nobody has waited: the whole of its patience is gone in one of its waits."""
    class Away:
        get, put = None, None

        def __init__(self):
            self.items, self.waits = [], 0
            self.put = self.items.append

        def get(self, timeout=None):
            self.waits += 1
            if timeout is None:
                while not self.items:
                    time.sleep(0.01)
                return self.items.pop(0)
            if self.waits == 1:
                time.sleep(0.2)  # SIGSTOP for an hour, SIGCONT: its time has passed
                raise boards.queue.Empty
            return self.items.pop(0)
    monkeypatch.setattr(boards.queue, "SimpleQueue", Away)
    board = Board(dist.HashStore(), "a", patience=2)
    assert board.get("cause") is None


def test_connections_are_cut_and_nothing_else():
    before = socket.socketpair()
    with Connections() as connections:
        within, closed, listening = socket.socketpair(), socket.socketpair(), socket.create_server(("127.0.0.1", 0))
    number = closed[0].fileno()
    closed[0].close()
    behind = socket.socketpair()
    assert number in (behind[0].fileno(), behind[1].fileno()), "it has the number of one that was closed"
    for _ in range(2):
        connections.cut()
    assert within[0].recv(1) == within[1].recv(1) == b""
    for one, other in (before, behind):
        one.send(b"x")
        assert other.recv(1) == b"x"
    socket.create_connection(listening.getsockname()).close()


@pytest.fixture
def hook():
    """What the interpreter would do with an exception: the exit code, and what was printed."""
    printed = []
    before, sys.excepthook = sys.excepthook, lambda kind, problem, trace: printed.append(problem)

    def end(problem):
        del printed[:]
        try:
            raise problem
        except BaseException:
            try:
                sys.excepthook(*sys.exc_info())
            except SystemExit as exit:
                return exit.code, list(printed)
        return 1, list(printed)
    yield end
    sys.excepthook = before


def last_words(store, rank, ranks=3):
    aborted = []
    words = LastWords(rank_of(store), rank, ranks, aborted.append)
    words.aborted = aborted
    return words


def test_the_first_exception_is_the_cause_and_the_only_one_that_is_printed(hook, caplog):
    caplog.set_level("INFO", logger="penstock")
    store, first, second = dist.HashStore(), ValueError("row 12\nhas no label"), RuntimeError("connection closed by peer")
    words = last_words(store, 1)
    assert hook(first) == (1, [first])
    stands = Cause.of(rank_of(store).get("cause"))
    assert (stands.by, stands.rank) == (1, 1) and stands.what.startswith("ValueError: row 12 has no label (/")
    assert words.aborted == [str(stands)], "what the others wait for from it ends"
    words.uninstall()
    words = last_words(store, 2)
    assert hook(second) == (ENDED_BY_ANOTHER, [])
    assert words.aborted and "rank 2 has ended because of rank 1 (" in caplog.text
    assert hook(second) == (ENDED_BY_ANOTHER, []), "the first time counts"
    words.uninstall()
    last_words(store, 2)
    assert hook(KeyboardInterrupt()) == (INTERRUPTED, [])


def test_what_a_ranks_own_watch_has_said_it_prints_itself(hook):
    store, lost = dist.HashStore(), PeerError("rank 2 (worker-2): silent for 31 s")
    rank_of(store).put_first("cause", Cause(0, 2, "worker-2", "silent for 31 s").text())
    last_words(store, 1)
    assert hook(lost) == (ENDED_BY_ANOTHER, [])
    sys.excepthook.__self__.uninstall()
    words = last_words(store, 0, ranks=1)
    assert hook(lost) == (ENDED_BY_ANOTHER, [lost]), "it speaks for rank 2, and is not the one that failed"
    words.uninstall()


@pytest.mark.parametrize("rank, speaks", [(0, False), (1, True), (2, False)])
def test_without_a_board_one_speaks_of_what_all_have_seen(hook, rank, speaks, monkeypatch):
    def lost(*_):
        raise PeerError("the store of the processes is lost")
    for call in ("put_first", "get"):
        monkeypatch.setattr(Board, call, lost)
    own, seen = ValueError("row 12"), PeerError("connection closed")
    last_words(dist.HashStore(), rank)
    assert hook(seen) == (ENDED_BY_ANOTHER, [seen] if speaks else [])
    sys.excepthook.__self__.uninstall()
    last_words(dist.HashStore(), rank)
    assert hook(own) == (1, [own])


def test_rank_0_stays_until_the_others_have_read_it(hook):
    def stays(rank, store):
        words = last_words(store, rank)
        hook(ValueError())
        begin = time.monotonic()
        words.linger()
        words.uninstall()
        return time.monotonic() - begin
    store = dist.HashStore()
    board = rank_of(store)
    threading.Timer(0.4, lambda: [board.put(f"read/{rank}", "") for rank in (1, 2)]).start()
    assert 0.3 <= stays(0, store) < 1.5
    assert 2 <= stays(0, dist.HashStore()) < 3, "and no longer than that"
    assert stays(1, dist.HashStore()) < 1
    words = last_words(dist.HashStore(), 0)
    begin = time.monotonic()
    words.linger()
    assert time.monotonic() - begin < 1, "at a normal end nobody reads"


def test_it_goes_when_it_is_uninstalled_whoever_came_above_it(hook):
    below = sys.excepthook
    words = last_words(dist.HashStore(), 1)
    words.uninstall()
    assert sys.excepthook is below
    words = last_words(dist.HashStore(), 1)
    ours = sys.excepthook
    above = lambda *given: ours(*given)  # noqa: E731
    sys.excepthook = above
    words.uninstall()
    assert sys.excepthook is above and hook(error := ValueError()) == (1, [error]) and words.aborted == []


def test_a_fork_is_no_rank(hook):
    words = last_words(dist.HashStore(), 1)
    words._process = os.getppid()
    assert hook(error := ValueError()) == (1, [error]) and words.aborted == []


def test_a_cause_comes_off_the_board_as_it_was_put():
    for cause in (STORAGE, Cause(0, 2, "", "gone"), Cause(0, 2, "a host", "7 8\n9")):
        assert Cause.of(cause.text()) == cause
    assert STORAGE.text() == "1 1 worker-2\nstorage: /nvme/weights: no space left", "the library reads it, too"
    for text in ("", "gone", "1 x y\nz"):
        assert Cause.of(text) == Cause(0, 0, "", text)


def test_words_have_an_end(hook):
    store = dist.HashStore()
    last_words(store, 1)
    hook(ValueError("x" * 5000))
    assert len(rank_of(store).get("cause")) < 1500
