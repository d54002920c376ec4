"""JAAS texts as Kafka reads them."""

from __future__ import annotations

import pytest

from felice.config.jaas import BadJaas, parse_jaas, parse_jaas_file

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


DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"


def test_a_file_has_sections_of_modules() -> None:
    text = f"""
    // The broker's own login.
    KafkaServer {{
        {PLAIN} required username="a" password="x"; /* two modules: }}; */
        Other optional;
    }};
    Client {{
        {DIGEST} required
        username="kafka" password="a // b /* {{ }} */";
    }};
    """
    found = parse_jaas_file(text)
    assert [module.name for module in found["KafkaServer"]] == ["PlainLoginModule", "Other"]
    [client] = found["Client"]
    assert client.module == DIGEST
    assert client.options == {"username": "kafka", "password": "a // b /* { } */"}


@pytest.mark.parametrize("text", ["", "\n// nothing", "/* nothing */"])
def test_a_file_without_sections(text: str) -> None:
    assert parse_jaas_file(text) == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('M required password="secret";', "expected NAME"),
        ('Client { M required password="secret";', "expected NAME"),
        ('Client { M required password="secret"; }', "section Client is not ended"),
        ('Client { M required password="secret" };', "a login module is not ended"),
        ('Client { M password="secret"; };', "the word required"),
        ("Client { }; Client { };", "several sections Client"),
        ('Client { M required password="secret; };', "not closed"),
        ("Client { /* M required; };", "expected NAME|not closed"),
        ("{ };", "as section 1"),
    ],
)
def test_a_broken_file_is_refused_without_its_values(text: str, reason: str) -> None:
    with pytest.raises(BadJaas, match=reason) as caught:
        parse_jaas_file(text)
    assert "secret" not in str(caught.value)
