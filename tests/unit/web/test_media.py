"""JSON bodies, and what a client accepts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from felice.web.media import accepted, check_content_type, parse_json

V1 = "application/vnd.schemaregistry.v1+json"
OFFERED = (V1, "application/vnd.schemaregistry+json", "application/json")


def request_with(*headers: tuple[str, str]) -> Request:
    raw = [(name.encode(), text.encode()) for name, text in headers]
    return Request({"type": "http", "headers": raw})


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ([], V1),
        ([""], V1),
        (["*/*"], V1),
        (["application/*"], V1),
        (["application/json"], "application/json"),
        (["APPLICATION/JSON"], "application/json"),
        (["application/json;charset=utf-8"], "application/json"),
        (["text/html, application/json"], "application/json"),
        (["text/html", "application/json"], "application/json"),
        (["application/json;q=0.5, */*;q=0.1"], "application/json"),
        (["application/json;q=0.1, */*;q=0.5"], V1),
        (["application/json; q=0.9; v=1, application/vnd.schemaregistry+json"], OFFERED[1]),
        ([f"{V1}, application/vnd.schemaregistry+json, application/json"], V1),
        (["*/*;q=wrong"], V1),
        (["application/json, */*;q=0"], "application/json"),
        (["text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"], V1),
    ],
)
def test_the_answer_has_the_type_that_the_client_prefers(accept: Sequence[str], expected: str) -> None:
    assert accepted(request_with(*(("accept", text) for text in accept)), OFFERED) == expected


@pytest.mark.parametrize(
    "accept", ["text/html", "application/xml", "text/*", "*/*;q=0", "application/json;q=0"]
)
def test_a_client_that_accepts_no_offered_type_is_refused(accept: str) -> None:
    with pytest.raises(HTTPException) as caught:
        accepted(request_with(("accept", accept)), ["application/json"])
    assert caught.value.status_code == 406


@pytest.mark.parametrize(
    "given",
    ["", "application/json", "Application/JSON; charset=utf-8", 'application/json;q=1;charset="UTF8"', V1],
)
def test_a_body_may_have_the_types_of_its_route_or_none(given: str) -> None:
    check_content_type(request_with(*([("content-type", given)] if given else [])), OFFERED)


@pytest.mark.parametrize("given", ["text/plain", "application/json5", "nonsense"])
def test_a_body_of_another_type_is_refused(given: str) -> None:
    with pytest.raises(HTTPException) as caught:
        check_content_type(request_with(("content-type", given)), OFFERED)
    assert caught.value.status_code == 415


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "the body is not JSON: Expecting value"),
        (b"{'a': 1}", "the body is not JSON: Expecting property name"),
        (b"[1,]", "the body is not JSON"),
        (b"1 2", "the body is not JSON: Extra data"),
        (b"NaN", "the body is not JSON: NaN is no number of JSON"),
        (b"-Infinity", "the body is not JSON: -Infinity is no number of JSON"),
        (b"9" * 5000, "the body is not JSON: "),
        (b"\xff", "the body is not UTF-8"),
        (b'"\xed\xa0\x80"', "the body is not UTF-8"),
        (b"[" * 100_000, "the JSON of the body nests too deeply"),
        (b'{"a":' * 100_000, "the JSON of the body nests too deeply"),
        (b'["\\ud800"]', "a text of the body has half of a surrogate pair"),
        (b'{"\\uDC00 \\ud83d": 1}', "a text of the body has half of a surrogate pair"),
    ],
)
def test_what_is_not_json_is_refused_in_one_line(text: bytes, reason: str) -> None:
    with pytest.raises(HTTPException, match=f"^400: {reason}") as caught:
        parse_json(text)
    assert "\n" not in caught.value.detail
    assert len(caught.value.detail) < 200


def test_json_is_read() -> None:
    assert parse_json(b'{"a": [1, 2.5, null, true, "\xc3\xa9"]}') == {"a": [1, 2.5, None, True, "é"]}
    assert parse_json(b'["\\ud83d\\ude00", "\\\\ud83d"]') == ["\U0001f600", "\\ud83d"]
