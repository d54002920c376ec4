"""What a broker imports until it is ready: most of the time of a start is the import of modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

START = """
import os, signal, sys
import felice.cli.main, felice.cli.start
from felice.config import BrokerConfig
from felice.server.process.running import run
config, _ = BrokerConfig.parse({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": sys.argv[1]})
def ready(broker):
    print(*sys.modules)
    os.kill(os.getpid(), signal.SIGTERM)
run(config, on_ready=ready)
"""

MOST_MODULES = 359
"""A module more costs a third of a millisecond at each start. Raise this only for what every broker needs."""


def test_a_start_imports_few_modules(tmp_path: Path) -> None:
    command = [sys.executable, "-c", START, str(tmp_path / "data")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    names = done.stdout.split()
    ours = [name for name in names if name.partition(".")[0] == "felice"]
    assert len(ours) <= MOST_MODULES, sorted(ours)
    # Libraries that only some commands and options need.
    foreign = ("argparse", "cryptography", "email", "http.client", "importlib.metadata", "jwt", "kazoo")
    more = ("lz4", "multiprocessing", "numpy", "pyarrow", "pythonjsonlogger", "re2", "rich", "unittest")
    assert set(names).isdisjoint((*foreign, *more, "tempfile", "urllib.request", "xml", "zstandard"))
    assert "felice.client" not in names


def test_a_start_listens_before_it_imports_configuration_and_broker() -> None:
    """Most of the time until the broker is ready is the import of these modules."""
    code = "import sys, felice.cli.main, felice.cli.start; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert {"asyncio", "felice.config", "felice.env", "felice.server"}.isdisjoint(done.stdout.split())


def test_an_error_of_the_client_can_be_imported_without_the_client() -> None:
    code = "import sys, felice.client.error; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    ours = {name for name in done.stdout.split() if name.partition(".")[0] == "felice"}
    assert ours == {
        *("felice", "felice.client", "felice.client.arguments", "felice.client.error", "felice.late_names"),
        *("felice.protocol", "felice.protocol.errors"),
    }
