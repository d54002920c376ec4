"""`felice registry` as a process, started as a user starts it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.web_process import WebProcess

READY = "The schema registry is ready on "


def registry_words(bootstrap: str, *words: str) -> list[str]:
    return ["registry", "--bootstrap-server", bootstrap, *words]


class RegistryProcess(WebProcess):
    """A registry at a free port. `url` is its address."""

    def __init__(self, bootstrap: str, log: Path, *words: str, port: int = 0) -> None:
        options = ("--replication-factor", "1", "--port", str(port))
        super().__init__(registry_words(bootstrap, *options, *words), READY, log)


def own(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Options for a topic and a group of the test's own."""
    name = re.sub(r"\W", "_", request.node.name)
    return "--topic", f"_schemas_{name}", "--group", f"registry_{name}"
