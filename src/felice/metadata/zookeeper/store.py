"""`MetadataStore` on a ZooKeeper ensemble.

Keeps true: the promises of `store`. An error names the node of the operation that was refused, also within `multi`. A
            read whose connection was lost is repeated, a write never is. After `renew` no ephemeral node of the
            previous session is left: ZooKeeper may take longer to end a session than this process to give it up.
Leaves:     connections, their loss, and the order of events to `session`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from kazoo import exceptions as zk
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from felice.env import Clock
from felice.metadata.latencies import RequestLatencies
from felice.metadata.session import SessionLife, SingleWrites, Watches
from felice.metadata.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    Event,
    EventKind,
    Listener,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotAllowed,
    NotEmpty,
    Operation,
    SessionExpired,
    SessionListener,
    SessionState,
    SetData,
    StoreError,
    StoreUnavailable,
    check_path,
    is_within,
    parent_of,
)
from felice.metadata.zookeeper.requests import MultiRead, Request
from felice.metadata.zookeeper.session import ZooKeeperSession
from felice.metadata.zookeeper.settings import ZooKeeperSettings

_EVENT_KINDS = {1: EventKind.CREATED, 2: EventKind.DELETED, 3: EventKind.CHANGED}
_EPHEMERAL, _SEQUENTIAL = 1, 2
# Number of reads in one request.
_READS_AT_ONCE = 256
# ZooKeeper closes a connection that sends more than jute.maxbuffer, by default 1 MiB.
_MAX_REQUEST_BYTES = 1024 * 1024 - 1024
# Nodes with passwords: only their owner may read them where ACLs are set. Kafka's list.
_SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token")


class ZooKeeperStore(SingleWrites):
    """A session with an ensemble, and after `renew` the next one. Create it with `open`."""

    def __init__(self, settings: ZooKeeperSettings, clock: Clock) -> None:
        self._settings = settings
        self._tls = settings.tls.context() if settings.tls is not None else None
        self._clock = clock
        self._chroot = settings.chroot
        self._life = SessionLife()
        self._watches = Watches()
        self._is_closed = False
        self._renewing = asyncio.Lock()
        # Ephemeral nodes that this session, or a lost one that `renew` cleans up after, created or may have created.
        self._ephemerals: dict[str, None] = {}
        # Lost sessions whose nodes may still be there.
        self._lost_sessions: set[int] = set()
        self._latencies = RequestLatencies()
        self._session = self._new_session()
        self._beginning: ZooKeeperSession | None = None

    @classmethod
    async def open(cls, settings: ZooKeeperSettings, clock: Clock) -> ZooKeeperStore:
        """Begins a session, and creates the chroot if it is missing; raises a one-line `StoreError`."""
        store = cls(settings, clock)
        try:
            async with asyncio.timeout(settings.connection_timeout_ms / 1000):
                await store._session.connect()
                await store._check_version()
                if settings.makes_chroot:
                    await store._make_chroot()
        except TimeoutError:
            reason, where = store._session.last_failure, ",".join(settings.hosts)
            await store._give_up()
            raise StoreError(
                where,
                f"no ZooKeeper that serves was reached within {settings.connection_timeout_ms} ms "
                f"(last: {reason}); check zookeeper.connect and that the ensemble has its quorum",
            ) from None
        except BaseException:
            await store._give_up()
            raise
        return store

    @property
    def session_id(self) -> int:
        """The id that the ensemble gave to the session."""
        return self._session.session_id

    @property
    def request_latencies(self) -> RequestLatencies:
        """Of all sessions of this store."""
        return self._latencies

    @property
    def session_timeout_ms(self) -> int:
        """ZooKeeper's timeout of this session: the requested one, within the ensemble's bounds."""
        return self._session.timeout_ms

    @property
    def session_state(self) -> SessionState:
        """The session's state, which takes the time since the last answer into account."""
        self._session.look_at_the_clock()
        return self._life.state

    def watch_session(self, listener: SessionListener) -> Callable[[], None]:
        """Calls `listener` with each new state until the returned function is called."""
        return self._life.listen(listener)

    async def renew(self) -> None:
        """Begins the next session after `EXPIRED`, as soon as the ensemble can be reached."""
        async with self._renewing:
            if self._is_closed:
                raise SessionExpired()
            if self.session_state is not SessionState.EXPIRED:
                return
            try:
                await self._begin_again()
            except SessionExpired:
                if self._is_closed:
                    raise
                raise StoreUnavailable("/", "the new session ended while it began") from None

    async def get(self, path: str) -> Node:
        """The node; raises `NoNode`."""
        check_path(path)
        return _node(await self._read(path, wire.GetData(self._outside(path), None)))

    async def exists(self, path: str) -> Node | None:
        """The node, or None."""
        try:
            return await self.get(path)
        except NoNode:
            return None

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Each path's node or None, in the order given, with few requests."""
        results = await self._read_many([wire.GetData(self._outside(path), None) for path in paths])
        return [None if result is None else _node(result) for result in _or_none(paths, results)]

    async def children(self, path: str) -> list[str]:
        """Names of the children, sorted; raises `NoNode`."""
        check_path(path)
        return _names(await self._read(path, wire.GetChildren(self._outside(path), None)))

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Each path's children, or None where there is no node, with few requests."""
        results = await self._read_many([wire.GetChildren(self._outside(path), None) for path in paths])
        return [None if names is None else _names(names) for names in _or_none(paths, results)]

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        """All or nothing, see `MetadataStore.multi`. Raises `StoreUnavailable` if the answer was lost."""
        if not operations:
            self._session.check_alive()
            return []
        results = await self._send_writes(operations)
        for operation, result in zip(operations, results, strict=True):
            # Operations before the refused one are reported as "rolled back", those after it as "inconsistent".
            if isinstance(result, Exception) and not isinstance(
                result, zk.RolledBackError | zk.RuntimeInconsistency
            ):
                raise _store_error(operation, result)
        assert not any(isinstance(result, Exception) for result in results), (
            "refused, and by none of the operations"
        )
        return [self._outcome(result) for result in results]

    def watch(self, path: str, listener: Listener) -> Callable[[], None]:
        """Calls `listener` for each change at `path` and below. One watch of the ensemble serves all listeners."""
        check_path(path)
        self._session.check_alive()
        if self._session.watched_path is None:
            self._session.watch(self._outside("/"))
        return self._watches.add(path, listener)

    async def close(self) -> None:
        """Ends the session: the ensemble deletes its ephemeral nodes."""
        if not self._is_closed:
            await self._give_up()

    async def abandon(self) -> None:
        """Closes the connection without a request to end the session: the ensemble ends it after its timeout."""
        if not self._is_closed:
            self._fall_silent()
            await self._session.abandon()

    # Reports of the session

    def on_session_state(self, state: SessionState) -> None:
        """The session reports a new state."""
        self._life.become(state)

    def on_watch_event(self, kind: int, path: str) -> None:
        """The session reports a change; one outside the chroot, or of an unknown kind, is ignored."""
        if kind in _EVENT_KINDS and is_within(path, self._outside("/")):
            self._watches.tell([Event(_EVENT_KINDS[kind], self._inside(path))])

    def on_watch_missed(self) -> None:
        """The session reports that events may have been lost."""
        self._watches.tell_missed()

    # Begin and end

    def _new_session(self) -> ZooKeeperSession:
        # Read again for each session: the password may have been changed meanwhile.
        login = self._settings.jaas.login() if self._settings.jaas is not None else None
        return ZooKeeperSession(self._settings, self._tls, self._clock, self, self._latencies, login)

    async def _begin_again(self) -> None:
        lost, begun = self._session, self._new_session()
        self._beginning = begun
        await lost.abandon()
        try:
            if lost.watched_path is not None:
                begun.watch(lost.watched_path)
            await begun.connect()
        except BaseException as error:
            await begun.abandon()
            if self._is_closed and isinstance(error, StoreError):
                raise SessionExpired() from None
            raise
        finally:
            self._beginning = None
        self._session = begun
        self._lost_sessions.add(lost.session_id)
        await self._clear_away()
        self._life.become(begun.state)

    async def _clear_away(self) -> None:
        """Deletes the nodes of sessions that this process gave up before ZooKeeper did."""
        paths = list(self._ephemerals)
        for path, node in zip(paths, await self.get_many(paths), strict=True):
            if node is not None and node.ephemeral_owner in self._lost_sessions:
                try:
                    await self.delete(path)
                except NoNode:
                    continue
        self._ephemerals.clear()
        self._lost_sessions.clear()

    async def _check_version(self) -> None:
        """Sends a request that ZooKeeper supports since 3.6."""
        await self._read("/", MultiRead([wire.GetData("/", None)]))

    async def _make_chroot(self) -> None:
        path = ""
        for name in self._chroot.split("/")[1:]:
            path = f"{path}/{name}"
            try:
                await self._read(path, wire.Create(path, b"", self._acl("/"), 0))
            except (NodeExists, NotAllowed):
                # It exists, or another tenant's directory denies access; the next one shows which.
                continue
        await self.children("/")

    async def _give_up(self) -> None:
        self._fall_silent()
        await self._session.end()

    def _fall_silent(self) -> None:
        self._is_closed = True
        self._watches.clear()
        self._life.end()
        if self._beginning is not None:
            self._beginning.refuse("the store was closed")

    # Reads and writes

    async def _read(self, path: str, request: Request) -> object:
        """Sends a request that may safely be repeated, and returns its answer."""
        while True:
            try:
                return await self._session.call(request)
            except (zk.ConnectionLoss, zk.OperationTimeoutError):
                # The next call waits until there is a connection, or the session ends.
                continue
            except zk.ZookeeperError as error:
                raise _store_error(Check(path), error) from None

    async def _read_many(self, reads: Sequence[Request]) -> list[object]:
        chunks = [reads[at : at + _READS_AT_ONCE] for at in range(0, len(reads), _READS_AT_ONCE)]
        self._session.check_alive()
        answers = await asyncio.gather(*(self._read("/", MultiRead(chunk)) for chunk in chunks))
        results: list[object] = []
        for answer in answers:
            assert isinstance(answer, list)
            results += answer
        return results

    async def _send_writes(self, operations: Sequence[Operation]) -> list[object]:
        """The result of each operation; an error if it, or another operation of the transaction, was refused."""
        request = wire.Transaction([self._request(operation) for operation in operations])
        size_bytes = len(request.serialize())
        if size_bytes > _MAX_REQUEST_BYTES:
            raise StoreError(
                operations[0].path,
                f"a write of {size_bytes} bytes is more than ZooKeeper takes at once ({_MAX_REQUEST_BYTES})",
            )
        for operation in operations:
            if isinstance(operation, Create) and operation.ephemeral:
                self._ephemerals[operation.path] = None
        try:
            results = await self._session.call(request)
        except zk.ZookeeperError as error:
            raise _store_error(operations[0], error) from None
        assert isinstance(results, list)
        return results

    def _request(self, operation: Operation) -> Request:
        check_path(operation.path)
        path = self._outside(operation.path)
        request: Request
        match operation:
            case Create(_, data, ephemeral, sequential):
                flags = (_EPHEMERAL if ephemeral else 0) | (_SEQUENTIAL if sequential else 0)
                request = wire.Create(path, data, self._acl(operation.path), flags)
            case SetData(_, data, version):
                request = wire.SetData(path, data, version)
            case Delete(_, version):
                if operation.path == "/":
                    raise StoreError("/", "the root cannot be deleted")
                request = wire.Delete(path, version)
            case Check(_, version):
                request = wire.CheckVersion(path, version)
        return request

    def _outcome(self, result: object) -> str | int | None:
        if isinstance(result, ZnodeStat):
            return int(result.version)
        return self._inside(result) if isinstance(result, str) else None

    def _acl(self, path: str) -> list[ACL]:
        if not self._settings.sets_acl:
            return OPEN_ACL_UNSAFE  # type: ignore[no-any-return]
        if any(is_within(path, root) for root in _SENSITIVE):
            return CREATOR_ALL_ACL  # type: ignore[no-any-return]
        return CREATOR_ALL_ACL + READ_ACL_UNSAFE  # type: ignore[no-any-return]

    def _outside(self, path: str) -> str:
        """A path as ZooKeeper has it, with the chroot."""
        return (self._chroot + path if path != "/" else self._chroot) or "/"

    def _inside(self, path: str) -> str:
        return path[len(self._chroot) :] or "/"


