"""/admin/loggers: the levels of this worker's loggers."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from felice.pipelines.connect.herder.errors import bad_request, not_found
from felice.pipelines.connect.herder.loggers import LEVELS, Level, count, is_known, level_of, levels
from felice.pipelines.connect.herder.loggers import set_level as set_own_level
from felice.pipelines.connect.rest.call import Call

_MOST = 10_000
"""A user may name loggers that do not exist yet, as in Kafka Connect. Each takes memory."""


async def list_loggers(call: Call) -> Response:
    """GET /admin/loggers."""
    return call.answer({name: _document(level) for name, level in levels().items()})


async def get_logger(call: Call) -> Response:
    """GET /admin/loggers/{logger}."""
    name = call.path("logger")
    if not is_known(name):
        raise not_found(f"Logger {name} not found.")
    return call.answer(_document(level_of(name)))


async def set_level(call: Call) -> Response:
    """PUT /admin/loggers/{logger}."""
    name = call.path("logger")
    level = (await call.document()).get("level")
    if level is None:
        raise bad_request("Desired 'level' parameter was not specified in request.")
    if not isinstance(level, str) or level.upper() not in LEVELS:
        raise not_found(f"invalid log level '{level}'.")
    if not is_known(name) and count() >= _MOST:
        raise bad_request(f"Logger {name} is not known, and there are {_MOST} loggers already.")
    if call.request.query_params.get("scope", "worker").lower() == "cluster":
        await call.herder.set_level_everywhere(name, level.upper())
        return Response(status_code=204)
    return call.answer(set_own_level(name, level.upper()))


def _document(level: Level) -> dict[str, Any]:
    return {"level": level.level, "last_modified": level.last_modified_ms}
