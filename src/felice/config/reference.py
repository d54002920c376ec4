"""Generates docs/configuration.md: `python -m felice.config.reference > docs/configuration.md`.

Keeps true: the page equals the declarations; a test compares them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from felice.config.broker import BROKER_OPTIONS
from felice.config.group import GROUP_OPTIONS
from felice.config.kafka_only import KAFKA_ONLY
from felice.config.option import Kind, Option, Scope
from felice.config.security import OPTIONS as SECURITY_OPTIONS
from felice.config.topic import TOPIC_OPTIONS
from felice.config.without_effect import FIXED, SETTABLE

_WIDTH = 118

_HEAD = """\
# Configuration: all options

Generated from `src/felice/config` by `make docs`; do not edit. Names, types and defaults are those of Apache Kafka 4.3
unless the text says otherwise.

A broker reads its options from a `server.properties` file (`felice broker server.properties`), from the command line
(`felice broker server.properties --override num.partitions=3`), and from the cluster's metadata, where `felice configs
alter` and `kafka-configs` write them. The strongest source comes first: what was set for this broker while it ran, what
was set for all brokers, the command line, the file, the default. A topic's value comes first from the topic, then from
the broker option in the last column.

    felice configs describe topics flights
    felice configs alter topics flights --set retention.ms=86400000
    felice configs describe brokers 1
    felice configs alter brokers 1 --set log.cleaner.threads=2
    felice configs alter brokers --default --set max.connections=500
"""

_GROUP_HEAD = """
## Options of a group

A group that does not set an option has the value of the broker option in the last column. Options of a group may be set
before the group exists, and stay when the group is deleted. The broker that gets the request refuses a value beyond its
limits: for `consumer.session.timeout.ms` the limits are `group.consumer.min.session.timeout.ms` and
`group.consumer.max.session.timeout.ms`. If a limit is tightened later, the limit replaces stored values beyond it, and
the broker logs a warning. A change takes effect with the next heartbeat of each member.

    felice configs alter groups billing --set consumer.session.timeout.ms=60000
"""

_BROKER_HEAD = """
## Options of a broker

**Changes** says when a change takes effect: *at a start* (set in the file only), or *at once* (can also be set while
the broker runs, for one broker or for all of them). Options of TLS that change at once do so only with the prefix of a
listener, as in Kafka: `listener.name.NAME.ssl.keystore.location`. The ZooKeeper options are those of Kafka 3.9.
"""

_FIXED_HEAD = """
## Options of Kafka whose value is fixed

DescribeConfigs shows them, because tools read them. In a file they cause a warning and have no effect. A change while
the broker runs is refused.
"""

_SETTABLE_HEAD = """
## Options of Kafka that may be set and have no effect

The broker accepts them in the file and while it runs, with a warning, and DescribeConfigs shows them.
"""

_OTHERS_HEAD = """
## Other options of Kafka

They have no effect in Felice. A file may contain them: the broker lists them in one warning when it starts. A change
while the broker runs is refused.
"""

_CHANGES = {
    Scope.READ_ONLY: "at a start",
    Scope.PER_BROKER: "at once, one broker at a time",
    Scope.CLUSTER_WIDE: "at once",
}


def page() -> str:
    """Returns the Markdown text of docs/configuration.md."""
    topic_rows = (_row_with_synonyms(option) for option in _sorted(TOPIC_OPTIONS))
    group_rows = (_row_with_synonyms(option) for option in _sorted(GROUP_OPTIONS))
    broker_rows = (_broker_row(option) for option in _sorted(BROKER_OPTIONS))
    fixed_rows = ((_name(option), _value(option), option.doc) for option in _sorted(FIXED))
    settable_rows = ((_name(option), _kind(option), option.doc) for option in _sorted(SETTABLE))
    parts = [
        _HEAD,
        "\n## Options of a topic\n\n",
        _table(("option", "type", "default", "values", "meaning", "broker option"), topic_rows),
        _GROUP_HEAD + "\n",
        _table(("option", "type", "default", "values", "meaning", "broker option"), group_rows),
        _BROKER_HEAD + "\n",
        _table(("option", "type", "default", "values", "changes", "meaning"), broker_rows),
        _FIXED_HEAD + "\n",
        _table(("option", "value", "meaning"), fixed_rows),
        _SETTABLE_HEAD + "\n",
        _table(("option", "type", "meaning"), settable_rows),
        _OTHERS_HEAD + "\n",
        _names(KAFKA_ONLY - FIXED.keys() - SETTABLE.keys()),
    ]
    return "".join(parts)


def _names(names: Iterable[str]) -> str:
    listed = ", ".join(f"`{name}`" for name in sorted(names))
    return textwrap.fill(f"{listed}.", _WIDTH, break_on_hyphens=False, break_long_words=False) + "\n"


def _sorted(options: dict[str, Option]) -> list[Option]:
    return [options[name] for name in sorted(options)]


def _row_with_synonyms(option: Option) -> tuple[str, ...]:
    synonyms = ", ".join(f"`{name}`" for name, _ in option.synonyms)
    return _name(option), _kind(option), _value(option), _values(option), option.doc, synonyms


def _broker_row(option: Option) -> tuple[str, ...]:
    changes = _CHANGES[option.scope]
    if option.scope is not Scope.READ_ONLY and option.name in SECURITY_OPTIONS:
        changes += ", with a listener's prefix only"
    return _name(option), _kind(option), _value(option), _values(option), changes, _broker_doc(option)


def _broker_doc(option: Option) -> str:
    """The description of a broker option. A topic default or a synonym refers to the option that it stands for."""
    for topic_option in TOPIC_OPTIONS.values():
        if option.name in [name for name, _ in topic_option.synonyms]:
            return f"Default of the topic option `{topic_option.name}`."
    for other in BROKER_OPTIONS.values():
        if option.name in [name for name, _ in other.synonyms]:
            return f"Another name of `{other.name}`, which wins if both are set."
    return option.doc


def _name(option: Option) -> str:
    return f"`{option.name}`"


def _kind(option: Option) -> str:
    return option.kind.name.lower()


def _value(option: Option) -> str:
    if option.default is None:
        return "none"
    return f"`{option.format(option.default)}`" if option.format(option.default) else "empty"


def _values(option: Option) -> str:
    if option.kind is Kind.BOOLEAN:
        return "`true`, `false`"
    if option.choices:
        return ", ".join(f"`{choice}`" for choice in option.choices)
    if option.minimum is None:
        return ""
    return f"{option.minimum} or more" if option.maximum is None else f"{option.minimum} to {option.maximum}"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(_lines(heads, rows))


def _lines(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield _line(heads)
    yield _line(("---",) * len(heads))
    for row in rows:
        yield _line(tuple(cell.replace("|", "\\|") for cell in row))


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    print(page(), end="")
