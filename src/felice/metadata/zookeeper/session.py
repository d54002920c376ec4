"""One session with a ZooKeeper ensemble: kazoo's connection, connected to the event loop.

Keeps true: answers, events and state changes reach the loop in the order in which they came over the wire, and the
            loop never waits for a thread. After a reconnection the watch is set before anything else is sent. The
            session counts as ended at the latest when ZooKeeper may have ended it: its timeout after the last
            answered request had been sent.
How:        kazoo finds a server, negotiates and keeps the session, pings, encodes, reconnects. Its threads for
            callbacks are not started: the thread that reads the socket hands everything to the loop. kazoo would
            replace an ended session by a new one silently; that is prevented: the store decides when to `renew`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import WATCH_XID, ConnectionHandler
from kazoo.protocol.serialization import CloseInstance, Watch
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from puresasl import QOP

from felice.env import Clock
from felice.metadata.latencies import RequestLatencies
from felice.metadata.store import SessionExpired, SessionState, StoreError
from felice.metadata.zookeeper.requests import AddWatch, Request
from felice.metadata.zookeeper.settings import SaslLogin, ZooKeeperSettings

_log = logging.getLogger("felice.metadata")
# kazoo logs every attempt to connect; this module logs what matters of it.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.CRITICAL)

_RETRY_DELAY_S = 0.1
_MAX_RETRY_DELAY_S = 1.0
_CLOSE_TIMEOUT_S = 5.0
# An answer to Connect is 40 bytes; a server that sends more is not ZooKeeper.
_MAX_CONNECT_FRAME_BYTES = 1024
_MAX_FRAME_BYTES = 512 * 1024 * 1024


class Owner(Protocol):
    """Receives the events of a session, always on the event loop."""

    def on_session_state(self, state: SessionState) -> None:
        """The session's state changed."""
        ...

    def on_watch_event(self, kind: int, path: str) -> None:
        """A node at the watched path or below changed; `kind` and `path` are ZooKeeper's."""
        ...

    def on_watch_missed(self) -> None:
        """Events may have been lost: the watch is set again after a reconnection."""
        ...


