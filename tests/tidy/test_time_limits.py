"""What a handler may reach limits its waits with `time_limit`: `asyncio.timeout` fails where no task runs."""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "felice"
# Each runs in a task of its own.
WITH_TASKS = {
    "metadata/zookeeper/store.py",
    "server/process/companion.py",
    "server/membership/own_address.py",
    "server/process/embedded.py",
    "server/process/process_group.py",
    "testing/simulation/ensemble.py",
    "testing/simulation/world.py",
}
BROKER = (
    "controller",
    "coordinator",
    "env",
    "log",
    "metadata",
    "replication",
    "security",
    "server",
    "testing",
)


def test_handlers_limit_their_waits_without_a_task() -> None:
    found = {
        str(file.relative_to(SOURCE))
        for package in BROKER
        for file in (SOURCE / package).rglob("*.py")
        if re.search(r"\basyncio\.(timeout|timeout_at|wait_for|TaskGroup|current_task)\(", file.read_text())
    }
    assert found == WITH_TASKS
