"""Programs of Spark as forks of the prepared process: what they find, how they end, and when they are started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.spark import prepared, worker_python
from felice.pipelines.spark.worker_python import PreparedProcess, early_python
from felice.pipelines.streams.on_spark.process_times import start_of_process
from waiting import wait_until

pytestmark = pytest.mark.skipif(
    not prepared.is_possible(Path("x")), reason="the system does not tell the threads of a process"
)

WITHIN_S = 120
# A module that the prepared process does not import: it is found by the PYTHONPATH of the program.
PROGRAM = """
import atexit, json, os, signal, sys, threading, time
found = {
    "arguments": sys.argv[1:], "name": __name__, "directory": os.getcwd(), "path": sys.path[:2],
    "variable": os.environ.get("OF_PROGRAM"), "others": os.environ.get("OF_DRIVER"), "input": sys.stdin.readline(),
    "imported": "json.tool" in sys.modules, "threads": len(os.listdir("/proc/self/task")),
    "files": len(os.listdir("/proc/self/fd")), "pid": os.getpid(), "zone": time.tzname[0],
    "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)],
}
print(json.dumps(found))
print("to standard error", file=sys.stderr)
atexit.register(lambda: print("at the end"))
exec(sys.argv[1])
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[PreparedProcess]:
    monkeypatch.setenv("OF_DRIVER", "yes")
    found = PreparedProcess()
    found.start(["json.tool", "numpy.random"], {"PYTHONHASHSEED": "0"})
    monkeypatch.delenv("OF_DRIVER")
    wait_until(lambda: worker_python._socket().exists())
    yield found
    found.end()


@contextmanager
def started(directory: Path, statement: str = "", **environment: str) -> Iterator[subprocess.Popen[str]]:
    known = os.environ | {"PYTHONPATH": str(directory), "OF_PROGRAM": "a\udce4b"} | environment
    with subprocess.Popen(
        [early_python(sys.executable), "-m", "program", statement],
        env=known,
        cwd=directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run(directory: Path, statement: str = "", **environment: str) -> tuple[dict[str, object], str, str, int]:
    """What the program found, what else it printed, its standard error, and the exit code."""
    with started(directory, statement, **environment) as process:
        said, error = process.communicate("a line\n", timeout=WITHIN_S)
    assert said, error
    first, _, rest = said.partition("\n")
    return json.loads(first), rest, error, process.returncode


def is_alive(pid: int) -> bool:
    return start_of_process(pid) is not None


def test_a_program_finds_what_it_was_started_with(process: PreparedProcess, directory: Path) -> None:
    usual, *said = run(directory, "", TZ="Asia/Tokyo", PYTHONHASHSEED="1")
    forked, *said_by_fork = run(directory, "", TZ="Asia/Tokyo")
    assert not usual.pop("imported") and forked.pop("imported")
    assert usual.pop("pid") != forked.pop("pid")
    # The environment, standard streams and end are those of a program that was started in the usual way.
    assert (forked, said_by_fork) == (usual, said)
    assert forked["others"] is None and forked["zone"] == "JST" and forked["input"] == "a line\n"
    assert said == ["at the end\n", "to standard error\n", 0]


@pytest.mark.parametrize(
    ("statement", "code", "error"),
    [
        ("sys.exit(7)", 7, ""),
        ("sys.exit('a reason')", 1, "a reason"),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("os._exit(3)", 3, ""),
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + 9, ""),
    ],
)
def test_the_end_of_a_program_is_reported(
    process: PreparedProcess, directory: Path, statement: str, code: int, error: str
) -> None:
    found, _, said, ended_with = run(directory, statement)
    assert found["imported"] and ended_with == code and error in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_program_ends_with_the_process_that_asked(
    process: PreparedProcess, directory: Path, number: signal.Signals
) -> None:
    # As under `felice run`: then SIGTERM reaches neither.
    is_blocked = number == signal.SIGKILL
    statement = "time.sleep(600)"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM} if is_blocked else ())
    with started(directory, statement) as asking:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert asking.stdin is not None and asking.stdout is not None
        asking.stdin.write("a line\n")
        asking.stdin.flush()
        found = json.loads(asking.stdout.readline())
        assert found["imported"] and is_alive(found["pid"])
        if is_blocked:
            os.kill(found["pid"], signal.SIGTERM)
            time.sleep(0.2)
            assert is_alive(found["pid"])
        asking.send_signal(number)
        asking.wait(WITHIN_S)
        wait_until(lambda: not is_alive(found["pid"]))
    assert asking.returncode == (128 + 15 if number == signal.SIGTERM else -9)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_program_ignores_a_signal_if_it_was_started_so(
    process: PreparedProcess, directory: Path, number: signal.Signals
) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        usual, *_ = run(directory, PYTHONHASHSEED="1")
        forked, *_ = run(directory)
    finally:
        signal.signal(number, before)
    assert not usual["imported"] and forked["imported"]
    assert forked["signals"] == usual["signals"] and "'1'" in str(usual["signals"])


