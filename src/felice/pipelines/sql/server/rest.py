"""The routes of the REST API, with ksqlDB's paths, bodies and answers.

Source: ksqlDB's documented API.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from functools import partial
from http import HTTPStatus
from itertools import count
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from felice.client.error import KafkaException
from felice.dataclass import dataclass
from felice.pipelines.errors import OutsideError
from felice.pipelines.prometheus import CONTENT_TYPE
from felice.pipelines.sql.catalogue import SourceInfo, near
from felice.pipelines.sql.inserts import Inserted
from felice.pipelines.sql.rows.plain import json_text, value_of
from felice.pipelines.sql.server.connectors import unparsed
from felice.pipelines.sql.server.failures import (
    BAD_REQUEST,
    NOT_FOUND,
    NOT_READY,
    Entity,
    StatementFailed,
    reason_of,
)
from felice.pipelines.sql.server.metrics import Figures, page
from felice.pipelines.sql.server.printing import Printed
from felice.pipelines.sql.server.rows import Row
from felice.pipelines.sql.server.selects import Select, Selects
from felice.pipelines.sql.server.service import SqlService
from felice.pipelines.sql.settings import is_known
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import PrintTopic
from felice.pipelines.sql.syntax.writer import quoted
from felice.web.bodies import use_long
from felice.web.errors import HttpError
from felice.web.forwarding import FORWARD_HEADER, Forwarder, ForwardingFailed, LeaderAway, passed_on
from felice.web.media import accepted, check_content_type, json_body, parse_json

KSQL, JSON = "application/vnd.ksql.v1+json", "application/json"
DELIMITED = "application/vnd.ksqlapi.delimited.v1"
FORM = "application/x-www-form-urlencoded"
"""What curl says of a body unless it is told otherwise; the examples of ksqlDB's documents do not tell it."""
BODIES = (KSQL, JSON, DELIMITED)
VERSION = "7.9.0"
"""The version of ksqlDB whose API this is. Clients compare it with theirs."""
_BEAT = 5
"""So many looks at the topic without a record, a second, and /query sends an empty line: clients count them."""
PIECE = 1 << 16
LONGEST_LINE = 2 << 20
"""Bytes of a row that is inserted."""
MOST_INSERTING = 50
"""How many requests of /inserts-stream a server takes at a time. In HTTP/2 such a request may stay open."""
_REQUEST_PROPERTIES = {
    "request.ksql.debug.request": ("false",),
    "request.ksql.internal.request": ("false",),
    "request.ksql.query.pull.partition": ("",),
    "request.ksql.query.pull.skip.forwarding": ("false", "true"),
    "request.ksql.query.push.skip.forwarding": ("false", "true"),
}
"""ksqlDB's settings of single requests, with the values that agree with this server. A SELECT is never forwarded,
because each server has all rows.
"""
Handler = Callable[["Server", Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class AtLeader:
    """How requests reach the leader. `leader` is its address if another server leads."""

    forwarder: Forwarder
    leader: Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class Server:
    """What handlers use."""

    service: SqlService
    selects: Selects
    at_leader: AtLeader
    inserting: asyncio.Semaphore


@dataclass(frozen=True, slots=True)
class Asked:
    """The body of a request with statements."""

    text: str
    settings: Mapping[str, str]
    variables: Mapping[str, str]
    number: int | None
    """The number of the command that must be applied before the statements run."""


def routes(service: SqlService, selects: Selects, at_leader: AtLeader) -> list[Route]:
    """The routes for an application of `felice.web`."""
    server = Server(service, selects, at_leader, asyncio.Semaphore(MOST_INSERTING))
    return [Route(path, _endpoint(server, one), methods=[method]) for method, path, one in _ROUTES]


def _endpoint(server: Server, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            return await handler(server, request)
        except StatementFailed as error:
            return JSONResponse(error.document(), error.status, media_type=KSQL)

    return endpoint


# What is asked


async def _asked(request: Request, text: str, settings: str) -> Asked:
    body = await _object(request)
    unknown = body.keys() - {text, settings, "sessionVariables", "commandSequenceNumber", "requestProperties"}
    if unknown:
        raise _bad(f"the body has the unknown member {sorted(unknown)[0]!r}")
    found = body.get(text)
    if not isinstance(found, str):
        raise _bad(f"the body must have the member {text!r}, a text")
    _check_request_properties(_texts(body, "requestProperties"))
    number = body.get("commandSequenceNumber")
    if not (number is None or (isinstance(number, int) and not isinstance(number, bool))):
        raise _bad("commandSequenceNumber must be a whole number")
    return Asked(found, _texts(body, settings), _texts(body, "sessionVariables"), number)


def _check_request_properties(given: Mapping[str, str]) -> None:
    """Refuse properties and values that change the answer of ksqlDB, but not of this server."""
    for name, value in given.items():
        values = _REQUEST_PROPERTIES.get(name)
        if values is None:
            hint = near(name, _REQUEST_PROPERTIES)
            raise _bad(f"the server has no request property {name}{hint}")
        if value.lower() not in values:
            raise _bad(
                f"the request property {name} must be {' or '.join(map(repr, values))} here, not {value!r}"
            )


async def _object(request: Request) -> dict[str, Any]:
    _check_page(request)
    body = await json_body(request, (*BODIES, FORM))
    if not isinstance(body, dict):
        raise _bad("the body must be a JSON object")
    return body


def _check_page(request: Request) -> None:
    """Refuse what a page of another site can send. A browser asks first, unless the content type is that of a form, a
    plain text, or missing; and it names the site.
    """
    if "origin" not in request.headers:
        return
    if "content-type" not in request.headers:
        raise HttpError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE * 100,
            "a request of a web page must have a content type",
        )
    check_content_type(request, BODIES)


def _texts(body: Mapping[str, Any], name: str) -> dict[str, str]:
    found = {} if body.get(name) is None else body[name]
    if not isinstance(found, dict):
        raise _bad(f"{name} must be a JSON object")
    texts = {}
    for key, value in found.items():
        if isinstance(value, dict | list):
            raise _bad(f"{name} has a value for {key!r} that is neither a text nor a number")
        if value is not None:
            text = json.dumps(value) if isinstance(value, bool) else str(value)
            texts[key] = text
    return texts


def _bad(message: str) -> HttpError:
    return HttpError(HTTPStatus.BAD_REQUEST, BAD_REQUEST, message)


# Statements


async def _ksql(server: Server, request: Request) -> Response:
    """POST /ksql."""
    if (answer := await _of_leader(server, request)) is not None:
        return answer
    asked = await _asked(request, "ksql", "streamsProperties")
    await server.service.wait_applied(asked.number)
    done = await server.service.execute(asked.text, asked.settings, asked.variables)
    media = accepted(request, (KSQL, JSON))
    written = [piece async for piece in pieces(json_parts(done))]
    return Response("".join(written).encode("utf-8", "replace"), media_type=media)


async def _of_leader(server: Server, request: Request) -> Response | None:
    """The leader's answer; None if this server leads. Only the leader writes, and knows how its queries are."""
    url = server.at_leader.leader()
    if url is None or FORWARD_HEADER in request.headers:
        return None
    try:
        return await passed_on(request, server.at_leader.forwarder, url)
    except (LeaderAway, ForwardingFailed) as error:
        raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, NOT_READY, str(error)) from None


async def _status(server: Server, request: Request) -> Response:
    parameters = request.path_params
    name = f"{parameters['kind']}/{parameters['name']}/{parameters['action']}"
    found = server.service.statuses.get(name) or server.service.statuses.get(
        f"{parameters['kind']}/{quoted(parameters['name'])}/{parameters['action']}"
    )
    if found is None:
        raise HttpError(HTTPStatus.NOT_FOUND, NOT_FOUND, f"Command not found: {name}")
    return JSONResponse({"status": "SUCCESS", "message": found, "queryId": None})


async def _terminate(server: Server, request: Request) -> Response:
    """POST /ksql/terminate: ends the cluster, and deletes topics of queries that match `deleteTopicList`."""
    if (answer := await _of_leader(server, request)) is not None:
        return answer
    body = await _object(request)
    unknown = body.keys() - {"deleteTopicList", "streamsProperties"}
    if unknown:
        raise _bad(f"the body has the unknown member {sorted(unknown)[0]!r}")
    if body.get("streamsProperties"):
        raise _bad("streamsProperties have no effect on the end of a cluster; leave them out")
    topics = body.get("deleteTopicList") or []
    if not isinstance(topics, list) or not all(isinstance(one, str) for one in topics):
        raise _bad("deleteTopicList must be a list of names and patterns of topics")
    try:
        done = await server.service.terminate(topics)
    except (KafkaException, SqlError) as error:
        raise StatementFailed(reason_of(error), "TERMINATE CLUSTER;") from None
    server.selects.close_all()
    return JSONResponse([done], media_type=accepted(request, (KSQL, JSON)))


# Queries


async def _query(server: Server, request: Request) -> Response:
    """POST /query: a JSON array with a header, rows, and a final message; for PRINT lines of text."""
    media = accepted(request, (KSQL, JSON))
    asked = await _asked(request, "ksql", "streamsProperties")
    await server.service.wait_applied(asked.number)
    found = await server.selects.begin(asked.text, asked.settings, asked.variables)
    if isinstance(found, PrintTopic):
        return StreamingResponse(
            _encoded(await _begun(_printed(server, found), request)), media_type="text/plain; charset=utf-8"
        )
    return StreamingResponse(_encoded(await _begun(_chunks(server, found), request)), media_type=media)


async def _query_stream(server: Server, request: Request) -> Response:
    """POST /query-stream: an object about the query, and an array for each row, each in a line of its own or, as
    `application/json`, all in one array.
    """
    media = accepted(request, (DELIMITED, JSON, KSQL))
    asked = await _asked(request, "sql", "properties")
    await server.service.wait_applied(asked.number)
    found = await server.selects.begin(asked.text, asked.settings, asked.variables)
    if isinstance(found, PrintTopic):
        raise StatementFailed("PRINT must use the /query endpoint", unparsed(asked.text))
    write = _lines if media == DELIMITED else _one_array
    return StreamingResponse(_encoded(await _begun(write(server, found), request)), media_type=media)


async def _close_query(server: Server, request: Request) -> Response:
    body = await _object(request)
    id = body.get("queryId")
    if not isinstance(id, str) or not server.selects.close(id):
        raise HttpError(HTTPStatus.BAD_REQUEST, BAD_REQUEST, f"No query with id {id}")
    return Response()


async def _encoded(texts: AsyncIterator[str]) -> AsyncIterator[bytes]:
    async for text in texts:
        yield text.encode("utf-8", "replace")


async def _begun(texts: AsyncIterator[str], request: Request) -> AsyncIterator[str]:
    """The texts, after the first one is there: what fails before it is answered with a status of its own."""
    first = await anext(texts, "")

    async def all_of_them() -> AsyncIterator[str]:
        try:
            if first:
                yield first
            async for text in texts:
                if await request.is_disconnected():
                    return
                if text:
                    yield text
        finally:
            await texts.aclose()  # type: ignore[attr-defined]

    return all_of_them()


async def _printed(server: Server, given: PrintTopic) -> AsyncIterator[str]:
    server.selects.prints += 1
    try:
        async with aclosing(Printed(given).lines(server.service.cluster)) as parts:
            async for lines in parts:
                yield "".join(f"{one}\n" for one in lines)
                if server.service.is_terminated or server.selects.is_stopped:
                    return
    finally:
        server.selects.prints -= 1


async def _chunks(server: Server, select: Select) -> AsyncIterator[str]:
    schema = ", ".join(
        f"{quoted(one.name)} {one.type}{' KEY' if one.is_key else ''}" for one in select.columns
    )
    opening = "[" + json_text({"header": {"queryId": select.id, "schema": schema}})
    try:
        yield opening
        try:
            idle = 0
            async for part in select.parts():
                idle = 0 if part else idle + 1
                yield "\n" if idle % _BEAT == _BEAT - 1 else ""
                async for piece in pieces(f",\n{json_text({'row': _row(select, one)})}" for one in part):
                    yield piece
        except StatementFailed as error:
            yield f",\n{json_text({'errorMessage': error.document()})}]\n"
            return
        yield f",\n{json_text({'finalMessage': select.message or 'Query Completed'})}]\n"
    finally:
        server.selects.close(select.id)


async def pieces(texts: Iterable[str]) -> AsyncIterator[str]:
    """The texts, joined up to about `PIECE` characters. Between two pieces the event loop turns: writing rows as JSON
    takes a while if they are large.
    """
    found, size = list[str](), 0
    for text in texts:
        found.append(text)
        size += len(text)
        if size >= PIECE:
            yield "".join(found)
            found, size = [], 0
            await asyncio.sleep(0)
    yield "".join(found)


def json_parts(value: object, depth: int = 4) -> Iterator[str]:
    """The JSON of a value, in parts down to a depth: `json` writes each at once, and lets no other thread run."""
    if not depth or not value or not isinstance(value, list | dict):
        yield json_text(value)
        return
    if isinstance(value, dict):
        (before, end), members = "{}", ((f"{json_text(name)}:", one) for name, one in value.items())
    else:
        (before, end), members = "[]", (("", one) for one in value)
    for name, one in members:
        yield before + name
        yield from json_parts(one, depth - 1)
        before = ","
    yield end


def _row(select: Select, row: Row) -> Entity:
    if row.values is None:
        return {"columns": [None] * len(select.columns), "tombstone": True}
    return {"columns": row.values}


async def _lines(server: Server, select: Select) -> AsyncIterator[str]:
    try:
        yield json_text(_about(select)) + "\n"
        try:
            async for part in select.parts():
                async for piece in pieces(f"{json_text(_values(select, one))}\n" for one in part):
                    yield piece
        except StatementFailed as error:
            yield json_text({"status": "error", "error_code": error.code, "message": error.message}) + "\n"
    finally:
        server.selects.close(select.id)


async def _one_array(server: Server, select: Select) -> AsyncIterator[str]:
    try:
        yield "[" + json_text(_about(select))
        try:
            async for part in select.parts():
                async for piece in pieces(f",\n{json_text(_values(select, one))}" for one in part):
                    yield piece
        except StatementFailed as error:
            yield f",\n{json_text({'status': 'error', 'error_code': error.code, 'message': error.message})}"
        yield "]\n"
    finally:
        server.selects.close(select.id)


def _about(select: Select) -> Entity:
    return {
        "queryId": select.id,
        "columnNames": [one.name for one in select.columns],
        "columnTypes": [one.type for one in select.columns],
    }


def _values(select: Select, row: Row) -> list[Any]:
    return [None] * len(select.columns) if row.values is None else row.values


# Inserts


class _Lines:
    """The lines of a request as they come. A line has at most `LONGEST_LINE` bytes."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._parts = request.stream()
        self._bytes, self._searched = bytearray(), 0
        self._is_whole = False

    async def read_all(self) -> None:
        """Waits for the end of the request."""
        async for part in self._parts:
            self._bytes += part
        self._is_whole = True

    async def next(self) -> bytes | None:
        """The next line; None at the end, and when the client has gone. Raises `HttpError` for one that is too long."""
        while (end := self._bytes.find(b"\n", self._searched)) < 0 and not self._is_whole:
            self._searched = len(self._bytes)
            if self._searched > LONGEST_LINE:
                raise _bad(f"a line may have {LONGEST_LINE:,} bytes")
            try:
                part = await anext(self._parts, None)
            except ClientDisconnect:  # or this server stops
                part = None
            self._is_whole = part is None
            self._bytes += part or b""
        if self._is_whole and (not self._bytes or await self._request.is_disconnected()):
            return None
        line = bytes(self._bytes if end < 0 else self._bytes[:end]).removesuffix(b"\r")
        del self._bytes[: len(self._bytes) if end < 0 else end + 1]
        self._searched = 0
        return line


class _Exchange(StreamingResponse):
    """An answer that is sent while its request is still open. The content of the answer itself notices the end of the
    request.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self.body_iterator):  # type: ignore[type-var]
            await self.stream_response(send)


