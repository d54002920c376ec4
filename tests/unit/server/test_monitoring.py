"""The endpoint for metrics and health of a whole broker, and the dashboard that reads it."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

import strangers
from conformance.wire import Wire
from felice.cli.metrics import dashboard_text, metrics, samples
from felice.config import BrokerConfig, ConfigError
from felice.config.monitoring import METRIC_FAMILIES, address_of, listener_of
from felice.env import Environment
from felice.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from felice.server.broker import Broker
from felice.server.monitoring.page import COLLECTORS
from felice.server.process.embedded import EmbeddedBroker
from felice.server.startup import StartupError
from peers.apache_kafka import free_port
from peers.authority import Authority
from waiting import until, wait_until

LISTENER = {"felice.metrics.listener": "127.0.0.1:0"}


@contextmanager
def broker_in(tmp_path: Path, **properties: str) -> Iterator[EmbeddedBroker]:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    with EmbeddedBroker(tmp_path, properties={**LISTENER, **named}) as started:
        yield started


def get(broker: EmbeddedBroker, path: str = "/metrics") -> tuple[int, str]:
    return get_from(broker.broker.monitoring.port, path)


def get_from(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def series(broker: EmbeddedBroker) -> dict[str, float]:
    broker.broker.monitoring._pages.broker._made_s = float("-inf")  # do not wait for the page to age
    return dict(samples(get(broker)[1].splitlines()))


def use(broker: EmbeddedBroker, records: int = 100) -> None:
    """Produces, consumes half, and commits."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(records):
        producer.produce("orders", b"x" * 100, partition=0)
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    read: list[confluent_kafka.Message] = []
    while len(read) < records:
        read += consumer.consume(records, 1)
    partition = confluent_kafka.TopicPartition("orders", 0, records // 2)
    consumer.commit(offsets=[partition], asynchronous=False)
    consumer.close()


def test_groups_are_counted_by_protocol_and_state(tmp_path: Path) -> None:
    with broker_in(tmp_path) as broker:
        use(broker, 1)
        joining = ConsumerGroupHeartbeatRequest(
            group_id="modern",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
        )
        with Wire(broker.bootstrap) as wire:
            wait_until(lambda: wire.ask(joining, 1).error_code == 0)
        found = series(broker)
        of = "kafka_server_group_coordinator_metrics_"
        counts = {name: found[f'{of}group_count{{protocol="{name}"}}'] for name in ("classic", "consumer")}
        assert counts == {"classic": 1, "consumer": 1}
        states = ("empty", "assigning", "reconciling", "stable")
        assert [found[f'{of}consumer_group_count{{state="{state}"}}'] for state in states] == [0, 0, 0, 1]
        assert found[f"{of}consumer_group_rebalance_count"] == 1
        assert found["kafka_coordinator_group_groupmetadatamanager_numgroups"] == 2
        assert found['kafka_consumergroup_members{consumergroup="modern"}'] == 1


def test_traffic_and_lag_are_counted(tmp_path: Path) -> None:
    with broker_in(tmp_path) as broker:
        use(broker, 100)
        found = series(broker)
        assert found['kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}'] == 100
        everything = found["kafka_server_brokertopicmetrics_bytesin_total"]
        assert everything >= found['kafka_server_brokertopicmetrics_bytesin_total{topic="orders"}'] > 10_000
        size = found['kafka_log_log_size{topic="orders",partition="0"}']
        assert found['kafka_server_brokertopicmetrics_bytesout_total{topic="orders"}'] == size
        of_group = 'consumergroup="readers",topic="orders"'
        assert found[f'kafka_consumergroup_lag{{{of_group},partition="0"}}'] == 50
        assert found[f"kafka_consumergroup_lag_sum{{{of_group}}}"] == 50
        assert found[f'kafka_consumergroup_current_offset{{{of_group},partition="0"}}'] == 50
        assert found['kafka_consumergroup_members{consumergroup="readers"}'] == 0
        assert found["kafka_coordinator_group_groupmetadatamanager_numgroupsempty"] == 1
        assert found["kafka_controller_kafkacontroller_activecontrollercount"] == 1
        assert found["kafka_server_socket_server_metrics_failed_authentication_total"] == 0
        for waits in ("connection_accept_throttle_time", "ip_connection_accept_throttle_time"):
            assert found[f'kafka_server_socket_server_metrics_{waits}{{listener="PLAINTEXT"}}'] == 0
        assert found['kafka_topic_partition_current_offset{topic="orders",partition="0"}'] == 100
        assert sum(value for name, value in found.items() if 'requests_total{request="Produce"' in name) >= 1
        requests = "kafka_network_requestmetrics_"
        assert found[f'{requests}totaltimems{{request="Produce",quantile="0.99"}}'] > 0
        assert f'{requests}responsequeuetimems{{request="Produce",quantile="0.99"}}' in found
        assert found[f'{requests}errors_total{{request="Produce",error="NONE"}}'] >= 1
        assert found["kafka_network_requestchannel_responsequeuesize"] >= 0


def test_connections_are_counted_by_software(tmp_path: Path) -> None:
    with broker_in(tmp_path) as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", b"x")
        assert producer.flush(60) == 0
        found = series(broker)
        name = "kafka_server_socket_server_metrics_connections_software"
        rows = [key for key in found if key.startswith(name)]
        known = [key for key in rows if re.search('Name="[a-z-]+",clientSoftwareVersion="[0-9.]+', key)]
        assert known, rows
        labels = known[0]
        assert 'listener="PLAINTEXT",networkProcessor="0"' in labels
        where = '{listener="PLAINTEXT",networkProcessor="0"}'
        assert found[f"kafka_server_socket_server_metrics_connection_count{where}"] >= found[labels] >= 1
        assert found[f"kafka_server_socket_server_metrics_connection_creation_total{where}"] >= found[labels]


def test_the_page_holds_names_and_values_only_once(tmp_path: Path) -> None:
    with broker_in(tmp_path) as broker:
        use(broker, 10)
        lines = get(broker)[1].splitlines()
        rows = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
        types = [line for line in lines if line.startswith("# TYPE")]
        assert len(rows) == len(set(rows))
        assert len(types) == len({line.split()[2] for line in types})
        for line in lines:
            assert re.fullmatch(r"# (HELP|TYPE) .*|[a-z][a-z0-9_]*(\{.*\})? [-+0-9.e]+", line), line


def test_switches_choose_families_and_names(tmp_path: Path) -> None:
    properties = {"felice_metrics_families": "replicas", "felice_metrics_names": "confluent"}
    with broker_in(tmp_path, **properties) as broker:
        found = series(broker)
        assert "kafka_server_replicamanager_isrshrinkspersec" in found
        assert "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate" in found
        assert 'kafka_server_replicafetchermanager_maxlag{clientid="Replica"}' in found
        assert not any(name.startswith(("kafka_log_", "kafka_controller_")) for name in found)


def test_every_family_of_the_option_has_a_collector() -> None:
    assert tuple(COLLECTORS) == METRIC_FAMILIES


def test_health_and_readiness(tmp_path: Path) -> None:
    with broker_in(tmp_path) as broker:
        assert get(broker, "/health") == (200, "OK\n")
        assert get(broker, "/ready") == (200, "ready\n")
        assert get(broker, "/v1/ready") == (204, "")
        assert json.loads(get(broker, "/v1/broker-state")[1]) == {"brokerState": 3}
        broker.broker.services.image_follower.stop()
        assert get(broker, "/ready") == (503, "the broker is not registered\n")
        assert get(broker, "/v1/ready")[0] == 503
        assert get(broker, "/health")[0] == 200


def test_a_broker_that_recovers_its_logs_is_alive_and_not_ready(tmp_path: Path) -> None:
    async def scenario() -> None:
        config, _ = BrokerConfig.parse(
            {**LISTENER, "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
        )
        broker = Broker(config, Environment.system())
        may_load = asyncio.Event()
        load = broker.directories.load

        async def held(config_of: Any) -> None:
            await may_load.wait()
            await load(config_of)

        broker.directories.load = held  # type: ignore[method-assign]
        starting = asyncio.create_task(broker.start())
        await until(lambda: broker.monitoring.port != 0)
        port = broker.monitoring.port
        assert (await asyncio.to_thread(get_from, port, "/ready")) == (503, "the broker is loading\n")
        assert (
            "kafka_server_kafkaserver_brokerstate 2"
            in (await asyncio.to_thread(get_from, port, "/metrics"))[1]
        )
        assert (await asyncio.to_thread(get_from, port, "/health"))[0] == 200
        may_load.set()
        await starting
        assert (await asyncio.to_thread(get_from, port, "/ready"))[0] == 200
        await broker.stop()
        with pytest.raises(OSError):
            get_from(port, "/health")

    asyncio.run(scenario())


def test_an_address_in_use_fails_the_start_in_one_line(tmp_path: Path) -> None:
    with broker_in(tmp_path / "a") as broker:
        address = f"127.0.0.1:{broker.broker.monitoring.port}"
        with (
            pytest.raises(StartupError, match=f"cannot serve metrics on {address}: address already in use"),
            broker_in(tmp_path / "b", felice_metrics_listener=address),
        ):
            raise AssertionError


def test_a_page_is_computed_once_a_second_for_all_clients(tmp_path: Path) -> None:
    with broker_in(tmp_path) as broker:
        first = get(broker)[1]
        page = broker.broker.monitoring._pages.broker
        page._made_s = broker.broker.env.clock.monotonic() + 3600
        assert get(broker)[1] == first
        page._made_s = float("-inf")
        assert get(broker)[1] != first


@pytest.mark.parametrize("text", ["9404", "a:b", "host:99999", "a:1:2", "http://a:1", "a b:1"])
def test_wrong_addresses_are_refused(text: str) -> None:
    assert address_of(text) is None
    with pytest.raises(ConfigError, match=r"felice\.metrics\.listener"):
        BrokerConfig.parse({"felice.metrics.listener": text})


def test_addresses() -> None:
    assert address_of(":9404") == ("", 9404)
    assert address_of("[::1]:9404") == ("::1", 9404)
    assert listener_of("[::1]:9404", 2) == "[::1]:9406"
    assert listener_of("127.0.0.1:0", 2) == "127.0.0.1:0"
    assert listener_of("", 2) == ""


def queries() -> list[str]:
    """Every query of the dashboard, with its variables replaced."""
    dashboard = json.loads(dashboard_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    replaced = {"$instance": ".*", "$topic": ".*", "$__rate_interval": "1m"}
    for name, value in replaced.items():
        found = [query.replace(name, value) for query in found]
    return found


def test_every_query_of_the_dashboard_names_series_that_a_broker_serves(tmp_path: Path) -> None:
    with broker_in(tmp_path) as broker:
        use(broker, 10)
        served: dict[str, set[str]] = {}
        for name in series(broker):
            metric, _, labels = name.partition("{")
            served.setdefault(metric, set()).update(re.findall(r'(\w+)="', labels))
        texts = queries()
        assert len(texts) > 40
        for text in texts:
            metrics = re.findall(r"\b((?:kafka|felice|process)_\w+)", text)
            assert metrics, text
            for metric in metrics:
                assert metric in served, f"{metric} in {text}"
                selected = set(re.findall(r'(\w+)(?:=|=~|!=)"', text)) - {"instance"}
                grouped = re.search(r"by \((.*?)\)", text)
                selected |= set(grouped[1].split(", ")) - {"instance"} if grouped else set()
                assert selected <= served[metric] | {"topic"}, text


def test_labels_in_legends_are_labels_of_the_series() -> None:
    dashboard = json.loads(dashboard_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            grouped = re.search(r"by \((.*?)\)", target["expr"])
            used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            if grouped:
                assert used <= set(grouped[1].split(", ")), target


@pytest.mark.parametrize("kind", strangers.KINDS)
def test_a_broker_is_ready_for_others_while_strangers_hold_its_port(tmp_path: Path, kind: str) -> None:
    with broker_in(tmp_path) as broker:
        port = broker.broker.monitoring.port
        with strangers.strangers(port, kind, 100):
            for path in ("/ready", "/metrics"):
                assert strangers.get(port, path)[0] == 200


def secured(tmp_path: Path, authority: Authority, **more: str) -> EmbeddedBroker:
    """A broker whose clients use no TLS, and whose metrics do."""
    properties = {
        **LISTENER,
        "felice.metrics.security.protocol": "SSL",
        "felice.metrics.users": "prometheus:s3cret, other:pass:word",
        "listener.name.metrics.ssl.keystore.type": "PEM",
        "listener.name.metrics.ssl.keystore.location": str(authority.issue().write_pem(tmp_path / "key.pem")),
        **{f"listener.name.metrics.ssl.{name.replace('_', '.')}": value for name, value in more.items()},
    }
    return EmbeddedBroker(tmp_path / "data", properties=properties)


def read_secured(broker: EmbeddedBroker, *words: str) -> Any:
    address = f"https://localhost:{broker.broker.monitoring.port}"
    return CliRunner().invoke(metrics, ["--address", address, *words, "process_cpu"])


def renew(broker: EmbeddedBroker, keys: Path) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    name = "listener.name.metrics.ssl.keystore.location"
    change = ConfigEntry(name, str(keys), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("broker", str(broker.broker.broker_id), incremental_configs=[change])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(60)


def test_metrics_over_tls_go_only_to_the_users_of_the_endpoint(tmp_path: Path) -> None:
    authority = Authority()
    trust = str(authority.write_trust(tmp_path / "trust.pem"))
    with secured(tmp_path, authority) as broker:
        port = broker.broker.monitoring.port
        assert (
            read_secured(broker, "--ca", trust, "--user", "other", "--password", "pass:word").exit_code == 0
        )
        strange = read_secured(broker, "--user", "prometheus", "--password", "s3cret")
        denied = read_secured(broker, "--ca", trust, "--user", "prometheus", "--password", "pass:word")
        assert [one.exit_code for one in (strange, denied)] == [1, 1]
        assert "CERTIFICATE_VERIFY_FAILED" in strange.output
        assert "felice.metrics.users" in denied.output
        with pytest.raises((OSError, http.client.HTTPException)):
            get_from(port, "/metrics")  # without TLS
        # A renewed certificate is used without a restart.
        other = Authority("other")
        renew(broker, other.issue().write_pem(tmp_path / "renewed.pem"))
        newer = str(other.write_trust(tmp_path / "newer.pem"))
        assert (
            read_secured(broker, "--ca", newer, "--user", "prometheus", "--password", "s3cret").exit_code == 0
        )


def test_metrics_over_tls_may_need_a_certificate_of_the_client(tmp_path: Path) -> None:
    authority = Authority()
    trust = str(authority.write_trust(tmp_path / "trust.pem"))
    cert = str(authority.issue("prometheus").write_pem(tmp_path / "client.pem"))
    more = {"client_auth": "required", "truststore_type": "PEM", "truststore_location": trust}
    with secured(tmp_path, authority, **more) as broker:
        asked = ("--ca", trust, "--user", "prometheus", "--password", "s3cret")
        assert read_secured(broker, *asked, "--cert", cert).exit_code == 0
        assert read_secured(broker, *asked).output.startswith("Error: no metrics from https://")


def test_a_broker_starts_again_whose_certificate_for_metrics_was_renewed_elsewhere(tmp_path: Path) -> None:
    authority = Authority()
    trust = str(authority.write_trust(tmp_path / "trust.pem"))
    asked = ("--ca", trust, "--user", "prometheus", "--password", "s3cret")
    with secured(tmp_path, authority) as broker:
        renew(broker, authority.issue().write_pem(tmp_path / "renewed.pem"))
    first = secured(tmp_path, authority)
    (tmp_path / "key.pem").unlink()
    with first as broker:
        assert read_secured(broker, *asked).exit_code == 0


def test_failed_handshakes_and_log_ins_leave_a_line_for_each_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority()
    trust = str(authority.write_trust(tmp_path / "trust.pem"))
    caplog.set_level("WARNING")
    with secured(tmp_path, authority) as broker:
        for _ in range(3):
            assert read_secured(broker, "--user", "prometheus", "--password", "s3cret").exit_code == 1
            assert (
                read_secured(broker, "--ca", trust, "--user", "prometheus", "--password", "no").exit_code == 1
            )
            assert read_secured(broker, "--ca", trust).exit_code == 1
    lines = [(one.message, vars(one).get("listener"), vars(one).get("path")) for one in caplog.records]
    refused = ("log in refused", "METRICS", "/metrics")
    assert [line for line in lines if line[0] != "a request failed"] == [
        ("TLS handshake failed", "METRICS", None),
        refused,
    ]


def test_health_needs_no_log_in_and_the_metrics_of_clients_do(tmp_path: Path) -> None:
    with broker_in(tmp_path, felice_metrics_users="a:b") as broker:
        found = {path: get(broker, path)[0] for path in ("/metrics", "/metrics/clients", "/health", "/ready")}
    assert found == {"/metrics": 401, "/metrics/clients": 401, "/health": 200, "/ready": 200}


def test_the_command_finds_the_scheme_of_each_broker_and_refuses_options_of_tls_without_it(
    tmp_path: Path,
) -> None:
    authority = Authority()
    trust = str(authority.write_trust(tmp_path / "trust.pem"))
    port = free_port()
    properties = {"felice.metrics.listener": f"localhost:{port}", "felice.metrics.users": "a:b"}
    words = ["-b", "", "--ca", trust, "--user", "a", "--password", "b", "process_cpu"]
    with EmbeddedBroker(tmp_path / "plain", properties=properties) as broker:
        words[1] = broker.bootstrap
        refused = CliRunner().invoke(metrics, words)
        assert (refused.exit_code, "without TLS" in refused.output) == (1, True)
        assert CliRunner().invoke(metrics, ["-b", broker.bootstrap, "--user", "a"]).exit_code == 1
    key = str(authority.issue().write_pem(tmp_path / "key.pem"))
    properties |= {
        "felice.metrics.security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": key,
    }
    with EmbeddedBroker(tmp_path / "secured", properties=properties) as broker:
        words[1] = broker.bootstrap
        assert CliRunner().invoke(metrics, words).exit_code == 0


@pytest.mark.parametrize("users", ["prometheus", "prometheus:", ":secret", "a:b,c", "", " ", "a:\ud800"])
def test_users_of_the_endpoint_need_passwords(users: str) -> None:
    with pytest.raises(ConfigError, match="expected user:password") as refused:
        BrokerConfig.parse({"felice.metrics.users": users})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [("max.connections", "5"), ("sasl.enabled.mechanisms", "PLAIN"), ("plain.sasl.jaas.config", "a b;")],
)
def test_the_endpoint_has_no_other_options_of_listeners(option: str, value: str) -> None:
    properties = {
        **LISTENER,
        "felice.metrics.security.protocol": "SSL",
        f"listener.name.metrics.{option}": value,
    }
    with pytest.raises(ConfigError, match="the endpoint for metrics has only options"):
        BrokerConfig.parse(properties)


def test_a_listener_cannot_have_the_name_of_the_endpoint() -> None:
    properties = {
        **LISTENER,
        "felice.metrics.security.protocol": "SSL",
        "listeners": "METRICS://127.0.0.1:0",
        "listener.security.protocol.map": "METRICS:PLAINTEXT",
        "inter.broker.listener.name": "METRICS",
    }
    with pytest.raises(ConfigError, match="give the listener another name"):
        BrokerConfig.parse(properties)
    without_tls = properties | {"felice.metrics.security.protocol": "PLAINTEXT"}
    assert BrokerConfig.parse(without_tls)[0].secured_names == ["METRICS"]
    assert BrokerConfig.parse(properties | {"felice.metrics.listener": ""})[0].secured_names == ["METRICS"]
