"""`python -m bench.connect`: lines of a file to a topic and back, by `felice connect` and by Kafka Connect in turns.

Both copy against the same Felice broker. The time runs from the moment when the task runs, so that the start of Spark
and of Java does not count.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from bench.systems import Felice
from felice.client.admin import AdminClient, NewTopic
from felice.client.blocking import LATEST, BlockingClient
from peers.kafka_connect import running_kafka_connect

_STRINGS = "org.apache.kafka.connect.storage.StringConverter"
_LINE = "x" * 99
_WITHIN_S = 600.0
_POLL_S = 0.05

Ask = Callable[[str, str, object], tuple[int, Any]]


@contextmanager
def _ours(bootstrap: str, place: Path) -> Iterator[Ask]:
    options = {
        "bootstrap.servers": bootstrap,
        "key.converter": _STRINGS,
        "value.converter": _STRINGS,
        "offset.storage.file.filename": str(place / "offsets"),
        "listeners": "http://127.0.0.1:0",
    }
    file = place / "worker.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    command = [sys.executable, "-m", "felice.cli.main", "connect", "standalone", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().split()[-1]

    def ask(method: str, path: str, body: object) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(
            urllib.request.Request(url + path, data, headers, method=method)
        ) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None

    try:
        yield ask
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


@contextmanager
def _kafkas(bootstrap: str, place: Path) -> Iterator[Ask]:
    with running_kafka_connect(bootstrap, place) as worker:
        yield worker.ask


_SYSTEMS = {"felice": _ours, "kafka": _kafkas}


def _until(condition: Callable[[], bool], what: str) -> float:
    """The seconds until a condition holds."""
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > _WITHIN_S:
            raise TimeoutError(f"{what} took over {_WITHIN_S:g} s")
        time.sleep(_POLL_S)
    return time.perf_counter() - began


def _runs(ask: Ask, name: str) -> bool:
    _, found = ask("GET", "/connectors?expand=status", None)
    tasks = found.get(name, {}).get("status", {}).get("tasks", [])
    return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)


def _end(bootstrap: str, topic: str) -> int:
    with BlockingClient(bootstrap) as client:
        return client.list_offsets({(topic, 0): LATEST})[topic, 0].offset


def _lines(file: Path) -> int:
    if not file.exists():
        return 0
    size = file.stat().st_size
    return size // (len(_LINE) + 1)


def _create(ask: Ask, name: str, config: dict[str, str]) -> None:
    status, answer = ask("POST", "/connectors", {"name": name, "config": {**config, "tasks.max": "1"}})
    assert status == 201, answer
    _until(lambda: _runs(ask, name), f"the start of {name}")


def turn(system: str, bootstrap: str, records: int, number: int) -> dict[str, float]:
    """The records a second of one turn, in and out."""
    topic = f"{system}-{number}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    admin.close()
    with tempfile.TemporaryDirectory() as folder, _SYSTEMS[system](bootstrap, Path(folder)) as ask:
        place = Path(folder)
        before, after = place / "before.txt", place / "after.txt"
        # The task waits for the file, so that its start does not count.
        _create(ask, "in", {"connector.class": "FileStreamSource", "file": str(before), "topic": topic})
        written = place / "written.txt"
        with written.open("w") as out:
            out.writelines(f"{_LINE}\n" for _ in range(records))
        written.rename(before)
        source_s = _until(lambda: _end(bootstrap, topic) >= records, "the source")
        sink = {"connector.class": "FileStreamSink", "file": str(after), "topics": topic}
        _create(ask, "out", sink)
        # The topic is full when the task starts, so that its work is timed from the first lines it writes.
        _until(lambda: _lines(after) > 0, "the sink's first line")
        early = _lines(after)
        sink_s = _until(lambda: _lines(after) >= records, "the sink")
    return {"in": records / source_s, "out": (records - early) / sink_s}


@click.command()
@click.option("--records", default=1_000_000, show_default=True, help="Lines of 100 bytes.")
@click.option("--turns", default=3, show_default=True, help="Turns of each system.")
def main(records: int, turns: int) -> None:
    """Measure files to topics and back."""
    found: dict[str, list[dict[str, float]]] = {system: [] for system in _SYSTEMS}
    with Felice() as broker:
        for number in range(turns):
            for system in _SYSTEMS if number % 2 == 0 else reversed(_SYSTEMS):
                found[system].append(turn(system, broker.bootstrap, records, number))
                click.echo(f"{system} {found[system][-1]}", err=True)
    for way in ("in", "out"):
        medians = {system: statistics.median(one[way] for one in found[system]) for system in _SYSTEMS}
        ratio = medians["felice"] / medians["kafka"]
        click.echo(
            f"{way}: felice {medians['felice']:,.0f}/s, kafka {medians['kafka']:,.0f}/s, ratio {ratio:.2f}"
        )


if __name__ == "__main__":
    main()
