"""A metadata store that simulated machines share, as brokers share a ZooKeeper ensemble.

Keeps true: a session lives as long as the store hears of it within its timeout, even if its owner believes
            otherwise; its ephemeral nodes end with it. The owner considers the session ended, by its own
            clock, no later than the store may, unless the process was stopped (SIGSTOP).
            The requests of one connection, their responses and events arrive in order, each after a delay. A request
            on a connection that was lost may have been executed, until the next connection is made.
How:        the store as a whole never fails. What fails is a link to it (`SimNetwork` between a machine and the
            store's name), a connection (`cut`), or a session (`expire`).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from felice.dataclass import dataclass
from felice.metadata.session import TreeSession
from felice.metadata.store import (
    Event,
    EventKind,
    Node,
    Operation,
    SessionExpired,
    SessionState,
    StoreError,
    StoreUnavailable,
)
from felice.metadata.tree import Change, OperationResult, Tree
from felice.server.startup import StartupError
from felice.testing.simulation.loop import SimLoop
from felice.testing.simulation.network import SimNetwork
from felice.testing.simulation.process import Process, Unanswered

T = TypeVar("T")

_NOBODY = contextvars.Context()
_LOOK_AGAIN_S = 0.05
_TICKS_A_TIMEOUT = 6


@dataclass(frozen=True, slots=True)
class Written:
    """A node after a write.

    `at_s` is the loop's time. `data` is None if the node was deleted. `by` is the writer's machine, empty for other
    writers.
    """

    at_s: float
    path: str
    data: bytes | None
    by: str = ""


class EnsembleHost(Protocol):
    """What the store needs of the simulation."""

    loop: SimLoop
    network: SimNetwork

    def note(self, line: str) -> None:
        """Writes a line into the trace of the simulation."""


class SimEnsemble:
    """The tree of nodes, the sessions, and the history of all writes."""

    def __init__(self, world: EnsembleHost, *, name: str = "store", timeout_s: float = 2.0) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self.tree = Tree()
        self.history: list[Written] = []
        # Machines whose last session timed out, and when. A new session removes the machine.
        self.unheard: dict[str, float] = {}
        self._world = world
        self._loop = world.loop
        self._sessions: dict[int, _Registered] = {}
        self._last_session = 0

    def source(self, host: str, process: Process) -> SimSource:
        """The source from which the broker of this process gets its session."""
        return SimSource(self, host, process)

    @property
    def network(self) -> SimNetwork:
        """The network between the machines and the store."""
        return self._world.network

    def sessions_of(self, host: str) -> list[int]:
        """The ids of a machine's sessions."""
        return [number for number, known in self._sessions.items() if known.session.host == host]

    # Faults of sessions

    def expire(self, session_id: int) -> None:
        """End a session at once, even if it is alive. Its owner hears of it if it can be reached."""
        known = self._sessions.get(session_id)
        if known is not None:
            self._world.note(f"session {session_id} of {known.session.host} ends")
            self.end(session_id)
            known.session.down.send(lambda: known.session.on_ended(session_id))

    def restore(self, zxid: int, nodes: Sequence[tuple[str, Node, int]]) -> None:
        """Replace the tree, as an operator who starts the store with other data; all sessions end.

        The history shows nodes that come and go, without a writer.
        """
        for number in list(self._sessions):
            self.expire(number)
        before, after = {path for path, _, _ in self.tree.walk()}, {path: node for path, node, _ in nodes}
        now_s = self._loop.time()
        self.history += [Written(now_s, path, None) for path in sorted(before - after.keys())]
        self.history += [
            Written(now_s, path, node.data) for path, node in after.items() if path not in before
        ]
        self.tree.restore(zxid, nodes)

    def cut(self, host: str) -> None:
        """Break the connections of a machine: what is in flight to it is lost."""
        for number in self.sessions_of(host):
            session = self._sessions[number].session
            session.down.send(session.on_cut)

    # Requests of sessions, when they arrive

    def open(self, session: SimSession) -> int:
        """Starts a session and its timeout, and returns its id."""
        self._last_session += 1
        number = self._last_session
        self._sessions[number] = _Registered(session, self._loop.time(), session.connection)
        self.unheard.pop(session.host, None)
        self._look_at(number)
        return number

    def hear(self, session_id: int, connection: int) -> bool:
        """Extend a session. False if it has ended, or if this connection is not its latest."""
        known = self._sessions.get(session_id)
        if known is None or connection < known.connection:
            return False
        known.heard_s, known.connection = self._loop.time(), connection
        return True

    def has(self, session_id: int) -> bool:
        """Whether the session is alive in the store's view."""
        return session_id in self._sessions

    def end(self, session_id: int) -> None:
        """Ends a session and deletes its ephemeral nodes."""
        if self._sessions.pop(session_id, None) is not None:
            self.write([Change(EventKind.DELETED, path) for path in self.tree.ephemerals(session_id)])

    def multi(self, operations: Sequence[Operation], session_id: int) -> list[OperationResult]:
        """Execute operations for this session, or for a writer without one (0)."""
        changes, outcomes = self.tree.plan(operations, session_id)
        known = self._sessions.get(session_id)
        self.write(changes, known.session.host if known is not None else "")
        return outcomes

    def write(self, changes: Sequence[Change], by: str = "") -> None:
        """Applies the changes, adds them to the history, and sends their events to every session."""
        if not changes:
            return
        events, now_s = self.tree.apply(changes), self._loop.time()
        for change in changes:
            is_there = change.kind is not EventKind.DELETED
            self.history.append(Written(now_s, change.path, change.data if is_there else None, by))
        for known in self._sessions.values():
            known.tell(events)

    def _look_at(self, session_id: int) -> None:
        known = self._sessions.get(session_id)
        if known is None:
            return
        due_s = known.heard_s + self.timeout_s
        if due_s <= self._loop.time():
            self.expire(session_id)
            if not self.sessions_of(known.session.host):
                self.unheard[known.session.host] = self._loop.time()
        else:
            self._loop.call_at(due_s, self._look_at, session_id, context=_NOBODY)


