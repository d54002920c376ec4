"""`kafka-transactions`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from felice.cli.faults import Fault
from felice.cli.kafka_tools import bootstrap_server_option, kafka_tool_group
from felice.cli.options import admin_client, command_config_option, wait_all
from felice.cli.transactions import (
    describe_producers,
    find_hanging,
    now_ms,
    open_transaction,
    partitions_to_search,
)
from felice.client.admin import AbortTransactionSpec, TopicPartition
from felice.client.error import KafkaException

_NONE = "None"
topic_option = click.option("--topic", required=True, help="Topic of the partition.")
partition_option = click.option("--partition", type=int, required=True, help="Partition number.")


@kafka_tool_group("kafka-transactions")
@bootstrap_server_option
@command_config_option
@click.pass_context
def kafka_transactions(context: click.Context, bootstrap_server: str, command_config: Path | None) -> None:
    """List and describe transactions, find those that hang, and abort them.

    \b
    kafka-transactions --bootstrap-server localhost:9092 list
    """
    context.obj = (bootstrap_server, command_config)


@contextmanager
def _failing(what: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise Fault(f"Failed to {what}: {error.error.str()}.") from None


@kafka_transactions.command("list")
@click.option(
    "--duration-filter",
    type=int,
    default=-1,
    help="Only transactions open for longer than this many milliseconds.",
)
@click.option("--transactional-id-pattern", help="Only transactional ids that match this regular expression.")
@click.pass_obj
def list_command(
    where: tuple[str, Path | None], duration_filter: int, transactional_id_pattern: str | None
) -> None:
    """List transactions.

    \b
    kafka-transactions --bootstrap-server localhost:9092 list --duration-filter 900000
    """
    with _failing("list transactions"):
        asked = admin_client(*where).list_transactions(
            longer_than_ms=max(-1, duration_filter), pattern=transactional_id_pattern
        )
        listed = asked.result()
    rows = [
        (row.transactional_id, broker, row.producer_id, row.state.value)
        for broker, found in listed.items()
        for row in found
    ]
    _print(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), rows)


@kafka_transactions.command("describe")
@click.option("--transactional-id", required=True, help="Transactional id to describe.")
@click.pass_obj
def describe_command(where: tuple[str, Path | None], transactional_id: str) -> None:
    """Describe the state of an active transactional-id.

    \b
    kafka-transactions --bootstrap-server localhost:9092 describe --transactional-id copier
    """
    with _failing(f"describe transaction state of transactional-id `{transactional_id}`"):
        found = wait_all(admin_client(*where).describe_transactions([transactional_id]))[transactional_id]
    began_ms = found.start_time_ms
    row = {
        "CoordinatorId": found.coordinator_id,
        "TransactionalId": transactional_id,
        "ProducerId": found.producer_id,
        "ProducerEpoch": found.producer_epoch,
        "TransactionState": found.state.value,
        "TransactionTimeoutMs": found.timeout_ms,
        "CurrentTransactionStartTimeMs": _NONE if began_ms is None else began_ms,
        "TransactionDurationMs": _NONE if began_ms is None else now_ms() - began_ms,
        "TopicPartitions": ",".join(_name(partition) for partition in found.topic_partitions),
    }
    _print(tuple(row), [tuple(row.values())])


@kafka_transactions.command("describe-producers")
@click.option("--broker-id", type=int, help="Ask this replica instead of the leader.")
@topic_option
@partition_option
@click.pass_obj
def describe_producers_command(
    where: tuple[str, Path | None], broker_id: int | None, topic: str, partition: int
) -> None:
    """Describe the states of active producers for a topic partition.

    \b
    kafka-transactions --bootstrap-server localhost:9092 describe-producers --topic flights --partition 0
    """
    replica = "leader" if broker_id is None else f"broker {broker_id}"
    with _failing(f"describe producers for partition {topic}-{partition} on {replica}"):
        found = list(describe_producers(admin_client(*where), [TopicPartition(topic, partition)], broker_id))
    rows = [
        (
            producer.producer_id,
            producer.producer_epoch,
            _or(producer.coordinator_epoch, -1),
            producer.last_sequence,
            producer.last_timestamp_ms,
            _or(producer.current_transaction_start_offset, _NONE),
        )
        for _, producer in found
    ]
    columns = ("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp")
    _print((*columns, "CurrentTransactionStartOffset"), rows)


@kafka_transactions.command("find-hanging")
@click.option("--broker-id", type=int, help="Ask this replica instead of the leader.")
@click.option(
    "--max-transaction-timeout",
    type=int,
    default=15,
    help="Minutes after which an open transaction counts as hanging.",
)
@click.option("--topic", help="Topic of the partition.")
@click.option("--partition", type=int, help="Partition number.")
@click.pass_obj
def find_hanging_command(
    where: tuple[str, Path | None],
    broker_id: int | None,
    max_transaction_timeout: int,
    topic: str | None,
    partition: int | None,
) -> None:
    """Find hanging transactions.

    \b
    kafka-transactions --bootstrap-server localhost:9092 find-hanging --topic flights
    """
    if topic is None and broker_id is None:
        raise Fault(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
        )
    if partition is not None and topic is None:
        raise Fault("The --partition argument requires --topic to be provided")
    admin = admin_client(*where)
    with _failing("find hanging transactions"):
        partitions = partitions_to_search(admin, [] if topic is None else [topic], partition, broker_id)
        hanging = find_hanging(admin, partitions, broker_id, max_transaction_timeout * 60_000)
    asked_ms = now_ms()
    rows = [
        (
            found.topic,
            found.partition,
            producer.producer_id,
            producer.producer_epoch,
            _or(producer.coordinator_epoch, -1),
            producer.current_transaction_start_offset,
            producer.last_timestamp_ms,
            (asked_ms - producer.last_timestamp_ms) // 60_000,
        )
        for found, producer in hanging
    ]
    columns = ("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset")
    _print((*columns, "LastTimestamp", "Duration(min)"), rows)


@kafka_transactions.command("abort")
@topic_option
@partition_option
@click.option("--start-offset", type=int, help="First offset of the transaction.")
@click.option("--producer-id", type=int, help="Producer id, if --start-offset is not given.")
@click.option("--producer-epoch", type=int, help="Producer epoch, with --producer-id.")
@click.option("--coordinator-epoch", type=int, help="Coordinator epoch, with --producer-id.")
@click.pass_obj
def abort_command(where: tuple[str, Path | None], /, topic: str, partition: int, **asked: int | None) -> None:
    """Abort a hanging transaction (requires administrative privileges).

    \b
    kafka-transactions --bootstrap-server localhost:9092 abort --topic flights --partition 0 --start-offset 4711
    """
    named = TopicPartition(topic, partition)
    start_offset = asked["start_offset"]
    if start_offset is None and asked["producer_id"] is None:
        raise Fault(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) "
            "or with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )
    if start_offset is None:
        for option in ("producer_epoch", "coordinator_epoch"):
            if asked[option] is None:
                raise Fault(f"Missing required argument --{option.replace('_', '-')}")
    admin = admin_client(*where)
    spec: AbortTransactionSpec | None
    if start_offset is not None:
        with _failing(f"validate producer state for partition {_name(named)}"):
            spec = open_transaction(admin, named, start_offset)
        if spec is None:
            raise Fault(
                f"Could not find any open transactions starting at offset {start_offset} on partition {_name(named)}"
            )
    else:
        # `describe-producers` prints -1 before the first marker; epoch 0 is accepted because no epoch is lower.
        epoch = max(0, asked["coordinator_epoch"] or 0)
        spec = AbortTransactionSpec(named, asked["producer_id"] or 0, asked["producer_epoch"] or 0, epoch)
    with _failing(
        f"abort transaction AbortTransactionSpec(topicPartition={_name(named)}, producerId={spec.producer_id}, "
        f"producerEpoch={spec.producer_epoch}, coordinatorEpoch={spec.coordinator_epoch})"
    ):
        admin.abort_transaction(spec).result()


@kafka_transactions.command("forceTerminateTransaction")
@click.option(
    "--transactionalId",
    "transactional_id",
    required=True,
    help="Transactional id whose open transaction is aborted.",
)
@click.pass_obj
def force_terminate_command(where: tuple[str, Path | None], transactional_id: str) -> None:
    """Force abort an ongoing transaction on transactionalId (requires administrative privileges).

    \b
    kafka-transactions --bootstrap-server localhost:9092 forceTerminateTransaction --transactionalId copier
    """
    with _failing(f"force terminate transactionalId `{transactional_id}`"):
        admin_client(*where).force_terminate_transaction(transactional_id).result()


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _or(value: int | None, absent: int | str) -> int | str:
    return absent if value is None else value


def _print(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a table in which every cell has its column's width and a tab at its end."""
    table = [tuple(columns), *(tuple(map(str, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        click.echo("".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)))
