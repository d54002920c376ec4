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
import logging
import ssl
from collections.abc import Callable
from typing import Protocol

from kazoo.exceptions import SessionExpiredError
from kazoo.protocol.serialization import CloseInstance, Watch
from kazoo.protocol.states import KazooState, KeeperState

from felice.env import Clock
from felice.metadata.latencies import RequestLatencies
from felice.metadata.store import SessionExpired, SessionState, StoreError
from felice.metadata.zookeeper.connection import Connection, new_client
from felice.metadata.zookeeper.requests import AddWatch, Request
from felice.metadata.zookeeper.settings import SaslLogin, ZooKeeperSettings

_log = logging.getLogger("felice.metadata")
_CLOSE_TIMEOUT_S = 5.0


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
        self._client = new_client(settings, tls, clock)
        self._connection = Connection(self, self._client, login)
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


def post(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    """Calls a function on the loop, from any thread, in order."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        # The loop has been closed: nothing is left to call.
        return
