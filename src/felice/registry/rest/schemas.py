"""/schemas: schemas by id and by guid, and lists of them."""

from __future__ import annotations

from starlette.responses import Response

from felice.registry.errors import forbidden
from felice.registry.operations.answers import content_answer
from felice.registry.operations.listing import MAX_SCHEMAS, list_schemas
from felice.registry.operations.lookups import (
    get_guid,
    get_id,
    highest_id,
    id_number,
    ids_of_guid,
    versions_of_id,
)
from felice.registry.rest.call import Call
from felice.registry.rights import Operation
from felice.registry.state import Version
from felice.registry.subjects import WILDCARD, context_of


async def get_schemas(call: Call) -> Response:
    """GET /schemas."""
    prefix = call.text("subjectPrefix")
    if call.context:
        prefix = call.context + (prefix or "")
    elif prefix is None:
        prefix = WILDCARD
    return call.answer(
        list_schemas(
            call.state,
            prefix,
            call.deletion,
            call.page,
            latest_only=call.flag("latestOnly"),
            aliases=call.flag("aliases"),
            rule_type=call.text("ruleType"),
            may_read=lambda name: call.may(Operation.READ, name),
        )
    )


async def get_types(call: Call) -> Response:
    """GET /schemas/types."""
    return call.answer(call.registry.parser.types)


async def get_by_id(call: Call) -> Response:
    """GET /schemas/ids/{id}."""
    found = _by_id(call)
    made = content_answer(found, await _formatted(call, found))
    if call.flag("fetchMaxId"):
        made["maxId"] = highest_id(call.state, call.query_subject())
    return call.answer(made)


async def get_text_by_id(call: Call) -> Response:
    """GET /schemas/ids/{id}/schema: the schema's text alone."""
    found = _by_id(call)
    return call.text_answer(await _formatted(call, found) or found.content.text)


async def get_subjects_of_id(call: Call) -> Response:
    """GET /schemas/ids/{id}/subjects."""
    return call.answer([found.subject for found in _versions_of_id(call)])


async def get_versions_of_id(call: Call) -> Response:
    """GET /schemas/ids/{id}/versions."""
    return call.answer(
        [{"subject": found.subject, "version": found.number} for found in _versions_of_id(call)]
    )


async def get_by_guid(call: Call) -> Response:
    """GET /schemas/guids/{guid}."""
    found = _readable_use(call, get_guid(call.state, call.path("guid")))
    return call.answer(content_answer(found, await _formatted(call, found), with_subject=False))


async def get_ids_of_guid(call: Call) -> Response:
    """GET /schemas/guids/{guid}/ids."""
    _readable_use(call, get_guid(call.state, call.path("guid")))
    return call.answer(ids_of_guid(call.state, call.path("guid")))


def _by_id(call: Call) -> Version:
    found = get_id(call.state, id_number(call.path("id")), call.query_subject())
    return _readable_use(call, found)


def _readable_use(call: Call, version: Version) -> Version:
    """A version with the same id whose subject the user may read: any of them shows the schema."""
    if call.may(Operation.READ, version.subject):
        return version
    for found in call.state.context(context_of(version.subject)).uses(version.id).values():
        if call.may(Operation.READ, found.subject):
            return found
    raise forbidden(f"User {call.user} is not allowed read on a subject with the schema {version.id}")


def _versions_of_id(call: Call) -> list[Version]:
    schema_id = id_number(call.path("id"))
    found = versions_of_id(call.state, schema_id, call.query_subject(), deleted=call.flag("deleted"))
    readable = (version for version in found if call.may(Operation.READ, version.subject))
    return call.page.of(readable, MAX_SCHEMAS if call.page.limit > 0 else len(found))


async def _formatted(call: Call, version: Version) -> str | None:
    form = call.text("format")
    return await call.registry.formatted(version, form) if form else None
