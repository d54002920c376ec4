"""Every call with a time limit ends at it, on connections that answer nothing, are cut, or stop in their middle.

The tables name every public method of every client. A new method needs a row: a call, or the reason why it waits for
no broker. The calls of one table run at the same time, a few at once, and each row is a test of its outcome.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from felice.client import (
    AdminClient,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from felice.client.admin import (
    AbortTransactionSpec,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ConfigResource,
    ElectionType,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
)
from felice.client.admin.model import FeatureUpdate, UpgradeType
from felice.client.admin.quotas import ClientQuotaAlteration, ClientQuotaEntity
from felice.client.aio import Admin, AIOConsumer, AIOProducer
from felice.client.blocking import LATEST, BlockingClient
from felice.client.blocking.coordinators import BlockingCoordinators, TransactionalProducer
from felice.client.group.requests import CommittedOffset
from felice.client.model import ConsumerGroupMetadata
from felice.protocol.messages.metadata import MetadataRequest
from felice.records.builder import build_batch
from felice.records.record import Record
from felice.testing import Broker
from proxy import CUT, DEAF, HALF_CLOSED, SILENT, SLOW, TRUNCATED, Fault, Proxy, behind
from waiting import wait_until

LIMIT_S = 0.5
REQUEST_S = 1.0
# Far below the 30 s of `request.timeout.ms`, and far above the limit, for a machine under load.
TOLERANCE_S = 15.0

TIMED_OUT, TRANSPORT, DOWN = KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN
AT = TopicPartition("t", 0)
TOPIC = ConfigResource(ResourceType.TOPIC, "t")
RULE = AclBinding(
    ResourceType.TOPIC,
    "t",
    ResourcePatternType.LITERAL,
    "User:a",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)
ANY_RULE = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)
GROUP = ConsumerGroupMetadata("g")


class Returns:
    """Instead of an error's code: the call returns a value."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Waits:
    """Instead of a call: the method does not wait for a broker, or another row has it."""

    def __init__(self, why: str) -> None:
        self.why = why


LOCAL = Waits("no broker is asked")
MEMBER = Waits("it only starts work in the background")

# Method -> the call, and how it ends while nothing has ever been answered: an error's code, or a value.
Row = tuple[Callable[..., Any], Any] | Waits

CONSUMER: dict[str, Row] = {
    "assign": LOCAL,
    "assignment": LOCAL,
    "close": (lambda one: one.close(), Returns(None)),
    "cluster_id": (lambda one: one.cluster_id(LIMIT_S), TIMED_OUT),
    "commit": (lambda one: one.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False), TIMED_OUT),
    "committed": (lambda one: one.committed([AT], LIMIT_S), TIMED_OUT),
    "consume": (lambda one: one.consume(1, LIMIT_S), Returns([])),
    "consume_arrow": (lambda one: one.consume_arrow(timeout=LIMIT_S).num_rows, Returns(0)),
    "consumer_group_metadata": LOCAL,
    "get_watermark_offsets": (lambda one: one.get_watermark_offsets(AT, LIMIT_S), DOWN),
    "incremental_assign": LOCAL,
    "incremental_unassign": LOCAL,
    "list_topics": (lambda one: one.list_topics(timeout=LIMIT_S), TRANSPORT),
    "memberid": LOCAL,
    "offsets_for_times": (lambda one: one.offsets_for_times([TopicPartition("t", 0, 1)], LIMIT_S), DOWN),
    "pause": LOCAL,
    "poll": (lambda one: one.poll(LIMIT_S), Returns(None)),
    "position": LOCAL,
    "resume": LOCAL,
    "seek": LOCAL,
    "store_offsets": LOCAL,
    "subscribe": MEMBER,
    "unassign": LOCAL,
    "unsubscribe": (lambda one: (one.subscribe(["t"]), one.unsubscribe())[1], Returns(None)),
}

AIO_CONSUMER: dict[str, Row] = {
    name: CONSUMER[name] for name in CONSUMER if name not in ("consume_arrow", "memberid", "unsubscribe")
} | {"unsubscribe": (lambda one: one.unsubscribe(), Returns(None))}


def reported(one: Producer, **arguments: Any) -> int:
    reports: list[int] = []
    one.produce("t", b"v", on_delivery=lambda error, message: reports.append(error.code()))
    assert one.flush(TOLERANCE_S) == 0
    return reports[0]


