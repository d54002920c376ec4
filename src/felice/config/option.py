"""Declares options, and parses texts into their typed values.

A config class is a frozen dataclass whose fields call `option(...)`. A large one inherits its options from several base
classes, one for each group. `options_of` returns its options by name, in the order of their declaration.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, Unpack

from felice.dataclass import dataclass

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

OptionValue: TypeAlias = bool | int | float | str | tuple[str, ...] | None
"""The typed value of an option; None if it is not set and has no default."""

T = TypeVar("T", bound=OptionValue)
C = TypeVar("C")

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class Kind(IntEnum):
    """The types of options. The numbers are those of DescribeConfigs version 3."""

    UNKNOWN = 0  # of an unknown name; no declared option has it
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Scope(Enum):
    """When a change takes effect (the column `Dyn` of Kafka's documentation)."""

    READ_ONLY = "read-only"  # at the next start
    PER_BROKER = "per-broker"  # at once, one broker at a time
    CLUSTER_WIDE = "cluster-wide"  # at once, for one broker or for all
    TOPIC = "topic"


class Items(Enum):
    """Which items a list may have."""

    DISTINCT = "distinct"  # no empty item, and none twice
    REPEATED = "repeated"  # no empty item
    LOOSE = "loose"  # empty items are left out
    TEXT = "text"  # the same: Kafka declares these lists as texts, so nothing can be appended to them


# The part of a client's text that an error message repeats.
_MAX_SHOWN_CHARACTERS = 200


def shortened(text: object) -> str:
    """The text as error messages repeat it: cut, because a client may send a name or a value of megabytes."""
    whole = str(text)
    if len(whole) <= _MAX_SHOWN_CHARACTERS:
        return whole
    return f"{whole[:_MAX_SHOWN_CHARACTERS]}… ({len(whole)} characters)"


class ConfigError(ValueError):
    """An option cannot take this value. The text names the option, the value and what was expected."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"Invalid value {shortened(value)} for configuration {shortened(name)}: {reason}")
        self.name = name
        self.value = value
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its declaration, as documentation and DescribeConfigs show it."""

    name: str
    kind: Kind
    default: OptionValue
    doc: str
    scope: Scope = Scope.READ_ONLY
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    ignores_case: bool = False
    """Of the choices: as Java ignores it, for some of them."""
    items: Items = Items.DISTINCT
    """Of a list."""
    may_be_empty: bool = True
    """Of a list."""
    synonyms: tuple[tuple[str, int], ...] = ()
    """Broker options that set this option's value if it is not set itself, strongest first. Each has the factor to this
    option's unit: one `log.retention.hours` is 3,600,000 `retention.ms`."""
    internal_check: Callable[..., str | None] | None = None

    @property
    def kafkas_kind(self) -> Kind:
        """The kind that Kafka declares, as DescribeConfigs shows it."""
        return Kind.STRING if self.items is Items.TEXT else self.kind

    @property
    def attribute(self) -> str:
        """The name of the field that declares this option in its config class."""
        return self.name.replace(".", "_").replace("-", "_")

    def parse(self, text: str | None) -> OptionValue:
        """Returns the typed value of `text`. Raises `ConfigError`."""
        if text is None:
            if self.default is None:
                return None
            raise ConfigError(self.name, text, "a value is needed")
        value = _PARSERS[self.kind](self, text.strip())
        if self.ignores_case and isinstance(value, str):
            value = next((choice for choice in self.choices if choice.lower() == value.lower()), value)
        self._check(value)
        return value

    def _check(self, value: OptionValue) -> None:
        if isinstance(value, int | float):
            if self.minimum is not None and value < self.minimum:
                raise ConfigError(self.name, value, f"Value must be at least {self.minimum}")
            if self.maximum is not None and value > self.maximum:
                raise ConfigError(self.name, value, f"Value must be no more than {self.maximum}")
        if self.choices:
            for item in value if isinstance(value, tuple) else (value,):
                if item not in self.choices:
                    raise ConfigError(self.name, item, f"String must be one of: {', '.join(self.choices)}")
        if self.internal_check and (fault := self.internal_check(value)):
            raise ConfigError(self.name, "[hidden]" if self.kind is Kind.PASSWORD else value, fault)

    def canonical(self, text: str) -> str:
        """The text of the value that `text` means, as Kafka shows it; a text without meaning stays as it is."""
        if self.kind is Kind.UNKNOWN:
            return text
        try:
            shown = self.format(self.parse(text))
        except ConfigError:
            return text
        return text if shown is None else shown

    def format(self, value: object) -> str | None:
        """Returns the text of a typed value, as Kafka prints it."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if self.kind is Kind.DOUBLE and isinstance(value, int | float):
            return _format_double(value)
        return str(value)


class _Facts(TypedDict, total=False):
    """The optional fields of `Option`."""

    scope: Scope
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    ignores_case: bool
    items: Items
    may_be_empty: bool
    synonyms: tuple[tuple[str, int], ...]


def option(
    name: str,
    kind: Kind,
    default: T,
    doc: str,
    *,
    internal_check: Callable[[T], str | None] | None = None,
    **facts: Unpack[_Facts],
) -> T:
    """Declares a field of a config class. The field has the name of the option, with `_` instead of `.`."""
    field: T = field_of(Option(name, kind, default, doc, internal_check=internal_check, **facts))
    return field


# The type of the field is the one that the config class annotates.
def field_of(declared: Option) -> Any:
    """The field of a config class for an option that is declared elsewhere too, for example for each listener."""
    # A password must not appear in the text of a configuration, which errors and logs may contain.
    shown = declared.kind is not Kind.PASSWORD
    return dataclasses.field(default=declared.default, repr=shown, metadata={"option": declared})


def options_of(config_class: type[DataclassInstance]) -> dict[str, Option]:
    """Returns the options that a config class declares, by name."""
    declared = [
        (field, field.metadata["option"]) for field in dataclasses.fields(config_class) if field.metadata
    ]
    for field, found in declared:
        assert field.name == found.attribute, f"{field.name} declares {found.name}"
    return {found.name: found for _, found in declared}


def parse_all(options: Mapping[str, Option], properties: Mapping[str, str]) -> dict[str, OptionValue]:
    """Returns typed values by attribute name, for the properties that `options` contains."""
    return {
        options[name].attribute: options[name].parse(text)
        for name, text in properties.items()
        if name in options
    }


def canonical_texts(texts: Mapping[str, str], option_named: Callable[[str], Option | None]) -> dict[str, str]:
    """The same texts as Kafka shows them: `delete,compact` for `delete, compact`. Unknown names keep theirs."""
    return {
        name: text if (found := option_named(name)) is None else found.canonical(text)
        for name, text in texts.items()
    }


def construct(config_class: Callable[..., C], values: Mapping[str, OptionValue], **others: object) -> C:
    """An instance of a config class with these parsed values; other fields keep their defaults."""
    return config_class(**values, **others)


def _parse_boolean(declared: Option, text: str) -> bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise ConfigError(declared.name, text, "Expected value to be either true or false")


def _parse_integer(declared: Option, text: str) -> int:
    bits = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}[declared.kind]
    # `int` also accepts "1_000", which Java refuses, and raises another error for thousands of digits.
    value = int(text) if len(text) < 100 and re.fullmatch(r"[+-]?0*\d{1,19}", text, re.ASCII) else None
    if value is None or not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise ConfigError(declared.name, text, f"Not a number of type {declared.kind.name}")
    return value


def _parse_double(declared: Option, text: str) -> float:
    # `float` also accepts "nan", "infinity" and "1_0".
    is_number = len(text) < 100 and re.fullmatch(
        r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?", text, re.ASCII
    )
    if is_number and math.isfinite(value := float(text.rstrip("dDfF"))):
        return value
    raise ConfigError(declared.name, text, "Not a number of type DOUBLE")


def _format_double(value: float) -> str:
    """The number as Java prints it: in scientific notation from 1.0E7 on, such as 1.7976931348623157E308."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(float(value))
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text = "".join(map(str, digits))
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{int(exponent) + len(text) - 1}"


def parse_list(declared: Option, text: str) -> tuple[str, ...]:
    """The items of a list, without the spaces around them. Raises `ConfigError`."""
    found = tuple(item.strip() for item in text.split(",")) if text else ()
    if declared.items in (Items.LOOSE, Items.TEXT):
        return tuple(item for item in found if item)
    if not found and not declared.may_be_empty:
        raise ConfigError(declared.name, text, "it must not be empty")
    # An empty item is a slip: as a directory it would be the working directory.
    if "" in found:
        raise ConfigError(declared.name, text, "values must not be empty")
    if declared.items is Items.DISTINCT and len(set(found)) != len(found):
        raise ConfigError(declared.name, text, "values must not be duplicated")
    return found


_PARSERS: dict[Kind, Callable[[Option, str], OptionValue]] = {
    Kind.BOOLEAN: _parse_boolean,
    Kind.STRING: lambda _, text: text,
    Kind.INT: _parse_integer,
    Kind.SHORT: _parse_integer,
    Kind.LONG: _parse_integer,
    Kind.DOUBLE: _parse_double,
    Kind.LIST: parse_list,
    Kind.CLASS: lambda _, text: text,
    Kind.PASSWORD: lambda _, text: text,
}
