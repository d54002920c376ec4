"""One ZooKeeper for all contracts of a run; each test has a chroot of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peers.zookeeper import require_ensemble


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with require_ensemble(tmp_path_factory.mktemp("zookeeper"), nodes=1) as ensemble:
        yield ensemble.connect
