"""A registry whose broker is down when it starts, and later."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from conformance.registry_process import RegistryProcess
from conformance.web_process import LIMIT_S
from felice.testing import Broker
from proxy import CUT, DEAF, SILENT, Fault, behind
from waiting import wait_until

SCHEMA = {"schema": '"string"'}


def test_a_registry_waits_for_its_broker_and_outlives_its_outage(tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path / "data")
    port = broker.port
    broker.stop()
    log, started = tmp_path / "log", threading.Event()
    found: list[RegistryProcess] = []

    def start() -> None:
        found.append(RegistryProcess(f"127.0.0.1:{port}", log))
        started.set()

    starting = threading.Thread(target=start)
    starting.start()
    wait_until(lambda: log.exists() and "waiting up to 60 s for topic _schemas" in log.read_text())
    assert "refused" in log.read_text()
    broker.start()
    assert started.wait(LIMIT_S), log.read_text()
    registry = found[0]
    try:
        assert registry.call("POST", "/subjects/a/versions", SCHEMA)["id"] == 1
        broker.stop()
        assert registry.call("GET", "/subjects/a/versions/1")["id"] == 1, "read from memory"
        for subject in ("b", "c"):
            status, code = registry.call("POST", f"/subjects/{subject}/versions", SCHEMA)
            assert status == 500 and 50_001 <= code <= 50_004
        broker.start()

        def registered() -> Any:
            answer = registry.call("POST", "/subjects/d/versions", SCHEMA)
            return isinstance(answer, dict) and answer["id"] == 1

        wait_until(registered)
        # What was refused may have been written; nothing else is there, and nothing is lost.
        assert {"a", "d"} <= set(registry.call("GET", "/subjects")) <= {"a", "b", "c", "d"}
        assert {row["id"] for row in registry.call("GET", "/schemas")} == {1}
    finally:
        registry.kill()
        broker.stop()


@pytest.mark.parametrize("kind", [SILENT, DEAF, CUT])
def test_a_registry_answers_in_time_beside_a_broker_that_does_not(tmp_path: Path, kind: str) -> None:
    with behind() as (_, proxy), RegistryProcess(proxy.bootstrap, tmp_path / "log") as registry:
        assert registry.call("POST", "/subjects/a/versions", SCHEMA)["id"] == 1
        proxy.fault = Fault(kind)
        # Each answer comes within the limit of `call`: none waits for the broker's return.
        status, code = registry.call("POST", "/subjects/b/versions", {"schema": '"int"'})
        assert status == 500 and 50_001 <= code <= 50_004
        assert registry.call("GET", "/subjects/a/versions/1")["id"] == 1, "read from memory"
        proxy.repair()

        def registered() -> Any:
            answer = registry.call("POST", "/subjects/c/versions", {"schema": '"long"'})
            return isinstance(answer, dict) and answer["id"]

        wait_until(registered)
        found = {row["subject"]: (row["id"], row["schema"]) for row in registry.call("GET", "/schemas")}
        assert found["a"] == (1, '"string"')
        assert found.keys() - {"b"} == {"a", "c"}
        assert len({schema_id for schema_id, _ in found.values()}) == len(found), "no id twice"


@pytest.mark.parametrize("api", ["Produce", "EndTxn"])
def test_a_write_whose_answer_is_lost_is_decided_before_the_next_id(tmp_path: Path, api: str) -> None:
    with behind() as (_, proxy), RegistryProcess(proxy.bootstrap, tmp_path / "log") as registry:
        assert registry.call("POST", "/subjects/a/versions", SCHEMA)["id"] == 1
        proxy.fault = Fault(CUT, api=api)
        lost = registry.call("POST", "/subjects/b/versions", {"schema": '"int"'})
        proxy.repair()
        texts = {"a": '"string"'}
        for number, text in enumerate(('"long"', '"float"')):
            subject = f"c{number}"

            def registered(subject: str = subject, text: str = text) -> Any:
                return isinstance(
                    registry.call("POST", f"/subjects/{subject}/versions", {"schema": text}), dict
                )

            wait_until(registered)
            texts[subject] = text
        found = {row["subject"]: (row["id"], row["schema"]) for row in registry.call("GET", "/schemas")}
        if isinstance(lost, dict):
            assert found["b"] == (lost["id"], '"int"')
        assert {subject: text for subject, (_, text) in found.items() if subject != "b"} == texts
        assert len({schema_id for schema_id, _ in found.values()}) == len(found), "no id twice"
