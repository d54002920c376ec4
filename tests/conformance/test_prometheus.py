"""A real Prometheus scrapes a broker: it reads every line, and every query of the dashboard returns data."""

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest

from felice.cli.metrics import dashboard_text
from felice.server.embedded import EmbeddedBroker
from peers.prometheus import require_prometheus

pytestmark = [pytest.mark.felice_only, pytest.mark.timeout(600)]

DEADLINE_S = 200


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    directory = tmp_path_factory.mktemp("broker")
    with EmbeddedBroker(directory, properties={"felice.metrics.listener": "127.0.0.1:0"}) as started:
        yield started


def address(broker: EmbeddedBroker) -> str:
    return f"127.0.0.1:{broker.broker.monitoring.port}"


class Application:
    """A producer and a consumer in a group, which send a little of each kind when the test asks for it."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        bootstrap = {"bootstrap.servers": broker.bootstrap}
        self.producer = confluent_kafka.Producer(bootstrap)
        self.consumer = confluent_kafka.Consumer(
            {**bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        )
        self.consumer.subscribe(["orders"])

    def work(self) -> None:
        self.producer.produce("orders", b"x" * 100)
        self.producer.flush(30)
        if self.consumer.consume(10, 0.2):
            self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


@contextmanager
def prometheus(directory: Path, target: str) -> Iterator[str]:
    """Prometheus scraping a target each second; yields its own address."""
    config = directory / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: felice, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    log = (directory / "prometheus.log").open("wb")
    command = [
        str(require_prometheus() / "prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        "--web.listen-address=127.0.0.1:0",
    ]
    with log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield own_address(directory / "prometheus.log", process)
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
    with urllib.request.urlopen(url, timeout=30) as response:
        found: list[object] = json.loads(response.read())["data"]["result"]
    return found


def queries() -> list[str]:
    dashboard = json.loads(dashboard_text())
    replaced = {"$instance": ".*", "$topic": ".*", "$__rate_interval": "30s"}
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    for name, value in replaced.items():
        found = [query.replace(name, value) for query in found]
    return found


def test_promtool_accepts_the_page(broker: EmbeddedBroker) -> None:
    application = Application(broker)
    application.work()
    with urllib.request.urlopen(f"http://{address(broker)}/metrics") as response:
        page = response.read()
    application.close()
    checked = subprocess.run(
        [str(require_prometheus() / "promtool"), "check", "metrics"], input=page, capture_output=True
    )
    # It also has opinions about Kafka's names (exit code 3); a line that it cannot read is exit code 1.
    assert checked.returncode in (0, 3), checked.stderr
    assert b"error while linting" not in checked.stderr


def test_every_query_of_the_dashboard_returns_data(broker: EmbeddedBroker, tmp_path: Path) -> None:
    application = Application(broker)
    with prometheus(tmp_path, address(broker)) as server:
        without_data, deadline = queries(), time.monotonic() + DEADLINE_S
        while without_data and time.monotonic() < deadline:
            application.work()
            without_data = [query for query in without_data if not result(server, query)]
        application.close()
        assert not without_data
        assert result(server, "up == 1")