@dataclass(slots=True)
class _Registered:
    """A session as the store knows it."""

    session: SimSession
    heard_s: float
    connection: int

    def tell(self, events: list[Event]) -> None:
        session, connection = self.session, self.connection
        session.down.send(lambda: session.on_events(connection, events))


class _Way:
    """One direction between a machine and the store."""

    def __init__(self, network: SimNetwork, source: str, target: str, process: Process | None) -> None:
        self._network = network
        self._source, self._target = source, target
        self._process = process  # the process that handles an arrival; None at the store
        self._under_way: deque[tuple[float, Callable[[], None]]] = deque()
        self._last_s = 0.0
        self._is_due = False

    def send(self, act: Callable[[], None]) -> None:
        arrival_s = self._network.loop.time() + self._network.delay_s(self._source, self._target)
        self._last_s = max(self._last_s, arrival_s)
        self._under_way.append((self._last_s, act))
        self._expect(self._under_way[0][0])

    def _expect(self, at_s: float) -> None:
        if not self._is_due:
            self._is_due = True
            context = _NOBODY if self._process is None else self._process.context.copy()
            self._network.loop.call_at(at_s, self._arrive, context=context)

    def _arrive(self) -> None:
        self._is_due = False
        now_s = self._network.loop.time()
        if self._network.is_blocked(self._source, self._target):
            self._expect(now_s + _LOOK_AGAIN_S)
            return
        while self._under_way and self._under_way[0][0] <= now_s:
            self._under_way.popleft()[1]()
        if self._under_way:
            self._expect(self._under_way[0][0])


