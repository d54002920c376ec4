"""Load from librdkafka: a small C program, which is compiled when it is first used."""

from __future__ import annotations

import json
import resource
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_SOURCE = Path(__file__).parent / "rdkafka_load.c"
_PRODUCER = ("queue.buffering.max.messages=1000000", "queue.buffering.max.kbytes=1048576", "linger.ms=5")
_CONSUMER = ("queued.max.messages.kbytes=65536", "fetch.message.max.bytes=4194304", "check.crcs=false")


class CompilerMissing(Exception):
    """The program cannot be compiled. The text says what is missing."""


@cache
def program() -> Path:
    """The compiled program."""
    target = Path(tempfile.mkdtemp(prefix="felice-bench-")) / "rdkafka_load"
    try:
        done = subprocess.run(
            ["cc", "-O2", "-o", str(target), str(_SOURCE), "-lrdkafka", "-lpthread"],
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        raise CompilerMissing(
            "this workload needs a C compiler and librdkafka's headers (librdkafka-dev)"
        ) from None
    if done.returncode:
        raise CompilerMissing(
            f"librdkafka's headers are needed (librdkafka-dev): {done.stderr.splitlines()[0]}"
        )
    return target


def produce(bootstrap: str, topic: str, records: int, record_bytes: int, *config: str) -> dict[str, Any]:
    """Produces records and returns the program's figures."""
    return _run("produce", bootstrap, topic, records, record_bytes, *_PRODUCER, *config)


def consume(bootstrap: str, topic: str, records: int, partitions: int, *config: str) -> dict[str, Any]:
    """Consumes records and returns the program's figures. The first record and the wait for it do not count."""
    return _run("consume", bootstrap, topic, records, partitions, *_CONSUMER, "group.id=bench", *config)


def rate(found: Mapping[str, Any]) -> float:
    """Records in a second, from what `produce` or `consume` returned."""
    return float(found["records"]) / float(found["seconds"])


def latency(
    bootstrap: str, topic: str, records: int, record_bytes: int, partitions: int, per_second: int
) -> dict[str, Any]:
    """Produces at a fixed rate, consumes at once, and returns percentiles of the latency in milliseconds."""
    return _run("latency", bootstrap, topic, records, record_bytes, partitions, per_second)


def _run(*arguments: object) -> dict[str, Any]:
    command = [str(program()), *map(str, arguments)]
    before_s = _children_cpu_s()
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    used_s = _children_cpu_s() - before_s
    if done.returncode:
        raise RuntimeError(f"librdkafka's load failed: {done.stdout} {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "cpu_s": used_s}


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