async def _inserts(server: Server, request: Request) -> Response:
    """POST /inserts-stream: a line with the target, and a line for each row; a line of status for each.

    In HTTP/2 a row is written when its line has come, and the request may go on for as long as its client likes.
    """
    _check_page(request)
    lines = _Lines(request)
    first = await lines.next()
    about = None if first is None else parse_json(first)
    if not isinstance(about, dict) or not isinstance(about.get("target"), str):
        raise _bad("the first line must be a JSON object with the member 'target', the name of a stream")
    server.service.check_lives()
    sources = server.service.engine.catalogue.sources
    named = about["target"]
    name = named[1:-1] if named[:1] == "`" else named.upper()
    source = sources.get(name)
    if source is None or source.is_table:
        hint = near(name, sources)
        raise _bad(f"Cannot insert values into an unknown stream: {named}{hint}")
    if server.inserting.locked():
        raise HttpError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            NOT_READY,
            f"{MOST_INSERTING} requests insert rows already; try again",
            headers={"Retry-After": "1"},
        )
    if not use_long(request):
        await lines.read_all()
    return _Exchange(_acks(server, source, lines), media_type=DELIMITED)


async def _acks(server: Server, source: SourceInfo, lines: _Lines) -> AsyncIterator[bytes]:
    async with server.inserting:
        for number in count():
            ack: Entity = {"status": "ok", "seq": number}
            try:
                if (line := await lines.next()) is None:
                    return
                await server.service.insert(source, partial(_row_of, source, line))
            except (
                ValueError,
                SqlError,
                HTTPException,
                HttpError,
                KafkaException,
                OutsideError,
                OSError,
            ) as error:
                reason = error.detail if isinstance(error, HTTPException) else reason_of(error)
                ack = {"status": "error", "seq": number, "error_code": BAD_REQUEST, "message": reason}
            yield f"{json_text(ack)}\n".encode("utf-8", "replace")
            if ack["status"] != "ok":
                return


