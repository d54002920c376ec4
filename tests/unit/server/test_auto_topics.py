"""Automatically created topics: what is logged when they cannot be created."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest

from felice.config import BrokerConfig
from felice.controller.topic_plans import NewTopic
from felice.metadata import ClusterImage
from felice.metadata.store import StoreUnavailable
from felice.protocol.errors import ApiError, ErrorCode
from felice.server.configs.settings import Settings
from felice.server.lifecycle import Lifecycle
from felice.server.topics import auto_topics
from felice.server.topics.auto_topics import MAX_CREATING, AutoTopics

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


class Controller:
    """Fails for the reasons given, one a call, and then creates."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.requests: list[NewTopic] = []

    async def create_topic(self, requested: NewTopic) -> None:
        if self.faults:
            raise self.faults.pop(0)
        self.requests.append(requested)


def topics(controller: Controller, brokers: int = 0, alone: bool = False, **options: str) -> AutoTopics:
    named = {name.replace("_", "."): value for name, value in options.items()}
    image = SimpleNamespace(topics=ClusterImage().topics, brokers=dict.fromkeys(range(brokers)))
    settings, watcher = Settings(BrokerConfig.parse(named)[0]), SimpleNamespace(image=image)
    return AutoTopics(settings, Lifecycle(), watcher, controller, stands_alone=alone)  # type: ignore[arg-type]


def ask(asked: AutoTopics, name: str, times: int) -> None:
    async def several() -> None:
        for _ in range(times):
            asked.ensure(name)
            await asked.finish()

    asyncio.run(several())


def test_so_many_names_at_once_begin_only_a_bounded_number_of_topics() -> None:
    controller = Controller()

    async def flood() -> None:
        asked = topics(controller)
        for number in range(MAX_CREATING + 5):
            asked.ensure(f"t{number}")
        asked.ensure(OFFSETS)
        await asked.finish()
        asked.ensure(f"t{MAX_CREATING}")
        await asked.finish()

    asyncio.run(flood())
    names = [requested.name for requested in controller.requests]
    assert names == [*(f"t{number}" for number in range(MAX_CREATING)), OFFSETS, f"t{MAX_CREATING}"]


class Silent(Controller):
    """Begins creations and never ends them."""

    async def create_topic(self, requested: NewTopic) -> None:
        await super().create_topic(requested)
        await asyncio.Event().wait()


def test_a_client_waits_for_a_creation_that_ends() -> None:
    async def wait() -> None:
        asked = topics(Controller(too_few(1)))
        for name in ("fails", "works"):
            asked.ensure(name)
        async with asyncio.timeout(60):
            await asked.wait_created(["fails", "works", "nobody creates this one"])
        assert not asked.is_creating(["fails", "works"])

    asyncio.run(wait())


def test_a_client_waits_for_a_creation_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_topics, "CREATION_WAIT_S", 0.01)

    async def wait() -> None:
        asked = topics(Silent())
        asked.ensure("slow")
        async with asyncio.timeout(60):
            await asked.wait_created(["slow"])
        assert asked.is_creating(["other", "slow"]), "the creation goes on"
        assert not asked.is_creating(["other"])

    asyncio.run(wait())


def too_few(brokers: int) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, f"there are {brokers} brokers")


def test_the_reason_why_an_internal_topic_cannot_be_created_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Clients ask for their coordinator ten times a second."""
    controller = Controller(*[too_few(1)] * 5, *[too_few(2)] * 5, *[StoreUnavailable("/", "away")] * 5)
    asked = topics(controller)
    with caplog.at_level(logging.WARNING):
        ask(asked, OFFSETS, 16)
    reasons = [vars(record)["reason"] for record in caplog.records]
    assert reasons == ["there are 1 brokers", "there are 2 brokers", str(StoreUnavailable("/", "away"))]
    assert [requested.name for requested in controller.requests] == [OFFSETS]
    controller.faults = [too_few(2)]
    with caplog.at_level(logging.WARNING):
        ask(asked, OFFSETS, 1)
    assert len(caplog.records) == 4, "it failed again, after it had worked"


def test_the_reason_why_a_clients_topic_cannot_be_created_is_logged_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        ask(topics(Controller(*[too_few(1)] * 3)), "orders", 3)
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    ("name", "options", "brokers", "alone", "replicas", "min_isr"),
    [
        (OFFSETS, {}, 3, False, 3, 2),
        (TRANSACTIONS, {}, 3, False, 3, 2),
        # Asked for, it is what was asked for.
        (OFFSETS, {"min_insync_replicas": "1"}, 3, False, 3, 1),
        (OFFSETS, {"min_insync_replicas": "3"}, 3, False, 3, 3),
        (TRANSACTIONS, {"transaction_state_log_min_isr": "1"}, 3, False, 3, 1),
        # Two replicas of which two must be in sync would stop with either of them.
        (OFFSETS, {"offsets_topic_replication_factor": "2"}, 3, False, 2, 1),
        # More brokers may come: it is waited for them.
        (OFFSETS, {}, 1, False, 3, 2),
        # They cannot where a broker stands alone.
        (OFFSETS, {}, 1, True, 1, 1),
        (TRANSACTIONS, {}, 1, True, 1, 1),
    ],
)
def test_internal_topics_have_as_many_replicas_in_sync_as_there_can_be(
    name: str, options: dict[str, str], brokers: int, alone: bool, replicas: int, min_isr: int
) -> None:
    controller = Controller()
    ask(topics(controller, brokers, alone, **options), name, 1)
    [requested] = controller.requests
    assert (requested.replication_factor, requested.configs["min.insync.replicas"]) == (
        replicas,
        str(min_isr),
    )
