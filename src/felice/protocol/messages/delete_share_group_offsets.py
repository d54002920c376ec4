"""DeleteShareGroupOffsets (key 92): deletes the state of topics of a share group without members (KIP-932)."""

from __future__ import annotations

import uuid

from felice.protocol.schema import array, int16, int32, request, response, string, struct, uid


@struct
class DeleteShareGroupOffsetsRequestTopic:
    """One topic."""

    topic_name: str = string()


@request(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    """Topics of one group."""

    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


@struct
class DeleteShareGroupOffsetsResponseTopic:
    """The result for one topic."""

    topic_name: str = string()
    topic_id: uuid.UUID = uid()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@response(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    """Every topic of the request, each with its error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(DeleteShareGroupOffsetsResponseTopic)
