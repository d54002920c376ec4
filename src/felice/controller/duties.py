"""The controller's duties, derived from the current image of the cluster. Pure.

Keeps true: R2 and C2 by `election`. Deciding is idempotent: duties follow from the image alone, so a new controller
            continues from any half-done state, and nothing is done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from uuid import UUID

from felice.controller.election import elect_after_liveness_change, first_state, preferred
from felice.controller.reassignment import Assignment, Move, completed
from felice.dataclass import dataclass
from felice.metadata.image import ClusterImage, PartitionImage, TopicImage
from felice.metadata.layout import MAX_STATES_PER_TRANSACTION, NO_LEADER, StateNode, TopicNode
from felice.protocol.errors import BrokenInvariant


@dataclass(frozen=True, slots=True)
class StateChange:
    """A partition's next state. `version` is that of the state it replaces, -1 if there is none."""

    topic: str
    topic_id: UUID
    partition: int
    state: StateNode
    version: int


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A topic's next assignment, and the states that change with it."""

    topic: str
    topic_id: UUID
    node: TopicNode
    version: int
    states: tuple[StateChange, ...]


Decision = StateChange | TopicChange


def _raise(error: BrokenInvariant) -> None:
    raise error


def due(
    image: ClusterImage,
    controller_epoch: int,
    allows_unclean: Callable[[str], bool],
    since: ClusterImage | None = None,
    on_broken: Callable[[BrokenInvariant], None] = _raise,
) -> list[Decision]:
    """All decisions that are due. `since` is an image for which no duty was left.

    `on_broken` is called for each partition, or reassignments of a topic, whose decision would break an invariant:
    the others are decided.
    """
    decisions: list[Decision] = []
    for topic in _changed_topics(image, since):
        may_lose = allows_unclean(topic.name)
        moves = _completed(topic, image, controller_epoch)
        moved = {move.partition.partition for move in moves}
        if moves:
            # The other partitions are still due after this write: a transaction has a size limit.
            decisions += sound(partial(topic_change, topic, moves[:MAX_STATES_PER_TRANSACTION]), on_broken)
        for partition in topic.partitions:
            if partition.partition not in moved:
                state = _next_state(partition, image, controller_epoch, may_lose)
                if state is not None:
                    decisions += sound(partial(state_change, topic, partition, state), on_broken)
    return decisions


def sound(decide: Callable[[], Decision], on_broken: Callable[[BrokenInvariant], None]) -> list[Decision]:
    """The decision, unless it would break an invariant."""
    try:
        return [decide()]
    except BrokenInvariant as error:
        on_broken(error)
        return []


def rebalanced(
    image: ClusterImage,
    controller_epoch: int,
    imbalance_percentage: int,
    on_broken: Callable[[BrokenInvariant], None] = _raise,
) -> list[Decision]:
    """Gives leadership back to the preferred replicas, for each broker with too many misplaced leaders.

    `on_broken` is that of `due`.
    """
    by_preferred: dict[int, list[tuple[TopicImage, PartitionImage]]] = {}
    for topic in image.topics.values():
        for partition in topic.partitions:
            if partition.partition_epoch >= 0 and not partition.is_reassigning:
                by_preferred.setdefault(partition.replicas[0], []).append((topic, partition))
    decisions: list[Decision] = []
    for broker_id, rows in sorted(by_preferred.items()):
        misplaced = [(topic, partition) for topic, partition in rows if partition.leader != broker_id]
        if broker_id in image.brokers and len(misplaced) * 100 > imbalance_percentage * len(rows):
            for topic, partition in misplaced:
                state = preferred(partition, image.brokers, controller_epoch)
                if state is not None:
                    decisions += sound(partial(state_change, topic, partition, state), on_broken)
    return decisions


def topic_change(topic: TopicImage, moves: Iterable[Move]) -> TopicChange:
    """The change of a topic that combines the reassignments of several of its partitions."""
    assignments = {
        partition.partition: Assignment(partition.replicas, partition.adding, partition.removing)
        for partition in topic.partitions
    }
    states = []
    for move in moves:
        assignments[move.partition.partition] = move.assignment
        if move.state is not None:
            states.append(state_change(topic, move.partition, move.state))
    node = TopicNode(
        topic.topic_id,
        {partition: found.replicas for partition, found in assignments.items()},
        {partition: found.adding for partition, found in assignments.items() if found.adding},
        {partition: found.removing for partition, found in assignments.items() if found.removing},
    )
    return TopicChange(topic.name, topic.topic_id, node, topic.version, tuple(states))


def state_change(topic: TopicImage, partition: PartitionImage, state: StateNode) -> StateChange:
    """The decision to write `state`, bound to the partition epoch that `partition` shows.

    Raises `BrokenInvariant` for a state that no election may bring about.
    """
    _check(topic.name, partition, state)
    return StateChange(topic.name, topic.topic_id, partition.partition, state, partition.partition_epoch)


def _check(topic: str, partition: PartitionImage, state: StateNode) -> None:
    def broken(name: str, what: str) -> BrokenInvariant:
        place = f"{topic}-{partition.partition}"
        return BrokenInvariant(name, what, partition=place, before=partition, after=state)

    if not state.isr:
        raise broken("C2", "no replica would be in sync")
    if state.leader != NO_LEADER and state.leader not in state.isr:
        raise broken("R4", "the leader would not be in sync")
    if not set(state.isr) <= {*partition.replicas, *partition.isr}:
        raise broken("R4", "a broker without a replica would be in sync")
    is_other_leader = state.leader not in (NO_LEADER, partition.leader)
    if state.leader_epoch < partition.leader_epoch + is_other_leader:
        raise broken("R2", "a new leader would not have a new leader epoch")


def _changed_topics(image: ClusterImage, since: ClusterImage | None) -> Iterator[TopicImage]:
    """Duties arise only from changes of a topic itself, of brokers or of configurations."""
    everything = (
        since is None
        or since.brokers is not image.brokers
        or since.topic_configs is not image.topic_configs
        or since.broker_configs is not image.broker_configs
    )
    for name, topic in image.topics.items():
        if everything or (since is not None and since.topics.get(name) is not topic):
            yield topic


def _completed(topic: TopicImage, image: ClusterImage, controller_epoch: int) -> list[Move]:
    moves = (completed(partition, image.brokers, controller_epoch) for partition in topic.partitions)
    return [move for move in moves if move is not None]


def _next_state(
    partition: PartitionImage, image: ClusterImage, controller_epoch: int, may_lose: bool
) -> StateNode | None:
    if partition.partition_epoch < 0:
        return first_state(partition.replicas, image.brokers, controller_epoch)
    return elect_after_liveness_change(partition, image.brokers, controller_epoch, allows_unclean=may_lose)
