"""Copies a topic exactly once with aiokafka; see `conformance/copying.py` for the rules.

Arguments: bootstrap, input topic, output topic, transactional id, group, records in a transaction.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced

GIVEN_UP = 3


class OnPurpose(Exception):
    """Aborts and repeats one transaction in eight."""


async def run(
    bootstrap: str, source: str, target: str, name: str, group: str, size: int, stopping: asyncio.Event
) -> str:
    # The producer first: its start completes what was left open, and aiokafka does not ask for stable offsets.
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
        consumer = AIOKafkaConsumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=group,
            # Static, so that the one started after a kill takes its place at once.
            group_instance_id="copier",
            session_timeout_ms=60_000,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        async with consumer:
            print("READY", flush=True)
            while not stopping.is_set():
                found = await consumer.getmany(timeout_ms=200, max_records=size)
                if found:
                    await copy(producer, consumer, found, target, group)
                elif await is_done(consumer):
                    return "DONE"
    return "STOPPED"


async def copy(producer: Any, consumer: Any, found: dict[Any, list[Any]], target: str, group: str) -> None:
    try:
        async with producer.transaction():
            for partition, records in found.items():
                for record in records:
                    await producer.send(target, record.value, record.key, partition=partition.partition)
            ends = {partition: records[-1].offset + 1 for partition, records in found.items()}
            await producer.send_offsets_to_transaction(ends, group)
            if random.randrange(8) == 0:
                await producer.flush()
                raise OnPurpose
    except ProducerFenced:
        raise
    except (OnPurpose, KafkaError) as error:
        if not isinstance(error, OnPurpose):
            print(f"aborted: {error!r}", file=sys.stderr)
        await rewind(consumer)
    else:
        print(f"COPIED {sum(map(len, found.values()))}", flush=True)


async def rewind(consumer: Any) -> None:
    for partition in consumer.assignment():
        consumer.seek(partition, await consumer.committed(partition) or 0)


async def is_done(consumer: Any) -> bool:
    assigned = consumer.assignment()
    if not assigned:
        return False
    ends = await consumer.end_offsets(assigned)
    return all([(await consumer.committed(row) or 0) >= ends[row] for row in assigned])


async def main() -> None:
    *names, size = sys.argv[1:]
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    try:
        print(await run(*names, int(size), stopping), flush=True)  # type: ignore[misc, call-arg, arg-type]
    except KafkaError as error:
        print(f"giving up: {error!r}", file=sys.stderr, flush=True)
        os._exit(GIVEN_UP)


if __name__ == "__main__":
    asyncio.run(main())
