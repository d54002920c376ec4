"""A consumer as the member of a group whose partitions the broker assigns (KIP-848). Pure.

Keeps true:  A heartbeat has only the fields that changed since the last answered heartbeat. After an error, or without
             an answer, the next heartbeat has all fields, because the coordinator may have applied the last one or not.
             The owned partitions change only when the consumer has carried out a `Duty`: the coordinator gives a
             partition to another member after this member has reported owned partitions without it.
             A fenced member drops its partitions as lost before it joins again, with the same member id.
Leaves:      sending, waiting and callbacks to `epoch_membership`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum
from typing import TypeAlias
from uuid import UUID

from felice.client.error import KafkaError, failure
from felice.client.group.requests import Committer
from felice.client.model import Partition
from felice.client.net.wire import ByVersion
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
_EXPRESSIONS_SINCE = 1

Held: TypeAlias = tuple[UUID, int]
"""A partition by the id of its topic: a topic that was created again has the same name and another id."""


class Reaction(Enum):
    """What to do after an answer of the coordinator."""

    GO_ON = "wait for the heartbeat interval, or until something changes"
    RETRY = "send again after a pause"
    FIND = "find the coordinator, and send again after a pause"
    LOSE = "drop the partitions, then join again"
    TELL = "tell the application, and send again after a pause"
    STOP = "the group refuses this consumer for good"


_REACTIONS = {
    ErrorCode.NONE: Reaction.GO_ON,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
    ErrorCode.REQUEST_TIMED_OUT: Reaction.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND,
    ErrorCode.NOT_COORDINATOR: Reaction.FIND,
    ErrorCode.FENCED_MEMBER_EPOCH: Reaction.LOSE,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.LOSE,
    # As with Java's consumer and librdkafka, another configuration or subscription is needed.
    ErrorCode.FENCED_INSTANCE_ID: Reaction.STOP,
    ErrorCode.GROUP_MAX_SIZE_REACHED: Reaction.STOP,
    ErrorCode.INVALID_REGULAR_EXPRESSION: Reaction.STOP,
    ErrorCode.INVALID_REQUEST: Reaction.STOP,
    ErrorCode.UNRELEASED_INSTANCE_ID: Reaction.STOP,
    ErrorCode.UNSUPPORTED_ASSIGNOR: Reaction.STOP,
    ErrorCode.UNSUPPORTED_VERSION: Reaction.STOP,
}


class Phase(Enum):
    """Where the member is."""

    JOINING = "its next request joins the group"
    MEMBER = "the coordinator knows it and its epoch"
    LOST = "it drops its partitions before it joins again"
    OUT = "it has left, or was refused for good"


class Action(Enum):
    """What the consumer does with partitions."""

    ASSIGN = "take them over"
    REVOKE = "commit, and give them up"
    LOSE = "drop them: other members may have them"


@dataclass(frozen=True, slots=True)
class Duty:
    """Partitions that come or go. The consumer carries it out, and then the member calls `on_done`."""

    action: Action
    partitions: Mapping[Held, Partition]


@dataclass(frozen=True, slots=True)
class Topics:
    """A subscription: names, and a regular expression that the broker resolves."""

    names: frozenset[str] = frozenset()
    expression: str | None = None

    def __bool__(self) -> bool:
        return bool(self.names or self.expression)


@dataclass(frozen=True, slots=True)
class EpochSettings:
    """The settings that a member sends to its coordinator."""

    group_id: str
    rebalance_timeout_ms: int
    instance_id: str | None = None
    rack_id: str | None = None
    assignor: str | None = None


@dataclass(frozen=True, slots=True)
class _Told:
    """The fields of a heartbeat that may change between two heartbeats."""

    topics: Topics
    owned: frozenset[Held]


@dataclass(slots=True)
class EpochMember:
    """The state of one consumer in its group; every method is one step of the protocol."""

    settings: EpochSettings
    member_id: str
    epoch: int = JOIN_EPOCH
    phase: Phase = Phase.JOINING
    expelled: bool = False
    """True after it lost its membership: other members may have what was assigned to it."""
    interval_ms: int = 0
    """The coordinator's heartbeat interval."""
    topics: Topics = field(default_factory=Topics)
    """The subscription of the application."""
    target: frozenset[Held] = frozenset()
    """The partitions that the coordinator lets this member have."""
    owned: Mapping[Held, Partition] = field(default_factory=dict)
    """The partitions that the consumer has."""
    is_known: bool = False
    """True if the coordinator may know the member, so that leaving it is worth a request."""
    _stay: int = 0
    _told: _Told | None = None
    _telling: _Told | None = None

    # Its state

    @property
    def joined(self) -> bool:
        """True while the coordinator knows the member and its epoch."""
        return self.phase is Phase.MEMBER

    @property
    def stable(self) -> bool:
        """True if the member owns exactly what the coordinator lets it have."""
        return self.joined and self.owned.keys() == self.target

    @property
    def committer(self) -> Committer:
        """The identity with which this member commits: the epoch takes the place of the generation."""
        if not self.joined:
            return Committer(instance_id=self.settings.instance_id, stay=self._stay)
        return Committer(self.epoch, self.member_id, self.settings.instance_id, self._stay)

    # Heartbeats

    @property
    def may_send(self) -> bool:
        """True if there is a heartbeat to send, now or after the interval."""
        return self.joined or (self.phase is Phase.JOINING and bool(self.topics))

    @property
    def is_due(self) -> bool:
        """True if the next heartbeat must not wait for the interval: it is a join, or has changed fields."""
        return self.may_send and (not self.joined or self._told != _Told(self.topics, frozenset(self.owned)))

    def heartbeat(self) -> ByVersion:
        """The next heartbeat. It has all fields if it is a join or follows a failure, otherwise the changed ones."""
        told, telling = self._told, _Told(self.topics, frozenset(self.owned))
        self._telling, self.is_known = telling, True
        settings, request = self.settings, self._request(self.epoch)
        if told is None:
            request.rack_id = settings.rack_id
            request.rebalance_timeout_ms = settings.rebalance_timeout_ms
            request.server_assignor = settings.assignor
        if told is None or telling.owned != told.owned:
            request.topic_partitions = _to_wire(telling.owned)
        if told is None or telling.topics.names != told.topics.names:
            request.subscribed_topic_names = sorted(telling.topics.names)
        if told is None or telling.topics.expression != told.topics.expression:
            # An empty text removes an expression that the coordinator may still have.
            request.subscribed_topic_regex = telling.topics.expression or ""
        return _by_version(request)

    def _request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.settings.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.settings.instance_id,
        )

    def on_no_answer(self) -> None:
        """Note that the last heartbeat failed: it is unknown whether the coordinator got it."""
        self._told = None

    def on_answer(self, response: ConsumerGroupHeartbeatResponse) -> Reaction:
        """Apply an answer to the last heartbeat."""
        reaction = self._reaction(ErrorCode.of(response.error_code))
        if reaction is Reaction.GO_ON:
            self._told, self.phase, self.expelled = self._telling, Phase.MEMBER, False
            self.epoch = response.member_epoch
            # In version 0 the coordinator may choose the id.
            self.member_id = response.member_id or self.member_id
            self.interval_ms = response.heartbeat_interval_ms
            if response.assignment is not None:
                rows = response.assignment.topic_partitions
                self.target = frozenset((row.topic_id, number) for row in rows for number in row.partitions)
            return reaction
        self._told = None
        if reaction is Reaction.LOSE:
            self.lose()
        elif reaction is Reaction.STOP:
            self.stop()
        return reaction

    def _reaction(self, code: ErrorCode) -> Reaction:
        if code is ErrorCode.GROUP_ID_NOT_FOUND and self.joined:
            return Reaction.LOSE
        return _REACTIONS.get(code, Reaction.TELL)

    # The end of a membership

    def lose(self) -> None:
        """The membership is over and its partitions are lost; the member joins again when they are dropped."""
        self._expel(Phase.LOST)

    def stop(self) -> None:
        """The membership is over for good."""
        self._expel(Phase.OUT)

    def _expel(self, phase: Phase) -> None:
        self.expelled = self.expelled or self.joined
        self.phase, self.epoch, self.target, self._told = phase, JOIN_EPOCH, frozenset(), None
        self.is_known = False
        self._stay += 1

    def leave(self) -> ByVersion:
        """A heartbeat that leaves the group. A static member keeps its partitions until its session ends (KIP-345)."""
        epoch = LEAVE_EPOCH if self.settings.instance_id is None else STATIC_LEAVE_EPOCH
        return _by_version(self._request(epoch))

    # Reconciliation

    def duty(self, names: Mapping[UUID, str]) -> Duty | None:
        """The consumer's next duty, given the known names of topics; None if there is none, or names are missing."""
        if self.phase in (Phase.LOST, Phase.OUT):
            # Also without partitions: `on_done` then lets the member join again.
            return Duty(Action.LOSE, dict(self.owned)) if self.owned or self.phase is Phase.LOST else None
        if not self.joined:
            return None
        gone = {held: name for held, name in self.owned.items() if held not in self.target}
        if gone:
            return Duty(Action.REVOKE, gone)
        fresh = {
            held: (names[held[0]], held[1]) for held in self.target - self.owned.keys() if held[0] in names
        }
        return Duty(Action.ASSIGN, fresh) if fresh else None

    def unnamed(self, names: Mapping[UUID, str]) -> set[UUID]:
        """The ids of assigned topics whose names are not known yet."""
        return {topic_id for topic_id, _ in self.target if topic_id not in names}

    def on_done(self, duty: Duty) -> None:
        """The consumer has carried out this duty."""
        if duty.action is Action.ASSIGN:
            self.owned = {**self.owned, **duty.partitions}
        else:
            self.owned = {held: name for held, name in self.owned.items() if held not in duty.partitions}
        if duty.action is Action.LOSE and self.phase is Phase.LOST:
            self.phase = Phase.JOINING


def _to_wire(owned: Iterable[Held]) -> list[TopicPartitions]:
    numbers: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(owned):
        numbers.setdefault(topic_id, []).append(number)
    return [TopicPartitions(topic_id=topic_id, partitions=found) for topic_id, found in numbers.items()]


def _by_version(request: ConsumerGroupHeartbeatRequest) -> ByVersion:
    def build(version: int) -> ConsumerGroupHeartbeatRequest:
        if version < _EXPRESSIONS_SINCE:
            if request.subscribed_topic_regex:
                raise failure(
                    KafkaError._UNSUPPORTED_FEATURE,
                    "the broker resolves no regular expressions: subscribe by name",
                )
            request.subscribed_topic_regex = None
        return request

    return ByVersion(ConsumerGroupHeartbeatRequest, build)
