"""Copies a topic exactly once with a client of confluent_kafka's face; see `conformance/copying.py` for the rules.

Arguments: module (confluent_kafka or felice.client), bootstrap, input topic, output topic, transactional id, group,
records in a transaction.
"""

from __future__ import annotations

import importlib
import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

# How long one call may take on a machine under heavy load. Afterwards the copier gives up, and is started again:
# librdkafka throws away its handle of a broker that is not in the metadata, and may use it for transactions ever after.
TIMEOUT_S = 90
GIVEN_UP = 3
# When every broker is down librdkafka 2.16 begins again from the bootstrap servers, but keeps asking the broker handle
# that it has thrown away for the group: send_offsets_to_transaction then times out for ever.
OF_MODULE = {"confluent_kafka": {"metadata.recovery.strategy": "none"}}


class OnPurpose(Exception):
    """Aborts and repeats one transaction in eight."""


class Copier:
    def __init__(self, module: Any, bootstrap: str, source: str, target: str, name: str, group: str) -> None:
        self.module = module
        self.source, self.target = source, target
        common = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500}
        common |= OF_MODULE.get(module.__name__, {})
        self.producer = module.Producer({**common, "transactional.id": name, "linger.ms": 5})
        self.consumer = module.Consumer(
            {
                **common,
                "group.id": group,
                # Static, so that the one started after a kill takes its place at once.
                "group.instance.id": "copier",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self.stopping = False

    def stop(self, *signal_and_frame: object) -> None:
        self.stopping = True

    def run(self, size: int) -> str:
        self.insist(lambda: self.producer.init_transactions(TIMEOUT_S))
        self.consumer.subscribe([self.source])
        print("READY", flush=True)
        while not self.stopping:
            messages = [m for m in self.consumer.consume(size, timeout=0.2) if m.error() is None]
            if messages:
                self.copy(messages)
            elif self.is_done():
                return "DONE"
        return "STOPPED"

    def copy(self, messages: list[Any]) -> None:
        self.producer.begin_transaction()
        try:
            for message in messages:
                self.produce(message)
            self.send_offsets(messages)
            if random.randrange(8) == 0:
                self.producer.flush(TIMEOUT_S)
                raise OnPurpose
            self.insist(lambda: self.producer.commit_transaction(TIMEOUT_S))
        except OnPurpose:
            self.abort()
        except self.module.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            print(f"aborting: {error}", file=sys.stderr)
            self.abort()
        else:
            print(f"COPIED {len(messages)}", flush=True)

    def produce(self, message: Any) -> None:
        while True:
            try:
                self.producer.produce(
                    self.target, message.value(), message.key(), partition=message.partition()
                )
                return
            except BufferError:
                self.producer.poll(0.1)

    def send_offsets(self, messages: list[Any]) -> None:
        ends = {message.partition(): message.offset() + 1 for message in messages}
        offsets = [self.module.TopicPartition(self.source, *end) for end in ends.items()]
        group = self.consumer.consumer_group_metadata()
        self.insist(lambda: self.producer.send_offsets_to_transaction(offsets, group, TIMEOUT_S))

    def abort(self) -> None:
        self.insist(lambda: self.producer.abort_transaction(TIMEOUT_S))
        for row in self.insist(lambda: self.consumer.committed(self.consumer.assignment(), TIMEOUT_S)):
            row.offset = max(row.offset, 0)
            self.insist(lambda row=row: self.consumer.seek(row))

    def insist(self, call: Callable[[], Any]) -> Any:
        """Repeats the call while its error is retriable."""
        while True:
            try:
                return call()
            except self.module.KafkaException as error:
                reason = error.args[0]
                is_stuck = reason.code() == self.module.KafkaError._TIMED_OUT
                if is_stuck or reason.fatal() or reason.txn_requires_abort() or not reason.retriable():
                    raise

    def is_done(self) -> bool:
        assigned = self.consumer.assignment()
        if not assigned:
            return False
        committed = self.insist(lambda: self.consumer.committed(assigned, TIMEOUT_S))
        ends = [self.consumer.get_watermark_offsets(row, TIMEOUT_S) for row in assigned]
        return all(end and row.offset >= end[1] for row, end in zip(committed, ends, strict=True))


def main() -> None:
    module, *names, size = sys.argv[1:]
    copier = Copier(importlib.import_module(module), *names)
    signal.signal(signal.SIGTERM, copier.stop)
    try:
        print(copier.run(int(size)), flush=True)
        copier.consumer.close()
    except copier.module.KafkaException as error:
        print(f"giving up: {error}", file=sys.stderr, flush=True)
        os._exit(GIVEN_UP)


if __name__ == "__main__":
    main()
