"""How a connection switches to HTTP/2: by its preface (prior knowledge), by ALPN, or by an upgrade (h2c).

Works without `h2`: a client that speaks HTTP/2 then gets GOAWAY with the code HTTP_1_1_REQUIRED and the reason.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SWITCHED: Final = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
MISSING: Final = "this server speaks HTTP/1.1 only, because h2 is missing: pip install 'felice[http2]'"
_SETTINGS, _GOAWAY, _HTTP_1_1_REQUIRED = 4, 7, 13


@cache
def has_http2() -> bool:
    """Whether `h2` is installed."""
    return find_spec("h2") is not None


def alpn_protocols() -> list[str]:
    """What a TLS handshake offers, the best first."""
    return ["h2", "http/1.1"] if has_http2() else ["http/1.1"]


def only_http1() -> bytes:
    """The frames for a client that speaks HTTP/2 to a server without it."""
    reason = MISSING.encode()
    body = (0).to_bytes(4, "big") + _HTTP_1_1_REQUIRED.to_bytes(4, "big") + reason
    return _frame(_SETTINGS, b"") + _frame(_GOAWAY, body)


def _frame(kind: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, 0]) + (0).to_bytes(4, "big") + body


def upgrade_settings(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """`HTTP2-Settings` of a request that asks for h2c; None if it does not, or not as RFC 7540 (3.2) says.

    A request with a body stays in HTTP/1.1: its body would have to be read to the end first.
    """
    if not has_http2():
        return None
    settings, tokens, has_h2c = list[bytes](), set[bytes](), False
    for name, value in headers:
        if name == b"connection":
            tokens |= {token.strip().lower() for token in value.split(b",")}
        elif name == b"upgrade":
            has_h2c = b"h2c" in {token.strip().lower() for token in value.split(b",")}
        elif name == b"http2-settings":
            settings.append(value)
        elif name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            return None
    if not has_h2c or not {b"upgrade", b"http2-settings"} <= tokens or len(settings) != 1:
        return None
    return settings[0] if _are_settings(settings[0]) else None


def _are_settings(encoded: bytes) -> bool:
    try:
        padding = b"=" * (-len(encoded) % 4)
        return len(base64.b64decode(encoded + padding, b"-_", validate=True)) % 6 == 0
    except (binascii.Error, ValueError):
        return False
