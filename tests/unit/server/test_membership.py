"""Membership in a cluster: broker ids, duplicates and expired sessions."""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.topics import PRODUCE_BY_NAME, batch_of, produce_request
from conformance.wire import Wire
from felice.controller.election import fence_previous_incarnation
from felice.controller.topic_plans import NewTopic
from felice.env import Environment
from felice.log.log import Log
from felice.metadata import ClusterImage, SessionState, layout
from felice.metadata.image import PartitionImage
from felice.metadata.layout import StateNode
from felice.metadata.memory import MemoryEnsemble, MemoryStore
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.produce import ProduceResponse
from felice.replication import follower
from felice.replication.follower import TruncateTo
from felice.replication.leader import IsrProposal
from felice.replication.partition import NO_EPOCH
from felice.server.broker import Broker
from felice.server.membership import membership
from felice.server.membership.store_sources import SharedSource
from felice.server.process.local_cluster import known_config, local_settings
from felice.server.startup import StartupError
from peers.apache_kafka import free_port
from waiting import LIMIT_S, until


class World:
    """Brokers around one store in memory, whose sessions a test may end."""

    def __init__(self, directory: Path) -> None:
        self.ensemble = MemoryEnsemble()
        self.brokers: list[Broker] = []
        self._directory = directory

    async def start(self, broker_id: int | None, timeout_ms: int = 0, **options: str) -> Broker:
        properties = {
            **local_settings(1),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(self._directory / f"broker{broker_id}"),
            **({} if broker_id is None else {"node.id": str(broker_id)}),
            **{name.replace("_", "."): value for name, value in options.items()},
        }
        source = SharedSource(self.ensemble.connect, timeout_ms)
        broker = Broker(known_config(properties), Environment.system(), store_source=source)
        await broker.start()
        self.brokers.append(broker)
        return broker

    def expire(self, broker: Broker) -> None:
        assert broker._store is not None
        self.ensemble.expire(broker._store.session_id)


def run(tmp_path: Path, scenario: Callable[[World], Awaitable[None]]) -> None:
    async def whole() -> None:
        world = World(tmp_path)
        try:
            await scenario(world)
        finally:
            for broker in world.brokers:
                await broker.stop(hand_over=False)

    asyncio.run(whole())


async def create(broker: Broker, name: str, *replicas: tuple[int, ...]) -> None:
    await broker.services.changes.cluster.create_topic(NewTopic(name, assignment=dict(enumerate(replicas))))


async def shows(broker: Broker, condition: Callable[[ClusterImage], bool]) -> None:
    assert await broker.services.watcher.wait_until(condition, LIMIT_S), broker.image


def leader_of(image: ClusterImage, topic: str) -> int:
    partition = image.partition(topic, 0)
    return -1 if partition is None else partition.leader


