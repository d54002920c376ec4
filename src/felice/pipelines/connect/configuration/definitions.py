"""Definitions of options, as Kafka's `ConfigDef` has them: types, defaults, limits, and how a form shows them.

Keeps true:  `parse` raises the first error and returns typed values. `validate` returns every value with its errors, so
             that a person sees them together. Both use Kafka's texts.
             The value of a password never stands in a text, a `repr` or an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from felice.dataclass import dataclass
from felice.pipelines.connect.model.errors import ConfigError
from felice.pipelines.java.patterns import DatePattern
from felice.pipelines.java.regex import compiled


class Type(Enum):
    """What an option holds, by Kafka's names."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"


class Importance(Enum):
    """How much an option matters."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Required(Enum):
    """The default of an option that must be given."""

    REQUIRED = "required"


REQUIRED = Required.REQUIRED
HIDDEN = "[hidden]"


class Password:
    """A secret. Only `value` shows it."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


Validator = Callable[[str, Any], None]
"""Raises `ConfigError` for the value of an option with this name."""
Rule = Callable[[Mapping[str, str]], Iterable[tuple[str, str]]]
"""The options of a configuration that do not fit together, each with the error. The values are trimmed texts."""
Recommender = Callable[[str, Mapping[str, Any]], Sequence[Any]]
"""The values that an option may have, with the other options' values."""


@dataclass(frozen=True, slots=True)
class Definition:
    """An option. `default` is `REQUIRED`, or a value of the type, or None."""

    name: str
    type: Type
    default: Any = REQUIRED
    documentation: str = ""
    importance: Importance = Importance.MEDIUM
    validator: Validator | None = None
    group: str | None = None
    order: int = -1
    width: str = "NONE"
    display_name: str = ""
    dependents: tuple[str, ...] = ()
    recommender: Recommender | None = None
    resolver: Callable[[str, str], str] | None = None
    """For a class: its full name, of the option's name and the text that was given. Raises `ConfigError`."""

    @property
    def is_required(self) -> bool:
        """Whether the option must be given."""
        return self.default is REQUIRED


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """An option's value and what is wrong with it. `value` is its text: None if it is missing or of a wrong type."""

    name: str
    value: str | None
    recommended_values: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    visible: bool = True


class ConfigDefinitions:
    """The options of one thing, in the order of their definition, and the rules between them."""

    def __init__(self, definitions: Iterable[Definition] = (), *rules: Rule) -> None:
        self._rules = rules
        self._by_name: dict[str, Definition] = {}
        for one in definitions:
            if one.name in self._by_name:
                raise ValueError(f"option {one.name} is defined twice")
            self._by_name[one.name] = one

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._by_name.values())

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Definition:
        return self._by_name[name]

    def __add__(self, other: ConfigDefinitions) -> ConfigDefinitions:
        return ConfigDefinitions([*self, *other], *self._rules, *other._rules)

    @property
    def groups(self) -> list[str]:
        """The names of the groups, in the order of their first options."""
        return list(dict.fromkeys(one.group for one in self._by_name.values() if one.group is not None))

    def prefixed(self, prefix: str, group: str | None = None) -> ConfigDefinitions:
        """The same options with names that begin with a prefix, and perhaps in another group."""
        return ConfigDefinitions(
            replace(
                one,
                name=prefix + one.name,
                group=group or one.group,
                display_name=one.display_name or one.name,
                dependents=tuple(prefix + name for name in one.dependents),
            )
            for one in self._by_name.values()
        )

    def parse(self, given: Mapping[str, str | None]) -> dict[str, Any]:
        """The typed values of all options. Names without a definition are left out. Raises `ConfigError`."""
        values = {name: _value(one, given) for name, one in self._by_name.items()}
        for _, error in self._conflicts(given):
            raise ConfigError(error)
        return values

    def validate(self, given: Mapping[str, str | None]) -> list[ConfigValue]:
        """Every option's value with all that is wrong with it."""
        checked = {name: _checked(one, given) for name, one in self._by_name.items()}
        good = {name: value for name, (value, errors) in checked.items() if not errors}
        for name, error in self._conflicts(given):
            checked[name][1].append(error)
        return [self._shown(one, *checked[one.name], good) for one in self._by_name.values()]

    def _conflicts(self, given: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
        texts = {name: text.strip(_JAVA_SPACE) for name, text in given.items() if text is not None}
        return (found for rule in self._rules for found in rule(texts))

    def _shown(self, one: Definition, value: Any, errors: list[str], good: Mapping[str, Any]) -> ConfigValue:
        recommended: tuple[str, ...] = ()
        if one.recommender is not None:
            recommended = tuple(text_of(one.type, value) or "" for value in one.recommender(one.name, good))
        return ConfigValue(one.name, text_of(one.type, value), recommended, tuple(errors))


def _value(one: Definition, given: Mapping[str, str | None]) -> Any:
    value = _given_value(one, given)
    if one.validator is not None:
        one.validator(one.name, value)
    return value


def _checked(one: Definition, given: Mapping[str, str | None]) -> tuple[Any, list[str]]:
    """The value with all that is wrong with it. As in Kafka, the validator sees null for a value of a wrong type."""
    value, errors = None, []
    try:
        value = _given_value(one, given)
    except ConfigError as error:
        errors.append(str(error))
    is_missing = one.name not in given and one.is_required
    if one.validator is not None and not is_missing:
        try:
            one.validator(one.name, value)
        except ConfigError as error:
            errors.append(str(error))
    return value, errors


def _given_value(one: Definition, given: Mapping[str, str | None]) -> Any:
    if one.name in given:
        value = parse_value(one.name, given[one.name], one.type)
        return value if one.resolver is None or value is None else one.resolver(one.name, value)
    if one.is_required:
        raise ConfigError(f'Missing required configuration "{one.name}" which has no default value.')
    return one.default


_JAVA_SPACE = "".join(map(chr, range(33)))
"""What Java's `String.trim` takes away."""
_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
_BITS = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}


