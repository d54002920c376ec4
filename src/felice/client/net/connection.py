"""One connection to one broker: requests are pipelined, and responses matched by correlation id.

Keeps true:  Each request gets its own response, an error that names the broker's address, or a timeout. When the
             connection closes, every waiting request fails at once. The response to a request that timed out is
             dropped. If no byte arrived for `silence_s` after a request, the connection is closed, also if the caller
             has stopped waiting before. A request with a longer limit has that time: while its caller waits, the
             requests behind it, which the broker answers later, do not close its connection.
Leaves:      reconnecting to `cluster`, framing to `protocol.connection`, versions to `wire`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any, cast

from felice.client.error import KafkaError, KafkaException, failure, system_reason
from felice.client.net.low_water import LowWater
from felice.client.net.outbox import Outbox
from felice.client.net.rest import RestReceiver
from felice.client.net.traffic import BrokerTraffic
from felice.client.net.wire import (
    MAX_FRAME_BYTES,
    BrokerVersions,
    api_of,
    api_versions_request,
    version_to_retry,
)
from felice.client.security import PLAIN_TEXT, Security, tls_failure
from felice.dataclass import dataclass
from felice.env import Network
from felice.env.network import set_no_delay
from felice.protocol.api import API, Api
from felice.protocol.codec import parts_size
from felice.protocol.connection import ClientConnection
from felice.security.sasl.login import REAUTHENTICATION_SHARE, log_in
from felice.security.sasl.mechanism import AuthenticationFailed

_log = logging.getLogger("felice.client")

# Within this time the loop reads the bytes that waited below the low-water mark.
_GRACE_S = 0.1


@dataclass(slots=True)
class _Waiting:
    future: asyncio.Future[Any]
    api: Api
    sent_at: float
    has_longer_limit: bool


class Connection(asyncio.BufferedProtocol):
    """A connection, made by `connect`; usable until `closed`."""

    def __init__(
        self,
        address: str,
        client_id: str,
        silence_s: float = float("inf"),
        traffic: BrokerTraffic | None = None,
        log: logging.Logger = _log,
        security: Security = PLAIN_TEXT,
    ) -> None:
        self.address = address
        self._security = security
        # While the connection authenticates again, later requests wait, in their order.
        self._gate = asyncio.Lock() if security.has_login else None
        self._renewal: asyncio.TimerHandle | None = None
        self._authenticating: asyncio.Task[None] | None = None
        self._traffic = traffic
        self._log = log
        self.closed = False
        self.versions = BrokerVersions()
        self.last_used = 0.0
        self._silence_s = silence_s
        self._last_heard = float("-inf")
        # When the last byte arrived, or the first request since then was sent; None if the broker owes no answer.
        self._asked_at: float | None = None
        self._silence_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None
        self._frames = ClientConnection(client_id, MAX_FRAME_BYTES)
        self._low_water = LowWater()
        self._rest = RestReceiver()
        self._waiting: dict[int, _Waiting] = {}
        # The requests without a response in their order, also those that nobody waits for: when each must be answered.
        self._due: dict[int, float] = {}
        self._failure: KafkaException | None = None
        self._was_served = False

    @property
    def in_flight(self) -> int:
        """Number of requests that wait for a response."""
        return len(self._waiting)

    @property
    def silent_s(self) -> float:
        """For how many seconds a request has been without an answer and without a sign of the broker."""
        return 0.0 if self._asked_at is None else self._loop.time() - self._asked_at

    # The type of the response follows from the API of the request, so callers annotate it.
    async def call(self, request: object, timeout_s: float) -> Any:
        """Send a request, or a `ByVersion`, in the best common version, and return the decoded response."""
        return await self.call_version(*self.versions.fit(request), timeout_s)

    async def call_version(self, request: object, version: int, timeout_s: float) -> Any:
        """Send a request in this version and return the decoded response."""
        await self._authenticated()
        return await self._exchange(request, version, timeout_s)

    async def _authenticated(self) -> None:
        if self._gate is not None:
            async with self._gate:
                pass

    async def _exchange(self, request: object, version: int, timeout_s: float) -> Any:
        api = api_of(type(request))
        number = self._send(api, version, request)
        future: asyncio.Future[Any] = self._loop.create_future()
        now, is_longer = self._loop.time(), timeout_s > self._silence_s
        self._waiting[number] = _Waiting(future, api, now, is_longer)
        self._due[number] = now + max(timeout_s, self._silence_s)
        timer = self._loop.call_later(timeout_s, self._on_timeout, number, timeout_s)
        try:
            return await future
        except asyncio.CancelledError:
            # The caller's time is over, but not the time that the broker has to answer.
            if timeout_s <= self._silence_s:
                self._check_silence()
            raise
        finally:
            timer.cancel()
            self._waiting.pop(number, None)

    async def authenticate(self, timeout_s: float) -> None:
        """Log in if the client has a login, and again before the session ends. Raises `KafkaException`."""
        if self._gate is None:
            return
        async with self._gate:
            try:
                # On a thread, because the application's callback for tokens may take long.
                login = await self._loop.run_in_executor(None, self._security.login)
                session_ms = await log_in(
                    login,
                    lambda _, request: self._exchange(*self.versions.fit(request), timeout_s),
                )
            except AuthenticationFailed as error:
                self._fail(failure(KafkaError._AUTHENTICATION, f"{self.address}: {error}"))
                raise self._failure or AssertionError from None
        if session_ms and not self.closed:
            delay_s = session_ms / 1000 * REAUTHENTICATION_SHARE
            self._renewal = self._loop.call_later(delay_s, self._renew, timeout_s)

    def _renew(self, timeout_s: float) -> None:
        self._authenticating = self._loop.create_task(self._authenticate_again(timeout_s))

    async def _authenticate_again(self, timeout_s: float) -> None:
        try:
            await self.authenticate(timeout_s)
        except KafkaException as error:
            self._fail(error)

    async def send_unanswered(self, request: object, timeout_s: float) -> None:
        """Send a request without a response, Produce with acks=0, and wait until its bytes have left.

        Without this wait the requests of a producer that is faster than its broker would fill the memory.
        """
        await self._authenticated()
        message, version = self.versions.fit(request)
        self._send(api_of(type(message)), version, message, answered=False)
        assert self._outbox is not None
        try:
            async with asyncio.timeout(timeout_s):
                await self._outbox.emptied()
        except TimeoutError:
            self.close(f"the broker did not receive a whole request in {timeout_s * 1000:.0f} ms")
        if self._failure is not None:
            raise self._failure

    def _send(self, api: Api, version: int, request: object, *, answered: bool = True) -> int:
        if self.closed or self._outbox is None:
            raise self._failure or failure(
                KafkaError._TRANSPORT, f"{self.address}: disconnected", retriable=True
            )
        number, parts = self._frames.send(api, version, request, expect_response=answered)
        self._outbox.write(parts)
        if self._traffic is not None:
            self._traffic.on_sent(api.name, parts_size(parts))
        if self._log.isEnabledFor(logging.DEBUG):
            self._log.debug("%s: sent %s v%d, %d bytes", self.address, api.name, version, parts_size(parts))
        self.last_used = self._loop.time()
        if answered and self._asked_at is None:
            self._asked_at = self.last_used
        return number

    def _on_timeout(self, number: int, timeout_s: float) -> None:
        waiting = self._waiting.pop(number, None)
        if self._traffic is not None:
            self._traffic.timeouts += 1
        if waiting is not None and not waiting.future.done():
            what = f"{self.address}: no reply to {waiting.api.name} in {timeout_s * 1000:.0f} ms"
            waiting.future.set_exception(failure(KafkaError._TIMED_OUT, what, retriable=True))
        self._check_silence()

    def _check_silence(self) -> None:
        """Close the connection if no byte came for `silence_s`; if it is too early to tell, check again."""
        if self.closed or self._asked_at is None or self._silence_s == float("inf"):
            return
        now, due = self._loop.time(), self._asked_at + self._silence_s
        if any(waiting.has_longer_limit for waiting in self._waiting.values()):
            # The broker answers in order, so the first request shows first that the broker is gone.
            due = max(due, next(iter(self._due.values())))
        if now < due:
            if self._silence_timer is not None and self._silence_timer.when() > due:
                self._silence_timer.cancel()
                self._silence_timer = None
            if self._silence_timer is None:
                self._silence_timer = self._loop.call_at(due, self._on_silence_timer)
        elif self._low_water.lower():
            self._loop.call_later(_GRACE_S, self._close_if_silent, now)
        else:
            self._close_if_silent(now)

    def _on_silence_timer(self) -> None:
        self._silence_timer = None
        self._check_silence()

    def _close_if_silent(self, since: float) -> None:
        if self._last_heard < since:
            # The broker may have disappeared without closing the connection: only a new connection can tell.
            self.close(f"nothing came in {self._silence_s * 1000:.0f} ms")

    def close(self, reason: str = "closed by the client") -> None:
        """Close the connection; waiting requests fail with `reason`."""
        self._fail(failure(KafkaError._TRANSPORT, f"{self.address}: {reason}", retriable=True))

    def _fail(self, error: KafkaException) -> None:
        if self.closed:
            return
        self.closed = True
        self._failure = error
        if self._renewal is not None:
            self._renewal.cancel()
        if self._silence_timer is not None:
            self._silence_timer.cancel()
        if self._traffic is not None:
            self._traffic.disconnects += 1
        self._log.debug("%s: closed: %s", self.address, error.error.str())
        waiting, self._waiting = self._waiting, {}
        for request in waiting.values():
            if not request.future.done():
                request.future.set_exception(error)
        if self._outbox is not None:
            self._outbox.drop()
        if self._transport is not None:
            self._transport.abort()

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport. A BufferedProtocol's method."""
        # A cast, because uvloop's transports are no subclasses of asyncio's.
        transport = self._transport = cast(asyncio.Transport, transport)
        # With TLS the socket carries encrypted bytes: frames cannot be written to it, and their size there is unknown.
        sock = transport.get_extra_info("socket") if self._security.tls is None else None
        self._low_water = LowWater(sock)
        self._rest = RestReceiver(sock)
        self._outbox = Outbox(transport, sock)
        # The transport calls `pause_writing` as soon as it holds more than this one byte. With a limit of 0, asyncio's
        # TLS would pause without a reason. It may pause in this call, if the last bytes of its handshake still wait.
        transport.set_write_buffer_limits(high=1, low=0)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the waiting requests. A BufferedProtocol's method."""
        why = str(exc) if exc else "the broker closed the connection"
        if not exc and self._waiting and not self._was_served:
            why += " before it answered a request (does security.protocol fit its listener?)"
        self._fail(failure(KafkaError._TRANSPORT, f"{self.address}: {why}", retriable=True))

    def pause_writing(self) -> None:
        """Hold back further requests. A BufferedProtocol's method."""
        if self._outbox is not None:
            self._outbox.pause()

    def resume_writing(self) -> None:
        """Send what was held back. A BufferedProtocol's method."""
        if self._outbox is not None:
            self._outbox.resume()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next read. A BufferedProtocol's method."""
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Match received responses to their requests. A BufferedProtocol's method."""
        self._on_received(nbytes)
        reader = self._frames.reader
        if not self.closed and self._rest.is_wanted(reader):
            # With a mark, the wait would not end for the last bytes.
            self._low_water.lower()
            # asyncio treats an error like one of its own reads: the connection is lost.
            if rest_bytes := self._rest.receive(reader):
                self._on_received(rest_bytes)
        self._low_water.expect(reader.missing_bytes)

    def _on_received(self, nbytes: int) -> None:
        now = self._last_heard = self._loop.time()
        if self._traffic is not None:
            self._traffic.received_bytes += nbytes
        responses = self._frames.received(nbytes)
        for response in responses:
            self._due.pop(response.correlation_id, None)
            waiting = self._waiting.pop(response.correlation_id, None)
            if waiting is None:
                continue
            # A broker tells its versions also to clients that must log in first.
            self._was_served = self._was_served or waiting.api is not API.API_VERSIONS
            self._on_reply(waiting, response.message, now - waiting.sent_at)
            if not waiting.future.done():
                waiting.future.set_result(response.message)
        self._asked_at = now if self._frames.in_flight else None
        if self._silence_timer is not None:
            self._check_silence()  # the request with a longer limit may have been answered
        if self._frames.failure is not None and not self.closed:
            self._on_violation(self._frames.failure)

    def _on_reply(self, waiting: _Waiting, message: object, seconds: float) -> None:
        if self._traffic is not None:
            self._traffic.on_reply(message, seconds)
        if self._log.isEnabledFor(logging.DEBUG):
            self._log.debug("%s: %s answered in %.1f ms", self.address, waiting.api.name, seconds * 1000)

    def _on_violation(self, error: Exception) -> None:
        if self._traffic is not None:
            self._traffic.bad_replies += 1
        unreadable = self._frames.unreadable
        waiting = self._waiting.pop(unreadable, None) if unreadable is not None else None
        if waiting is not None and not waiting.future.done():
            waiting.future.set_exception(failure(KafkaError._BAD_MSG, f"{self.address}: {error}"))
        self.close(f"{error}: the peer does not speak Kafka's protocol")


