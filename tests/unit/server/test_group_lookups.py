"""Clients that look up a group coordinator and never use it are logged once, and no others."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from felice.server.groups.group_lookups import GroupLookups
from waiting import until

LIBRDKAFKA = "confluent-kafka-python 2.16.1-rdkafka-2.16.0"


def context(client_id: str = "app", peer: str = "10.0.0.1", software: str = LIBRDKAFKA) -> Any:
    return SimpleNamespace(client_id=client_id, session=SimpleNamespace(peer=peer, client_software=software))


async def until_reported(lookups: GroupLookups) -> None:
    await until(lambda: not lookups._waiting)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str | None]]:
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    return [(vars(record)["group"], vars(record)["client_id"]) for record in caplog.records]


def test_a_client_that_never_uses_the_coordinator_is_logged_with_advice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        lookups = GroupLookups(lambda: 0.0, wait_s=0.0)
        lookups.on_lookup(context(), "billing")
        lookups.on_lookup(context(), "billing")
        await until_reported(lookups)
        # Within the minute nothing more is said about this software.
        lookups.on_lookup(context("other"), "stock")
        await until_reported(lookups)

    asyncio.run(scenario())
    assert lines(caplog) == [("billing", "app")]
    assert "set group.protocol=classic" in caplog.text


def test_a_client_that_sends_a_request_about_a_group_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        lookups = GroupLookups(lambda: 0.0, wait_s=3600)
        lookups.on_lookup(context(), "billing")
        lookups.on_lookup(context("other"), "billing")
        lookups.on_group_request(context())
        assert list(lookups._waiting) == [("10.0.0.1", "other")]

    asyncio.run(scenario())
    assert lines(caplog) == []


def test_long_names_are_cut_and_the_client_is_known_again(caplog: pytest.LogCaptureFixture) -> None:
    long = "c" * 32_000

    async def scenario() -> None:
        lookups = GroupLookups(lambda: 0.0, wait_s=0.0)
        lookups.on_lookup(context(long), long)
        lookups.on_group_request(context(long))
        assert not lookups._waiting
        lookups.on_lookup(context(long), long)
        await until_reported(lookups)

    asyncio.run(scenario())
    [(group, client_id)] = lines(caplog)
    assert client_id is not None
    assert len(group) < 300
    assert len(client_id) < 300


def test_a_client_that_reports_the_error_itself_is_not_waited_for() -> None:
    async def scenario() -> None:
        lookups = GroupLookups(lambda: 0.0, wait_s=3600)
        lookups.on_lookup(context(software="apache-kafka-java 4.3.1"), "billing")
        assert lookups._waiting == {}

    asyncio.run(scenario())


def test_the_number_of_clients_that_are_waited_for_is_bounded() -> None:
    async def scenario() -> None:
        lookups = GroupLookups(lambda: 0.0, wait_s=3600)
        for number in range(1100):
            lookups.on_lookup(context(f"app-{number}"), "billing")
        assert len(lookups._waiting) == 1000

    asyncio.run(scenario())
