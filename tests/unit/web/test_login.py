"""HTTP Basic log in, and the guard against guessing."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable, Callable

import pytest

from felice.web import login as module
from felice.web.attempts import FREE_FAILURES
from felice.web.basic import credentials_of
from felice.web.limits import Limits
from felice.web.login import (
    KEPT_S,
    MAX_CHECKS,
    MAX_CHECKS_OF_ADDRESS,
    CannotCheck,
    Login,
    TooManyFailures,
    WrongLogin,
)
from unit.web.serving_app import Serving, request_of, run
from waiting import until

FAILURE_S = 0.1


@pytest.fixture(autouse=True)
def _short_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FAILURE_S", FAILURE_S)


class Users:
    """Alice has the password `right`. Counts the checks, and those that run at a time."""

    def __init__(self, begins: asyncio.Event | None = None) -> None:
        self.checks = self.running = self.most = 0
        self.fails = False
        self._begins = begins

    async def verify(self, user: str, password: str) -> None:
        self.checks += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self._begins is not None:
                await self._begins.wait()
            if self.fails:
                raise CannotCheck("no broker answers")
            if (user, password) != ("alice", "right"):
                raise WrongLogin("unknown user" if user != "alice" else "wrong password")
        finally:
            self.running -= 1


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def in_loop(scenario: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(limited())


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("Basic YWxpY2U6cmlnaHQ=", ("alice", "right")),
        ("basic  YWxpY2U6cmlnaHQ= ", ("alice", "right")),
        ("Basic " + base64.b64encode("ä:ö:ü".encode()).decode(), ("ä", "ö:ü")),
        ("Basic " + base64.b64encode(b":").decode(), ("", "")),
        ("Basic " + base64.b64encode(b"alice").decode(), None),
        ("Basic " + base64.b64encode(b"\xff:\xff").decode(), None),
        ("Basic !", None),
        ("Basic", None),
        ("Bearer YWxpY2U6cmlnaHQ=", None),
        ("", None),
    ],
)
def test_user_and_password_are_those_of_the_header(header: str, expected: tuple[str, str] | None) -> None:
    assert credentials_of(header) == expected


def test_a_request_needs_a_user_before_anything_else_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "felice.web")

    async def scenario(serving: Serving) -> None:
        answers = []
        for path, headers in (
            ("/hello", {}),
            ("/nothing", {}),
            ("/hello", basic("alice", "wrong")),
            ("/nothing", basic("nobody", "right")),
        ):
            status, found, body = await serving.ask(request_of("GET", path, headers=headers))
            assert status == 401
            assert found["www-authenticate"] == 'Basic realm="felice", charset="UTF-8"'
            answers.append(json.loads(body)["message"])
        assert answers == ["this server needs a user and a password"] * 2 + ["wrong user or password"] * 2
        status, _, body = await serving.ask(request_of("GET", "/user", headers=basic("alice", "right")))
        assert (status, body) == (200, b"alice")
        status, _, _ = await serving.ask(request_of("GET", "/nothing", headers=basic("alice", "right")))
        assert status == 404

    run(scenario, login=Login(Users()))
    lines = [record.__dict__ for record in caplog.records if record.name == "felice.web.access"]
    assert [line.get("user") for line in lines] == [None] * 4 + ["alice"] * 2
    assert "right" not in caplog.text


def test_the_body_of_a_stranger_is_not_read() -> None:
    async def scenario(serving: Serving) -> None:
        request = request_of("POST", "/count", headers={"Content-Length": "5000", "Expect": "100-continue"})
        assert (await serving.ask(request))[0] == 401

    run(scenario, login=Login(Users()), limits=Limits(linger_s=600, body_s=600))


def test_a_server_with_a_log_in_answers_under_any_name() -> None:
    async def scenario(serving: Serving) -> None:
        request = request_of("GET", "/hello", headers=basic("alice", "right"))
        assert (await serving.ask(request.replace(b"localhost", b"registry.example")))[0] == 200

    run(scenario, login=Login(Users()))


def test_too_many_failures_are_refused_with_the_time_to_wait() -> None:
    async def scenario(serving: Serving) -> None:
        wrong = request_of("GET", "/hello", headers=basic("alice", "wrong"))
        for _ in range(FREE_FAILURES):
            assert (await serving.ask(wrong))[0] == 401
        status, headers, body = await serving.ask(wrong)
        assert (status, headers["retry-after"]) == (429, "1")
        assert json.loads(body)["message"] == "too many log ins failed; wait 1 s"

    run(scenario, login=Login(Users(), lambda: 0.0))


def test_a_check_that_is_not_possible_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    users = Users()
    users.fails = True

    async def scenario(serving: Serving) -> None:
        request = request_of("GET", "/hello", headers=basic("alice", "right"))
        for _ in range(FREE_FAILURES + 1):
            status, _, body = await serving.ask(request)
            assert (status, json.loads(body)["message"]) == (503, "users cannot be checked now")
        users.fails = False
        assert (await serving.ask(request))[0] == 200

    run(scenario, login=Login(users))
    assert {record.__dict__.get("reason") for record in caplog.records} == {"no broker answers"}


def test_a_success_counts_for_a_while_also_when_others_guess() -> None:
    async def scenario() -> None:
        users, now_s = Users(), 0.0
        login = Login(users, lambda: now_s)
        await login.check("alice", "right", "1.2.3.4")
        for number in range(FREE_FAILURES):
            with pytest.raises(WrongLogin):
                await login.check("alice", f"guess {number}", "1.2.3.4")
        await login.check("alice", "right", "1.2.3.4")
        assert users.checks == 1 + FREE_FAILURES
        with pytest.raises(TooManyFailures):
            await login.check("alice", "guess", "1.2.3.4")
        now_s = KEPT_S + 1
        await login.check("alice", "right", "1.2.3.4")
        assert users.checks == 2 + FREE_FAILURES

    in_loop(scenario)


def test_a_success_ends_the_failures_before_it() -> None:
    async def scenario() -> None:
        login = Login(Users(), lambda: 0.0)
        for _ in range(3):
            for number in range(FREE_FAILURES - 1):
                with pytest.raises(WrongLogin):
                    await login.check("alice", f"guess {number}", "1.2.3.4")
            login._successes.clear()
            await login.check("alice", "right", "1.2.3.4")

    in_loop(scenario)


def test_a_failure_takes_the_same_time_for_all_reasons() -> None:
    async def scenario() -> None:
        login, loop = Login(Users()), asyncio.get_running_loop()
        for user in ("alice", "nobody"):
            began = loop.time()
            with pytest.raises(WrongLogin):
                await login.check(user, "wrong", "1.2.3.4")
            assert loop.time() - began >= FAILURE_S - 0.01

    in_loop(scenario)


def test_requests_with_one_password_share_a_check() -> None:
    async def scenario() -> None:
        begins = asyncio.Event()
        users = Users(begins)
        login = Login(users)
        checks = [asyncio.ensure_future(login.check("alice", "right", "1.2.3.4")) for _ in range(50)]
        await until(lambda: users.running)
        checks.pop().cancel()  # a client that went away
        begins.set()
        await asyncio.gather(*checks)
        assert users.checks == 1

    in_loop(scenario)


def test_few_checks_run_at_a_time_and_few_of_one_address_wait() -> None:
    async def scenario() -> None:
        begins = asyncio.Event()
        users = Users(begins)
        login = Login(users)
        guesses = [asyncio.ensure_future(login.check("alice", str(n), "1.2.3.4")) for n in range(50)]
        await until(lambda: users.running)
        other = asyncio.ensure_future(login.check("alice", "right", "5.6.7.8"))
        refused = [guess for guess in guesses if guess.done()]
        assert len(refused) == 50 - MAX_CHECKS_OF_ADDRESS
        assert all(isinstance(guess.exception(), TooManyFailures) for guess in refused)
        begins.set()
        await other
        for guess in guesses:
            with pytest.raises((WrongLogin, TooManyFailures)):
                await guess
        assert users.most == MAX_CHECKS
        await until(lambda: not login._checking)
        assert login._of_address == {}

    in_loop(scenario)
