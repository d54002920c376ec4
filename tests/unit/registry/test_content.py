"""Fingerprints and guids."""

from __future__ import annotations

import hashlib
import uuid

from felice.registry.content import Content, md5_of_guid
from felice.registry.formats.schema import Reference
from felice.registry.rules import metadata_of, rule_set_of


def guid(*parts: bytes) -> str:
    return str(uuid.UUID(bytes=hashlib.md5(b"".join(parts)).digest()))


def test_the_guid_is_the_md5_of_all_that_makes_the_schema() -> None:
    content = Content("AVRO", '"ä"')
    assert content.guid() == guid('"ä"'.encode())
    content = Content("AVRO", "x", (Reference("n", "s", 258), Reference("m", "t", 1)))
    assert content.guid() == guid(b"x", b"n", b"s", b"\0\0\1\2", b"m", b"t", b"\0\0\0\1")
    metadata = metadata_of(
        {"sensitive": ["z", "y"], "properties": {"b": "2", "a": "1"}, "tags": {"p": ["T", "S"]}}
    )
    assert Content("AVRO", "x", (), metadata).guid() == guid(b"x", b"\1", b"pST", b"a1b2", b"yz")
    rules = rule_set_of(
        {
            "domainRules": [
                {
                    "name": "n",
                    "kind": "CONDITION",
                    "mode": "WRITE",
                    "type": "CEL",
                    "tags": ["b", "a"],
                    "params": {"k": "v"},
                    "expr": "e",
                    "onFailure": "ERROR",
                }
            ],
            "migrationRules": [{"name": "m"}],
        }
    )
    expected = guid(b"x", b"\1", b"m", b"nCONDITIONWRITECELabkveERROR")
    assert Content("AVRO", "x", (), None, rules).guid() == expected


def test_empty_metadata_is_another_schema_than_none() -> None:
    assert Content("AVRO", "x", (), metadata_of({})).identity() != Content("AVRO", "x").identity()


def test_one_text_of_two_formats_has_one_guid_and_two_identities() -> None:
    avro, json = Content("AVRO", "{}"), Content("JSON", "{}")
    assert avro.guid() == json.guid()
    assert avro.identity() != json.identity()


def test_a_guid_is_read_back() -> None:
    content = Content("AVRO", "x")
    assert md5_of_guid(content.guid()) == content.md5()
    assert md5_of_guid("nothing") is None
