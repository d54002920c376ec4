"""/compatibility, /contexts, /v1/metadata and the root."""

from __future__ import annotations

from starlette.responses import Response

from felice import __version__
from felice.registry import subjects
from felice.registry.operations.deletion import delete_context
from felice.registry.operations.listing import MAX_SUBJECTS
from felice.registry.operations.lookups import version_number
from felice.registry.rest.call import Call
from felice.registry.rights import Operation
from felice.registry.rules import Json


async def check_one(call: Call) -> Response:
    """POST /compatibility/subjects/{subject}/versions/{version}."""
    return await _check(call, version_number(call.path("version")))


async def check_all(call: Call) -> Response:
    """POST /compatibility/subjects/{subject}/versions: with the versions that the level names."""
    return await _check(call, None)


async def _check(call: Call, number: int | None) -> Response:
    subject = call.subject()
    found = await call.registry.incompatibilities(
        subject, await call.schema(subject), number=number, normalize=call.flag("normalize")
    )
    made: dict[str, Json] = {"is_compatible": not found}
    if call.flag("verbose"):
        made["messages"] = found
    return call.answer(made)


async def get_contexts(call: Call) -> Response:
    """GET /contexts."""
    names = call.state.context_names()
    readable = (name for name in names if _may_see(call, name))
    return call.answer(call.page.of(readable, MAX_SUBJECTS))


async def remove_context(call: Call) -> Response:
    """DELETE /contexts/{context}."""
    call.require(Operation.DELETE, None)
    name = subjects.context_name(call.path("context"))
    await call.registry.write(lambda state: (delete_context(state, name), None))
    return Response(status_code=204)


def _may_see(call: Call, context: str) -> bool:
    if not call.has_rights or context == subjects.DEFAULT_CONTEXT or call.may(Operation.READ, None):
        return True
    return any(call.may(Operation.READ, name) for name in call.state.names(subjects.joined(context, "")))


async def get_cluster_id(call: Call) -> Response:
    """GET /v1/metadata/id: the cluster of Kafka, and the group of registries."""
    clusters = {
        "kafka-cluster": call.registry.cluster_id,
        "schema-registry-cluster": call.registry.group,
    }
    return call.answer({"scope": {"path": [], "clusters": clusters}, "id": ""})


async def get_server_version(call: Call) -> Response:
    """GET /v1/metadata/version."""
    return call.answer({"version": __version__, "commitId": ""})


async def get_root(call: Call) -> Response:
    """GET /."""
    return call.answer({})


async def post_root(call: Call) -> Response:
    """POST /."""
    await call.json()
    return call.answer({})