def parse_value(name: str, text: str | None, kind: Type) -> Any:
    """The typed value of a text. Raises `ConfigError`."""
    if text is None:
        return None
    trimmed = text.strip(_JAVA_SPACE)
    if kind is Type.PASSWORD:
        return Password(trimmed)
    if kind in (Type.STRING, Type.CLASS):
        return trimmed
    if kind is Type.LIST:
        return _COMMA.split(trimmed) if trimmed else []
    if kind is Type.BOOLEAN:
        if trimmed.lower() not in ("true", "false"):
            raise invalid(name, text, "Expected value to be either true or false")
        return trimmed.lower() == "true"
    if kind is Type.DOUBLE:
        try:
            return float(trimmed)
        except ValueError:
            raise invalid(name, text, "Not a number of type DOUBLE") from None
    bits = _BITS[kind]
    if re.fullmatch(r"[+-]?[0-9]+", trimmed) is None or not -(1 << bits - 1) <= int(trimmed) < 1 << bits - 1:
        raise invalid(name, text, f"Not a number of type {kind.value}")
    return int(trimmed)


def text_of(kind: Type, value: Any) -> str | None:
    """The text of a typed value, as a form shows it."""
    if value is None:
        return None
    if kind is Type.LIST:
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def invalid(name: str, value: object, why: str = "") -> ConfigError:
    """Kafka's error for a value that an option cannot have."""
    return ConfigError(f"Invalid value {value} for configuration {name}" + (f": {why}" if why else ""))


def at_least(lowest: float) -> Validator:
    """A number that is not lower."""

    def check(name: str, value: Any) -> None:
        if value is None:
            raise invalid(name, "null", "Value must be non-null")
        if value < lowest:
            raise invalid(name, value, f"Value must be at least {lowest}")

    return check


def between(lowest: float, highest: float) -> Validator:
    """A number from the lowest to the highest."""

    def check(name: str, value: Any) -> None:
        at_least(lowest)(name, value)
        if value > highest:
            raise invalid(name, value, f"Value must be no more than {highest}")

    return check


def one_of(*allowed: str) -> Validator:
    """One of these texts, in just this case."""

    def check(name: str, value: Any) -> None:
        if value not in allowed:
            raise invalid(name, value, f"String must be one of: {', '.join(allowed)}")

    return check


def one_of_any_case(*allowed: str) -> Validator:
    """One of these texts, in any case."""

    def check(name: str, value: Any) -> None:
        if value is None or value.upper() not in {one.upper() for one in allowed}:
            raise invalid(
                name, value, f"String must be one of (case insensitive): {', '.join(allowed).upper()}"
            )

    return check


def non_empty(name: str, value: Any) -> None:
    """A text that is not empty."""
    if value is not None and value == "":
        raise invalid(name, value, "String must be non-empty")


def non_null(name: str, value: Any) -> None:
    """A value that is given."""
    if value is None:
        raise invalid(name, "null", "entry must be non null")


def non_empty_list(name: str, value: Any) -> None:
    """A list that is not empty."""
    if not value:
        raise invalid(name, value, "Empty list")


def java_regex(name: str, value: Any) -> None:
    """A regular expression. Python's syntax is checked: Java's has a few forms more."""
    try:
        compiled(value)
    except re.error as error:
        raise invalid(name, value, f"Invalid regex: {error}") from None


def date_pattern(name: str, value: str) -> DatePattern:
    """The pattern of dates that an option holds. Raises `ConfigError`."""
    try:
        return DatePattern(value)
    except ValueError as error:
        raise invalid(name, value, str(error)) from None


def time_zone(name: str, value: Any) -> None:
    """A name of a time zone."""
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError):
        raise invalid(name, value, "Invalid time zone identifier") from None
