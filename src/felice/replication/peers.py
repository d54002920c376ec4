"""Connections from this broker to the other brokers of its cluster.

Keeps true:  each request gets its own reply, or `PeerUnavailable` with the reason: at once when its connection ends,
             at its deadline otherwise. After a failed attempt to connect, the next attempt to the same broker waits,
             first 50 ms, later up to a second. A connection to a broker that left, or registered at another address,
             is closed.
How:         one connection for each broker and lane: replies come in request order, so a fetch that waits for records
             must not delay other requests.
Leaves:      the content of requests, and retries, to `fetcher`, `transactions` and `admission` in `server/writes`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Protocol, TypeVar, cast

from felice.dataclass import dataclass
from felice.env import Clock, Network
from felice.env.begun import time_limit
from felice.env.network import set_no_delay
from felice.protocol.api import API, TypedApi
from felice.protocol.codec import join_parts
from felice.protocol.connection import ClientConnection
from felice.protocol.messages.api_versions import ApiVersionsRequest
from felice.security.sasl.login import REAUTHENTICATION_SHARE, log_in
from felice.security.sasl.mechanism import AuthenticationFailed, ClientMechanism

_CONNECT_TIMEOUT_S = 10.0
_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.05, 1.0
# A batch may be larger than any fetch limit; a larger frame is refused long before memory runs out.
_MAX_RESPONSE_BYTES = 1 << 30


class PeerUnavailable(Exception):
    """The other broker was not reached, did not answer, or does not support the request."""


@dataclass(frozen=True, slots=True)
class Destination:
    """The address at which a broker accepts other brokers, and the epoch of the registration that has it."""

    host: str
    port: int
    epoch: int


Q = TypeVar("Q")
A = TypeVar("A")

DestinationOf = Callable[[int], Destination | None]


class PeerSecurity(Protocol):
    """How connections to other brokers are secured."""

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context; None for a connection without TLS."""

    def login(self) -> ClientMechanism | None:
        """The start of a login; None for a connection without SASL."""


class NoSecurity:
    """Plain connections without a login."""

    def tls(self) -> None:
        """No TLS."""

    def login(self) -> None:
        """No SASL."""


class Link(asyncio.BufferedProtocol):
    """One open connection."""

    def __init__(self, destination: Destination, client_id: str, security: PeerSecurity) -> None:
        self.destination = destination
        self._security = security
        self._renewal: asyncio.TimerHandle | None = None
        # While the link authenticates again, other requests wait.
        self._may_send = asyncio.Event()
        self._authenticating: asyncio.Task[None] | None = None
        self.is_closed = False
        self._address = f"{destination.host}:{destination.port}"
        self._frames = ClientConnection(client_id, _MAX_RESPONSE_BYTES)
        self._waiting: dict[int, asyncio.Future[object]] = {}
        self._versions: dict[int, tuple[int, int]] = {}
        self._transport: asyncio.Transport | None = None

    async def negotiate(self, timeout_s: float) -> None:
        """Asks the broker for its versions (ApiVersions); must come before `call`."""
        response = await self.call_version(API.API_VERSIONS, 0, ApiVersionsRequest(), timeout_s)
        self._versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}

    async def authenticate(self, timeout_s: float) -> None:
        """Logs in, if these connections use SASL; again before the session ends. Raises `PeerUnavailable`."""
        self._may_send.clear()
        login = self._security.login()
        if login is not None:
            try:
                session_ms = await log_in(login, lambda api, message: self._call(api, message, timeout_s))
            except AuthenticationFailed as error:
                self.close(f"the login failed: {error}")
                raise PeerUnavailable(f"{self._address}: the login failed: {error}") from None
            if session_ms:
                delay_s = session_ms / 1000 * REAUTHENTICATION_SHARE
                self._renewal = asyncio.get_running_loop().call_later(delay_s, self._renew, timeout_s)
        self._may_send.set()

    def _renew(self, timeout_s: float) -> None:
        self._authenticating = asyncio.get_running_loop().create_task(self._authenticate_again(timeout_s))

    async def _authenticate_again(self, timeout_s: float) -> None:
        # Requests that wait learn the reason from `close`.
        with contextlib.suppress(PeerUnavailable):
            await self.authenticate(timeout_s)

    async def call(self, api: TypedApi[Q, A], message: Q, timeout_s: float) -> A:
        """Sends a request in the newest version that both brokers know, and returns the response message."""
        if not self._may_send.is_set():
            await self._may_send.wait()
        return await self._call(api, message, timeout_s)

    async def _call(self, api: TypedApi[Q, A], message: Q, timeout_s: float) -> A:
        low, high = self._versions.get(api.key, (0, -1))
        version = min(high, api.versions.max)
        if version < max(low, api.versions.min):
            raise PeerUnavailable(f"{self._address} does not know {api.name}")
        return await self.call_version(api, version, message, timeout_s)

    async def call_version(self, api: TypedApi[Q, A], version: int, message: Q, timeout_s: float) -> A:
        """The same in a given version. After a timeout the link is closed. Raises `PeerUnavailable`."""
        if self.is_closed or self._transport is None:
            raise PeerUnavailable(f"{self._address}: the connection is closed")
        number, parts = self._frames.send(api, version, message)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._transport.write(join_parts(parts))
        try:
            async with time_limit(timeout_s):
                response = await future
        except TimeoutError:
            reason = f"{self._address}: no answer to {api.name} in {timeout_s:.3g} s"
            # The broker may have disappeared silently: only a new connection can tell.
            self.close(reason)
            raise PeerUnavailable(reason) from None
        finally:
            self._waiting.pop(number, None)
        assert isinstance(response, api.response)
        return response

    def close(self, reason: str) -> None:
        """Ends the connection; waiting calls raise `PeerUnavailable` with `reason`. Closing twice has no effect."""
        if self.is_closed:
            return
        self.is_closed = True
        self._may_send.set()
        if self._renewal is not None:
            self._renewal.cancel()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(PeerUnavailable(f"{self._address}: {reason}"))
        if self._transport is not None:
            self._transport.abort()

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio calls it when the connection is open."""
        # A cast, because uvloop's transports are no subclasses of asyncio's.
        transport = self._transport = cast(asyncio.Transport, transport)
        set_no_delay(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio calls it when the connection has ended: waiting calls fail at once, not at their deadlines."""
        self.close(str(exc) if exc else "the broker closed the connection")

    def get_buffer(self, sizehint: int) -> memoryview:
        """The memory into which asyncio receives the next bytes."""
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """asyncio has received bytes: each whole reply goes to the call that waits for its correlation id."""
        for response in self._frames.received(nbytes):
            future = self._waiting.pop(response.correlation_id, None)
            if future is not None and not future.done():
                future.set_result(response.message)
        if self._frames.failure is not None:
            self.close(f"{self._frames.failure}")


