"""Error responses of every API, in the shape that its clients expect.

Keeps true: a response has a row for everything that was requested, because clients wait for missing rows.
            What is reported as failed was not executed, unless the fault says `applied`.
How:        where requests go to partitions, the handler itself builds the response: it gets services whose
            partitions raise the error. Reads are executed and their responses overwritten. The responses to other
            changes are built from the request alone.
"""

from __future__ import annotations

import dataclasses
from typing import cast
from uuid import UUID

from felice.protocol.api import API, Api, TypedApi
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.fetch import FetchRequest, FetchResponse
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.primitives import ZERO_UUID
from felice.protocol.schema import schema_of
from felice.replication.partition import Partition
from felice.replication.partitions import Partitions
from felice.server.access import refusals
from felice.server.context import RequestContext
from felice.server.handlers.table import Handle
from felice.server.services import Services
from felice.server.topics.topic_rows import TopicRows
from felice.testing.fault import BY_PARTITION, Fault

MESSAGE = "injected by felice.testing"

# Errors of a whole fetch, never of a partition.
_OF_FETCH_SESSIONS = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}
_READS = {
    api.key
    for api in (
        API.METADATA,
        API.DESCRIBE_TOPIC_PARTITIONS,
        API.OFFSET_FETCH,
        API.FIND_COORDINATOR,
        API.DESCRIBE_GROUPS,
        API.DESCRIBE_CONFIGS,
        API.DESCRIBE_CLUSTER,
        API.LIST_GROUPS,
        API.DESCRIBE_PRODUCERS,
        API.DESCRIBE_TRANSACTIONS,
        API.API_VERSIONS,
    )
}
# APIs whose error responses follow from the request and the schemas, with the error in their rows.
_IN_ROWS: tuple[Api, ...] = (
    *(API.OFFSET_COMMIT, API.TXN_OFFSET_COMMIT, API.ADD_PARTITIONS_TO_TXN, API.WRITE_TXN_MARKERS),
    *(API.CREATE_TOPICS, API.CREATE_PARTITIONS, API.DELETE_TOPICS, API.DELETE_GROUPS),
    *(API.ALTER_CONFIGS, API.INCREMENTAL_ALTER_CONFIGS),
)
# APIs whose rows of topics must be empty beside an error.
_EMPTIED = {API.METADATA.key, API.DESCRIBE_TOPIC_PARTITIONS.key}


def check_can_fail(api: Api) -> None:
    """Raise `ValueError` for an API whose error responses are not described here."""
    is_described = api in _IN_ROWS or api.key in BY_PARTITION | _READS
    if not is_described and not _has_its_own_error(api):
        raise ValueError(f"{api.name} cannot be made to fail; drop, delay and black_hole work with it")


def _has_its_own_error(api: Api) -> bool:
    """Whether every version has one error for the whole response."""
    return all(map(api.has_error, api.versions))


def topics_of(api: Api, request: object, services: Services) -> frozenset[str]:
    """The topics that a request names, those of its fetch session and of its offsets included."""
    rows: list[object] = []
    inner = (row for name in ("groups", "transactions", "markers") for row in getattr(request, name, ()))
    for holder in (request, *inner):
        for name in ("topics", "topic_data", "v3_and_below_topics"):
            rows += getattr(holder, name, None) or ()
    named = {_name_of(row, services) for row in rows} | set(getattr(request, "topic_names", ()))
    if isinstance(request, MetadataRequest) and request.topics is None:
        named |= services.image.topics.keys()
    if isinstance(request, FetchRequest) and request.session_id:
        session = services.fetching.sessions.find(request.session_id)
        refs = {topic for topic, _ in session.partitions} if session else set()
        named |= {services.image.topic_names.get(ref, "") if isinstance(ref, UUID) else ref for ref in refs}
    return frozenset(named - {""})


