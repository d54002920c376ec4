"""ElectLeaders when the whole request fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from felice.protocol.codec import decode, encode
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from felice.server.handlers import elect_leaders
from felice.server.services import Services
from rooms import context_with, with_room


class NoController:
    """A cluster without a controller."""

    async def elect(self, wanted: Any, *, is_unclean: bool) -> Any:
        raise ApiError(ErrorCode.NOT_CONTROLLER)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_election_that_fails_is_answered_in_every_version(services: Services, version: int) -> None:
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0, 4])])
    context = context_with(with_room(services, changes={"leaderships": NoController()}), version)
    response = asyncio.run(elect_leaders.handle(request, context))
    read = decode(ElectLeadersResponse, encode(response, version), version)
    (topic,) = read.replica_election_results
    assert [(row.partition_id, row.error_code) for row in topic.partition_result] == [
        (0, ErrorCode.NOT_CONTROLLER),
        (4, ErrorCode.NOT_CONTROLLER),
    ]
    assert read.error_code == (ErrorCode.NOT_CONTROLLER if version else 0)


class Electing:
    """Elects each partition once; a further election of it is not needed."""

    def __init__(self) -> None:
        self.elected: set[tuple[str, int]] = set()

    async def elect(self, wanted: Any, *, is_unclean: bool) -> Any:
        again = {key: key in self.elected for key in wanted}
        self.elected.update(again)
        return {
            key: ApiError(ErrorCode.ELECTION_NOT_NEEDED) if known else None for key, known in again.items()
        }


def test_a_partition_that_a_large_request_names_twice_is_elected_once(services: Services) -> None:
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[*range(600), 0])])
    context = context_with(with_room(services, changes={"leaderships": Electing()}), 2)
    response = asyncio.run(elect_leaders.handle(request, context))
    (topic,) = response.replica_election_results
    assert [(row.partition_id, row.error_code) for row in topic.partition_result] == [
        (index, 0) for index in range(600)
    ]


class LosesTheController(Electing):
    """Elects the first part of a large request."""

    async def elect(self, wanted: Any, *, is_unclean: bool) -> Any:
        if self.elected:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        return await super().elect(wanted, is_unclean=is_unclean)


def test_an_error_of_a_later_part_leaves_the_outcome_of_earlier_parts(services: Services) -> None:
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[*range(1100)])])
    context = context_with(with_room(services, changes={"leaderships": LosesTheController()}), 2)
    response = asyncio.run(elect_leaders.handle(request, context))
    (topic,) = response.replica_election_results
    assert response.error_code == 0
    assert [(row.partition_id, row.error_code) for row in topic.partition_result] == [
        (index, 0 if index < 500 else ErrorCode.NOT_CONTROLLER) for index in range(1100)
    ]