def test_a_suspended_broker_detects_its_expired_session_before_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What clients sent meanwhile is read before anything that the store said."""

    async def scenario(world: World) -> None:
        one = await world.start(1)
        await create(one, "t", (1,))
        request = produce_request("t", batch_of(b"value"), acks=1)
        with Wire(f"127.0.0.1:{one.port()}") as wire:
            ask = functools.partial(asyncio.to_thread, wire.ask, request, PRODUCE_BY_NAME)
            assert _error_of(await ask()) == ErrorCode.NONE
            # A store with a clock: every reader of the state sees that the session has ended.
            is_late = [True]
            state = MemoryStore.session_state.fget

            def look(store: MemoryStore) -> SessionState:
                if is_late and is_late.pop():
                    world.expire(one)
                return state(store)

            monkeypatch.setattr(MemoryStore, "session_state", property(look))
            assert _error_of(await ask()) == ErrorCode.NOT_LEADER_OR_FOLLOWER
            await shows(one, lambda image: leader_of(image, "t") == 1)
            found = one.services.partitions.find("t", 0)
            assert found.log_end_offset == 1

    run(tmp_path, scenario)


def _error_of(response: ProduceResponse) -> int:
    return response.responses[0].partition_responses[0].error_code


def test_a_broker_that_lost_its_session_leads_nothing_until_it_is_registered_again(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1), await world.start(2)
        await create(one, "shared", (1, 2))
        await create(one, "alone", (1,))
        epoch_before = one.image.brokers[1].epoch
        partition = one.services.partitions.find("alone", 0)
        partition.check_leader(NO_EPOCH)
        world.expire(one)
        # At once, in the same turn of the loop: nothing was awaited.
        for name in ("shared", "alone"):
            with pytest.raises(ApiError) as refused:
                one.services.partitions.find(name, 0).check_leader(NO_EPOCH)
            assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not one.controller.is_controller
        await shows(two, lambda image: leader_of(image, "shared") == 2)
        # By itself it comes back, leads what nobody else could, and in a new epoch.
        await shows(one, lambda image: 1 in image.brokers and image.brokers[1].epoch > epoch_before)
        await shows(two, lambda image: leader_of(image, "alone") == 1)
        await until(lambda: partition.is_leader)
        assert partition.leader_epoch > 0
        assert not one.services.partitions.find("shared", 0).is_leader

    run(tmp_path, scenario)


def test_a_start_leaves_a_state_that_would_break_an_invariant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fence = fence_previous_incarnation

    def outside(partition: PartitionImage, broker_id: int, *others: Any) -> StateNode | None:
        state = fence(partition, broker_id, *others)
        return replace(state, isr=(7,)) if state is not None and partition.partition == 0 else state

    async def scenario(world: World) -> None:
        first = await world.start(1)
        await create(first, "alone", (1,), (1,))
        await first.stop(hand_over=False)
        world.brokers.clear()
        monkeypatch.setattr(membership, "fence_previous_incarnation", outside)
        caplog.set_level(logging.ERROR)
        again = await world.start(1)
        rows = again.image.topics["alone"].partitions
        assert [(row.leader_epoch, row.isr) for row in rows] == [(0, (1,)), (1, (1,))]
        facts = [vars(record) for record in caplog.records]
        assert [(fact["invariant"], "alone-0" in fact["reason"]) for fact in facts] == [("R4", True)]

    run(tmp_path, scenario)


def test_a_leader_whose_image_lags_behind_its_own_change_stops_leading_with_its_session(
    tmp_path: Path,
) -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        await world.start(2)
        await create(one, "shared", (1, 2))
        partition = one.services.partitions.find("shared", 0)
        leader = partition.leader
        assert leader is not None
        # The answer to a change of the ISR came, and then nothing more: no image shows it.
        leader.proposal = IsrProposal((1,), leader.epoch, leader.partition_epoch)
        partition.on_proposal_committed(leader.proposal, leader.partition_epoch + 1)
        world.expire(one)
        assert not partition.is_leader

    run(tmp_path, scenario)


def test_metrics_count_expired_sessions_and_show_the_session_state(tmp_path: Path) -> None:
    names = "kafka.server:type=SessionExpireListener,name="

    async def scenario(world: World) -> None:
        one = await world.start(1)
        epoch = one.image.brokers[1].epoch
        before = one.services.metrics.snapshot()
        assert (before[f"{names}SessionState"], before[f"{names}ZooKeeperExpiresPerSec"]) == ("CONNECTED", 0)
        world.expire(one)
        during = one.services.metrics.snapshot()
        assert (during[f"{names}SessionState"], during[f"{names}ZooKeeperExpiresPerSec"]) == ("EXPIRED", 1)
        assert during["kafka.controller:type=KafkaController,name=ActiveControllerCount"] == 0
        await shows(one, lambda image: 1 in image.brokers and image.brokers[1].epoch > epoch)
        assert one.services.metrics.snapshot()[f"{names}SessionState"] == "CONNECTED"

    run(tmp_path, scenario)


def test_the_controllers_session_ends_and_another_takes_over(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1), await world.start(2)
        assert one.controller.is_controller
        world.expire(one)
        await shows(two, lambda image: image.controller_id == 2 and image.controller_epoch == 2)
        await shows(one, lambda image: sorted(image.brokers) == [1, 2] and image.controller_id == 2)
        assert not one.controller.is_controller
        # It was registered before and after, and changes topics as any broker may.
        await create(one, "a", (1, 2))
        assert two.services.partitions.get("a", 0) is not None

    run(tmp_path, scenario)


def test_a_broker_that_stands_alone_survives_the_end_of_its_session(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        await create(one, "a", (1,))
        for life in range(2, 5):
            world.expire(one)
            await shows(one, lambda image, life=life: image.controller_epoch == life)  # type: ignore[misc]
        await shows(one, lambda image: 1 in image.brokers and image.controller_id == 1)
        partition = one.services.partitions.find("a", 0)
        await until(lambda: partition.is_leader and partition.leader_epoch == leader_epoch(one))
        assert one.controller.epoch == one.image.controller_epoch

    run(tmp_path, scenario)


def leader_epoch(broker: Broker) -> int:
    partition = broker.image.partition("a", 0)
    assert partition is not None
    return partition.leader_epoch


def test_a_second_broker_of_one_id_is_refused_by_name(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        with pytest.raises(StartupError, match=rf"node.id 1 is alive at 127.0.0.1:{one.port()}"):
            await world.start(1, log_dirs=str(tmp_path / "other"))
        assert one.services.partitions is not None

    run(tmp_path, scenario)


def test_a_restarted_broker_waits_until_its_previous_session_has_expired(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        await create(one, "a", (1,))
        await one.kill()  # its session lives on in the store
        assert one.broker_id in (await world.start(2)).image.brokers
        assert one._store is None
        again = asyncio.ensure_future(world.start(1, int(LIMIT_S * 1000)))
        await asyncio.sleep(0.3)
        assert not again.done()
        world.ensemble.expire(1)
        broker = await again
        await shows(broker, lambda image: leader_of(image, "a") == 1)
        assert broker.services.partitions.find("a", 0).is_leader

    run(tmp_path, scenario)


def test_ids_are_generated_once_and_kept(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        first = await world.start(-1, log_dirs=str(tmp_path / "a"))
        second = await world.start(-1, log_dirs=str(tmp_path / "b"), reserved_broker_max_id="1000")
        assert [first.broker_id, second.broker_id] == [1001, 1002]
        assert sorted(second.image.brokers) == [1001, 1002]
        await first.stop()
        again = await world.start(-1, log_dirs=str(tmp_path / "a"))
        assert again.broker_id == 1001

    run(tmp_path, scenario)


def test_a_generated_id_is_not_replaced_because_its_disk_is_dead(tmp_path: Path) -> None:
    """`a` is dead: it may hold an id. `b` is alive, and has one or is empty."""

    async def scenario(world: World) -> None:
        a, b, empty = tmp_path / "a", tmp_path / "b", tmp_path / "empty"
        first = await world.start(-1, log_dirs=f"{a},{b}")
        await first.stop()
        (a / "meta.properties").unlink()
        (a / "meta.properties").mkdir()  # cannot be read
        with pytest.raises(StartupError, match=r"a cannot be used: Is a directory; set node.id"):
            await world.start(-1, log_dirs=f"{a},{empty}")
        again = await world.start(-1, log_dirs=f"{a},{b}")
        assert again.broker_id == first.broker_id
        # The store is elsewhere: the first directory is as good as any.
        assert [directory.offline_reason is None for directory in again.directories] == [False, True]

    run(tmp_path, scenario)


def test_a_broker_without_a_configured_id_gets_a_generated_one(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        broker = await world.start(None)
        assert broker.broker_id == 1001
        with pytest.raises(StartupError, match="set node.id"):
            await world.start(None, log_dirs=str(tmp_path / "b"), broker_id_generation_enable="false")

    run(tmp_path, scenario)


def test_an_address_that_another_broker_has_is_refused(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        same = f"PLAINTEXT://127.0.0.1:{one.port()}"
        with pytest.raises(StartupError, match="broker 1 is registered at 127.0.0.1"):
            await world.start(2, advertised_listeners=same)

    run(tmp_path, scenario)


def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await (await world.start(1)).stop()
        other = World(tmp_path)
        with pytest.raises(StartupError, match=r"belongs to cluster .*, whose metadata is gone"):
            await other.start(1)
        # Nothing was written there, so a new broker may begin a cluster.
        await other.start(2)
        with pytest.raises(StartupError, match=r"belongs to cluster .*, this broker to cluster .* chroot"):
            await other.start(1)
        for broker in other.brokers:
            await broker.stop()

    run(tmp_path, scenario)


def test_a_new_cluster_is_logged_as_a_warning_if_an_option_selects_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SharedSource, "where", "zookeeper.connect=h:2181/kafak")

    def began() -> list[tuple[str, str]]:
        found = [
            (record.levelname, record.at)  # type: ignore[attr-defined]
            for record in caplog.records
            if "a NEW one begins" in record.message
        ]
        caplog.clear()
        return found

    async def scenario(world: World) -> None:
        await world.start(1)
        assert began() == [("WARNING", "zookeeper.connect=h:2181/kafak")]
        await (await world.start(2)).stop()
        assert began() == []
        other = World(tmp_path)
        refused = r"belongs to cluster .*, and there is none at zookeeper.connect=h:2181/kafak; .*chroot"
        with pytest.raises(StartupError, match=refused):
            await other.start(2)
        assert began() == []

    with caplog.at_level("INFO", "felice.server"):
        run(tmp_path, scenario)


def test_a_broker_whose_id_was_taken_while_it_had_no_session_gives_up(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        intruder = world.ensemble.connect()
        failed = asyncio.Event()
        one.lifecycle.on_failure = failed.set
        registration = (await intruder.get(layout.broker_path(1))).data
        world.expire(one)
        await intruder.create(layout.broker_path(1), registration, ephemeral=True)
        await asyncio.wait_for(failed.wait(), LIMIT_S)
        assert one.lifecycle.failure is not None
        assert "another broker with node.id 1 is alive" in one.lifecycle.failure

    run(tmp_path, scenario)


def test_a_fault_while_the_cluster_is_joined_again_is_logged_and_ends_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        failed = asyncio.Event()
        one.lifecycle.on_failure = failed.set

        async def broken() -> bool:
            raise RuntimeError("a fault")

        monkeypatch.setattr(one.services.image_follower, "lead_again", broken)
        world.expire(one)
        await asyncio.wait_for(failed.wait(), LIMIT_S)
        assert one.lifecycle.failure == "the cluster could not be joined again: RuntimeError('a fault')"

    run(tmp_path, scenario)
    [logged] = [record for record in caplog.records if record.exc_info]
    assert logged.message == "joining the cluster again failed unexpectedly"


def test_an_unreachable_advertised_address_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1, advertised_listeners="PLAINTEXT://127.0.0.1:1")
        assert one.membership._reaching is not None
        await one.membership._reaching

    run(tmp_path, scenario)
    assert [row.listener for row in caplog.records if hasattr(row, "listener")] == ["PLAINTEXT://127.0.0.1:1"]


def test_an_advertised_address_of_another_broker_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def reason(world: World, port: int) -> str:
        """What a broker 2 says that is told to be at somebody else's port."""
        caplog.clear()
        broker = await world.start(2, advertised_listeners=f"PLAINTEXT://localhost:{port}")
        assert broker.membership._reaching is not None
        await broker.membership._reaching
        await broker.stop()
        [told] = [row for row in caplog.records if hasattr(row, "listener")]
        return str(told.reason)  # type: ignore[attr-defined]

    async def scenario(world: World) -> None:
        one, stranger = await world.start(1), World(tmp_path / "elsewhere")
        neighbour = await reason(world, one.port())
        assert "another broker of this cluster answers there" in neighbour
        assert "expected 1" in neighbour
        other = await stranger.start(2)
        assert f"a broker of cluster {other.image.cluster_id} answers there" == await reason(
            world, other.port()
        )
        await other.stop()
        hangs_up = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        async with hangs_up:
            assert "closed the connection" in await reason(world, hangs_up.sockets[0].getsockname()[1])

    run(tmp_path, scenario)