@pytest.mark.parametrize(
    "environment", [{"PYTHONHASHSEED": "1"}, {"LD_LIBRARY_PATH": "/lib"}, {"OMP_NUM_THREADS": "2"}]
)
def test_what_python_reads_at_its_start_must_be_the_same(
    process: PreparedProcess, directory: Path, environment: dict[str, str]
) -> None:
    found, *_, code = run(directory, **environment)
    assert not found["imported"] and code == 0


def test_programs_draw_other_numbers(process: PreparedProcess, directory: Path) -> None:
    drawing = "import numpy, random; print(numpy.random.random(), random.random())"
    said = {run(directory, f"import sys; {drawing}")[1] for _ in range(2)}
    assert len(said) == 2


def test_a_large_environment_is_passed_on(process: PreparedProcess, directory: Path) -> None:
    large = {f"LARGE_{number}": "x" * 100_000 for number in range(8)}
    found, said, *_ = run(directory, "print(len(os.environ['LARGE_7']))", **large)
    assert found["imported"] and said.startswith("100000")


def test_programs_run_at_the_same_time(process: PreparedProcess, directory: Path) -> None:
    with started(directory, "time.sleep(600)") as waiting:
        found, *_ = run(directory)
        assert found["imported"] and waiting.poll() is None
        waiting.terminate()


def test_a_program_goes_on_after_the_prepared_process(directory: Path) -> None:
    process = PreparedProcess()
    process.start(["json.tool"], {})
    wait_until(lambda: worker_python._socket().exists())
    with started(directory, "time.sleep(600)") as running:
        assert running.stdin is not None and running.stdout is not None
        running.stdin.write("a line\n")
        running.stdin.flush()
        pid = json.loads(running.stdout.readline())["pid"]
        process.end()
        time.sleep(0.2)
        assert is_alive(pid) and running.poll() is None
        os.kill(pid, signal.SIGKILL)
        assert running.wait(WITHIN_S) == 1
    found, *_, code = run(directory)
    assert not found["imported"] and code == 0


def test_a_request_that_is_not_complete_does_not_stop_others(
    process: PreparedProcess, directory: Path
) -> None:
    import socket

    for data in (b"", b"\0\0", b"\0\0\0\x09{", b"\0\0\0\0"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(worker_python._socket()))
            connection.sendall(data)
    found, *_ = run(directory)
    assert found["imported"]


def test_modules_that_start_a_thread_are_not_forked(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (directory / "with_thread.py").write_text(
        "import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"
    )
    monkeypatch.syspath_prepend(directory)
    process = PreparedProcess()
    process.start(["with_thread"], {})
    assert process._process is not None and process._process.wait(WITHIN_S) == 0
    found, *_, code = run(directory)
    assert not found["imported"] and code == 0
    process.end()


def test_the_prepared_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    driver = (
        "import os, signal; from felice.pipelines.spark.worker_python import prepared_process as p;"
        "p.start([], {}); print(p._process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    run = subprocess.run(
        [sys.executable, "-c", driver],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    wait_until(lambda: not is_alive(int(run.stdout)))


def test_the_python_of_another_spark_is_not_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    process = PreparedProcess()
    process.start([], {})
    assert process._process is None


@pytest.mark.parametrize(("error", "is_printed"), [(BrokenPipeError(), False), (ValueError("mine"), True)])
def test_a_worker_says_nothing_when_java_has_gone(
    error: Exception, is_printed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        raise error
    except Exception:
        prepared._print_unless_java_has_gone()
    assert ("ValueError: mine" in capsys.readouterr().err) == is_printed
