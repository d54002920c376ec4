"""What clients get for good and for bad requests."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

import pytest
from starlette.routing import Mount
from starlette.types import Scope

from felice.web.application import application
from felice.web.errors import Errors, HttpError
from felice.web.limits import Limits
from unit.web.serving_app import Serving, request_of, run

SMALL = Limits(body_bytes=9000, body_s=0.3, head_bytes=2000, linger_s=0.2)


def test_an_answer_of_a_handler_arrives() -> None:
    async def scenario(serving: Serving) -> None:
        status, headers, body = await serving.ask(request_of("GET", "/hello"))
        assert (status, body) == (200, b"hello\n")
        assert headers["content-type"] == "text/plain; charset=utf-8"
        assert "GMT" in headers["date"]
        assert "server" not in headers

    run(scenario)


def test_head_gets_the_headers_of_an_answer_without_it() -> None:
    async def scenario(serving: Serving) -> None:
        status, headers, body = await serving.ask(request_of("HEAD", "/large"))
        assert (status, headers["content-length"], body) == (200, "5000000", b"")

    run(scenario)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/names/a", {"name": "a"}),
        ("/names/a/", {"name": "a"}),
        ("/names/a%2Fb", {"name": "a/b"}),
        ("/names/a%2fb/of/%2F", {"name": "a/b", "other": "/"}),
        ("/names/..", {"name": ".."}),
        ("/names/%2e%2E/of/..", {"name": "..", "other": ".."}),
        ("/names/a%252Fb", {"name": "a%2Fb"}),
        ("/names/:.ctx:orders-value", {"name": ":.ctx:orders-value"}),
        ("/names/%3A.ctx%3Aorders", {"name": ":.ctx:orders"}),
        ("/%6eames/%C3%A9", {"name": "é"}),
        ("/names/100%", {"name": "100%"}),
        ("/names/%20", {"name": " "}),
        ("/names/a+b", {"name": "a+b"}),
        ("http://other/names/a?x=1", {"name": "a"}),
        ("/versions/12", {"version": 12}),
    ],
)
def test_a_parameter_is_one_segment_of_the_path(path: str, expected: dict[str, object]) -> None:
    async def scenario(serving: Serving) -> None:
        status, _, body = await serving.ask(request_of("GET", path))
        assert (status, json.loads(body)) == (200, expected)

    run(scenario)


CHUNKED = {"Transfer-Encoding": "chunked"}
FAULTS: dict[str, tuple[bytes, int, str]] = {
    "no route": (request_of("GET", "/nothing"), 404, "Not Found"),
    "a slash more": (request_of("GET", "/names/a/b"), 404, "Not Found"),
    "no segment": (request_of("GET", "/names/"), 404, "Not Found"),
    "not a number": (request_of("GET", "/versions/one"), 404, "Not Found"),
    "another method": (request_of("PUT", "/count"), 405, "Method Not Allowed"),
    "a path that is not UTF-8": (request_of("GET", "/names/%FF"), 400, "%FF in the path is not UTF-8"),
    "a query that is not UTF-8": (request_of("GET", "/names/a?x=%ff"), 400, "the query is not UTF-8"),
    "another charset": (
        request_of(
            "POST", "/json", "{}".encode("utf-16"), {"Content-Type": "application/json; charset=UTF-16"}
        ),
        415,
        "the charset utf-16 is not supported; use utf-8",
    ),
    "an error of the application": (request_of("GET", "/refused"), 422, "Invalid schema"),
    "a fault of the application": (request_of("GET", "/broken"), 500, "Internal Server Error"),
    "another content type": (
        request_of("POST", "/json", b"a: 1", {"Content-Type": "application/yaml"}),
        415,
        "the content type application/yaml is not supported; use application/json",
    ),
    "no acceptable answer": (
        request_of("POST", "/json", b"{}", {"Accept": "text/html"}),
        406,
        "the answer can be application/json",
    ),
    "not JSON": (request_of("POST", "/json", b"{"), 400, "the body is not JSON: Expecting property name"),
    "JSON that nests deeply": (
        request_of("POST", "/json", b"[" * 5000),
        400,
        "the JSON of the body nests too deeply",
    ),
    "JSON with NaN": (request_of("POST", "/json", b"[NaN]"), 400, "the body is not JSON: NaN is no number"),
    "JSON in Latin-1": (request_of("POST", "/json", b'"\xe9"'), 400, "the body is not UTF-8"),
    "a large body": (
        request_of("POST", "/count", b"x" * 9001),
        413,
        "the body of a request may have 9,000 bytes",
    ),
    "a large body that does not come": (
        request_of("POST", "/count", headers={"Content-Length": "99999999"}),
        413,
        "the body of a request may have 9,000 bytes",
    ),
    "a large body in chunks": (
        request_of("POST", "/count", headers=CHUNKED)
        + b"1194\r\n"
        + b"x" * 4500
        + b"\r\n1195\r\n"
        + b"x" * 4501,
        413,
        "the body of a request may have 9,000 bytes",
    ),
    "a body that does not end": (
        request_of("POST", "/count", headers={"Content-Length": "10"}) + b"x",
        408,
        "the body of the request did not arrive in 0.3 s",
    ),
    "chunks that do not end": (
        request_of("POST", "/count", headers=CHUNKED) + b"5\r\nhello\r\n",
        408,
        "the body of the request did not arrive in 0.3 s",
    ),
    "a chunk without a size": (
        request_of("POST", "/count", headers=CHUNKED) + b"five\r\nhello\r\n",
        400,
        "the request is not valid HTTP/1.1: illegal chunk header",
    ),
    "no HTTP": (
        b"\x16\x03\x01 hello\r\n\r\n",
        400,
        "the request is not valid HTTP/1.1: illegal request line",
    ),
    "no host": (
        b"GET /hello HTTP/1.1\r\n\r\n",
        400,
        "the request is not valid HTTP/1.1: Missing mandatory Host",
    ),
    "two lengths": (
        request_of("POST", "/count", headers={"Content-Length": "1", "content-length": "2"}),
        400,
        "the request is not valid HTTP/1.1: conflicting Content-Length headers",
    ),
    "an unknown encoding": (
        request_of("POST", "/count", headers={"Transfer-Encoding": "gzip"}),
        501,
        "the request is not valid HTTP/1.1: Only Transfer-Encoding: chunked is supported",
    ),
    "a large head": (
        request_of("GET", "/hello", headers={"X-Large": "x" * 2100}),
        431,
        "the head of a request may have 2,000 bytes",
    ),
    "a large head that does not end": (
        b"GET /hello HTTP/1.1\r\nX-Large: " + b"x" * 2100,
        431,
        "the head of a request may have 2,000 bytes",
    ),
    "a foreign host": (
        b"GET /hello HTTP/1.1\r\nHost: evil.example:8081\r\nConnection: close\r\n\r\n",
        421,
        "this server is not evil.example",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_answered_in_one_shape(fault: str) -> None:
    request, status, message = FAULTS[fault]

    async def scenario(serving: Serving) -> None:
        found, headers, body = await serving.ask(request)
        document = json.loads(body)
        assert found == status
        assert headers["content-type"] == "application/json"
        assert document["error_code"] == (42201 if status == 422 else status)
        assert document["message"].startswith(message)
        assert b"secret" not in body
        assert "Traceback" not in document["message"]

    run(scenario, limits=SMALL)


def test_a_refused_method_names_those_of_all_routes_of_the_path() -> None:
    async def scenario(serving: Serving) -> None:
        _, headers, _ = await serving.ask(request_of("PUT", "/count"))
        assert headers["allow"] == "DELETE, POST"
        _, headers, _ = await serving.ask(request_of("PUT", "/hello"))
        assert headers["allow"] == "GET, HEAD"

    run(scenario)


def test_the_traceback_of_a_fault_is_logged_and_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(serving: Serving) -> None:
        _, _, body = await serving.ask(request_of("GET", "/broken"))
        assert json.loads(body)["hint"] == "the log of the server says why"

    run(scenario)
    logged = [record for record in caplog.records if record.exc_info]
    assert [str(record.exc_info[1]) for record in logged if record.exc_info] == ["a secret of the server"]


def test_an_answer_that_fails_in_its_middle_is_cut() -> None:
    async def scenario(serving: Serving) -> None:
        status, _, body = await serving.ask(request_of("GET", "/broken-later"))
        assert (status, body) == (200, b"6\r\na part\r\n")  # without the chunk that ends an answer

    run(scenario)


def test_an_api_decides_the_shape_and_the_content_type_of_its_errors() -> None:
    class Own(Errors):
        def document(self, error: HttpError) -> Mapping[str, object]:
            return {"code": error.error_code}

        def media_type_for(self, scope: Scope | None) -> str:
            return "application/x+json" if scope else "application/y+json"

    async def scenario(serving: Serving) -> None:
        for request, expected in (
            (request_of("GET", "/nothing"), ("application/x+json", {"code": 404})),
            (b"no request\r\n\r\n", ("application/y+json", {"code": 400})),
        ):
            _, headers, body = await serving.ask(request)
            assert (headers["content-type"], json.loads(body)) == expected

    run(scenario, errors=Own())


def test_the_access_log_names_request_status_time_and_client(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "felice.web.access")

    async def scenario(serving: Serving) -> None:
        await serving.ask(request_of("GET", "/names/a%2Fb?x=1"))
        await serving.ask(request_of("GET", "/broken"))

    run(scenario)
    lines = [record.__dict__ for record in caplog.records if record.name == "felice.web.access"]
    assert [(line["method"], line["path"], line["status"], line["client"]) for line in lines] == [
        ("GET", "/names/a%2Fb", 200, "127.0.0.1"),
        ("GET", "/broken", 500, "127.0.0.1"),
    ]
    assert all(line["ms"] >= 0 for line in lines)


def test_the_access_log_can_be_left_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "felice.web.access")

    async def scenario(serving: Serving) -> None:
        await serving.ask(request_of("GET", "/hello"))

    run(scenario, access_log=False)
    assert not [record for record in caplog.records if record.name == "felice.web.access"]


def test_other_kinds_of_routes_are_refused() -> None:
    with pytest.raises(TypeError, match="only routes of the class Route"):
        application([Mount("/static", routes=[])])
