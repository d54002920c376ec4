"""A log is deleted only if that was requested; every other log without a place in the image comes back (C12)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from felice.log.directory import LogDirectory
from felice.metadata import ClusterImage, TopicImage
from felice.protocol.errors import ApiError
from felice.replication.partitions import Partitions

from .test_partition import NOW_MS, batch
from .test_partitions import FIRST, SECOND, image, of_kind, open_directory, registry, topic

RECORDS = 3


class Broker:
    """The partitions of broker 1, which follow images as `ImageFollower` lets them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shown = ClusterImage(reading=-1)
        self.start()

    def start(self) -> None:
        self.directory: LogDirectory = open_directory(self.path)
        self.partitions: Partitions = registry(self.directory)
        self.shown = ClusterImage(reading=-1)

    def restart(self, *, is_clean: bool = True) -> None:
        self.directory.close() if is_clean else self.directory.abandon()
        self.start()

    def follow(self, new: ClusterImage, *, joins: bool = False) -> None:
        asyncio.run(self.partitions.make_logs(new, lambda: True))
        self.partitions.apply(self.shown, new)
        self.shown = new
        if joins:
            self.partitions.set_strays_aside()

    def produce(self, name: str = "a") -> None:
        self.partitions.find(name, 0).append(batch(RECORDS), required_acks=1, now_ms=NOW_MS)

    def end(self, name: str = "a") -> int:
        """The log end offset; -1 for a partition that is not served."""
        found = self.partitions.get(name, 0)
        return found.log_end_offset if found is not None and found.is_open else -1


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    broker = Broker(tmp_path)
    broker.follow(image(topic("a", FIRST, 1)), joins=True)
    broker.produce()
    return broker


# What may happen to the store, and the image of it: only the record of a request deletes.
LOSSES: dict[str, Callable[[int], ClusterImage]] = {
    "its node is removed": lambda reading: image(reading=reading),
    "another topic of the name": lambda reading: image(topic("a", SECOND, 1), reading=reading),
    "the id is edited": lambda reading: image(
        replace(topic("a", FIRST, 1), topic_id=SECOND), reading=reading
    ),
    "another topic was deleted": lambda reading: image(deleted=[SECOND], reading=reading),
}


@pytest.mark.parametrize("reading", [0, 1])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("restarts", ["", "clean", "killed"])
def test_a_topic_that_was_lost_comes_back_with_its_records(
    broker: Broker, loss: str, reading: int, restarts: str
) -> None:
    lost = LOSSES[loss](reading)
    if restarts:
        broker.restart(is_clean=restarts == "clean")
    broker.follow(lost, joins=bool(restarts))
    assert (of_kind(broker.path, "stray"), of_kind(broker.path, "delete")) == (["a-0"], [])
    if restarts:
        broker.restart(is_clean=restarts == "clean")
    broker.follow(image(topic("a", FIRST, 1), reading=reading + 1), joins=bool(restarts))
    if "a" in lost.topics:
        # The other topic's log had the name, so the stray is opened at the next attempt, and no empty log before.
        assert broker.end() == -1
        assert asyncio.run(broker.partitions.retry_log(("a", 0), lambda log: True))
        broker.partitions.take_up(("a", 0))
    assert broker.end() == RECORDS
    assert not broker.directory.strays.present()
    assert of_kind(broker.path, "delete") == []


@pytest.mark.parametrize("reading", [0, 1])
@pytest.mark.parametrize("successor", [None, SECOND])
@pytest.mark.parametrize("is_away", [False, True])
def test_a_topic_whose_deletion_was_requested_is_deleted(
    broker: Broker, successor: UUID | None, reading: int, is_away: bool
) -> None:
    if is_away:
        broker.restart()
    topics = [] if successor is None else [topic("a", successor, 1)]
    broker.follow(image(*topics, deleted=[FIRST], reading=reading), joins=is_away)
    assert (of_kind(broker.path, "stray"), of_kind(broker.path, "delete")) == ([], ["a-0"])
    assert broker.end() == (-1 if successor is None else 0)
    assert broker.partitions.delete_requested({FIRST})


