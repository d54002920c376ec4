"""The schema registry on a broker: confluent-kafka's client, several registries, kills, log in and TLS."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.schema_registry_client import ConfigCompatibilityLevel

from conformance.registry_process import RegistryProcess, own, registry_words
from conformance.targets import Target
from conformance.web_process import FELICE, LIMIT_S
from felice.client import Consumer, Producer, TopicPartition
from felice.env.ports import free_ports
from peers.authority import Authority
from waiting import wait_until

V1 = '{"type":"record","name":"User","fields":[{"name":"id","type":"int"}]}'
V2 = (
    '{"type":"record","name":"User","fields":[{"name":"id","type":"int"},'
    '{"name":"name","type":"string","default":""}]}'
)


@pytest.fixture
def registry(broker: Target, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RegistryProcess]:
    """A registry with a topic and a group of the test's own."""
    with RegistryProcess(broker.bootstrap, tmp_path / "log", *own(request)) as process:
        yield process


def test_confluents_client_registers_finds_and_deletes(registry: RegistryProcess) -> None:
    with SchemaRegistryClient({"url": registry.url}) as client:
        use(client)


def use(client: SchemaRegistryClient) -> None:
    assert [client.register_schema("u-value", Schema(text, "AVRO")) for text in (V1, V2, V1)] == [1, 2, 1]
    found = client.get_latest_version("u-value")
    assert (found.version, found.schema_id, found.schema.schema_str) == (2, 2, V2)
    assert client.get_schema(1).schema_str == V1
    assert client.get_schema_by_guid(found.guid).schema_str == V2
    assert client.lookup_schema("u-value", Schema(V1, "AVRO")).version == 1
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("u-value", Schema('"string"', "AVRO"))
    assert refused.value.http_status_code == 409
    assert not client.test_compatibility("u-value", Schema('"string"', "AVRO"))
    client.set_config("u-value", ServerConfig(compatibility=ConfigCompatibilityLevel.NONE))
    assert client.get_config("u-value").compatibility_level == "NONE"
    assert client.register_schema("u-value", Schema('"string"', "AVRO")) == 3
    reference = SchemaReference("User", "u-value", 2)
    nested = '{"type":"record","name":"Group","fields":[{"name":"user","type":"User"}]}'
    assert client.register_schema("g-value", Schema(nested, "AVRO", [reference])) == 4
    assert client.get_subjects() == ["g-value", "u-value"]
    assert client.get_versions("u-value") == [1, 2, 3]
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_version("u-value", 2)
    assert refused.value.error_code == 42206
    assert client.delete_subject("g-value") == [1]
    assert client.delete_subject("g-value", permanent=True) == [1]
    assert client.delete_subject("u-value") == [1, 2, 3]
    assert client.get_subjects() == []
    assert client.get_schema(1).schema_str == V1, "consumers can still read old records"


