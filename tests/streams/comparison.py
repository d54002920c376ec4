"""Random records through one topology, by Kafka Streams' test driver and by ours: the same changes of each key."""

from collections import defaultdict
from collections.abc import Sequence
from random import Random

from felice.streams import App, TestDriver
from peers.streams_oracle import Oracle, Row
from streams.topologies import TOPOLOGIES

TOPICS = ("a", "b", "t", "u", "v")
RECORDS = 60


def topics_of(name: str) -> list[str]:
    app = _app(name)
    read = {formats.topic for part in app.topology.parts() for formats in part.sources}
    return [topic for topic in TOPICS if topic in read]


def random_rows(dice: Random, topics: Sequence[str], count: int = RECORDS) -> list[Row]:
    """Out of order, late, with equal timestamps, and with null keys and values."""
    rows: list[Row] = []
    now = 0
    for _ in range(count):
        now += dice.choice((0, 0, 1, 3, 8, 25))
        late = dice.choice((0, 0, 0, 1, 5, 12, 40))
        key = dice.choice(("k1", "k2", "k3", None)) if dice.random() < 0.3 else dice.choice(("k1", "k2"))
        value = None if dice.random() < 0.15 else str(dice.randrange(10))
        rows.append((dice.choice(topics), key, value, max(0, now - late)))
    return rows


def rows_of(name: str, seed: int) -> list[Row]:
    """Random rows for a topology. Those of versioned tables have no deletion at the time of the row that it deletes.

    Kafka Streams keeps no trace of such a deletion if the key has no other row, so an older row that comes later is
    the key's latest one again. Ours stays deleted (docs/streams.md).
    """
    rows = random_rows(Random(f"{name} {seed}"), topics_of(name))
    if "versioned" not in name:
        return rows
    kept: list[Row] = []
    times = set()
    for row in rows:
        topic, key, value, timestamp = row
        if value is not None or (topic, key, timestamp) not in times:
            kept.append(row)
            times.add((topic, key, timestamp))
    return kept


def ours(name: str, rows: Sequence[Row]) -> list[Row]:
    driver = TestDriver(_app(name))
    for topic, key, value, timestamp in rows:
        driver.send(topic, key, value, timestamp)
        driver.advance_wall_clock(1)
    return [("out", record.key, record.value, record.timestamp) for record in driver.read("out")]


def _app(name: str) -> App:
    app = App("oracle", key="string", value="string")
    TOPOLOGIES[name](app)
    return app


def by_key(rows: Sequence[Row]) -> dict[str | None, list[Row]]:
    found = defaultdict(list)
    for row in rows:
        found[row[1]].append(row)
    return dict(found)


def compare(oracle: Oracle, name: str, seed: int) -> None:
    """Fails with the shortest beginning of the records that shows a difference."""
    rows = rows_of(name, seed)
    if by_key(oracle.run(name, rows)) == by_key(ours(name, rows)):
        return
    least = next(
        count
        for count in range(1, len(rows) + 1)
        if by_key(oracle.run(name, rows[:count])) != by_key(ours(name, rows[:count]))
    )
    theirs, our = oracle.run(name, rows[:least]), ours(name, rows[:least])
    told = "\n".join(map(str, rows[:least]))
    raise AssertionError(f"{name}, seed {seed}\n{told}\nKafka Streams: {theirs[-6:]}\nours: {our[-6:]}")
