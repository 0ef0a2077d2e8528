"""A child that is forked off is a process as a new interpreter's would be."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

import forked
from launched import gone, within

WARM = ("numpy",)


@pytest.fixture(scope="module", autouse=True)
def none_of_these_servers_is_left():
    yield
    forked.close(WARM)


def python(*words, **options):
    return forked.run([sys.executable, *map(str, words)], warm=WARM, capture_output=True, text=True, **options)


def begun(code, **options):
    made = forked.Popen([sys.executable, "-c", f"import os, time; print(os.getpid(), flush=True); {code}"], warm=WARM,
                        stdout=subprocess.PIPE, text=True, **options)
    assert made.forked and made.stdout.readline() == f"{made.pid}\n"
    return made


TELLS = "import json, os, sys; print(json.dumps([__name__, sys.argv, sys.path, sorted(globals())]))"


@pytest.mark.parametrize("how", ["-c", "-m", "script"])
def test_it_has_the_arguments_path_and_main_of_a_command(how, tmp_path):
    (tmp_path / "told.py").write_text(TELLS)
    words = {"-c": ["-c", TELLS], "-m": ["-m", "told"], "script": [tmp_path / "told.py"]}[how]
    options = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": f"/b{os.pathsep}/a{os.pathsep}/b"}}
    plain = subprocess.run([sys.executable, *map(str, words), "x"], capture_output=True, text=True, **options)
    assert plain.returncode == 0
    found = python(*words, "x", **options)
    assert (found.stdout, found.stderr) == (plain.stdout, "")


@pytest.mark.parametrize("code", [
    "import sys; sys.exit(75)", "import sys; sys.exit('a text')", "import os; os._exit(3)", "import os; os.kill(os.getpid(), 9)",
    "raise KeyboardInterrupt", "import atexit; atexit.register(print, 'behind'); print('before')",
    "def f():\n    raise ValueError('own')\nf()", "import sys; sys.excepthook = lambda *given: sys.exit(7)\n1 / 0",
    "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
    "import ctypes; ctypes.CDLL(None).puts(b'of C')", "import sys; print(sys.stdin.read(), file=sys.stderr)"])
def test_it_ends_and_speaks_as_one(code):
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, input="given")
    found = python("-c", code, input="given")
    assert (found.returncode, found.stdout) == (plain.returncode, plain.stdout)
    assert found.stderr == plain.stderr or "KeyboardInterrupt" in found.stderr  # with frames of the server's


def test_it_is_a_process_that_is_waited_for_and_gets_signals():
    process = begun("time.sleep(100)", start_new_session=True)
    assert os.getsid(process.pid) == process.pid and process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.1)
    process.terminate()
    assert process.wait() == process.poll() == -signal.SIGTERM and gone(process.pid)
    with pytest.raises(subprocess.TimeoutExpired):
        python("-c", "import time; time.sleep(100)", timeout=0.1)
    with pytest.raises(subprocess.CalledProcessError):
        python("-c", "import sys; sys.exit(1)", check=True)
    process.stdout.close()


def test_it_ignores_the_signals_that_its_maker_ignores_by_then():
    code = "import signal; print([int(each) for each in signal.valid_signals() if signal.getsignal(each) == signal.SIG_IGN])"
    for handler in (signal.SIG_IGN, signal.SIG_DFL):
        before = signal.signal(signal.SIGHUP, handler)
        plain, found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True), python("-c", code)
        signal.signal(signal.SIGHUP, before)
        assert found.stdout == plain.stdout


def test_one_that_has_ended_before_its_maker_hears_of_it_has_its_own_id_and_status(monkeypatch):
    plain = os.read

    def late(number, count):
        time.sleep(0.1)
        return plain(number, count)
    python("-c", "pass")
    monkeypatch.setattr(os, "read", late)
    made = forked.Popen([sys.executable, "-c", "import os; print(os.getpid(), flush=True); os._exit(5)"], warm=WARM,
                        stdout=subprocess.PIPE, text=True)
    monkeypatch.undo()
    assert (made.communicate()[0], made.returncode) == (f"{made.pid}\n", 5)


def test_several_live_at_once_and_have_no_files_of_each_other():
    all = [begun("print(len(os.listdir('/proc/self/fd'))); os.read(0, 1)", stdin=subprocess.PIPE) for _ in range(3)]
    for each in all:
        each.stdin.close()
        with each:
            assert each.stdout.read() == "4\n"  # three, and the folder


def test_variables_that_are_read_at_an_import_are_there_before_it_and_others_come_later():
    code = "import os, random, sys; print(os.environ.get('PENSTOCK_X'), os.environ.get('EARLY_X'), hash('a'), random.random())"

    def told(**variables):
        return python("-c", code, env={**os.environ, **variables}).stdout.split()
    before = len(forked._servers)
    one, other = (told(RANK=rank, WORLD_SIZE="3", PENSTOCK_X=rank) for rank in "02")
    assert one[:2] == ["0", "None"] and other[:2] == ["2", "None"] and one[2] == other[2] and one[3] != other[3]
    assert len(forked._servers) <= before + 2
    assert told(RANK="1", WORLD_SIZE="3", PENSTOCK_X="1")[2] != one[2], "ranks are not all of one order of sets"
    assert told(EARLY_X="3")[1] == "3"
    assert len(forked._servers) <= forked.MOST


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="OpenBLAS has no thread but the program's")
def test_a_server_with_threads_forks_nothing():
    made = forked.Popen([sys.executable, "-c", "pass"], warm=WARM, env={**os.environ, "OPENBLAS_NUM_THREADS": "2"})
    assert not made.forked and made.wait() == 0


def test_other_commands_are_subprocess_own():
    made = forked.Popen(["sh", "-c", "exit 3"], warm=WARM)
    assert not made.forked and made.wait() == 3


def test_a_server_ends_with_who_asked_for_it():
    code = f"""
import os, sys; sys.path.insert(0, {str(forked.HERE)!r})
import forked
forked.run([sys.executable, "-c", "pass"], warm=("numpy",))
[(_, server)] = forked._servers.values()
print(server.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    pid = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
    assert within(lambda: gone(pid))
