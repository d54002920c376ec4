"""Three replicas under random crashes, elections, missed images, stalled writes and delayed responses, from a seed.

Records are deleted in between, also in the middle of batches; segments are deleted, disks are full or replaced.

Afterwards all brokers run again, and these must hold: the logs are equal from the last of their starts on; they contain
every record that was acknowledged with acks=all and not deleted; no high watermark ever passed a record that was lost;
and every replica is in sync, even if records were lost in unclean elections.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from felice.metadata import layout
from scenarios.replication_world import ReplicationWorld, batches_of

SEEDS = range(40)
STEPS = 70
BROKERS = (1, 2, 3)


class FaultyCluster:
    """A replicated partition, and the random commands that a seed chooses for it."""

    def __init__(self, path: Path, seed: int, *, allows_unclean: bool = False) -> None:
        self.allows_unclean = allows_unclean
        self.world = ReplicationWorld(path)
        self.random = random.Random(seed)
        self.history: list[str] = []
        self.acknowledged: set[str] = set()
        # The last offset of each batch.
        self.last_offsets: dict[str, int] = {}
        self.written = 0
        self.run(f"brokers 1 2 3 min_isr={1 + seed % 2} lag=1000")

    def run(self, command: str) -> None:
        self.history.append(command)
        for line in self.world.execute(command):
            self.history.append("    " + line)
            value, _, outcome = line.partition(": ")
            if outcome == "acknowledged" and value.startswith("s"):
                self.acknowledged.add(value)
            written, _, offset = outcome.partition(" at ")
            if command.startswith("produce"):
                self.last_offsets[written] = int(offset or 0) + written.count("+")
        self.check_watermarks()

    def batch(self, kind: str) -> str:
        """The records of a new batch, joined: the name of the batch in the trace."""
        self.written += 1
        count = self.random.choice((1, 1, 2, 5))
        return "+".join(f"{kind}{self.written}.{number}" for number in range(count))

    def check_watermarks(self) -> None:
        """R1: ISR members have all records below the high watermark, unless their removal is proposed (R4)."""
        state = self.state()
        leader = self.world.replicas[state.leader].partition if state.leader in self.up() else None
        if leader is None or not leader.is_leader or leader.leader_epoch != state.leader_epoch:
            return
        proposal = leader.leader.proposal if leader.leader else None
        for member in proposal.isr if proposal else state.isr:
            if member in self.up() and member in state.isr:
                assert self.world.replicas[member].log.log_end_offset >= leader.high_watermark, self.trace()

    def state(self) -> layout.StateNode:
        return layout.decode_state(self.world.ensemble.tree.get(layout.state_path("t", 0)).data)

    def up(self) -> list[int]:
        return [number for number, found in self.world.replicas.items() if found.partition is not None]

    def trace(self) -> str:
        return "\n".join(self.history)

    # Random commands

    def step(self) -> None:
        getattr(self, "may_" + self.random.choice(_COMMANDS))()

    def some(self) -> int | None:
        up = self.up()
        return self.random.choice(up) if up else None

    def may_produce(self) -> None:
        leaders = [number for number in self.up() if self.world.replicas[number].partition.leader]  # type: ignore[union-attr]
        if leaders:
            self.run(f"produce {self.random.choice(leaders)} {self.batch('s')}")

    def may_write_unsafely(self) -> None:
        leaders = [number for number in self.up() if self.world.replicas[number].partition.leader]  # type: ignore[union-attr]
        if leaders:
            self.run(f"produce {self.random.choice(leaders)} {self.batch('u')} acks=1")

    def fetch(self, command: str) -> None:
        number = self.some()
        if number is None:
            return
        found = self.world.replicas[number]
        assert found.partition is not None
        follows = found.partition.leader is None and found.partition.leader_id in self.up()
        if follows and (command != "take" or found.answer is not None):
            self.run(f"{command} {number}")

    def may_fetch(self) -> None:
        self.fetch("fetch")

    def may_ask(self) -> None:
        self.fetch("ask")

    def may_take(self) -> None:
        self.fetch("take")

    def may_post(self) -> None:
        self.fetch("post")

    def may_tick(self) -> None:
        if (number := self.some()) is not None:
            self.run(f"advance {self.random.choice((100, 700, 1001))}")
            self.run(f"tick {number}")

    def may_crash(self) -> None:
        number = self.some()
        if number is None:
            return
        state, log = self.state(), self.world.replicas[number].log
        # The last in-sync replica must keep its records: no protocol survives their loss.
        count = len(batches_of(log))
        lost = self.random.randrange(count + 1) if state.isr != (number,) else 0
        if self.random.random() < 0.7:
            self.run(f"save {number}")
        self.run(f"crash {number} lost={lost}")
        if lost and self.random.random() < 0.3:
            self.run(f"wipe {number}")
        self.control()

    def may_restart(self) -> None:
        down = [number for number in BROKERS if number not in self.up()]
        if down:
            self.run(f"restart {self.random.choice(down)}")
            self.control()

    def may_elect(self) -> None:
        """Elects another in-sync replica, as a preferred election does."""
        state = self.state()
        candidates = [member for member in state.isr if member in self.up() and member != state.leader]
        if candidates:
            isr = ",".join(map(str, state.isr))
            self.run(f"elect {self.random.choice(candidates)} isr={isr}")

    def may_elect_unclean(self) -> None:
        """Elects any replica that runs, as the topic of an unclean cluster allows."""
        if self.allows_unclean and (number := self.some()) is not None:
            self.run(f"elect {number}")

    def may_trim(self) -> None:
        number = self.some()
        if number is None:
            return
        log = self.world.replicas[number].log
        self.run(f"trim {number} {self.random.randint(log.log_start_offset, log.log_end_offset)}")

    def may_roll(self) -> None:
        if (number := self.some()) is not None:
            self.run(f"roll {number}")

    def may_fill(self) -> None:
        if (number := self.some()) is not None:
            self.run(f"full {number}")

    def may_empty(self) -> None:
        if (number := self.some()) is not None:
            self.run(f"room {number}")

    def may_miss_images(self) -> None:
        if (number := self.some()) is not None:
            self.run(f"deaf {number}")

    def may_see_images(self) -> None:
        if (number := self.some()) is not None:
            self.run(f"hear {number}")

    def may_stall(self) -> None:
        if (number := self.some()) is not None:
            self.run(f"stall {number}")

    def may_flow(self) -> None:
        if (number := self.some()) is not None:
            self.run(f"flow {number}")

    def control(self) -> None:
        """Acts as the controller: elects only in-sync replicas, and removes dead brokers from the ISR."""
        state, up = self.state(), self.up()
        isr = tuple(member for member in state.isr if member in up) or state.isr
        leader = state.leader if state.leader in isr and state.leader in up else -1
        if leader == -1:
            leader = next((member for member in isr if member in up), -1)
        if leader != state.leader:
            self.run(f"elect {leader} isr={','.join(map(str, isr))}")
        elif isr != state.isr:
            self.run(f"isr {' '.join(map(str, isr))}")

    # The end of the run

    def heal(self) -> None:
        for number in BROKERS:
            if number not in self.up():
                self.run(f"restart {number}")
        for number in BROKERS:
            self.run(f"hear {number}")
            self.run(f"flow {number}")
            self.run(f"room {number}")
        self.control()
        leader = self.state().leader
        assert leader in BROKERS, self.trace()
        for _ in range(3):
            self.run("advance 500")
            self.run(f"produce {leader} end acks=1")
            for number in BROKERS:
                if number != leader:
                    for _ in range(5):
                        self.run(f"fetch {number}")
            self.run(f"tick {leader}")

    def check(self) -> None:
        start = max(found.log.log_start_offset for found in self.world.replicas.values())
        logs = {
            number: [
                (header.base_offset, header.leader_epoch, text)
                for header, text in batches_of(found.log)
                if header.next_offset > start
            ]
            for number, found in self.world.replicas.items()
        }
        assert logs[1] == logs[2] == logs[3], f"{logs}\n{self.trace()}"
        kept = {text for _, _, text in logs[1]}
        lost = {text for text in self.acknowledged - kept if self.last_offsets[text] >= start}
        assert not lost or self.allows_unclean, f"{lost} lost\n{self.trace()}"
        assert self.state().isr == BROKERS, self.trace()


_WEIGHTS = {
    "produce": 6,
    "fetch": 10,
    "ask": 3,
    "take": 3,
    "post": 1,
    "tick": 3,
    "crash": 2,
    "restart": 4,
    "elect": 1,
    "elect_unclean": 1,
    "trim": 3,
    "roll": 2,
    "fill": 1,
    "empty": 2,
    "miss_images": 1,
    "see_images": 2,
    "stall": 1,
    "flow": 2,
    "write_unsafely": 1,
}
_COMMANDS = [command for command, weight in _WEIGHTS.items() for _ in range(weight)]


@pytest.mark.parametrize("allows_unclean", [False, True], ids=["clean", "unclean"])
@pytest.mark.parametrize("seed", SEEDS)
def test_acknowledged_records_survive_random_faults_and_every_replica_comes_back(
    seed: int, allows_unclean: bool, tmp_path: Path
) -> None:
    cluster = FaultyCluster(tmp_path, seed, allows_unclean=allows_unclean)
    try:
        for _ in range(STEPS):
            cluster.step()
        cluster.heal()
        cluster.check()
    finally:
        cluster.world.close()
