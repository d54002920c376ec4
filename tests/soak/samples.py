"""Repeated measurements of one broker process from outside: one line of JSON for each interval.

Keeps true: a sample costs the broker one small request and, if it was started by `soak.probed`, one signal.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from conformance.live_process import LiveProcess
from conformance.wire import Wire
from felice.protocol.messages.api_versions import ApiVersionsRequest

PING_INTERVAL_S = 0.25
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    rss_mib: float
    heap_mib: float
    """Anonymous memory in MiB: resident memory without pages of files."""
    log_files: int
    """The number of open files below the data directory."""
    sockets: int
    other_files: int
    threads: int
    cpu_percent: float
    log_mib: float
    ping_ms: float
    """Median and longest time, in milliseconds, of a response that needs nothing but the event loop."""
    worst_ping_ms: float
    tasks: int
    objects: int

    @property
    def open_files(self) -> int:
        return self.log_files + self.sockets + self.other_files


def read_samples(path: Path) -> list[Sample]:
    return [Sample(**json.loads(line)) for line in path.read_text().splitlines()]


class Sampler(threading.Thread):
    """Appends a sample to `path` every `interval_s` seconds until it is stopped."""

    def __init__(self, broker: LiveProcess, path: Path, census: Path, interval_s: float) -> None:
        super().__init__(name="sampler", daemon=True)
        self._broker, self._path, self._census = broker, path, census
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._began = time.monotonic()
        self._last = (self._began, cpu_seconds(broker.pid))
        self._pings: list[float] = []

    def run(self) -> None:
        with self._broker.wire(120) as wire, self._path.open("a") as out:
            while not self._stopping.is_set():
                self._ping_for(self._interval_s, wire)
                out.write(json.dumps(asdict(self.take())) + "\n")
                out.flush()

    def stop(self) -> None:
        self._stopping.set()
        self.join(self._interval_s + 120)

    def _ping_for(self, seconds: float, wire: Wire) -> None:
        self._pings.clear()
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._stopping.is_set():
            asked = time.perf_counter()
            wire.ask(ApiVersionsRequest(), 0)
            self._pings.append(1000 * (time.perf_counter() - asked))
            self._stopping.wait(PING_INTERVAL_S)

    def take(self) -> Sample:
        pid = self._broker.pid
        tasks, objects = self._counted()
        log_files, sockets, other = open_files(pid, self._broker.data_dir)
        memory = memory_mib(pid)
        return Sample(
            at_s=round(time.monotonic() - self._began, 1),
            rss_mib=memory["VmRSS"],
            heap_mib=memory["RssAnon"],
            log_files=log_files,
            sockets=sockets,
            other_files=other,
            threads=len(os.listdir(f"/proc/{pid}/task")),
            cpu_percent=self._cpu_percent(),
            log_mib=round(size_of(self._broker.data_dir) / 2**20, 1),
            ping_ms=round(statistics.median(self._pings or [0.0]), 2),
            worst_ping_ms=round(max(self._pings or [0.0]), 2),
            tasks=tasks,
            objects=objects,
        )

    def _cpu_percent(self) -> float:
        before_at, before = self._last
        self._last = time.monotonic(), cpu_seconds(self._broker.pid)
        return round(100 * (self._last[1] - before) / max(self._last[0] - before_at, 0.001), 1)

    def _counted(self) -> tuple[int, int]:
        """The counts of the last signal; sends the next signal."""
        last = self._census.read_text().splitlines()[-1:] if self._census.exists() else []
        os.kill(self._broker.pid, signal.SIGUSR2)
        counted = json.loads(last[0]) if last else {"tasks": 0, "objects": 0}
        return counted["tasks"], counted["objects"]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mib(pid: int) -> dict[str, float]:
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {words[0].rstrip(":"): round(int(words[1]) / 1024, 2) for words in lines if words[-1:] == ["kB"]}


def open_files(pid: int, data_dir: Path) -> tuple[int, int, int]:
    """The numbers of open files below the data directory, of sockets, and of other descriptors."""
    names: list[str] = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            names.append(str(entry.readlink()))
        except OSError:
            continue  # closed meanwhile
    logs = sum(name.startswith(str(data_dir)) for name in names)
    sockets = sum(name.startswith("socket:") for name in names)
    return logs, sockets, len(names) - logs - sockets


def size_of(directory: Path) -> int:
    total = 0
    for place, _, files in os.walk(directory):
        for name in files:
            try:
                total += os.stat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                continue  # deleted meanwhile
    return total
