"""A short list of trusted authorities: confluent_kafka reads it for each client, and the usual list takes long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peers.authority import Authority


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module", autouse=True)
def few_authorities(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(authority.write_trust(tmp_path_factory.mktemp("trust") / "ca.pem")))
        yield
