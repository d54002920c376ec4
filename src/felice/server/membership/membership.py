"""Membership of a broker in its cluster: registration, expired sessions, and controlled shutdown.

Keeps true: C4 at most one broker has a broker id: a second broker with the id is refused. A broker whose session has
            ended leads nothing, from the moment that it learns of the end until it is registered again.
            Before a broker serves, it resigns from the leaderships and ISRs of its previous incarnation, because its
            log may have lost records since.
            A broker joins no other cluster than its own. It outlives every sequence of pauses of the store.
How:        while the store refuses a write or does not answer, the broker leads nothing and tries again, with a new
            session if the last one has ended.
            The registration is an ephemeral node; the broker waits until the node of its previous incarnation is gone.
            Each change of a partition's state is the same compare-and-set that the controller writes, so neither can
            undo the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Protocol

from felice.controller import features
from felice.controller.duties import Decision, StateChange, sound, state_change
from felice.controller.election import above_epoch, fence_previous_incarnation, step_down
from felice.controller.writing import FOLLOW_TIMEOUT_S, carry_out
from felice.env.network import hostname
from felice.metadata import (
    BadVersion,
    ClusterImage,
    MetadataStore,
    Node,
    NodeExists,
    NoNode,
    PartitionImage,
    SessionExpired,
    SessionState,
    StoreError,
    TopicImage,
    layout,
)
from felice.metadata.layout import BrokerNode, Endpoint, StateNode
from felice.protocol.errors import BrokenInvariant
from felice.protocol.topic_partition import PartitionKey
from felice.replication.peers import NoSecurity, PeerSecurity
from felice.server.membership.identity import other_cluster
from felice.server.membership.own_address import NotAllowed, why_not_reached
from felice.server.services import Services
from felice.server.startup import StartupError

_log = logging.getLogger("felice.server")

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 5.0
_POLL_S = 0.1
# Topics with offline replicas that a registration names.
_MAX_OFFLINE_TOPICS = 2_000
# How often the log says that the broker waits for the store.
_SHOWN_WITHIN_S = FOLLOW_TIMEOUT_S


class Listening(Protocol):
    """The part of a listener that a registration needs."""

    @property
    def name(self) -> str:
        """The name of the listener in `advertised.listeners`."""

    @property
    def port(self) -> int:
        """The port of the listener's socket, even if the configuration has port 0."""


NextState = Callable[[TopicImage, PartitionImage, ClusterImage], StateNode | None]


