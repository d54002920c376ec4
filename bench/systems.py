"""The systems to be measured. Each is a process that can be started, observed and stopped."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from felice.env.ports import free_ports

ROOT = Path(__file__).parents[1]
# `peers`, which fetches other projects' programs, is shared with the tests.
if str(ROOT / "tests") not in sys.path:
    sys.path.append(str(ROOT / "tests"))
PYCACHE = Path(tempfile.gettempdir()) / "felice-bench-pycache"
_TICKS = os.sysconf("SC_CLK_TCK")

_KAFKA_JAVA = ["-Xmx512m", "-Xms512m", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]


class System(Protocol):
    """A system to be measured; its context starts and stops it."""

    name: str
    bootstrap: str

    @property
    def pid(self) -> int: ...
    def __enter__(self) -> System: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class KafkaSystem(System, Protocol):
    """A broker that speaks Kafka's protocol, and that can be killed and started again on its data."""

    log_dir: Path

    def kill(self) -> None: ...
    def start(self) -> None: ...


class Felice:
    """`felice start` on a free port with a temporary data directory."""

    name = "felice"

    def __init__(self, *options: str) -> None:
        self._options = options
        self._directory = Path(tempfile.mkdtemp(prefix="felice-bench-"))
        self._process: subprocess.Popen[str] | None = None
        self.log_dir = self._directory / "data"
        # Known before the start, so that a client can be started together with the command.
        self.bootstrap = f"127.0.0.1:{free_ports(1)[0]}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Felice:
        self.start()
        return self

    def start(self) -> None:
        """Starts the broker; after `kill` on the data that it had."""
        command = [str(Path(sys.executable).parent / "felice"), "start"]
        command += ["--port", self.bootstrap.rpartition(":")[2], "--data-dir", str(self.log_dir)]
        command += [word for option in self._options for word in ("-o", option)]
        # Compiles the modules first, because every start but a user's first finds them compiled.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(PYCACHE)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if self.bootstrap not in line:
            raise RuntimeError(f"felice did not start: {line!r}")

    def kill(self) -> None:
        """Kills the broker (SIGKILL)."""
        assert self._process is not None
        self._process.kill()
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.wait(60)
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
        self._end()
        shutil.rmtree(self._directory, ignore_errors=True)


class Shared:
    """A context that several systems use: it starts with the first of them and stops with the last."""

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self._make, self._users, self._stack = make, 0, ExitStack()
        self._value: Any = None

    def __enter__(self) -> Any:
        if not self._users:
            self._value = self._stack.enter_context(self._make())
        self._users += 1
        return self._value

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        if not self._users:
            self._stack.close()


def apache_kafka(*options: str) -> KafkaSystem:
    """Apache Kafka (KRaft, one node) from Maven's jars, with Java started as its own scripts do."""
    from peers.apache_kafka import ApacheKafka

    class Apache(ApacheKafka):
        name = "apache kafka"

        def java(self, *arguments: str) -> list[str]:
            return kafka_java(*arguments)

        def kill(self) -> None:
            assert self._process is not None
            self._process.kill()
            self._process.wait()
            self._process = None

        def __enter__(self) -> Apache:
            super().__enter__()
            return self

    overrides = [option.partition("=") for option in options]
    return Apache({key: value for key, _, value in overrides})


def kafka_java(*arguments: str, classes: str | None = None) -> list[str]:
    """Java for Apache Kafka with the options of its scripts, but half their heap."""
    from peers.java import class_path, java

    return [java(), *_KAFKA_JAVA, "-cp", classes or class_path(), *arguments]


def free_port() -> int:
    """A TCP port that is free now."""
    return free_ports(1)[0]


def warm_memory(gib: int) -> None:
    """Touches memory and frees it, so that the first system to run does not pay for it.

    On a virtual machine the host provides memory when it is first touched. Here a gigabyte of new page cache then
    cost 1.6 to 1.9 processor seconds instead of 0.2 to 0.5, which looks like a slow broker.
    """
    held = [bytearray(2**30) for _ in range(gib)]
    for memory in held:
        memory[:: mmap.PAGESIZE] = b"\1" * len(range(0, 2**30, mmap.PAGESIZE))


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    return sum(_cpu_times(pid)[:2])


def _cpu_times(pid: int) -> list[float]:
    """User and system time of a process so far, and those of its children that have ended, in seconds."""
    # The command comes before these fields, and may contain spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [int(ticks) / _TICKS for ticks in fields[11:15]]


def resident_mib(pid: int) -> float:
    """The resident memory of a process in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for one in found:
        with suppress(OSError):  # It may have ended meanwhile.
            for thread in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found


def tree_cpu_seconds(pid: int) -> dict[int, float]:
    """`cpu_seconds` of a process and of each of its descendants that run now, by their numbers."""
    found = {}
    for one in tree(pid):
        with suppress(OSError):
            found[one] = cpu_seconds(one)
    return found


def tree_total_cpu_seconds(pid: int) -> float:
    """The CPU seconds of a process and its descendants so far, also of those that have ended."""
    total = 0.0
    for one in tree(pid):
        with suppress(OSError):
            total += sum(_cpu_times(one))
    return total


def tree_mib(pid: int) -> float:
    """The memory of a process and its descendants in MiB; pages that several share count once (PSS)."""
    total = 0
    for one in tree(pid):
        with suppress(OSError):
            total += int(re.findall(r"^Pss:\s+(\d+)", Path(f"/proc/{one}/smaps_rollup").read_text(), re.M)[0])
    return total / 1024


@contextmanager
def sampled_mib(pid: int) -> Iterator[list[float]]:
    """`tree_mib` of a process, twice a second: a list that grows until the context ends."""
    samples: list[float] = []
    is_ending = threading.Event()

    def sample() -> None:
        while not is_ending.wait(0.5):
            samples.append(tree_mib(pid))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        is_ending.set()
        thread.join()
