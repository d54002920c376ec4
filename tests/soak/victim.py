"""A group member that prints what it read and then commits, until it is killed. Arguments: bootstrap, group, topic."""

from __future__ import annotations

import sys
from pathlib import Path

import confluent_kafka

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from soak.clients import read_of
from soak.members import options_of

if __name__ == "__main__":
    bootstrap, group, topic = sys.argv[1:]
    consumer = confluent_kafka.Consumer(options_of(bootstrap, group))
    consumer.subscribe([topic])
    while True:
        came = [message for message in consumer.consume(200, 0.2) if message.error() is None]
        for message in came:
            row = read_of(message)
            print(row.writer, row.number, row.partition, row.offset)
        sys.stdout.flush()
        if came:
            try:
                consumer.commit(asynchronous=False)
            except confluent_kafka.KafkaException:
                continue  # the group rebalances; the printed records may be read again
