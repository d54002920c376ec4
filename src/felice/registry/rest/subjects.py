"""/subjects: subjects, their versions, registration, look-up and deletion."""

from __future__ import annotations

from starlette.responses import Response

from felice.registry.errors import bad_request, unprocessable
from felice.registry.operations.answers import schema_answer
from felice.registry.operations.deletion import delete_subject, delete_version
from felice.registry.operations.listing import list_subjects, list_versions
from felice.registry.operations.lookups import get_version, latest_with_metadata, version_number
from felice.registry.rest.call import Call
from felice.registry.rights import Operation
from felice.registry.state import Version
from felice.registry.subjects import WILDCARD


async def get_subjects(call: Call) -> Response:
    """GET /subjects."""
    prefix = call.text("subjectPrefix")
    if call.context:
        prefix = call.context + (prefix or "")
    elif prefix is None:
        prefix = WILDCARD
    return call.answer(
        list_subjects(
            call.state, prefix, call.deletion, call.page, lambda name: call.may(Operation.READ, name)
        )
    )


async def post_subject(call: Call) -> Response:
    """POST /subjects/{subject}: the version that is this schema."""
    subject = call.subject()
    found = await call.registry.look_up(
        subject, await call.schema(subject), normalize=call.flag("normalize"), deleted=call.flag("deleted")
    )
    return call.answer(schema_answer(call.readable(found), await _formatted(call, found)))


async def remove_subject(call: Call) -> Response:
    """DELETE /subjects/{subject}."""
    subject, permanent = call.subject(), call.flag("permanent")
    return call.answer(
        await call.registry.write(lambda state: delete_subject(state, subject, permanent=permanent))
    )


async def get_versions(call: Call) -> Response:
    """GET /subjects/{subject}/versions."""
    negative = call.flag("deletedAsNegative")
    return call.answer(list_versions(call.state, call.subject(), call.deletion, call.page, negative=negative))


async def post_version(call: Call) -> Response:
    """POST /subjects/{subject}/versions: registers a schema."""
    subject = call.new_subject()
    value = await call.registry.register(
        subject, await call.schema(subject), normalize=call.flag("normalize")
    )
    content = value.content
    return call.answer(
        {"id": value.id, "version": value.version, "guid": content.guid(), **content.members()}
    )


async def get_one_version(call: Call) -> Response:
    """GET /subjects/{subject}/versions/{version}."""
    if call.text("findTags") is not None:
        raise unprocessable("findTags is not supported")
    found = _version(call)
    return call.answer(schema_answer(found, await _formatted(call, found)))


async def get_schema_text(call: Call) -> Response:
    """GET /subjects/{subject}/versions/{version}/schema: the schema's text alone."""
    found = _version(call)
    return call.text_answer(await _formatted(call, found) or found.content.text)


async def get_referenced_by(call: Call) -> Response:
    """GET /subjects/{subject}/versions/{version}/referencedby: the ids of schemas that refer to the version."""
    number = version_number(call.path("version"))
    found = call.readable(get_version(call.state, call.subject(), number, deleted=True))
    return call.answer(call.page.of(iter(call.state.referring_ids(found.subject, found.number)), 20_000))


async def remove_version(call: Call) -> Response:
    """DELETE /subjects/{subject}/versions/{version}."""
    subject, asked, permanent = call.subject(), call.path("version"), call.flag("permanent")
    number = version_number(asked)
    return call.answer(
        await call.registry.write(
            lambda state: delete_version(state, subject, number, permanent=permanent, asked=asked)
        )
    )


async def get_by_metadata(call: Call) -> Response:
    """GET /subjects/{subject}/metadata?key=…&value=…: the latest version with these properties."""
    keys = call.request.query_params.getlist("key")
    values = call.request.query_params.getlist("value")
    if len(keys) != len(values):
        raise bad_request("each parameter key needs a parameter value")
    wanted = dict(zip(keys, values, strict=True))
    found = latest_with_metadata(call.state, call.subject(), wanted, deleted=call.flag("deleted"))
    return call.answer(schema_answer(found, await _formatted(call, found)))


def _version(call: Call) -> Version:
    number = version_number(call.path("version"))
    return call.readable(get_version(call.state, call.subject(), number, deleted=call.flag("deleted")))


async def _formatted(call: Call, version: Version) -> str | None:
    form = call.text("format")
    return await call.registry.formatted(version, form) if form else None
