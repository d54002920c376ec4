"""The pytest plugin: fixtures `felice_broker` (fresh for each test) and `felice_broker_session` (one for all).

    [tool.pytest.ini_options]
    felice_topics = ["orders:3", "payments"]
    felice_properties = ["message.max.bytes=2000000"]

    @pytest.mark.felice(topics={"audit": 1}, properties={"num.partitions": "2"})
    def test_orders(felice_broker): ...

Keeps true: a test run that uses no fixture of these loads nothing of Felice but this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from felice.testing.broker import Broker


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("felice_topics", "topics of every felice_broker: name or name:partitions", "linelist", [])
    parser.addini("felice_properties", "options of every felice_broker: name=value", "linelist", [])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "felice(topics, properties): topics and broker options of this test's felice_broker"
    )


@pytest.fixture
def felice_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of this test's own (`felice.testing.Broker`), empty but for its topics."""
    topics, properties = _configured(request.config)
    for mark in reversed(list(request.node.iter_markers("felice"))):
        asked = mark.kwargs.get("topics", {})
        topics |= asked if isinstance(asked, Mapping) else dict.fromkeys(asked, 1)
        properties |= mark.kwargs.get("properties", {})
    yield from _running(topics, properties)


@pytest.fixture(scope="session")
def felice_broker_session(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """One broker for the whole run: give each test topics and groups of its own."""
    yield from _running(*_configured(request.config))


def _running(topics: Mapping[str, int], properties: Mapping[str, str]) -> Iterator[Broker]:
    from felice.testing.broker import Broker  # only now: it costs what a broker costs

    with Broker(topics=topics, properties=properties) as broker:
        yield broker


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
