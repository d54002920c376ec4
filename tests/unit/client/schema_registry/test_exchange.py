"""The attempts of one request: which are made again, when, where, and what the last one means. No time passes."""

from __future__ import annotations

from typing import Any

import pytest

from felice.client.schema_registry.error import SchemaRegistryError
from felice.client.schema_registry.exchange import RETRIABLE, Failed, Reply, Request, exchange, wait_ms
from felice.client.schema_registry.settings import Settings
from felice.client.schema_registry.steps import Call, Send, Step, Wait, run

GOOD = Reply(200, b'{"a": 1}')
LATER = Reply(503, b'{"error_code": 50301, "message": "later"}')
NEVER = Reply(422, b'{"error_code": 42201, "message": "no"}')
LOST = Failed(OSError("lost"), retriable=True)
BROKEN = Failed(RuntimeError("closed"), retriable=False)


class Network:
    """Answers as a script says, and keeps what was done."""

    def __init__(self, *outcomes: Reply | Failed) -> None:
        self._outcomes = list(outcomes)
        self.hosts: list[str] = []
        self.sent: list[Send] = []
        self.waits: list[float] = []

    def __call__(self, step: Step) -> Any:
        if isinstance(step, Wait):
            return self.waits.append(step.seconds)
        if isinstance(step, Call):
            return step.function(*step.arguments)
        assert isinstance(step, Send)
        self.sent.append(step)
        self.hosts.append(step.url.split("/")[2])
        return self._outcomes.pop(0)


def asked(network: Network, **conf: Any) -> Any:
    given = {"url": "http://a,http://b", "max.retries": 2} | {
        name.replace("_", "."): value for name, value in conf.items()
    }
    return run(exchange(Settings.of(given), Request("GET", "x"), lambda: 0.5, "agent"), network)


@pytest.mark.parametrize(
    ("outcomes", "hosts"),
    [
        ([GOOD], "a"),
        ([LATER, GOOD], "aa"),
        ([LOST, LATER, GOOD], "aaa"),
        ([LATER, LATER, LATER, GOOD], "aaab"),
        ([BROKEN, GOOD], "ab"),
        ([LOST, LOST, LOST, LOST, GOOD], "aaabb"),
    ],
)
def test_an_attempt_is_made_again_until_it_is_good(outcomes: list[Any], hosts: str) -> None:
    network = Network(*outcomes)
    assert asked(network) == {"a": 1}
    assert "".join(network.hosts) == hosts


@pytest.mark.parametrize(
    ("outcomes", "error", "hosts"),
    [
        ([NEVER], SchemaRegistryError, "a"),
        ([LATER] * 6, SchemaRegistryError, "aaabbb"),
        ([LOST] * 6, OSError, "aaabbb"),
        ([BROKEN] * 2, RuntimeError, "ab"),
        ([LOST] * 3 + [NEVER], SchemaRegistryError, "aaab"),
        ([LATER] * 3 + [BROKEN], RuntimeError, "aaab"),
    ],
)
def test_the_last_outcome_is_the_error(outcomes: list[Any], error: type[Exception], hosts: str) -> None:
    network = Network(*outcomes)
    with pytest.raises(error):
        asked(network)
    assert "".join(network.hosts) == hosts


def test_waits_double_up_to_their_limit() -> None:
    network = Network(*[LATER] * 5, GOOD)
    asked(network, url="http://a", max_retries=5, retries_wait_ms=100, retries_max_wait_ms=1000)
    assert network.waits == [0.05, 0.1, 0.2, 0.4, 0.5]


def test_a_wait_is_random_below_its_limit() -> None:
    assert wait_ms(100, 1000, 0, lambda: 0.0) == 0
    assert wait_ms(100, 1000, 2, lambda: 0.999) == pytest.approx(399.6)
    assert wait_ms(100, 1000, 5000, lambda: 1.0) == 1000


def test_without_retries_each_url_is_asked_once() -> None:
    network = Network(LATER, GOOD)
    assert asked(network, max_retries=0) == {"a": 1}
    assert (network.hosts, network.waits) == (["a", "b"], [])


def test_the_statuses_that_are_retried() -> None:
    retried = []
    for status in range(300, 600):
        network = Network(Reply(status, b"{}"), GOOD)
        try:
            asked(network, url="http://a", max_retries=1)
            retried.append(status)
        except SchemaRegistryError:
            assert len(network.sent) == 1
    assert frozenset(retried) == RETRIABLE == {408, 429, 500, 502, 503, 504}


def test_an_error_has_the_registrys_codes_and_text() -> None:
    with pytest.raises(SchemaRegistryError) as caught:
        asked(Network(NEVER))
    error = caught.value
    assert (error.http_status_code, error.error_code, error.error_message) == (422, 42201, "no")
    assert str(error) == repr(error) == "no (HTTP status code 422, SR code 42201)"


@pytest.mark.parametrize("reply", [Reply(204, b"{"), Reply(200, b"")])
def test_an_empty_answer_is_none(reply: Reply) -> None:
    assert asked(Network(reply)) is None


def test_a_long_page_is_not_repeated_in_the_error() -> None:
    with pytest.raises(SchemaRegistryError) as caught:
        asked(Network(Reply(404, b"<html>" + b"x" * 100_000)))
    assert len(str(caught.value)) < 2000


def test_the_token_of_a_function_is_asked_for_once_for_all_attempts() -> None:
    calls: list[Any] = []

    def fields(config: Any) -> Any:
        calls.append(config)
        return {"bearer.auth.token": f"t{len(calls)}", "bearer.auth.logical.cluster": "c"}

    network = Network(LATER, LATER, LATER, GOOD)
    asked(
        network,
        bearer_auth_credentials_source="CUSTOM",
        bearer_auth_custom_provider_function=fields,
        bearer_auth_custom_provider_config={"a": 1},
    )
    assert calls == [{"a": 1}]
    assert {send.headers["Authorization"] for send in network.sent} == {"Bearer t1"}


def test_a_function_that_returns_no_token_is_named() -> None:
    with pytest.raises(ValueError, match="did not return bearer.auth.token"):
        asked(
            Network(),
            bearer_auth_credentials_source="CUSTOM",
            bearer_auth_custom_provider_function=lambda config: {},
            bearer_auth_custom_provider_config={},
        )


def test_a_configuration_never_shows_its_secrets() -> None:
    for conf in (
        {"url": "http://a:secret@h", "basic_auth_user_info": "b:secret"},
        {"url": "ftp://a:secret@h"},
        {"basic_auth_user_info": "secret"},
        {"bearer_auth_credentials_source": "STATIC_TOKEN", "bearer_auth_token": "secret"},
    ):
        with pytest.raises(ValueError) as caught:
            asked(Network(), **conf)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["timeout", "cache.capacity", "cache.latest.ttl.sec", "max.retries", "retries.wait.ms"]
)
def test_a_negative_number_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Settings.of({"url": "http://a", name: -2})