class ZooKeeperSession:
    """Create it, then `connect`, `call`, `end`."""

    def __init__(
        self,
        settings: ZooKeeperSettings,
        tls: ssl.SSLContext | None,
        clock: Clock,
        owner: Owner,
        latencies: RequestLatencies | None = None,
        login: SaslLogin | None = None,
    ) -> None:
        self.state = SessionState.SUSPENDED
        self.timeout_ms = settings.session_timeout_ms
        self.watched_path: str | None = None
        self._settings = settings
        self._clock = clock
        self._owner = owner
        self._latencies = latencies or RequestLatencies()
        self._loop = asyncio.get_running_loop()
        self._client = _client(settings, tls)
        self._connection = _Connection(self, self._client, login)
        self._client._connection = self._connection
        self._client.add_listener(self._on_kazoo_state)
        self._in_flight: set[asyncio.Future[object]] = set()
        self._slots = asyncio.Semaphore(settings.max_in_flight_requests)
        self._connected: asyncio.Future[None] = self._loop.create_future()
        self._thread_ended: asyncio.Future[None] = self._loop.create_future()
        self._watchdog: asyncio.TimerHandle | None = None
        self._is_told = True

    @property
    def session_id(self) -> int:
        """The id that the ensemble gave to the session; 0 before it did."""
        return self._connection.session_id

    @property
    def last_failure(self) -> str:
        """The reason why the last attempt to connect failed."""
        return self._connection.last_failure

    async def connect(self) -> None:
        """Returns when the session has begun; raises `StoreError` if it was refused."""
        self._client.start_async()
        await self._connected

    async def call(self, request: Request) -> object:
        """Returns the answer to a request, or raises kazoo's exception. Waits while the session is suspended."""
        async with self._slots:
            self.check_alive()
            reply = _Reply(self._loop)
            self._in_flight.add(reply.future)
            try:
                self._client._call(request, reply)
                began_s = self._clock.monotonic()
                result = await reply.future
                self._latencies.add(self._clock.monotonic() - began_s)
                return result
            finally:
                self._in_flight.discard(reply.future)

    def watch(self, path: str) -> None:
        """Begins to watch `path` and everything below it; later calls are sent after the watch."""
        self.watched_path = path
        if self.state is SessionState.CONNECTED:
            self._client._call(AddWatch(path), _Reply(self._loop))

    def check_alive(self) -> None:
        """Raises `SessionExpired` if the session has ended, by the ensemble's word or by the clock."""
        self.look_at_the_clock()
        if self.state is SessionState.EXPIRED:
            raise SessionExpired()

    def look_at_the_clock(self) -> None:
        """Ends the session if ZooKeeper may have ended it, for example after this process was suspended."""
        if self.state is not SessionState.EXPIRED and self._connected.done() and self._lease_s() <= 0:
            self._lose("ZooKeeper did not answer for as long as a session lives")

    async def end(self) -> None:
        """Ends the session at ZooKeeper if it can be reached, and closes the connection in any case."""
        is_reachable = self.state is SessionState.CONNECTED
        self._let_go()
        if is_reachable:
            self._connection.send_last(CloseInstance)
            await asyncio.wait([self._thread_ended], timeout=_CLOSE_TIMEOUT_S)
        await self._cut()

    async def abandon(self) -> None:
        """Closes the connection and lets ZooKeeper end the session by its timeout."""
        self._let_go()
        await self._cut()

    async def _cut(self) -> None:
        self._connection.cut()
        # A thread that is connecting to an unresponsive address ends by itself, later.
        await asyncio.wait([self._thread_ended], timeout=1.0)

    def refuse(self, reason: str) -> None:
        """Ends a session that is about to begin: `connect` raises."""
        self._is_told = False
        self._lose(reason)
        self._connection.cut()

    def _let_go(self) -> None:
        self._is_told = False
        self._lose("the session was closed")

    # On the connection's thread

    def _on_kazoo_state(self, state: str) -> None:
        # kazoo reports CONNECTED before it has authenticated; `on_authenticated` follows.
        if state == KazooState.SUSPENDED:
            self.post(self._on_suspended)
        elif state == KazooState.LOST:
            # kazoo would begin another session.
            self._client._stopped.set()
            was_refused = self._client._state == KeeperState.AUTH_FAILED
            self.post(
                self._lose,
                "ZooKeeper refused the broker's user or password" if was_refused else "ZooKeeper ended it",
            )

    def on_authenticated(self) -> None:
        """kazoo's thread calls it when a connection may carry requests."""
        if self.watched_path is not None:
            self._connection.send_first(AddWatch(self.watched_path), _WatchAgain(self))
        self.post(self._on_connected)

    def on_event(self, event: Watch) -> None:
        """kazoo's thread calls it for each event of the watch."""
        self.post(self._owner_hears_event, event.type, event.path)

    def on_watched_again(self) -> None:
        """kazoo's thread calls it when a reconnection has set the watch again."""
        self.post(self._owner_hears_missed)

    def on_thread_end(self) -> None:
        """kazoo's thread calls it as its last act."""
        self.post(self._thread_has_ended)

    def post(self, function: Callable[..., None], *arguments: object) -> None:
        """Runs a function on the event loop soon, in the order of the calls. For any thread."""
        post(self._loop, function, *arguments)

    # On the event loop

    def _on_connected(self) -> None:
        if self.state is SessionState.EXPIRED:
            return
        self.timeout_ms = self._connection.timeout_ms
        self.state = SessionState.CONNECTED
        if not self._connected.done():
            self._connected.set_result(None)
            self._watch_the_clock()
        else:
            _log.info("ZooKeeper can be reached again", extra={"session": f"{self.session_id:#x}"})
            self._tell(self.state)

    def _on_suspended(self) -> None:
        if self.state is SessionState.CONNECTED:
            self.state = SessionState.SUSPENDED
            _log.info("ZooKeeper cannot be reached", extra={"lease_s": round(self._lease_s(), 1)})
            self._tell(self.state)

    def _lose(self, reason: str) -> None:
        if self.state is SessionState.EXPIRED:
            return
        self.state = SessionState.EXPIRED
        self._client._stopped.set()
        if self._watchdog is not None:
            self._watchdog.cancel()
        if not self._connected.done():
            self._connected.set_exception(StoreError("/", reason))
            self._connected.exception()  # retrieved, in case no call waits for it any more
        for future in list(self._in_flight):
            if not future.done():
                future.set_exception(SessionExpiredError())
        if self._is_told:
            _log.warning("the session with ZooKeeper has ended", extra={"reason": reason})
            self._tell(SessionState.EXPIRED)
            self._connection.cut()

    def _watch_the_clock(self) -> None:
        self.look_at_the_clock()
        if self.state is not SessionState.EXPIRED:
            self._watchdog = self._loop.call_later(self._lease_s(), self._watch_the_clock)

    def _lease_s(self) -> float:
        """The time for which the session is certainly alive."""
        return self._connection.heard_s + self.timeout_ms / 1000 - self._clock.monotonic()

    def now_s(self) -> float:
        """The monotonic clock, in seconds."""
        return self._clock.monotonic()

    def _tell(self, state: SessionState) -> None:
        if self._is_told:
            self._owner.on_session_state(state)

    def _owner_hears_event(self, kind: int, path: str) -> None:
        if self.state is not SessionState.EXPIRED:
            self._owner.on_watch_event(kind, path)

    def _owner_hears_missed(self) -> None:
        if self.state is not SessionState.EXPIRED:
            self._owner.on_watch_missed()

    def _thread_has_ended(self) -> None:
        if not self._thread_ended.done():
            self._thread_ended.set_result(None)


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which reports to the session what it reads."""

    def __init__(self, session: ZooKeeperSession, client: KazooClient, login: SaslLogin | None) -> None:
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
        except Exception as error:
            self.last_failure = f"{host}:{port}: {_reason(error)}"
            raise
        self._sent_s.clear()
        self._session.on_authenticated()
        return timeouts

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        try:
            super()._authenticate_with_sasl(host, timeout)
        except AuthFailedError as error:
            # ZooKeeper 3.6 refuses a login by an answer. A connection that breaks says nothing about the password.
            if isinstance(error.__cause__, ConnectionDropped):
                raise error.__cause__ from None
            raise

    def _expand_client_hosts(self) -> object:
        addresses = super()._expand_client_hosts()
        if not addresses:
            self.last_failure = "no host of it has an address"
        return addresses

    def _invoke(self, timeout: float, request: Request, xid: int | None = None) -> object:
        sent_s = self._session.now_s()
        is_connect = request.type is None
        answer = super()._invoke(
            min(timeout, self.handler.attempt_s) if is_connect else timeout, request, xid
        )
        if is_connect and answer[0].time_out > 0:
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


class _Reply:
    """Receives an answer from kazoo, as a future of the loop."""

    __slots__ = ("_loop", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.future: asyncio.Future[object] = loop.create_future()

    def set(self, value: object = None) -> None:
        post(self._loop, self._resolve, value, None)

    def set_exception(self, error: Exception) -> None:
        post(self._loop, self._resolve, None, error)

    def _resolve(self, value: object, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(value)
        else:
            self.future.set_exception(error)
            self.future.exception()  # retrieved: no call waits for the answer to a watch


class _WatchAgain:
    """The answer to a watch that is set again; if it is lost, the next connection sets another watch."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session

    def set(self, value: object = None) -> None:
        self._session.on_watched_again()

    def set_exception(self, error: Exception) -> None:
        pass


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler, without its callback threads, with our TLS context and our limit for one attempt to connect."""

    def __init__(self, tls: ssl.SSLContext | None, attempt_s: float) -> None:
        super().__init__()
        self.attempt_s = attempt_s
        self._tls = tls

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def create_connection(self, address: tuple[str, int], hostname: str | None = None, **_: object) -> object:
        try:
            plain = super().create_connection(address, timeout=self.attempt_s)
        except TimeoutError:
            raise TimeoutError(errno.ETIMEDOUT, f"no connection within {self.attempt_s:.1f} s") from None
        if self._tls is None:
            return plain
        try:
            return self._tls.wrap_socket(plain, server_hostname=hostname)
        except BaseException:
            plain.close()
            raise


def _attempt_s(settings: ZooKeeperSettings) -> float:
    """How long a connection may take to come about, and then how long its first answer may take.

    kazoo waits for a whole session timeout, so a single server that does not answer costs the session. A silent server
    is noticed after two thirds of the timeout; the last third is enough to try half of the servers in vain.
    """
    return settings.session_timeout_ms / 1000 / max(3, 2 * len(settings.hosts))


def _client(settings: ZooKeeperSettings, tls: ssl.SSLContext | None) -> KazooClient:
    return KazooClient(
        hosts=",".join(settings.hosts),
        timeout=settings.session_timeout_ms / 1000,
        handler=_Handler(tls, _attempt_s(settings)),
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


def post(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    """Calls a function on the loop, from any thread, in order."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        # The loop has been closed: nothing is left to call.
        return


def _reason(error: Exception) -> str:
    text = str(error).removeprefix("socket connection error: ")
    return text[:1].lower() + text[1:] if text and text != "None" else type(error).__name__