class _Lane:
    """The connection to one broker for one purpose, or the attempt to open it."""

    __slots__ = ("backoff_s", "connecting", "link", "next_attempt_s")

    def __init__(self) -> None:
        self.link: Link | None = None
        self.connecting: asyncio.Task[Link] | None = None
        self.backoff_s = _FIRST_BACKOFF_S
        self.next_attempt_s = 0.0


class Peers:
    """At most one connection for each broker and lane; lanes keep slow requests from holding up others."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        broker_id: int,
        destination_of: DestinationOf,
        security: PeerSecurity | None = None,
    ) -> None:
        self._security: PeerSecurity = security or NoSecurity()
        self._network = network
        self._clock = clock
        self._client_id = f"broker-{broker_id}"
        self._destination_of = destination_of
        self._lanes: dict[tuple[int, str], _Lane] = {}
        self._is_closed = False

    async def call(
        self, broker_id: int, api: TypedApi[Q, A], message: Q, timeout_s: float, *, lane: str = ""
    ) -> A:
        """Sends a request and returns its reply; raises `PeerUnavailable`."""
        link = await self._link(broker_id, lane)
        return await link.call(api, message, timeout_s)

    def follow(self) -> None:
        """Call when the image shows other brokers, or other addresses: closes connections that are out of date."""
        for (broker_id, _), lane in self._lanes.items():
            destination = self._destination_of(broker_id)
            if lane.link is not None and lane.link.destination != destination:
                lane.link.close("the broker left, or is registered again")
            if destination is not None:
                lane.next_attempt_s = 0.0

    async def close(self) -> None:
        """Closes all connections, and ends attempts to connect."""
        self._is_closed = True
        attempts = []
        for lane in self._lanes.values():
            if lane.link is not None:
                lane.link.close("this broker stops")
            if lane.connecting is not None:
                lane.connecting.cancel()
                attempts.append(lane.connecting)
        await asyncio.gather(*attempts, return_exceptions=True)

    async def _link(self, broker_id: int, name: str) -> Link:
        destination = self._destination_of(broker_id)
        if destination is None or self._is_closed:
            raise PeerUnavailable(
                f"broker {broker_id} is not there, or has no listener of the name that this broker looks for "
                "(inter.broker.listener.name)"
            )
        lane = self._lanes.setdefault((broker_id, name), _Lane())
        if lane.link is not None and not lane.link.is_closed and lane.link.destination == destination:
            return lane.link
        if lane.connecting is None:
            lane.connecting = asyncio.get_running_loop().create_task(self._connect(lane, destination))
            # If every waiting request gave up, no other code reads the attempt's result.
            lane.connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        # Shielded: many requests may wait for one attempt, and one of them may be cancelled.
        return await asyncio.shield(lane.connecting)

    async def _connect(self, lane: _Lane, destination: Destination) -> Link:
        try:
            await asyncio.sleep(max(0.0, lane.next_attempt_s - self._clock.monotonic()))
            link = await self._open(destination)
        except PeerUnavailable:
            lane.next_attempt_s = self._clock.monotonic() + lane.backoff_s
            lane.backoff_s = min(2 * lane.backoff_s, _MAX_BACKOFF_S)
            raise
        finally:
            lane.connecting = None
        lane.link, lane.backoff_s = link, _FIRST_BACKOFF_S
        return link

    async def _open(self, destination: Destination) -> Link:
        address = f"{destination.host}:{destination.port}"
        link = Link(destination, self._client_id, self._security)
        try:
            async with time_limit(_CONNECT_TIMEOUT_S):
                await self._network.connect(
                    lambda: link, destination.host, destination.port, ssl_context=self._security.tls()
                )
        except (OSError, TimeoutError) as error:
            raise PeerUnavailable(f"{address}: {error or 'no connection in time'}") from None
        try:
            await link.negotiate(_CONNECT_TIMEOUT_S)
            await link.authenticate(_CONNECT_TIMEOUT_S)
        except BaseException:
            link.close("the versions were not agreed")
            raise
        return link
