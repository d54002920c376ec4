"""One blocking connection to one broker, for processes without an event loop.

Keeps true:  Responses are taken in the order of the requests. A timeout or an error closes the connection, because
             later responses could no longer be matched to requests.
             No wait outlasts the time limit of the client's current call.
             The link authenticates again before its session ends, when the next request is sent.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections import deque
from typing import Any

from felice.client.blocking.limits import TimeLimit
from felice.client.error import KafkaError, KafkaException, failure, system_reason
from felice.client.net.wire import (
    MAX_FRAME_BYTES,
    BrokerVersions,
    api_of,
    api_versions_request,
    version_to_retry,
)
from felice.client.security import PLAIN_TEXT, Security, tls_failure
from felice.protocol.codec import join_parts
from felice.protocol.connection import ClientConnection, Response
from felice.protocol.primitives import MalformedMessage
from felice.security.sasl.login import REAUTHENTICATION_SHARE, log_in
from felice.security.sasl.mechanism import AuthenticationFailed


class BlockingLink:
    """A connection. Requests may be sent ahead (`send`) and their responses taken later (`receive`)."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        connect_s: float,
        request_s: float,
        security: Security = PLAIN_TEXT,
        limit: TimeLimit | None = None,
    ) -> None:
        self.address = f"{host}:{port}"
        self.versions = BrokerVersions()
        # How long a response may take, and the limit of the call that waits for it.
        self.request_s = request_s
        self._limit = limit or TimeLimit()
        self._waits_s = request_s
        self._frames = ClientConnection(client_id, MAX_FRAME_BYTES)
        self._received: deque[Response] = deque()
        self._security = security
        self._renew_at = float("inf")
        self._socket: socket.socket | None = _open(host, port, self._limit.left_s(connect_s), security)
        self._negotiate()
        if security.has_login:
            self._authenticate()

    @property
    def in_flight(self) -> int:
        """Number of requests whose response was not taken yet."""
        return self._frames.in_flight + len(self._received)

    @property
    def closed(self) -> bool:
        """True after `close` or an error."""
        return self._socket is None

    def call(self, request: object) -> Any:
        """Send one request and return its response. No other request may be in flight."""
        assert not self.in_flight, "replies are still to be taken"
        self.send(request)
        return self.receive()

    def send(self, request: object, *, answered: bool = True) -> None:
        """Send without waiting for the response; `answered=False` for Produce with acks=0."""
        if time.monotonic() >= self._renew_at:
            self._authenticate()
        self._send(*self.versions.fit(request), answered)

    def _send(self, request: object, version: int, answered: bool = True) -> None:
        api = api_of(type(request))
        sock = self._connected()
        _, parts = self._frames.send(api, version, request, expect_response=answered)
        try:
            # The limit is for all of it, however many pieces the system takes.
            sock.settimeout(_positive(self._end_of_wait() - time.monotonic()))
            sock.sendall(join_parts(parts))
        except OSError as error:
            raise self._broken(error, f"sending {api.name}") from None

    def receive(self, extra_s: float = 0.0) -> Any:
        """Return the response to the oldest request without one."""
        deadline = self._end_of_wait(extra_s)
        while not self._received:
            self._receive_more(deadline)
        return self._received.popleft().message

    def _end_of_wait(self, extra_s: float = 0.0) -> float:
        self._waits_s = self._limit.left_s(self.request_s + extra_s)
        return self._limit.end_of(self._waits_s)

    def _receive_more(self, deadline: float) -> None:
        try:
            self._read(deadline)
        except OSError as error:
            raise self._broken(error, "waiting for a reply") from None

    def _read(self, deadline: float) -> None:
        sock = self._connected()
        sock.settimeout(_positive(deadline - time.monotonic()))
        count = sock.recv_into(self._frames.get_buffer())
        if count == 0:
            raise OSError("the broker closed the connection")
        self._received += self._frames.received(count)
        if (error := self._frames.failure) is None:
            return
        if not isinstance(error, MalformedMessage):
            raise OSError(f"{error}: the peer does not speak Kafka's protocol")
        self.close()
        raise failure(KafkaError._BAD_MSG, f"{self.address}: {error}")

    def _connected(self) -> socket.socket:
        if self._socket is None:
            raise failure(KafkaError._TRANSPORT, f"{self.address}: disconnected", retriable=True)
        return self._socket

    def _broken(self, error: OSError, what: str) -> KafkaException:
        self.close()
        if isinstance(error, TimeoutError):
            reason = f"{self.address}: no reply in {self._waits_s * 1000:.0f} ms {what}"
            return failure(KafkaError._TIMED_OUT, reason, retriable=True)
        if isinstance(error, ssl.SSLError):
            return tls_failure(self.address, error)
        return failure(KafkaError._TRANSPORT, f"{self.address}: {system_reason(error)}", retriable=True)

    def _authenticate(self) -> None:
        """Logs in. Responses to earlier requests are received first, and kept."""
        while self._frames.in_flight:
            self._receive_more(self._end_of_wait())
        try:
            login = log_in(self._security.login(), self._exchange)
            # Nothing in it waits: `_exchange` blocks.
            login.send(None)
        except StopIteration as end:
            session_ms = end.value
        except AuthenticationFailed as error:
            self.close()
            raise failure(KafkaError._AUTHENTICATION, f"{self.address}: {error}") from None
        delay_s = session_ms / 1000 * REAUTHENTICATION_SHARE
        self._renew_at = time.monotonic() + delay_s if session_ms else float("inf")

    async def _exchange(self, api: object, request: object) -> Any:
        self._send(*self.versions.fit(request))
        deadline = self._end_of_wait()
        while self._frames.in_flight:
            self._receive_more(deadline)
        return self._received.pop().message

    def _negotiate(self) -> None:
        version: int | None = api_of(type(api_versions_request())).versions.max
        while version is not None:
            tried = version
            self._send(api_versions_request(), tried)
            response = self.receive()
            try:
                version = version_to_retry(response, tried)
            except KafkaException:
                self.close()
                raise
        self.versions = BrokerVersions(response)

    def close(self) -> None:
        """Close the connection."""
        sock, self._socket = self._socket, None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.close()