def _row_of(source: SourceInfo, line: bytes) -> Inserted:
    return _inserted(source, parse_json(line))


def _inserted(source: Any, given: Any) -> Inserted:
    """The row of a JSON object. Raises ValueError."""
    if not isinstance(given, dict):
        raise ValueError("a row must be a JSON object")
    by_name = {(name[1:-1] if name[:1] == "`" else name.upper()): value for name, value in given.items()}
    known = {one.name: one.type for one in source.columns if one.role != "HEADERS"}
    for name in by_name:
        if name not in known:
            raise ValueError(f"there is no column {name} in {source.name}{near(name, known)}")
    values = {
        name: None if by_name.get(name) is None else value_of(type_, by_name[name])
        for name, type_ in known.items()
    }
    key = tuple(values[name] for name, _ in source.key)
    return Inserted(
        None if all(one is None for one in key) else key,
        tuple(values[name] for name, _ in source.value),
        None,
    )


# About the server


async def _info(server: Server, request: Request) -> Response:
    service = server.service
    about = {
        "version": VERSION,
        "kafkaClusterId": service.cluster.id,
        "ksqlServiceId": service.deployment.service_id,
        "serverStatus": "TERMINATED" if service.is_terminated else "RUNNING",
    }
    return JSONResponse({"KsqlServerInfo": about}, media_type=accepted(request, (KSQL, JSON)))


