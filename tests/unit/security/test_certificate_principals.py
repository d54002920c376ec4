"""From a certificate's subject to a principal: Java's text of the subject, and the mapping rules."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from felice.security.distinguished_name import subject_of
from felice.security.mapping import BadRule, name_of, parse_rules
from peers import authority

AUTHORITY = authority.Authority()

# The expected texts were printed by Java's X500Principal.getName() for the same certificates.
SUBJECTS = [
    (
        authority.name_of(
            (NameOID.COUNTRY_NAME, "DE"),
            (NameOID.ORGANIZATION_NAME, "Acme, Inc."),
            (NameOID.ORGANIZATIONAL_UNIT_NAME, "a+b"),
            (NameOID.COMMON_NAME, 'x "y" <z>; \\ #='),
        ),
        r"CN=x \"y\" \<z\>\; \\ \#\=,OU=a\+b,O=Acme\, Inc.,C=DE",
    ),
    (
        authority.name_of((NameOID.COMMON_NAME, "  lead and trail  "), (NameOID.EMAIL_ADDRESS, "a@b.c")),
        r"1.2.840.113549.1.9.1=#16056140622e63,CN=\ \ lead and trail\ \ ",
    ),
    (
        authority.name_of(
            (NameOID.DOMAIN_COMPONENT, "org"),
            (NameOID.DOMAIN_COMPONENT, "example"),
            (NameOID.USER_ID, "u1"),
            (NameOID.STATE_OR_PROVINCE_NAME, "Bayern"),
            (NameOID.LOCALITY_NAME, "München"),
            (NameOID.STREET_ADDRESS, "s 1"),
            (NameOID.SERIAL_NUMBER, "77"),
            (NameOID.TITLE, "Dr"),
        ),
        "2.5.4.12=#0c024472,2.5.4.5=#13023737,STREET=s 1,L=München,ST=Bayern,UID=u1,DC=example,DC=org",
    ),
    (
        x509.Name(
            [
                x509.RelativeDistinguishedName(
                    [
                        x509.NameAttribute(NameOID.COMMON_NAME, "a"),
                        x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "b"),
                    ]
                )
            ]
        ),
        "CN=a+OU=b",
    ),
    (authority.common_name("#lead"), r"CN=\#lead"),
    (authority.common_name(" "), "CN=\\ "),
    (
        authority.name_of((NameOID.TITLE, "x" * 60), (NameOID.SERIAL_NUMBER, "1")),
        "2.5.4.5=#130131,2.5.4.12=#0c3c" + "78" * 60,
    ),
]


@pytest.mark.parametrize(("subject", "text"), SUBJECTS)
def test_a_subject_has_the_text_that_java_gives_it(subject: x509.Name, text: str) -> None:
    assert subject_of(AUTHORITY.issue(subject).der) == text


KAFKAS_RULES = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", "CN=a,OU=b", "CN=a,OU=b"),
        (KAFKAS_RULES, "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,C=Unknown", "serviceuser"),
        (KAFKAS_RULES, "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        (KAFKAS_RULES, "OU=x,CN=Some.User", "some.user"),
        (KAFKAS_RULES, "OU=x", "OU=x"),
        ("RULE:CN=(.*)/$1/U", "CN=a", "A"),
        ("RULE:CN=(.*)/$1/", "CN=a,OU=b", "a,OU=b"),
        ("RULE:CN=a/x/", "CN=ab", None),
        (r"RULE:CN=(\w+)\/(\w+)/$2\/$1/", "CN=a/b", "b/a"),
        (r"RULE:CN=(.*)/\$$1\\/", "CN=a", "$a\\"),
        ("RULE:CN=a,OU=(.),DEFAULT/$1/,RULE:.*/other/", "CN=a,OU=b,DEFAULT", "b"),
        ("", "CN=a", None),
    ],
)
def test_the_first_rule_that_matches_the_whole_subject_counts(
    rules: str, subject: str, name: str | None
) -> None:
    assert name_of(subject, parse_rules(rules)) == name


@pytest.mark.parametrize(
    "text",
    [
        "RULE:a",
        "RULE:a/b",
        "default",
        "RULE:(/b/",
        "RULE:a/$1/",
        "RULE:a/b/X",
        "DEFAULT RULE:a/b/",
        "DEFAULTS",
    ],
)
def test_a_rule_that_cannot_be_parsed_is_refused(text: str) -> None:
    with pytest.raises(BadRule):
        parse_rules(text)