PRODUCER: dict[str, Row] = {
    "abort_transaction": Waits("needs a transaction; transactions are a test of their own"),
    "begin_transaction": LOCAL,
    "close": (lambda one: one.close(LIMIT_S), Returns(True)),
    "cluster_id": (lambda one: one.cluster_id(LIMIT_S), TIMED_OUT),
    "commit_transaction": Waits("needs a transaction; transactions are a test of their own"),
    "flush": (lambda one: (one.produce("t", b"v"), one.flush(LIMIT_S / 2))[1], Returns(1)),
    "init_transactions": (lambda one: one.init_transactions(LIMIT_S), TIMED_OUT),
    "list_topics": (lambda one: one.list_topics(timeout=LIMIT_S), TRANSPORT),
    "poll": (lambda one: (one.produce("t", b"v"), one.poll(LIMIT_S / 2))[1], Returns(0)),
    "produce": (reported, Returns(KafkaError._MSG_TIMED_OUT)),
    "produce_arrow": (lambda one: one.produce_arrow("t", table(), timeout=LIMIT_S), TIMED_OUT),
    "produce_batch": Waits("as produce"),
    "purge": (lambda one: one.purge(), Returns(None)),
    "send_offsets_to_transaction": Waits("needs a transaction; transactions are a test of their own"),
}


async def sent(one: AIOProducer) -> Any:
    return await (await one.produce("t", b"v"))


async def flushed(one: AIOProducer) -> int:
    future = await one.produce("t", b"v")
    future.add_done_callback(lambda done: done.exception())
    return await one.flush(LIMIT_S / 2)


AIO_PRODUCER: dict[str, Row] = {
    "abort_transaction": PRODUCER["abort_transaction"],
    "begin_transaction": LOCAL,
    "close": (lambda one: one.close(), Returns(None)),
    "cluster_id": PRODUCER["cluster_id"],
    "commit_transaction": PRODUCER["commit_transaction"],
    "flush": (flushed, Returns(1)),
    "init_transactions": PRODUCER["init_transactions"],
    "list_topics": PRODUCER["list_topics"],
    "poll": (lambda one: one.poll(LIMIT_S), Returns(0)),
    "produce": (sent, KafkaError._MSG_TIMED_OUT),
    "purge": (lambda one: one.purge(), Returns(None)),
    "send_offsets_to_transaction": PRODUCER["send_offsets_to_transaction"],
}


def table() -> Any:
    import pyarrow as pa

    return pa.table({"value": [b"v"]})


T: Any = {"request_timeout": LIMIT_S}
ONE_GROUP = [ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 1)])]
OFFSETS_OF_ONE_GROUP = [ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0)])]

