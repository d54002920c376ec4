"""`felice run` on a broker that asks for a login and permits only what ACLs allow."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from conformance.secured import Rule, Secured, secured
from conformance.topics import create_topic_over
from felice.client import Consumer, Producer
from felice.security.acl import Operation, PatternType, ResourceType

FELICE = str(Path(sys.executable).with_name("felice"))
PROGRAM = """
from felice.streams import App

app = App("shouting", value="string")
app.stream("lines").map_values(lambda key, line: line.upper()).to("shouts")
"""
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "secret",
}
TOPIC, GROUP, ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
# docs/streams.md lists these permissions.
PERMISSIONS = (
    (TOPIC, "lines", Operation.READ, PatternType.LITERAL),
    (TOPIC, "shouts", Operation.READ, PatternType.LITERAL),
    (TOPIC, "shouts", Operation.WRITE, PatternType.LITERAL),
    (GROUP, "shouting", Operation.READ, PatternType.LITERAL),
    (GROUP, "felice-spark-", Operation.READ, PatternType.PREFIXED),
    (ID, "felice-spark-", Operation.WRITE, PatternType.PREFIXED),
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Secured]:
    with secured(tmp_path / "data") as found:
        for topic in ("lines", "shouts"):
            create_topic_over(found.admin, topic)
        found.grant(
            *(
                Rule(kind, name, operation, principal="User:alice", pattern=pattern)
                for kind, name, operation, pattern in PERMISSIONS
            )
        )
        yield found


@pytest.mark.timeout(1200)
def test_an_application_logs_in_with_the_properties_of_a_file(broker: Secured, tmp_path: Path) -> None:
    admin = {"bootstrap.servers": broker.admin_address, **LOGIN, "sasl.username": "admin"}
    with Producer(admin) as producer:
        producer.produce("lines", b"hello")
    (tmp_path / "program.py").write_text(PROGRAM)
    login = tmp_path / "alice.properties"
    login.write_text("".join(f"{name}={value}\n" for name, value in LOGIN.items()))
    command = [FELICE, "run", "program.py", "--master", "local[1]", "--until-caught-up"]
    address = ["-b", broker.admin_address, "--command-config", str(login)]
    done = subprocess.run([*command, *address], cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    with Consumer({**admin, "group.id": "unused", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["shouts"])
        [shout] = consumer.consume(1, timeout=120)
    assert shout.value() == b"HELLO"
    refused = subprocess.run(
        [*command, "-b", broker.admin_address, "--checkpoint", "other"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