def test_a_broker_that_may_not_ask_for_its_configuration_gives_no_false_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The user of the brokers is no super user: the refusal says nothing about the address."""
    caplog.set_level(logging.INFO)

    async def scenario(world: World) -> None:
        one = await world.start(
            1,
            advertised_listeners="PLAINTEXT://localhost:0",
            authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            super_users="User:admin",
        )
        assert one.membership._reaching is not None
        await one.membership._reaching

    run(tmp_path, scenario)
    [told] = [row for row in caplog.records if "advertised" in row.message]
    assert (told.levelname, "not authorised" in told.message) == ("INFO", True)


@pytest.mark.parametrize("host", ["localhost", ""])
def test_reachable_advertised_addresses_cause_no_warning(
    host: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "hostname", lambda: "localhost")

    async def scenario(world: World) -> None:
        # One port for all addresses of the machine, and both families of them.
        everywhere = {"listeners": f"PLAINTEXT://:{free_port()}"}
        told = {"advertised_listeners": f"PLAINTEXT://{host}:0"} if host else everywhere
        one = await world.start(1, **told)
        assert one.membership._reaching is not None
        await one.membership._reaching

    run(tmp_path, scenario)
    assert "advertised" not in caplog.text


def truncating(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who follows cuts its log first, which the disk refuses."""

    def refuse(log: Log, offset: int) -> None:
        raise log._fail(OSError(errno.EIO, "Input/output error"))

    monkeypatch.setattr(follower, "before_following", lambda epochs, **facts: TruncateTo(0, False))
    monkeypatch.setattr(Log, "truncate_to", refuse)


def test_a_start_whose_only_disk_fails_during_a_truncation_reports_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        one, two = await world.start(1), await world.start(2)
        await create(one, "shared", (1, 2))
        await two.stop()
        truncating(monkeypatch)
        with pytest.raises(StartupError, match=r"^all log directories are offline: .*Input/output error$"):
            await world.start(2)

    run(tmp_path, scenario)


def test_a_start_continues_with_other_disks_if_a_log_cannot_be_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks = f"{tmp_path / 'x'},{tmp_path / 'y'}"

    async def scenario(world: World) -> None:
        one, two = await world.start(1), await world.start(2, log_dirs=disks)
        await create(one, "shared", (1, 2))
        await create(one, "alone", (2,))
        await two.stop()
        truncating(monkeypatch)
        again = await world.start(2, log_dirs=disks)
        await shows(again, lambda image: leader_of(image, "alone") == 2)
        while not again.services.partitions.find("alone", 0).is_leader:
            await asyncio.sleep(0.01)
        assert not again.services.partitions.find("shared", 0).is_open
        # What it cannot serve is not its any more.
        await shows(one, lambda image: image.topics["shared"].partitions[0].isr == (1,))

    run(tmp_path, scenario)
