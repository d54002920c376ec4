"""Consumer groups under random events: members come, go, die and are cut off; writes fail; topics change.

Keeps true at every moment: no two live clients use one partition. At the end, when only heartbeats follow: the group is
stable, every partition has one owner, and a shard that replays the log is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

import pytest

from felice.coordinator.group.consumer import target
from felice.coordinator.group.consumer.group import ConsumerGroup, GroupState
from felice.coordinator.group.settings import GroupSettings
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from scenarios.consumer_group_world import ConsumerGroupWorld

Partition = tuple[UUID, int]
STEPS = 150
SESSION_MS = 45_000


@dataclass
class Client:
    """A client of the new protocol: it uses what it was assigned, until an answer takes it away or it is fenced."""

    name: str
    member_id: str
    topics: str
    epoch: int = 0
    uses: set[Partition] = field(default_factory=set)
    must_tell_all: bool = True
    heard_at_ms: int = 0
    is_alive: bool = True


class Run(ConsumerGroupWorld):
    def __init__(self, seed: int) -> None:
        super().__init__(GroupSettings(initial_rebalance_delay_ms=0))
        self.random = Random(seed)
        self.clients: list[Client] = []
        self.made = 0
        self.answers: dict[str, Any] = {}
        self.topic_counts = {"t": "4", "u": "3"}
        self.do_topics([], self.topic_counts)

    def on_answer(self, name: str, response: Any) -> None:
        self.answers[name] = response

    # The clients

    def join(self) -> None:
        self.made += 1
        topics = self.random.choice(["t", "u", "t,u", "t,u"])
        self.clients.append(Client(f"c{self.made}", f"m{self.made}", topics))

    def beat(self, client: Client, *, loses_answer: bool = False) -> None:
        options = {"epoch": str(client.epoch), "as": client.member_id}
        if client.epoch == 0:
            options |= {"topics": client.topics, "owned": ""}
        elif client.must_tell_all:
            options |= {"topics": client.topics, "owned": self._text(client.uses), "rebalance": "60000"}
        else:
            options |= {"owned": self._text(client.uses)}
        self.answers.pop(client.name, None)
        self.do_beat([client.name], options)
        answer = self.answers.get(client.name)
        if loses_answer or not isinstance(answer, ConsumerGroupHeartbeatResponse):
            client.must_tell_all = True
            return
        if answer.error_code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ):
            client.uses, client.epoch, client.must_tell_all = set(), 0, True
        elif answer.error_code:
            client.must_tell_all = True
        else:
            client.epoch, client.must_tell_all, client.heard_at_ms = answer.member_epoch, False, self.now_ms
            if answer.assignment is not None:
                client.uses = {
                    (row.topic_id, partition)
                    for row in answer.assignment.topic_partitions
                    for partition in row.partitions
                }

    def _text(self, uses: set[Partition]) -> str:
        rows: dict[str, list[str]] = {}
        for topic_id, partition in uses:
            name = self.topics.names.get(topic_id)
            if name is not None:
                rows.setdefault(name, []).append(str(partition))
        return ";".join(f"{name}[{','.join(numbers)}]" for name, numbers in rows.items())

    def leave(self, client: Client) -> None:
        client.uses = set()
        self.clients.remove(client)
        self.do_beat([client.name], {"epoch": "-1", "as": client.member_id})

    # Events

    def step(self) -> None:
        random, alive = self.random, [client for client in self.clients if client.is_alive]
        kind = random.random()
        if len(self.clients) < 2 or (kind < 0.08 and len(self.clients) < 8):
            self.join()
        elif kind < 0.12 and alive:
            self.leave(random.choice(alive))
        elif kind < 0.15 and alive:
            random.choice(alive).is_alive = False  # killed: it stops using its partitions, and says nothing
        elif kind < 0.18:
            self.topic_counts = {
                "t": str(random.randint(1, 6)),
                **({"u": "3"} if random.random() < 0.7 else {}),
            }
            self.do_topics([], self.topic_counts)
        elif kind < 0.21:
            self.do_refuse(["COORDINATOR_NOT_AVAILABLE"], {})
        elif kind < 0.23:
            self.writes = "commit"
            self.do_reload([], {})
        elif kind < 0.28:
            self.do_work([], {})
        elif kind < 0.38:
            self.pass_time(random.choice([100, 1000, 3000, 20_000]))
        elif alive:
            self.beat(random.choice(alive), loses_answer=random.random() < 0.1)
        self.check()

    def pass_time(self, milliseconds: int) -> None:
        self.do_advance([str(milliseconds)], {})
        for client in self.clients:
            if self.now_ms - client.heard_at_ms >= SESSION_MS:
                client.uses = set()  # a client knows its own session timeout, and stops

    def check(self) -> None:
        used: dict[Partition, str] = {}
        for client in self.clients:
            for partition in client.uses if client.is_alive else ():
                assert partition not in used, f"{used[partition]} and {client.name} both use {partition}"
                used[partition] = client.name

    def settle(self) -> None:
        self.writes = "commit"
        self.clients = [client for client in self.clients if client.is_alive]
        if not self.clients:
            self.join()
        for _ in range(40):
            for client in self.clients:
                self.beat(client)
                self.check()
            self.do_work([], {})
            self.pass_time(3000)


@pytest.mark.parametrize("seed", range(60))
def test_no_partition_has_two_users_and_all_have_one_in_the_end(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(seed)
    if seed % 2:
        # Every assignment is computed in a thread, and ends at some later step.
        monkeypatch.setattr(target, "MAX_INLINE_SIZE", 0)
        run.work_is_held = True
    for _ in range(STEPS):
        run.step()
    run.settle()
    group = run.shard.groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert group.state is GroupState.STABLE
    wanted = {topic for client in run.clients for topic in client.topics.split(",")} & run.topic_counts.keys()
    everything = {
        (run.topics.by_name[topic].topic_id, partition)
        for topic in wanted
        for partition in range(int(run.topic_counts[topic]))
    }
    used = [partition for client in run.clients for partition in client.uses]
    assert len(used) == len(everything) and set(used) == everything
    run.do_replayed([], {})
    assert all(waiter.answers == 1 for waiter in run.waiters)