def _open(host: str, port: int, connect_s: float, security: Security) -> socket.socket:
    address = f"{host}:{port}"
    try:
        sock = _connect(host, port, time.monotonic() + connect_s)
        sock = _secured(sock, host, security)
    except socket.gaierror as error:
        raise failure(KafkaError._RESOLVE, f"{address}: {error.strerror}", retriable=True) from None
    except TimeoutError:
        reason = f"{address}: no connection in {connect_s * 1000:.0f} ms"
        raise failure(KafkaError._TRANSPORT, reason, retriable=True) from None
    except ssl.SSLError as error:
        raise tls_failure(address, error) from None
    except OSError as error:
        raise failure(KafkaError._TRANSPORT, f"{address}: {system_reason(error)}", retriable=True) from None
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _connect(host: str, port: int, end: float) -> socket.socket:
    """Connect to the first of the host's addresses that accepts, until `end`; the rest of the time is the timeout."""
    problem: OSError | None = None
    for family, kind, protocol, _, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(_positive(end - time.monotonic()))
            sock.connect(where)
            sock.settimeout(_positive(end - time.monotonic()))
            return sock
        except OSError as error:
            sock.close()
            problem = error
    assert problem is not None, "a resolved host has an address"
    raise problem


def _positive(timeout_s: float) -> float:
    """A timeout for a socket, which understands 0 as no waiting at all, and fails differently then."""
    return max(0.001, timeout_s)


def _secured(sock: socket.socket, host: str, security: Security) -> socket.socket:
    if security.tls is None:
        return sock
    try:
        # The handshake as a whole has the timeout of the socket.
        return security.tls.wrap_socket(sock, server_hostname=host)
    except OSError:
        sock.close()
        raise
