"""kazoo's connection to one server after another, on a thread of its own.

Keeps true: an attempt to connect ends long before the session does. What the thread reads goes to the session, which
            hands it to the event loop. No frame is larger than what ZooKeeper may send.
"""

from __future__ import annotations

import errno
import logging
import ssl
from collections import deque
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import WATCH_XID, ConnectionHandler
from kazoo.protocol.serialization import Watch
from kazoo.retry import KazooRetry
from puresasl import QOP

from felice.env import Clock
from felice.metadata.zookeeper.requests import Request
from felice.metadata.zookeeper.settings import SaslLogin, ZooKeeperSettings

_log = logging.getLogger("felice.metadata")
# kazoo logs every attempt to connect; the session logs what matters of it.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.CRITICAL)

_RETRY_DELAY_S = 0.1
_MAX_RETRY_DELAY_S = 1.0
_LEAST_WAIT_S = 0.05
# An answer to Connect is 40 bytes; a server that sends more is not ZooKeeper.
_MAX_CONNECT_FRAME_BYTES = 1024
_MAX_FRAME_BYTES = 512 * 1024 * 1024


class Session(Protocol):
    """What the thread of a connection calls."""

    def now_s(self) -> float:
        """The monotonic clock, in seconds."""
        ...

    def on_authenticated(self) -> None:
        """A connection may carry requests."""
        ...

    def on_event(self, event: Watch) -> None:
        """A watch was triggered."""
        ...

    def on_thread_end(self) -> None:
        """The thread's last act."""
        ...


class Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which reports to the session what it reads."""

    def __init__(self, session: Session, client: KazooClient, login: SaslLogin | None) -> None:
        sasl_options = _sasl_options(login) if login is not None else None
        super().__init__(client, client._conn_retry.copy(), logger=_kazoo_log, sasl_options=sasl_options)
        self.session_id = 0
        self.timeout_ms = 0
        self.last_failure = "nothing was heard"
        # When the last answered request was sent: at that time or later ZooKeeper heard of this session.
        self.heard_s = 0.0
        self._session = session
        self._sent_s: deque[float] = deque()
        self._max_frame_bytes = _MAX_CONNECT_FRAME_BYTES

    def send_first(self, request: Request, reply: object) -> None:
        """Call on the connection's thread only."""
        self.client._queue.appendleft((request, reply))
        self._wake()

    def send_last(self, request: Request) -> None:
        """For any thread: the connection ends with its response."""
        self.client._queue.append((request, None))
        self._wake()

    def cut(self) -> None:
        """Breaks the connection, so that its thread ends."""
        self.client._stopped.set()
        connected = self._socket
        if connected is not None:
            try:
                connected.shutdown(2)  # both ways
            except OSError:
                return  # it is closed already

    def zk_loop(self) -> None:
        """The thread's function."""
        try:
            super().zk_loop()
        except Exception:
            _log.exception("the connection to ZooKeeper ended with an unexpected error")
        finally:
            self.close()
            self._session.on_thread_end()

    def _wake(self) -> None:
        waker = self._write_sock
        if waker is not None:
            waker.send(b"\0")

    def _connect(self, host: str, hostip: str, port: int) -> object:
        self._max_frame_bytes = _MAX_CONNECT_FRAME_BYTES
        self._sent_s.clear()
        try:
            timeouts = super()._connect(host, hostip, port)
        except self.handler.timeout_exception:
            self.last_failure = f"{host}:{port}: no answer within {self.handler.attempt_s:.1f} s"
            raise
        except Exception as error:
            self.last_failure = f"{host}:{port}: {_reason(error)}"
            raise
        self._sent_s.clear()
        self._session.on_authenticated()
        return timeouts

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        try:
            super()._authenticate_with_sasl(host, min(timeout, self.handler.left_s))
        except AuthFailedError as error:
            # ZooKeeper 3.6 refuses a login by an answer. A connection that breaks says nothing about the password.
            if isinstance(error.__cause__, ConnectionDropped):
                raise error.__cause__ from None
            raise

    def _expand_client_hosts(self) -> object:
        addresses = super()._expand_client_hosts()
        if addresses:
            self.handler.attempt_s = _attempt_s(
                self.timeout_ms or self.client._session_timeout, len(addresses)
            )
        else:
            self.last_failure = "no host of it has an address"
        return addresses

    def _invoke(self, timeout: float, request: Request, xid: int | None = None) -> object:
        sent_s = self._session.now_s()
        answer = super()._invoke(min(timeout, self.handler.left_s), request, xid)
        if request.type is None and answer[0].time_out > 0:
            # The session exists before kazoo reports it.
            self.session_id = answer[0].session_id
            self.timeout_ms = answer[0].time_out
            self.heard_s = sent_s
            self._max_frame_bytes = _MAX_FRAME_BYTES
        return answer

    def _submit(self, request: Request, timeout: float, xid: int | None = None) -> None:
        self._sent_s.append(self._session.now_s())
        super()._submit(request, timeout, xid)

    def _read_header(self, timeout: float) -> object:
        answer = super()._read_header(timeout)
        if answer[0].xid != WATCH_XID and self._sent_s:
            self.heard_s = self._sent_s.popleft()
        return answer

    def _read(self, length: int, timeout: float) -> object:
        if not 0 <= length <= self._max_frame_bytes:
            raise ConnectionDropped("what answers there is no ZooKeeper")
        return super()._read(length, timeout)

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        event, _ = Watch.deserialize(buffer, offset)
        self._session.on_event(event)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler, without its callback threads, with our TLS context and our limit for an attempt to connect."""

    def __init__(self, tls: ssl.SSLContext | None, clock: Clock) -> None:
        super().__init__()
        self.attempt_s = 0.0
        """The limit for an attempt; the connection sets it before each round of attempts."""
        self._tls = tls
        self._clock = clock
        self._ends_s = 0.0

    @property
    def left_s(self) -> float:
        """What is left of the current attempt. kazoo needs more than 0."""
        return max(_LEAST_WAIT_S, self._ends_s - self._clock.monotonic())

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def create_connection(self, address: tuple[str, int], hostname: str | None = None, **_: object) -> object:
        self._ends_s = self._clock.monotonic() + self.attempt_s
        try:
            plain = super().create_connection(address, timeout=self.attempt_s)
            return plain if self._tls is None else self._secured(plain, self._tls, hostname)
        except TimeoutError:
            raise TimeoutError(errno.ETIMEDOUT, f"no connection within {self.attempt_s:.1f} s") from None

    def _secured(self, plain: Any, tls: ssl.SSLContext, hostname: str | None) -> ssl.SSLSocket:
        try:
            plain.settimeout(self.left_s)
            return tls.wrap_socket(plain, server_hostname=hostname)
        except BaseException:
            plain.close()
            raise


def _attempt_s(session_timeout_ms: int, addresses: int) -> float:
    """How long one attempt may take, from the connection to the login.

    kazoo waits for a whole session timeout, so a single server that does not answer costs the session. A silent server
    is noticed after two thirds of the timeout; the last third is enough to try half of the addresses in vain. Below a
    second, an attempt would end before Linux repeats a lost packet.
    """
    return max(1.0, session_timeout_ms / 1000 / max(3, 2 * addresses))


def new_client(settings: ZooKeeperSettings, tls: ssl.SSLContext | None, clock: Clock) -> KazooClient:
    """kazoo's client. Give it a `Connection` before it starts."""
    return KazooClient(
        hosts=",".join(settings.hosts),
        timeout=settings.session_timeout_ms / 1000,
        handler=_Handler(tls, clock),
        auth_data=[("digest", settings.digest)] if settings.digest else None,
        connection_retry=KazooRetry(max_tries=-1, delay=_RETRY_DELAY_S, max_delay=_MAX_RETRY_DELAY_S),
        logger=_kazoo_log,
    )


def _sasl_options(login: SaslLogin) -> dict[str, object]:
    """For pure-sasl. ZooKeeper protects no message after the login, so the quality of protection is `auth`."""
    return {
        "mechanism": "DIGEST-MD5",
        "username": login.user,
        "password": login.password,
        "qops": [QOP.AUTH],
    }


def _reason(error: Exception) -> str:
    text = str(error).removeprefix("socket connection error: ")
    return text[:1].lower() + text[1:] if text and text != "None" else type(error).__name__