def _names(result: object) -> list[str]:
    """The names in an answer to GetChildren, sorted."""
    assert isinstance(result, list)
    return sorted(result)


def _node(result: object) -> Node:
    """The node in an answer to GetData."""
    assert isinstance(result, tuple)
    data, stat = result
    return Node(data or b"", stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner)


def _or_none(paths: Iterable[str], results: Iterable[object]) -> Iterable[object]:
    """Each result, or None where there is no node."""
    for path, result in zip(paths, results, strict=True):
        if isinstance(result, Exception) and not isinstance(result, zk.NoNodeError):
            raise _store_error(Check(path), result)
        yield None if isinstance(result, Exception) else result


def _store_error(operation: Operation, error: Exception) -> StoreError:
    """Translates a refusal by ZooKeeper into an error that names the refused node."""
    path = operation.path
    match error:
        case zk.NoNodeError():
            return NoNode(parent_of(path) if isinstance(operation, Create) else path)
        case zk.NodeExistsError():
            return NodeExists(path)
        case zk.BadVersionError():
            return BadVersion(path, getattr(operation, "version", ANY_VERSION))
        case zk.NotEmptyError():
            return NotEmpty(path)
        case zk.NoChildrenForEphemeralsError():
            return NoChildrenForEphemerals(parent_of(path))
        case zk.ConnectionLoss() | zk.OperationTimeoutError() | zk.RequestTimeoutError():
            return StoreUnavailable(path, "the connection to ZooKeeper was lost before the answer came")
        case zk.NoAuthError() | zk.AuthFailedError() | zk.InvalidACLError():
            return NotAllowed(
                path,
                "ZooKeeper does not allow it; check the broker's login (zookeeper.digest.auth or "
                "java.security.auth.login.config) and the node's access list",
            )
        case zk.SessionClosedRequireSaslError():
            return NotAllowed(path, "ZooKeeper requires a login by SASL: set java.security.auth.login.config")
        case zk.UnimplementedError():
            return StoreError(path, "this ZooKeeper is older than 3.6, the oldest that can be used")
        case zk.SessionExpiredError() | zk.ConnectionClosedError() | zk.SessionMovedError():
            return SessionExpired(path)
        case _:
            return StoreError(path, f"ZooKeeper answered with {type(error).__name__}")