async def _health(server: Server, request: Request) -> Response:
    """GET /healthcheck: 200 also if something is wrong, which the answer names, as in ksqlDB."""
    found = await server.service.health()
    details = {name: {"isHealthy": is_healthy} for name, is_healthy in found.items()}
    return JSONResponse({"isHealthy": all(found.values()), "details": details, "serverState": "READY"})


async def _metrics(server: Server, request: Request) -> Response:
    service = server.service
    figures = Figures(
        leads=service.leads,
        commands=service.engine.commands,
        queries=service.states(service.engine.queries) if service.leads else {},
        selects=len(server.selects.running),
        prints=server.selects.prints,
        tables={one.source.name: one.fault is None for one in service.followers.values()},
    )
    return Response(page(figures), headers={"content-type": CONTENT_TYPE})


async def _metadata(server: Server, request: Request) -> Response:
    service = server.service
    clusters = {"kafka-cluster": service.cluster.id, "ksql-cluster": service.deployment.service_id}
    return JSONResponse({"id": "", "scope": {"path": [], "clusters": clusters}})


async def _property(server: Server, request: Request) -> Response:
    name = str(request.path_params["name"])
    if not is_known(name):
        raise _bad(f"Unknown property: {name}")
    return JSONResponse(True)


_ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("POST", "/ksql", _ksql),
    ("POST", "/ksql/terminate", _terminate),
    ("POST", "/query", _query),
    ("POST", "/query-stream", _query_stream),
    ("POST", "/close-query", _close_query),
    ("POST", "/inserts-stream", _inserts),
    ("GET", "/status/{kind}/{name}/{action}", _status),
    ("GET", "/info", _info),
    ("GET", "/healthcheck", _health),
    ("GET", "/metrics", _metrics),
    ("GET", "/v1/metadata/id", _metadata),
    ("GET", "/is_valid_property/{name}", _property),
)