ADMIN: dict[str, Row] = {
    "abort_transaction": (
        lambda one: one.abort_transaction(AbortTransactionSpec(AT, 0, 1, 0), **T),
        TIMED_OUT,
    ),
    "alter_client_metrics": (lambda one: one.alter_client_metrics("m", {"interval.ms": "1"}, **T), TIMED_OUT),
    "alter_client_quotas": (lambda one: one.alter_client_quotas(quotas(), **T), TIMED_OUT),
    "alter_configs": (lambda one: one.alter_configs([TOPIC], **T), TIMED_OUT),
    "alter_consumer_group_offsets": (lambda one: one.alter_consumer_group_offsets(ONE_GROUP, **T), TIMED_OUT),
    "alter_partition_reassignments": (
        lambda one: one.alter_partition_reassignments({("t", 0): [0]}, **T),
        TIMED_OUT,
    ),
    "alter_replica_log_dirs": (lambda one: one.alter_replica_log_dirs(0, {("t", 0): "/d"}, **T), TIMED_OUT),
    "alter_user_scram_credentials": (
        lambda one: one.alter_user_scram_credentials(
            [UserScramCredentialDeletion("u", ScramMechanism.SCRAM_SHA_256)], **T
        ),
        TIMED_OUT,
    ),
    "close": (lambda one: one.close(), Returns(None)),
    "cluster_id": (lambda one: one.cluster_id(LIMIT_S), TIMED_OUT),
    "create_acls": (lambda one: one.create_acls([RULE], **T), TIMED_OUT),
    "create_delegation_token": (lambda one: one.create_delegation_token(**T), TIMED_OUT),
    "create_partitions": (lambda one: one.create_partitions([NewPartitions("t", 9)], **T), TIMED_OUT),
    "create_topics": (
        lambda one: one.create_topics([NewTopic("n", 1)], operation_timeout=60, **T),
        TIMED_OUT,
    ),
    "delete_acls": (lambda one: one.delete_acls([ANY_RULE], **T), TIMED_OUT),
    "delete_consumer_group_offsets": (
        lambda one: one.delete_consumer_group_offsets(ONE_GROUP, **T),
        TIMED_OUT,
    ),
    "delete_consumer_groups": (lambda one: one.delete_consumer_groups(["g"], **T), TIMED_OUT),
    "delete_records": (lambda one: one.delete_records([AT], **T), TIMED_OUT),
    "delete_topics": (lambda one: one.delete_topics(["n"], operation_timeout=LIMIT_S), TIMED_OUT),
    "describe_acls": (lambda one: one.describe_acls(ANY_RULE, **T), TIMED_OUT),
    "describe_client_metrics": (lambda one: one.describe_client_metrics("m", **T), TIMED_OUT),
    "describe_client_quotas": (lambda one: one.describe_client_quotas(**T), TIMED_OUT),
    "describe_cluster": (
        lambda one: one.describe_cluster(include_authorized_operations=True, **T),
        TIMED_OUT,
    ),
    "describe_configs": (lambda one: one.describe_configs([TOPIC], **T), TIMED_OUT),
    "describe_consumer_groups": (lambda one: one.describe_consumer_groups(["g"], **T), TIMED_OUT),
    "describe_delegation_tokens": (lambda one: one.describe_delegation_tokens(**T), TIMED_OUT),
    "describe_features": (lambda one: one.describe_features(**T), TIMED_OUT),
    "describe_log_dirs": (lambda one: one.describe_log_dirs(**T), TIMED_OUT),
    "describe_producers": (lambda one: one.describe_producers([AT], **T), TIMED_OUT),
    "describe_topics": (lambda one: one.describe_topics(["t"], **T), TIMED_OUT),
    "describe_transactions": (lambda one: one.describe_transactions(["x"], **T), TIMED_OUT),
    "describe_user_scram_credentials": (
        lambda one: one.describe_user_scram_credentials(["u"], **T),
        TIMED_OUT,
    ),
    "elect_leaders": (lambda one: one.elect_leaders(ElectionType.PREFERRED, [AT], **T), TIMED_OUT),
    "expire_delegation_token": (lambda one: one.expire_delegation_token(b"h", **T), TIMED_OUT),
    "fence_producers": (lambda one: one.fence_producers(["x"], **T), TIMED_OUT),
    "force_terminate_transaction": (lambda one: one.force_terminate_transaction("x", **T), TIMED_OUT),
    "incremental_alter_configs": (lambda one: one.incremental_alter_configs([changed()], **T), TIMED_OUT),
    "list_api_versions": (lambda one: one.list_api_versions(**T), TIMED_OUT),
    "list_config_resources": (lambda one: one.list_config_resources(ResourceType.GROUP, **T), TIMED_OUT),
    "list_client_metrics_resources": (lambda one: one.list_client_metrics_resources(**T), TIMED_OUT),
    "list_consumer_group_offsets": (
        lambda one: one.list_consumer_group_offsets(OFFSETS_OF_ONE_GROUP, **T),
        TIMED_OUT,
    ),
    "list_consumer_groups": (lambda one: late_groups(one.list_consumer_groups(**T)), Returns([TIMED_OUT])),
    "list_groups": (lambda one: one.list_groups(timeout=LIMIT_S), TIMED_OUT),
    "list_offsets": (lambda one: one.list_offsets({AT: OffsetSpec.latest()}, **T), TIMED_OUT),
    "list_partition_reassignments": (lambda one: one.list_partition_reassignments(**T), TIMED_OUT),
    "list_topics": (lambda one: one.list_topics(timeout=LIMIT_S), TRANSPORT),
    "list_transactions": (lambda one: one.list_transactions(**T), TIMED_OUT),
    "poll": (lambda one: one.poll(LIMIT_S), Returns(0)),
    "remove_consumer_group_members": (
        lambda one: one.remove_consumer_group_members("g", [("m", None)], **T),
        TIMED_OUT,
    ),
    "renew_delegation_token": (lambda one: one.renew_delegation_token(b"h", **T), TIMED_OUT),
    "update_features": (lambda one: one.update_features([feature()], **T), TIMED_OUT),
}


BATCH = build_batch([Record(0, 1, None, b"v")])
FIRST = ("t", 0)
# What a call of the blocking client may end with: its last attempt found silence, or a closed connection.
LATE = (TIMED_OUT, TRANSPORT, DOWN)
IN_TIME = Returns("late")


