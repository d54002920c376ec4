"""FindCoordinator (key 10): the broker that coordinates a group or a transactional id.

Up to version 3 a request has one key, and the response has the fields of its coordinator. From version 4 a request has
several keys, and the response has `coordinators`.
"""

from __future__ import annotations

from felice.protocol.schema import array, int8, int16, int32, request, response, string, struct

GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
SHARE_KEY_TYPE = 2


@request(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    """Version 0 knows groups only."""

    key: str = string(versions="0-3")
    key_type: int = int8(versions="1+")
    coordinator_keys: list[str] = array(string, versions="4+")


@struct
class Coordinator:
    """The answer for one key; node id and port are -1 where there is an error."""

    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="4+", ignorable=True)


@response(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """One coordinator in the fields of the response, or several in `coordinators`."""

    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16(versions="0-3")
    error_message: str | None = string(versions="1-3", nullable="1-3", ignorable=True)
    node_id: int = int32(versions="0-3")
    host: str = string(versions="0-3")
    port: int = int32(versions="0-3")
    coordinators: list[Coordinator] = array(Coordinator, versions="4+")
