"""The routes of the REST API as a table, with the right that each needs, and how a request passes through.

Keeps true:  a request that writes is carried out by the leader: another registry forwards it. `/contexts/{context}` may
             stand before every route of subjects and schemas, and qualifies the subjects of the path.
             A write waits `LEADER_WAIT_S` for a leader before it fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from felice.dataclass import dataclass
from felice.registry.errors import RegistryError, forwarding_failed, unknown_leader
from felice.registry.leadership import NotLeader
from felice.registry.rest import others, schemas, settings, subjects
from felice.registry.rest.call import Call
from felice.registry.rights import Operation, Rights
from felice.registry.service import Registry
from felice.web.errors import HttpError
from felice.web.forwarding import FORWARD_HEADER, Forwarder, ForwardingFailed, LeaderAway, passed_on

Handler = Callable[[Call], Awaitable[Response]]
CONTEXT = "/contexts/{context}"
LEADER_WAIT_S = 5.0
"""How long a write waits for a leader. The group has none for a moment whenever registries come and go."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One route. `needs` is the right to the subject of the path (without one: to global settings); None: the handler
    looks at the rights itself. `in_contexts`: it has a second path under `/contexts/{context}`."""

    method: str
    path: str
    handler: Handler
    needs: Operation | None = None
    in_contexts: bool = True


_SUBJECT = "/subjects/{subject}"
_VERSIONS = "/subjects/{subject}/versions"
_VERSION = "/subjects/{subject}/versions/{version}"
_CHECK = "/compatibility/subjects/{subject}/versions"
_READ, _WRITE, _DELETE = Operation.READ, Operation.WRITE, Operation.DELETE
_COMPATIBILITY, _CONFIG, _MODE = Operation.COMPATIBILITY, Operation.CONFIG, Operation.MODE

RESOURCES = (
    Resource("GET", "/", others.get_root, in_contexts=False),
    Resource("POST", "/", others.post_root, in_contexts=False),
    Resource("GET", "/subjects", subjects.get_subjects),
    Resource("POST", _SUBJECT, subjects.post_subject, _READ),
    Resource("DELETE", _SUBJECT, subjects.remove_subject, _DELETE),
    Resource("GET", "/subjects/{subject}/metadata", subjects.get_by_metadata, _READ),
    Resource("GET", _VERSIONS, subjects.get_versions, _READ),
    Resource("POST", _VERSIONS, subjects.post_version, _WRITE),
    Resource("GET", _VERSION, subjects.get_one_version),
    Resource("DELETE", _VERSION, subjects.remove_version, _DELETE),
    Resource("GET", f"{_VERSION}/schema", subjects.get_schema_text),
    Resource("GET", f"{_VERSION}/referencedby", subjects.get_referenced_by),
    Resource("GET", "/schemas", schemas.get_schemas),
    Resource("GET", "/schemas/types", schemas.get_types),
    Resource("GET", "/schemas/ids/{id}", schemas.get_by_id),
    Resource("GET", "/schemas/ids/{id}/schema", schemas.get_text_by_id),
    Resource("GET", "/schemas/ids/{id}/subjects", schemas.get_subjects_of_id),
    Resource("GET", "/schemas/ids/{id}/versions", schemas.get_versions_of_id),
    Resource("GET", "/schemas/guids/{guid}", schemas.get_by_guid),
    Resource("GET", "/schemas/guids/{guid}/ids", schemas.get_ids_of_guid),
    Resource("POST", _CHECK, others.check_all, _COMPATIBILITY),
    Resource("POST", _CHECK + "/{version}", others.check_one, _COMPATIBILITY),
    Resource("GET", "/config", settings.get_config_of, _READ),
    Resource("PUT", "/config", settings.put_config_of, _CONFIG),
    Resource("DELETE", "/config", settings.delete_config_of, _CONFIG),
    Resource("GET", "/config/{subject}", settings.get_config_of, _READ),
    Resource("PUT", "/config/{subject}", settings.put_config_of, _CONFIG),
    Resource("DELETE", "/config/{subject}", settings.delete_config_of, _CONFIG),
    Resource("GET", "/mode", settings.get_mode_of, _READ),
    Resource("PUT", "/mode", settings.put_mode_of, _MODE),
    Resource("DELETE", "/mode", settings.delete_mode_of, _MODE),
    Resource("GET", "/mode/{subject}", settings.get_mode_of, _READ),
    Resource("PUT", "/mode/{subject}", settings.put_mode_of, _MODE),
    Resource("DELETE", "/mode/{subject}", settings.delete_mode_of, _MODE),
    Resource("GET", "/contexts", others.get_contexts, in_contexts=False),
    Resource("DELETE", CONTEXT, others.remove_context, in_contexts=False),
    Resource("GET", "/v1/metadata/id", others.get_cluster_id, in_contexts=False),
    Resource("GET", "/v1/metadata/version", others.get_server_version, in_contexts=False),
)


def routes(registry: Registry, forwarder: Forwarder, rights: Rights | None) -> list[Route]:
    """The routes for an application of `felice.web`."""
    made = []
    for resource in RESOURCES:
        endpoint = _endpoint(resource, registry, forwarder, rights)
        made.append(Route(resource.path, endpoint, methods=[resource.method]))
        if resource.in_contexts:
            made.append(Route(CONTEXT + resource.path, endpoint, methods=[resource.method]))
    return made


def _endpoint(
    resource: Resource, registry: Registry, forwarder: Forwarder, rights: Rights | None
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        call = Call(request, registry, rights)
        try:
            if resource.needs is not None:
                call.require(resource.needs, _subject(call, resource))
            return await _at_leader(call, resource.handler, forwarder)
        except RegistryError as error:
            raise HttpError(error.status, error.code, str(error)) from error

    return endpoint


async def _at_leader(call: Call, handler: Handler, forwarder: Forwarder) -> Response:
    """The answer of the handler, or of the leader if the handler needs it and this registry does not lead.

    If there is no leader, or nothing listens at its address, the request waits for another one, and tries again once.
    """
    try:
        return await _once(call, handler, forwarder)
    except (_NoLeader, LeaderAway):
        gone = call.registry.leadership.leader
    await call.registry.leadership.wait_other(None if gone is None else gone.url, LEADER_WAIT_S)
    try:
        return await _once(call, handler, forwarder)
    except _NoLeader:
        raise unknown_leader("Leader not known.") from None
    except LeaderAway as error:
        raise forwarding_failed(f"Error while forwarding the request to the leader: {error}") from error


class _NoLeader(Exception):
    """The request needs a leader, and none is known."""


async def _once(call: Call, handler: Handler, forwarder: Forwarder) -> Response:
    try:
        return await handler(call)
    except NotLeader as error:
        url = error.url
    if FORWARD_HEADER in call.request.headers:
        raise unknown_leader("This registry is not the leader")
    if url is None:
        raise _NoLeader
    try:
        return await passed_on(call.request, forwarder, url)
    except ForwardingFailed as error:
        raise forwarding_failed(str(error)) from error


def _subject(call: Call, resource: Resource) -> str | None:
    if resource.path.startswith(("/config", "/mode")):
        return settings.scope_of(call)
    return call.subject()
