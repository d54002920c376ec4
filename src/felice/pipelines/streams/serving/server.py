"""The routes of `felice streams serve`: stores, metrics, and whether the application runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from felice.env.listening import ServerTls
from felice.pipelines.errors import FormatError
from felice.pipelines.prometheus import CONTENT_TYPE
from felice.pipelines.streams.on_spark.directory import CheckpointError
from felice.pipelines.streams.on_spark.lock import is_running
from felice.pipelines.streams.on_spark.state import StateError
from felice.pipelines.streams.serving import metrics
from felice.pipelines.streams.serving.queries import DEFAULT_ROWS, NoSuchStore, Queries, Selection
from felice.web.application import application
from felice.web.errors import Errors, HttpError
from felice.web.login import Login
from felice.web.serving import WebServer

DEFAULT_PORT = 8084
_PARAMETERS = frozenset(("from", "to", "prefix", "from_ms", "to_ms", "limit", "after"))
Answer = Callable[[Queries, Request], Awaitable[Response]]


def state_server(
    queries: Queries, host: str, port: int, *, tls: ServerTls | None = None, login: Login | None = None
) -> WebServer:
    """The server of one application."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            queries.close()

    app = application(routes(queries), errors=Errors(), login=login, lifespan=lifespan)
    return WebServer(app, host, port, tls=tls)


def routes(queries: Queries) -> Sequence[Route]:
    """The routes."""
    answers: dict[str, Answer] = {
        "/": _about,
        "/health": _health,
        "/metrics": _metrics,
        "/stores": _stores,
        "/stores/{store}": _rows,
        "/stores/{store}/{key}": _row,
    }
    return [Route(path, _answering(queries, answer), methods=["GET"]) for path, answer in answers.items()]


def _answering(queries: Queries, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        try:
            return await answer(queries, request)
        except NoSuchStore as error:
            raise _refusal(HTTPStatus.NOT_FOUND, str(error)) from None
        except (ValueError, FormatError) as error:
            raise _refusal(HTTPStatus.BAD_REQUEST, str(error)) from None
        except (CheckpointError, StateError) as error:
            raise _refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None

    return handle


async def _about(queries: Queries, request: Request) -> Response:
    checkpoint = queries.checkpoint
    description = checkpoint.description()
    return JSONResponse(
        {
            "application": queries.app.name,
            "running": is_running(checkpoint),
            "last_batch": checkpoint.last_batches()[1],
            "partitions": None if description is None else description.partitions,
            "failure": checkpoint.progress().get("failure"),
        }
    )


async def _health(queries: Queries, request: Request) -> Response:
    """200 while the application runs, 503 otherwise."""
    running = is_running(queries.checkpoint)
    status = HTTPStatus.OK if running else HTTPStatus.SERVICE_UNAVAILABLE
    return JSONResponse({"running": running}, status)


async def _metrics(queries: Queries, request: Request) -> Response:
    checkpoint = queries.checkpoint
    page = await queries.run(lambda: metrics.page(queries.app.name, checkpoint, is_running(checkpoint)))
    return PlainTextResponse(page, headers={"Content-Type": CONTENT_TYPE})


async def _stores(queries: Queries, request: Request) -> Response:
    return JSONResponse({"stores": await queries.run(queries.stores)})


async def _rows(queries: Queries, request: Request) -> Response:
    return await _selected(queries, request, None)


async def _row(queries: Queries, request: Request) -> Response:
    """The row of a key, or in a windowed store its windows. 404 if there is none."""
    return await _selected(queries, request, str(request.path_params["key"]))


async def _selected(queries: Queries, request: Request, key: str | None) -> Response:
    wanted, store = _selection(request, key), str(request.path_params["store"])

    def answer() -> Response:
        found = queries.select(store, wanted)
        if key is not None and not found.rows:
            in_times = "" if (wanted.from_ms, wanted.to_ms) == (None, None) else " in these times"
            raise _refusal(HTTPStatus.NOT_FOUND, f"store {store!r} has no row with the key {key!r}{in_times}")
        return JSONResponse(found._asdict())  # Written here, in the thread: it may be long.

    return await queries.run(answer)


def _selection(request: Request, key: str | None) -> Selection:
    given = request.query_params
    if unknown := sorted(set(given) - _PARAMETERS):
        raise ValueError(f"there is no parameter {unknown[0]!r}; there are {', '.join(sorted(_PARAMETERS))}")
    try:
        after = bytes.fromhex(given.get("after", ""))
    except ValueError:
        raise ValueError("after must be the value of next in an answer") from None
    return Selection(
        key,
        given.get("from"),
        given.get("to"),
        given.get("prefix"),
        _number(given.get("from_ms"), "from_ms"),
        _number(given.get("to_ms"), "to_ms"),
        after,
        _limit(given.get("limit")),
    )


def _limit(text: Any) -> int:
    limit = _number(text, "limit")
    if limit == 0:
        raise ValueError("limit is 0; it must be at least 1")
    return DEFAULT_ROWS if limit is None else limit


def _number(text: Any, name: str) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise ValueError(f"{name} is {text!r}; it must be a whole number from 0 to {(1 << 63) - 1}")
    return int(text)


def _refusal(status: int, message: str) -> HttpError:
    return HttpError(status, status, message)
