"""`felice perf`: measures how fast a topic can be written and read."""

from __future__ import annotations

from pathlib import Path

import click

from felice.cli.command_group import CommandGroup
from felice.cli.load import (
    Deliveries,
    Load,
    RoundTrip,
    consume_load,
    percentile,
    produce_load,
    round_trips,
    same_value,
)
from felice.cli.options import client_config, connection_options, json_option
from felice.cli.output import show_json


def check_throughput(context: click.Context, option: click.Parameter, value: float) -> float:
    """Refuses 0 records a second, which would never end."""
    if value < 0 or value > 0:
        return value
    raise click.BadParameter("give records a second, or -1 for no limit")


@click.group(cls=CommandGroup)
def perf() -> None:
    """Measure the throughput and latency of writing and reading a topic.

    \b
    felice perf produce load --num-records 1000000 --record-size 100
    felice perf consume load --messages 1000000
    felice perf latency idle --num-records 1000
    """


@perf.command("produce")
@click.argument("topic")
@connection_options
@click.option("--num-records", type=click.IntRange(min=1), required=True, help="Number of records to send.")
@click.option(
    "--record-size", type=click.IntRange(min=0), default=100, show_default=True, help="Bytes of each value."
)
@click.option(
    "--throughput",
    type=float,
    default=-1,
    callback=check_throughput,
    show_default=True,
    help="Records a second; -1 without limit.",
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
    config = {"client.id": "perf-producer", **client_config(bootstrap, command_config, extra)}
    deliveries = Deliveries(num_records)
    load = Load(topic, num_records, same_value(record_size), throughput)
    produce_load(config, load, deliveries, quiet=as_json)
    found = deliveries.summary()
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


@perf.command("latency")
@click.argument("topic")
@connection_options
@click.option(
    "--num-records",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Number of round trips.",
)
@click.option(
    "--record-size", type=click.IntRange(min=0), default=100, show_default=True, help="Bytes of each value."
)
@click.option(
    "--acks",
    type=click.Choice(["1", "all"]),
    default="all",
    show_default=True,
    help="Replicas that must have a record before it is acknowledged.",
)
@json_option
def perf_latency(
    topic: str,
    bootstrap: str,
    command_config: Path | None,
    num_records: int,
    record_size: int,
    acks: str,
    as_json: bool,
) -> None:
    """Send one record at a time, read it back, and report the time from sending to reading.

    Nothing else may write to the topic meanwhile.

    \b
    felice perf latency idle --num-records 1000
    """
    config = client_config(bootstrap, command_config)
    times_ms = sorted(round_trips(config, topic, RoundTrip(record_size), records=num_records, acks=acks))
    found = {
        "records": len(times_ms),
        "average_ms": round(sum(times_ms) / len(times_ms), 3),
        **{f"p{share:g}_ms": round(percentile(times_ms, share), 3) for share in (50, 99, 99.9)},
    }
    if as_json:
        show_json(found)
        return
    click.echo(
        f"{found['records']} round trips: {found['average_ms']:.3f} ms on average, {found['p50_ms']:.3f} ms 50th, "
        f"{found['p99_ms']:.3f} ms 99th, {found['p99.9_ms']:.3f} ms 99.9th."
    )
