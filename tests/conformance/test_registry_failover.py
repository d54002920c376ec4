"""Several registries while their leaders pause and die, and forty clients register, look up, delete and configure.

For more: make registry-kills KILLS=50.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from checkers.registrations import (
    Deletion,
    LookedUp,
    Registered,
    Registration,
    Setting,
    deletion_anomalies,
    registration_anomalies,
    setting_anomalies,
)
from conformance.registry_process import RegistryProcess, own
from conformance.targets import Target
from conformance.web_process import LIMIT_S
from waiting import wait_until

KILLS = int(os.environ.get("REGISTRY_KILLS", "2"))
CLIENTS = 40
ANSWERS = 60
"""Schemas that are acknowledged between two kills."""
PATIENCE_S = 240
SUBJECTS = [f"level-own-{client}" for client in range(CLIENTS)]

pytestmark = pytest.mark.timeout(600 + 120 * KILLS)


class Clients:
    """Forty threads that use registries in turn, and remember what they asked and what was answered.

    Each client alone deletes versions of its own subject, and sets that subject's level.
    """

    def __init__(self, registries: list[RegistryProcess]) -> None:
        self.registries = registries
        self.asked: list[Registration] = []
        self.looked_up: list[LookedUp] = []
        self.deletions: list[Deletion] = []
        self.settings: list[Setting] = []
        self.answered = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(LIMIT_S)

    def _work(self, client: int) -> None:
        chance, number = random.Random(client), 0
        while not self._stop.is_set():
            # Each schema is registered by two clients, under subjects of their own and under a common one.
            text = _schema(f"R{number}_{client // 2}")
            subject = f"own-{client}" if chance.random() < 0.5 else f"common-{client // 2}"
            asked = Registration(subject, text, time.monotonic())
            answer = self._call(chance, "POST", f"/subjects/{subject}/versions", {"schema": text})
            if isinstance(answer, dict):
                asked = Registration(subject, text, asked.asked_s, answer["id"], time.monotonic())
                self.answered += 1
                number += 1
                self._look_up(chance, answer["id"])
            self.asked.append(asked)
            if chance.random() < 0.2:
                self._change(chance, f"own-{client}")

    def _look_up(self, chance: random.Random, schema_id: int) -> None:
        found = self._call(chance, "GET", f"/schemas/ids/{schema_id}")
        if isinstance(found, dict):  # another registry than the leader may not have read it yet
            self.looked_up.append(LookedUp(schema_id, found["schema"]))

    def _change(self, chance: random.Random, subject: str) -> None:
        level = chance.choice(["NONE", "BACKWARD", "FULL"])
        # A subject without versions: no level refuses what the clients register.
        answer = self._call(chance, "PUT", f"/config/level-{subject}", {"compatibility": level})
        self.settings.append(Setting(f"level-{subject}", level, isinstance(answer, dict)))
        versions = self._call(chance, "GET", f"/subjects/{subject}/versions")
        if isinstance(versions, list) and len(versions) > 1:
            version = chance.choice(versions)
            answer = self._call(chance, "DELETE", f"/subjects/{subject}/versions/{version}")
            self.deletions.append(Deletion(subject, version, answer == version))

    def _call(self, chance: random.Random, method: str, path: str, body: object = None) -> Any:
        """The answer of any registry, or None: then the request may have been done."""
        try:
            return chance.choice(self.registries).call(method, path, body, timeout=10)
        except httpx2.HTTPError:
            return None

    def go_on(self) -> None:
        """Waits until more schemas are acknowledged."""
        count = self.answered + ANSWERS
        wait_until(lambda: self.answered >= count, PATIENCE_S)


def _schema(name: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": []}, separators=(",", ":"))


def _all_versions(registry: RegistryProcess, *, deleted: bool = True) -> list[Registered]:
    found: list[Registered] = []
    query = f"deleted={deleted}".lower()
    while page := registry.call("GET", f"/schemas?{query}&offset={len(found)}&limit=1000"):
        found += (Registered(one["subject"], one["version"], one["id"], one["schema"]) for one in page)
    return found


def test_no_answer_is_forgotten_and_no_id_is_used_twice_while_leaders_pause_and_die(
    broker: Target, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    words = (*own(request), "--session-timeout", "6")

    def started(number: int) -> RegistryProcess:
        return RegistryProcess(broker.bootstrap, tmp_path / str(number), *words)

    registries = [started(number) for number in range(3)]
    try:
        with Clients(registries) as clients:
            config = {"compatibility": "NONE"}
            assert registries[0].call("PUT", "/config", config) == config
            clients.go_on()
            _pause(_leader(registries), clients.go_on)
            for _ in range(KILLS):
                killed = registries.index(_leader(registries))
                registries[killed].kill()
                clients.go_on()
                registries[killed] = started(killed)
                clients.go_on()
        found = _all_versions(registries[0])
    finally:
        for registry in registries:
            registry.kill()
    last = started(3)
    try:
        kept, live = _all_versions(last), _all_versions(last, deleted=False)
        assert registration_anomalies(clients.asked, kept, found, clients.looked_up) == []
        assert deletion_anomalies(clients.deletions, kept, live) == []
        assert setting_anomalies(clients.settings, _levels(last)) == []
    finally:
        last.kill()
    print(
        f"{len(clients.asked)} requests, {clients.answered} answered, {len(clients.looked_up)} look-ups, "
        f"{len(clients.deletions)} deletions, {len(clients.settings)} settings, {KILLS} leaders killed"
    )


def _levels(registry: RegistryProcess) -> dict[str, str]:
    """The levels that subjects have of their own."""
    found = {subject: registry.call("GET", f"/config/{subject}") for subject in SUBJECTS}
    return {subject: one["compatibilityLevel"] for subject, one in found.items() if isinstance(one, dict)}


def _leader(registries: list[RegistryProcess]) -> RegistryProcess:
    """The registry that leads unless an election is going on: that with the lowest address."""
    return min(registries, key=lambda found: found.url)


def _pause(registry: RegistryProcess, meanwhile: Callable[[], None]) -> None:
    registry.process.send_signal(signal.SIGSTOP)
    try:
        meanwhile()
    finally:
        registry.process.send_signal(signal.SIGCONT)
    meanwhile()
