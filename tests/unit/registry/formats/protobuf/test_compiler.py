"""The process in which protoc runs: its limits, and what remains when it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from felice.registry.formats.protobuf import compiler as module
from felice.registry.formats.protobuf.compiler import Compiler
from felice.registry.formats.schema import InvalidSchema
from waiting import wait_until

SMALL = 'syntax = "proto3"; message A { string a = 1; }'
CANONICAL = 'syntax = "proto3";\n\nmessage A {\n  string a = 1;\n}\n'

# protoc's parser of option values has no limit of depth: its stack overflows.
CRASH = (
    'syntax = "proto3"; import "google/protobuf/descriptor.proto"; message A { A a = 1; } '
    f"extend google.protobuf.FileOptions {{ A x = 50000; }} option (x) = {'{a:' * 100_000}{{}}{'}' * 100_000};"
)
# protoc compares each reserved number with all others.
SLOW = f'syntax = "proto3"; message A {{ {" ".join(f"reserved {n * 2};" for n in range(1, 150_000))} }}'
LARGE = f'syntax = "proto3"; enum E {{ {" ".join(f"A{n} = {n};" for n in range(70_000))} }}'


@pytest.fixture
def compiler() -> Iterator[Compiler]:
    made = Compiler()
    yield made
    made.close()


def text_of(compiler: Compiler, text: str = SMALL) -> str:
    return compiler.compile(text, {}, "canonical")[0]


def pid_of(compiler: Compiler) -> int:
    assert compiler._worker is not None
    return compiler._worker.pid


def test_one_process_serves_many_requests(compiler: Compiler) -> None:
    assert text_of(compiler) == CANONICAL
    first = pid_of(compiler)
    with pytest.raises(InvalidSchema):
        text_of(compiler, "no schema")
    assert text_of(compiler) == CANONICAL
    assert pid_of(compiler) == first


def test_a_schema_that_crashes_protoc_is_invalid_and_harms_no_other(compiler: Compiler) -> None:
    with pytest.raises(InvalidSchema, match="protoc does not get through the schema"):
        text_of(compiler, CRASH)
    assert text_of(compiler) == CANONICAL


def test_a_schema_that_takes_much_processor_time_is_invalid() -> None:
    compiler = Compiler(cpu_limit_s=1)
    with pytest.raises(InvalidSchema, match="the schema takes more than 1 seconds of processor time"):
        text_of(compiler, SLOW)
    # The limit counts for each schema anew.
    for _ in range(3):
        assert text_of(compiler) == CANONICAL
    compiler.close()


def test_a_schema_that_takes_much_memory_is_invalid() -> None:
    compiler = Compiler(memory_limit_bytes=100 * 1024 * 1024)
    with pytest.raises(InvalidSchema, match="memory"):
        text_of(compiler, LARGE)
    assert text_of(compiler) == CANONICAL
    compiler.close()


def test_a_process_that_stands_still_is_killed() -> None:
    compiler = Compiler(wall_limit_s=0.2)
    compiler._running()
    os.kill(pid_of(compiler), signal.SIGSTOP)
    with pytest.raises(InvalidSchema, match="the schema takes more than 0.2 seconds"):
        text_of(compiler)
    compiler.close()


def test_a_process_that_is_killed_is_replaced(compiler: Compiler) -> None:
    text_of(compiler)
    first = pid_of(compiler)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not _runs(first))
    assert text_of(compiler) == CANONICAL
    assert pid_of(compiler) != first


def test_an_idle_process_ends_and_the_next_request_starts_another() -> None:
    compiler = Compiler(idle_limit_s=0.01)
    for _ in range(20):  # some of the requests meet the end of the process
        assert text_of(compiler) == CANONICAL
    last = pid_of(compiler)
    wait_until(lambda: not _runs(last))
    assert text_of(compiler) == CANONICAL
    compiler.close()


def test_a_process_that_has_grown_gives_its_memory_back() -> None:
    compiler = Compiler(idle_limit_s=600)
    assert "A69999" in text_of(compiler, LARGE)
    large = pid_of(compiler)
    wait_until(lambda: not _runs(large))
    assert text_of(compiler) == CANONICAL
    compiler.close()


def test_the_memory_of_the_registry_does_not_count_as_the_processs(compiler: Compiler) -> None:
    """A process has its parent's greatest memory in `ru_maxrss`."""
    memory = b"x" * (150 * 1024 * 1024)
    text_of(compiler)
    first = pid_of(compiler)
    del memory
    for _ in range(3):
        text_of(compiler)
    assert pid_of(compiler) == first


def test_threads_take_turns(compiler: Compiler) -> None:
    results: dict[int, str] = {}

    def run(number: int) -> None:
        for _ in range(20):
            results[number] = text_of(compiler, f'syntax = "proto3"; message A{number} {{}}')

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: f'syntax = "proto3";\n\nmessage A{number} {{}}\n' for number in range(8)}


def test_close_ends_the_process(compiler: Compiler) -> None:
    text_of(compiler)
    pid = pid_of(compiler)
    compiler.close()
    assert not _runs(pid)
    compiler.close()


def test_the_process_ends_with_the_registry() -> None:
    program = (
        "import os\nfrom felice.registry.formats.protobuf import parse, schema\n"
        "parse('message A {}', {})\nprint(schema._COMPILER._worker.pid, flush=True)\n"
    )
    for end in ("", "os.kill(os.getpid(), 9)"):
        run = subprocess.run([sys.executable, "-c", program + end], stdout=subprocess.PIPE, timeout=120)
        pid = int(run.stdout)
        wait_until(lambda pid=pid: not _runs(pid))


def test_the_process_has_no_secrets_of_the_environment(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    text_of(compiler)
    with open(f"/proc/{pid_of(compiler)}/environ", "rb") as file:
        assert {entry.partition(b"=")[0] for entry in file.read().split(b"\0") if entry} <= {
            b"PYTHONPATH",
            b"LD_LIBRARY_PATH",
            b"LC_CTYPE",
        }
    assert os.readlink(f"/proc/{pid_of(compiler)}/cwd") == "/"
    assert os.getsid(pid_of(compiler)) == pid_of(compiler), "Ctrl-C would reach it"


def test_a_defect_of_the_parser_is_no_fault_of_the_schema(
    compiler: Compiler, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError, match="the parser of Protobuf schemas failed: KeyError: 'no form'"):
        compiler.compile(SMALL, {}, "no form")
    assert "KeyError" in capfd.readouterr().err, "the traceback is for the log"
    assert text_of(compiler) == CANONICAL


def test_a_missing_library_is_named(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(
        ModuleNotFoundError, match=r"need grpcio-tools; install it: pip install 'felice\[registry\]'"
    ):
        text_of(compiler)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