def test_a_registry_that_starts_again_has_everything(
    broker: Target, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with RegistryProcess(broker.bootstrap, tmp_path / "log", *own(request)) as first:
        first.call("POST", "/subjects/a%2Fb/versions", {"schema": V1})
        first.call("PUT", "/config", {"compatibility": "FULL"})
        first.call("PUT", "/mode/locked", {"mode": "READONLY"})
        before = first.call("GET", "/subjects/a%2Fb/versions/1")
        assert first.stop() == 0
    with RegistryProcess(broker.bootstrap, tmp_path / "log", *own(request)) as second:
        assert second.call("GET", "/subjects/a%2Fb/versions/1") == before
        assert second.call("GET", "/config") == {"compatibilityLevel": "FULL"}
        assert second.call("GET", "/mode/locked") == {"mode": "READONLY"}
        assert second.call("POST", "/subjects/c/versions", {"schema": V2})["id"] == 2


def test_the_topic_has_confluents_records(
    broker: Target, registry: RegistryProcess, request: pytest.FixtureRequest
) -> None:
    registry.call("POST", "/subjects/:.eu:s/versions", {"schema": '"int"'})
    registry.call("DELETE", "/subjects/:.eu:s")
    assert records_of(broker.bootstrap, own(request)[1]) == [
        (
            '{"keytype":"CONTEXT","tenant":"default","context":".eu","magic":0}',
            '{"tenant":"default","context":".eu"}',
        ),
        (
            '{"keytype":"SCHEMA","subject":":.eu:s","version":1,"magic":1}',
            '{"subject":":.eu:s","version":1,"id":1,"schema":"\\"int\\"","deleted":false}',
        ),
        (
            '{"keytype":"DELETE_SUBJECT","subject":":.eu:s","magic":0}',
            '{"subject":":.eu:s","version":1}',
        ),
    ]


def test_a_journal_of_confluents_registry_is_taken_over(
    broker: Target, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    topic = own(request)[1]
    journal = [
        ('{"keytype":"NOOP","magic":0}', None),
        (
            '{"keytype":"SCHEMA","subject":"s-value","version":1,"magic":1}',
            '{"subject":"s-value","version":1,"id":1,"schema":"\\"int\\"","deleted":false}',
        ),
        (
            '{"keytype":"SCHEMA","subject":"s-value","version":2,"magic":1}',
            '{"subject":"s-value","version":2,"id":7,"schema":"\\"long\\"","deleted":false}',
        ),
        ("damaged", "{"),
        ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"FORWARD"}'),
    ]
    subprocess.run(
        [
            *FELICE,
            *("topics", "create", topic, "--partitions", "1", "--config", "cleanup.policy=compact"),
            *("-b", broker.bootstrap),
        ],
        check=True,
        timeout=LIMIT_S,
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key, value in journal:
        producer.produce(topic, key=key.encode(), value=None if value is None else value.encode())
    producer.flush()
    with RegistryProcess(broker.bootstrap, tmp_path / "log", *own(request)) as registry:
        assert registry.call("GET", "/subjects/s-value/versions") == [1, 2]
        assert registry.call("GET", "/schemas/ids/7")["schema"] == '"long"'
        assert registry.call("GET", "/config") == {"compatibilityLevel": "FORWARD"}
        assert registry.call("POST", "/subjects/t/versions", {"schema": V1})["id"] == 8
    assert "skipped a damaged record" in (tmp_path / "log").read_text()


class TestSeveral:
    """Registries of one group."""

    def test_one_leads_and_the_others_forward(
        self, broker: Target, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        words = own(request)
        with (
            RegistryProcess(broker.bootstrap, tmp_path / "a", *words) as one,
            RegistryProcess(broker.bootstrap, tmp_path / "b", *words) as two,
        ):
            ids = [
                registry.call("POST", "/subjects/s/versions", {"schema": text})["id"]
                for registry, text in ((one, V1), (two, V2), (one, V2), (two, V1))
            ]
            assert ids == [1, 2, 2, 1]
            wait_until(lambda: one.call("GET", "/subjects/s/versions") == [1, 2])
            wait_until(lambda: two.call("GET", "/subjects/s/versions") == [1, 2])
            assert two.call("POST", "/subjects/s/versions", {"schema": '"int"'}) == (409, 409)

    def test_a_write_outlasts_the_stop_of_the_leader(
        self, broker: Target, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        words = own(request)
        with (
            RegistryProcess(broker.bootstrap, tmp_path / "a", *words) as one,
            RegistryProcess(broker.bootstrap, tmp_path / "b", *words) as two,
        ):
            leader, follower = sorted((one, two), key=lambda found: found.url)
            assert follower.call("POST", "/subjects/s/versions", {"schema": V1})["id"] == 1
            assert leader.stop() == 0
            assert follower.call("POST", "/subjects/s/versions", {"schema": V2})["id"] == 2

    def test_a_follower_never_leads(
        self, broker: Target, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        with RegistryProcess(broker.bootstrap, tmp_path / "a", *own(request), "--follower") as follower:
            assert follower.call("GET", "/subjects") == []
            assert follower.call("PUT", "/config", {"compatibility": "NONE"}) == (500, 50004)
            with RegistryProcess(broker.bootstrap, tmp_path / "b", *own(request)):
                wait_until(
                    lambda: (
                        follower.call("PUT", "/config", {"compatibility": "NONE"})
                        == {"compatibility": "NONE"}
                    )
                )


class TestSecured:
    """Log in, rules and HTTPS."""

    def test_users_log_in_and_rules_apply(
        self, broker: Target, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        users, rules = tmp_path / "users", tmp_path / "rules"
        for name in ("alice", "bob"):
            subprocess.run(
                [*FELICE, "users", "add", name, "--users", str(users)],
                input=f"{name}-password\n",
                text=True,
                check=True,
                capture_output=True,
                timeout=LIMIT_S,
            )
        rules.write_text("allow alice read,write orders-*\nallow bob read orders-*\n")
        words = (*own(request), "--users", str(users), "--rules", str(rules))
        with RegistryProcess(broker.bootstrap, tmp_path / "log", *words) as registry:
            post = lambda user: registry.call(  # noqa: E731
                "POST", "/subjects/orders-a/versions", {"schema": V1}, auth=(user, f"{user}-password")
            )
            assert post("bob") == (403, 40301)
            assert post("alice")["id"] == 1
            settings = {"url": registry.url, "basic.auth.user.info": "bob:bob-password"}
            with SchemaRegistryClient(settings) as client:
                assert client.get_latest_version("orders-a").schema_id == 1
            assert registry.call("GET", "/subjects", auth=("bob", "wrong")) == (401, 401)
            assert registry.call("GET", "/subjects") == (401, 401)

    @pytest.mark.parametrize("asks_for_certificates", [False, True])
    def test_https(
        self, broker: Target, tmp_path: Path, request: pytest.FixtureRequest, asks_for_certificates: bool
    ) -> None:
        authority = Authority()
        authority.issue().write_pem(tmp_path / "keys.pem")
        authority.write_trust(tmp_path / "ca.pem")
        options = "ssl.keystore.type=PEM\nssl.keystore.location=keys.pem\n"
        if asks_for_certificates:
            options += "ssl.client.auth=required\nssl.truststore.type=PEM\nssl.truststore.location=ca.pem\n"
        (tmp_path / "tls").write_text(options)
        words = (
            *own(request),
            *("--tls-config", str(tmp_path / "tls"), "--leader-ca", str(tmp_path / "ca.pem")),
            *("--advertised-host", "localhost"),
        )
        with (
            RegistryProcess(broker.bootstrap, tmp_path / "a", *words) as one,
            RegistryProcess(broker.bootstrap, tmp_path / "b", *words) as two,
        ):
            for registry in (one, two):
                settings = {
                    "url": registry.url.replace("127.0.0.1", "localhost"),
                    "ssl.ca.location": str(tmp_path / "ca.pem"),
                }
                if asks_for_certificates:
                    settings["ssl.certificate.location"] = str(tmp_path / "keys.pem")
                with SchemaRegistryClient(settings) as client:
                    assert client.register_schema(f"s{registry.port}", Schema(V1, "AVRO")) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rules", "rules"), "--rules needs users: set --users or --cluster-login"),
        (("--users", "rules", "--cluster-login"), "are two kinds of log in; choose one"),
        (("--users", "rules", "--rules", "rules"), "rules"),
        (("--tls-config", "empty"), "empty has no ssl.* options"),
        (("--tls-config", "tls"), "ssl.keystore.location"),
        (("--leader-ca", "rules"), "rules has no certificates"),
        (("--cluster-login",), "sasl.mechanism"),
        (("--topic", "several"), "several"),
        (("--port", "PORT"), "cannot listen at 127.0.0.1"),
    ],
)
def test_a_start_that_is_not_possible_says_why_in_one_line(
    broker: Target, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "rules").write_text("allow everything\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "tls").write_text("ssl.keystore.location=missing.pem\n")
    if "several" in words:
        subprocess.run(
            [
                *FELICE,
                *("topics", "create", "several", "--partitions", "2", "-b", broker.bootstrap),
            ],
            check=True,
            timeout=LIMIT_S,
        )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = tuple(word.replace("PORT", str(taken.getsockname()[1])) for word in words)
        ended = subprocess.run(
            [*FELICE, *registry_words(broker.bootstrap, *words)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    assert ended.returncode == 1, ended.stdout
    lines = ended.stderr.strip().splitlines()
    assert said in lines[-1]
    assert lines[-1].startswith("error: ") and "Traceback" not in ended.stderr


def records_of(bootstrap: str, topic: str) -> list[tuple[str, str | None]]:
    """The records of a topic with one partition, in order."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0))
    found: list[tuple[str, str | None]] = []
    while consumer.position([TopicPartition(topic, 0)])[0].offset < end:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            key, value = message.key(), message.value()
            assert isinstance(key, bytes) and isinstance(value, bytes | None)
            found.append((key.decode(), None if value is None else value.decode()))
    consumer.close()
    return found


@pytest.mark.parametrize("words", [(), ("--brokers", "2")], ids=" ".join)
def test_a_registry_beside_a_broker_ends_with_it(tmp_path: Path, words: tuple[str, ...]) -> None:
    port, registry_port = free_ports(2 if words else 1)[0], free_ports(1)[0]
    command = [
        *FELICE,
        *("start", "--port", str(port), "--data-dir", str(tmp_path / "data"), *words),
        *("--registry", str(registry_port)),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        url = f"http://127.0.0.1:{registry_port}"
        assert lines[0].startswith("Felice is ready on ")
        assert lines[1] == f"The schema registry is ready on {url}\n"
        answer = httpx2.post(
            f"{url}/subjects/s/versions", json={"schema": V1}, trust_env=False, timeout=LIMIT_S
        )
        assert answer.json()["id"] == 1
        process.terminate()
        assert process.wait(LIMIT_S) == 0
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", registry_port)).close()


def test_a_registry_beside_a_broker_needs_an_open_listener(tmp_path: Path) -> None:
    command = [
        *FELICE,
        *("start", "--data-dir", str(tmp_path / "data"), "--registry"),
        *("-o", "listeners=SSL://127.0.0.1:0"),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert ended.returncode == 1
    assert "--registry needs a listener without TLS and log in" in ended.stderr
