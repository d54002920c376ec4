"""Requests that name an item twice: which of them counts, and the rows of the response."""

from typing import Any

import pytest

from conformance.topics import batch_of, list_offset, metadata_of, new_topic, produce
from conformance.wire import Wire, unique_name
from felice.protocol.errors import ErrorCode
from felice.protocol.messages import alter_client_quotas as quotas
from felice.protocol.messages import alter_partition_reassignments as reassignments
from felice.protocol.messages import delete_records, describe_client_quotas
from waiting import wait_until

EARLIEST, TIMEOUT_MS = -2, 60_000


def delete(
    wire: Wire, *topics: tuple[str, list[tuple[int, int]]]
) -> list[tuple[str, list[tuple[int, int, int]]]]:
    rows = [
        delete_records.DeleteRecordsTopic(
            name=name,
            partitions=[
                delete_records.DeleteRecordsPartition(partition_index=index, offset=offset)
                for index, offset in wanted
            ],
        )
        for name, wanted in topics
    ]
    answer = wire.ask(delete_records.DeleteRecordsRequest(topics=rows, timeout_ms=TIMEOUT_MS))
    return [
        (topic.name, [(row.partition_index, row.low_watermark, row.error_code) for row in topic.partitions])
        for topic in answer.topics
    ]


@pytest.mark.parametrize(
    ("offsets", "start", "error"),
    [((1, 3), 3, 0), ((5, 2), 2, 0), ((99, 4), 4, 0), ((4, 99), -1, int(ErrorCode.OFFSET_OUT_OF_RANGE))],
)
@pytest.mark.parametrize("in_one_topic", [True, False])
def test_the_last_offset_of_a_deletion_counts(
    wire: Wire, offsets: tuple[int, int], start: int, error: int, in_one_topic: bool
) -> None:
    topic = new_topic(wire)
    produce(wire, topic, batch_of(*[b"x"] * 6))
    wanted = [(0, offset) for offset in offsets]
    topics = [(topic, wanted)] if in_one_topic else [(topic, [row]) for row in wanted]
    assert delete(wire, *topics) == [(topic, [(0, start, error)])]
    assert list_offset(wire, topic, EARLIEST).offset == max(start, 0)


def test_the_first_changes_of_an_entitys_quotas_count(wire: Wire) -> None:
    twice, once = unique_name("twice"), unique_name("once")

    def entry(user: str, key: str, value: float) -> quotas.EntryData:
        return quotas.EntryData(
            entity=[quotas.EntityData(entity_type="user", entity_name=user)],
            ops=[quotas.OpData(key=key, value=value, remove=False)],
        )

    entries = [
        entry(twice, "producer_byte_rate", 1000.0),
        entry(once, "producer_byte_rate", 1000.0),
        entry(twice, "producer_byte_rate", 2000.0),
        entry(twice, "consumer_byte_rate", 2000.0),
    ]
    answer = wire.ask(quotas.AlterClientQuotasRequest(entries=entries, validate_only=False))
    assert {row.entity[0].entity_name: row.error_code for row in answer.entries} == {
        twice: ErrorCode.INVALID_REQUEST,
        once: ErrorCode.NONE,
    }
    assert len(answer.entries) == 2

    def stored() -> Any:
        component = describe_client_quotas.ComponentData(entity_type="user", match_type=0, match=twice)
        asked = describe_client_quotas.DescribeClientQuotasRequest(components=[component], strict=False)
        return [[(value.key, value.value) for value in row.values] for row in wire.ask(asked).entries]

    wait_until(lambda: stored() == [[("producer_byte_rate", 1000.0)]])


def test_a_reassignment_that_occurs_twice_concerns_no_other_partition(wire: Wire) -> None:
    topic = new_topic(wire, 2)
    here = metadata_of(wire, topic).partitions[0].leader_id

    def reassign(*topics: list[tuple[int, list[int]]]) -> list[list[tuple[int, int]]]:
        rows = [
            reassignments.ReassignableTopic(
                name=topic,
                partitions=[
                    reassignments.ReassignablePartition(partition_index=index, replicas=replicas)
                    for index, replicas in wanted
                ],
            )
            for wanted in topics
        ]
        asked = reassignments.AlterPartitionReassignmentsRequest(topics=rows, timeout_ms=TIMEOUT_MS)
        answer = wire.ask(asked)
        assert answer.error_code == 0 and [row.name for row in answer.responses] == [topic] * len(topics)
        return [
            [(row.partition_index, row.error_code) for row in found.partitions] for found in answer.responses
        ]

    bad = int(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert reassign([(0, [here]), (0, [here]), (1, [here])]) == [[(0, 0), (0, 0), (1, 0)]]
    assert reassign([(0, [here]), (0, [here + 77]), (1, [here])]) == [[(0, 0), (0, bad), (1, 0)]]
    assert reassign([(0, [here])], [(1, [here])]) == [[(0, 0)], [(1, 0)]]
    assert reassign([(0, [here + 77])], [], [(0, [here])]) == [[(0, bad)], [], [(0, 0)]]
