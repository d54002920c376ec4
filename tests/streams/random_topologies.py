"""Random topologies of all operators, as texts that `RandomTopology.java` builds, too.

A text is a list of steps, such as `stream a;table t;join-table 0 1 left`: each makes a stream or a table of earlier
ones, by their numbers, and the last one is written to the topic `out`.
"""

from collections.abc import Callable
from random import Random

from felice.streams import App, JoinWindows, Stream, Table, Windowed

LONGEST = 24
WITHIN = JoinWindows(before_ms=5, after_ms=10, grace_ms=15)
_STREAMS = (
    *("filter", "map", "double", "key", "key", "to-table", "group", "group-by", "latest", "merge"),
    *("tumbling", "hopping", "sliding", "session", "join-table", "join-table", "join-stream"),
)
_TABLES = ("to-stream", "filter-table", "map-table", "regroup", "join-tables", "join-foreign")
_HOW = {
    "join-table": ("inner", "left"),
    "join-stream": ("inner", "left", "outer"),
    "join-tables": ("inner", "left", "outer"),
    "join-foreign": ("inner", "left"),
}


class _Steps:
    """The steps so far: for each what it is, and the topics from which it comes."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self.texts: list[str] = []
        self._kinds: list[str] = []
        self._topics: list[frozenset[str]] = []

    def add(self, text: str, kind: str, topics: frozenset[str]) -> None:
        self.texts.append(text)
        self._kinds.append(kind)
        self._topics.append(topics)

    def add_random(self) -> None:
        # The newest ones are used most, so that operators stand behind each other.
        [at] = self._dice.choices(range(len(self.texts)), [1 + at for at in range(len(self.texts))])
        name, kind = self._of_table() if self._kinds[at] == "table" else self._of_stream()
        partner, how = self._partner(name, at), ""
        topics = self._topics[at]
        if name.startswith(("join", "merge")) and partner is None:
            name, kind = ("map-table", "table") if self._kinds[at] == "table" else ("map", "stream")
        elif partner is not None:
            topics |= self._topics[partner]
            how = f" {partner}" + ("" if name == "merge" else f" {self._dice.choice(_HOW[name])}")
        self.add(f"{name} {at}{how}", kind, topics)

    def _of_table(self) -> tuple[str, str]:
        name = self._dice.choice(_TABLES)
        return name, "stream" if name == "to-stream" else "table"

    def _of_stream(self) -> tuple[str, str]:
        name = self._dice.choice(_STREAMS)
        return name, "table" if name in ("to-table", "group", "group-by", "latest") else "stream"

    def _partner(self, name: str, at: int) -> int | None:
        kind = {"join-table": "table", "join-tables": "table", "join-foreign": "table"}.get(name, "stream")
        found = [number for number, one in enumerate(self._kinds) if one == kind]
        if name == "merge":
            found = [number for number in found if number != at]  # else it gives each record twice
        if name == "join-tables":
            # The changes of a join of a table with itself do not say all that its rows do, in Kafka Streams too.
            found = [number for number in found if not self._topics[number] & self._topics[at]]
        if name not in (*_HOW, "merge") or not found:
            return None
        return self._dice.choice(found)


def random_topology(dice: Random) -> str:
    """A text. Its last step uses most of the others."""
    steps = _Steps(dice)
    for topic in dice.sample(("a", "b"), dice.randint(1, 2)):
        steps.add(f"stream {topic}", "stream", frozenset({topic}))
    for topic in dice.sample(("t", "u"), dice.randint(1, 2)):
        steps.add(f"table {topic}", "table", frozenset({topic}))
    for _ in range(dice.randint(2, 6)):
        steps.add_random()
    return ";".join(steps.texts)


def build(app: App, text: str) -> None:
    """Adds the topology to an App. Raises `TopologyError`."""
    made: list[Stream | Table] = []
    for step in text.split(";"):
        made.append(_step(app, made, step.split(" ")))
    made[-1].to("out")


def _step(app: App, made: list[Stream | Table], words: list[str]) -> Stream | Table:
    name, first = words[0], words[1]
    store = f"store{len(made)}"
    if name in ("stream", "table"):
        return app.stream(first) if name == "stream" else app.table(first)
    one = made[int(first)]
    other = made[int(words[2])] if len(words) > 2 else None
    if isinstance(one, Table):
        return _of_table(one, other, words, store)
    return _of_stream(one, other, words, store)


def _of_table(one: Table, other: Stream | Table | None, words: list[str], store: str) -> Stream | Table:
    simple: dict[str, Callable[[], Stream | Table]] = {
        "to-stream": one.to_stream,
        "filter-table": lambda: one.filter(lambda key, value: kept(value)),
        "map-table": lambda: one.map_values(lambda key, value: cut(value + "t")),
        "regroup": lambda: one.group_by(lambda key, value: (chosen(value), value)).aggregate(
            empty, add_digit, remove_digit, name=store
        ),
    }
    if words[0] in simple:
        return simple[words[0]]()
    assert isinstance(other, Table)
    if words[0] == "join-foreign":
        join = one.left_join if words[3] == "left" else one.join
        return join(other, pair, on=lambda key, value: chosen(value))
    return {"outer": one.outer_join, "left": one.left_join, "inner": one.join}[words[3]](other, pair)


def _of_stream(one: Stream, other: Stream | Table | None, words: list[str], store: str) -> Stream | Table:
    grouped = one.group_by_key
    simple: dict[str, Callable[[], Stream | Table]] = {
        "filter": lambda: one.filter(lambda key, value: kept(value)),
        "map": lambda: one.map_values(lambda key, value: None if value is None else cut(value + "m")),
        "double": lambda: one.flat_map_values(
            lambda key, value: ["null"] if value is None else [value, cut(value + "d")]
        ),
        "key": lambda: one.key_by(lambda key, value: chosen(value)),
        "to-table": one.to_table,
        "group": lambda: grouped().aggregate(empty, add, name=store),
        "group-by": lambda: one.group_by(lambda key, value: chosen(value)).aggregate(empty, add, name=store),
        "latest": lambda: grouped().reduce(lambda one, other: other),
        "tumbling": lambda: named(grouped().tumbling(20, grace_ms=10).aggregate(empty, add, name=store)),
        "hopping": lambda: named(
            grouped().hopping(30, every_ms=10, grace_ms=5).aggregate(empty, add, name=store)
        ),
        "sliding": lambda: named(grouped().sliding(10, grace_ms=15).aggregate(empty, add, name=store)),
        "session": lambda: named(grouped().session(8, grace_ms=12).aggregate(empty, add, merged, name=store)),
    }
    if words[0] in simple:
        return simple[words[0]]()
    if isinstance(other, Table):
        return (one.left_join if words[3] == "left" else one.join)(other, pair)
    assert other is not None
    if words[0] == "merge":
        return one.merge(other)
    if words[3] == "outer":
        return one.outer_join(other, pair, within=WITHIN)
    return (one.left_join if words[3] == "left" else one.join)(other, pair, within=WITHIN)


def named(table: Table) -> Stream:
    def name(key: Windowed, value: object) -> str:
        return f"{key.key}@{key.window.start}-{key.window.end}"

    return table.to_stream().key_by(name)


def cut(text: str) -> str:
    return text[-LONGEST:]


def empty() -> str:
    return ""


def add(key: str, value: str | None, aggregate: str) -> str:
    return cut(aggregate + _java(value))


def add_digit(key: str, value: str, aggregate: str) -> str:
    """The digits of values, in no order: the rows of a group may come in another one."""
    return "".join(sorted(aggregate + digit(value)))


def remove_digit(key: str, value: str, aggregate: str) -> str | None:
    return aggregate.replace(digit(value), "", 1) or None


def digit(value: str) -> str:
    return str(sum(map(ord, value)) % 10)


def merged(key: str, one: str, other: str) -> str:
    return cut(f"{one}+{other}")


def pair(left: str | None, right: str | None) -> str:
    return cut(f"{_java(left)}|{_java(right)}")


def _java(value: str | None) -> str:
    return "null" if value is None else value


def kept(value: str | None) -> bool:
    return value is None or sum(map(ord, value)) % 4 != 0


def chosen(value: str | None) -> str | None:
    """None for some values, so that groups and keys can be missing."""
    if value is None or (number := sum(map(ord, value))) % 5 == 0:
        return None
    return f"k{number % 3 + 1}"
