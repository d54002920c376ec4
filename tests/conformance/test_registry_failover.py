"""Several registries while their leaders pause and die."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import httpx2
import pytest

from conformance.registry_process import LIMIT_S, RegistryProcess, own
from conformance.targets import Target
from waiting import wait_until


def numbered(number: int) -> str:
    return json.dumps({"type": "record", "name": f"R{number}", "fields": []}, separators=(",", ":"))


def test_no_acknowledged_schema_is_lost_and_no_id_is_used_twice_while_leaders_pause_and_die(
    broker: Target, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    words = (*own(request), "--session-timeout", "6")
    registries = [RegistryProcess(broker.bootstrap, tmp_path / str(n), *words) for n in range(3)]
    acknowledged: dict[str, int] = {}
    stop = threading.Event()

    def register(worker: int) -> None:
        number, tries = 0, worker
        while not stop.is_set():
            # Each schema is registered by two workers, under subjects of their own.
            text = numbered(number * 2 + worker % 2)
            subject = f"w{worker}-{number}"
            tries += 1
            registry = registries[tries % len(registries)]
            try:
                answer = registry.call("POST", f"/subjects/{subject}/versions", {"schema": text}, timeout=3)
            except httpx2.HTTPError:
                continue
            if isinstance(answer, dict):
                acknowledged[f"{subject} {text}"] = answer["id"]
                number += 1

    workers = [threading.Thread(target=register, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()

    def go_on() -> None:
        """More schemas are acknowledged."""
        count = len(acknowledged)
        wait_until(lambda: len(acknowledged) >= count + 10)

    try:
        go_on()
        leader = min(registries, key=lambda found: found.url)
        leader.process.send_signal(signal.SIGSTOP)
        go_on()
        leader.process.send_signal(signal.SIGCONT)
        go_on()
        killed = registries.index(min(registries, key=lambda found: found.url))
        registries[killed].kill()
        registries[killed] = RegistryProcess(broker.bootstrap, tmp_path / str(killed), *words)
        go_on()
    finally:
        stop.set()
        for worker in workers:
            worker.join(LIMIT_S)
        for registry in registries:
            registry.kill()
    texts: dict[int, str] = {}
    for named, schema_id in acknowledged.items():
        text = named.partition(" ")[2]
        assert texts.setdefault(schema_id, text) == text, f"id {schema_id} has two schemas"
    with RegistryProcess(broker.bootstrap, tmp_path / "last", *words) as last:
        for named, schema_id in acknowledged.items():
            subject, _, text = named.partition(" ")
            found = last.call("GET", f"/subjects/{subject}/versions/1")
            assert (found["id"], found["schema"]) == (schema_id, text)
        assert last.call("GET", "/schemas/ids/1?fetchMaxId=true")["maxId"] <= len(acknowledged) + 4
