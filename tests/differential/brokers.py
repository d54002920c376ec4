"""Both brokers with the same settings, as processes of their own, ready for groups and transactions."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from conformance.group_calls import find_coordinator
from conformance.secured import Secured
from conformance.transaction_calls import find_transaction_coordinator, until_settled
from differential.address import Address
from felice.protocol.messages.init_producer_id import InitProducerIdRequest
from felice.protocol.messages.list_groups import ListGroupsRequest
from peers.apache_kafka import ApacheKafka

SETTINGS = {
    "node.id": "1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    "num.partitions": "2",
}


@contextlib.contextmanager
def apache_kafka() -> Iterator[Address]:
    with ApacheKafka(SETTINGS) as kafka:
        address = Address(kafka.bootstrap)
        make_ready(address)
        yield address


@contextlib.contextmanager
def with_authorizer(
    start: Callable[[Path, Mapping[str, str]], AbstractContextManager[Secured]],
) -> Iterator[Address]:
    """A broker with an authorizer; `start` is `secured_kafka` or `secured_felice`."""
    directory = Path(tempfile.mkdtemp(prefix="differential-"))
    try:
        with start(directory, SETTINGS) as broker:
            address = Address(broker.bootstrap, broker.admin_address)
            make_ready(address)
            yield address
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def felice(log: Path | None = None) -> Iterator[Address]:
    directory = Path(tempfile.mkdtemp(prefix="differential-"))
    command = [str(Path(sys.executable).parent / "felice"), "start", "--port", "0"]
    command += ["--data-dir", str(directory / "data")]
    command += [word for name, value in SETTINGS.items() for word in ("-o", f"{name}={value}")]
    with (log or directory / "log").open("w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=dict(os.environ)
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"([\w.\[\]:]+:\d+)", line.replace("PLAINTEXT://", ""))
        if not found:
            raise RuntimeError(f"felice did not start: {line!r}")
        address = Address(found[1])
        make_ready(address)
        yield address
    finally:
        process.terminate()
        process.wait(120)
        if process.stdout is not None:
            process.stdout.close()
        shutil.rmtree(directory, ignore_errors=True)


def make_ready(address: Address) -> None:
    """Until the topics of the coordinators are there and every coordinator has read its log."""
    with address.connect(address.administrator) as wire:
        for number in range(16):
            find_coordinator(wire, f"ready-{number}")
            find_transaction_coordinator(wire, f"ready-{number}")
            asked = InitProducerIdRequest(transactional_id=f"ready-{number}", transaction_timeout_ms=1000)
            until_settled(lambda asked=asked: wire.ask(asked, 4).error_code)  # type: ignore[misc]
        until_settled(lambda: wire.ask(ListGroupsRequest(), 4).error_code)
