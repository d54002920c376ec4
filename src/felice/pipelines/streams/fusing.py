"""Makes one function of the steps that records pass in a row, so that a record costs few calls.

Keeps true: the function does with each record what the steps do, one after the other, before it takes the next one.
How:        A step is a statement of Python about `key`, `value`, `timestamp` and `headers`, with the names that it
            uses. The statements are nested into the text of a function. Tasks of one topology have the same texts, so
            each text is compiled once. Where nodes branch, the function calls the functions of the branches.
            A row that ends in a topic adds keys and values to what is sent; the other columns are filled afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import count, repeat
from textwrap import indent
from types import CodeType
from typing import Any, NamedTuple

from felice.dataclass import dataclass
from felice.pipelines.streams.record import Failed, Headers, Push, Step

MOST_STEPS = 8
"""A longer row becomes several functions: Python nests at most 20 blocks, and a step may have two."""
_NAMES = ("key", "value", "timestamp", "headers")
_RECORD = ", ".join(_NAMES)
_COLUMNS = "keys, values, left, timestamps, all_headers"
_ADD = """\
sent_keys.append(key_bytes)
sent_values.append(value_bytes)
"""
_ADD_REST = """\
sent_topics.append({topic})
sent_timestamps.append(timestamp)
sent_headers.append(headers)
"""
_FILLED = {"timestamp": "sent_timestamps.append(timestamp)\n", "headers": "sent_headers.append(headers)\n"}
"""The columns that are filled after all records have passed. If a step sets one, this text adds each value instead."""
_SKIP_MARKED = """\
if key.__class__ is Marked:
    key.answer()
    continue
"""
_NUMBER = """\
while len(sent_numbers) < len(sent_keys):
    sent_numbers.append(number)
