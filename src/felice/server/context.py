"""The context of a request, and the results of a handler that are not a response."""

from __future__ import annotations

from typing import Final, Protocol

from felice.security.principal import Principal, host_text
from felice.server.flow.pace import Holdable
from felice.server.security.access_control import Access
from felice.server.services import Services


class NoReply:
    """The type of `NO_REPLY`."""


NO_REPLY: Final = NoReply()
"""Result of a handler whose request has no response (Produce with acks=0)."""


class CloseConnection(Exception):
    """Raised by a handler if the protocol has no other answer than closing the connection."""


class Connection(Holdable, Protocol):
    """The connection on which a request arrived."""

    peer: str
    address: str
    client_software: str
    principal: Principal

    @property
    def listener_name(self) -> str:
        """The name of the listener that accepted the connection."""


class RequestContext:
    """The origin of a request, and the services that its handler uses."""

    __slots__ = ("api_key", "client_id", "services", "session", "version")

    def __init__(
        self,
        services: Services,
        api_key: int,
        version: int,
        client_id: str | None,
        session: Connection,
    ) -> None:
        self.api_key = api_key
        self.services = services
        self.version = version
        self.client_id = client_id
        self.session = session

    @property
    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch."""
        return self.services.env.clock.now_ms()

    @property
    def listener_name(self) -> str:
        """The listener of the client's connection. Responses name the brokers' endpoints of this listener."""
        return self.session.listener_name

    @property
    def principal(self) -> Principal:
        """The identity of the client; `ANONYMOUS` if it did not authenticate."""
        return self.session.principal

    @property
    def host(self) -> str:
        """The IP address of the client, in the form that ACLs compare."""
        return host_text(self.session.peer)

    @property
    def access(self) -> Access:
        """What the client may do. Without an authorizer: everything."""
        return self.services.security.access.of(str(self.principal), self.host, self.api_key)