def _name_of(row: object, services: Services) -> str:
    if isinstance(row, str):
        return row
    topic_id = getattr(row, "topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        return services.image.topic_names.get(topic_id, "")
    return getattr(row, "name", None) or getattr(row, "topic", None) or ""


async def refused(fault: Fault, handle: Handle, request: object, context: RequestContext) -> object:
    """The error response to a request that is not executed."""
    assert fault.error is not None
    api = _api_of(request)
    if api is API.FETCH and fault.error in _OF_FETCH_SESSIONS:
        return FetchResponse(error_code=fault.error)
    if api.key in BY_PARTITION:
        return await handle(request, _refusing(context, fault.topic, fault.error))
    if api.key in _READS:
        return overwritten(fault, await handle(request, context), context)
    if isinstance(request, JoinGroupRequest):
        # Before version 7 the name may not be null.
        return JoinGroupResponse(error_code=fault.error, member_id=request.member_id, protocol_name="")
    if api in _IN_ROWS:
        # The rows of AddPartitionsToTxn have another name for the error, so that only the error of the whole is set.
        fields = {"error_code": 0} if api is API.ADD_PARTITIONS_TO_TXN else {"error_message": MESSAGE}
        typed = cast("TypedApi[object, object]", api)
        return refusals.refused(typed, request, fault.error, context.version, fields, has_rows=True)
    return api.refusal(fault.error)


def overwritten(fault: Fault, response: object, context: RequestContext) -> object:
    """The response with the fault's error in every row of the fault's topic (without a topic: in every row)."""
    api = _api_of(response)
    path = _errors_at(api, context.version)
    rows = _rows(response, path, fault.topic, context.services)
    for row in rows:
        _spoil(row, fault, api, context.version)
    if not rows and hasattr(response, "error_code"):
        response.error_code = fault.error
    return response


def _errors_at(api: Api, version: int) -> list[str]:
    """The path to the rows with errors; empty for the response itself."""
    if api is API.METADATA:
        return ["topics"]
    path: list[str] = []
    cls = api.response
    # These have their errors in rows also where the whole response has one.
    while not refusals.codes_in(cls, version) or (not path and api in (*_IN_ROWS, API.FETCH)):
        rows = refusals.rows_in(cls, version)
        path.append(rows.name)
        cls = refusals.class_in(rows)
    return path


def _rows(response: object, path: list[str], topic: str | None, services: Services) -> list[object]:
    if not path:
        return [response]
    rows = list(getattr(response, path[0]))
    if topic is not None and rows and (hasattr(rows[0], "name") or hasattr(rows[0], "topic")):
        rows = [row for row in rows if _name_of(row, services) == topic]
    for name in path[1:]:
        rows = [inner for row in rows for inner in getattr(row, name)]
    return rows


def _spoil(row: object, fault: Fault, api: Api, version: int) -> None:
    for name in refusals.codes_in(type(row), version):
        setattr(row, name, fault.error)
    fields = schema_of(type(row)).fields
    has_message = any(field.name == "error_message" and version in field.versions for field in fields)
    if has_message and hasattr(row, "error_message"):
        row.error_message = MESSAGE
    if hasattr(row, "base_offset"):
        row.base_offset = -1
    if hasattr(row, "records"):
        row.records = b""
    if api.key in _EMPTIED and hasattr(row, "partitions"):
        row.partitions = []


def _api_of(message: object) -> Api:
    kind = type(message)
    return next(api for api in API.by_key.values() if kind in (api.request, api.response))


# Partitions that raise an error


class _RefusingPartitions:
    """The partitions of a broker; those of one topic (without a topic: all) raise an error."""

    def __init__(self, partitions: Partitions, topic: str | None, error: ErrorCode) -> None:
        self._partitions = partitions
        self._topic = topic
        self._error = error

    def find(self, topic: str, partition: int) -> Partition:
        if self._topic in (None, topic):
            raise ApiError(self._error, MESSAGE)
        return self._partitions.find(topic, partition)

    def __getattr__(self, name: str) -> object:
        return getattr(self._partitions, name)


def _refusing(context: RequestContext, topic: str | None, error: ErrorCode) -> RequestContext:
    partitions = _RefusingPartitions(context.services.partitions, topic, error)
    services = dataclasses.replace(context.services, partitions=cast(Partitions, partitions))
    return _with_services(context, services)


def with_own_rows(context: RequestContext) -> RequestContext:
    """A context whose handler builds every row again instead of sharing it, so that the response may be changed."""
    services = context.services
    topics = dataclasses.replace(services.topics, rows=TopicRows(max_bytes=0))
    return _with_services(context, dataclasses.replace(services, topics=topics))


def _with_services(context: RequestContext, services: Services) -> RequestContext:
    return RequestContext(services, context.api_key, context.version, context.client_id, context.session)
