"""Fixtures: one broker for the session, a new connection for each test, and all clients behind one interface."""

import os
from collections.abc import Callable, Iterator

import pytest

from conformance.spark_session import QUICK, spark
from conformance.targets import IDLE_S, IS_APACHE, Target
from conformance.wire import Wire
from peers.clients import Clients

__all__ = ["spark"]


def pytest_configure(config: pytest.Config) -> None:
    # For each Spark that a test or its processes start.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK)
    config.addinivalue_line(
        "markers", "felice_only: states something of Felice that Apache Kafka does not do"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`felice_only` marks tests without a counterpart in Apache Kafka: our files, our process, our deliberate
    differences.
    """
    for item in items:
        if IS_APACHE and item.get_closest_marker("felice_only"):
            item.add_marker(pytest.mark.skip(reason="states something of Felice alone"))


@pytest.fixture(scope="session")
def broker() -> Iterator[Target]:
    with Target() as target:
        yield target


@pytest.fixture(scope="session")
def impatient_broker() -> Iterator[Target]:
    """A broker that closes idle connections soon: after `IDLE_S`."""
    with Target({"connections.max.idle.ms": str(int(IDLE_S * 1000))}) as target:
        yield target


@pytest.fixture(scope="session")
def strict_broker() -> Iterator[Target]:
    """A broker with small requests and without automatic creation of topics."""
    with Target({"socket.request.max.bytes": "2000000", "auto.create.topics.enable": "false"}) as target:
        yield target


@pytest.fixture
def wire(broker: Target) -> Iterator[Wire]:
    with broker.wire() as connection:
        yield connection


@pytest.fixture
def connect(broker: Target) -> Iterator[Callable[[], Wire]]:
    """A function that opens further connections."""
    opened: list[Wire] = []

    def another() -> Wire:
        opened.append(broker.wire())
        return opened[-1]

    yield another
    for connection in opened:
        connection.close()


@pytest.fixture(scope="session")
def clients() -> Iterator[Clients]:
    with Clients() as started:
        yield started
