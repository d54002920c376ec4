"""Bodies of requests that the SQL server's REST refuses, or looks at before it answers. No broker runs here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from felice.pipelines.sql.server import rest
from felice.web.errors import HttpError


def request(body: Mapping[str, Any]) -> Request:
    """A POST with this body, as JSON."""
    text = json.dumps(body).encode()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": text, "more_body": False}

    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(text))]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)


def server(**service: Any) -> Any:
    """The leader, with these members of its service."""
    at_leader = rest.AtLeader(SimpleNamespace(), lambda: None)  # type: ignore[arg-type]
    return rest.Server(SimpleNamespace(**service), SimpleNamespace(), at_leader, asyncio.Semaphore(1))  # type: ignore[arg-type]


def test_the_end_of_a_cluster_has_no_settings() -> None:
    """They were accepted, and nothing looked at them."""
    body = request({"deleteTopicList": [], "streamsProperties": {"auto.offset.reset": "earliest"}})
    with pytest.raises(HttpError, match="no effect"):
        asyncio.run(rest._terminate(server(), body))


@pytest.mark.parametrize(
    ("handler", "text"), [(rest._ksql, "ksql"), (rest._query, "ksql"), (rest._query_stream, "sql")]
)
def test_statements_wait_for_the_command_that_their_request_names(handler: Any, text: str) -> None:
    """Its number was accepted, and nothing looked at it."""

    class Waiting(Exception):
        pass

    async def wait_applied(number: int | None) -> None:
        raise Waiting(number)

    with pytest.raises(Waiting, match="7"):
        asyncio.run(
            handler(server(wait_applied=wait_applied), request({text: "x", "commandSequenceNumber": 7}))
        )
    with pytest.raises(HttpError, match="must be a whole number"):
        asyncio.run(handler(server(), request({text: "x", "commandSequenceNumber": "7"})))


@pytest.mark.parametrize(
    ("handler", "text"), [(rest._ksql, "ksql"), (rest._query, "ksql"), (rest._query_stream, "sql")]
)
@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("request.ksql.query.pull.partition", "0,1", "must be '' here, not '0,1'"),
        ("request.ksql.debug.request", True, "must be 'false' here, not 'true'"),
        (
            "request.ksql.debug.requests",
            False,
            "no request property request.ksql.debug.requests; did you mean",
        ),
    ],
)
def test_properties_of_a_request_that_have_no_effect_are_refused(
    handler: Any, text: str, name: str, value: object, reason: str
) -> None:
    """They were accepted, and nothing looked at them."""
    with pytest.raises(HttpError, match=reason):
        asyncio.run(handler(server(), request({text: "x", "requestProperties": {name: value}})))


def test_properties_of_a_request_that_ask_for_what_is_done_anyway_are_accepted() -> None:
    given = {name: values[-1] for name, values in rest._REQUEST_PROPERTIES.items()}
    asked = asyncio.run(
        rest._asked(request({"ksql": "x", "requestProperties": given}), "ksql", "streamsProperties")
    )
    assert asked.text == "x"
