"""Consumer groups of every client, alone and mixed: joining, rebalancing, committing, resuming, leaving."""

import contextlib
from collections.abc import Iterator

import pytest

from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from peers.clients import Assignment, Clients, GroupMember
from peers.record import PeerRecord
from waiting import LIMIT_S, wait_until

GROUP_CLIENTS = ("felice", "confluent-kafka", "kafka-python", "aiokafka", "java", "franz-go", "kafkajs")
# kafkajs knows only an assignor of its own, so it cannot be in a group with others.
MIXABLE = ("felice", "confluent-kafka", "kafka-python", "aiokafka", "java", "franz-go")
PARTITIONS = 6
REBALANCE_TIMEOUT_S = 125.0


def records_for(round_number: int) -> list[PeerRecord]:
    return [
        PeerRecord(b"key", f"{round_number}/{partition}".encode(), partition=partition)
        for partition in range(PARTITIONS)
    ]


def values(records: list[PeerRecord]) -> set[bytes | None]:
    return {record.value for record in records}


def everything(topic: str) -> Assignment:
    return {(topic, partition) for partition in range(PARTITIONS)}


def wait_until_shared(members: list[GroupMember], topic: str) -> None:
    """Each partition belongs to exactly one member, and each member has some."""

    def shared() -> bool:
        held = [member.assignment() for member in members]
        total = [row for assignment in held for row in assignment]
        return all(held) and len(total) == PARTITIONS and set(total) == everything(topic)

    wait_until(shared, REBALANCE_TIMEOUT_S)


@contextlib.contextmanager
def joined(*members: GroupMember) -> Iterator[None]:
    """The member leaves the group even if the test fails, so that no other process keeps polling."""
    try:
        yield
    finally:
        for member in members:
            with contextlib.suppress(Exception):
                member.leave()


@pytest.mark.parametrize("name", GROUP_CLIENTS)
def test_a_group_of_one_client_rebalances_and_resumes_at_its_commits(
    broker: Target, clients: Clients, name: str
) -> None:
    """A second member takes its share and returns it when it leaves; committed records are not read again."""
    client = clients.get(name)
    topic, group = create_topic(broker, unique_name(f"group-{name}"), PARTITIONS), unique_name("group")
    client.produce(broker.bootstrap, topic, records_for(1), "none")
    first = client.join(broker.bootstrap, group, [topic])
    with joined(first):
        wait_until(lambda: first.assignment() == everything(topic), REBALANCE_TIMEOUT_S)
        assert values(first.poll(PARTITIONS, LIMIT_S)) == values(records_for(1))
        first.commit()
        second = client.join(broker.bootstrap, group, [topic])
        with joined(second):
            wait_until_shared([first, second], topic)
            client.produce(broker.bootstrap, topic, records_for(2), "none")
            seen = second.poll(len(second.assignment()), LIMIT_S) + first.poll(
                len(first.assignment()), LIMIT_S
            )
            assert values(seen) == values(records_for(2))
            first.commit()
            second.commit()
        wait_until(lambda: first.assignment() == everything(topic), REBALANCE_TIMEOUT_S)
    client.produce(broker.bootstrap, topic, records_for(3), "none")
    successor = client.join(broker.bootstrap, group, [topic])
    with joined(successor):
        assert values(successor.poll(PARTITIONS, LIMIT_S)) == values(records_for(3))


def test_different_clients_share_one_group(broker: Target, clients: Clients) -> None:
    """Six clients share one range assignment, whichever client leads, and again whenever one leaves."""
    topic, group = create_topic(broker, unique_name("group-mixed"), PARTITIONS), unique_name("group")
    members: list[GroupMember] = []
    with contextlib.ExitStack() as stack:
        for name in MIXABLE:
            members.append(clients.get(name).join(broker.bootstrap, group, [topic]))
            stack.enter_context(joined(members[-1]))
        wait_until_shared(members, topic)
        clients.get("java").produce(broker.bootstrap, topic, records_for(1), "zstd")
        seen: list[PeerRecord] = []
        for member in members:
            seen += member.poll(len(member.assignment()), LIMIT_S)
            member.commit()
        assert values(seen) == values(records_for(1))
        while len(members) > 1:
            members.pop(0).leave()
            wait_until_shared(members, topic)


def test_a_client_resumes_from_the_commits_of_another(broker: Target, clients: Clients) -> None:
    """Offsets belong to the group, not to the client."""
    topic, group = create_topic(broker, unique_name("group-handed-on"), PARTITIONS), unique_name("group")
    for round_number, name in enumerate(GROUP_CLIENTS):
        clients.get(name).produce(broker.bootstrap, topic, records_for(round_number), "none")
        member = clients.get(name).join(broker.bootstrap, group, [topic])
        with joined(member):
            assert values(member.poll(PARTITIONS, LIMIT_S)) == values(records_for(round_number)), name
            member.commit()