async def connect(
    network: Network,
    host: str,
    port: int,
    *,
    client_id: str,
    timeout_s: float,
    silence_s: float = float("inf"),
    prepare: Callable[[socket.socket], None] | None = None,
    traffic: BrokerTraffic | None = None,
    log: logging.Logger = _log,
    security: Security = PLAIN_TEXT,
) -> Connection:
    """Open a connection and negotiate versions. Errors name the address and the reason."""
    address = f"{host}:{port}"
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    try:
        async with asyncio.timeout(timeout_s):
            transport, protocol = await network.connect(
                lambda: Connection(address, client_id, silence_s, traffic, log, security),
                host,
                port,
                ssl_context=security.tls,
            )
    except socket.gaierror as error:
        raise failure(KafkaError._RESOLVE, f"{address}: {error.strerror}", retriable=True) from None
    except TimeoutError:
        raise failure(
            KafkaError._TRANSPORT, f"{address}: no connection in {timeout_s * 1000:.0f} ms", retriable=True
        ) from None
    except ssl.SSLError as error:
        raise tls_failure(address, error) from None
    except OSError as error:
        raise failure(KafkaError._TRANSPORT, f"{address}: {system_reason(error)}", retriable=True) from None
    assert isinstance(protocol, Connection)
    connection = protocol
    set_no_delay(transport)
    sock = transport.get_extra_info("socket")
    if prepare is not None and sock is not None:
        prepare(sock)
    try:
        await _negotiate(connection, max(0.001, deadline - loop.time()))
        await connection.authenticate(max(0.001, deadline - loop.time()))
    except BaseException:
        connection.close()
        raise
    return connection


async def _negotiate(connection: Connection, timeout_s: float) -> None:
    version: int | None = api_of(type(api_versions_request())).versions.max
    while version is not None:
        tried = version
        response = await connection.call_version(api_versions_request(), tried, timeout_s)
        version = version_to_retry(response, tried)
    connection.versions = BrokerVersions(response)
