"""What all connections of one server have in common: its limits, and the requests that the application must not see."""

from __future__ import annotations

import asyncio
import fcntl
import termios
from array import array
from http import HTTPStatus
from typing import Any, Final

from starlette.types import Scope
from uvicorn.config import Config
from uvicorn.server import ServerState

from felice.dataclass import dataclass
from felice.web.crowd import Crowd
from felice.web.errors import Errors, HttpError
from felice.web.http2.turns import Turns
from felice.web.limits import Limits


@dataclass(frozen=True, slots=True)
class Shared:
    """The parts of a server that its connections use."""

    crowd: Crowd
    limits: Limits
    errors: Errors
    config: Config
    state: ServerState
    app_state: dict[str, Any]
    turns: Turns

    def refusal(self, scope: Scope) -> HttpError | None:
        """The error for a request whose head is too large, or for which there is no room."""
        if _head_bytes(scope) > self.limits.head_bytes:
            return self.head_too_large()
        if self.crowd.is_busy:
            text = f"{self.limits.connections} requests are being answered; try again"
            return self.errors.of_status(HTTPStatus.SERVICE_UNAVAILABLE, text, headers={"Retry-After": "1"})
        return None

    def head_too_large(self) -> HttpError:
        """The error for a head above its limit."""
        text = f"the head of a request may have {self.limits.head_bytes:,} bytes"
        return self.errors.of_status(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)


def _head_bytes(scope: Scope) -> int:
    headers = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    return len(scope["raw_path"]) + len(scope["query_string"]) + headers


AGAIN_S: Final = 0.02
"""If bytes of a client wait in the socket, this process is late, not the client. It checks again after this time."""


def has_unread(transport: asyncio.BaseTransport) -> bool:
    """Whether bytes wait in the socket that were not read yet."""
    size = array("i", [0])
    try:
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.FIONREAD, size)
    except (OSError, ValueError):  # closed already
        return False
    return size[0] > 0
