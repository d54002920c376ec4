"""Properties of clients that tools read: files, the command line, and the values to which they refer."""

from __future__ import annotations

from pathlib import Path

import pytest

from felice.cli.faults import Fault
from felice.cli.options import client_config
from felice.config import ConfigError

DECLARED = """
config.providers=file
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
"""


def test_a_tool_logs_in_with_a_password_from_another_file(tmp_path: Path) -> None:
    secrets, file = tmp_path / "secrets.properties", tmp_path / "client.properties"
    secrets.write_text("pw=s3cret\n")
    file.write_text(f"{DECLARED}sasl.username=alice\nsasl.password=${{file:{secrets}:pw}}\n")
    assert client_config("h:1", file) == {
        "bootstrap.servers": "h:1",
        "sasl.username": "alice",
        "sasl.password": "s3cret",
    }
    # Also in properties of the command line, which come after those of the file.
    added = client_config("h:1", file, [f"sasl.password=<${{file:{secrets}:pw}}>"])
    assert added["sasl.password"] == "<s3cret>"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sasl.password=${env:PW}", "declares no provider env"),
        ("sasl.jaas.config=M required password='${env:PW}';", "declares no provider env"),
        (f"{DECLARED}sasl.password=${{file:/no/such/file:pw}}", "cannot be read"),
        (
            "config.providers=vault\nconfig.providers.vault.class=org.example.Vault",
            "Felice has the providers",
        ),
    ],
)
def test_a_reference_is_not_the_password(text: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(ConfigError, match=reason):
        client_config("h:1", file)


def test_other_texts_stay(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=${a:b}\n")
    assert client_config("h:1", file) == {"bootstrap.servers": "h:1", "client.id": "${a:b}"}


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(b"\xef\xbb\xbfclient.id=a\n")
    assert client_config("h:1", file)["client.id"] == "a"


@pytest.mark.parametrize(
    ("data", "reason"), [(b"a=1\nb=\xe9\n", "in line 2"), (b"client.id=pa\\user\n", "malformed")]
)
def test_a_file_that_cannot_be_read_says_where(data: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(data)
    with pytest.raises(Fault, match=reason):
        client_config("h:1", file)
