"""One listening address: accepts connections within the limits, and closes idle ones.

Keeps true: no more connections than `ConnectionLimits` allow, and from one address no more than
            `max.connections.per.ip`. A connection is closed for idleness only when nothing of it
            is pending.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from felice.config import Listener as ListenerAddress
from felice.env import Network
from felice.env.listening import ServerTls
from felice.env.network import port_of, why_not_listening
from felice.security.distinguished_name import subject_of
from felice.security.mapping import name_of
from felice.security.principal import ANONYMOUS, USER, Principal
from felice.server.flow.closings import Closing
from felice.server.handlers.table import Handle
from felice.server.net.sasl_session import SaslSession
from felice.server.net.session import Session
from felice.server.quotas.connection_rates import plain_address
from felice.server.quotas.recent_waits import RecentWaits
from felice.server.services import Services
from felice.server.startup import StartupError


async def check_free(network: Network, addresses: Iterable[ListenerAddress]) -> None:
    """Raises `StartupError` where an address is in use: before a start has changed anything."""
    for address in addresses:
        if address.port:
            with _as_startup_error(address):
                await network.check_free(address.host or None, address.port)


@contextmanager
def _as_startup_error(address: ListenerAddress) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StartupError(f"cannot listen on {address}: {why_not_listening(error)}") from error


class Listener:
    """A listening socket, and the sessions of the connections that it accepted."""

    def __init__(self, services: Services, handlers: Mapping[int, Handle], address: ListenerAddress) -> None:
        self.services = services
        self.handlers = handlers
        self.name = address.name
        self.address = address
        self.port = address.port
        self._uses_sasl = services.config.security_of(address.name).uses_sasl
        self.sessions: dict[Session, None] = {}  # in the order of their arrival
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._server: asyncio.AbstractServer | None = None
        self.accepted = 0  # connections since the start
        clock = services.env.clock
        self.accept_waits = RecentWaits(clock)  # for max.connection.creation.rate
        self.refusal_waits = RecentWaits(clock)  # for connection_creation_rate of the address
        self._by_ip: Counter[str] = Counter()
        self._accepting = True
        # The port is bound before the broker is ready, so that a port in use is noticed before anything changes.
        # Until `open`, connections are accepted and not read.
        self.is_open = False

    async def start(self) -> None:
        """Listens; raises `StartupError` if the address cannot be bound."""
        with _as_startup_error(self.address):
            self._server = await self.services.env.network.listen(
                self._new_session,
                self.address.host or None,
                self.address.port,
                backlog=self.services.config.socket_listen_backlog_size,
                tls=self._tls(),
                gate=self,
            )
        if self.port == 0:
            self.port = port_of(self._server)

    def _new_session(self) -> Session:
        return SaslSession(self) if self._uses_sasl else Session(self)

    def _tls(self) -> ServerTls | None:
        services = self.services
        if not services.security.tls.uses_tls(self.name):
            return None
        return ServerTls(
            lambda: services.security.tls[self.name].context,
            services.config.felice_tls_handshake_timeout_ms / 1000,
            lambda peer, reason: services.flow.closings.report_handshake(self.name, peer, reason),
        )

    def full(self, connecting: int) -> str | None:
        """As `Gate.full`."""
        return self.services.flow.connections.reached(self, connecting)

    def pace(self) -> float:
        """As `Gate.pace`."""
        wait_s = self.services.quotas.accepting.record(self.name)
        if wait_s > 0:
            self.accept_waits.add(wait_s)
        return wait_s

    def open(self) -> None:
        """Starts to read from connections: those accepted before the broker was ready, and all later ones."""
        self.is_open = True
        for session in list(self.sessions):
            session.begin()

    def admit(self, session: Session) -> bool:
        """Counts a new connection. False, with a log line, if a limit is reached or the listener is closing."""
        config = self.services.config
        if not self._accepting:
            return False
        # Connections that were being set up on other listeners did not count when this one was accepted.
        reached = self.services.flow.connections.reached(self)
        if reached is not None:
            return self._refuse(session, reached)
        limit = config.connections_of(plain_address(session.peer))
        if self._by_ip[session.peer] >= limit:
            return self._refuse(session, f"max.connections.per.ip={limit}")
        principal = self._identify(session)
        if principal is None:
            return False
        session.principal = principal
        wait_s = self.services.quotas.connections.record(session.peer)
        if wait_s > 0:
            self.refusal_waits.add(wait_s)
            session.refuse_after(wait_s, "connection_creation_rate of the address")
        self.sessions[session] = None
        self.accepted += 1
        self._by_ip[session.peer] += 1
        self.services.flow.connections.close_excess()
        return True

    def _identify(self, session: Session) -> Principal | None:
        """The principal of the certificate that the client has shown. None: no mapping rule applies to it."""
        tls = self.services.security.tls
        if not tls.uses_tls(self.name) or not tls[self.name].asks_for_certificates:
            return ANONYMOUS
        certificate = session.peer_certificate
        if certificate is None:
            return ANONYMOUS
        subject = subject_of(certificate)
        name = name_of(subject, tls[self.name].rules)
        if name is None:
            reason = f"no rule of ssl.principal.mapping.rules applies to {subject}"
            self._refuse(session, reason)
            return None
        return Principal(USER, name)

    def _refuse(self, session: Session, limit: str) -> bool:
        self.services.flow.closings.report(session, Closing.REFUSED, limit, "connection refused")
        return False

    def forget(self, session: Session) -> None:
        """Stops counting a connection that has ended; has no effect for one that was not admitted."""
        if session in self.sessions:
            del self.sessions[session]
            self._by_ip[session.peer] -= 1
            if not self._by_ip[session.peer]:
                del self._by_ip[session.peer]

    def close_idle(self, now: float, max_idle_s: float) -> None:
        """Closes the sessions that are idle and were last active more than `max_idle_s` before `now`."""
        for session in list(self.sessions):
            if session.is_idle and now - session.last_active > max_idle_s:
                session.close()

    async def stop_accepting(self) -> None:
        """Closes the listening socket. Connections that exist stay open."""
        self._accepting = False
        if self._server is None:
            return
        self._server.close()
        # A connection that was just accepted is set up first, and refused then: its end takes two more turns.
        await self._server.wait_closed()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def abort(self, reason: str) -> None:
        """Cuts every connection; what was answered and has not left is lost."""
        for session in list(self.sessions):
            session.abort(reason)

    async def drain(self, timeout_s: float) -> None:
        """Lets requests under way finish, then closes every connection. Replies that clients do not read are lost."""
        deadline = self.loop.time() + timeout_s
        while any(not session.is_idle for session in self.sessions) and self.loop.time() < deadline:
            await asyncio.sleep(0.01)
        for session in list(self.sessions):
            session.close()
        # Connections report their end in a later turn of the loop.
        while self.sessions and self.loop.time() < deadline + 1:
            await asyncio.sleep(0.001)
        self.abort("the broker stopped")
        await asyncio.sleep(0)
