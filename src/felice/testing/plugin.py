"""The pytest plugin: fixtures `felice_broker` (fresh for each test) and `felice_broker_session` (one for all).

    [tool.pytest.ini_options]
    felice_topics = ["orders:3", "payments"]
    felice_properties = ["message.max.bytes=2000000"]

    @pytest.mark.felice(topics={"audit": 1}, properties={"num.partitions": "2"})
    def test_orders(felice_broker): ...

Keeps true: a test run that uses neither fixture loads no other module of Felice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn, TypedDict, cast

import pytest

if TYPE_CHECKING:
    from felice.testing.broker import Broker

_KINDS: dict[str, tuple[type, ...]] = {"topics": (Mapping, list, tuple, set), "properties": (Mapping,)}
_SHAPES = {
    "topics": "names, or names with numbers of partitions",
    "properties": "broker options by name",
}
_ARGUMENTS = " and ".join(_KINDS)


class _Arguments(TypedDict, total=False):
    """The arguments of the mark."""

    topics: Mapping[str, int] | Sequence[str]
    properties: Mapping[str, str]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of pytest's configuration file."""
    parser.addini("felice_topics", "topics of every felice_broker: name or name:partitions", "linelist", [])
    parser.addini("felice_properties", "options of every felice_broker: name=value", "linelist", [])


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line(
        "markers", "felice(topics, properties): topics and broker options of this test's felice_broker"
    )


@pytest.fixture
def felice_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A new broker for this test (`felice.testing.Broker`), empty except for its topics."""
    topics, properties = _configured(request.config)
    for mark in reversed(list(request.node.iter_markers("felice"))):
        asked = _arguments(mark)
        topics |= _topics_of(asked.get("topics", {}))
        properties |= asked.get("properties", {})
    yield from _running(topics, properties)


@pytest.fixture(scope="session")
def felice_broker_session(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """One broker for the whole run: give each test topics and groups of its own."""
    yield from _running(*_configured(request.config))


def _arguments(mark: pytest.Mark) -> _Arguments:
    """The arguments of a mark. An unknown or malformed argument fails the test, instead of being ignored."""
    if mark.args:
        _refuse(f"the mark takes {_ARGUMENTS} by name, not {mark.args[0]!r}")
    for name in mark.kwargs:
        if name not in _KINDS:
            _refuse(f"the mark has no argument {name}{_suggestion(name, _KINDS)}; it takes {_ARGUMENTS}")
    for name, value in mark.kwargs.items():
        if not isinstance(value, _KINDS[name]):
            _refuse(f"{name} must be {_SHAPES[name]}, not {value!r}")
    for name, value in mark.kwargs.get("properties", {}).items():
        if not isinstance(value, str):
            _refuse(f"the value of {name} must be text as in a file, not {value!r}")
    return cast(_Arguments, mark.kwargs)


def _topics_of(asked: Mapping[str, int] | Sequence[str]) -> dict[str, int]:
    topics = dict(asked) if isinstance(asked, Mapping) else dict.fromkeys(asked, 1)
    for name, partitions in topics.items():
        if not isinstance(partitions, int) or partitions < 1:
            _refuse(f"topic {name} needs a number of partitions of 1 or more, not {partitions!r}")
    return topics


def _suggestion(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f" (did you mean {near[0]}?)" if near else ""


def _refuse(reason: str) -> NoReturn:
    pytest.fail(f"felice: {reason}", pytrace=False)


def _running(topics: Mapping[str, int], properties: Mapping[str, str]) -> Iterator[Broker]:
    from felice.testing.broker import Broker  # only now: importing a broker takes time

    with _started(lambda: Broker(topics=topics, properties=properties)) as broker:
        yield broker


def _started(start: Callable[[], Broker]) -> Broker:
    """Start a broker. If it refuses its topics or properties, the test fails with one line instead of a traceback."""
    from felice.config import ConfigError
    from felice.protocol.errors import ApiError
    from felice.server.startup import StartupError

    try:
        return start()
    except (ApiError, ConfigError, StartupError) as error:
        reason = str(error)
    _refuse(reason)


def _configured(config: pytest.Config) -> tuple[dict[str, int], dict[str, str]]:
    topics: dict[str, int] = {}
    for line in config.getini("felice_topics"):
        name, _, partitions = line.partition(":")
        if partitions and not partitions.strip().isdecimal():
            raise pytest.UsageError(f"felice_topics: {line!r} is not `name` or `name:partitions`")
        topics[name.strip()] = int(partitions or 1)
    properties: dict[str, str] = {}
    for line in config.getini("felice_properties"):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"felice_properties: {line!r} is not `name=value`")
        properties[name.strip()] = value.strip()
    return topics, properties