def test_a_deletion_that_is_pending_is_a_request(broker: Broker) -> None:
    broker.follow(replace(image(), pending_deletions={"a": FIRST}))
    assert of_kind(broker.path, "delete") == ["a-0"]


def test_a_stray_is_deleted_once_the_deletion_of_its_topic_is_known(broker: Broker) -> None:
    """An older state of the store was restored, and then the newest."""
    broker.follow(image(reading=1))
    broker.restart()
    broker.follow(image(deleted=[FIRST]), joins=True)
    assert broker.partitions.delete_requested({SECOND})
    assert of_kind(broker.path, "stray") == ["a-0"]
    assert broker.partitions.delete_requested({FIRST})
    assert (of_kind(broker.path, "stray"), of_kind(broker.path, "delete")) == ([], ["a-0"])
    assert not broker.directory.strays.present()


def test_logs_come_back_while_another_directory_with_strays_is_offline(tmp_path: Path) -> None:
    directories = [open_directory(tmp_path / name) for name in ("1", "2")]
    partitions = registry(*directories)
    topics = image(topic("a", FIRST, 1), topic("b", SECOND, 1), reading=1)
    partitions.apply(image(), topics)
    assert [list(directory.logs) for directory in directories] == [[("a", 0)], [("b", 0)]]
    partitions.apply(topics, lost := image(reading=2))
    directories[0].fail(OSError("dead"))
    restored = replace(topics, reading=3)
    asyncio.run(partitions.make_logs(restored, lambda: True))
    partitions.apply(lost, restored)
    assert list(directories[1].logs) == [("b", 0)]
    assert partitions.find("b", 0).is_open
    assert of_kind(tmp_path / "1", "stray") == ["a-0"]
    assert partitions.offline() == {"a": (0,)}


def test_a_log_that_cannot_come_back_holds_up_no_other(tmp_path: Path) -> None:
    directories = [open_directory(tmp_path / name) for name in ("1", "2")]
    partitions = registry(*directories)
    topics = image(topic("a", FIRST, 1), topic("b", SECOND, 1))
    partitions.apply(image(), topics)
    partitions.apply(topics, lost := image(topic("b", FIRST, 1)))
    directories[0].fail(OSError("dead"))
    # The strays come back too late for the image: the other topic's log had the name of one, and one's disk is dead.
    partitions.apply(lost, topics)
    assert partitions.without_room() == [("a", 0)]
    assert asyncio.run(partitions.retry_log(("a", 0), lambda log: True))
    partitions.take_up(("a", 0))
    assert partitions.find("b", 0).is_open
    assert partitions.offline() == {"a": (0,)}


