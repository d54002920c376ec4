"""Operators without state. A function gets key and value, and a null value like any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from felice.dataclass import dataclass
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.record import NULL, Dropped, Step
from felice.pipelines.streams.telling import shown

KeyValueFunction = Callable[[Any, Any], Any]
F = TypeVar("F")


def function(given: F, what: str = "a function of key and value") -> F:
    """Returns an application's argument if it is a function. Raises `ValueError` otherwise."""
    if not callable(given):
        raise ValueError(f"{shown(given)} is given where {what} is needed")
    return given


class OfFunction:
    """An operator whose fields are functions of the application."""

    __slots__ = ()

    def __post_init__(self) -> None:
        names: tuple[str, ...] = type(self).__slots__
        for name in names:
            function(getattr(self, name))


@dataclass(frozen=True, slots=True)
class Filter(OfFunction):
    """Drops records for which the predicate is false."""

    predicate: KeyValueFunction

    def step(self) -> Step:
        """The record itself, or nothing."""
        # Its truth is found inside the statement, because that may fail, too.
        return Step(
            "passes = not not {predicate}(key, value)", {"predicate": self.predicate}, then="if passes"
        )


@dataclass(frozen=True, slots=True)
class MapValues(OfFunction):
    """Replaces the value."""

    function: KeyValueFunction

    def step(self) -> Step:
        """One record with the same key."""
        return Step("value = {function}(key, value)", {"function": self.function})


@dataclass(frozen=True, slots=True)
class FlatMapValues(OfFunction):
    """Replaces the record by one for each value that the function returns."""

    function: KeyValueFunction

    def step(self) -> Step:
        """Records with the same key."""
        return Step(
            "found = [*{function}(key, value)]", {"function": self.function}, then="for value in found"
        )


@dataclass(frozen=True, slots=True)
class Map(OfFunction):
    """Replaces key and value: the function returns both."""

    function: KeyValueFunction

    def step(self) -> Step:
        """One record with a new key."""
        return Step("key, value = {function}(key, value)", {"function": self.function})


@dataclass(frozen=True, slots=True)
class FlatMap(OfFunction):
    """Replaces the record by one for each pair of key and value that the function returns."""

    function: KeyValueFunction

    def step(self) -> Step:
        """Records with new keys."""
        return Step("found = {pairs}(key, value)", {"pairs": self._pairs}, then="for key, value in found")

    def _pairs(self, key: Any, value: Any) -> list[tuple[Any, Any]]:
        return [(new_key, new_value) for new_key, new_value in self.function(key, value)]


@dataclass(frozen=True, slots=True)
class SelectKey(OfFunction):
    """Replaces the key."""

    function: KeyValueFunction

    def step(self) -> Step:
        """One record with the same value."""
        return Step("key = {function}(key, value)", {"function": self.function})


@dataclass(frozen=True, slots=True)
class Peek(OfFunction):
    """Calls a function for its effect."""

    function: KeyValueFunction

    def step(self) -> Step:
        """The record itself."""
        return Step("{function}(key, value)", {"function": self.function})


@dataclass(frozen=True, slots=True)
class Printing:
    """Prints records."""

    label: str

    def __call__(self, key: Any, value: Any) -> None:
        """Print a record."""
        print(f"[{self.label}]: {key}, {value}", flush=True)


@dataclass(frozen=True, slots=True)
class Branch:
    """Finds the branch of each record: the first one whose predicate matches. The rest is dropped, or has a branch.

    Each predicate is called at most once for a record. `OfBranch` passes the records of one branch on.
    """

    predicates: Sequence[KeyValueFunction]
    has_default: bool

    def step(self) -> Step:
        """The record with the number of its branch beside its value, or nothing."""
        return Step("value = {numbered}(key, value)", {"numbered": self._numbered}, then="if value")

    def _numbered(self, key: Any, value: Any) -> tuple[int, Any] | None:
        for number, matches in enumerate(self.predicates):
            if matches(key, value):
                return number, value
        return (len(self.predicates), value) if self.has_default else None


@dataclass(frozen=True, slots=True)
class OfBranch:
    """Passes the records of one branch."""

    number: int

    def step(self) -> Step:
        """The record with its value, or nothing."""
        return Step("value = value[1]", only_if=f"value[0] == {self.number}")


@dataclass(frozen=True, slots=True)
class Pass:
    """Passes every record: joins the branches, or the inputs, of a stream."""

    def step(self) -> Step:
        """The record itself."""
        return Step("")


@dataclass(frozen=True, slots=True)
class DropNullKeys:
    """Drops records that a repartition by key cannot place."""

    def step(self) -> Step:
        """The record itself, or nothing."""
        return Step("", only_if="key is not None", drops=Dropped(NULL))


def by(key_of: KeyValueFunction | str, values: Format) -> KeyValueFunction:
    """The function that chooses a key; a field's name becomes the function that returns this field of the value.

    `values` is the format of the values. Raises ValueError if it has no field of this name.
    """
    if not isinstance(key_of, str):
        return function(key_of, "the name of a field, or a function of key and value,")
    read = values.field(key_of)

    def of_field(_: Any, value: Any) -> Any:
        return None if value is None else read(value)

    return of_field
