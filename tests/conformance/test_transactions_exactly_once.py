"""Consume, produce and commit offsets in one transaction: it leaves one copy of everything when processes are killed at
random.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from conformance.copying import (
    CLIENTS,
    QUICK,
    QUICK_WITH_BROKER,
    check_partition,
    copy_exactly_once,
    mortal_broker,
)
from conformance.targets import IS_APACHE, Target

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.parametrize("client", CLIENTS)
def test_copiers_and_brokers_that_are_killed_leave_one_copy(
    client: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = zlib.crc32(client.encode())
    if IS_APACHE:
        broker: Target = request.getfixturevalue("broker")
        copy_exactly_once(client, broker.bootstrap, QUICK, seed)
        return
    with mortal_broker(tmp_path / "data") as (bootstrap, kill):
        copy_exactly_once(client, bootstrap, QUICK_WITH_BROKER, seed, kill)


@pytest.mark.parametrize(
    ("copied", "reproach"),
    [
        ([b"1", b"2", b"2", b"3"], "twice"),
        ([b"1", b"3"], "missing"),
        ([b"1", b"2", b"3", b"4"], "from elsewhere"),
        ([b"1", b"3", b"2"], "out of order"),
    ],
)
def test_the_check_reports_what_is_wrong_with_a_copy(copied: list[bytes], reproach: str) -> None:
    with pytest.raises(AssertionError, match=reproach):
        check_partition(0, copied, [b"1", b"2", b"3"])
