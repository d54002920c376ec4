"""One administrative call against a scripted broker: the requests that the broker gets, and the result of the call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from felice.client import KafkaError, KafkaException, TopicPartition
from felice.client.admin import AdminClient
from felice.protocol.api import API
from felice.protocol.messages.metadata import MetadataRequest
from unit.client.fake_broker import FakeBroker

TIMEOUT_S = 61.5
"""Not a default of any call, so that a request shows whether the timeout was passed on."""
TIMEOUT_MS = 61_500


def broker_ranges(older: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """The versions of a broker that lacks some of them."""
    return {key: (api.versions.min, api.versions.max) for key, api in API.by_key.items()} | dict(older)


@dataclass(frozen=True, slots=True)
class Exchange:
    """`call` makes the client send `requests`; the broker sends `responses`; the call then returns `result`.

    A `KafkaException` as the result is one that the call raises, or that its future has.
    """

    name: str
    call: Callable[[AdminClient], Any]
    requests: Sequence[Any]
    responses: Sequence[Any]
    result: Any
    topics: Mapping[str, int] = field(default_factory=lambda: {"t": 3, "u": 1})
    ranges: dict[int, tuple[int, int]] | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def expected(self) -> tuple[list[Any], Any]:
        """What `perform` should return."""
        return list(self.requests), plain(self.result)

    def perform(self) -> tuple[list[Any], Any]:
        """Call the client; returns the broker's requests of these kinds, and the result or the exception raised."""
        kinds = [type(request) for request in self.requests]
        with (
            FakeBroker(dict(self.topics), self.ranges) as broker,
            AdminClient({"bootstrap.servers": broker.bootstrap}) as admin,
        ):
            for kind, response in zip(kinds, self.responses, strict=True):
                broker.script(kind, response)
            result = plain(settled(self.call, admin), broker.port)
            whole = [row for row in broker.asked(MetadataRequest) if row.topics is None]
            assert not whole, "the metadata of all topics may be large"
            return [request for request, _ in broker.requests if type(request) in kinds], result


def settled(call: Callable[[AdminClient], Any], admin: AdminClient) -> Any:
    """The result of the call, or what it raised."""
    try:
        return call(admin)
    except KafkaException as error:
        return error


def plain(value: Any, port: int = 0) -> Any:
    """The value with every field in it: partitions and errors are equal by less. The broker's port becomes 0."""

    def of(part: Any) -> Any:
        return plain(part, port)

    if isinstance(value, Future):
        return of(value.exception(60) or value.result())
    if isinstance(value, KafkaException):
        return "raised", type(value), of(value.error)
    if isinstance(value, KafkaError):
        return value.code(), value.str(), value.retriable()
    if isinstance(value, TopicPartition):
        return value.topic, value.partition, value.offset, value.metadata, value.leader_epoch, of(value.error)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {row.name: of(getattr(value, row.name)) for row in dataclasses.fields(value)}
        return type(value), fields | ({"port": 0} if port and fields.get("port") == port else {})
    if isinstance(value, Mapping):
        return [(of(key), of(found)) for key, found in value.items()]
    if isinstance(value, list | tuple):
        return [of(item) for item in value]
    return value
