"""What workers ask of their leader: signed requests."""

from __future__ import annotations

from starlette.responses import Response

from felice.pipelines.connect.herder.errors import bad_request
from felice.pipelines.connect.herder.signatures import check
from felice.pipelines.connect.rest.call import Call, config_of
from felice.web.media import parse_json


async def put_tasks(call: Call) -> Response:
    """POST /connectors/{connector}/tasks: replaces the configurations of a connector's tasks."""
    given = parse_json(await _checked(call))
    if not isinstance(given, list):
        raise bad_request("the body must be a list of the tasks' configurations")
    await call.herder.publish(call.name, [config_of(one, "a configuration of a task") for one in given])
    return Response(status_code=200)


async def fence(call: Call) -> Response:
    """PUT /connectors/{connector}/fence: fences the tasks of older generations."""
    await _checked(call)
    await call.herder.fence(call.name)
    return Response(status_code=200)


async def _checked(call: Call) -> bytes:
    request = call.request
    body = await request.body()
    path = request.scope["raw_path"].decode("latin-1")
    check(call.herder.session_key, request.method, path, body, request.headers)
    return body
