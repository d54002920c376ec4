"""Workers of Kafka Connect, beside which ours are tested."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from connect_rest import RestClient
from peers.apache_kafka import free_port
from peers.applications import application_command, require_applications

START_S = 120.0


@contextmanager
def running_kafka_connect(
    bootstrap: str, directory: Path, group: Mapping[str, str] | None = None
) -> Iterator[RestClient]:
    """A standalone worker, or with the options of a `group` a distributed one."""
    require_applications()
    port = free_port()
    strings = "org.apache.kafka.connect.storage.StringConverter"
    options = {
        "bootstrap.servers": bootstrap,
        "key.converter": strings,
        "value.converter": strings,
        **({"offset.storage.file.filename": str(directory / "offsets")} if group is None else group),
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.discovery": "service_load",
    }
    properties = directory / "worker.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    log = directory / "worker.log"
    kind = "ConnectStandalone" if group is None else "ConnectDistributed"
    with log.open("wb") as out:
        process = subprocess.Popen(
            application_command(f"org.apache.kafka.connect.cli.{kind}", str(properties)),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            worker = RestClient(f"http://127.0.0.1:{port}")
            _wait_ready(worker, process, log)
            yield worker
            process.terminate()  # it commits offsets
            process.wait(START_S)
        finally:
            process.kill()
            process.wait()


def _wait_ready(worker: RestClient, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up_at = time.monotonic() + START_S
    while True:
        try:
            status, _ = worker.ask("GET", "/connectors")
            if status == 200:
                return
        except (OSError, ValueError):  # it does not listen, or answers with a page of its own
            pass
        assert process.poll() is None and time.monotonic() < give_up_at, log.read_text()[-2000:]
        time.sleep(0.1)
