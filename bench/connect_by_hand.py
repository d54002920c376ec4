"""What a user writes without Connect, with the same libraries: each function is a program that `running` starts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BATCH = 2000


def rows_to_topic(url: str, bootstrap: str, topic: str) -> None:
    """Copies a table, one batch after the other, and goes on after the last row."""
    import sqlalchemy

    from felice.client import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    query = sqlalchemy.text(f"select * from orders where id > :last order by id limit {BATCH}")
    last = 0
    with sqlalchemy.create_engine(url).connect() as connection:
        while True:
            rows = connection.execute(query, {"last": last}).mappings().all()
            for row in rows:
                producer.produce(topic, json.dumps(dict(row)).encode())
                producer.poll(0)
            producer.flush()
            last = rows[-1]["id"] if rows else last
            connection.rollback()


def topic_to_rows(url: str, bootstrap: str, topic: str, table: str) -> None:
    """Inserts the records of a topic, and commits offsets after the rows."""
    import sqlalchemy

    insert = sqlalchemy.text(f"insert into {table} values (:id, :name, :price)")
    engine = sqlalchemy.create_engine(url)
    for batch in _batches(bootstrap, topic, BATCH):
        with engine.begin() as connection:
            connection.execute(insert, [json.loads(value) for value in batch])


def topic_to_objects(url: str, bootstrap: str, topic: str, flush_records: str) -> None:
    """Puts an object for each so many records."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        "records",
        endpoint=url,
        access_key_id="test",
        secret_access_key="test",
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    lines: list[str] = []
    number, most = 0, int(flush_records)
    for batch in _batches(bootstrap, topic, BATCH):
        lines += [json.dumps(json.loads(value)) for value in batch]
        while len(lines) >= most:
            text = "\n".join(lines[:most]) + "\n"
            obstore.put(store, f"by-hand/{topic}/{number:010}.json", text.encode())
            lines, number = lines[most:], number + 1


def _batches(bootstrap: str, topic: str, most: int) -> Iterator[list[bytes]]:
    from felice.client import Consumer

    group = {"group.id": f"by-hand-{topic}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with Consumer({"bootstrap.servers": bootstrap, **group}) as consumer:
        consumer.subscribe([topic])
        while True:
            messages = consumer.consume(most, 0.1)
            if messages:
                yield [message.value() for message in messages if message.error() is None]
                consumer.commit(asynchronous=False)


def fill(bootstrap: str, topic: str, records: int) -> None:
    """Writes records of JSON into a topic."""
    from felice.client import Producer

    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(records):
            value = json.dumps({"id": number, "name": f"customer {number}", "price": number / 2}).encode()
            while True:
                try:
                    producer.produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()


@contextmanager
def running(program: str, *words: object) -> Iterator[None]:
    """Runs one of the programs above."""
    command = [sys.executable, "-m", "bench.connect_by_hand", program, *map(str, words)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[1])
    try:
        yield
        assert process.poll() is None, f"{program} ended with {process.returncode}"
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
