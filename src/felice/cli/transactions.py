"""Transactions for operators: list and describe them, find hanging ones, and abort them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.options import admin_client, connection_options, json_option, wait_all
from felice.cli.output import show

if TYPE_CHECKING:
    from felice.client.admin import (
        AbortTransactionSpec,
        AdminClient,
        ProducerState,
        TopicPartition,
        TransactionDescription,
        TransactionState,
    )

# The number of partitions in one request to a broker.
_MOST_PARTITIONS = 500
_TIMEOUT_S = 30.0


def now_ms() -> int:
    """Now, in milliseconds since the epoch."""
    return int(time.time() * 1000)


def partitions_to_search(
    admin: AdminClient, topics: Sequence[str], partition: int | None, broker_id: int | None
) -> list[TopicPartition]:
    """The partitions of these topics (of all, if none is named). With a broker: only those it has replicas of."""
    from felice.cli.topics import existing
    from felice.client.admin import TopicPartition

    existing(admin, topics)
    if partition is not None:
        return [TopicPartition(name, partition) for name in topics]
    known = admin.list_topics(timeout=_TIMEOUT_S).topics
    return [
        TopicPartition(name, number)
        for name in topics or sorted(known)
        for number, found in sorted(known[name].partitions.items())
        if broker_id is None or broker_id in found.replicas
    ]


def describe_producers(
    admin: AdminClient, partitions: Sequence[TopicPartition], broker_id: int | None
) -> Iterator[tuple[TopicPartition, ProducerState]]:
    """Every active producer of these partitions, as their leaders (or the named broker) report them."""
    for start in range(0, len(partitions), _MOST_PARTITIONS):
        asked = partitions[start : start + _MOST_PARTITIONS]
        for partition, producers in wait_all(admin.describe_producers(asked, broker_id=broker_id)).items():
            yield from ((partition, producer) for producer in producers)


def find_hanging(
    admin: AdminClient, partitions: Sequence[TopicPartition], broker_id: int | None, longer_than_ms: int
) -> list[tuple[TopicPartition, ProducerState]]:
    """Transactions that are open in a partition for longer than this, and that no coordinator knows and will end."""
    asked_ms = now_ms()
    candidates = [
        (partition, producer)
        for partition, producer in describe_producers(admin, partitions, broker_id)
        if producer.current_transaction_start_offset is not None
        and asked_ms - producer.last_timestamp_ms > longer_than_ms
    ]
    if not candidates:
        return []
    producer_ids = sorted({producer.producer_id for _, producer in candidates})
    listed = admin.list_transactions(producer_ids=producer_ids).result()
    names = {row.producer_id: row.transactional_id for rows in listed.values() for row in rows}
    known = _described(admin, set(names.values()))
    ending = {name: set(found.topic_partitions) for name, found in known.items()}
    return [
        (partition, producer)
        for partition, producer in candidates
        if partition not in ending.get(names.get(producer.producer_id, ""), set())
    ]


def _described(admin: AdminClient, names: set[str]) -> dict[str, TransactionDescription]:
    """Descriptions of the transactional ids; ids that no longer exist are left out."""
    from felice.client.admin import KafkaError, KafkaException

    found = {}
    for name, future in (admin.describe_transactions(names) if names else {}).items():
        try:
            found[name] = future.result()
        except KafkaException as error:
            if error.code != KafkaError.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    return found


def open_transaction(
    admin: AdminClient, partition: TopicPartition, start_offset: int
) -> AbortTransactionSpec | None:
    """The specification for aborting the open transaction that begins at an offset."""
    from felice.client.admin import AbortTransactionSpec

    for producer in admin.describe_producers([partition])[partition].result():
        if producer.current_transaction_start_offset == start_offset:
            # The partition learns the coordinator's epoch from the producer's first marker; until then it is unknown.
            return AbortTransactionSpec(
                partition, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch or 0
            )
    return None


@click.group(cls=CommandGroup)
def transactions() -> None:
    """List and describe transactions; find hanging ones and end them.

    \b
    felice transactions list --state Ongoing --longer-than-ms 60000
    felice transactions find-hanging flights
    felice transactions abort flights 0 --start-offset 4711
    """


@transactions.command("list")
@connection_options
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help="Only transactions in this state; may be repeated.",
)
@click.option(
    "--producer-id", "producer_ids", type=int, multiple=True, help="Only transactions of this producer id."
)
@click.option(
    "--longer-than-ms",
    type=click.IntRange(min=0),
    help="Only transactions that have been open for longer than this.",
)
@click.option("--pattern", help="Only ids that match this regular expression (whole id).")
@json_option
def list_command(
    bootstrap: str,
    command_config: Path | None,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than_ms: int | None,
    pattern: str | None,
    as_json: bool,
) -> None:
    """Show the transactional ids of all coordinators.

    \b
    felice transactions list --state Ongoing --state PrepareCommit
    felice transactions list --pattern 'copier-.*' --json
    """
    listed = admin_client(bootstrap, command_config).list_transactions(
        states=_states(states),
        producer_ids=producer_ids,
        longer_than_ms=-1 if longer_than_ms is None else longer_than_ms,
        pattern=pattern,
    )
    rows = [
        {
            "transactional_id": row.transactional_id,
            "coordinator": broker,
            "producer_id": row.producer_id,
            "state": row.state.value,
        }
        for broker, found in listed.result().items()
        for row in found
    ]
    show(rows, as_json, empty="There are no such transactions.")


def _states(names: Sequence[str]) -> list[TransactionState]:
    from felice.client.admin import TransactionState

    known = {
        state.value.lower(): state for state in TransactionState if state is not TransactionState.UNKNOWN
    }
    for name in names:
        if name.lower() not in known:
            raise Fault(f"there is no state {name}; there are {', '.join(s.value for s in known.values())}")
    return [known[name.lower()] for name in names]


@transactions.command("describe")
@click.argument("transactional_ids", nargs=-1, required=True)
@connection_options
@json_option
def describe_command(
    transactional_ids: tuple[str, ...], bootstrap: str, command_config: Path | None, as_json: bool
) -> None:
    """Show the state of transactional ids, and the partitions of open transactions.

    \b
    felice transactions describe copier-0 copier-1
    """
    admin = admin_client(bootstrap, command_config)
    asked_ms = now_ms()
    rows = []
    for name, found in wait_all(admin.describe_transactions(list(dict.fromkeys(transactional_ids)))).items():
        began_ms = found.start_time_ms
        rows.append(
            {
                "transactional_id": name,
                "coordinator": found.coordinator_id,
                "producer_id": found.producer_id,
                "producer_epoch": found.producer_epoch,
                "state": found.state.value,
                "timeout_ms": found.timeout_ms,
                "start_time_ms": began_ms,
                "duration_ms": None if began_ms is None else asked_ms - began_ms,
                "partitions": [f"{row.topic}-{row.partition}" for row in found.topic_partitions],
            }
        )
    show(rows, as_json)


@transactions.command("describe-producers")
@click.argument("topic")
@connection_options
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition.")
@click.option("--broker", type=int, help="Ask the replica on this broker instead of the leader.")
@json_option
def describe_producers_command(
    topic: str,
    bootstrap: str,
    command_config: Path | None,
    partition: int | None,
    broker: int | None,
    as_json: bool,
) -> None:
    """Show the producers of a topic's partitions, and the first offset of each open transaction.

    \b
    felice transactions describe-producers flights --partition 0
    """
    admin = admin_client(bootstrap, command_config)
    wanted = partitions_to_search(admin, [topic], partition, broker)
    found = describe_producers(admin, wanted, broker)
    show(_producer_rows(found), as_json, empty="No producer is active in these partitions.")


@transactions.command("find-hanging")
@click.argument("topics", nargs=-1)
@connection_options
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition of the topic.")
@click.option("--broker", type=int, help="Only partitions of this broker; ask it instead of the leaders.")
@click.option(
    "--max-timeout-minutes",
    type=click.IntRange(min=0),
    default=15,
    show_default=True,
    help="The brokers' transaction.max.timeout.ms, in minutes; younger transactions are not reported.",
)
@json_option
def find_hanging_command(
    topics: tuple[str, ...],
    bootstrap: str,
    command_config: Path | None,
    partition: int | None,
    broker: int | None,
    max_timeout_minutes: int,
    as_json: bool,
) -> None:
    """Find transactions that no coordinator will end, in the named topics or in all.

    \b
    felice transactions find-hanging
    felice transactions find-hanging flights --partition 0
    """
    if partition is not None and len(topics) != 1:
        raise Fault("--partition needs exactly one topic")
    admin = admin_client(bootstrap, command_config)
    wanted = partitions_to_search(admin, topics, partition, broker)
    hanging = find_hanging(admin, wanted, broker, max_timeout_minutes * 60_000)
    show(_producer_rows(hanging), as_json, empty="No transaction hangs.")


def _producer_rows(found: Iterable[tuple[TopicPartition, ProducerState]]) -> list[dict[str, object]]:
    return [
        {
            "partition": f"{partition.topic}-{partition.partition}",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "coordinator_epoch": producer.coordinator_epoch,
            "last_sequence": producer.last_sequence,
            "last_timestamp_ms": producer.last_timestamp_ms,
            "start_offset": producer.current_transaction_start_offset,
        }
        for partition, producer in found
    ]


@transactions.command("abort")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@connection_options
@click.option(
    "--start-offset",
    type=click.IntRange(min=0),
    required=True,
    help="First offset of the transaction, as find-hanging shows it.",
)
def abort_command(
    topic: str, partition: int, bootstrap: str, command_config: Path | None, start_offset: int
) -> None:
    """Abort a transaction that hangs in one partition.

    \b
    felice transactions abort flights 0 --start-offset 4711

    The coordinator is not involved. If it knows the transaction, use force-terminate instead.
    """
    from felice.client.admin import TopicPartition

    admin = admin_client(bootstrap, command_config)
    spec = open_transaction(admin, TopicPartition(topic, partition), start_offset)
    if spec is None:
        raise Fault(f"no transaction that begins at offset {start_offset} is open in {topic}-{partition}")
    admin.abort_transaction(spec).result()
    click.echo(
        f"The transaction of producer {spec.producer_id} from offset {start_offset} of {topic}-{partition} on "
        "is aborted."
    )


@transactions.command("force-terminate")
@click.argument("transactional_id")
@connection_options
def force_terminate_command(transactional_id: str, bootstrap: str, command_config: Path | None) -> None:
    """Abort the transaction of a transactional id, and fence its producer.

    \b
    felice transactions force-terminate copier-0
    """
    admin = admin_client(bootstrap, command_config)
    # Fencing an unknown transactional id would create it.
    wait_all(admin.describe_transactions([transactional_id]))
    fenced = admin.force_terminate_transaction(transactional_id).result()
    click.echo(
        f"The open transaction of {transactional_id} is aborted; "
        f"its producers before epoch {fenced.producer_epoch} are fenced."
    )
