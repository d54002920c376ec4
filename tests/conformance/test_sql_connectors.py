"""Statements about connectors, and a Connect worker of Felice that answers them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the server needs Spark: pip install 'felice[spark]'")

from conformance.targets import Target
from connect_worker import running_worker
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.server.connect_worker import WorkerAddress
from felice.pipelines.sql.server.failures import StatementFailed
from felice.pipelines.sql.server.service import Deployment, SqlService
from waiting import wait_until


def test_a_connector_from_its_creation_to_its_end(broker: Target, tmp_path: Path) -> None:
    client = {"bootstrap.servers": broker.bootstrap}
    options = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in"), "topic": "lines"}
    config = ", ".join(f"'{name}'='{value}'" for name, value in options.items())
    create = f"CREATE SOURCE CONNECTOR `in` WITH ({config});"
    with running_worker(broker.bootstrap, tmp_path) as worker:
        deployment = Deployment(
            "a",
            client,
            built_in(),
            {},
            None,
            tmp_path / "sql",
            worker=WorkerAddress(worker.url, timeout_s=100),
        )

        def ran(text: str) -> dict[str, Any]:
            async def run() -> dict[str, Any]:
                service = SqlService(deployment, SimpleNamespace(states=dict))  # type: ignore[arg-type]
                try:
                    (found,) = await service.execute(text, {}, {})
                finally:
                    await service._connectors.close()
                return found

            return asyncio.run(run())

        info = ran(create)["info"]
        assert (info["type"], info["config"]) == ("source", {**options, "name": "in"})
        assert ran(create.replace("CONNECTOR", "CONNECTOR IF NOT EXISTS"))["@type"] == "warning_entity"
        with pytest.raises(StatementFailed, match="tasks.max"):
            ran("CREATE SOURCE CONNECTOR bad WITH ('connector.class'='FileStreamSource', 'tasks.max'='x');")
        assert worker.states("in")[0] == "RUNNING"
        shown = {"name": "in", "type": "source", "className": "FileStreamSource"}

        def runs() -> bool:
            (found,) = ran("SHOW SOURCE CONNECTORS;")["connectors"]
            assert shown.items() <= found.items()
            return bool(found["state"] == "RUNNING (1/1 tasks RUNNING)")

        wait_until(runs, 100)
        assert ran("SHOW SINK CONNECTORS;")["connectors"] == []
        described = ran("DESCRIBE CONNECTOR `in`;")
        assert (described["connectorClass"], described["status"]["name"]) == ("FileStreamSource", "in")
        assert described["warnings"] == []
        plugins = ran("SHOW CONNECTOR PLUGINS;")["connectorPlugins"]
        assert {"source", "sink"} <= {one["type"] for one in plugins}
        assert ran("DROP CONNECTOR `in`;")["connectorName"] == "in"
        assert ran("SHOW CONNECTORS;")["connectors"] == []
