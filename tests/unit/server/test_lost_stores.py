"""A store that is emptied, restored, or edited under running brokers: no log that nobody deleted disappears."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from conformance.topics import batch_of
from conformance.wire import Wire
from felice.metadata import Node, StoreUnavailable, layout
from felice.metadata.image import ImageBuilder
from felice.metadata.memory import MemoryEnsemble, MemoryStore
from felice.metadata.store import Operation
from felice.metadata.tree import OperationResult
from felice.protocol.messages.metadata import MetadataRequest
from felice.server.broker import Broker
from felice.server.membership import membership
from felice.server.membership.deleted_topics import DeletedTopics
from felice.server.startup import StartupError
from unit.server.test_membership import World, create, leader_of, run, shows
from waiting import LIMIT_S, until

Backup = tuple[int, list[tuple[str, Node, int]]]


def backup(ensemble: MemoryEnsemble) -> Backup:
    return ensemble.tree.zxid, [row for row in ensemble.tree.walk() if not row[1].ephemeral_owner]


async def restore(world: World, state: Backup) -> None:
    """As when all servers of the ensemble are stopped, and started with other data."""
    world.ensemble.tree.restore(*state)
    for broker in world.brokers:
        if not broker.lifecycle.has_stop_begun:
            world.expire(broker)


EMPTY: Backup = (0, [("/", Node(b"", 0, 0, 0), 0)])


async def produce(broker: Broker, name: str, count: int = 1) -> None:
    await until(lambda: broker.services.partitions.find(name, 0).is_leader)
    for _ in range(count):
        partition = broker.services.partitions.find(name, 0)
        partition.append(batch_of(b"value"), required_acks=1, now_ms=broker.env.clock.now_ms())


def end_of(broker: Broker, name: str) -> int:
    found = broker.services.partitions.get(name, 0)
    return found.log_end_offset if found is not None and found.is_open else -1


def logs_in(directory: Path, *kinds: str) -> list[str]:
    """The partitions with a log: served, `stray`, or `delete`."""
    names = [path.name for path in directory.iterdir() if path.is_dir()]
    return sorted(name for name in names if not kinds or name.endswith(tuple(f"-{kind}" for kind in kinds)))


async def failed(broker: Broker) -> str:
    await until(lambda: broker.lifecycle.failure is not None)
    assert broker.lifecycle.failure is not None
    return broker.lifecycle.failure


def test_brokers_of_an_emptied_store_stop_when_another_cluster_begins_there(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        old = [await world.start(number) for number in (1, 2, 3)]
        await create(old[0], "orders", (1, 2, 3))
        await produce(old[0], "orders", 5)
        own = old[0].image.cluster_id
        await restore(world, EMPTY)
        fourth = await world.start(4)
        other = fourth.image.cluster_id
        assert own != other
        for broker in old:
            failure = await failed(broker)
            assert f"has cluster {other}, but" in failure and f"belong to cluster {own}" in failure
            await broker.stop()
            world.brokers.remove(broker)
            assert logs_in(tmp_path / f"broker{broker.broker_id}") == ["orders-0"]
        assert sorted(fourth.image.brokers) == [4] and fourth.controller.is_controller
        assert world.ensemble.tree.children(layout.TOPICS) == []

    run(tmp_path, scenario)


def test_a_broker_that_sees_another_cluster_in_its_session_stops(tmp_path: Path) -> None:
    """A store that is replaced without the end of a session."""

    async def scenario(world: World) -> None:
        one = await world.start(1)
        await create(one, "orders", (1,))
        await produce(one, "orders")
        state = backup(world.ensemble)
        other = (layout.CLUSTER_ID, layout.encode_cluster_id("other"))
        changed = [row for row in state[1] if not row[0].startswith("/brokers/topics/")]
        changed = [
            (path, Node(other[1], 0, 1, 1) if path == other[0] else node, births)
            for path, node, births in changed
        ]
        partition = one.services.partitions.find("orders", 0)
        world.ensemble.tree.restore(state[0], changed)
        assert one._store is not None
        world.ensemble.suspend(one._store.session_id)
        world.ensemble.resume(one._store.session_id)
        assert "has cluster other, but" in await failed(one)
        assert not partition.is_leader
        await one.stop()
        world.brokers.clear()
        assert logs_in(tmp_path / "broker1") == ["orders-0"]

    run(tmp_path, scenario)


def test_brokers_of_an_emptied_store_wait_until_it_is_restored(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        brokers = [await world.start(number) for number in (1, 2)]
        await create(brokers[0], "orders", (1, 2))
        await produce(brokers[0], "orders", 5)
        await until(lambda: end_of(brokers[1], "orders") == 5)
        state = backup(world.ensemble)
        await restore(world, EMPTY)
        await asyncio.sleep(0.1)
        assert world.ensemble.tree.children("/") == [], "nobody writes into a store that may be restored"
        await restore(world, state)
        for broker in brokers:
            await until(lambda: end_of(brokers[0], "orders") == end_of(brokers[1], "orders") == 5)
            assert broker.lifecycle.failure is None
        await produce(brokers[leader_of(brokers[0].image, "orders") - 1], "orders")

    run(tmp_path, scenario)


@pytest.mark.parametrize("restarts", [False, True])
def test_topics_newer_than_a_restored_store_are_set_aside_and_come_back(
    tmp_path: Path, restarts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        await create(one, "old", (1,))
        await produce(one, "old", 2)
        before = backup(world.ensemble)
        await create(one, "new", (1,))
        await produce(one, "new", 3)
        await produce(one, "old", 2)
        after = backup(world.ensemble)
        for state, ends in ((before, (4, -1)), (after, (4, 3)), (before, (4, -1)), (after, (4, 3))):
            if restarts:
                await one.stop()
                world.brokers.remove(one)
                world.ensemble.tree.restore(*state)
                one = await world.start(1)
            else:
                await restore(world, state)
            await until(lambda one=one, ends=ends: (end_of(one, "old"), end_of(one, "new")) == ends)  # type: ignore[misc]
            assert logs_in(tmp_path / "broker1", "delete") == []
            assert len(logs_in(tmp_path / "broker1", "stray")) == (ends[1] < 0)
        await produce(one, "new")
        assert one.lifecycle.failure is None

    with caplog.at_level(logging.WARNING):
        run(tmp_path, scenario)
    assert "a log that was set aside is back" in caplog.text
    assert (
        "there is no record of its deletion" in str([vars(record).get("reason") for record in caplog.records])
        or restarts
    )


def test_a_restored_store_gets_leader_epochs_above_those_of_the_logs(tmp_path: Path) -> None:
    """Otherwise batches of two leaders could have the same epoch."""

    async def scenario(world: World) -> None:
        one, two = await world.start(1), await world.start(2)
        await create(one, "orders", (1, 2))
        before = backup(world.ensemble)
        for _ in range(4):
            world.expire(one)
            await shows(two, lambda image: leader_of(image, "orders") == 2)
            await until(lambda: set(two.image.topics["orders"].partitions[0].isr) == {1, 2})
            world.expire(two)
            await shows(one, lambda image: leader_of(image, "orders") == 1)
            await until(lambda: set(one.image.topics["orders"].partitions[0].isr) == {1, 2})
        await produce(one, "orders")
        latest = one.services.partitions.find("orders", 0).log.epochs.latest
        await until(lambda: two.services.partitions.find("orders", 0).log.epochs.latest == latest)
        assert latest >= 8
        await restore(world, before)
        brokers = {1: one, 2: two}

        def leads_above() -> bool:
            leader = brokers.get(leader_of(one.image, "orders"))
            found = leader.services.partitions.get("orders", 0) if leader is not None else None
            return found is not None and found.is_leader and found.leader_epoch > latest

        await until(leads_above)
        await produce(brokers[leader_of(one.image, "orders")], "orders")
        await until(lambda: end_of(one, "orders") == end_of(two, "orders") == 2)

    run(tmp_path, scenario)


def _remove_by_hand(world: World, topic: str) -> list[Operation]:
    from felice.metadata.store import Delete

    paths = [path for path, _, _ in world.ensemble.tree.walk() if path.startswith(layout.topic_path(topic))]
    return [Delete(path) for path in reversed(paths)]


@pytest.mark.parametrize("is_away", [False, True])
def test_a_topic_whose_node_is_removed_by_hand_keeps_its_logs(tmp_path: Path, is_away: bool) -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        await create(one, "orders", (1,))
        await produce(one, "orders", 3)
        state = backup(world.ensemble)
        if is_away:
            await one.stop()
            world.brokers.remove(one)
        operator = world.ensemble.connect()
        await operator.multi(_remove_by_hand(world, "orders"))
        if is_away:
            one = await world.start(1)
        await until(lambda: len(logs_in(tmp_path / "broker1", "stray")) == 1)
        assert logs_in(tmp_path / "broker1", "delete") == []
        await restore(world, state)
        await until(lambda: end_of(one, "orders") == 3)

    run(tmp_path, scenario)


def test_a_broker_that_was_away_deletes_topics_whose_deletion_was_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        brokers = {number: await world.start(number) for number in (1, 2, 3)}
        for name in ("first", "again", "kept"):
            await create(brokers[1], name, (1, 2, 3))
            await produce(brokers[1], name)
            for number in (2, 3):
                await until(lambda name=name, number=number: end_of(brokers[number], name) == 1)  # type: ignore[misc]
        await brokers[3].stop()
        world.brokers.remove(brokers[3])
        for name in ("first", "again"):
            topic_id = brokers[1].image.topics[name].topic_id
            await brokers[1].services.changes.cluster.delete_topic(name)
            assert brokers[1].image.deleted_topics[topic_id].keys() == {1, 2, 3}
        await create(brokers[1], "again", (1, 2))
        for number in (1, 2):
            await confirm(brokers[number])
            assert len(logs_in(tmp_path / f"broker{number}", "delete")) <= 2
            assert logs_in(tmp_path / f"broker{number}", "stray") == []
        await shows(brokers[1], lambda image: {3} == set().union(*image.deleted_topics.values()))
        brokers[3] = await world.start(3)
        assert logs_in(tmp_path / "broker3", "stray") == []
        assert [name for name in logs_in(tmp_path / "broker3") if "." not in name] == ["kept-0"]
        await confirm(brokers[3])
        await shows(brokers[1], lambda image: not image.deleted_topics)
        assert end_of(brokers[1], "again") == 0

    run(tmp_path, scenario)


async def confirm(broker: Broker) -> None:
    """Does what maintenance does every few seconds."""
    assert broker._store is not None
    await DeletedTopics(broker.services, broker._store).confirm()


def test_a_record_stays_until_the_deletion_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1, log_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}")
        for name in ("x", "y"):
            await create(one, name, (1,))
        await one.services.changes.cluster.delete_topic("x")
        other = one.directories[1 - [("y", 0) in found.logs for found in one.directories].index(True)]

        def refuse() -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(other, "sync_names", refuse)
        await confirm(one)
        assert other.offline_reason is not None
        await confirm(one)
        assert len(one.image.deleted_topics) == 1

    run(tmp_path, scenario)


def test_the_number_of_records_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("felice.server.membership.deleted_topics.MAX_RECORDS", 2)

    async def scenario(world: World) -> None:
        one, two = await world.start(1), await world.start(2)
        topics = []
        for number in range(4):
            await create(one, f"t{number}", (2,))
            topics.append(one.image.topics[f"t{number}"].topic_id)
        await two.stop()
        world.brokers.remove(two)
        for number in range(4):
            await one.services.changes.cluster.delete_topic(f"t{number}")
        await confirm(one)
        await shows(one, lambda image: list(image.deleted_topics) == topics[2:])

    run(tmp_path, scenario)


def test_a_store_without_the_parent_of_records_gets_it_with_the_first_deletion(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        await create(one, "orders", (1,))
        await world.ensemble.connect().delete(layout.DELETED_TOPICS)
        await one.services.changes.cluster.delete_topic("orders")
        await until(lambda: len(logs_in(tmp_path / "broker1", "delete")) == 1)

    run(tmp_path, scenario)


def test_a_store_with_topics_but_without_a_cluster_id_begins_no_cluster(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        await create(one, "orders", (1,))
        await world.ensemble.connect().delete(layout.CLUSTER_ID)
        with pytest.raises(StartupError, match="1 topics but no cluster id"):
            await world.start(2)
        await create(one, "more", (1,))
        assert one.lifecycle.failure is None

    run(tmp_path, scenario)


class Pauses:
    """Ends the session of a broker, or loses an answer, at chosen operations of the store."""

    def __init__(self, world: World, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ending: set[int] = set()
        self.losing: set[int] = set()
        self.count = 0
        store = broker._store
        assert isinstance(store, MemoryStore)
        reach, multi = store._wait_readable, store.multi

        def count_one() -> None:
            self.count += 1
            if self.count in self.ending:
                world.ensemble.expire(store.session_id)

        async def read(path: str = "/") -> None:
            count_one()
            await reach(path)

        async def write(operations: Sequence[Operation]) -> list[OperationResult]:
            count_one()
            outcome = await multi(operations)
            count_one()
            if self.count in self.losing:
                raise StoreUnavailable("/", "the connection was lost before the answer came")
            return outcome

        monkeypatch.setattr(store, "_wait_readable", read)
        monkeypatch.setattr(store, "multi", write)


@pytest.mark.parametrize("first", range(1, 40, 3))
def test_a_broker_outlives_the_end_of_sessions_at_any_moment_of_joining(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setattr(membership, "_FIRST_PAUSE_S", 0.001)

    async def scenario(world: World) -> None:
        one = await world.start(1)
        await create(one, "orders", (1,))
        await produce(one, "orders", 3)
        pauses = Pauses(world, one, monkeypatch)
        pauses.ending = {first, first + 1, first + 2, first + 5, 2 * first + 7, 60, 75}
        pauses.losing = {first + 9, first + 10}
        world.expire(one)
        await until(lambda: pauses.count > 80 or one.membership._rejoining is None)
        await until(lambda: one.membership._rejoining is None)
        assert one.lifecycle.failure is None
        await produce(one, "orders")
        assert end_of(one, "orders") == 4
        assert logs_in(tmp_path / "broker1") == ["orders-0"]

    run(tmp_path, scenario)


def test_a_broker_waits_as_long_as_the_store_does_not_report_its_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(membership, "_SHOWN_WITHIN_S", 0.01)

    async def scenario(world: World) -> None:
        one = await world.start(1)
        await create(one, "orders", (1,))
        watcher, held = one.services.watcher, asyncio.Event()
        read = watcher._read_all

        async def held_back(builder: ImageBuilder) -> None:
            await held.wait()
            await read(builder)

        monkeypatch.setattr(watcher, "_read_all", held_back)
        world.expire(one)
        await until(lambda: "does not report its changes yet" in caplog.text)
        # The next pause of the store begins before the registration is shown.
        world.expire(one)
        held.set()
        await produce(one, "orders")
        assert one.lifecycle.failure is None

    run(tmp_path, scenario)


async def _fail(world: World, joining: membership.Membership) -> None:
    joining._lifecycle.fail("the last log directory failed")


async def _replace_session(world: World, joining: membership.Membership) -> None:
    before = joining._store.session_id
    world.ensemble.expire(before)
    await until(lambda: joining._store.session_id != before)


async def _end_session_without_another(world: World, joining: membership.Membership) -> None:
    async def renew() -> None:
        raise StoreUnavailable("/", "no server can be reached")

    joining._store.renew = renew  # type: ignore[method-assign]
    world.ensemble.expire(joining._store.session_id)


@pytest.mark.parametrize(
    ("happen", "reason"),
    [
        (_fail, "the last log directory failed"),
        (_replace_session, "the metadata store cannot be used: .*session"),
        (_end_session_without_another, "the metadata store cannot be used: .*session"),
    ],
)
def test_a_start_ends_when_its_registration_can_no_longer_be_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    happen: Callable[[World, membership.Membership], Awaitable[None]],
    reason: str,
) -> None:
    """The store does not report the registration, and then a failure or the end of the session makes waiting vain."""
    monkeypatch.setattr(membership, "_SHOWN_WITHIN_S", 0.01)

    async def scenario(world: World) -> None:
        joining, register = list[membership.Membership](), membership.Membership._register

        async def report_nothing(*_: object) -> None:
            await asyncio.Event().wait()

        async def register_unseen(self: membership.Membership) -> None:
            for name in ("_read_marked", "_read_all"):
                monkeypatch.setattr(self._watcher, name, report_nothing)
            await register(self)
            joining.append(self)

        monkeypatch.setattr(membership.Membership, "_register", register_unseen)
        start = asyncio.create_task(world.start(1))
        await until(lambda: joining)
        await happen(world, joining[0])
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(StartupError, match=reason):
                await start

    run(tmp_path, scenario)


def test_a_session_that_ends_between_joining_and_leading_sets_no_log_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at a start, where no image was followed yet."""

    async def scenario(world: World) -> None:
        one = await world.start(1)
        await create(one, "orders", (1,))
        await produce(one, "orders", 3)
        await one.stop()
        world.brokers.clear()
        joined = membership.Membership.join

        async def join(self: membership.Membership) -> None:
            await joined(self)
            monkeypatch.setattr(membership.Membership, "join", joined)
            world.ensemble.expire(self._store.session_id)

        monkeypatch.setattr(membership.Membership, "join", join)
        one = await world.start(1)
        await until(lambda: end_of(one, "orders") == 3)
        assert logs_in(tmp_path / "broker1") == ["orders-0"]

    run(tmp_path, scenario)


