"""Declares the configuration keys of the client, and parses their values.

A settings class is a frozen dataclass whose fields call `key(...)`: `SecuritySettings` of `security` and the classes
of `options`.
Keeps true:  no error and no `repr` has the value of a secret key.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from math import nan
from typing import TYPE_CHECKING, Any, TypeVar

from felice.client.error import KafkaError, failure
from felice.dataclass import dataclass

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

INT_MAX = 2**31 - 1

T = TypeVar("T")
D = TypeVar("D")
S = TypeVar("S", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key.

    `clients` has p, c or a for each kind of client in which the key has an effect. `silent` has the letters of the
    other kinds in which librdkafka accepts the key without a warning.
    """

    name: str
    parse: Callable[[object], object]
    default: object
    clients: str
    aliases: tuple[str, ...]
    silent: str
    secret: bool

    @property
    def attribute(self) -> str:
        """The name of the field that declares this key."""
        return self.name.replace(".", "_")


def key(
    name: str,
    parse: Callable[[object], T],
    default: D = None,  # type: ignore[assignment]
    clients: str = "pca",
    aliases: tuple[str, ...] = (),
    *,
    silent: str = "",
    secret: bool = False,
) -> T | D:
    """Declares a field of a settings class. The field has the name of the key, with `_` instead of `.`."""
    declared = Key(name, parse, default, clients, aliases, silent, secret)
    field: T | D = dataclasses.field(default=default, repr=not secret, metadata={"key": declared})
    return field


@cache
def keys_of(settings_class: type[DataclassInstance]) -> tuple[Key, ...]:
    """The keys that a settings class declares or inherits."""
    fields = dataclasses.fields(settings_class)
    declared = [(field.name, field.metadata["key"]) for field in fields if field.metadata]
    assert all(name == found.attribute for name, found in declared), declared
    return tuple(found for _, found in declared)


def make_settings(settings_class: type[S], values: Mapping[str, object], **others: Any) -> S:
    """Return settings with these parsed values, by key. Keys of other classes are ignored.

    Keys without a value have their defaults. `others` are the values of fields that declare no key.
    """
    own = {found.attribute: values[found.name] for found in keys_of(settings_class) if found.name in values}
    return settings_class(**own, **others)


def invalid(reason: str) -> Exception:
    """The error for a configuration that cannot be used."""
    return failure(KafkaError._INVALID_ARG, reason)


def whole_number(value: object) -> int | None:
    """The value as a whole number, also if it is a text; None if it is not a whole number."""
    try:
        return None if isinstance(value, bool) else int(str(value).strip())
    except ValueError:
        return None


def integer(low: int, high: int = INT_MAX) -> Callable[[object], int]:
    """Parse a whole number from `low` to `high`."""

    def parse(value: object) -> int:
        number = whole_number(value)
        if number is None or not low <= number <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return number

    return parse


def number(low: float, high: float) -> Callable[[object], float]:
    """Parse a number from `low` to `high`."""

    def parse(value: object) -> float:
        try:
            number = float(str(value).strip())
        except ValueError:
            number = nan
        if not low <= number <= high:
            raise ValueError(f"expected a number from {low} to {high}")
        return number

    return parse


def boolean(value: object) -> bool:
    """Parse `true` or `false`."""
    word = str(value).strip().lower()
    if word not in ("true", "1", "t", "false", "0", "f"):
        raise ValueError("expected true or false")
    return word in ("true", "1", "t")


def text(value: object) -> str:
    """Parse any text that can be sent."""
    if not isinstance(value, str):
        raise ValueError("expected a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("expected a string that UTF-8 can encode") from None
    return value


def named(values: Mapping[str, T]) -> Callable[[object], T]:
    """Parse one of several names, each of which stands for a value; the case does not matter."""

    def parse(value: object) -> T:
        name = str(value).strip().lower()
        if name not in values:
            raise ValueError(f"expected one of {', '.join(values)}")
        return values[name]

    return parse


def one_of(*names: str) -> Callable[[object], str]:
    """Parse one of several names."""
    return named({name: name for name in names})


def upper_of(*names: str) -> Callable[[object], str]:
    """Parse one of several names in capitals; the case of the value does not matter."""

    def parse(value: object) -> str:
        name = str(value).strip().upper()
        if name not in names:
            raise ValueError(f"expected one of {', '.join(names)}")
        return name

    return parse


def function(value: object) -> Callable[..., Any]:
    """Parse a callable."""
    if not callable(value):
        raise ValueError("expected a callable")
    return value
