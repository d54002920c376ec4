"""Access to the cluster: bootstrap, metadata, one connection per broker and purpose, and coordinators.

Keeps true:  After a failed connection attempt, a broker gets no other attempt until its backoff is over; the backoff
             doubles up to a limit. Requests that may wait long in the broker (fetch, group) have connections of their
             own, because a broker answers the requests of one connection in order. If no broker can be reached, the
             error names every address and its reason.
Leaves:      topics and leaders to `topology`; retries of an operation to its caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from random import Random
from typing import Any, Never, TypeVar
from uuid import UUID

from felice.client.error import KafkaError, KafkaException, beyond_the_code, failure, no_broker_answers
from felice.client.model import BrokerMetadata, ClusterMetadata, ThrottleEvent
from felice.client.net.connection import Connection, connect
from felice.client.net.limits import limited, without_limit
from felice.client.net.requests import metadata_request, topic_ids_request
from felice.client.net.topology import Topology
from felice.client.net.traffic import BrokerTraffic
from felice.client.net.waiting import WAITING_LOGGER, Waiting
from felice.client.net.wire import ByVersion, changes_nothing
from felice.client.options import ClientSettings
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.find_coordinator import (
    GROUP_KEY_TYPE,
    TRANSACTION_KEY_TYPE,
    FindCoordinatorRequest,
)
from felice.protocol.messages.metadata import MetadataResponse

T = TypeVar("T")

# As long as browsers wait for one address before they try the next as well (RFC 8305), twice.
_NEXT_BROKER_S = 0.5

_RETRY_COORDINATOR = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


def backoff_s(attempt: int, first_ms: float, limit_ms: float, random: Random) -> float:
    """Exponential backoff in seconds with 20 % jitter, so that clients that failed together do not retry together."""
    wait: float = min(first_ms * 2 ** min(attempt, 20), limit_ms) / 1000
    return wait * random.uniform(0.8, 1.2)


def _find_coordinator(key: str, key_type: int) -> Callable[[int], FindCoordinatorRequest]:
    def build(version: int) -> FindCoordinatorRequest:
        if version >= 4:
            return FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        if version == 0 and key_type != GROUP_KEY_TYPE:
            raise failure(KafkaError._UNSUPPORTED_FEATURE, "the broker has no transactions")
        return FindCoordinatorRequest(key_type=key_type, key=key)

    return build


@dataclass(slots=True)
class _Node:
    """The connection to one address for one purpose, and when to connect again."""

    host: str
    port: int
    connection: Connection | None = None
    failures: int = 0
    not_before: float = 0.0
    last_error: KafkaException | None = None
    # The attempt under way. All that need the connection wait for it.
    connecting: asyncio.Task[Connection] | None = None

    @property
    def open_connection(self) -> Connection | None:
        return None if self.connection is None or self.connection.closed else self.connection

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """The order in which to ask: first over open connections, last where an answer is overdue."""
        connection = self.open_connection
        silent = self.connecting is not None or (
            connection is not None and connection.silent_s > _NEXT_BROKER_S
        )
        return silent, connection is None, self.failures


class Cluster:
    """Connections and metadata of one client. Runs on one event loop."""

    def __init__(
        self,
        settings: ClientSettings,
        on_error: Callable[[KafkaError], None] | None = None,
        on_throttled: Callable[[ThrottleEvent], None] | None = None,
    ) -> None:
        self.settings = settings
        self.traffic: dict[tuple[str, int], BrokerTraffic] = {}
        self._on_throttled = on_throttled
        self._protocol_log = settings.log("protocol")
        self.topology = Topology()
        self.timeout_s = settings.request_timeout_ms / 1000
        self.interesting: set[str] = set()
        self._log = settings.log()
        self._broker_log = settings.log("broker")
        self._on_error = on_error
        self.on_refreshed: Callable[[], None] = lambda: None
        self._complained = False
        self._loop = asyncio.get_running_loop()
        self._nodes: dict[tuple[str, int, str], _Node] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._waiting = Waiting(self._loop.time, self.tell_of_waiting)
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed_at = float("-inf")
        # Why the last refresh in the background failed; None if it succeeded.
        self._refresh_error: KafkaError | None = None
        self._background: dict[asyncio.Task[object], None] = {}
        self._closed = False
        self._tick = self._loop.call_later(1.0, self._on_tick)

    async def close(self) -> None:
        """Cancel background work and close all connections."""
        self._closed = True
        self._tick.cancel()
        for task in [*self._background, *([self._refreshing] if self._refreshing else [])]:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        for node in self._nodes.values():
            if node.connection is not None:
                node.connection.close()
        # Let the loop run once: the transports close their sockets in it.
        await asyncio.sleep(0)

    def _on_tick(self) -> None:
        """Refresh aged metadata and close idle connections."""
        now = self._loop.time()
        self._tick = self._loop.call_later(1.0, self._on_tick)
        if self.interesting and now - self._refreshed_at > self.settings.metadata_max_age_ms / 1000:
            self.refresh_soon()
        idle_s = self.settings.connections_max_idle_ms / 1000
        for node in self._nodes.values():
            connection = node.connection
            if idle_s and connection and not connection.in_flight and now - connection.last_used > idle_s:
                connection.close("idle")
                node.connection = None

    # Connections

    async def connection(self, node_id: int, purpose: str = "") -> Connection:
        """Return the connection to a broker; connects if there is none, after the backoff."""
        broker = self.topology.broker(node_id)
        return await self._open(self._node(broker.host, broker.port, purpose))

    def open_connection(self, node_id: int, purpose: str = "") -> Connection | None:
        """Return the open connection to a broker, or None. Does not connect."""
        broker = self.topology.brokers.get(node_id)
        return None if broker is None else self._node(broker.host, broker.port, purpose).open_connection

    def connections(self, host: str, port: int) -> list[Connection]:
        """Return the open connections to an address."""
        nodes = (node for key, node in self._nodes.items() if key[:2] == (host, port))
        return [connection for node in nodes if (connection := node.open_connection) is not None]

    def traffic_to(self, node_id: int) -> BrokerTraffic | None:
        """Return the counters of a broker's connections; None if the broker is unknown."""
        broker = self.topology.brokers.get(node_id)
        return None if broker is None else self.traffic_of(broker.host, broker.port)

    def _node(self, host: str, port: int, purpose: str = "") -> _Node:
        return self._nodes.setdefault((host, port, purpose), _Node(host, port))

    async def _open(self, node: _Node) -> Connection:
        if (connection := node.open_connection) is not None:
            return connection
        if self._closed:
            raise failure(KafkaError._DESTROY, "the client is closed")
        attempt = node.connecting
        if attempt is None:
            attempt = node.connecting = self.spawn(self._connect(node))
            attempt.add_done_callback(_retrieve)
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            # A task that `close` cancels, too, must end, not go on with an error of its connection.
            task = asyncio.current_task()
            if attempt.cancelled() and not (task is not None and task.cancelling()):
                raise failure(KafkaError._DESTROY, "the client was closed") from None
            raise

    async def _connect(self, node: _Node) -> Connection:
        try:
            wait = node.not_before - self._loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            return await self._attempt(node)
        finally:
            node.connecting = None

    async def _attempt(self, node: _Node) -> Connection:
        setup_s = self.settings.socket_connection_setup_timeout_ms / 1000
        try:
            node.connection = await connect(
                self.settings.env.network,
                node.host,
                node.port,
                client_id=self.settings.client_id,
                timeout_s=setup_s,
                silence_s=self.timeout_s,
                prepare=self._prepare,
                traffic=self.traffic_of(node.host, node.port),
                log=self._protocol_log,
                security=self.settings.security,
            )
        except KafkaException as error:
            first, limit = self.settings.reconnect_backoff_ms, self.settings.reconnect_backoff_max_ms
            node.not_before = self._loop.time() + backoff_s(
                node.failures, first, limit, self.settings.env.random
            )
            node.failures += 1
            node.last_error = error
            self._broker_log.debug("connect failed: %s", error.error.str())
            raise
        node.failures = 0
        node.last_error = None
        traffic = self.traffic_of(node.host, node.port)
        traffic.connects += 1
        traffic.connected_at = self._loop.time()
        self._broker_log.debug("connected to %s:%d", node.host, node.port)
        return node.connection

    def traffic_of(self, host: str, port: int) -> BrokerTraffic:
        """Return the counters of the connections to this address."""
        traffic = self.traffic.get((host, port))
        if traffic is None:
            traffic = self.traffic[host, port] = BrokerTraffic(f"{host}:{port}", self._throttled)
        return traffic

    def _throttled(self, address: str, throttle_ms: int) -> None:
        if self._on_throttled is None:
            return
        brokers = self.topology.brokers.values()
        node_id = next((row.id for row in brokers if f"{row.host}:{row.port}" == address), -1)
        self._on_throttled(ThrottleEvent(address, node_id, throttle_ms / 1000))

    def _prepare(self, sock: socket.socket) -> None:
        for size, option in (
            (self.settings.socket_send_buffer_bytes, socket.SO_SNDBUF),
            (self.settings.socket_receive_buffer_bytes, socket.SO_RCVBUF),
        ):
            if size > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        if self.settings.socket_keepalive_enable:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    # Requests

    async def call(
        self, node_id: int, request: object, *, purpose: str = "", timeout_s: float | None = None
    ) -> Any:
        """Send a request to a broker and return the response. Raises `KafkaException`.

        `purpose` chooses the connection: each purpose has its own. `timeout_s` is `request.timeout.ms` if not given.
        """
        connection = await self.connection(node_id, purpose)
        return await connection.call(request, timeout_s or self.timeout_s)

    async def call_any(self, request: object, timeout_s: float | None = None) -> Any:
        """Send to any broker: first over open connections, then to every known address.

        The next address is tried when one fails, and if one has not answered in `_NEXT_BROKER_S`. A request that
        changes something is sent again only if its answer cannot come any more.

        Raises _ALL_BROKERS_DOWN with the reasons of all attempts, or at once an error that is not retriable.
        """
        _, response = await self._call_any(request, timeout_s)
        return response

    async def _call_any(self, request: object, timeout_s: float | None = None) -> tuple[_Node, Any]:
        """Return the address that answered, and its response."""
        nodes, errors = self._candidates(), list[KafkaError]()

        async def ask(node: _Node) -> Any:
            connection = await self._open_now(node)
            return await connection.call(request, timeout_s or self.timeout_s)

        if changes_nothing(request):
            return await self._first_of(nodes, ask, errors)
        while True:
            node, connection = await self._first_of(nodes, self._open_now, errors)
            try:
                return node, await connection.call(request, timeout_s or self.timeout_s)
            except KafkaException as error:
                if not error.error.retriable():
                    raise
                errors.append(error.error)
                nodes.remove(node)

    async def _first_of(
        self, nodes: Iterable[_Node], ask: Callable[[_Node], Awaitable[T]], errors: list[KafkaError]
    ) -> tuple[_Node, T]:
        """Ask one address after the other, without waiting long for any of them; return the first result.

        Retriable errors are appended to `errors`. Raises _ALL_BROKERS_DOWN with all of them if none is left to ask.
        """
        left = deque(nodes)
        if len(left) == 1:
            # Without a task: there is nothing to do beside waiting for it.
            try:
                return left[0], await ask(left[0])
            except KafkaException as error:
                if not error.error.retriable():
                    raise
                errors.append(error.error)
                raise no_broker_answers(errors) from None
        asked: dict[asyncio.Future[T], _Node] = {}
        try:
            while left or asked:
                if left:
                    node = left.popleft()
                    task = asyncio.ensure_future(ask(node))
                    task.add_done_callback(_retrieve)
                    asked[task] = node
                pause_s = _NEXT_BROKER_S if left else None
                await asyncio.wait(asked, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                for done in [task for task in asked if task.done()]:
                    node = asked.pop(done)
                    try:
                        return node, done.result()
                    except KafkaException as error:
                        if not error.error.retriable():
                            raise
                        errors.append(error.error)
        finally:
            for pending in asked:
                pending.cancel()
        raise no_broker_answers(errors)

    async def _open_now(self, node: _Node) -> Connection:
        """Open like `_open`, but fail at once during the backoff: another broker may answer now."""
        if (
            node.open_connection is None
            and node.last_error is not None
            and node.not_before > self._loop.time()
        ):
            raise node.last_error
        return await self._open(node)

    def _candidates(self) -> list[_Node]:
        addresses = [(broker.host, broker.port) for broker in self.topology.brokers.values()]
        self.settings.env.random.shuffle(addresses)
        addresses += self.settings.bootstrap
        nodes = [self._node(host, port) for host, port in dict.fromkeys(addresses)]
        return sorted(nodes, key=lambda node: node.rank)

    async def call_controller(self, request: object, timeout_s: float | None = None) -> Any:
        """Send to the last known controller, or to any broker without one (with KRaft, brokers forward).

        `timeout_s` is `request.timeout.ms` if not given.
        """
        if self.topology.controller_id not in self.topology.brokers:
            await self.refresh([])
        controller = self.topology.controller_id
        if controller in self.topology.brokers:
            return await self.call(controller, request, timeout_s=timeout_s)
        return await self.call_any(request, timeout_s)

    # Metadata

    async def refresh(
        self, topics: Iterable[str] | None, *, allow_auto_create: bool = False
    ) -> MetadataResponse:
        """Request metadata of these topics (None: all, empty: only the brokers) and update the topology."""
        names = None if topics is None else list(topics)
        request = metadata_request(names, allow_auto_create=allow_auto_create)
        return await self._update_topology(request, complete=names is None)

    async def refresh_by_id(self, topic_ids: Iterable[UUID]) -> None:
        """Request metadata of the topics with these ids, whose names the topology then knows. Needs version 12."""
        await self._update_topology(topic_ids_request(topic_ids), complete=False)

    async def _update_topology(self, request: object, *, complete: bool) -> MetadataResponse:
        node, response = await self._call_any(request)
        self.topology.update(response, complete=complete)
        self.topology.answered_by(node.host, node.port)
        self.on_refreshed()
        found: MetadataResponse = response
        return found

    async def describe(
        self, topics: Iterable[str] | None, timeout_s: float, code: int = KafkaError._TRANSPORT
    ) -> ClusterMetadata:
        """Return the current metadata of these topics. An empty name stands for no topic; None: all topics.

        After `timeout_s` it raises `code`: librdkafka's for its metadata call.
        """
        names = None if topics is None else [topic for topic in topics if topic]
        async with limited(timeout_s, "metadata: no answer", code):
            await self.refresh(names)
        return self.topology.describe(names)

    def refresh_soon(self) -> asyncio.Task[None]:
        """Refresh the interesting topics in the background; calls during a refresh share it."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._loop.create_task(self._refresh_interesting(), context=without_limit())
        return self._refreshing

    async def _refresh_interesting(self) -> None:
        pause = self._refreshed_at + self.settings.retry_backoff_ms / 1000 - self._loop.time()
        if pause > 0:
            await asyncio.sleep(pause)
        try:
            await self.refresh(
                sorted(self.interesting), allow_auto_create=self.settings.allow_auto_create_topics
            )
            self._complained = False
            self._refresh_error = None
        except KafkaException as error:
            self._refresh_error = error.error
            self._broker_log.debug("metadata refresh failed: %s", error.error.str())
            self._report_outage(error.error)
        finally:
            self._refreshed_at = self._loop.time()

    def _report_outage(self, error: KafkaError) -> None:
        """Report once per outage that no broker can be reached."""
        if not self._complained and error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._complained = True
            self._log.warning("%s", error.str())
            if self._on_error is not None:
                self._on_error(error)

    def tell_of_waiting(self, error: KafkaError) -> None:
        """Report to the application what the client waits for. The client continues to try."""
        self._log.getChild(WAITING_LOGGER).warning("waiting: %s", error.str().removeprefix("Local: "))
        if self._on_error is not None:
            self._on_error(error)

    @property
    def why_no_metadata(self) -> KafkaException | None:
        """The error of the last refresh in the background; None if it succeeded, or none is over."""
        return None if self._refresh_error is None else KafkaException(self._refresh_error)

    async def ready_topic(self, topic: str, patience_s: float) -> None:
        """Wait until the topic's partitions are known; raises after `patience_s` if brokers say that it is missing.

        Raises at once after a final error: one that a retry cannot resolve, as for Kafka's producer: a broker's error
        about the topic, or a failed login. How long it waits for a broker, the caller decides.
        """
        deadline = self._loop.time() + patience_s
        self.interesting.add(topic)
        while not self.topology.partition_count(topic):
            await asyncio.wait([self.refresh_soon()])
            if self._refresh_error is not None and not self._refresh_error.retriable():
                raise KafkaException(self._refresh_error)
            code = self.topology.topic_errors.get(topic, 0)
            if code and not ErrorCode(code).retriable:
                raise failure(code, topic)
            if self.topology.partition_count(topic):
                return
            if self._refresh_error is None and self._loop.time() >= deadline:
                raise failure(code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic)
            await asyncio.sleep(self.settings.retry_backoff_ms / 1000)

    # Coordinators

    async def coordinator(
        self, key: str, timeout_s: float, key_type: int = GROUP_KEY_TYPE, *, waits_for_brokers: bool = True
    ) -> int:
        """Return the coordinator's node id for a group or a transactional id; waits until brokers have assigned one.

        Without `waits_for_brokers` it raises `_ALL_BROKERS_DOWN` at once if no broker can be reached.
        """
        deadline = self._loop.time() + timeout_s
        attempt = 0
        while (key_type, key) not in self._coordinators:
            try:
                return await self._find_coordinator(key, key_type)
            except KafkaException as error:
                gone = error.code == KafkaError._ALL_BROKERS_DOWN and not waits_for_brokers
                if gone or not error.error.retriable() or self._loop.time() >= deadline:
                    raise
                if error.code in _RETRY_COORDINATOR:
                    self._waiting.go_on((key_type, key), error.error)
            settings = self.settings
            first, limit = settings.retry_backoff_ms, settings.retry_backoff_max_ms
            await asyncio.sleep(backoff_s(attempt, first, limit, settings.env.random))
            attempt += 1
        return self._coordinators[key_type, key]

    async def _find_coordinator(self, key: str, key_type: int) -> int:
        asked = ByVersion(FindCoordinatorRequest, _find_coordinator(key, key_type))
        response = await self.call_any(asked)
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            retriable = found.error_code in _RETRY_COORDINATOR
            kind = "transactional id" if key_type == TRANSACTION_KEY_TYPE else "group"
            reason = beyond_the_code(found.error_code, found.error_message)
            wanted = f"coordinator of {kind} {key!r}"
            raise failure(found.error_code, f"{wanted}: {reason}" if reason else wanted, retriable=retriable)
        self._waiting.end((key_type, key))
        self.topology.brokers.setdefault(found.node_id, BrokerMetadata(found.node_id, found.host, found.port))
        self._coordinators[key_type, key] = found.node_id
        return int(found.node_id)

    def forget_coordinator(self, key: str, key_type: int = GROUP_KEY_TYPE) -> None:
        """Look the coordinator up again at the next request."""
        self._coordinators.pop((key_type, key), None)

    def spawn(self, coroutine: Coroutine[object, Never, T]) -> asyncio.Task[T]:
        """Run a coroutine in the background; closing the cluster cancels it."""
        task = self._loop.create_task(coroutine, context=without_limit())
        self._background[task] = None
        task.add_done_callback(lambda done: self._background.pop(done, None))
        return task


def _retrieve(task: asyncio.Future[Any]) -> None:
    """Mark the exception as seen: those that wait for the task get it, and asyncio must not log it."""
    if not task.cancelled():
        task.exception()
