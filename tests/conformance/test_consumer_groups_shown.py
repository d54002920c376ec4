"""Groups of the consumer protocol (KIP-848) in the tools and the admin client, while a member must give up partitions.

The output was measured beside Kafka 4.3.1's own tools, for groups that clients had joined.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from conformance.command_line import run_command
from conformance.test_kafka_tool_options import Tool, tool_named, tool_on
from conformance.wire import Wire
from felice.cli import main
from felice.cli.groups import groups
from felice.client import Consumer, TopicPartition
from felice.client.admin import AdminClient, ConsumerGroupState, ConsumerGroupType, NewTopic
from felice.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from felice.server.process.embedded import EmbeddedBroker
from waiting import wait_until

pytestmark = pytest.mark.felice_only


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The group `new` has the members m1, which must give up half of its partitions, and m2, which waits for them.

    The group `old` has committed an offset.
    """
    options = {"group.consumer.assignment.interval.ms": "0"}
    directory = tmp_path_factory.mktemp("shown") / "data"
    with EmbeddedBroker(directory, properties=options) as running, Wire(running.bootstrap) as wire:
        with AdminClient({"bootstrap.servers": running.bootstrap}) as admin:
            admin.create_topics([NewTopic("t1", 4)])["t1"].result(60)
        with Consumer({"bootstrap.servers": running.bootstrap, "group.id": "old"}) as consumer:
            consumer.commit(offsets=[TopicPartition("t1", 0, 0)], asynchronous=False)

        def join(member_id: str, instance_id: str | None = None) -> ConsumerGroupHeartbeatResponse:
            return wire.ask(
                ConsumerGroupHeartbeatRequest(
                    group_id="new",
                    member_id=member_id,
                    member_epoch=0,
                    instance_id=instance_id,
                    rebalance_timeout_ms=600_000,
                    subscribed_topic_names=["t1"],
                    topic_partitions=[],
                ),
                1,
            )

        wait_until(lambda: join("m1", "i1").error_code == 0)
        assert join("m2").error_code == 0
        beat = ConsumerGroupHeartbeatRequest(group_id="new", member_id="m1", instance_id="i1", member_epoch=2)
        assert wire.ask(beat, 1).error_code == 0
        yield running.bootstrap


@pytest.fixture
def tool(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Tool:
    return tool_on(bootstrap, capsys)


def cells(shown: str) -> list[list[str]]:
    return [line.split() for line in shown.splitlines() if line]


def test_the_admin_client_describes_members_with_targets_and_epochs(bootstrap: str) -> None:
    with AdminClient({"bootstrap.servers": bootstrap}) as admin:
        found = admin.describe_consumer_groups(["new"])["new"].result(60)
        assert admin.describe_consumer_groups(["old"])["old"].result(60).type is ConsumerGroupType.CLASSIC
        assert admin.describe_consumer_groups(["no"])["no"].result(60).state is ConsumerGroupState.DEAD
    assert (found.type, found.state) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.RECONCILING)
    assert (found.group_epoch, found.target_assignment_epoch) == (3, 3)
    assert (found.partition_assignor, found.protocol_type) == ("uniform", "consumer")
    first, second = sorted(found.members, key=lambda member: member.member_id)
    assert (first.group_instance_id, first.member_epoch, first.is_upgraded) == ("i1", 2, True)
    assert first.target_assignment is not None and second.target_assignment is not None
    kept = first.assignment.topic_partitions
    assert first.target_assignment.topic_partitions == kept and len(kept) == 2
    assert second.assignment.topic_partitions == []
    both = kept + second.target_assignment.topic_partitions
    assert sorted(row.partition for row in both) == [0, 1, 2, 3]


def test_members_are_shown_with_epochs_and_targets(tool: Tool) -> None:
    shown = cells(tool("kafka-consumer-groups", "--describe", "--group", "new", "--members", "--verbose"))
    columns = "GROUP CONSUMER-ID GROUP-INSTANCE-ID HOST CLIENT-ID #PARTITIONS"
    verbose = "CURRENT-EPOCH CURRENT-ASSIGNMENT TARGET-EPOCH TARGET-ASSIGNMENT"
    assert shown[0] == f"{columns} {verbose}".split()
    rows = sorted(shown[1:], key=lambda row: row[1])
    assert [row[-5:-3] for row in rows] == [["2", "2"], ["0", "3"]]
    assert [row[-2] for row in rows] == ["3", "3"]
    assert [row[-3] for row in rows] == [rows[0][-1], "-"]
    assert rows[0][2] == "i1" and rows[1][-1].startswith("t1:")


