"""A log with records that a start sets aside: in the log, in the metrics, in DescribeLogDirs, in `felice cluster`."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from conformance.wire import Wire
from felice.cli.main import felice, run
from felice.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from felice.server.process.embedded import EmbeddedBroker
from unit.server.test_embedded_broker import create, produce

STRAYS = "felice.log:type=LogManager,name=StrayLogCount"


def _lose_metadata(data: Path) -> None:
    """Leaves a partition with three records that does not say which topic it belongs to."""
    with EmbeddedBroker(data) as broker, Wire(broker.bootstrap) as wire:
        create(wire, "t")
        for _ in range(3):
            produce(wire, "t")
    (data / "t-0" / "partition.metadata").unlink()


def test_a_log_without_topic_id_is_reported_everywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    _lose_metadata(data)
    caplog.clear()
    with EmbeddedBroker(data) as broker:
        (stray,) = data.glob("t-0.*-stray")
        (record,) = [found for found in caplog.records if found.levelno == logging.ERROR]
        told = vars(record)
        assert (told["partition"], told["path"], told["log_end_offset"]) == ("t-0", str(stray), 3)
        assert "partition.metadata" in told["reason"]
        assert broker.broker.services.metrics.snapshot()[STRAYS] == 1
        with Wire(broker.bootstrap) as wire:
            for version in range(1, 6):
                request = DescribeLogDirsRequest(topics=None)
                [result] = wire.ask(request, version).results
                assert result.stray_logs == ([stray.name] if version >= 2 else [])
        code = run(felice, ["cluster", "-b", broker.bootstrap, "--check", "--json"])
        captured = capsys.readouterr()
        assert json.loads(captured.out)["stray_logs"] == [
            {"broker": broker.broker.broker_id, "path": str(stray)}
        ]
        assert code == 1 and f"set aside: 1 (broker {broker.broker.broker_id}, {stray})" in captured.err
        # Somebody looked at it and moved it away.
        shutil.move(stray, tmp_path / "looked-at")
        assert broker.broker.services.metrics.snapshot()[STRAYS] == 0
        assert run(felice, ["cluster", "-b", broker.bootstrap, "--check"]) == 0
