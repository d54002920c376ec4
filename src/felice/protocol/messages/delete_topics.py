"""DeleteTopics (key 20): by name, and from version 6 by name or id."""

from __future__ import annotations

import uuid

from felice.protocol.schema import array, int16, int32, request, response, string, struct, uid


@struct
class DeleteTopicState:
    """A topic by name, or by id with name None."""

    name: str | None = string(nullable="6+", default=None)
    topic_id: uuid.UUID = uid()


@request(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    """`topic_names` up to version 5, `topics` after that."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, versions="6+")
    topic_names: list[str] = array(string, versions="0-5", ignorable=True)
    timeout_ms: int = int32()


@struct
class DeletableTopicResult:
    """`name` is None if only an id was given and the client may not learn the name."""

    name: str | None = string(nullable="6+")
    topic_id: uuid.UUID = uid(versions="6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(versions="5+", nullable="5+", default=None, ignorable=True)


@response(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    """Results, by topic."""

    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
