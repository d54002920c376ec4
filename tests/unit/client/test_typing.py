"""mypy accepts correct programs that use the client, and rejects programs that would fail at run time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

RIGHT = """
from concurrent.futures import Future
from typing import assert_type

from felice.client import Consumer, KafkaError, Message, Producer, TopicPartition
from felice.client.admin import (
    AdminClient,
    ConfigEntry,
    ConfigResource,
    ConsumerGroupDescription,
    DescribeClusterResult,
    ElectionType,
    ListConsumerGroupsResult,
    NewTopic,
    TopicDescription,
)

producer = Producer({"bootstrap.servers": "h"})
producer.produce("t", b"bytes", key="text", headers={"a": b"b", "c": None})
producer.produce("t", None, headers=[("a", "b")], on_delivery=lambda error, message: None)
assert_type(producer.flush(), int)

consumer = Consumer({"bootstrap.servers": "h", "group.id": "g"})
message = consumer.poll(1.0)
assert_type(message, Message | None)
if message is not None:
    assert_type(message.error(), KafkaError | None)
assert_type(consumer.assignment(), list[TopicPartition])

admin = AdminClient({"bootstrap.servers": "h"})
assert_type(admin.create_topics([NewTopic("t")]), dict[str, Future[None]])
assert_type(admin.describe_topics(["t"])["t"].result(), TopicDescription)
assert_type(admin.describe_cluster().result(), DescribeClusterResult)
assert_type(admin.list_consumer_groups().result(), ListConsumerGroupsResult)
assert_type(admin.describe_consumer_groups(["g"])["g"].result(), ConsumerGroupDescription)
resource = ConfigResource("topic", "t")
assert_type(admin.describe_configs([resource])[resource].result(), dict[str, ConfigEntry])
assert_type(
    admin.elect_leaders(ElectionType.PREFERRED).result(), dict[TopicPartition, KafkaError | None]
)
"""

# A statement, and the kind of error that mypy reports for it.
WRONG = {
    'producer.produce("a", 5)': "arg-type",
    'producer.produce("a", {"k": 1})': "arg-type",
    'producer.produce("a", key=1.5)': "arg-type",
    'producer.produce("a", b"v", headers={"n": 1})': "arg-type",
    "producer.produce(b'topic', b'v')": "arg-type",
    "producer.produce('a', timestamp='now')": "arg-type",
    "admin.create_topics([NewTopic('t')])['t'].result().partitions": "attr-defined",
    "admin.describe_cluster().result().brokers": "attr-defined",
    "consumer.subscribe('t')": "arg-type",
    "consumer.poll(1.0).value()": "union-attr",
    "consumer.seek('t')": "arg-type",
}


def checked(tmp_path: Path, source: str) -> list[str]:
    """The lines in which mypy reports errors."""
    program = tmp_path / "program.py"
    program.write_text(source)
    cache = tmp_path / "cache"
    command = [sys.executable, "-m", "mypy", "--config-file", "", "--strict", "--cache-dir", str(cache)]
    done = subprocess.run(
        [*command, "--follow-imports=silent", "--ignore-missing-imports", str(program)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        check=False,
    )
    return [line for line in done.stdout.splitlines() if "program.py" in line and ": error:" in line]


def test_right_program_passes_and_every_wrong_statement_is_refused(tmp_path: Path) -> None:
    first = RIGHT.count("\n") + 1
    found = checked(tmp_path, RIGHT + "\n".join(WRONG) + "\n")
    by_line = {int(line.split(":")[1]): line for line in found}
    assert not [line for number, line in by_line.items() if number < first]
    missing = {
        statement: by_line.get(first + index, "no error")
        for index, (statement, kind) in enumerate(WRONG.items())
        if f"[{kind}]" not in by_line.get(first + index, "")
    }
    assert not missing
