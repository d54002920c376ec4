"""Programs that use uvloop: its transports are no subclasses of asyncio's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# 2 MB of values need several pieces of the client's outbox, and the broker's sendfile.
COPY = """
from felice.client import Consumer, Producer
from felice.client.admin import AdminClient, NewTopic

def copy(address, **security):
    config = {"bootstrap.servers": address, **security}
    AdminClient(config).create_topics([NewTopic("t", 2)])["t"].result(60)
    values = {b"%d" % number + bytes(20_000) for number in range(100)}
    with Producer(config) as producer:
        for value in values:
            producer.produce("t", value)
        assert producer.flush(60) == 0
    consumer = Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found = set()
    while len(found) < len(values):
        message = consumer.poll(60)
        assert message is not None and message.error() is None, message and message.error()
        found.add(message.value())
    consumer.close()
    assert found == values
    print("copied")
"""

BLOCKING = """
import uvloop
uvloop.install()
from felice.testing import Broker
with Broker() as broker:
    copy(broker.bootstrap)
"""

EMBEDDED = """
import uvloop
from felice.env import event_loop
loops = []
def new_event_loop():
    loops.append(uvloop.new_event_loop())
    return loops[-1]
event_loop.new_event_loop = new_event_loop
from felice.testing import Broker
with Broker() as broker:
    assert loops
    copy(broker.bootstrap)
"""

ASYNCIO = """
import asyncio, uvloop
from felice.client.aio import Consumer, Producer
from felice.testing.aio import AsyncBroker

async def main():
    async with AsyncBroker() as broker:
        await broker.create_topic("t")
        config = {"bootstrap.servers": broker.bootstrap}
        values = [b"%d" % number + bytes(20_000) for number in range(100)]
        async with Producer(config) as producer:
            await asyncio.gather(*[await producer.send("t", value) for value in values])
        group = {**config, "group.id": "g", "auto.offset.reset": "earliest"}
        async with Consumer(group) as consumer, asyncio.timeout(60):
            await consumer.subscribe(["t"])
            found = []
            async for message in consumer:
                found.append(message.value())
                if len(found) == len(values):
                    break
        assert found == values
    print("copied")

uvloop.run(main())
"""


@pytest.mark.parametrize(
    "program", [COPY + BLOCKING, COPY + EMBEDDED, ASYNCIO], ids=["blocking", "broker", "aio"]
)
def test_records_are_copied_on_loops_of_uvloop(program: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert (done.returncode, done.stdout.strip()) == (0, "copied"), done.stderr
