"""Principals in text form, and the host's text that ACLs compare."""

from __future__ import annotations

import pytest

from felice.security.principal import ANONYMOUS, Principal, host_text


def test_a_principal_is_written_as_kind_and_name() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert Principal.parse("User:CN=a:b,OU=c") == Principal("User", "CN=a:b,OU=c")


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice", ":"])
def test_a_text_without_kind_or_name_is_no_principal(text: str) -> None:
    with pytest.raises(ValueError, match="Kind:name"):
        Principal.parse(text)


def test_a_login_by_token_does_not_change_the_identity() -> None:
    by_token = Principal("User", "alice", token_authenticated=True)
    assert by_token.is_same_as(Principal("User", "alice"))
    assert not by_token.is_same_as(Principal("User", "Alice"))
    assert not by_token.is_same_as(Principal("Group", "alice"))
    assert by_token != Principal("User", "alice")


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::a0b:1", "2001:db8:0:0:0:0:a0b:1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("unix:/tmp/socket", "unix:/tmp/socket"),
        ("", ""),
    ],
)
def test_a_host_has_the_text_that_java_gives_it(address: str, text: str) -> None:
    assert host_text(address) == text
