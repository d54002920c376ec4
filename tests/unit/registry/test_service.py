"""Writes at the leader: one after the other, fenced, and answered when they were read."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from felice.client.compacted.errors import Fenced, OutcomeUnknown
from felice.client.error import KafkaError, failure
from felice.registry import service
from felice.registry.leader import Identity
from felice.registry.rest import routes
from felice.registry.rights import parse_rules
from felice.web.forwarding import ForwardedAnswer, Forwarder, ForwardingFailed, LeaderAway
from felice.web.login import Login
from registry_rest import Passwords, Rest
from registry_world import schema_record
from waiting import let_run, until


def kafka_error(kind: type[Exception], code: int = KafkaError._FAIL) -> Any:
    return kind(KafkaError(code, "made by the test"))


async def test_a_leader_takes_the_topic_over_once_and_reads_to_its_end() -> None:
    log: list[Any] = []
    other = Rest(log)
    await other.register("s", "x")
    rest = Rest(log)
    assert await rest.register("t", "y") == 2, "the id after that of a version which it had not read"
    assert await rest.register("t", "y z?") == 3
    assert rest.topic.taken_over == 1


async def test_a_write_whose_outcome_is_unknown_is_read_before_the_next_one() -> None:
    rest = Rest()
    await rest.register("s", "x")
    rest.topic.late_failures.append(kafka_error(OutcomeUnknown))
    assert await rest.register("s", "x y?") == (500, 50002)
    assert await rest.register("t", "z") == 3, "the write took place, and its id is taken"
    assert rest.topic.taken_over == 2


async def test_a_write_that_was_not_read_back_is_not_called_refused() -> None:
    rest = Rest()
    await rest.register("s", "x")
    rest.topic.unread_failures.append(failure(KafkaError._TIMED_OUT, "offset 2 was not read"))
    answer = await rest.send("POST", "/subjects/s/versions", {"schema": "x y?"})
    body = answer.json()
    assert (answer.status_code, body["error_code"]) == (500, 50002)
    assert "took the write at offset" in body["message"] and "offset 2 was not read" in body["message"]
    assert await rest.register("t", "z") == 3, (
        "the next write knows of the one before, and does not use its id again"
    )
    assert await rest.register("s", "x y?") == 2


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (kafka_error(Fenced), (500, 50001)),
        (failure(KafkaError._TIMED_OUT, "late"), (500, 50002)),
        (failure(KafkaError._MSG_TIMED_OUT, "late"), (500, 50002)),
        (failure(KafkaError.MSG_SIZE_TOO_LARGE, "large"), (422, 42209)),
        (failure(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no"), (500, 50001)),
    ],
)
async def test_a_failed_write_changes_nothing(error: Any, answer: tuple[int, int]) -> None:
    rest = Rest()
    await rest.register("s", "x")
    rest.topic.failures.append(error)
    assert await rest.register("s", "x y?") == answer
    assert await rest.call("GET", "/subjects/s/versions") == [1]
    assert await rest.register("s", "x y?") == 2


async def test_concurrent_registrations_of_one_schema_get_one_id() -> None:
    rest = Rest()
    rest.topic.gate = asyncio.Event()
    tasks = [asyncio.create_task(rest.register(f"s{n % 5}", "x")) for n in range(20)]
    await let_run(200)
    rest.topic.gate.set()
    assert set(await asyncio.gather(*tasks)) == {1}
    assert await rest.call("GET", "/subjects") == [f"s{n}" for n in range(5)]
    assert all([await rest.call("GET", f"/subjects/s{n}/versions") == [1] for n in range(5)])


async def test_a_registration_is_decided_again_if_the_subject_changed_meanwhile() -> None:
    rest = Rest()
    await rest.register("s", "a")
    rest.topic.gate = asyncio.Event()
    tasks = [asyncio.create_task(rest.register("s", text)) for text in ("a b?", "b", "a c?")]
    await let_run(200)
    rest.topic.gate.set()
    # "b" was not compatible with "a", and is with "a b?"; "a c?" was compatible with "a", and is not with "b".
    assert [await task for task in tasks] == [2, 3, (409, 409)]
    assert await rest.call("GET", "/subjects/s/versions") == [1, 2, 3]


async def test_thousands_of_versions_are_deleted_in_parts() -> None:
    rest = Rest()
    for number in range(1, 12_001):
        key, value = schema_record("s", number, number, f"w{number}")
        assert value is not None
        rest.topic.log.append((key.encode(), value.encode()))
    rest.topic.read()
    assert len(await rest.call("DELETE", "/subjects/s")) == 12_000
    assert len(await rest.call("DELETE", "/subjects/s?permanent=true")) == 12_000
    assert await rest.call("GET", "/subjects?deleted=true") == []


async def test_reads_do_not_wait_for_writes() -> None:
    rest = Rest()
    await rest.register("s", "x")
    rest.topic.gate = asyncio.Event()
    writing = asyncio.create_task(rest.register("s", "x y?"))
    await let_run(100)
    assert await rest.call("GET", "/subjects/s/versions") == [1]
    assert await rest.call("POST", "/compatibility/subjects/s/versions/1", {"schema": "x"}) == {
        "is_compatible": True
    }
    rest.topic.gate.set()
    assert await writing == 2


async def test_a_write_that_waits_too_long_for_others_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LOCK_TIMEOUT_S", 0.01)
    rest = Rest()
    rest.topic.gate = asyncio.Event()
    first = asyncio.create_task(rest.register("s", "x"))
    await until(lambda: rest.registry._lock.locked())
    assert await rest.register("t", "y") == (500, 50002)
    rest.topic.gate.set()
    assert await first == 1


async def test_long_texts_are_compared_on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    rest = Rest()
    threads: list[str] = []
    parse = rest.registry.parser.parse

    def noting(*arguments: Any) -> Any:
        threads.append(threading.current_thread().name)
        return parse(*arguments)

    monkeypatch.setattr(rest.registry.parser, "parse", noting)
    await rest.register("s", "x")
    assert set(threads) == {"MainThread"}
    threads.clear()
    await rest.register("s", "x " + "y? " * 10_000)
    assert threads and all(name.startswith("registry-schemas") for name in threads)
    threads.clear()
    await rest.register("p", "x", schemaType="PROTOBUF")
    assert threads and all(name.startswith("registry-schemas") for name in threads), "its parser waits"


class Forwarding(Forwarder):
    """Passes requests on to another registry in this process."""

    def __init__(self, leader: Rest | None) -> None:
        super().__init__()
        self.leader = leader
        self.sent: list[tuple[str, str, str]] = []
        self.is_away = False

    async def forward(
        self, url: str, method: str, path: str, body: bytes, headers: Any, more: Any = None
    ) -> ForwardedAnswer:
        self.sent.append((url, method, path))
        if self.is_away:
            raise LeaderAway("connection refused")
        if self.leader is None:
            raise ForwardingFailed("the leader is away")
        passed = {name: headers[name] for name in ("content-type", "authorization") if name in headers}
        answer = await self.leader.send(method, path, body, headers={**passed, "x-forward": "false"})
        return ForwardedAnswer(
            answer.status_code, answer.content, {"content-type": answer.headers["content-type"]}
        )


def pair(**arguments: Any) -> tuple[Rest, Rest, Forwarding]:
    """A leader and a follower on one topic."""
    log: list[Any] = []
    leader = Rest(log, **arguments)
    forwarder = Forwarding(leader)
    follower = Rest(log, leads=False, forwarder=forwarder, **arguments)
    follower.leadership.follow(Identity("there", 8081))
    return leader, follower, forwarder


async def test_a_follower_forwards_writes_and_answers_reads() -> None:
    _, follower, forwarder = pair()
    assert await follower.register("a%2Fb", "x") == 1
    assert await follower.call("PUT", "/config/s?x=%20", {"compatibility": "NONE"}) == {
        "compatibility": "NONE"
    }
    assert await follower.register("s", "bad") == (422, 42201), "the follower knows this itself"
    assert await follower.call("DELETE", "/subjects/unknown") == (404, 40401)
    follower.topic.read()
    assert await follower.call("GET", "/subjects") == ["a/b"]
    assert await follower.register("a%2Fb", "x") == 1
    assert forwarder.sent == [
        ("http://there:8081", "POST", "/subjects/a%2Fb/versions"),
        ("http://there:8081", "PUT", "/config/s?x=%20"),
        ("http://there:8081", "DELETE", "/subjects/unknown"),
    ], "a schema that is there is answered by the follower"
    assert follower.topic.taken_over == 0


async def test_a_forwarded_request_is_not_forwarded_again() -> None:
    _, follower, forwarder = pair()
    answer = await follower.send(
        "POST", "/subjects/s/versions", {"schema": "x"}, headers={"X-Forward": "false"}
    )
    assert (answer.status_code, answer.json()["error_code"]) == (500, 50004)
    assert forwarder.sent == []


async def test_without_a_leader_writes_fail_and_reads_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "LEADER_WAIT_S", 0.01)
    rest = Rest(leads=False)
    assert await rest.register("s", "x") == (500, 50004)
    assert await rest.call("GET", "/subjects") == []
    rest.leadership.follow(Identity("there", 1))
    rest = Rest(leads=False, forwarder=Forwarding(None))
    rest.leadership.follow(Identity("there", 1))
    assert await rest.register("s", "x") == (500, 50003)


async def test_a_write_waits_for_a_leader() -> None:
    rest = Rest(leads=False)
    writing = asyncio.create_task(rest.register("s", "x"))
    await let_run(100)
    assert not writing.done()
    rest.leadership.lead(Identity("here", 1))
    assert await writing == 1


async def test_a_registry_whose_membership_may_be_over_does_not_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "LEADER_WAIT_S", 0.01)
    rest = Rest()
    await rest.register("s", "x")
    rest.leadership.holds = lambda: False
    assert await rest.register("s", "x y?") == (500, 50004)
    assert len(rest.topic.log) == 1


async def test_a_registry_that_leads_again_reads_what_others_wrote_meanwhile() -> None:
    log: list[Any] = []
    one, two = Rest(log), Rest(log, leads=False)
    await one.register("s", "x")
    one.leadership.follow(None)
    two.leadership.lead(Identity("two", 1))
    assert await two.register("s", "x y?") == 2
    two.leadership.follow(None)
    one.leadership.lead(Identity("one", 1))
    assert await one.register("t", "z") == 3
    assert (one.topic.taken_over, two.topic.taken_over) == (2, 1)


async def test_a_role_that_changes_during_a_take_over_needs_another_one() -> None:
    rest = Rest()
    await until(lambda: rest.registry.journal.is_ours)
    rest.topic.take_over_gate = asyncio.Event()
    journal = rest.registry.journal
    taking = asyncio.create_task(journal.take_over())
    await let_run()
    journal.lose()
    rest.topic.take_over_gate.set()
    await taking
    assert not journal.is_ours


async def test_a_leader_that_lost_its_role_while_it_waited_writes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "LEADER_WAIT_S", 0.01)
    rest = Rest()
    await rest.register("s", "x")
    rest.topic.gate = asyncio.Event()
    first = asyncio.create_task(rest.register("s", "x y?"))
    await until(lambda: rest.registry._lock.locked())
    second = asyncio.create_task(rest.register("t", "z"))
    await let_run(100)
    rest.leadership.follow(None)
    rest.topic.gate.set()
    assert await first == 2, "this write had begun; the fence decides about it"
    assert await second == (500, 50004)


async def test_a_forwarder_gives_an_unreachable_leader_up() -> None:
    forwarder = Forwarder()
    with pytest.raises(LeaderAway):
        await forwarder.forward("http://127.0.0.1:9", "POST", "/", b"", {})
    await forwarder.close()


async def test_a_leader_that_breaks_off_may_have_got_the_request() -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    server = await asyncio.start_server(break_off, "127.0.0.1", 0)
    forwarder = Forwarder()
    with pytest.raises(ForwardingFailed, match="Error while forwarding the request to the leader"):
        port = server.sockets[0].getsockname()[1]
        await forwarder.forward(f"http://127.0.0.1:{port}", "POST", "/", b"", {})
    await forwarder.close()
    server.close()
    await server.wait_closed()


async def test_a_write_waits_for_the_successor_of_a_leader_that_is_away() -> None:
    _, follower, forwarder = pair()
    forwarder.is_away = True
    writing = asyncio.create_task(follower.register("s", "x"))
    await until(lambda: forwarder.sent)
    await let_run(50)
    assert not writing.done()
    follower.leadership.lead(Identity("here", 1))
    assert await writing == 1


async def test_a_write_to_a_leader_that_stays_away_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "LEADER_WAIT_S", 0.01)
    _, follower, forwarder = pair()
    forwarder.is_away = True
    assert await follower.register("s", "x") == (500, 50003)
    assert len(forwarder.sent) == 2


async def test_a_damaged_record_is_named_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    log: list[Any] = [
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b"{"),
        (None, b"x"),
        (b'{"keytype":"ASSOCIATION"}', b"{}"),
        (
            b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            b'{"subject":"s","version":1,"id":1,"schema":"x","deleted":false}',
        ),
        (
            b'{"keytype":"SCHEMA","subject":"t","version":1,"magic":1}',
            b'{"subject":"t","version":1,"id":1,"schema":"other","deleted":false}',
        ),
    ]
    with caplog.at_level(logging.WARNING, "felice.registry"):
        rest = Rest(log)
        rest.topic.read()
    assert [(line.levelname, line.getMessage(), line.offset) for line in caplog.records] == [  # type: ignore[attr-defined]
        ("WARNING", "skipped a damaged record", 0),
        ("WARNING", "skipped a damaged record", 1),
        ("WARNING", "skipped a record of an unknown kind", 2),
        ("ERROR", "skipped a record that contradicts an earlier one", 4),
    ]
    assert await rest.call("GET", "/subjects") == ["s"]


RULES = """
allow reader read             orders-*
allow writer read,write       orders-*
allow owner  *                *
deny  owner  delete           orders-keep
"""


@pytest.mark.parametrize(
    ("user", "method", "path", "body", "status"),
    [
        (None, "GET", "/subjects", None, 401),
        ("reader", "GET", "/subjects/orders-a/versions", None, 200),
        ("reader", "GET", "/subjects/orders-a/versions/1", None, 200),
        ("reader", "GET", "/subjects/other/versions", None, 403),
        ("reader", "GET", "/subjects/other/versions/1", None, 403),
        ("reader", "GET", "/subjects/other/versions/1/schema", None, 403),
        ("reader", "GET", "/subjects/secret/versions/1", None, 403),
        ("reader", "GET", "/subjects/other/metadata", None, 403),
        ("reader", "POST", "/subjects/other", {"schema": "o"}, 403),
        ("reader", "POST", "/subjects/orders-a/versions", {"schema": "x"}, 403),
        ("writer", "POST", "/subjects/orders-b/versions", {"schema": "x"}, 200),
        (
            "writer",
            "POST",
            "/subjects/orders-b/versions",
            {"schema": "uses r", "references": [{"name": "r", "subject": "other", "version": 1}]},
            403,
        ),
        ("writer", "DELETE", "/subjects/orders-a", None, 403),
        ("writer", "POST", "/compatibility/subjects/orders-a/versions", {"schema": "x"}, 403),
        ("owner", "POST", "/compatibility/subjects/orders-a/versions", {"schema": "x"}, 200),
        ("owner", "DELETE", "/subjects/orders-keep", None, 403),
        ("owner", "DELETE", "/subjects/orders-a", None, 200),
        ("reader", "GET", "/config", None, 403),
        ("reader", "GET", "/config/orders-a?defaultToGlobal=true", None, 200),
        ("writer", "PUT", "/config/orders-a", {"compatibility": "NONE"}, 403),
        ("writer", "PUT", "/mode", {"mode": "READONLY"}, 403),
        ("owner", "PUT", "/mode", {"mode": "READWRITE"}, 200),
        ("reader", "GET", "/schemas/ids/1", None, 200),
        ("reader", "GET", "/schemas/ids/2", None, 403),
        ("reader", "GET", "/schemas/ids/2/schema", None, 403),
        ("reader", "GET", "/schemas/ids/3", None, 200),
        ("reader", "DELETE", "/contexts/.eu", None, 403),
        ("reader", "GET", "/schemas/types", None, 200),
    ],
)
async def test_rules_decide_what_a_user_may_do(
    user: str | None, method: str, path: str, body: Any, status: int
) -> None:
    rest = Rest(rights=parse_rules(RULES), login=Login(Passwords()))
    for subject, text in (
        ("orders-a", "x"),
        ("other", "o"),
        ("other2", "q"),
        ("orders-a2", "q"),
        (":.eu:secret", "s"),
    ):
        await rest.call("POST", f"/subjects/{subject}/versions", {"schema": text}, user="owner")
    answer = await rest.send(method, path, body, user=user)
    assert answer.status_code == status, answer.text
    if status == 403:
        assert answer.json()["error_code"] == 40301


async def test_lists_have_only_what_a_user_may_read() -> None:
    rest = Rest(rights=parse_rules(RULES), login=Login(Passwords()))
    for subject, text in (("orders-a", "x"), ("other", "x"), ("orders-b", "x"), (":.eu:secret", "s")):
        await rest.call("POST", f"/subjects/{subject}/versions", {"schema": text}, user="owner")
    get = lambda path: rest.call("GET", path, user="reader")  # noqa: E731
    assert await get("/subjects") == ["orders-a", "orders-b"]
    assert await get("/subjects?offset=1&limit=1") == ["orders-b"]
    assert [found["subject"] for found in await get("/schemas")] == ["orders-a", "orders-b"]
    assert await get("/schemas/ids/1/subjects") == ["orders-a", "orders-b"]
    assert await get("/contexts") == ["."]
    assert (await get("/schemas/ids/1"))["subject"] == "orders-a"


@pytest.mark.parametrize("given", ["99999999999999999999", "2147483648", "x", "1.5", "1_0"])
async def test_a_number_of_the_query_is_one_of_32_bits(given: str) -> None:
    rest = Rest()
    await rest.register("s", "x")
    answer = await rest.send("GET", f"/schemas?offset={given}")
    assert (answer.status_code, answer.json()["error_code"]) == (400, 400)
    assert answer.json()["message"].startswith("the parameter offset must be a number of 32 bits")
    assert (await rest.send("GET", "/schemas?offset=2147483647&limit=-1")).json() == []
