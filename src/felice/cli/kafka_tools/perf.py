"""`kafka-producer-perf-test`, `kafka-consumer-perf-test` and `kafka-e2e-latency`."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import click

from felice.cli.faults import Fault
from felice.cli.kafka_tools import ToolCommand, bootstrap_server_option, kafka_tool
from felice.cli.load import (
    MIB,
    Deliveries,
    Load,
    ProducedLoad,
    Rebalances,
    RoundTrip,
    consume_batches,
    percentile,
    produce_load,
    round_trips,
    same_value,
    size_of,
)
from felice.cli.options import (
    admin_client,
    client_config,
    client_properties,
    read_text,
)
from felice.cli.perf import check_throughput

_file = click.Path(exists=True, dir_okay=False, path_type=Path)
_LONGEST_MS = 2**31 - 1
_DEFAULT_TRANSACTION_MS = 3000
_ROUND_TRIPS_PER_LINE = 1000


class _ManyValues(ToolCommand):
    """Lets --command-property and --producer-props take several values after one option, as Kafka's tool does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeats the option before each of its values."""
        return super().parse_args(ctx, repeat_option(args, ("--command-property", "--producer-props")))


def repeat_option(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """`--o a=b c=d` becomes `--o a=b --o c=d` for each of the options."""
    found: list[str] = []
    option, values = "", 0
    for word in words:
        if word.startswith("--"):
            option, values = (word if word in options else ""), 0
        elif option:
            found += [option] * (values > 0)
            values += 1
        found.append(word)
    return found


@kafka_tool("kafka-producer-perf-test", _ManyValues)
@click.option("--bootstrap-server", metavar="HOST:PORT,…", help="Brokers to connect to first.")
@click.option("--topic", required=True, help="Topic to write to.")
@click.option("--num-records", type=click.IntRange(min=1), required=True, help="Number of records to send.")
@click.option("--record-size", type=click.IntRange(min=1, max=2**30), help="Bytes of each value.")
@click.option("--payload-file", type=_file, help="A file of UTF-8 text; each value is one of its parts.")
@click.option("--payload-delimiter", default="\\n", help="What separates the parts of --payload-file.")
@click.option("--payload-monotonic", is_flag=True, help="The values are 0, 1, 2, … as text.")
@click.option(
    "--throughput",
    type=float,
    required=True,
    callback=check_throughput,
    help="Records a second; -1 without limit.",
)
@click.option(
    "--command-property",
    "--producer-props",
    "properties",
    multiple=True,
    metavar="KEY=VALUE …",
    help="Producer options.",
)
@click.option(
    "--command-config",
    "--producer.config",
    "command_config",
    type=_file,
    help="A file of producer properties.",
)
@click.option("--transactional-id", help="Send the records in transactions with this id.")
@click.option(
    "--transaction-duration-ms",
    type=click.IntRange(1, _LONGEST_MS),
    help="Commit each transaction after this time.",
)
@click.option(
    "--warmup-records",
    type=click.IntRange(min=0),
    default=0,
    help="Print a second summary without this many first records.",
)
@click.option(
    "--reporting-interval",
    "interval_ms",
    type=click.IntRange(1, _LONGEST_MS),
    default=5000,
    help="Milliseconds between lines of progress.",
)
def kafka_producer_perf_test(
    bootstrap_server: str | None,
    topic: str,
    num_records: int,
    record_size: int | None,
    payload_file: Path | None,
    payload_delimiter: str,
    payload_monotonic: bool,
    throughput: float,
    properties: tuple[str, ...],
    command_config: Path | None,
    transactional_id: str | None,
    transaction_duration_ms: int | None,
    warmup_records: int,
    interval_ms: int,
) -> None:
    """Send records and report rates and latencies.

    \b
    kafka-producer-perf-test --topic load --num-records 1000000 --record-size 100 --throughput -1 \\
        --bootstrap-server localhost:9092
    """
    if warmup_records >= num_records:
        raise Fault(
            "The value for --warmup-records must be strictly fewer than the number of records in the test, "
            "--num-records."
        )
    value = _values(record_size, payload_file, payload_delimiter, payload_monotonic)
    config = _producer_config(bootstrap_server, command_config, properties)
    if transactional_id:
        config["transactional.id"] = transactional_id
    if transaction_duration_ms:
        config.setdefault("transactional.id", f"performance-producer-{uuid.uuid4()}")
    transaction_s = None
    if config.get("transactional.id"):
        transaction_s = (transaction_duration_ms or _DEFAULT_TRANSACTION_MS) / 1000
    report = ProducerReport(num_records, warmup_records, interval_ms / 1000)
    load = Load(topic, num_records, value, throughput, transaction_s)
    produce_load(config, load, report, quiet=True)
    report.end()


def _values(size: int | None, file: Path | None, delimiter: str, monotonic: bool) -> Callable[[int], bytes]:
    if (size is not None) + (file is not None) + monotonic != 1:
        raise Fault("exactly one of --record-size, --payload-file and --payload-monotonic is required")
    if file is not None:
        return _values_of_file(file, delimiter.replace("\\n", "\n").replace("\\t", "\t"))
    return same_value(size) if size is not None else (lambda number: b"%d" % number)


def _values_of_file(file: Path, delimiter: str) -> Callable[[int], bytes]:
    text = read_text(file)
    if not text:
        raise Fault(f"File does not exist or empty file provided: {file}")
    if not delimiter:
        raise Fault("--payload-delimiter may not be empty")
    values = [part.encode() for part in text.removesuffix(delimiter).split(delimiter)]
    click.echo(f"Number of records read: {len(values)}")
    chance = random.Random(0)
    return lambda number: chance.choice(values)


def _producer_config(
    bootstrap: str | None, command_config: Path | None, properties: tuple[str, ...]
) -> dict[str, object]:
    config: dict[str, object] = {"client.id": "perf-producer-client"}
    config.update(client_properties(command_config, properties))
    if bootstrap:
        config["bootstrap.servers"] = bootstrap
    if "bootstrap.servers" not in config:
        raise Fault(
            "--bootstrap-server is missing; bootstrap.servers in --command-property or --command-config also does"
        )
    return config


class ProducerReport:
    """Prints Kafka's lines: progress after each interval, and summaries with and without the warm-up."""

    def __init__(self, records: int, warmup: int, interval_s: float) -> None:
        self._all = Deliveries(records)
        self._window = Deliveries(records)
        self._steady: Deliveries | None = None
        self._records, self._warmup, self._interval_s = records, warmup, interval_s
        if warmup:
            click.echo(
                f"Warmup first {warmup} records. "
                "Steady state results will print after the complete test summary."
            )

    def begin(self) -> None:
        """Starts the clocks."""
        self._all.begin()
        self._window.begin()

    def add(self, latency_ms: float, size_bytes: int) -> None:
        """Counts one record."""
        self._all.add(latency_ms, size_bytes)
        self._window.add(latency_ms, size_bytes)
        if self._steady is not None:
            self._steady.add(latency_ms, size_bytes)
        elif self._warmup and self._all.count == self._warmup:
            click.echo("In steady state.")
            self._steady = Deliveries(self._records - self._warmup)
        if time.perf_counter() - self._window.begun >= self._interval_s:
            click.echo(window_line(self._window.summary()))
            self._window = Deliveries(self._records)

    def end(self) -> None:
        """Prints the summaries."""
        click.echo(summary_line(self._all.summary(), ""))
        if self._steady is not None:
            click.echo(summary_line(self._steady.summary(), " steady state"))


def window_line(found: ProducedLoad) -> str:
    """Kafka's line of progress."""
    latency = found["latency_ms"]
    return (
        f"{found['records']} records sent, {found['records_per_second']:.1f} records/sec "
        f"({found['mib_per_second']:.2f} MB/sec), {latency['average']:.1f} ms avg latency, "
        f"{latency['max']:.1f} ms max latency."
    )


def summary_line(found: ProducedLoad, kind: str) -> str:
    """Kafka's last line."""
    latency = found["latency_ms"]
    return (
        f"{found['records']}{kind} records sent, {found['records_per_second']:f} records/sec "
        f"({found['mib_per_second']:.2f} MB/sec), {latency['average']:.2f} ms avg latency, "
        f"{latency['max']:.2f} ms max latency, {latency['p50']:.0f} ms 50th, {latency['p95']:.0f} ms 95th, "
        f"{latency['p99']:.0f} ms 99th, {latency['p99.9']:.0f} ms 99.9th."
    )


@kafka_tool("kafka-consumer-perf-test")
@bootstrap_server_option
@click.option("--topic", help="Topic to read.")
@click.option("--include", help="Read all topics whose names match this regular expression.")
@click.option(
    "--num-records",
    "--messages",
    "records",
    type=click.IntRange(min=1),
    required=True,
    help="Number of records to read.",
)
@click.option("--group", help="Consumer group to join; without it a new one.")
@click.option(
    "--command-property", "properties", multiple=True, metavar="KEY=VALUE", help="A consumer option."
)
@click.option(
    "--command-config",
    "--consumer.config",
    "command_config",
    type=_file,
    help="A file of consumer properties.",
)
@click.option(
    "--fetch-size",
    type=click.IntRange(1, _LONGEST_MS),
    default=MIB,
    help="Most bytes of one partition in a response.",
)
@click.option(
    "--socket-buffer-size",
    type=click.IntRange(1, _LONGEST_MS),
    default=2 * MIB,
    help="Bytes of the socket's receive buffer.",
)
@click.option("--from-latest", is_flag=True, help="Start at the end if the group has no committed offset.")
@click.option("--timeout", "timeout_ms", type=int, default=10_000, help="Most milliseconds between records.")
@click.option("--show-detailed-stats", "detailed", is_flag=True, help="Print a line for each interval.")
@click.option(
    "--reporting-interval",
    "interval_ms",
    type=click.IntRange(1, _LONGEST_MS),
    default=5000,
    help="Milliseconds between the lines of --show-detailed-stats.",
)
@click.option("--hide-header", is_flag=True, help="Print no line with the names of the columns.")
def kafka_consumer_perf_test(
    bootstrap_server: str,
    topic: str | None,
    include: str | None,
    records: int,
    group: str | None,
    properties: tuple[str, ...],
    command_config: Path | None,
    fetch_size: int,
    socket_buffer_size: int,
    from_latest: bool,
    timeout_ms: int,
    detailed: bool,
    interval_ms: int,
    hide_header: bool,
) -> None:
    """Read records and report rates.

    \b
    kafka-consumer-perf-test --bootstrap-server localhost:9092 --topic load --num-records 1000000
    """
    if (topic is None) == (include is None):
        raise Fault("exactly one of --topic and --include is required")
    config: dict[str, object] = {
        "client.id": "perf-consumer-client",
        "group.id": group or f"perf-consumer-{random.randrange(100_000)}",
        "auto.offset.reset": "latest" if from_latest else "earliest",
        "max.partition.fetch.bytes": fetch_size,
        "receive.buffer.bytes": socket_buffer_size,
        "check.crcs": False,
        **client_config(bootstrap_server, command_config, properties),
    }
    if group is not None and config["group.id"] != group:
        raise Fault(f"--group {group!r} and group.id {config['group.id']!r} do not match")
    report = ConsumerReport(Rebalances(), interval_ms / 1000 if detailed else None)
    if not hide_header:
        click.echo(report.header())
    batches = consume_batches(
        config, topic or f"^({include})$", report.rebalances, records=records, timeout_s=timeout_ms / 1000
    )
    for messages in batches:
        report.on_read(len(messages), size_of(messages))
    if report.records < records:
        click.echo(
            f"WARNING: Exiting before consuming the expected number of records: timeout ({timeout_ms} ms) "
            "exceeded. You can use the --timeout option to increase the timeout."
        )
    report.end()


_RATES = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


class ConsumerReport:
    """Prints Kafka's lines: one after each interval, or, if `interval_s` is None, one at the end.

    The clock stops at the last record, so that the time to close the consumer does not count.
    """

    def __init__(self, rebalances: Rebalances, interval_s: float | None) -> None:
        self.rebalances = rebalances
        self.records = 0
        self._interval_s = interval_s
        self._size_bytes = 0
        self._begun = self._ended = datetime.now()
        self._reported_at = self._last = time.perf_counter()
        self._reported_records = self._reported_bytes = 0
        self._reported_rebalance_s = 0.0

    def header(self) -> str:
        """The names of the columns."""
        return f"{'start.time, end.time' if self._interval_s is None else 'time, threadId'}, {_RATES}"

    def on_read(self, records: int, size_bytes: int) -> None:
        """Counts records, and prints a line if an interval has ended."""
        self.records += records
        self._size_bytes += size_bytes
        self._ended, self._last = datetime.now(), time.perf_counter()
        if self._interval_s is None or self._last - self._reported_at < self._interval_s:
            return
        click.echo(f"{_as_date(self._ended)}, 0, {self._rates()}")
        self._reported_at = self._last
        self._reported_records, self._reported_bytes = self.records, self._size_bytes
        self._reported_rebalance_s = self.rebalances.total_s

    def end(self) -> None:
        """Prints the line for the whole run."""
        if self._interval_s is None:
            click.echo(f"{_as_date(self._begun)}, {_as_date(self._ended)}, {self._rates()}")

    def _rates(self) -> str:
        elapsed_s = max(self._last - self._reported_at, 1e-3)
        rebalance_s = self.rebalances.total_s - self._reported_rebalance_s
        fetch_s = max(elapsed_s - rebalance_s, 1e-3)
        records = self.records - self._reported_records
        mib = (self._size_bytes - self._reported_bytes) / MIB
        return (
            f"{self._size_bytes / MIB:.4f}, {mib / elapsed_s:.4f}, {self.records}, {records / elapsed_s:.4f}, "
            f"{rebalance_s * 1000:.0f}, {fetch_s * 1000:.0f}, {mib / fetch_s:.4f}, {records / fetch_s:.4f}"
        )


def _as_date(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}:{moment.microsecond // 1000:03}"


_POSITIONS = ("--bootstrap-server", "--topic", "--num-records", "--producer-acks", "--record-size")


class _Positional(ToolCommand):
    """Takes values without names, too, as Kafka's tool does: it warns and goes on."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts the names before values that have none."""
        if len(args) in (5, 6) and not any(word.startswith("-") for word in args):
            names = [*_POSITIONS, "--command-config"]
            click.echo(
                "WARNING: Positional argument usage is deprecated and will be removed in Apache Kafka 5.0. "
                f"Please use named arguments instead: {', '.join(names)}"
            )
            args = [word for pair in zip(names, args, strict=False) for word in pair]
        return super().parse_args(ctx, args)


@kafka_tool("kafka-e2e-latency", _Positional)
@bootstrap_server_option
@click.option("--topic", required=True, help="Topic to write and read; nothing else may write to it.")
@click.option("--num-records", type=click.IntRange(min=1), required=True, help="Number of round trips.")
@click.option(
    "--producer-acks",
    type=click.Choice(["1", "all"]),
    required=True,
    help="Replicas that must have a record before it is acknowledged.",
)
@click.option("--record-size", type=click.IntRange(0, 2**30), required=True, help="Bytes of each value.")
@click.option(
    "--record-key-size", type=click.IntRange(0, 2**30), default=0, help="Bytes of each key; 0: no key."
)
@click.option("--num-headers", type=click.IntRange(0, 10_000), default=0, help="Headers of each record.")
@click.option(
    "--record-header-key-size", type=click.IntRange(0, 2**15), default=0, help="Bytes of a header's key."
)
@click.option(
    "--record-header-size",
    type=click.IntRange(-1, 2**20),
    default=0,
    help="Bytes of a header's value; -1: null.",
)
@click.option("--command-config", type=_file, help="A file of properties of producer and consumer.")
def kafka_e2e_latency(
    bootstrap_server: str,
    topic: str,
    num_records: int,
    producer_acks: str,
    record_size: int,
    record_key_size: int,
    num_headers: int,
    record_header_key_size: int,
    record_header_size: int,
    command_config: Path | None,
) -> None:
    """Send one record at a time, read it back, and report the time from sending to reading.

    \b
    kafka-e2e-latency --bootstrap-server localhost:9092 --topic idle --num-records 1000 \\
        --producer-acks all --record-size 100
    """
    _create_if_missing(bootstrap_server, command_config, topic)
    shape = RoundTrip(
        record_size, record_key_size or None, num_headers, record_header_key_size, record_header_size
    )
    times_ms: list[float] = []
    config = client_config(bootstrap_server, command_config)
    for elapsed_ms in round_trips(config, topic, shape, records=num_records, acks=producer_acks):
        if len(times_ms) % _ROUND_TRIPS_PER_LINE == 0:
            click.echo(f"{len(times_ms)}\t{elapsed_ms:.6f}")
        times_ms.append(elapsed_ms)
    click.echo(f"Avg latency: {sum(times_ms) / num_records:.4f} ms")
    times_ms.sort()
    p50, p99, p999 = (int(percentile(times_ms, share)) for share in (50, 99, 99.9))
    click.echo(f"Percentiles: 50th = {p50}, 99th = {p99}, 99.9th = {p999}")


def _create_if_missing(bootstrap: str, command_config: Path | None, topic: str) -> None:
    from felice.client.admin import NewTopic

    admin = admin_client(bootstrap, command_config)
    if topic in admin.list_topics(timeout=60).topics:
        return
    click.echo(
        f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) and replication factor = 1'
    )
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
