"""How long the events of consumer groups (KIP-848) hold the event loop, without a broker around them.

    python -m bench.consumer_groups
    python -m bench.consumer_groups --members 1000 --topics 10000 --regex

Members join one after the other and then send heartbeats until the group is stable. Each event is measured as the shell
carries it out: the event itself, the encoding of its records and their replay. Work in threads has rows of its own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from uuid import UUID

from felice.coordinator.group.consumer.group import ConsumerGroup
from felice.coordinator.group.modern.topics import Topics
from felice.coordinator.group.records import GroupRecordCodec, Record
from felice.coordinator.group.settings import GroupSettings
from felice.coordinator.group.shard import GroupShard
from felice.coordinator.group.turn import Caller
from felice.coordinator.shard import Instant, Outcome
from felice.dataclass import dataclass
from felice.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

START_MS = 1_700_000_000_000
JOINS_BETWEEN_ASSIGNMENTS = 100
ASSIGNMENT_INTERVAL_MS = 1_100
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class _Topic:
    topic_id: UUID
    partitions: range


class _Answer:
    response: ConsumerGroupHeartbeatResponse

    def answer(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.response = response


class Run:
    """One group in one shard."""

    def __init__(self, topics: int, *, uses_expression: bool) -> None:
        by_name = {f"topic-{n:05}": _Topic(UUID(int=n + 1), range(1)) for n in range(topics)}
        names = {topic.topic_id: name for name, topic in by_name.items()}
        self.topics = Topics(by_name, names, 1)
        self.uses_expression = uses_expression
        self.shard = GroupShard(GroupSettings(), lambda: self.topics)
        self.codec = GroupRecordCodec()
        self.now_ms = 0
        self.seconds: dict[str, list[float]] = {}
        self.epochs: dict[str, int] = {}
        self.assigned: dict[str, list[TopicPartitions]] = {}
        self.shard.on_loaded(Instant(START_MS, 0))

    def beat(self, member_id: str) -> None:
        """A heartbeat, which joins at the first time."""
        epoch, answer = self.epochs.get(member_id, 0), _Answer()
        joins = epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id="group",
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_names=list(self.topics.by_name) if joins and not self.uses_expression else None,
            subscribed_topic_regex="topic.*" if joins and self.uses_expression else None,
            topic_partitions=self.assigned.get(member_id, []),
        )
        caller = Caller(answer, 1, "bench", "/127.0.0.1", member_id)
        self._carry_out(
            "join" if joins else "heartbeat",
            lambda now: self.shard.consumer_heartbeat(request, caller, None, now),
        )
        assert answer.response.error_code == 0, answer.response
        self.epochs[member_id] = answer.response.member_epoch
        if answer.response.assignment is not None:
            self.assigned[member_id] = answer.response.assignment.topic_partitions

    def _carry_out(self, name: str, event: Callable[[Instant], Outcome[Record]]) -> None:
        now = Instant(START_MS + self.now_ms, self.now_ms)
        begun = time.process_time()
        outcome = event(now)
        for record in outcome.records:
            self.codec.encode(record)
        for record in outcome.records:
            self.shard.replay(record)
        for after in outcome.after_write:
            for reply in after.on_committed(now).replies:
                reply.send()
        self._note(name, begun)
        for work in outcome.work:
            begun = time.process_time()
            work.run()
            self._note(f"{work.name.split()[0]} (in a thread)", begun)
            self._carry_out(
                f"{work.name.split()[0]}, the result", lambda now, work=work: work.on_done(now, None)
            )  # type: ignore[misc]

    def _note(self, name: str, begun: float) -> None:
        self.seconds.setdefault(name, []).append(time.process_time() - begun)

    def fill(self, members: int) -> None:
        """All members join, and the group becomes stable."""
        names = [f"member-{n:04}" for n in range(members)]
        for number, name in enumerate(names, 1):
            self.beat(name)
            if number % JOINS_BETWEEN_ASSIGNMENTS == 0:
                self.now_ms += ASSIGNMENT_INTERVAL_MS
        for _ in range(ROUNDS):
            self.now_ms += ASSIGNMENT_INTERVAL_MS
            for name in names:
                self.beat(name)

    def report(self) -> None:
        """One row for each kind of event."""
        group = self.shard.groups["group"]
        assert isinstance(group, ConsumerGroup)
        print(f"{len(group.members)} members, {len(self.topics.by_name)} topics: {group.state.value}")
        print(f"{'event':<28}{'count':>8}{'median ms':>12}{'longest ms':>12}")
        for name, seconds in self.seconds.items():
            print(f"{name:<28}{len(seconds):>8}{median(seconds) * 1e3:>12.3f}{max(seconds) * 1e3:>12.1f}")


def main() -> None:
    """Runs the group that the arguments describe, or two of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--regex", action="store_true")
    arguments = parser.parse_args()
    wanted = [(100, 1000, False), (1000, 10_000, True)]
    if arguments.members is not None:
        wanted = [(arguments.members, arguments.topics, arguments.regex)]
    for members, topics, uses_expression in wanted:
        run = Run(topics, uses_expression=uses_expression)
        run.fill(members)
        run.report()


if __name__ == "__main__":
    main()
