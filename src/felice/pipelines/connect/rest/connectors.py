"""/connectors: connectors, their tasks, states, topics and offsets."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import Response

from felice.pipelines.connect.configuration.connector import NAME
from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.herder.errors import RequestError, bad_request
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.tasks import TaskId
from felice.pipelines.connect.rest.call import Call, config_of
from felice.pipelines.connect.rest.documents import (
    info_document,
    offsets_document,
    state_document,
    status_document,
    task_document,
)
from felice.pipelines.connect.storage.configs import INITIAL_STATES, RestartRequest, TargetState

_ACCEPTED, _NO_CONTENT = 202, 204


async def list_connectors(call: Call) -> Response:
    """GET /connectors."""
    herder, expands = call.herder, call.request.query_params.getlist("expand")
    if not expands:
        return call.answer(herder.names())
    found: dict[str, dict[str, Any]] = {}
    for name in herder.names():
        found[name] = {}
        try:
            if "status" in expands:
                found[name]["status"] = status_document(herder.status(name))
            if "info" in expands:
                found[name]["info"] = info_document(herder.info(name))
        except RequestError:
            del found[name]  # it has no state yet, or was deleted just now
    return call.answer(found)


async def create(call: Call) -> Response:
    """POST /connectors."""
    given = await call.document()
    for member in given:
        if member not in ("name", "config", "initial_state"):
            raise bad_request(f"{member} is no member of a connector: it has name, config and initial_state")
    config = config_of(given.get("config"), "config")
    name = given.get("name", config.get(NAME, ""))
    if not isinstance(name, str):
        raise bad_request("the name must be a text")
    config.setdefault(NAME, name)
    state = given.get("initial_state")
    if state is not None and (not isinstance(state, str) or state.upper() not in INITIAL_STATES):
        raise bad_request(f"initial_state must be one of {', '.join(INITIAL_STATES)}")
    info = await call.herder.create(name, config, None if state is None else INITIAL_STATES[state.upper()])
    location = {"Location": f"/connectors/{quote(name, safe='')}"}
    return call.answer(info_document(info), 201, location)


async def get(call: Call) -> Response:
    """GET /connectors/{connector}."""
    return call.answer(info_document(call.herder.info(call.name)))


async def get_config(call: Call) -> Response:
    """GET /connectors/{connector}/config."""
    return call.answer(dict(call.herder.config(call.name)))


async def put_config(call: Call) -> Response:
    """PUT /connectors/{connector}/config."""
    config = await call.config()
    config.setdefault(NAME, call.name)
    info, is_new = await call.herder.put_config(call.name, config)
    return call.answer(info_document(info), 201 if is_new else 200)


async def patch_config(call: Call) -> Response:
    """PATCH /connectors/{connector}/config."""
    return call.answer(info_document(await call.herder.patch_config(call.name, await call.changes())))


async def delete(call: Call) -> Response:
    """DELETE /connectors/{connector}."""
    await call.herder.delete(call.name)
    return Response(status_code=_NO_CONTENT)


async def get_status(call: Call) -> Response:
    """GET /connectors/{connector}/status."""
    return call.answer(status_document(call.herder.status(call.name)))


async def get_tasks(call: Call) -> Response:
    """GET /connectors/{connector}/tasks."""
    found = call.herder.task_configs(call.name)
    return call.answer([{"id": task_document(task), "config": dict(config)} for task, config in found])


async def get_task_status(call: Call) -> Response:
    """GET /connectors/{connector}/tasks/{task}/status."""
    task = _task(call)
    return call.answer({"id": task.number, **state_document(call.herder.task_status(task))})


async def restart(call: Call) -> Response:
    """POST /connectors/{connector}/restart."""
    request = RestartRequest(call.name, call.flag("onlyFailed"), call.flag("includeTasks"))
    if not request.only_failed and not request.include_tasks:
        await call.herder.restart_connector(call.name)
        return Response(status_code=_NO_CONTENT)
    return call.answer(status_document(await call.herder.restart(request)), _ACCEPTED)


async def get_task_progress(call: Call) -> Response:
    """GET /connectors/{connector}/tasks/{task}/progress: records, lag and the last error. Felice's own."""
    return call.answer(call.herder.task_progress(_task(call)).to_json())


async def get_task_logs(call: Call) -> Response:
    """GET /connectors/{connector}/tasks/{task}/logs?after=number: the last lines of a task's log."""
    after = call.request.query_params.get("after", "0")
    if not after.isascii() or not after.isdigit():
        raise bad_request(f"after is the number of a line, and not {after!r:.40}")
    return call.answer({"lines": call.herder.task_progress(_task(call)).lines(int(after[:18]))})


async def restart_task(call: Call) -> Response:
    """POST /connectors/{connector}/tasks/{task}/restart."""
    await call.herder.restart_task(_task(call))
    return Response(status_code=_NO_CONTENT)


async def pause(call: Call) -> Response:
    """PUT /connectors/{connector}/pause."""
    await call.herder.set_target_state(call.name, TargetState.PAUSED)
    return Response(status_code=_ACCEPTED)


async def resume(call: Call) -> Response:
    """PUT /connectors/{connector}/resume."""
    await call.herder.set_target_state(call.name, TargetState.STARTED)
    return Response(status_code=_ACCEPTED)


async def stop(call: Call) -> Response:
    """PUT /connectors/{connector}/stop."""
    await call.herder.set_target_state(call.name, TargetState.STOPPED)
    return Response(status_code=_NO_CONTENT)


async def get_topics(call: Call) -> Response:
    """GET /connectors/{connector}/topics."""
    return call.answer({call.name: {"topics": call.herder.topics(call.name)}})


async def reset_topics(call: Call) -> Response:
    """PUT /connectors/{connector}/topics/reset."""
    call.herder.forget_topics(call.name)
    return Response(status_code=_ACCEPTED)


async def get_offsets(call: Call) -> Response:
    """GET /connectors/{connector}/offsets."""
    return call.answer(offsets_document(await call.herder.offsets(call.name)))


async def alter_offsets(call: Call) -> Response:
    """PATCH /connectors/{connector}/offsets."""
    given = (await call.document()).get("offsets")
    if not given:
        raise bad_request("Partitions / offsets need to be provided for an alter offsets request")
    return call.answer({"message": await call.herder.change_offsets(call.name, _changes(given))})


async def reset_offsets(call: Call) -> Response:
    """DELETE /connectors/{connector}/offsets."""
    return call.answer({"message": await call.herder.change_offsets(call.name, None)})


def _changes(given: Any) -> list[tuple[Place, Place | None]]:
    if not isinstance(given, list):
        raise bad_request("offsets must be a list of objects with partition and offset")
    found: list[tuple[Place, Place | None]] = []
    for one in given:
        place, at = (one.get("partition"), one.get("offset")) if isinstance(one, dict) else (None, None)
        if place is None:
            raise ConnectError("Partition objects cannot be null")
        if not isinstance(place, dict) or not isinstance(at, dict | None):
            raise bad_request("a partition and an offset must be objects, or null for the offset")
        found.append((place, at))
    return found


def _task(call: Call) -> TaskId:
    text = call.path("task")
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise HTTPException(404)
    return TaskId(call.name, int(text))