def test_logs_that_come_back_together_lead_only_in_a_new_epoch(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    both = topic("a", FIRST, 2, (1, 2))
    followed, led = both.partitions
    both = replace(both, partitions=(replace(followed, leader=2), led))
    broker.follow(image(both))
    broker.follow(image(replace(both, topic_id=SECOND)))
    broker.follow(image(both))
    # The other topic's logs had the names, so both strays are opened at the next attempt. It is for one of them.
    assert broker.partitions.without_room() == [("a", 0)]
    assert asyncio.run(broker.partitions.retry_log(("a", 0), lambda log: True))
    assert sorted(broker.directory.logs) == [("a", 0), ("a", 1)]
    assert broker.partitions.needs_epoch()


def test_no_epoch_is_needed_for_logs_that_this_broker_does_not_lead(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    both = topic("a", FIRST, 2, (2, 1))
    broker.follow(image(both))
    broker.follow(image(replace(both, topic_id=SECOND)))
    broker.follow(image(both))
    assert asyncio.run(broker.partitions.retry_log(("a", 0), lambda log: True))
    assert not broker.partitions.needs_epoch()
    broker.partitions.take_up(("a", 0))
    assert [broker.partitions.get("a", number) is not None for number in (0, 1)] == [True, True]


def test_nothing_is_confirmed_while_a_directory_may_hold_the_log(broker: Broker) -> None:
    broker.directory.fail(OSError("dead"))
    assert not broker.partitions.delete_requested({FIRST})


def damage(broker: Broker, name: str = "a", metadata: bytes | None = None) -> None:
    """While the broker is away, its log loses records that were on disk. `metadata`: what else is damaged."""
    broker.directory.close()
    (broker.path / f"{name}-0" / "00000000000000000000.log").write_bytes(b"")
    if metadata is not None:
        (broker.path / f"{name}-0" / "partition.metadata").write_bytes(metadata)
    broker.start()
    assert (name, 0) in broker.directory.failed


def test_a_log_that_cannot_be_loaded_is_deleted_with_its_topic(broker: Broker) -> None:
    damage(broker)
    broker.follow(image(topic("b", SECOND, 1), deleted=[FIRST]), joins=True)
    assert of_kind(broker.path, "delete") == []
    assert broker.partitions.delete_requested({FIRST})
    assert (of_kind(broker.path, "delete"), broker.directory.failed) == (["a-0"], {})


def test_a_log_that_cannot_be_loaded_stays_without_a_request(broker: Broker) -> None:
    damage(broker)
    broker.follow(image(deleted=[SECOND]), joins=True)
    assert broker.partitions.delete_requested({SECOND})
    assert list(broker.directory.failed) == [("a", 0)]


@pytest.mark.parametrize("metadata", [b"", b"nonsense"])
def test_nothing_is_confirmed_while_a_log_may_be_of_any_topic(broker: Broker, metadata: bytes) -> None:
    """Whose it is, only a repair of its directory can tell; then the record must still be there."""
    damage(broker, metadata=metadata)
    broker.follow(image(deleted=[FIRST]), joins=True)
    assert not broker.partitions.delete_requested({FIRST})
    assert list(broker.directory.failed) == [("a", 0)]
    # Of a topic that exists, it is that topic's.
    broker.follow(image(topic("a", SECOND, 1), deleted=[FIRST], reading=1))
    assert broker.partitions.delete_requested({FIRST})
    assert list(broker.directory.failed) == [("a", 0)]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_nothing_is_confirmed_while_a_log_cannot_be_renamed(broker: Broker, is_damaged: bool) -> None:
    if is_damaged:
        damage(broker)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as full:
        full.setattr(broker.directory._disk, "rename", refuse)
        broker.follow(image(deleted=[FIRST], reading=1), joins=True)
        for _ in range(2):
            assert not broker.partitions.delete_requested({FIRST})
    assert broker.partitions.delete_requested({FIRST})
    assert of_kind(broker.path, "delete") == ["a-0"]


def moved(epoch: int, replicas: tuple[int, ...] = (2,), **changes: object) -> TopicImage:
    """The topic after a reassignment: the election of the reassignment has this epoch."""
    [partition] = topic("a", FIRST, 1, replicas).partitions
    return replace(
        topic("a", FIRST, 1), partitions=(replace(partition, leader_epoch=epoch, **changes),), version=epoch
    )


def test_a_replica_that_was_reassigned_is_deleted(broker: Broker) -> None:
    broker.follow(image(moved(1)))
    assert (of_kind(broker.path, "stray"), of_kind(broker.path, "delete")) == ([], ["a-0"])


def test_a_replica_is_deleted_when_the_election_of_its_removal_is_shown(broker: Broker) -> None:
    """A topic's node is read after its states: an image may lack the election that was written with it."""
    broker.follow(image(moved(0, isr=(1,), leader=1)))
    assert broker.end() == -1
    assert not of_kind(broker.path, "stray") + of_kind(broker.path, "delete")
    broker.follow(image(moved(1)))
    assert of_kind(broker.path, "delete") == ["a-0"]


@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_a_replica_that_a_restored_store_does_not_have_is_kept(broker: Broker, epoch: int) -> None:
    """The leader epoch proves nothing: brokers that join raise those of a restored store."""
    broker.follow(image(moved(epoch), reading=1))
    assert (of_kind(broker.path, "stray"), of_kind(broker.path, "delete")) == (["a-0"], [])
    broker.follow(image(topic("a", FIRST, 1), reading=2))
    assert broker.end() == RECORDS


def test_a_replica_whose_assignment_was_edited_by_hand_is_kept(broker: Broker) -> None:
    """An old copy of a topic's node has no election of its own."""
    broker.follow(image(moved(0)))
    broker.follow(image(replace(moved(0), version=3)))
    assert broker.end() == -1
    assert not of_kind(broker.path, "stray") + of_kind(broker.path, "delete")
    broker.follow(image(topic("a", FIRST, 1)))
    assert broker.end() == RECORDS
    broker.follow(image(moved(0)))
    broker.restart()
    broker.follow(image(moved(3)), joins=True)
    assert (of_kind(broker.path, "stray"), of_kind(broker.path, "delete")) == (["a-0"], [])


def test_a_log_whose_partition_has_no_state_yet_is_kept_at_a_start(broker: Broker) -> None:
    """An operator restored the topic's node alone: the controller gives states to its partitions later."""
    broker.restart()
    without_state = moved(-1, (1,), leader=-1, isr=(), partition_epoch=-1)
    broker.follow(image(without_state), joins=True)
    assert not of_kind(broker.path, "stray") + of_kind(broker.path, "delete")
    broker.follow(image(topic("a", FIRST, 1)))
    assert broker.end() == RECORDS


def test_an_image_with_an_older_leader_epoch_is_recognised(broker: Broker) -> None:
    broker.follow(image(moved(5, (1,))))
    broker.produce()
    older, current = image(moved(4, (1,)), reading=1), image(moved(5, (1,), partition_epoch=1), reading=1)
    assert broker.partitions.goes_back(older)
    assert not broker.partitions.goes_back(current)
    assert dict(broker.partitions.outdated(older.topics.values())) == {("a", 0): 5}
    # A broker that starts knows the epochs in its logs.
    broker.restart()
    assert dict(broker.partitions.outdated(older.topics.values())) == {("a", 0): 5}
    other = image(replace(moved(4, (1,)), topic_id=SECOND))
    assert not broker.partitions.goes_back(other), "the log is another topic's"


def test_a_replica_does_not_lead_in_an_epoch_before_that_of_its_records(broker: Broker) -> None:
    broker.follow(image(moved(5, (1,))))
    broker.produce()
    broker.restart()
    broker.follow(image(moved(4, (1,))))
    with pytest.raises(ApiError, match="leader epoch 4 is before epoch 5 of the log"):
        broker.partitions.find("a", 0)._lead(moved(4, (1,)).partitions[0])
    assert broker.end() == -1


@pytest.mark.parametrize("order", list(itertools.permutations(("lost", "restarted", "shown"))))
def test_only_the_last_state_of_the_store_counts(broker: Broker, order: tuple[str, ...]) -> None:
    for number, step in enumerate(order, 1):
        if step == "restarted":
            broker.restart(is_clean=False)
            broker.follow(broker.shown if broker.shown.topics else image(reading=number), joins=True)
        else:
            shown = image(reading=number) if step == "lost" else image(topic("a", FIRST, 1), reading=number)
            broker.follow(shown, joins=True)
    broker.follow(image(topic("a", FIRST, 1), reading=9), joins=True)
    assert broker.end() == RECORDS
    assert of_kind(broker.path, "delete") == []
