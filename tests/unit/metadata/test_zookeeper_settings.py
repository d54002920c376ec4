"""The login at ZooKeeper in a JAAS file: what cannot be used is refused in one line without its password."""

from __future__ import annotations

from pathlib import Path

import pytest

from felice.metadata.store import StoreError
from felice.metadata.zookeeper import JaasSettings

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
GOOD = f'{MODULE} required username="kafka" password="the-secret";'


def login_of(directory: Path, text: str | bytes, section: str = "Client") -> tuple[str, str]:
    path = directory / "jaas.conf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    login = JaasSettings(path, section).login()
    assert "the-secret" not in repr(login)
    return login.user, login.password


def test_the_named_section_counts(tmp_path: Path) -> None:
    text = f"KafkaServer {{ X required; }}; Client {{ {GOOD} }}; Zk {{ {MODULE} required username=z password=y; }};"
    assert login_of(tmp_path, text) == ("kafka", "the-secret")
    assert login_of(tmp_path, text, "Zk") == ("z", "y")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"KafkaServer {{ {GOOD} }};",
            "the section is missing; zookeeper.sasl.client=false connects without",
        ),
        ("", "the section is missing"),
        ("Client { };", "expected one login module, found 0"),
        (f"Client {{ {GOOD} {GOOD} }};", "expected one login module, found 2"),
        (
            "Client { com.sun.security.auth.module.Krb5LoginModule required; };",
            "Krb5LoginModule is not supported",
        ),
        (f'Client {{ {MODULE} required username="kafka"; }};', "needs username and password"),
        (f'Client {{ {MODULE} required password="the-secret"; }};', "needs username and password"),
        (f"Client {{ {GOOD} }}", "section Client is not ended by a semicolon"),
        (b"Client { \xff };", "it is not text in UTF-8"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str | bytes, reason: str) -> None:
    with pytest.raises(StoreError, match=reason) as refused:
        login_of(tmp_path, text)
    said = str(refused.value)
    assert "jaas.conf: java.security.auth.login.config, section Client: " in said
    assert "the-secret" not in said and "\n" not in said


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"none.conf.*No such file"):
        JaasSettings(tmp_path / "none.conf").login()