"""

Aside = tuple[int, int, Sequence[Any]]
"""A record that a function or an error policy sends: how many records steps sent before it, the position in the group
of the record that caused it, and the record itself."""
PushAll = Callable[[list[Any], list[Any], Iterator[int], list[int], list[Headers]], None]
"""Takes keys, values, an iterator of the timestamps, the timestamps, and headers."""


@dataclass(frozen=True, slots=True)
class Marked:
    """Stands in place of the key of a record that no operator may get: `answer` is called instead."""

    answer: Callable[[], None]


@dataclass(slots=True)
class Sent:
    """Records that were sent to topics, by column, in order."""

    topics: list[str] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """The position of the record of the group that caused each of them, in tasks without state; none if each record
    caused one.
    """

    def columns(self) -> tuple[list[Any], ...]:
        """The columns, without `numbers`."""
        return self.topics, self.keys, self.values, self.timestamps, self.headers

    def add(self, record: Sequence[Any]) -> None:
        """One more record."""
        for column, part in zip(self.columns(), record, strict=True):
            column.append(part)

    def extend(self, sent: Sent) -> None:
        """More records."""
        for column, more in zip(self.columns(), sent.columns(), strict=True):
            column += more
        self.numbers += sent.numbers

    def insert(self, aside: Sequence[Aside], *, is_numbered: bool) -> None:
        """Put records that were sent aside between the others."""
        positions, numbers, records = zip(*aside, strict=True)
        if is_numbered and not self.numbers:
            self.numbers.extend(range(len(self.keys)))
        if is_numbered or self.numbers:
            _insert(self.numbers, positions, numbers)
        for column, parts in zip(self.columns(), zip(*records, strict=True), strict=True):
            _insert(column, positions, parts)

    def remove(self, positions: Sequence[int], *, is_numbered: bool) -> None:
        """Remove the records at these positions, which are in order."""
        if is_numbered and not self.numbers:
            self.numbers.extend(range(len(self.keys)))
        for column in (*self.columns(), *([self.numbers] if self.numbers else [])):
            for position in reversed(positions):
                del column[position]

    def clear(self) -> None:
        """Forget everything."""
        for column in (*self.columns(), self.numbers):
            column.clear()

    def fill(self, topic: str, timestamps: list[int], headers: list[Headers], *, has_numbers: bool) -> None:
        """Fill the columns that a row of steps left out. Each record of the group sent one, unless it `has_numbers`."""
        size = len(self.keys)
        self.topics.extend(repeat(topic, size))
        numbers = self.numbers if has_numbers else None
        for column, given in ((self.timestamps, timestamps), (self.headers, headers)):
            if len(column) < size:
                column.extend(given if numbers is None else map(given.__getitem__, numbers))  # type: ignore[arg-type]


class Fused(NamedTuple):
    """The steps behind a node. `ends` are the functions that take what the last step passes on."""

    steps: tuple[tuple[Step, Failed], ...]
    ends: tuple[Push, ...]

    def after(self, step: Step, failed: Failed) -> Fused:
        """The same steps behind one more."""
        if len(self.steps) == MOST_STEPS:
            return Fused(((step, failed),), (self.push(),))
        return Fused(((step, failed), *self.steps), self.ends)

    def push(self) -> Push:
        """One function for all steps."""
        if not self.steps and len(self.ends) == 1:
            return self.ends[0]
        body, names = self._body(_ADD + _ADD_REST)
        push: Push = _made(f"def run({_RECORD}):\n{_block(body)}", names)
        return push

    def push_all(
        self, sent: Sent, *, stops_at_errors: bool, is_numbered: bool, has_marks: bool = False
    ) -> PushAll:
        """One function for records by column. It adds to `sent`, which is empty before. `has_marks`: some keys may be
        `Marked`.
        """
        topic = self.steps[-1][0].topic if self.steps and stops_at_errors else None
        filled = ""
        if topic is None:
            body, names = self._body(_ADD + _ADD_REST)
            numbered = is_numbered
            body += _NUMBER if is_numbered else ""
        else:
            numbered = has_marks or any(
                step.only_if or step.then or step.loop or step.may_skip for step, _ in self.steps
            )
            added = "".join(
                add for name, add in _FILLED.items() if any(step.sets(name) for step, _ in self.steps)
            )
            body, names = self._body(_ADD + added + ("sent_numbers.append(number)\n" if numbered else ""))
            filled = f"    fill({topic!r}, timestamps, all_headers, has_numbers={numbered})\n"
        if has_marks:
            body = _SKIP_MARKED + body
        names |= _lists(sent) | {"fill": sent.fill, "Marked": Marked}
        loop = f"for {_RECORD} in zip(keys, values, left, all_headers, strict=True):\n"
        if numbered:
            loop = f"for number, {_RECORD} in zip(range(len(keys)), keys, values, left, all_headers, strict=True):\n"
        push_all: PushAll = _made(f"def run({_COLUMNS}):\n{_block(loop + _block(body))}{filled}", names)
        return push_all

    def _body(self, add: str) -> tuple[str, dict[str, Any]]:
        """Statements, and the names in them. `add` is what the last step does if it sends to a topic."""
        names: dict[str, Any] = {f"end_{number}": end for number, end in enumerate(self.ends)}
        body = "".join(f"{name}({_RECORD})\n" for name in names) or "pass\n"
        for number, (step, failed) in reversed(list(enumerate(self.steps))):
            own = {name: f"{name}_{number}" for name in step.names}
            names |= {own[name]: given for name, given in step.names.items()}
            if step.sent is not None:
                names |= _lists(step.sent)
                body = add.format(topic=repr(step.topic))
            kept, again = self._kept(number)
            dropped = ""
            if step.drops is not None:
                names |= {f"failed_{number}": failed, f"dropped_{number}": step.drops}
                dropped = f"else:\n    failed_{number}(dropped_{number}, key, value)\n"
            if step.results_if:
                body = f"if {step.results_if}:\n{_block(body)}{dropped}"
            if step.then:
                body = f"{kept}{step.then}:\n{_block(again + body)}"
            if step.statement or step.loop:
                names[f"failed_{number}"] = failed
                loop = f"{kept}{step.loop.format(**own)}:\n{_block(again + body)}"
                body = (
                    f"try:\n{_block(loop if step.loop else step.statement.format(**own))}"
                    f"except BaseException as error:\n    failed_{number}(error, key, value)\n"
                ) + ("" if step.loop else f"else:\n{_block(body)}")
            if step.only_if:
                body = f"if {step.only_if}:\n{_block(body)}{dropped}"
        return body, names

    def _kept(self, number: int) -> tuple[str, str]:
        """Statements before the loop of a step and in it, so that each turn begins with the step's own record.

        What follows in the loop sets some names, and the loop itself may set only others.
        """
        step, _ = self.steps[number]
        if not (step.loop or step.then.startswith("for ")):
            return "", ""
        target = (step.loop or step.then).partition(" in ")[0].removeprefix("for ")
        own = [name.strip() for name in target.split(",")]
        later = [one for one, _ in self.steps[number + 1 :]]
        names = [name for name in _NAMES if name not in own and any(one.sets(name) for one in later)]
        return (
            "".join(f"{name}_{number}_kept = {name}\n" for name in names),
            "".join(f"{name} = {name}_{number}_kept\n" for name in names),
        )


def _insert(column: list[Any], positions: Sequence[int], parts: Sequence[Any]) -> None:
    """Put each part before what is at its position. Functions hold the list, so it stays the same one."""
    made, start = [], 0
    for position, part in zip(positions, parts, strict=True):
        made += column[start:position]
        made.append(part)
        start = position
    column[:] = made + column[start:]


def fused(children: Sequence[Fused]) -> Fused:
    """The steps of the only child, or the functions of several ones."""
    return children[0] if len(children) == 1 else Fused((), tuple(child.push() for child in children))


def _lists(sent: Sent) -> dict[str, Any]:
    lists = dict(zip(("topics", "keys", "values", "timestamps", "headers"), sent.columns(), strict=True))
    return {f"sent_{name}": column for name, column in lists.items()} | {"sent_numbers": sent.numbers}


def _block(text: str) -> str:
    return indent(text if text.endswith("\n") else text + "\n", "    ")


def _made(function: str, names: dict[str, Any]) -> Any:
    made: dict[str, Any] = {}
    exec(_code(f"def make({', '.join(names)}):\n{_block(function)}    return run\n"), made)
    return made["make"](*names.values())


@lru_cache(maxsize=1024)
def _code(text: str) -> CodeType:
    return compile(text, f"<steps of a topology {next(_numbers)}>", "exec")


_numbers: Iterator[int] = count(1)