def all_late(rows: dict[Any, Any]) -> str:
    assert rows and all(row.code in LATE for row in rows.values())
    return "late"


BLOCKING_CLIENT: dict[str, Row] = {
    "ask": (lambda one: one.ask(address_of(one), MetadataRequest(topics=[])), IN_TIME),
    "ask_all": (lambda one: one.ask_all(address_of(one), [MetadataRequest(topics=[])] * 3), IN_TIME),
    "ask_any": (lambda one: one.ask_any(MetadataRequest(topics=[])), IN_TIME),
    "close": (lambda one: one.close(), Returns(None)),
    "fetch": (lambda one: list(one.fetch({FIRST: (0, 9)})), IN_TIME),
    "fetch_raw": (lambda one: list(one.fetch_raw(*FIRST, 0, 9)), IN_TIME),
    "limited": LOCAL,
    "list_offsets": (lambda one: one.list_offsets({FIRST: LATEST}), IN_TIME),
    "metadata": (lambda one: one.metadata(), IN_TIME),
    "offsets_of_each": (lambda one: all_late(one.offsets_of_each({FIRST: LATEST})), IN_TIME),
    "produce": (lambda one: one.produce([(*FIRST, BATCH), ("t", 1, BATCH)]), IN_TIME),
    "produce_raw": (lambda one: one.produce_raw(*FIRST, BATCH), IN_TIME),
}
# The others end after `retry_timeout_ms`.
AFTER_REQUEST_TIMEOUT = ("ask", "ask_all", "ask_any", "metadata", "offsets_of_each")

MEMBER_OF_X = TransactionalProducer("x", 1, 0)
OFFSETS = {FIRST: CommittedOffset(1)}

COORDINATORS: dict[str, Row] = {
    "add_offsets": (lambda one: one.add_offsets(MEMBER_OF_X, "g", OFFSETS), IN_TIME),
    "add_partitions": (lambda one: one.add_partitions(MEMBER_OF_X, [FIRST]), IN_TIME),
    "begin": (lambda one: one.begin("x", 10_000), IN_TIME),
    "commit_offsets": (lambda one: one.commit_offsets("g", OFFSETS), IN_TIME),
    "committed": (lambda one: one.committed("g"), IN_TIME),
    "describe": (lambda one: one.describe(["x", "y"]), IN_TIME),
    "end": (lambda one: one.end([MEMBER_OF_X], committed=True), IN_TIME),
    "list_groups": (lambda one: one.list_groups(""), IN_TIME),
    "list_open": (lambda one: one.list_open(""), IN_TIME),
}


def address_of(one: BlockingClient) -> tuple[str, int]:
    host, _, port = one.config.bootstrap_servers.partition(":")
    return host, int(port)


def late_groups(future: Future[Any]) -> list[int]:
    return [error.code for error in future.result(TOLERANCE_S).errors]


def quotas() -> Any:
    return [ClientQuotaAlteration(ClientQuotaEntity.of({"user": "a"}), {"producer_byte_rate": 1.0})]


def feature() -> Any:
    return FeatureUpdate("transaction.version", 2, UpgradeType.UPGRADE)


def changed() -> Any:
    from felice.client.admin import AlterConfigOpType, ConfigEntry

    entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    return ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])


def methods(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (Consumer, CONSUMER),
        (AIOConsumer, AIO_CONSUMER),
        (Producer, PRODUCER),
        (AIOProducer, AIO_PRODUCER),
        (AdminClient, ADMIN),
        (BlockingClient, BLOCKING_CLIENT),
        (BlockingCoordinators, COORDINATORS),
    ],
)
def test_every_public_method_has_a_row(kind: type, rows: dict[str, Row]) -> None:
    assert methods(kind) == set(rows), "each method needs a row: how it ends if no broker answers"


def test_every_coroutine_of_the_admin_has_a_time_limit() -> None:
    from inspect import iscoroutinefunction, signature

    calls = {name for name in methods(Admin) if iscoroutinefunction(getattr(Admin, name))} - {"close"}
    assert calls and not {
        name for name in calls if "timeout_s" not in signature(getattr(Admin, name)).parameters
    }


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with behind(topics={"t": 2}) as (_, running):
        yield running