class SimSource:
    """The broker's source of a session with the simulated store."""

    stands_alone = False
    where = None

    def __init__(self, ensemble: SimEnsemble, host: str, process: Process) -> None:
        self._ensemble = ensemble
        self._host, self._process = host, process
        self.session_timeout_ms = int(ensemble.timeout_s * 1500)

    async def open(self) -> SimSession:
        """Returns a new session; raises `StartupError` if the store does not confirm it within the timeout."""
        session = SimSession(self._ensemble, self._host, self._process)
        try:
            async with asyncio.timeout(self._ensemble.timeout_s):
                await session.begin()
        except TimeoutError:
            raise StartupError("the metadata store cannot be reached") from None
        return session

    def release(self) -> None:
        """Do nothing: the store does not belong to this broker."""


class _ConnectionLost(Exception):
    pass


class SimSession(TreeSession):
    """The session of one process, and after `renew` its next one."""

    def __init__(self, ensemble: SimEnsemble, host: str, process: Process) -> None:
        super().__init__(ensemble.tree, 0)
        self.host = host
        self.connection = 0
        self.up = _Way(ensemble.network, host, ensemble.name, None)
        self.down = _Way(ensemble.network, ensemble.name, host, process)
        self.life.state = SessionState.SUSPENDED
        self._ensemble = ensemble
        self._loop = ensemble.network.loop
        self._sure_until_s = 0.0
        self._answered_s = 0.0
        self._is_closed = False
        self._asked: dict[Unanswered, None] = {}
        self._changed = asyncio.Event()

    # Opening and closing a session

    async def begin(self) -> None:
        """Open a session; returns when the store has confirmed it."""
        self.connection += 1
        opened: asyncio.Future[int] = self._loop.create_future()
        sent_s = self._loop.time()

        def ask() -> None:
            number = self._ensemble.open(self)
            self.down.send(lambda: None if opened.done() else opened.set_result(number))

        self.up.send(ask)
        self.session_id = await opened
        self._answered_s, self._sure_until_s = self._loop.time(), sent_s + self._ensemble.timeout_s
        self._become(SessionState.CONNECTED)
        self._tick(self.session_id)

    async def renew(self) -> None:
        """Opens the next session after an expired one; raises `SessionExpired` after `close`."""
        if self._is_closed:
            raise SessionExpired()
        if self.session_state is SessionState.EXPIRED:
            await self.begin()
            self.watches.tell_missed()

    async def close(self) -> None:
        """Ends the session in the store, if it is connected; otherwise the session times out there."""
        if self.session_state is SessionState.CONNECTED:
            number = self.session_id
            with contextlib.suppress(StoreError):  # the session also times out
                await self._ask(lambda: self._ensemble.end(number), is_write=True)
        await self.abandon()

    async def abandon(self) -> None:
        """Ends the session on this side only. The store keeps it until its timeout."""
        self._is_closed = True
        self.watches.clear()
        self.life.end()
        self._changed.set()
        self._forget_asked()

    def _become(self, state: SessionState) -> None:
        self.life.become(state)
        self._changed.set()
        self._changed = asyncio.Event()

    def _forget_asked(self) -> None:
        for future in list(self._asked):
            if not future.done():
                future.set_exception(_ConnectionLost())

    # Keeping the session alive

    def _tick(self, session_id: int) -> None:
        """Send a ping, and check whether the last ones were answered in time."""
        if self._is_closed or session_id != self.session_id or self.session_state is SessionState.EXPIRED:
            return
        now_s, tick_s = self._loop.time(), self._ensemble.timeout_s / _TICKS_A_TIMEOUT
        if now_s + tick_s >= self._sure_until_s:
            self.on_ended(session_id)
            return
        if self.session_state is SessionState.CONNECTED and now_s - self._answered_s > 3 * tick_s:
            self.on_cut()
        self._ping(session_id)
        self._loop.call_later(tick_s, self._tick, session_id)

    def _ping(self, session_id: int) -> None:
        sent_s, connection = self._loop.time(), self.connection
        ensemble = self._ensemble

        def ask() -> None:
            if ensemble.hear(session_id, connection):
                self.down.send(lambda: self._on_pong(session_id, connection, sent_s))
            elif not ensemble.has(session_id):
                self.down.send(lambda: self.on_ended(session_id))

        self.up.send(ask)

    def _on_pong(self, session_id: int, connection: int, sent_s: float) -> None:
        if session_id != self.session_id or self.session_state is SessionState.EXPIRED or self._is_closed:
            return
        self._sure_until_s = max(self._sure_until_s, sent_s + self._ensemble.timeout_s)
        if connection != self.connection:
            return
        self._answered_s = self._loop.time()
        if self.session_state is SessionState.SUSPENDED:
            self._become(SessionState.CONNECTED)
            self.watches.tell_missed()

    def on_cut(self) -> None:
        """Called when the connection breaks: requests without response fail, and the session reconnects."""
        if self.session_state is SessionState.CONNECTED:
            self.connection += 1
            self._become(SessionState.SUSPENDED)
            self._forget_asked()

    def on_ended(self, session_id: int) -> None:
        """Called when the store reports the end of the session, or its timeout has passed on this side."""
        if session_id == self.session_id and not self._is_closed:
            self.connection += 1
            self._become(SessionState.EXPIRED)
            self._forget_asked()

    def on_events(self, connection: int, events: list[Event]) -> None:
        """Called when events arrive. Those of an earlier connection are dropped."""
        if connection == self.connection and self.session_state is SessionState.CONNECTED:
            self.watches.tell(events)

    # Requests

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Executes all operations or none. `StoreUnavailable` means that they may have been executed."""
        number = self.session_id
        return await self._ask(lambda: self._ensemble.multi(operations, number), is_write=True)

    async def get(self, path: str) -> Node:
        """Reads a node; raises `NoNode`. A read is repeated if the connection breaks."""
        return await self._ask(lambda: self._tree.get(path))

    async def exists(self, path: str) -> Node | None:
        """Reads a node; None if it does not exist."""
        return await self._ask(lambda: self._tree.find(path))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Reads several nodes at one moment; None for each that does not exist."""
        return await self._ask(lambda: [self._tree.find(path) for path in paths])

    async def children(self, path: str) -> list[str]:
        """The names of a node's children, sorted; raises `NoNode`."""
        return await self._ask(lambda: self._tree.children(path))

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """The children of several nodes at one moment; None for each that does not exist."""
        tree = self._tree
        return await self._ask(lambda: [tree.children(path) if tree.find(path) else None for path in paths])

    async def _ask(self, act: Callable[[], T], *, is_write: bool = False) -> T:
        number = self.session_id
        while True:
            await self._wait_connected()
            if number != self.session_id:
                raise SessionExpired()
            answer: asyncio.Future[T] = self._loop.create_future()
            self._asked[answer] = None
            self._send(act, answer)
            try:
                return await answer
            except _ConnectionLost:
                self._check_alive()
                if is_write:
                    raise StoreUnavailable("/", "the connection was lost before the answer came") from None
            finally:
                self._asked.pop(answer, None)

    def _send(self, act: Callable[[], T], answer: asyncio.Future[T]) -> None:
        number, connection = self.session_id, self.connection

        def on_arrival() -> None:
            if not self._ensemble.hear(number, connection):
                return  # the connection is gone
            try:
                outcome: T | StoreError = act()
            except StoreError as error:
                outcome = error
            self.down.send(lambda: self._on_answer(connection, answer, outcome))

        self.up.send(on_arrival)

    def _on_answer(self, connection: int, answer: asyncio.Future[T], outcome: T | StoreError) -> None:
        if connection != self.connection or answer.done():
            return
        if isinstance(outcome, StoreError):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    async def _wait_connected(self) -> None:
        while self.session_state is SessionState.SUSPENDED and not self._is_closed:
            await self._changed.wait()
        self._check_alive()
