"""Bodies in JSON, and the content types that a client sends and accepts.

Keeps true: JSON that Python would read but no other language (NaN), that nests too deeply, that is not UTF-8 or could
            not be written as UTF-8 (half of a surrogate pair), is refused in one line with status 400.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, NoReturn

from starlette.exceptions import HTTPException
from starlette.requests import Request

JSON = "application/json"
_CHARSETS = ("utf-8", "utf8", "us-ascii")
"""Those that a body in UTF-8 may be declared as."""
_MAYBE_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")


async def json_body(request: Request, media_types: Sequence[str] = (JSON,)) -> Any:
    """The body, which must be JSON and have one of these content types, or none.

    Raises `HTTPException`: 415 for another content type, 400 for what is not JSON.
    """
    check_content_type(request, media_types)
    return parse_json(await request.body())


def check_content_type(request: Request, media_types: Sequence[str]) -> None:
    """Raises `HTTPException` (415) if the request names another content type or encoding. A request may name none."""
    given, *parameters = (part.strip().lower() for part in request.headers.get("content-type", "").split(";"))
    if given and given not in media_types:
        text = f"the content type {given} is not supported; use {' or '.join(media_types)}"
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
    for parameter in parameters:
        name, _, charset = (part.strip(' "') for part in parameter.partition("="))
        if name == "charset" and charset not in _CHARSETS:
            text = f"the charset {charset} is not supported; use utf-8"
            raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)


def parse_json(data: bytes) -> Any:
    """The value of a JSON text. Raises `HTTPException` (400)."""
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant)
        if _MAYBE_HALF_PAIR.search(data):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError:
        raise HTTPException(
            HTTPStatus.BAD_REQUEST, "a text of the body has half of a surrogate pair, which UTF-8 cannot hold"
        ) from None
    except RecursionError:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the JSON of the body nests too deeply") from None
    except UnicodeDecodeError:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the body is not UTF-8") from None
    except ValueError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def accepted(request: Request, offered: Sequence[str]) -> str:
    """The content type for the answer: of those offered, the one that the client prefers, or the first.

    Raises `HTTPException` (406) if the client accepts none of them. Rules of RFC 9110, 12.5.1.
    """
    ranges = _ranges(",".join(request.headers.getlist("accept")))
    if not ranges:
        return offered[0]
    best = max(offered, key=lambda media_type: _quality(media_type, ranges))  # the first one of equals
    if _quality(best, ranges) == 0:
        raise HTTPException(HTTPStatus.NOT_ACCEPTABLE, f"the answer can be {' or '.join(offered)}")
    return best


def _ranges(header: str) -> dict[str, float]:
    """The media ranges of an Accept header, and their quality."""
    found = {}
    for part in header.split(","):
        media_range, *parameters = (word.strip().lower() for word in part.split(";"))
        if media_range:
            found[media_range] = next((_number(p[2:]) for p in parameters if p.startswith("q=")), 1.0)
    return found


def _number(text: str) -> float:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return 1.0


def _quality(media_type: str, ranges: dict[str, float]) -> float:
    """The quality of the most specific range that has the media type; 0 if there is none."""
    kind = media_type.partition("/")[0]
    return next((ranges[name] for name in (media_type, f"{kind}/*", "*/*") if name in ranges), 0.0)
