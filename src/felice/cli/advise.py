"""`felice advise`: how many partitions a topic needs for a throughput.

The rule: with a target of t bytes a second, a producer that writes p to one partition and a consumer that reads c from
one partition, a topic needs max(t/p, t/c) partitions. A rate that is not given is measured with a topic of one
partition that is deleted afterwards.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from felice.cli.faults import Fault
from felice.cli.load import Deliveries, Load, Rebalances, consume_batches, produce_load, same_value, size_of
from felice.cli.options import admin_client, client_config, connection_options, json_option
from felice.cli.output import show_json
from felice.dataclass import dataclass

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*(k|m|g|ki|mi|gi)?b(?:/s)?", re.IGNORECASE)
_MEASURED_BYTES = 200_000_000
_MEASURED_RECORDS = 500_000
_MEASURE_TIMEOUT_S = 30
_LEAST_RATE, _MOST_RATE = 1, 10**15


class ByteRate(click.ParamType[int]):
    """Bytes a second, such as 200MB/s, 1.5GiB/s or 800kB/s."""

    name = "rate"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Reads a number with a unit."""
        found = _RATE.fullmatch(str(value).strip()[:100])
        rate = round(float(found[1]) * _UNITS[(found[2] or "").lower()]) if found else 0
        if not _LEAST_RATE <= rate <= _MOST_RATE:
            self.fail(f"{str(value)[:100]!r} is not a rate such as 200MB/s, 1.5GiB/s or 800kB/s", param, ctx)
        return rate


@dataclass(frozen=True, slots=True)
class Rate:
    """Bytes a second that one producer writes to, or one consumer reads from, one partition."""

    bytes_per_second: int
    measured: bool


