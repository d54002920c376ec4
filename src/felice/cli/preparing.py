"""Runs a small stream application on a broker of its own, so that Spark loads the classes that applications need."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from felice.cli.faults import Fault
from felice.client import Producer
from felice.server.process.embedded import EmbeddedBroker

_APPLICATION = """
from felice.streams import App

app = App("prepare", value="string")
app.stream("words").group_by(lambda key, word: word).count(name="counts").to_stream().to("counts", value="json")
"""
_RECORDS = 1000
_ENDS_WITHIN_S = 600


def run_small_application() -> None:
    """Count some words with `felice run`, in another process. If that fails, raises `Fault` with the last line of the
    process's standard error.
    """
    with tempfile.TemporaryDirectory(prefix="felice-prepare-") as directory:
        place = Path(directory)
        (place / "prepare.py").write_text(_APPLICATION)
        with EmbeddedBroker(place / "data") as broker:
            _write_words(broker.bootstrap)
            _run(place, broker.bootstrap)


def _write_words(bootstrap: str) -> None:
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(_RECORDS):
            producer.produce("words", str(number % 10).encode())


def _run(place: Path, bootstrap: str) -> None:
    words = [
        "run",
        "prepare.py",
        "--bootstrap-server",
        bootstrap,
        "--master",
        "local[2]",
        "--until-caught-up",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "felice.cli.main", *words],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=_ENDS_WITHIN_S,
        check=False,
    )
    if done.returncode:
        raise Fault(f"the application failed: {done.stderr.strip().rpartition(chr(10))[2]}")
