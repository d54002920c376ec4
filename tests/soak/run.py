"""One run: a broker, each actor on a thread, a sampler; then everything is stopped and the results are written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from conformance.live_process import LiveProcess
from peers.cache import PeerMissing
from soak.actor import Actor, Player
from soak.members import Groups
from soak.probed import __file__ as PROBED
from soak.report import LOAD, SAMPLES
from soak.samples import Sampler
from soak.visitors import Administrator, Connections, Java
from soak.writers import Compacted, Copies, Idempotent, Retained, Transactions

ACTORS: Sequence[Callable[[str], Actor]] = (
    Idempotent,
    Transactions,
    Copies,
    Compacted,
    Retained,
    Groups,
    Administrator,
    Connections,
    Java,
)
PATIENCE_S = 600
# What Kafka keeps for days is kept for a minute or two, so that it expires many times in an hour.
OPTIONS = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.segment.bytes": "1048576",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "10000",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.segment.bytes": "1048576",
    "transactional.id.expiration.ms": "90000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "10000",
    "producer.id.expiration.ms": "60000",
    "producer.id.expiration.check.interval.ms": "10000",
    "log.cleaner.backoff.ms": "2000",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "5000",
    "log.roll.ms": "60000",
    "group.initial.rebalance.delay.ms": "300",
    "connections.max.idle.ms": "60000",
    "max.incremental.fetch.session.cache.slots": "100",
}


def soak(directory: Path, minutes: float, interval_s: float, round_s: float) -> None:
    """Write the samples, the record of the load, and the broker's log into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    census = directory / "census.jsonl"
    with LiveProcess(directory / "data", options=OPTIONS, program=(PROBED, str(census))) as broker:
        players = [Player(actor, round_s) for actor in _actors(broker.bootstrap)]
        sampler = Sampler(broker, directory / SAMPLES, census, interval_s)
        for thread in (sampler, *players):
            thread.start()
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end and broker.is_alive():
            time.sleep(min(interval_s, max(0.0, end - time.monotonic())))
            _write_load(directory, players, is_complete=False)
        sampler.stop()
        for player in players:
            player.begin_no_more()
        for player in players:
            player.wait_ended(PATIENCE_S)
        _write_load(directory, players, is_complete=broker.is_alive())


def _actors(bootstrap: str) -> list[Actor]:
    found = []
    for make in ACTORS:
        try:
            found.append(make(bootstrap))
        except PeerMissing as missing:
            print(f"left out: {missing}", flush=True)
    return found


def _write_load(directory: Path, players: Sequence[Player], is_complete: bool) -> None:
    account = {
        "rounds": {player.name: player.rounds for player in players},
        "faults": [fault for player in players for fault in player.faults],
        "is_complete": is_complete,
    }
    (directory / LOAD).write_text(json.dumps(account, indent=1))