@dataclass(frozen=True, slots=True)
class Advice:
    """The number of partitions for a throughput, and the two numbers of which it is the larger."""

    throughput: int
    producer: Rate
    consumer: Rate

    @property
    def for_producers(self) -> int:
        """Partitions so that their producers reach the throughput."""
        return -(-self.throughput // self.producer.bytes_per_second)

    @property
    def for_consumers(self) -> int:
        """Partitions so that their consumers reach the throughput."""
        return -(-self.throughput // self.consumer.bytes_per_second)

    @property
    def partitions(self) -> int:
        """The larger of both."""
        return max(self.for_producers, self.for_consumers)

    def as_json(self) -> dict[str, object]:
        """The advice for scripts; rates in bytes a second."""
        return {
            "partitions": self.partitions,
            "partitions_for_producers": self.for_producers,
            "partitions_for_consumers": self.for_consumers,
            "throughput": self.throughput,
            "producer_rate": self.producer.bytes_per_second,
            "producer_rate_measured": self.producer.measured,
            "consumer_rate": self.consumer.bytes_per_second,
            "consumer_rate_measured": self.consumer.measured,
        }

    def lines(self) -> Iterator[str]:
        """The advice in words."""
        target = as_rate(self.throughput)
        yield f"Use {_partitions(self.partitions)} for {target}."
        yield ""
        yield (
            f"Writing: one producer writes {as_rate(self.producer.bytes_per_second)} to one partition "
            f"({_source(self.producer)}). For {target} that is {_partitions(self.for_producers)}."
        )
        yield (
            f"Reading: one consumer reads {as_rate(self.consumer.bytes_per_second)} from one partition "
            f"({_source(self.consumer)}). For {target} that is {_partitions(self.for_consumers)}, "
            "because in a group only one consumer reads a partition."
        )
        yield f"The larger number counts: {self._reason()}."
        yield ""
        yield (
            "Partitions can be added later, but then keys move to other partitions. If keys matter, choose the number "
            "for the throughput that you expect in a year or two. More partitions than needed cost open files, memory, "
            "and time when a broker fails."
        )
        if self.producer.measured or self.consumer.measured:
            yield (
                "Measured rates are those of Felice's Python client and of this broker now, without your application's "
                "own work. Give --producer-rate and --consumer-rate if you know them."
            )

    def _reason(self) -> str:
        if self.for_producers == self.for_consumers:
            return "here both are equal"
        return "reading sets it" if self.for_consumers > self.for_producers else "writing sets it"


def as_rate(bytes_per_second: float) -> str:
    """`200 MB/s`: three digits in the largest unit that leaves a number of at least 1."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_per_second >= size:
            return (
                f"{bytes_per_second / size:.3g} {unit}"
                if bytes_per_second < 1000 * size
                else (f"{bytes_per_second / size:,.0f} {unit}")
            )
    return f"{bytes_per_second:.3g} B/s"


def _partitions(count: int) -> str:
    return f"{count} partition{'s' * (count != 1)}"


def _source(rate: Rate) -> str:
    return "measured now" if rate.measured else "as given"


def measure_producer(config: Mapping[str, object], load: Load) -> Rate:
    """Writes a load and measures until the last acknowledgement."""
    deliveries = Deliveries(load.records)
    produce_load(config, load, deliveries, quiet=False)
    seconds = max(deliveries.summary()["seconds"], 1e-3)
    return Rate(max(1, round(load.records * len(load.value(0)) / seconds)), measured=True)


def measure_consumer(config: Mapping[str, object], topic: str, records: int) -> Rate:
    """Reads a load and measures from the assignment of the partition to the last record."""
    rebalances = Rebalances()
    begun = last = time.perf_counter()
    count = size_bytes = 0
    settings = {**config, "group.id": topic, "enable.auto.commit": False}
    for messages in consume_batches(
        settings, topic, rebalances, records=records, timeout_s=_MEASURE_TIMEOUT_S
    ):
        last = time.perf_counter()
        count += len(messages)
        size_bytes += size_of(messages)
    if count < records:
        raise Fault(f"only {count} of {records} records could be read to measure; give --consumer-rate")
    reading_s = max(last - begun - rebalances.total_s, 1e-3)
    return Rate(max(1, round(size_bytes / reading_s)), measured=True)


def measured_load(topic: str, record_bytes: int) -> Load:
    """200 MB, or half a million records if that is less."""
    records = max(1, min(_MEASURED_RECORDS, _MEASURED_BYTES // record_bytes))
    return Load(topic, records, same_value(record_bytes))


@contextmanager
def scratch_topic(bootstrap: str, command_config: Path | None) -> Iterator[str]:
    """A topic of one partition that is deleted at the end."""
    from felice.client.admin import NewTopic

    admin = admin_client(bootstrap, command_config)
    name = f"felice-advise-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 1)])[name].result()
    try:
        yield name
    finally:
        admin.delete_topics([name])[name].result()


@click.command()
@connection_options
@click.option(
    "--throughput",
    type=ByteRate(),
    required=True,
    help="Throughput that the topic must carry, such as 200MB/s or 200MiB/s.",
)
@click.option(
    "--producer-rate",
    type=ByteRate(),
    help="Rate at which one producer writes to one partition; measured if not given.",
)
@click.option(
    "--consumer-rate",
    type=ByteRate(),
    help="Rate at which one consumer reads and processes one partition; measured if not given.",
)
@click.option(
    "--record-size",
    type=click.IntRange(1, 1_000_000),
    default=1000,
    show_default=True,
    help="Bytes of each value when rates are measured.",
)
@json_option
def advise(
    bootstrap: str,
    command_config: Path | None,
    throughput: int,
    producer_rate: int | None,
    consumer_rate: int | None,
    record_size: int,
    as_json: bool,
) -> None:
    """Say how many partitions a topic needs for a throughput, and why.

    Rates that are not given are measured: up to 200 MB are written to a new topic, read, and deleted.

    \b
    felice advise --throughput 200MB/s --consumer-rate 50MB/s
    felice advise --throughput 200MB/s --consumer-rate 50MB/s --producer-rate 80MB/s
    """
    producer = Rate(producer_rate, measured=False) if producer_rate is not None else None
    consumer = Rate(consumer_rate, measured=False) if consumer_rate is not None else None
    if producer is None or consumer is None:
        config = client_config(bootstrap, command_config)
        with scratch_topic(bootstrap, command_config) as topic:
            load = measured_load(topic, record_size)
            # The consumer can only be measured with records in the topic.
            written = measure_producer(config, load)
            producer = producer or written
            consumer = consumer or measure_consumer(config, topic, load.records)
    advice = Advice(throughput, producer, consumer)
    if as_json:
        show_json(advice.as_json())
    else:
        click.echo("\n".join(advice.lines()))
