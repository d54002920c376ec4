"""A standalone worker of Kafka Connect, beside which ours is tested."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peers.apache_kafka import free_port
from peers.applications import application_command, require_applications

START_S = 120.0


class KafkaConnect:
    """A running worker."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._url + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request) as response:
                text = response.read()
                return response.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@contextmanager
def running_kafka_connect(bootstrap: str, directory: Path) -> Iterator[KafkaConnect]:
    require_applications()
    port = free_port()
    properties = directory / "worker.properties"
    properties.write_text(
        f"bootstrap.servers={bootstrap}\n"
        "key.converter=org.apache.kafka.connect.storage.StringConverter\n"
        "value.converter=org.apache.kafka.connect.storage.StringConverter\n"
        f"offset.storage.file.filename={directory / 'offsets'}\n"
        f"listeners=http://127.0.0.1:{port}\n"
        "plugin.discovery=service_load\n"
    )
    log = directory / "worker.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            application_command("org.apache.kafka.connect.cli.ConnectStandalone", str(properties)),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            worker = KafkaConnect(f"http://127.0.0.1:{port}")
            _wait_ready(worker, process, log)
            yield worker
        finally:
            process.kill()
            process.wait()


def _wait_ready(worker: KafkaConnect, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up_at = time.monotonic() + START_S
    while True:
        try:
            worker.ask("GET", "/connectors")
        except (OSError, ValueError):  # it does not listen, or answers with a page of its own
            assert process.poll() is None and time.monotonic() < give_up_at, log.read_text()[-2000:]
            time.sleep(0.1)
        else:
            return
