"""What a handler is given beside the request, and what it may answer other than a response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from felice.server.broker import Broker
    from felice.server.session import Session


class _NoReply:
    """The type of `NO_REPLY`."""


NO_REPLY: Final = _NoReply()
"""Answered by a handler whose request wants no bytes back (Produce with acks=0)."""


class CloseConnection(Exception):
    """Raised by a handler where the protocol's only answer is to close."""


class RequestContext:
    """Where a request came from and what it may use."""

    __slots__ = ("broker", "client_id", "session", "version")

    def __init__(self, broker: Broker, version: int, client_id: str | None, session: Session) -> None:
        self.broker = broker
        self.version = version
        self.client_id = client_id
        self.session = session

    @property
    def now_ms(self) -> int:
        return self.broker.env.clock.now_ms()

    @property
    def listener_name(self) -> str:
        return self.session.listener_name
