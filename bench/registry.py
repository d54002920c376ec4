"""Measures `felice registry`: requests a second and their times, memory and the start with few and many schemas."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.systems import Felice, cpu_seconds, resident_mib
from bench.workloads import Figures
from felice.env.ports import free_ports
from felice.registry.content import AVRO, Content
from felice.registry.records import SchemaKey, SchemaValue, encode

TOPIC = "_schemas"
_FIELDS = ("customer", "city", "street", "items", "total", "paid", "created", "updated")


def avro_schema(number: int) -> str:
    """A record with eight fields, different for each number; about 450 characters in canonical form."""
    fields = ",".join(f'{{"name":"{name}_{number}","type":"string"}}' for name in _FIELDS)
    return f'{{"type":"record","name":"Order{number}","namespace":"com.example.orders","fields":[{fields}]}}'


def fill(bootstrap: str, count: int) -> None:
    """Writes the versions of `count` subjects into the topic, as a registry would."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = NewTopic(TOPIC, 1, 1, config={"cleanup.policy": "compact"})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([topic])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    for number in range(1, count + 1):
        subject = f"orders-{number}-value"
        value = SchemaValue(subject, 1, number, Content(AVRO, avro_schema(number)))
        key_bytes, value_bytes = encode((SchemaKey(subject, 1), value))
        producer.produce(TOPIC, value_bytes, key_bytes)
    assert producer.flush(120) == 0


class RunningRegistry:
    """A registry's process."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, first_answer_s: float) -> None:
        self.pid = process.pid
        self.port = port
        self.first_answer_s = first_answer_s


@contextmanager
def running(bootstrap: str) -> Iterator[RunningRegistry]:
    """`felice registry` on a free port, from its command to its first answer to a look-up of all types."""
    port = free_ports(1)[0]
    command = [str(Path(sys.executable).parent / "felice"), "registry", "--log-level", "error"]
    command += ["--bootstrap-server", bootstrap, "--port", str(port)]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        asyncio.run(_first_answer(port))
        yield RunningRegistry(process, port, time.perf_counter() - begun)
    finally:
        process.terminate()
        process.wait(60)


async def _first_answer(port: int) -> None:
    while True:
        try:
            async with asyncio.timeout(120):
                connection = await Connection.open(port)
        except OSError:
            await asyncio.sleep(0.005)
            continue
        status, _ = await connection.request("GET", "/schemas/types")
        connection.close()
        assert status == 200, status
        return


class Connection:
    """One kept connection to a registry. A request costs little, so the server has nearly the whole processor."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """The status and the body of the answer."""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        head += "Content-Type: application/vnd.schemaregistry.v1+json\r\n\r\n"
        self._writer.write(head.encode() + body)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        found = await self._reader.readexactly(int(headers["content-length"]))
        return int(lines[0].split()[1]), found

    def close(self) -> None:
        self._writer.close()


async def load(
    port: int, clients: int, seconds: float, make: Callable[[int], tuple[str, str, bytes]]
) -> list[float]:
    """The times in seconds of requests `make(0)`, `make(1)` …, which each of `clients` connections sends in turn."""
    numbers, times = iter(range(10**9)), []
    end = time.perf_counter() + seconds

    async def one() -> None:
        connection = await Connection.open(port)
        while (begun := time.perf_counter()) < end:
            status, body = await connection.request(*make(next(numbers)))
            assert status == 200, (status, body)
            times.append(time.perf_counter() - begun)
        connection.close()

    await asyncio.gather(*(one() for _ in range(clients)))
    return times


def registration(number: int) -> tuple[str, str, bytes]:
    """A request that registers a new schema under a new subject."""
    body = json.dumps({"schema": avro_schema(1_000_000 + number)}).encode()
    return "POST", f"/subjects/new-{number}/versions", body


def by_id(stored: int) -> Callable[[int], tuple[str, str, bytes]]:
    """Requests for the stored schemas by id."""
    return lambda number: ("GET", f"/schemas/ids/{1 + number * 7919 % stored}", b"")


def by_schema(stored: int) -> Callable[[int], tuple[str, str, bytes]]:
    """Requests that look the versions of stored schemas up, as serializers without registration send them."""

    def make(number: int) -> tuple[str, str, bytes]:
        found = 1 + number * 7919 % stored
        body = json.dumps({"schema": avro_schema(found)}).encode()
        return "POST", f"/subjects/orders-{found}-value", body

    return make


def measured(
    what: str,
    registry: RunningRegistry,
    clients: int,
    seconds: float,
    make: Callable[[int], tuple[str, str, bytes]],
) -> Figures:
    """Rate, times and processor time of one kind of request."""
    before_s = cpu_seconds(registry.pid)
    times = asyncio.run(load(registry.port, clients, seconds, make))
    used_s = cpu_seconds(registry.pid) - before_s
    return {
        f"{what}/s": len(times) / seconds,
        f"{what} p50 ms": statistics.median(times) * 1000,
        f"{what} p99 ms": statistics.quantiles(times, n=100)[98] * 1000,
        f"{what} cpu us": used_s / len(times) * 1e6,
    }


def stored_schemas(count: int, seconds: float) -> Figures:
    """A registry that finds `count` schemas in its topic: start, memory, look-ups, and then registrations."""
    with Felice() as broker:
        fill(broker.bootstrap, count)
        with running(broker.bootstrap) as registry:
            figures = {
                "first answer ms": registry.first_answer_s * 1000,
                "resident MiB": resident_mib(registry.pid),
            }
            figures |= measured("by id", registry, 16, seconds, by_id(count))
            figures |= measured("by schema", registry, 16, seconds, by_schema(count))
            figures |= measured("registrations of 1 client", registry, 1, seconds, registration)
            offset = 1_000_000
            figures |= measured(
                "registrations of 16 clients",
                registry,
                16,
                seconds,
                lambda number: registration(offset + number),
            )
            figures["resident MiB after the load"] = resident_mib(registry.pid)
            return figures