@pytest.fixture(scope="module")
def proxies() -> Iterator[dict[str, Proxy]]:
    """A proxy for each fault. Their clients never learn the broker's own address: no answer reaches them."""
    with Broker() as broker, ExitStack() as stack:
        made = {kind: stack.enter_context(Proxy(broker.port)) for kind in (SILENT, TRUNCATED, DEAF, *ENDED)}
        for kind, one in made.items():
            one.set(Fault(kind, seconds=60))
        yield made


def settled(found: Any) -> Any:
    """The result of a future, or of the first of many futures."""
    if isinstance(found, dict) and found and isinstance(next(iter(found.values())), Future):
        found = next(iter(found.values()))
    return found.result(TOLERANCE_S + LIMIT_S) if isinstance(found, Future) else found


def ended(call: Callable[[], Any]) -> Any:
    """How a call ends: the code of its error, or its value. On a thread: it may hang."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(Returns(settled(call())))
        except KafkaException as error:
            outcome.append(error.code)
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT_S + TOLERANCE_S)
    return expected(outcome[0]) if outcome else "goes on after its time limit"


def config(proxy: Proxy, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": proxy.bootstrap, "request.timeout.ms": int(REQUEST_S * 1000), **more}


def expected(outcome: Any) -> Any:
    return outcome.value if isinstance(outcome, Returns) else outcome


def producer_config(proxy: Proxy, name: str) -> dict[str, Any]:
    more = {"transactional.id": "x"} if name == "init_transactions" else {"message.timeout.ms": 800}
    return config(proxy, **more)


def try_consumer(proxy: Proxy, name: str, call: Callable[[Any], Any]) -> Any:
    one = Consumer(config(proxy, **{"group.id": "g"}))
    found = ended(lambda: call(one))
    ended(one.close)
    return found


def try_producer(proxy: Proxy, name: str, call: Callable[[Any], Any]) -> Any:
    one = Producer(producer_config(proxy, name))
    found = ended(lambda: call(one))
    assert ended(lambda: one.close(TOLERANCE_S)) is True
    return found


def try_admin(proxy: Proxy, name: str, call: Callable[[Any], Any]) -> Any:
    one = AdminClient(config(proxy))
    found = ended(lambda: call(one))
    one.close()
    return found


def try_blocking(proxy: Proxy, name: str, call: Callable[[Any], Any]) -> Any:
    with blocking_client(proxy, name) as one:
        return lateness(ended(lambda: call(one)))


def try_coordinators(proxy: Proxy, name: str, call: Callable[[Any], Any]) -> Any:
    with blocking_client(proxy, name) as one:
        return lateness(ended(lambda: call(BlockingCoordinators(one))))


def blocking_client(proxy: Proxy, name: str) -> BlockingClient:
    """The limit that is not the call's own one is so long that the call would be found to go on."""
    limits = {"request_timeout_ms": 60_000, "retry_timeout_ms": 60_000, "connect_timeout_ms": 60_000}
    own = "request_timeout_ms" if name in AFTER_REQUEST_TIMEOUT else "retry_timeout_ms"
    return BlockingClient(proxy.bootstrap, **{**limits, own: int(LIMIT_S * 1000)})


def lateness(outcome: Any) -> Any:
    return "late" if outcome in LATE else outcome


async def ended_coroutine(call: Callable[[], Any]) -> Any:
    async with asyncio.timeout(LIMIT_S + TOLERANCE_S):
        try:
            return await call()
        except KafkaException as error:
            return error.code


def try_aio_consumer(proxy: Proxy, name: str, call: Callable[[Any], Any]) -> Any:
    async def scenario() -> Any:
        one = AIOConsumer(config(proxy, **{"group.id": "g"}))
        found = await ended_coroutine(lambda: call(one))
        await ended_coroutine(one.close)
        return found

    return asyncio.run(scenario())


def try_aio_producer(proxy: Proxy, name: str, call: Callable[[Any], Any]) -> Any:
    async def scenario() -> Any:
        one = AIOProducer(producer_config(proxy, name))
        found = await ended_coroutine(lambda: call(one))
        await ended_coroutine(one.close)
        return found

    return asyncio.run(scenario())


@dataclass(frozen=True)
class Client:
    """A table, how to try one of its rows through a proxy, and the faults under which each row is tried."""

    rows: dict[str, Row]
    try_row: Callable[[Proxy, str, Callable[[Any], Any]], Any]
    faults: tuple[str, ...]

    def calls(self) -> dict[str, tuple[Callable[[Any], Any], Any]]:
        return {name: row for name, row in self.rows.items() if not isinstance(row, Waits)}