def test_an_earlier_session_of_the_same_process_does_not_keep_it_from_joining(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that was suspended has not ended the sessions that its clients gave up."""

    async def scenario(world: World) -> None:
        one = await world.start(1)
        epoch = one.image.brokers[1].epoch
        store = one._store
        assert isinstance(store, MemoryStore)
        for _ in range(3):
            store.lose()  # only the broker thinks so
            await shows(one, lambda image, epoch=epoch: 1 in image.brokers and image.brokers[1].epoch > epoch)  # type: ignore[misc]
            epoch = one.image.brokers[1].epoch
            await until(lambda: one.membership._rejoining is None)
        assert one.lifecycle.failure is None

    run(tmp_path, scenario)


def test_offsets_of_a_topic_that_the_store_lost_are_kept(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        await create(one, "orders", (1,))
        await create(one, "deleted", (1,))
        groups, told = one.services.coordinators.groups, list[list[str]]()
        groups.on_topics_deleted = lambda topics: told.append(list(topics))  # type: ignore[method-assign]
        await until(lambda: {"orders", "deleted"} <= groups._known_topics.keys())
        await world.ensemble.connect().multi(_remove_by_hand(world, "orders"))
        await one.services.changes.cluster.delete_topic("deleted")
        await until(lambda: told)
        assert told == [["deleted"]]
        assert "orders" not in one.image.topics
        await create(one, "orders", (1,))
        await until(lambda: told[1:])
        assert told[1:] == [["orders"]], "another topic must not begin at the offsets of the lost one"

    run(tmp_path, scenario)


def test_replicas_in_a_failed_directory_of_a_live_broker_are_offline(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        one = await world.start(1)
        two = await world.start(2, log_dirs=f"{tmp_path / 'x'},{tmp_path / 'y'}")
        for name in ("a", "b"):
            await create(one, name, (1, 2))
        await shows(two, lambda image: {"a", "b"} <= image.topics.keys())
        failing = next(found for found in two.directories if ("a", 0) in found.logs)
        failing.fail(OSError(5, "Input/output error"))

        def offline(name: str) -> list[int]:
            return one.image.offline_replicas(name, one.image.topics[name].partitions[0])

        await until(lambda: offline("a") == [2])
        assert offline("b") == []
        with Wire(f"127.0.0.1:{one.port()}") as wire:
            request = MetadataRequest(topics=None)
            answer = await asyncio.to_thread(wire.ask, request, 12)
        rows = {topic.name: topic.partitions[0].offline_replicas for topic in answer.topics}
        assert rows == {"a": [2], "b": []}
        await two.stop()
        world.brokers.remove(two)
        await until(lambda: offline("a") == offline("b") == [2])
        await world.start(2, log_dirs=f"{tmp_path / 'x'},{tmp_path / 'y'}")
        await until(lambda: offline("a") == offline("b") == [])

    run(tmp_path, scenario)
