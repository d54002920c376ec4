"""Random records through one topology, by Kafka Streams' test driver and by ours: the same changes of each key."""

from collections import defaultdict
from collections.abc import Sequence
from random import Random

from felice.streams import App, Record, TestDriver
from peers.streams_oracle import Oracle, Row, Told
from streams.random_topologies import build
from streams.topologies import TOPOLOGIES

TOPICS = ("a", "b", "t", "u", "v")
RECORDS = 60
OTHER_HEADERS = frozenset(
    (
        "session",
        "session_count",
        "cogroup_session",
        "cogroup_session_closed",
        "suppress_sessions",
        "session_regrouped",
    )
)
"""Topologies whose results have other headers than Kafka Streams' (docs/streams.md)."""


RANDOM = "@"
"""Before the text of a random topology, in place of a name."""


def topics_of(name: str) -> list[str]:
    read = _topics_read(name)
    return [topic for topic in TOPICS if topic in read]


def _topics_read(name: str) -> set[str]:
    return {formats.topic for part in _app(name).topology.parts() for formats in part.sources}


FEW = (*["k1", "k2"] * 9, "k1", "k2", "k3", None)
MANY = (*["k1", "k2", "k3", "k10", 'k"', "k'"] * 3, None)
"""Keys whose order by their bytes is not that of their parts, nor that of their texts in quotes."""


def random_rows(
    dice: Random, topics: Sequence[str], count: int = RECORDS, keys: Sequence[str | None] = FEW
) -> list[Row]:
    """Out of order, late, with equal timestamps, and with null keys and values."""
    rows: list[Row] = []
    now = 0
    for _ in range(count):
        now += dice.choice((0, 0, 1, 3, 8, 25))
        late = dice.choice((0, 0, 0, 1, 5, 12, 40))
        key = dice.choice(keys)
        value = None if dice.random() < 0.15 else str(dice.randrange(10))
        rows.append((dice.choice(topics), key, value, max(0, now - late)))
    return rows


def rows_of(name: str, seed: int) -> list[Row]:
    """Random rows for a topology. Those of versioned tables have no deletion at the time of the row that it deletes.

    Kafka Streams keeps no trace of such a deletion if the key has no other row, so an older row that comes later is
    the key's latest one again. Ours stays deleted (docs/streams.md).
    """
    rows = random_rows(Random(f"{name} {seed}"), topics_of(name), keys=MANY if seed % 2 else FEW)
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


def with_headers(rows: Sequence[Row]) -> list[Told]:
    """Each row with another header, but for some without one."""
    return [(*row, None if number % 7 == 3 else str(number)) for number, row in enumerate(rows)]


def ours(name: str, rows: Sequence[Told]) -> list[Told]:
    driver = TestDriver(_app(name))
    for topic, key, value, timestamp, header in rows:
        headers = () if header is None else (("h", header.encode()),)
        driver.send(topic, key, value, timestamp, headers)
        driver.advance_wall_clock(1)
    return [("out", one.key, one.value, one.timestamp, _header(one)) for one in driver.read("out")]


def _header(record: Record) -> str | None:
    found = dict(record.headers).get("h")
    return None if found is None else found.decode()


def _app(name: str) -> App:
    app = App("oracle", key="string", value="string")
    if name.startswith(RANDOM):
        build(app, name.removeprefix(RANDOM))
    else:
        TOPOLOGIES[name](app)
    return app


LAST = frozenset(("foreign_key_joins_with_one_table",))
"""Topologies with a copy of a table that give the same table in other steps of one time (docs/streams.md)."""


def compared(name: str, rows: Sequence[Told]) -> dict[str | None, list[Told]]:
    """What must be equal of the results, by key."""
    is_last = name in LAST
    has_other_headers = is_last or name in OTHER_HEADERS
    if name.startswith(RANDOM):
        is_last = "join-foreign" in name or any("-copy-" in one for one in _topics_read(name))
        has_other_headers = is_last or "session" in name
    found = defaultdict(list)
    for row in rows:
        of_key = found[row[1]]
        # Whether a deletion of a row that is not there is sent depends on which tables have a store.
        is_needless = row[2] is None and (not of_key or of_key[-1][2] is None)
        if not (name.startswith(RANDOM) and is_needless):
            of_key.append((*row[:-1], None) if has_other_headers else row)
    if is_last:  # A row that came and went within the steps of one time is in no table.
        return {key: of_key[-1:] for key, of_key in found.items() if of_key and of_key[-1][2] is not None}
    return {key: of_key for key, of_key in found.items() if of_key}


def compare(oracle: Oracle, name: str, seed: int) -> None:
    """Fails with the shortest beginning of the records that shows a difference."""
    rows = with_headers(rows_of(name, seed))

    def differ(count: int) -> bool:
        return compared(name, theirs(rows[:count])) != compared(name, own(rows[:count]))

    def theirs(given: Sequence[Told]) -> list[Told]:
        return oracle.run(name, given)

    def own(given: Sequence[Told]) -> list[Told]:
        return ours(name, given)

    if not differ(len(rows)):
        return
    least = next(count for count in range(1, len(rows) + 1) if differ(count))
    told = "\n".join(map(str, rows[:least]))
    answers = f"Kafka Streams: {theirs(rows[:least])[-6:]}\nours: {own(rows[:least])[-6:]}"
    raise AssertionError(f"{name}, seed {seed}\n{told}\n{answers}")
