"""A real Prometheus scrapes brokers: it reads every line, and every query of the dashboard returns data."""

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from conformance.secured import AUTHORIZER
from conformance.topics import wait_until
from felice.cli.metrics import dashboard_text
from felice.server.process.embedded import EmbeddedBroker, EmbeddedCluster
from peers.prometheus import require_prometheus
from unit.server.test_secured_cluster import client, logs_in, settings

pytestmark = [pytest.mark.felice_only, pytest.mark.timeout(1200)]

DEADLINE_S = 200
# A page that comes later than one interval counts as a failed scrape: under heavy load that may be every one.
INTERVALS_S = (1, 15)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    directory = tmp_path_factory.mktemp("broker")
    with EmbeddedBroker(directory, properties={"felice.metrics.listener": "127.0.0.1:0"}) as started:
        yield started


def address(broker: EmbeddedBroker) -> str:
    return f"127.0.0.1:{broker.broker.monitoring.port}"


class Application:
    """A producer and a consumer in a group, which send a little of each kind when the test asks for it."""

    def __init__(self, bootstrap: Mapping[str, str]) -> None:
        self.producer = confluent_kafka.Producer(dict(bootstrap))
        self.consumer = confluent_kafka.Consumer(
            {**bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        )
        self.consumer.subscribe(["orders"])

    def work(self) -> None:
        self.producer.produce("orders", b"x" * 100)
        self.producer.flush(60)
        if self.consumer.consume(10, 0.2):
            self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


@contextmanager
def prometheus(directory: Path, targets: Iterable[str], interval_s: int) -> Iterator[str]:
    """Prometheus scraping targets; yields its own address."""
    directory.mkdir()
    config = directory / "prometheus.yml"
    config.write_text(
        f"global: {{scrape_interval: {interval_s}s, scrape_timeout: {interval_s}s}}\n"
        f"scrape_configs: [{{job_name: felice, static_configs: [{{targets: {list(targets)}}}]}}]\n"
    )
    command = [
        str(require_prometheus() / "prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        "--web.listen-address=127.0.0.1:0",
    ]
    said = directory / "prometheus.log"
    with said.open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield own_address(said, process)
        finally:
            process.kill()


def own_address(log: Path, process: "subprocess.Popen[bytes]") -> str:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        found = re.search(r'msg="Listening on" address=(127\.0\.0\.1:[1-9]\d*)', log.read_text())
        if found:
            return found[1]
        assert process.poll() is None, log.read_text()[-2000:]
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-2000:])


def result(server: str, query: str) -> list[object]:
    url = f"http://{server}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=120) as response:
        found: list[object] = json.loads(response.read())["data"]["result"]
    return found


def queries() -> list[str]:
    dashboard = json.loads(dashboard_text())
    replaced = {"$instance": ".*", "$topic": ".*", "$__rate_interval": "2m"}
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    for name, value in replaced.items():
        found = [query.replace(name, value) for query in found]
    return found


def test_promtool_accepts_the_page(broker: EmbeddedBroker) -> None:
    application = Application({"bootstrap.servers": broker.bootstrap})
    application.work()
    with urllib.request.urlopen(f"http://{address(broker)}/metrics", timeout=120) as response:
        page = response.read()
    application.close()
    checked = subprocess.run(
        [str(require_prometheus() / "promtool"), "check", "metrics"], input=page, capture_output=True
    )
    # It also has opinions about Kafka's names (exit code 3); a line that it cannot read is exit code 1.
    assert checked.returncode in (0, 3), checked.stderr
    assert b"error while linting" not in checked.stderr


def assert_every_query_returns_data(
    directory: Path, targets: list[str], application: Application, *more: str
) -> None:
    """Every query of the dashboard, all targets are up, and `more`."""
    up = f"count(up == 1) == {len(targets)}"
    without_data = [*queries(), up, *more]
    for interval_s in INTERVALS_S:
        if not without_data:
            break
        with prometheus(directory / f"every-{interval_s}-s", targets, interval_s) as server:
            deadline = time.monotonic() + DEADLINE_S
            while without_data and time.monotonic() < deadline:
                application.work()
                without_data = [query for query in without_data if not result(server, query)]
    assert not without_data


def test_every_query_of_the_dashboard_returns_data(broker: EmbeddedBroker, tmp_path: Path) -> None:
    application = Application({"bootstrap.servers": broker.bootstrap})
    assert_every_query_returns_data(tmp_path, [address(broker)], application)
    application.close()


def test_every_query_returns_data_of_a_secured_cluster(tmp_path: Path) -> None:
    """Three brokers with TLS, SCRAM and ACLs; the application is a user who may use one topic and one group."""
    properties = settings(tmp_path) | {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:broker",
        "felice.metrics.listener": "127.0.0.1:0",
    }
    with EmbeddedCluster(tmp_path / "data", 3, properties=properties) as cluster:
        common = client(cluster, tmp_path)
        admin = AdminClient(common | {"sasl.username": "broker", "sasl.password": "brokers-secret"})
        admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(60)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion("zoe", info, b"zoes-secret")
        admin.alter_user_scram_credentials([change])["zoe"].result(60)
        for future in admin.create_acls(acls_of("User:zoe")).values():
            future.result(60)
        login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "zoe", "sasl.password": "zoes-secret"}
        wait_until(lambda: logs_in(common | login))
        application = Application(common | login)
        targets = [f"127.0.0.1:{broker.monitoring.port}" for broker in cluster.cluster.brokers.values()]
        assert_every_query_returns_data(
            tmp_path,
            targets,
            application,
            "sum(kafka_controller_kafkacontroller_activecontrollercount) == 1",
            'kafka_network_requestmetrics_errors_total{request="Produce",error="NONE"}',
        )
        application.close()


def acls_of(principal: str) -> list[AclBinding]:
    """A producer and consumer of the topic `orders`, in the group `readers`."""
    rights = [
        (ResourceType.TOPIC, "orders", AclOperation.WRITE),
        (ResourceType.TOPIC, "orders", AclOperation.READ),
        (ResourceType.GROUP, "readers", AclOperation.READ),
    ]
    return [
        AclBinding(
            kind, name, ResourcePatternType.LITERAL, principal, "*", operation, AclPermissionType.ALLOW
        )
        for kind, name, operation in rights
    ]
