"""Load of single requests, each sent after the previous reply: a small C program, compiled when it is first used."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from bench.rdkafka import CompilerMissing

_SOURCE = Path(__file__).parent / "request_load.c"


@cache
def program() -> Path:
    """The compiled program."""
    target = Path(tempfile.mkdtemp(prefix="felice-bench-")) / "request_load"
    try:
        subprocess.run(["cc", "-O2", "-o", str(target), str(_SOURCE)], check=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise CompilerMissing(f"this workload needs a C compiler: {error}") from None
    return target


def produce_request(topic: str) -> bytes:
    """A Produce request (acks=1) with one record of 100 bytes, size included."""
    from felice.protocol.frames import encode_request
    from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
    from felice.records.builder import build_batch
    from felice.records.record import Record

    batch = build_batch([Record(0, int(time.time() * 1000), None, bytes(100))])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    return encode_request(0, 10, 1, "bench", ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data]))


def repeat(bootstrap: str, request: bytes, connections: int, seconds: float) -> dict[str, float]:
    """Sends the request over so many connections for so long, and returns the program's figures."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(request)
        file.flush()
        port = bootstrap.rpartition(":")[2]
        command = [str(program()), port, str(connections), str(seconds), file.name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"the load failed: {done.stderr}")
    found: dict[str, float] = json.loads(done.stdout)
    return found
