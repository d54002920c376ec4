"""/config and /mode: of a subject, or of all subjects of a context."""

from __future__ import annotations

from starlette.responses import Response

from felice.registry import subjects
from felice.registry.operations.settings import (
    delete_config,
    delete_mode,
    get_config,
    get_mode,
    put_config,
    put_mode,
)
from felice.registry.requests import config_request, mode_request
from felice.registry.rest.call import Call


def scope_of(call: Call) -> str | None:
    """The subject or context whose settings the path names; None: those of the default context."""
    if "subject" not in call.request.path_params:
        return call.context or None
    return call.named_subject() or None


async def get_config_of(call: Call) -> Response:
    """GET /config, GET /config/{subject}."""
    return call.answer(get_config(call.state, scope_of(call), or_global=_or_global(call)))


async def put_config_of(call: Call) -> Response:
    """PUT /config, PUT /config/{subject}. The answer repeats the request."""
    name = _new_scope(call)
    body = await call.json()
    change = config_request(body)
    await call.registry.write(lambda state: (put_config(state, name, change), None))
    return call.answer({key: value for key, value in body.items() if value is not None})


async def delete_config_of(call: Call) -> Response:
    """DELETE /config, DELETE /config/{subject}. The answer is what was removed."""
    name = scope_of(call)
    return call.answer(await call.registry.write(lambda state: delete_config(state, name)))


async def get_mode_of(call: Call) -> Response:
    """GET /mode, GET /mode/{subject}."""
    return call.answer({"mode": get_mode(call.state, scope_of(call), or_global=_or_global(call))})


async def put_mode_of(call: Call) -> Response:
    """PUT /mode, PUT /mode/{subject}."""
    name, mode, force = _new_scope(call), mode_request(await call.json()), call.flag("force")
    await call.registry.write(lambda state: (put_mode(state, name, mode, force=force), None))
    return call.answer({"mode": mode})


async def delete_mode_of(call: Call) -> Response:
    """DELETE /mode, DELETE /mode/{subject}. The answer is what was removed."""
    name = scope_of(call)
    return call.answer({"mode": await call.registry.write(lambda state: delete_mode(state, name))})


def _new_scope(call: Call) -> str | None:
    name = scope_of(call)
    # The settings of all contexts have a name that no subject may have.
    if name is not None and name != subjects.GLOBAL_CONTEXT:
        subjects.check(name)
    return name


def _or_global(call: Call) -> bool:
    return call.flag("defaultToGlobal")
