"""JAAS texts as Kafka reads them."""

from __future__ import annotations

import pytest

from felice.config.jaas import BadJaas, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_module_has_its_options() -> None:
    found = parse_jaas(
        f'{PLAIN} required\n  username="admin" password="a b;c=d"\n user_alice=\'x\' user_bob=y ;'
    )
    assert (found.module, found.name) == (PLAIN, "PlainLoginModule")
    assert found.options == {"username": "admin", "password": "a b;c=d", "user_alice": "x", "user_bob": "y"}


def test_a_backslash_escapes_the_next_character() -> None:
    assert parse_jaas(r'M required p="a\"b\\c\nd";').options == {"p": 'a"b\\c\nd'}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "ended by a semicolon"),
        ("M required", "ended by a semicolon"),
        ("M;", "the word required"),
        ('M username="secret";', "the word required"),
        ("M required username;", "expected name=value at option 1"),
        ("M required a=1 b=;", "expected name=value at option 2"),
        ('M required a="secret;', "quotation mark"),
        ("M required; N required;", "found several"),
    ],
)
def test_a_text_that_is_not_one_module_is_refused_without_its_values(text: str, reason: str) -> None:
    with pytest.raises(BadJaas, match=reason) as caught:
        parse_jaas(text)
    assert "secret" not in str(caught.value)


def test_the_text_of_a_module_shows_no_values() -> None:
    assert "secret" not in repr(parse_jaas('M required a="secret";'))