class Membership:
    """The registration and session of one broker."""

    def __init__(
        self,
        services: Services,
        cluster_id: str,
        store: MetadataStore,
        session_timeout_ms: int,
        listeners: Sequence[Listening],
        security: PeerSecurity,
    ) -> None:
        # That of the log directories.
        self.cluster_id = cluster_id
        self._broker_id = services.broker_id
        self._env = services.env
        self._settings = services.settings
        self._lifecycle = services.lifecycle
        self._watcher = services.watcher
        self._image_follower = services.image_follower
        self._partitions = services.partitions
        self._metrics = services.metrics
        self._store = store
        self._listeners = listeners
        self._security = security
        self._session_timeout_ms = session_timeout_ms
        # Sessions in which this process tried to register since it registered last, and the session of that time.
        self._own_sessions: set[int] = set()
        self._rejoining: asyncio.Task[None] | None = None
        self._joining_again: asyncio.Task[None] | None = None
        self._reaching: asyncio.Task[None] | None = None
        self._stop_listening = store.watch_session(self._on_session)
        services.image_follower.on_join_again = self._on_join_again

    @property
    def session_state(self) -> SessionState:
        """The state of the session with the metadata store."""
        return self._store.session_state

    # Joining

    async def join(self) -> None:
        """Registers this broker, waits until the image shows it, and fences its previous incarnation.

        Raises `StartupError`, and `StoreError` if the session ends or the store fails.
        """
        await self._check_cluster()
        await self._register()
        session_id = self._store.session_id
        registration = await self._store.get(layout.broker_path(self._broker_id))

        def is_known(image: ClusterImage) -> bool:
            known = image.brokers.get(self._broker_id)
            return known is not None and known.epoch == registration.created_zxid

        while not await self._watcher.wait_until(is_known, _SHOWN_WITHIN_S):
            # The store may be suspended. When it is reached again, it reports the registration or the session's end.
            if self._lifecycle.failure is not None:
                raise StartupError(self._lifecycle.failure)
            # The registration ends with its session, also if the store has begun another one since.
            if self._store.session_state is SessionState.EXPIRED or self._store.session_id != session_id:
                raise SessionExpired
            _log.warning(
                "the metadata store does not report its changes yet", extra={"broker": self._broker_id}
            )
        await self._resign_previous_incarnation()

    async def _check_cluster(self) -> None:
        """Raises `StartupError` if the store has another cluster, and `StoreError` if it has none.

        A store without a cluster may be about to be restored.
        """
        node = await self._store.exists(layout.CLUSTER_ID)
        if node is None:
            raise StoreError(
                layout.CLUSTER_ID, f"the store lost cluster {self.cluster_id}; it must be restored"
            )
        found = layout.decode_cluster_id(node.data)
        if found != self.cluster_id:
            raise StartupError(other_cluster(self.cluster_id, found))

    async def _register(self) -> None:
        """Creates the registration of this broker, with the addresses that clients use."""
        description = self._description()
        self._check_addresses_unique(description)
        path, data = layout.broker_path(self._broker_id), layout.encode_broker(description)
        self._own_sessions.add(self._store.session_id)
        # Polls are counted instead of time: a store that is suspended does not answer, and ends no session meanwhile.
        polls_left = int(self._session_timeout_ms / 1000 / _POLL_S)
        while (node := await self._foreign_registration(path, data)) is not None:
            if polls_left == 0:
                raise StartupError(
                    f"another broker with node.id {self._broker_id} is alive{_at(node)}; "
                    "stop it, or give this one another node.id and log.dirs of its own"
                )
            # The session of this broker's previous incarnation may not have expired yet.
            await asyncio.sleep(_POLL_S)
            polls_left -= 1
        self._own_sessions = {self._store.session_id}

    async def _foreign_registration(self, path: str, data: bytes) -> Node | None:
        """Tries to register; returns the registration of another process that prevents it."""
        while True:
            try:
                await self._store.create(path, data, ephemeral=True)
                return None
            except NodeExists:
                node = await self._store.exists(path)
            if node is None:
                continue
            if node.ephemeral_owner == self._store.session_id:
                return None  # an earlier attempt succeeded, but its response was lost
            if node.ephemeral_owner not in self._own_sessions:
                return node
            # It is of an earlier session of this process, which the store has not ended yet.
            with suppress(NoNode, BadVersion):
                await self._store.delete(path, node.version)

    def _check_addresses_unique(self, description: BrokerNode) -> None:
        """Raises `StartupError` if another broker has one of these addresses: clients would reach only one of them."""
        for other in self._watcher.image.brokers.values():
            for endpoint in description.endpoints:
                taken = [found for found in other.endpoints.values() if _address(found) == _address(endpoint)]
                if taken and other.broker_id != self._broker_id:
                    raise StartupError(
                        f"broker {other.broker_id} is registered at {endpoint.host}:{endpoint.port} already; "
                        "give this one another port, or another address in advertised.listeners"
                    )

    def _description(self) -> BrokerNode:
        config = self._settings.config
        ports = {listener.name: listener.port for listener in self._listeners}
        endpoints = tuple(
            Endpoint(address.name, address.host or hostname(), address.port or ports[address.name])
            for address in config.parsed_advertised_listeners
        )
        protocols = {
            endpoint.listener: config.security_of(endpoint.listener).protocol for endpoint in endpoints
        }
        return BrokerNode(
            endpoints,
            protocols,
            config.broker_rack,
            self._env.clock.now_ms(),
            features.SUPPORTED,
            self._offline_replicas(),
        )

    def _offline_replicas(self) -> Mapping[str, tuple[int, ...]]:
        """What the registration says about this broker's disks. A store's node has a size limit."""
        offline = self._partitions.offline()
        return dict(islice(offline.items(), _MAX_OFFLINE_TOPICS))

    async def report_offline_replicas(self) -> None:
        """Changes the registration if other replicas are offline than it says. Call it periodically."""
        known = self._watcher.image.brokers.get(self._broker_id)
        if known is None or not self._image_follower.is_following:
            return
        if known.offline_replicas == self._offline_replicas():
            return
        path = layout.broker_path(self._broker_id)
        try:
            await self._store.set(path, layout.encode_broker(self._description()))
        except StoreError as error:
            _log.info("offline replicas were not reported", extra={"reason": str(error)})

    def check_own_addresses(self) -> None:
        """Checks in the background that the advertised addresses lead to this broker, and logs a warning if not.

        It is no error: a name may become resolvable later, and some networks do not route a host's own public address.
        """
        config = self._settings.config
        # An advertised address that equals a listener's address is known to lead here.
        if config.advertised_listeners is not None or not all(one.host for one in config.parsed_listeners):
            self._reaching = asyncio.get_running_loop().create_task(self._check_addresses_reach_self())

    async def _check_addresses_reach_self(self) -> None:
        env, image = self._env, self._watcher.image
        for endpoint in self._description().endpoints:
            security = self._security_at(endpoint.listener)
            if security is None:
                continue
            extra = {"listener": f"{endpoint.listener}://{endpoint.host}:{endpoint.port}"}
            try:
                reason = await why_not_reached(
                    env.network, env.clock, endpoint, self._broker_id, image.cluster_id, security
                )
            except NotAllowed as refusal:
                _log.info(
                    "it is unknown whether an advertised address leads to this broker: "
                    "the broker is not authorised to read its own configuration there",
                    extra={**extra, "reason": str(refusal)},
                )
                continue
            if reason is not None:
                _log.warning(
                    "an advertised address does not lead to this broker; check advertised.listeners",
                    extra={**extra, "reason": reason},
                )

    def _security_at(self, listener: str) -> PeerSecurity | None:
        """How this broker can connect to one of its own listeners; None if it has no login there."""
        config = self._settings.config
        if listener == config.inter_broker_listener:
            return self._security
        return NoSecurity() if config.security_of(listener).protocol == "PLAINTEXT" else None

    async def _resign_previous_incarnation(self) -> None:
        broker_id, image = self._broker_id, self._watcher.image
        known = dict(self._partitions.outdated(image.topics.values()))
        if known:
            _log.warning(
                "leader epochs are raised, because the metadata store was restored",
                extra={"broker": broker_id, "partitions": len(known)},
            )

        def next_state(topic: TopicImage, partition: PartitionImage, image: ClusterImage) -> StateNode | None:
            epoch = image.controller_epoch
            state = fence_previous_incarnation(partition, broker_id, _others(image, broker_id), epoch)
            return above_epoch(partition, state, known.get((topic.name, partition.partition), -1), epoch)

        pending = {
            (topic.name, partition.partition)
            for topic in image.topics.values()
            for partition in topic.partitions
            if broker_id in (partition.leader, *partition.isr)
        }
        pending |= known.keys()
        while pending:
            pending = await self._write_states(pending, next_state)

    # Leaving

    async def hand_over(self) -> None:
        """Before a stop: hands leaderships over and leaves the ISRs (controlled shutdown)."""
        config = self._settings.config
        retries = config.controlled_shutdown_max_retries
        for attempt in range(retries + 1):
            try:
                await self._step_down(self._held())
            except StoreError as error:
                _log.warning("leaderships could not be handed over", extra={"reason": str(error)})
                return
            stuck = self._led_with_live_replica()
            if not stuck or attempt == retries:
                break
            _log.info("no in-sync replica can take over leaderships", extra={"partitions": len(stuck)})
            backoff_s = config.controlled_shutdown_retry_backoff_ms / 1000
            # A follower may catch up in the meantime.
            await self._watcher.wait_until(partial(self._can_be_replaced, stuck), backoff_s)

    async def _step_down(self, pending: set[tuple[str, int]]) -> None:
        broker_id = self._broker_id

        def next_state(topic: TopicImage, partition: PartitionImage, image: ClusterImage) -> StateNode | None:
            return step_down(partition, broker_id, _others(image, broker_id), image.controller_epoch)

        while pending:
            pending = await self._write_states(pending, next_state)

    def _held(self) -> set[tuple[str, int]]:
        broker_id = self._broker_id
        return {
            (topic.name, partition.partition)
            for topic in self._watcher.image.topics.values()
            for partition in topic.partitions
            if broker_id in partition.isr
        }

    def _led_with_live_replica(self) -> list[PartitionKey]:
        """Returns the partitions that this broker still leads although another replica is alive."""
        image, broker_id = self._watcher.image, self._broker_id
        others = _others(image, broker_id)
        return [
            (topic.name, partition.partition)
            for topic in image.topics.values()
            for partition in topic.partitions
            if _is_led_beside(partition, broker_id, others)
        ]

    def _can_be_replaced(self, stuck: Sequence[PartitionKey], image: ClusterImage) -> bool:
        """Whether a retry makes sense: a replica can take over, or none is left, as when all brokers stop together.

        This runs for every new image, so it looks only at the partitions that wait for a new leader.
        """
        others = _others(image, self._broker_id)
        found = (image.partition(*key) for key in stuck)
        led = [one for one in found if one is not None and _is_led_beside(one, self._broker_id, others)]
        return not led or any(replica in others for partition in led for replica in partition.isr)

    async def _write_states(
        self, pending: set[tuple[str, int]], next_state: NextState
    ) -> set[tuple[str, int]]:
        """Writes the next state of partitions, in one pass.

        Returns the partitions with version conflicts, as soon as the image shows the other change.
        """
        image = self._watcher.image
        decisions: list[Decision] = []
        for name, index in sorted(pending):
            topic, partition = image.topics.get(name), image.partition(name, index)
            if topic is None or partition is None:
                continue
            state = next_state(topic, partition, image)
            if state is not None:
                decisions += sound(partial(state_change, topic, partition, state), _report_broken)
        lost = await carry_out(self._store, self._watcher, image, decisions)
        return {(one.topic, one.partition) for one in lost if isinstance(one, StateChange)}

    # Sessions

    def _on_session(self, state: SessionState) -> None:
        self._metrics.on_session(state)
        if state is SessionState.SUSPENDED:
            _log.warning("the metadata store cannot be reached", extra={"broker": self._broker_id})
        if state is SessionState.EXPIRED:
            _log.error("the session with the metadata store has ended", extra={"broker": self._broker_id})
            self._image_follower.stop_leading()
            if self._joining_again is not None:
                self._joining_again.cancel()  # in vain: the next attempt needs the next session
            self._begin_rejoining()

    def _on_join_again(self) -> None:
        _log.warning(
            "the broker joins again: the metadata store was restored, and its leader epochs are too low",
            extra={"broker": self._broker_id},
        )
        self._begin_rejoining()

    def _begin_rejoining(self) -> None:
        if self._rejoining is None:
            self._rejoining = asyncio.get_running_loop().create_task(self._rejoin())

    async def _rejoin(self) -> None:
        pause_s = _FIRST_PAUSE_S
        try:
            while not await self._try_rejoin():
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            _log.info("the cluster was joined again", extra={"broker": self._broker_id})
        except StartupError as error:
            if self._lifecycle.failure is None:
                self._lifecycle.fail(str(error))
        except Exception as error:
            # The state of the broker's components is unknown now: it must be restarted before it may lead again.
            _log.error("joining the cluster again failed unexpectedly", exc_info=error)
            self._lifecycle.fail(f"the cluster could not be joined again: {error!r}")
        finally:
            self._rejoining = None

    async def _try_rejoin(self) -> bool:
        """Whether the broker leads again. Raises `StartupError` if it never can."""
        try:
            await self._store.renew()
        except SessionExpired as error:
            raise StartupError(f"the metadata store has been closed: {error}") from error
        except StoreError as error:
            _log.warning("the metadata store opens no new session", extra={"reason": str(error)})
            return False
        self._joining_again = asyncio.get_running_loop().create_task(self.join())
        try:
            await asyncio.wait({self._joining_again})
            if self._joining_again.cancelled():
                return False
            self._joining_again.result()
        except StoreError as error:
            _log.warning("the cluster could not be joined again", extra={"reason": str(error)})
            return False
        finally:
            self._joining_again.cancel()
            self._joining_again = None
        return await self._image_follower.lead_again()

    async def stop(self) -> None:
        """Stops background tasks, and stops listening to the session."""
        self._stop_listening()
        tasks = [task for task in (self._rejoining, self._reaching) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _address(endpoint: Endpoint) -> tuple[str, int]:
    return endpoint.host, endpoint.port


def _is_led_beside(partition: PartitionImage, broker_id: int, others: set[int]) -> bool:
    """Whether the broker leads the partition although another broker with a replica is alive."""
    return partition.leader == broker_id and any(replica in others for replica in partition.replicas)


def _others(image: ClusterImage, broker_id: int) -> set[int]:
    return {other for other in image.brokers if other != broker_id}


def _at(registration: Node) -> str:
    endpoints = layout.decode_broker(registration.data).endpoints
    return f" at {endpoints[0].host}:{endpoints[0].port}" if endpoints else ""


def _report_broken(error: BrokenInvariant) -> None:
    """One partition keeps its state: the state was edited by hand, for example."""
    _log.error(
        "an invariant is broken: a partition's state is not changed",
        extra={"invariant": error.name, "reason": str(error)},
    )
