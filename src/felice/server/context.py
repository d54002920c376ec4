"""What a handler is given beside the request, and what it may answer other than a response."""

from __future__ import annotations

from typing import Final, Protocol

from felice.server.services import Services


class _NoReply:
    """The type of `NO_REPLY`."""


NO_REPLY: Final = _NoReply()
"""Answered by a handler whose request wants no bytes back (Produce with acks=0)."""


class CloseConnection(Exception):
    """Raised by a handler where the protocol's only answer is to close."""


class Connection(Protocol):
    """The connection that a request came by."""

    peer: str
    client_software: str

    @property
    def listener_name(self) -> str: ...

    def hold(self) -> None:
        """Lets the connection's next requests wait until `release`."""
        ...

    def release(self) -> None: ...


class RequestContext:
    """Where a request came from and what it may use."""

    __slots__ = ("client_id", "services", "session", "version")

    def __init__(self, services: Services, version: int, client_id: str | None, session: Connection) -> None:
        self.services = services
        self.version = version
        self.client_id = client_id
        self.session = session

    @property
    def now_ms(self) -> int:
        return self.services.env.clock.now_ms()

    @property
    def listener_name(self) -> str:
        return self.session.listener_name
