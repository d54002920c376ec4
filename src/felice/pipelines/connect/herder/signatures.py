"""What workers ask of each other is signed with a key of the config topic, which only workers can read."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

from felice.pipelines.connect.herder.errors import RequestError, bad_request

SIGNATURE = "X-Connect-Authorization"
ALGORITHM = "X-Connect-Request-Signature-Algorithm"
_NAME = "HmacSHA256"


def signed(key: bytes, method: str, path: str, body: bytes) -> dict[str, str]:
    """The headers of a signed request."""
    return {SIGNATURE: _signature(key, method, path, body), ALGORITHM: _NAME}


def check(key: bytes | None, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Raises `RequestError` (400, 403, 503) unless a request is signed with the key."""
    given = headers.get(SIGNATURE)
    if given is None:
        raise bad_request("Internal request missing required signature")
    if headers.get(ALGORITHM) != _NAME:
        raise bad_request(f"the only algorithm of signatures is {_NAME}")
    if key is None:
        raise RequestError(503, "this worker has not read the key of its group's requests yet")
    expected = _signature(key, method, path, body)
    if not hmac.compare_digest(given.encode(errors="replace"), expected.encode()):
        raise RequestError(403, "Internal request contained invalid signature.")


def _signature(key: bytes, method: str, path: str, body: bytes) -> str:
    text = f"{method} {path}\n".encode() + body
    return base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