def test_the_state_is_shown_with_epochs(
    bootstrap: str, tool: Tool, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--bootstrap-server", bootstrap, "--describe", "--group", "new", "--state", "--verbose"]
    assert main.run(tool_named("kafka-consumer-groups"), words, usage_code=1) == 0
    out, err = capsys.readouterr()
    assert err == "\nWarning: Consumer group 'new' is rebalancing.\n"
    header, row = cells(out)
    assert header[-4:] == ["STATE", "GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"]
    assert row[-5:] == ["uniform", "Reconciling", "3", "3", "2"]
    old = cells(tool("kafka-consumer-groups", "--describe", "--group", "old", "--state", "--verbose"))[-1]
    assert old[-3:] == ["-", "-", "0"]


def test_groups_are_listed_by_type(tool: Tool) -> None:
    shown = tool("kafka-consumer-groups", "--list", "--type", "consumer", "--state")
    assert cells(shown)[1:] == [["new", "Consumer", "Reconciling"]]
    new, old = ["new", "Consumer", "consumer"], ["old", "Classic"]
    for words, expected in (
        ([], [new, old]),
        (["--group-type", "Classic"], [old]),
        (["--protocol", "consumer"], [new]),
        (["--consumer"], [new, old]),
        (["--share"], []),
    ):
        assert cells(tool("kafka-groups", "--list", *words)) == [["GROUP", "TYPE", "PROTOCOL"], *expected]
    said = tool("kafka-groups", "--list", "--group-type", "x", code=1)
    assert said == "error: Unknown group type 'x'; the types are classic, consumer, share, streams\n"
    said = tool("kafka-groups", "--list", "--consumer", "--protocol", "x", code=1)
    assert said == "error: The options --consumer and --protocol cannot be given together\n"


@pytest.mark.parametrize(("expression", "said"), [("a.*", "valid."), ("a(", "invalid: missing ): a(.")])
def test_a_regular_expression_is_checked(tool: Tool, expression: str, said: str) -> None:
    shown = tool("kafka-consumer-groups", "--validate-regex", expression)
    assert shown == f"The regular expression `{expression}` is {said}\n"


def test_our_own_command_shows_the_group_as_json(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = json.loads(
        run_command(groups, ["describe", "new", "--bootstrap-server", bootstrap, "--json"], 0, capsys)
    )
    assert (shown["type"], shown["group_epoch"], shown["target_assignment_epoch"]) == ("consumer", 3, 3)
    members = {row["member_id"]: row for row in shown["members"]}
    assert members["m2"]["partitions"] == [] and len(members["m2"]["target_partitions"]) == 2
    line = run_command(groups, ["describe", "new", "--bootstrap-server", bootstrap], 0, capsys).splitlines()[
        0
    ]
    assert line.startswith("new  consumer  Reconciling  coordinator ")
    assert line.endswith("  uniform  group epoch 3  target epoch 3")


def test_options_of_a_group_are_set_shown_and_deleted(tool: Tool) -> None:
    session = "consumer.session.timeout.ms"
    assert tool("kafka-configs", "--describe", "--group", "no") == (
        "The group 'no' doesn't exist and doesn't have dynamic config.\n"
    )
    done = "Completed updating config for group fresh.\n"
    assert tool("kafka-configs", "--alter", "--group", "fresh", "--add-config", f"{session}=50000") == done
    shown = tool("kafka-configs", "--describe", "--entity-type", "groups").splitlines()
    assert [line for line in shown if not line.startswith(" ")] == [
        f"Dynamic configs for group {name} are:" for name in ("fresh", "new", "old")
    ]
    expected = (
        f"  {session}=50000 sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:{session}=50000, "
        f"DEFAULT_CONFIG:group.{session}=45000}}"
    )
    assert [line for line in shown if line.startswith(" ")] == [expected]
    alter = ("kafka-configs", "--alter", "--entity-type", "groups", "--entity-name", "fresh")
    assert "below group.consumer.min.session" in tool(*alter, "--add-config", f"{session}=1", code=1)
    assert tool(*alter, "--delete-config", session) == done
    said = tool("kafka-configs", "--describe", "--entity-type", "groups", "--entity-default", code=1)
    assert said == "error: --entity-default is not for groups, whose name must not be empty\n"