SILENCES = (SILENT, TRUNCATED, DEAF)
# The connection ends, or the answer comes too late.
ENDED = (CUT, HALF_CLOSED, SLOW)
CLIENTS = {
    "consumer": Client(CONSUMER, try_consumer, SILENCES),
    "producer": Client(PRODUCER, try_producer, SILENCES),
    "admin": Client(ADMIN, try_admin, (SILENT,)),
    "aio_consumer": Client(AIO_CONSUMER, try_aio_consumer, (SILENT,)),
    "aio_producer": Client(AIO_PRODUCER, try_aio_producer, (SILENT,)),
    "blocking": Client(BLOCKING_CLIENT, try_blocking, SILENCES + ENDED),
    "coordinators": Client(COORDINATORS, try_coordinators, SILENCES + ENDED),
}
AT_ONCE = 8


@pytest.fixture(scope="module")
def outcome_of(proxies: dict[str, Proxy]) -> Callable[[str, str, str], Any]:
    """How a row ended. The first use of a client and fault tries all rows of that client."""
    known: dict[tuple[str, str], dict[str, Any]] = {}

    def outcome(client: str, fault: str, name: str) -> Any:
        if (client, fault) not in known:
            calls, try_row = CLIENTS[client].calls(), CLIENTS[client].try_row
            with ThreadPoolExecutor(AT_ONCE) as pool:
                found = {n: pool.submit(try_row, proxies[fault], n, row[0]) for n, row in calls.items()}
            known[client, fault] = {n: future.exception() or future.result() for n, future in found.items()}
        return known[client, fault][name]

    return outcome


@pytest.mark.parametrize(
    ("client", "fault", "name"),
    [(title, fault, n) for title, one in CLIENTS.items() for fault in one.faults for n in one.calls()],
)
def test_the_call_ends_at_its_limit(
    outcome_of: Callable[[str, str, str], Any], client: str, fault: str, name: str
) -> None:
    assert outcome_of(client, fault, name) == expected(CLIENTS[client].calls()[name][1])


def is_served(one: Any) -> bool:
    """Whether the client has its connections, metadata and coordinators: its limits are short for a busy machine."""
    try:
        if isinstance(one, BlockingCoordinators):
            one.committed("g")
            one.describe(["x", "y"])
        else:
            one.metadata()
            one.list_offsets({FIRST: LATEST})
    except KafkaException:
        return False
    return True


@pytest.mark.parametrize("kind", [*SILENCES, *ENDED])
def test_calls_of_a_blocking_client_that_was_served_end_at_their_limit(proxy: Proxy, kind: str) -> None:
    """All at once: connections, metadata and coordinators are there when the fault begins."""
    proxy.repair()
    made: dict[str, tuple[BlockingClient, Callable[[], Any], Any]] = {}
    for name, row in (BLOCKING_CLIENT | COORDINATORS).items():
        if isinstance(row, Waits):
            continue
        client = blocking_client(proxy, name)
        one: Any = BlockingCoordinators(client) if name in COORDINATORS else client
        wait_until(lambda one=one: is_served(one))
        made[name] = (client, lambda call=row[0], one=one: call(one), expected(row[1]))
    proxy.set(Fault(kind, seconds=60))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = dict(zip(made, pool.map(lambda row: lateness(ended(row[1])), made.values()), strict=True))
    assert outcomes == {name: row[2] for name, row in made.items()}
    for client, _, _ in made.values():
        client.close()


BLOCKING = (
    "close",
    "cluster_id",
    "describe_log_dirs",
    "list_consumer_groups",
    "list_groups",
    "list_topics",
    "poll",
)


@pytest.mark.parametrize("kind", [SILENT, TRUNCATED])
def test_calls_of_an_admin_client_that_was_served_end_at_their_limit(proxy: Proxy, kind: str) -> None:
    """All at once: the connection and the metadata are there when the fault begins."""
    proxy.repair()
    with AdminClient(config(proxy)) as one:
        one.list_topics(timeout=60)
        proxy.set(Fault(kind))
        calls = {name: row[0] for name, row in ADMIN.items() if not isinstance(row, Waits)}
        begun = {name: call(one) for name, call in calls.items() if name not in BLOCKING}
        for name, found in begun.items():
            try:
                value = settled(found)
                # Its result has the errors of brokers as values.
                assert name == "list_api_versions", f"{name} has the result {value}"
            except KafkaException as error:
                # Where the connection is closed for its silence first, the error may say so.
                assert error.code in (TIMED_OUT, TRANSPORT, DOWN), name
