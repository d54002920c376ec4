"""Measures how fast a topic can be written and read; the lines are those of Kafka's own tools."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from felice.cli.command_group import CommandGroup
from felice.cli.options import client_config, connection_options, json_option
from felice.cli.output import progress, show_json
from felice.cli.produce import brief_parting, send_when_room, undelivered

if TYPE_CHECKING:
    from felice.client import KafkaError, Message

_REPORT_EVERY = 10_000
_MIB = 1024 * 1024


def _percentile(sorted_values: list[float], share: float) -> float:
    return (
        sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))] if sorted_values else 0.0
    )


class ProducedLoad(TypedDict):
    """The result of a produced load. `latency_ms` has average, max, p50, p95, p99 and p99.9."""

    records: int
    seconds: float
    records_per_second: float
    mib_per_second: float
    latency_ms: dict[str, float]


class ConsumedLoad(TypedDict):
    """The result of a consumed load. The first record comes after joining the group."""

    records: int
    seconds: float
    records_per_second: float
    mib_per_second: float
    seconds_to_first_record: float
    records_per_second_after_first: float


class _Latencies:
    """How long deliveries took. Every hundredth value is kept, so that memory stays small."""

    def __init__(self) -> None:
        self.values_ms: list[float] = []
        self.failures = 0
        self.first_failure: KafkaError | None = None

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """A delivery callback that counts failures and latencies."""
        if error is not None:
            self.failures += 1
            self.first_failure = self.first_failure or error
        elif (message.offset() or 0) % 100 == 0:
            self.values_ms.append((message.latency() or 0.0) * 1000)


def produce_load(
    config: Mapping[str, object],
    topic: str,
    *,
    records: int,
    record_bytes: int,
    per_second: float,
    quiet: bool,
) -> ProducedLoad:
    """Sends `records` records of random bytes; A negative `per_second` means no limit."""
    from felice.client import KafkaException, Producer

    payload = random.Random(0).randbytes(record_bytes)
    latencies = _Latencies()
    sent = 0
    try:
        with (
            Producer({"client.id": "perf-producer", **config}) as producer,
            brief_parting(producer),
            progress("producing", records, quiet=quiet) as advance,
        ):
            begun = time.perf_counter()
            while sent < records:
                send_when_room(producer, topic, value=payload, on_delivery=latencies.on_delivery)
                sent += 1
                if sent % 100 == 0:
                    producer.poll(0)
                    _throttle(begun, sent, per_second)
                if sent % _REPORT_EVERY == 0:
                    advance(_REPORT_EVERY)
            producer.flush()
    except KeyboardInterrupt:
        if latencies.failures:
            raise undelivered(latencies.failures, sent) from None
        raise
    elapsed_s = time.perf_counter() - begun
    if latencies.failures:
        raise KafkaException(latencies.first_failure)
    ordered = sorted(latencies.values_ms)
    return {
        "records": records,
        "seconds": round(elapsed_s, 3),
        "records_per_second": round(records / elapsed_s, 1),
        "mib_per_second": round(records * record_bytes / elapsed_s / _MIB, 2),
        "latency_ms": {
            "average": round(sum(ordered) / len(ordered), 2) if ordered else 0.0,
            "max": round(ordered[-1], 2) if ordered else 0.0,
            **{f"p{share:g}": round(_percentile(ordered, share / 100), 2) for share in (50, 95, 99, 99.9)},
        },
    }


def _throttle(begun: float, sent: int, per_second: float) -> None:
    if per_second > 0:
        ahead_s = sent / per_second - (time.perf_counter() - begun)
        if ahead_s > 0.001:
            time.sleep(ahead_s)


def consume_load(
    config: Mapping[str, object], topic: str, *, records: int, timeout_s: float, quiet: bool
) -> ConsumedLoad:
    """Reads up to `records` records from the beginning. Ends when none came for `timeout_s`."""
    from felice.client import Consumer

    consumer = Consumer(
        {
            "client.id": "perf-consumer",
            "auto.offset.reset": "earliest",
            "group.id": f"perf-{time.time_ns()}",
            **config,
        }
    )
    count = size = 0
    begun = last = first = time.perf_counter()
    try:
        consumer.subscribe([topic])
        with progress("consuming", records, quiet=quiet) as advance:
            while count < records and time.perf_counter() - last < timeout_s:
                messages = [m for m in consumer.consume(5000, 0.2) if m.error() is None]
                if not messages:
                    continue
                last = time.perf_counter()
                first = last if count == 0 else first
                count += len(messages)
                size += sum(len(m.value() or b"") + len(m.key() or b"") for m in messages)
                advance(len(messages))
    finally:
        consumer.close()
    elapsed_s = max(last - begun, 1e-9)
    fetch_s = max(last - first, 1e-9)
    return {
        "records": count,
        "seconds": round(elapsed_s, 3),
        "records_per_second": round(count / elapsed_s, 1),
        "mib_per_second": round(size / elapsed_s / _MIB, 2),
        "seconds_to_first_record": round(first - begun, 3),
        "records_per_second_after_first": round(count / fetch_s, 1),
    }


@click.group(cls=CommandGroup)
def perf() -> None:
    """Measure the throughput and latency of writing and reading a topic.

    \b
    felice perf produce load --num-records 1000000 --record-size 100
    felice perf consume load --messages 1000000
    """


@perf.command("produce")
@click.argument("topic")
@connection_options
@click.option("--num-records", type=click.IntRange(min=1), required=True, help="Number of records to send.")
@click.option(
    "--record-size", type=click.IntRange(min=0), default=100, show_default=True, help="Bytes of each value."
)
@click.option(
    "--throughput", type=float, default=-1, show_default=True, help="Records a second; -1 without limit."
)
@click.option(
    "--producer-props",
    "-X",
    "extra",
    multiple=True,
    metavar="KEY=VALUE",
    help="A producer option; may be repeated.",
)
@json_option
def perf_produce(
    topic: str,
    bootstrap: str,
    command_config: Path | None,
    num_records: int,
    record_size: int,
    throughput: float,
    extra: tuple[str, ...],
    as_json: bool,
) -> None:
    """Send records of random bytes and report rate and latency.

    \b
    felice perf produce load --num-records 1000000 --record-size 100
    """
    config = client_config(bootstrap, command_config, extra)
    found = produce_load(
        config, topic, records=num_records, record_bytes=record_size, per_second=throughput, quiet=as_json
    )
    if as_json:
        show_json(found)
        return
    latency = found["latency_ms"]
    click.echo(
        f"{found['records']} records sent, {found['records_per_second']:.1f} records/sec "
        f"({found['mib_per_second']:.2f} MB/sec), {latency['average']:.2f} ms avg latency, "
        f"{latency['max']:.2f} ms max latency, {latency['p50']:.0f} ms 50th, {latency['p95']:.0f} ms 95th, "
        f"{latency['p99']:.0f} ms 99th, {latency['p99.9']:.0f} ms 99.9th."
    )


@perf.command("consume")
@click.argument("topic")
@connection_options
@click.option("--messages", type=click.IntRange(min=1), required=True, help="Number of records to read.")
@click.option(
    "--timeout",
    "timeout_ms",
    type=int,
    default=10_000,
    show_default=True,
    help="Stop if no record arrives for this many milliseconds.",
)
@click.option(
    "--consumer-props",
    "-X",
    "extra",
    multiple=True,
    metavar="KEY=VALUE",
    help="A consumer option; may be repeated.",
)
@json_option
def perf_consume(
    topic: str,
    bootstrap: str,
    command_config: Path | None,
    messages: int,
    timeout_ms: int,
    extra: tuple[str, ...],
    as_json: bool,
) -> None:
    """Read records from the beginning and report the rate.

    \b
    felice perf consume load --messages 1000000
    """
    config = client_config(bootstrap, command_config, extra)
    found = consume_load(config, topic, records=messages, timeout_s=timeout_ms / 1000, quiet=as_json)
    if found["records"] < messages:
        click.echo(
            f"warning: no record came for {timeout_ms} ms; ended after {found['records']} of {messages}",
            err=True,
        )
    if as_json:
        show_json(found)
        return
    click.echo(
        f"{found['records']} records read in {found['seconds']} s: {found['records_per_second']:.1f} records/sec "
        f"({found['mib_per_second']:.2f} MB/sec); after the first, which took "
        f"{found['seconds_to_first_record']} s, {found['records_per_second_after_first']:.1f} records/sec."
    )
